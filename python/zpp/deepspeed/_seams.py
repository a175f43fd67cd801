# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All that zpp.deepspeed uses of DeepSpeed beyond its public interface."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.moe.utils import is_moe_param
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.engine import DeepSpeedEngine
from deepspeed.runtime.zero import partition_parameters, stage3
from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus
from deepspeed.utils import groups
from torch import nn

#: The oldest and the newest version that the tests have run with.
TESTED = "0.19.6", "0.19.8"

_Optimizer = stage3.DeepSpeedZeroOptimizer_Stage3
_AVERAGE = f"_{_Optimizer.__name__}__avg_scatter_grads"
#: Attributes of zpp, on objects of DeepSpeed's.
_SETTINGS, _ATTACHED, _UNDO = "_zpp_settings", "_zpp_attached", "_zpp_undo"

#: Functions that are replaced or called: their owners, names and parameters.
_EXPECTED: tuple[tuple[Any, str, str], ...] = (
    (DeepSpeedConfig, "_initialize_params", "self, param_dict"),
    (partition_parameters, "_dist_allgather_fn", "input_tensor, output_tensor, group"),
    (partition_parameters, "get_allgather_dtype", "param, param_ds_tensor"),
    (partition_parameters, "MultipleAllGatherHandles", "handles"),
    (stage3, "reduce_scatter_coalesced", "tensors, group"),
    (_Optimizer, _AVERAGE, "self, params_to_reduce, communication_data_type"),
    (_Optimizer, "step", "self, closure"),
    (groups, "_get_zero_param_intra_parallel_group", ""))
#: Those of a parameter of ZeRO-3, likewise.
_OF_PARAMETERS = (
    ("all_gather", "param_list, async_op, hierarchy"),
    ("all_gather_coalesced", "params, safe_mode, quantize"),
    ("partition", "param_list, hierarchy, has_been_updated, free_data"))


def _check(owner: Any, name: str, expected: str, title: str) -> None:
    """Raises RuntimeError if a function is not as zpp knows it."""
    found = getattr(owner, name, None)
    got = ("no such function" if found is None else
           f"{name}({', '.join(inspect.signature(_unwrap(found)).parameters)})")
    if got != f"{name}({expected})":
        raise RuntimeError(
            f"expected {name}({expected}) in {title}, as DeepSpeed {TESTED[0]} to "
            f"{TESTED[1]} have it, but got {got} in DeepSpeed {deepspeed.__version__}")


