# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All that zpp.torch uses of PyTorch beyond its public interface."""

import contextlib
import dataclasses
import functools
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch._compile import _disable_dynamo
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard import _fsdp_param_group

from zpp.torch._fsdp import shard_group

#: The oldest and the newest version that the tests have run with.
TESTED = (2, 9), (2, 15)

#: FSDP2's function before a module is called, and PyTorch's that calls it.
_BEFORE, _CALL = "_pre_forward", "_call_impl"


def check_version() -> None:
    """Raises RuntimeError outside of the versions that were tested."""
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    version = tuple(map(int, found.groups())) if found else ()
    oldest, newest = TESTED
    if not oldest <= version <= newest:
        raise RuntimeError(
            "expected PyTorch {}.{} to {}.{}, whose fully_shard zpp knows, but got {}".format(
                *oldest, *newest, torch.__version__))


# Slices -----------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Slices:
    """Contents of a group's collectives, as far as known before the first step."""

    #: The elements of a rank's gather, and their type; None if subclasses decide it.
    gathered: tuple[int, torch.dtype] | None
    #: The reduction, likewise; None if nothing is trained.
    reduced: tuple[int, torch.dtype] | None
    #: Whether the reduction takes the mean, rather than a sum.
    is_mean: bool


def slices_of(parameters: Any) -> Slices:
    """Predicts them. Where FSDP2 decides otherwise, the collective is compiled then."""
    gathered, reduced = [], []
    is_known = True
    for each in parameters.fsdp_params:
        dtype, count = type_of(each), elements_of(each)
        is_known &= is_sent_as_it_is(each)
        gathered.append((count, dtype))
        if each.sharded_param.requires_grad:
            reduced.append((count, _reduced_type(each)))
    types = {dtype for _, dtype in reduced}
    reduced_type = types.pop() if len(types) == 1 else None
    return Slices(
        _join(gathered) if is_known else None,
        (sum(count for count, _ in reduced), reduced_type) if reduced_type
        else None,
        reduced_type in (torch.float32, torch.bfloat16) and
        parameters.gradient_divide_factor is None and
        not parameters.force_sum_reduction_for_comms)


def _join(parts: list[tuple[int, torch.dtype]]) -> tuple[int, torch.dtype]:
    """FSDP2 gathers parameters of several types as bytes."""
    types = {dtype for _, dtype in parts}
    if len(types) == 1:
        return sum(count for count, _ in parts), types.pop()
    return sum(count * dtype.itemsize for count, dtype in parts), torch.uint8


def type_of(parameter: Any) -> torch.dtype:
    """The type in which a parameter is gathered."""
    dtype = parameter.sharded_param.dtype
    return (parameter.mp_policy.param_dtype or dtype if dtype.is_floating_point
            else dtype)


def _reduced_type(parameter: Any) -> torch.dtype:
    """The type in which a gradient is reduced."""
    given, weight = parameter.mp_policy.reduce_dtype, parameter.sharded_param
    if given is None and hasattr(type(parameter), "unsharded_grad_dtype"):
        # Since PyTorch 2.15 that of the parameter, whatever it is gathered in.
        given = weight.grad_dtype or weight.dtype
    return given or type_of(parameter)


def elements_of(parameter: Any) -> int:
    """The elements of a parameter in a slice. They are as many on all ranks."""
    # DeepSpeed's may be on NVMe: it says itself how many they are.
    elements = getattr(parameter, "elements", None)
    return parameter._sharded_param_data.numel() if elements is None else elements


def names_of(model: nn.Module, groups: Iterable[Any]) -> dict[Any, dict[Any, str]]:
    """The names that the parameters of groups have in a state dict of `model`."""
    modules = {module: name for name, module in model.named_modules()}
    return {parameters: {each: _WRAPPERS.sub("", ".".join(filter(None, (
        modules.get(each._module_info.module), each._module_info.param_name))))
        for each in parameters.fsdp_params} for parameters in groups}


#: Names that wrappers add: of checkpointed and compiled modules.
_WRAPPERS = re.compile(r"\b(_checkpoint_wrapped_module|_orig_mod)\.")


def is_sent_as_it_is(parameter: Any) -> bool:
    """Whether what is gathered of a parameter are the elements of its shard."""
    return not hasattr(parameter._sharded_local_tensor, "fsdp_pre_all_gather")


def dims_of(parameter: Any) -> int:
    """The dims of a parameter that have several elements."""
    return sum(size > 1 for size in parameter._orig_size)


def trained_parameters(parameters: Any) -> tuple[Any, ...]:
    return tuple(each for each in parameters.fsdp_params
                 if each.sharded_param.requires_grad)


#: The parameters whose gradients a thread reduces.
_reducing = threading.local()