def _unwrap(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function within DeepSpeed's ranges for profilers, which hide it."""
    function = inspect.unwrap(function)
    found = inspect.getclosurevars(function).nonlocals.get("func") if (
        inspect.isfunction(function)) else None
    return function if found is None else _unwrap(found)


def install(read: Callable[[dict], tuple[dict, Any]],
            attach: Callable[[DeepSpeedEngine, Any], None],
            gather: Callable[..., Any], scatter: Callable[..., Any]) -> None:
    """Replaces what all engines share, once.

    Args:
      read: called with each config; returns that for DeepSpeed, and the settings of
        zpp.
      attach: called with each engine that has settings, once it is complete.
      gather: called with DeepSpeed's gather and its arguments.
      scatter: likewise with its scatter of gradients.

    Raises:
      RuntimeError: if DeepSpeed is not as zpp knows it.
    """
    if hasattr(DeepSpeedConfig, _SETTINGS):
        return
    for owner, name, expected in _EXPECTED:
        _check(owner, name, expected, owner.__name__)
    setattr(DeepSpeedConfig, _SETTINGS, None)
    parse, build = DeepSpeedConfig._initialize_params, DeepSpeedEngine.__init__

    @functools.wraps(parse)
    def parse_rest(self: DeepSpeedConfig, param_dict: dict) -> None:
        rest, settings = read(param_dict)
        setattr(self, _SETTINGS, settings)
        parse(self, rest)

    @functools.wraps(build)
    def build_and_attach(self: DeepSpeedEngine, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        _unfollow(self.module.parameters())
        settings = getattr(self._config, _SETTINGS)
        if settings is not None:
            attach(self, settings)

    DeepSpeedConfig._initialize_params = parse_rest
    DeepSpeedEngine.__init__ = build_and_attach
    partition_parameters._dist_allgather_fn = functools.partial(
        gather, partition_parameters._dist_allgather_fn)
    stage3.reduce_scatter_coalesced = functools.partial(
        scatter, stage3.reduce_scatter_coalesced)


#: Returns a context for what is done with parameters.
_Context = Callable[[Sequence[nn.Parameter]], contextlib.AbstractContextManager]


def attach(engine: DeepSpeedEngine, thing: Any) -> None:
    """Has `attached` return it."""
    setattr(engine, _ATTACHED, thing)


def attached(engine: Any) -> Any:
    """The thing that was attached to an engine; None if there is none."""
    return getattr(engine, _ATTACHED, None)


def parameters_of(engine: DeepSpeedEngine) -> Iterator[tuple[str, nn.Parameter]]:
    """Those that ZeRO-3 has cut into slices, with their names."""
    for name, weight in engine.module.named_parameters():
        if hasattr(weight, "ds_id"):
            for function, expected in _OF_PARAMETERS:
                _check(weight, function, expected, "a parameter of ZeRO-3")
            yield name, weight


def device() -> torch.device:
    """The device of this rank."""
    return torch.device(get_accelerator().current_device_name())


def gathered_type(weight: nn.Parameter) -> torch.dtype:
    """The type in which a parameter is gathered."""
    return partition_parameters.get_allgather_dtype(weight, weight.ds_tensor)


def is_expert(weight: nn.Parameter) -> bool:
    """Whether DeepSpeed has exchanges of its own for a parameter."""
    return is_moe_param(weight)


def is_sliced(weight: nn.Parameter) -> bool:
    """Whether a rank keeps a slice of a parameter in memory, as it is, and nothing
    else: DeepSpeed keeps small ones whole, others on NVMe, and frozen ones in a format
    of its own if it is told to."""
    slice_ = weight.ds_tensor
    return not (weight.ds_persist or slice_.final_location == "nvme"
                or hasattr(slice_, "ds_quant_scale"))


def check_no_secondary(weights: Mapping[str, nn.Parameter]) -> None:
    """Raises ValueError if DeepSpeed keeps the secondary partitions of hpZ: it gathers
    them, rather than the slices, in all engines of the process."""
    name = next((name for name, weight in weights.items()
                 if weight.ds_secondary_tensor is not None), None)
    if name is None and groups._get_zero_param_intra_parallel_group() is None:
        return
    found = "secondary groups" if name is None else f"a secondary partition of '{name}'"
    raise ValueError(
        f"expected zpp.deepspeed.install() before zero.Init, from_pretrained and all "
        f"else that reads zero_hpz_partition_size, but got {found} of DeepSpeed's")


def follow(engine: DeepSpeedEngine, weights: Sequence[nn.Parameter],
           is_apart: Callable[[nn.Parameter], bool], gather: _Context, reduce: _Context,
           on_step: Callable[[], None],
           on_write: Callable[[Iterable[nn.Parameter]], None],
           on_end: Callable[[], None]) -> None:
    """Has functions called with what an engine does, until there is another engine with
    its parameters.

    Args:
      is_apart: whether a parameter is gathered alone.
      gather: returns a context in which parameters are gathered for a module.
      reduce: returns one in which gradients of parameters are reduced.
      on_step: called after a step that has changed the weights.
      on_write: called with the parameters that are written to otherwise.
      on_end: called when there is another engine, maybe several times.
    """
    for weight in weights:
        _follow_parameter(weight, is_apart, gather, on_write, on_end)
    load = engine.load_checkpoint

    @functools.wraps(load)
    def load_checkpoint(*args: Any, **kwargs: Any) -> Any:
        try:
            result = load(*args, **kwargs)
        except BaseException:
            # Some weights may be loaded; what went wrong is the load.
            with contextlib.suppress(Exception):
                on_write(weights)
            raise
        on_write(weights)
        return result

    engine.load_checkpoint = load_checkpoint
    optimizer = engine.optimizer
    if not isinstance(optimizer, _Optimizer):
        return
    step, average = optimizer.step, getattr(optimizer, _AVERAGE)

    @functools.wraps(step)
    def step_and_tell(*args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        # A step that has overflown changes nothing.
        if not optimizer.overflow:
            on_step()
        return result

    @functools.wraps(average)
    def average_within(params_to_reduce: list, communication_data_type: torch.dtype
                       ) -> Any:
        with reduce(params_to_reduce):
            return average(params_to_reduce, communication_data_type)

    optimizer.step = step_and_tell
    setattr(optimizer, _AVERAGE, average_within)


def _follow_parameter(weight: nn.Parameter, is_apart: Callable[[nn.Parameter], bool],
                      gather: _Context,
                      on_write: Callable[[Iterable[nn.Parameter]], None],
                      on_end: Callable[[], None]) -> None:
    gather_exactly, partition = weight.all_gather, weight.partition
    gather_coalesced = weight.all_gather_coalesced

    @functools.wraps(gather_coalesced)
    def all_gather_coalesced(params: Iterable[nn.Parameter], *args: Any, **kwargs: Any
                             ) -> Any:
        params = sorted(params, key=lambda each: each.ds_id)
        rest = [each for each in params if not is_apart(each)]
        handles = []
        for together in [*([rest] if rest else []),
                         *([each] for each in params if is_apart(each))]:
            with gather(together):
                handles.append(gather_coalesced(together, *args, **kwargs))
            for each in together:
                each.zpp_is_rounded = is_apart(each)
        return partition_parameters.MultipleAllGatherHandles(handles)

    @functools.wraps(gather_exactly)
    def all_gather(param_list: list | None = None, *args: Any, **kwargs: Any) -> Any:
        wanted = [weight] if param_list is None else param_list
        # What a module has gathered is rounded: others, such as GatheredParameters, want
        # what is kept.
        free_rounded(wanted)
        for each in wanted:
            each.zpp_is_rounded = False
        return gather_exactly(wanted, *args, **kwargs)

    @functools.wraps(partition)
    def partition_and_tell(param_list: list | None = None, *args: Any, **kwargs: Any
                           ) -> Any:
        written = [weight] if param_list is None else param_list
        if kwargs.get("has_been_updated") or len(args) > 1 and args[1]:
            on_write(written)
        return partition(param_list, *args, **kwargs)

    def undo() -> None:
        weight.all_gather_coalesced = gather_coalesced
        weight.all_gather, weight.partition = gather_exactly, partition
        # Another engine would compute with what is rounded.
        free_rounded([weight])
        weight.zpp_is_rounded = False
        on_end()

    weight.all_gather_coalesced = all_gather_coalesced
    weight.all_gather, weight.partition = all_gather, partition_and_tell
    setattr(weight, _UNDO, undo)


def free_rounded(weights: Iterable[nn.Parameter]) -> None:
    """Frees what modules have gathered, which is rounded."""
    for weight in weights:
        if (getattr(weight, "zpp_is_rounded", False)
                and weight.ds_status == ZeroParamStatus.AVAILABLE):
            weight.partition()
            weight.zpp_is_rounded = False


def _unfollow(weights: Iterable[nn.Parameter]) -> None:
    """Undoes what `follow` has done to parameters for a former engine."""
    for weight in weights:
        if hasattr(weight, _UNDO):
            getattr(weight, _UNDO)()
            delattr(weight, _UNDO)