def reduced_parameters() -> tuple[Any, ...]:
    """Those whose gradients are reduced by the collective that is called, in the order
    of its slices: FSDP2 leaves out those without a gradient."""
    return getattr(_reducing, "parameters", ())


def _follow(reduce: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reduce)
    def call(parameters: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        with reducing(parameters):
            return reduce(parameters, *args, **kwargs)
    return call


@contextlib.contextmanager
def reducing(parameters: Iterable[Any]) -> Iterator[None]:
    """Has `reduced_parameters` return these."""
    _reducing.parameters = tuple(parameters)
    try:
        yield
    finally:
        _reducing.parameters = ()


# FSDP2 tells nobody else.
_fsdp_param_group.foreach_reduce = _follow(_fsdp_param_group.foreach_reduce)


def state_of(parameters: Any) -> tuple[tuple[Any, int, int], ...] | None:
    """A value that changes when PyTorch sees that one of the weights does: the memory of
    each shard, and how often the parameter and the shard were written to. None
    where nothing can be said: tensor subclasses may gather more than the shard,
    and inference tensors do not count."""
    state = []
    for each in parameters.fsdp_params:
        shard = each._sharded_local_tensor
        if not is_sent_as_it_is(each) or shard.is_inference():
            return None
        state.append((shard.untyped_storage()._cdata,
                      each.sharded_param._version, shard._version))
    return tuple(state)


def all_have_elements(parameters: Any) -> bool:
    """Whether each rank has elements of the weights: last shards may be short or empty."""
    count = shard_group(parameters).size()
    for each in parameters.fsdp_params:
        size = each._orig_size[each.fsdp_placement.dim]
        if -(-size // count) * (count - 1) < size and each._orig_size.numel():
            return True
    return False


def next_slice(parameters: Any) -> torch.Tensor | None:
    """A copy of this rank's slice as FSDP2 would gather it now, over all ranks of the
    weights; None where it would not, because they are not sharded, where the slice is
    not on the device, or where tensor subclasses may gather more than it."""
    if not parameters.is_sharded or any(
            each._sharded_param_data.device != parameters.device
            or not is_sent_as_it_is(each)
            for each in parameters.fsdp_params):
        return None
    with torch.no_grad():
        parts = [part for each in parameters.fsdp_params
                 for part in each.all_gather_inputs]
        if len({part.dtype for part in parts}) > 1:
            parts = [part.view(torch.uint8) for part in parts]
        return torch.cat(parts)


def storages_of(parameters: Any) -> list[torch.UntypedStorage]:
    """The memory of the shards. While it is referred to, no other shard can have it."""
    return [each._sharded_local_tensor.untyped_storage()
            for each in parameters.fsdp_params]


# Process groups ---------------------------------------------------------------

def factor_of(op: Any) -> float | None:
    """The number with which a reduction multiplies each summand; None if with none."""
    return op.__getstate__()[1] if op == dist.ReduceOp.PREMUL_SUM else None


def is_fake(group: dist.ProcessGroup) -> bool:
    """True for the group of a dry run, which sends nothing."""
    return dist.get_backend(group) == "fake"


def is_dry_run(group: dist.ProcessGroup) -> bool:
    """True if nothing will run: with a fake group, or with fake tensors."""
    return is_fake(group) or torch._guards.detect_fake_mode() is not None


def is_backward() -> bool:
    """Whether autograd runs a backward pass in this thread."""
    return torch._C._current_graph_task_id() != -1


class _Pass(NamedTuple):
    """A forward pass: a call of a module that has no other one around it."""

    number: int
    module: "weakref.ref[nn.Module]"
    #: FSDP2 gathers without.
    has_gradients: bool


#: How many forward passes have begun, and that of the latest call of a module, if any.
_forward_passes = 0
_latest: _Pass | None = None
#: Attribute of zpp on FSDP2's context of a model: the latest pass.
_PASS = "_zpp_pass"
#: Whether the user gathers a module.
_gathers_by_hand = threading.local()


def current_pass() -> tuple[int, int] | None:
    """A value that only the pass that is under way has; None if none is,
    or if the user gathers a module: weights may have been written to before."""
    task = torch._C._current_graph_task_id()
    if getattr(_gathers_by_hand, "is_now", False):
        return None
    if task != -1:
        return _forward_passes, task
    return (_latest.number, task) if _latest and _is_called(_latest.module()) else None


def _is_called(module: nn.Module | None) -> bool:
    """Whether a call of a module is under way. Its frame tells, after exceptions too."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if (frame.f_code.co_name == _CALL and module is not None
                and frame.f_locals.get("self") is module):
            return True
        frame = frame.f_back
    return False


def _by_hand(gather: Callable[..., Any]) -> Callable[..., Any]:
    @_disable_dynamo
    @functools.wraps(gather)
    def call(*args: Any, **kwargs: Any) -> Any:
        _gathers_by_hand.is_now = True
        try:
            return gather(*args, **kwargs)
        finally:
            _gathers_by_hand.is_now = False
    return call


# Its gathers are those of passes otherwise.
FSDPModule.unshard = _by_hand(FSDPModule.unshard)  # type: ignore[method-assign]


# Compiled, each number of a pass would be another constant.
@_disable_dynamo
def _begin_pass(module: nn.Module, *_: Any) -> None:
    global _forward_passes, _latest
    _forward_passes += 1
    _latest = _Pass(_forward_passes, weakref.ref(module), torch.is_grad_enabled())


@_disable_dynamo
def _begin_call(module: FSDPModule, *_: Any) -> None:
    """Begins a forward pass with FSDP2's root, or goes on with that of the root."""
    global _latest
    if is_backward():
        return
    state = module._get_fsdp_state()
    # It is None before the first pass.
    if state._is_root is not False:
        _begin_pass(module)
        setattr(state._state_ctx, _PASS, _latest)
    else:
        # Another model may have been called in between.
        _latest = getattr(state._state_ctx, _PASS, None)


def computes_gradients() -> bool:
    """Whether gradients are computed in the forward pass that is under way."""
    return _latest is not None and _latest.has_gradients


def count_calls(module: nn.Module) -> list[Any]:
    """Counts the calls of a module as forward passes. Returns handles, to remove it."""
    return [module.register_forward_pre_hook(_begin_pass, prepend=True)]


def count_forward_passes(module: FSDPModule) -> None:
    """Counts the calls of a module of fully_shard, if FSDP2 has it as a root. What other
    methods gather that FSDP2 takes for a call is in no pass."""
    if _begin_call in module._forward_pre_hooks.values():
        return
    module.register_forward_pre_hook(_begin_call, prepend=True)
    state = module._get_fsdp_state()
    if _BEFORE not in vars(state):
        # FSDP2's hooks of calls have the function of before.
        setattr(state, _BEFORE, _by_hand(getattr(state, _BEFORE)))


def is_captured(tensor: torch.Tensor) -> bool:
    """Whether a CUDA graph records what is done with a tensor."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def to_host(values: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event | None]:
    """Values in memory of the host, on GPUs once the event has passed."""
    if not values.is_cuda:
        return values, None
    copied = torch.empty_like(values, device="cpu", pin_memory=True).copy_(
        values, non_blocking=True)
    return copied, torch.cuda.current_stream(values.device).record_event()


def is_watched(tensor: torch.Tensor) -> bool:
    """Whether a profiler, a mode or a subclass wants to see operations on a tensor."""
    return (type(tensor) is not torch.Tensor
            or torch.autograd._profiler_enabled()
            or torch._C._len_torch_dispatch_stack() > 0
            or torch._C._len_torch_function_stack() > 0
            or torch.compiler.is_compiling())


#: A range for profilers and observers, at no cost where there are none.
record_range = torch._C._profiler._RecordFunctionFast


# Exchanges of PyTorch ---------------------------------------------------------

def all_to_all(result: torch.Tensor, source: torch.Tensor,
               group: dist.ProcessGroup) -> None:
    dist.all_to_all_single(result, source, group=group)


def all_gather_by_sends(result: torch.Tensor, source: torch.Tensor,
                        group: dist.ProcessGroup) -> None:
    """Sends to each rank of a group side by side, where NCCL's gather is a ring."""
    dist.all_to_all(list(result.chunk(group.size())), [source] * group.size(),
                    group=group)


def all_gathers(results: Sequence[torch.Tensor], sources: Sequence[torch.Tensor],
                group: dist.ProcessGroup) -> None:
    """Gathers several tensors, which take the place of one: NCCL launches them together.

    gloo gathers one by one: its two threads write the name of what has ended to one
    string without a lock, which breaks the heap where a name does not fit into the string
    itself. "ALLGATHER_COALESCED" is the only such name here."""
    if len(results) == 1 or not results[0].is_cuda:
        for result, source in zip(results, sources):
            dist.all_gather_into_tensor(result, source, group)
    else:
        group.allgather_into_tensor_coalesced(
            list(results), list(sources)).wait()


def reduce_scatters(results: Sequence[torch.Tensor],
                    sources: Sequence[torch.Tensor], group: dist.ProcessGroup
                    ) -> None:
    """Likewise, with sums."""
    if len(results) == 1:
        dist.reduce_scatter_tensor(results[0], sources[0], dist.ReduceOp.SUM, group)
    else:
        group.reduce_scatter_tensor_coalesced(
            list(results), list(sources)).wait()
