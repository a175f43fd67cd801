# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`install` and `report`: DeepSpeed's collectives as zpp's functions."""

import contextlib
import dataclasses
import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

from zpp._option_kinds import parse_mesh
from zpp._torch_options import TorchOptions as Options
from zpp.deepspeed import _config, _seams
from zpp.deepspeed._parameters import Group, Parameter
from zpp.torch import _agreement, _mesh, _metrics, _pytorch
from zpp.torch._agreement import Ballots
from zpp.torch._communication import Communication
from zpp.torch._compress import check_group, check_options, is_measured, make_ready
from zpp.torch._compress import read_variants, report_of
from zpp.torch._exact import check_patterns, warn_of_vectors
from zpp.torch._links import find_links
from zpp.torch._plans import Plan, block_of, make_plan
from zpp.torch._runtime import versions
from zpp.torch._shared import Call, reason_of

#: The parameters that a thread gathers, and those whose gradients it reduces.
_now = threading.local()
_SMALL = ("DeepSpeed gathers parameters of one dim, small ones, those on NVMe and those of "
          "experts as they are")
_EXPERTS = "they are gradients of experts, whose exchanges are DeepSpeed's"
#: Buckets with other parameters each that an engine has plans of, beside two for each
#: parameter: a model whose buckets stay has at most one for each.
_MORE_BUCKETS = 64
_CHANGING = ("DeepSpeed's buckets have had other parameters too often: what zpp keeps of "
             "each would fill the memory")


def install() -> None:
    """Has DeepSpeed run the settings of ZeRO++ on zpp's exchanges, in all engines whose
    config has some of them or "zpp". The configs of others are not touched. A second
    call does nothing.

        {"zero_optimization": {"stage": 3, "zero_quantized_weights": true,
                               "zero_quantized_gradients": true,
                               "zero_hpz_partition_size": 8},
         "zpp": {"mesh": "node:4,gpu:8", "weights": "i4:delta"}}

    It comes before zero.Init and from_pretrained, which read the config, too.

    With ZPP_DEEPSPEED=1 in the environment it is called as soon as a program has
    imported DeepSpeed, where zpp is installed from a wheel.

    Raises:
      RuntimeError: if zpp does not know this version of DeepSpeed.
    """
    _seams.install(_config.read, _attach, _gather, _scatter)


def initialize(*args: Any, **kwargs: Any) -> tuple:
    """`deepspeed.initialize`, after `install`."""
    install()
    return deepspeed.initialize(*args, **kwargs)


def report(engine: Any) -> dict:
    """As `zpp.torch.report`, of an engine of DeepSpeed's.

    Raises:
      ValueError: if zpp does not send its weights and gradients.
    """
    return _compression_of(engine).report()


def metrics(engine: Any) -> dict[str, float]:
    """As `zpp.torch.metrics`, of an engine of DeepSpeed's."""
    return _compression_of(engine).metrics(engine.module)


def forget(engine: Any) -> None:
    """As `zpp.torch.forget`, of an engine of DeepSpeed's: all ranks call it after
    weights were written to otherwise than by steps, GatheredParameters and
    load_checkpoint."""
    _compression_of(engine).forget()


def _compression_of(engine: Any) -> "_Compression":
    found = _seams.attached(engine)
    if found is None:
        raise ValueError(
            "expected an engine whose config has zero_quantized_weights, "
            "zero_quantized_gradients, zero_hpz_partition_size or zpp, after "
            "zpp.deepspeed.install(), but got another one")
    return found


def _attach(engine: Any, settings: _config.Settings) -> None:
    _seams.attach(engine, _Compression(engine, settings))


class _Left:
    """The gathers that are left to DeepSpeed, as the report has them."""

    def __init__(self, options: Options):
        self._options = options
        self._calls: Counter[Plan] = Counter()

    def note(self, kind: str, reason: str, dtype: torch.dtype, elements: int,
             group: dist.ProcessGroup) -> None:
        """Notes a call, with the elements of one rank's slice."""
        # A group of experts may be no part of the mesh.
        with contextlib.suppress(ValueError):
            self._calls[make_plan(kind, dtype, elements, False, str(self._options.mesh),
                                  group, self._options, reason, None)] += 1

    def entries(self, name: str) -> list[dict]:
        return [plan.entry(name, count) for plan, count in self._calls.items()]

    def state_bytes(self) -> int:
        return 0

    def errors(self) -> dict[str, float]:
        return {}


class _Compression:
    """The gathers and reductions of an engine."""

    def __init__(self, engine: Any, settings: _config.Settings):
        self._device = _seams.device()
        weights = dict(_seams.parameters_of(engine))
        _seams.check_no_secondary(weights)
        # Otherwise the ranks that go on would wait for the others.
        self._agree([dist.group.WORLD], {
            "options": repr(settings.options), "guard": repr(settings.guard),
            "DeepSpeed": deepspeed.__version__, **versions()})
        self._options = self._complete(settings.options)
        self._mesh = str(self._options.mesh)
        self._call = Call(self._mesh, [(0, self._options)], settings.guard,
                          Ballots(at_once=self._device.type != "cpu"))
        self._left = _Left(self._options)
        check_patterns(self._options, list(weights))
        self._parameters = {
            weight: Parameter(weight, name) for name, weight in weights.items()
            if not _seams.is_expert(weight)}
        if {self._options.weights, self._options.gradients} != {"none"}:
            warn_of_vectors({each: each.name for each in self._parameters.values()})
        #: By the parameters that are gathered alone.
        self._gathers = {
            weight: self._communicate(each.name, [each], self._call)
            for weight, each in self._parameters.items() if self._is_alone(each)}
        #: By the parameters whose gradients are reduced together.
        self._reductions: dict[tuple[Parameter, ...], tuple[str, Communication]] = {}
        self._most_reductions = _MORE_BUCKETS + 2 * len(self._parameters)
        for weight, each in self._parameters.items():
            check_group(f"'{each.name}'", weight.ds_process_group, self._mesh)
        self._agree({weight.ds_process_group for weight in weights.values()}, {
            "parameters": [[name, list(weight.ds_shape), str(weight.dtype),
                            weight in self._gathers]
                           for name, weight in weights.items()]})
        make_ready([(each, maker) for each in self._gathers.values()
                    for maker in each.gathers.makers()])
        self._meter = _metrics.Meter(self.report)
        _seams.follow(
            engine, list(weights.values()), self._gathers.__contains__,
            functools.partial(_within, "gathering", self),
            functools.partial(_within, "reducing", self), self._on_step,
            self._on_write, self._on_end)
        self._hooks = [*_pytorch.count_calls(engine.module),
                       engine.module.register_forward_hook(
                           self._on_forward, always_call=True)]

    def _agree(self, groups: Iterable[dist.ProcessGroup], facts: dict) -> None:
        _agreement.check(groups, facts, "deepspeed.initialize")

    def _complete(self, options: Options) -> Options:
        """The options with a mesh and links."""
        if options.mesh is None:
            options = options.replace(mesh=_mesh.tiers_of_hosts())
        tiers = parse_mesh(options.mesh)
        _mesh.check_world(tiers)
        check_options(options)
        if is_measured(options, self._device):
            options = options.replace(links=find_links(tiers, self._device))
        ((_, options),) = read_variants({}, options)
        return options

    def _is_alone(self, parameter: Parameter) -> bool:
        """Whether a parameter is gathered alone, so that what is held of it is the same
        whatever DeepSpeed gathers together; others travel as they are."""
        return (_seams.is_sliced(parameter.sharded_param)
                and _pytorch.dims_of(parameter) > 1
                and _pytorch.elements_of(parameter) >= block_of(self._options))

    def _communicate(self, name: str, parameters: Sequence[Parameter], call: Call
                     ) -> Communication:
        return Communication(name, None, Group(name, parameters, self._device), call,
                             {each: each.name for each in parameters})

    def communications(self) -> list[tuple[str, Any]]:
        """Those of the report, with their names."""
        return [("other parameters", self._left),
                *((each.shared.name, each) for each in self._gathers.values()),
                *self._reductions.values()]

    def report(self) -> dict:
        return report_of(self.communications(), parse_mesh(self._mesh), self._options.links)

    def metrics(self, module: nn.Module) -> dict[str, float]:
        return self._meter.measure([module], (each for _, each in self.communications()))

    def forget(self) -> None:
        self._on_write(self._gathers)

    def _on_step(self) -> None:
        for weight, each in self._gathers.items():
            # What is frozen does not change.
            if weight.requires_grad:
                each.shared.next_step()

    def _on_forward(self, _module: nn.Module, _inputs: Any, result: Any) -> None:
        """DeepSpeed keeps weights for a backward pass, also after an evaluation or an
        error, where there is no result, and code that saves weights gathers only those
        that are not there."""
        if self._options.weights != "none" and (
                result is None or not torch.is_grad_enabled()):
            _seams.free_rounded(self._gathers)

    def _on_end(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._meter.stop()

    def _on_write(self, weights: Iterable[nn.Parameter]) -> None:
        errors = []
        for weight in weights:
            if weight in self._gathers:
                try:
                    self._gathers[weight].gathers.forget()
                except Exception as error:
                    errors.append(error)
        # Only once nothing that is void is held.
        if errors:
            raise errors[0]

    def gather(self, original: Callable[..., Any], weights: Sequence[nn.Parameter],
               source: torch.Tensor, result: torch.Tensor, group: dist.ProcessGroup
               ) -> Any:
        """In the place of DeepSpeed's gather of some parameters, the original."""
        if weights[0] not in self._gathers:
            self._left.note("all_gather", _SMALL, source.dtype, source.numel(), group)
            return original(source, result, group)
        source = self._parameters[weights[0]].made_ready(source)
        return self._gathers[weights[0]].gathers.gather(result, source, group, True)

    def scatter(self, original: Callable[..., Any], weights: Sequence[nn.Parameter],
                tensors: Sequence[torch.Tensor], group: dist.ProcessGroup
                ) -> list[torch.Tensor]:
        """In the place of DeepSpeed's scatter of gradients, the original."""
        count, rank = group.size(), group.rank()
        sizes = [-(-tensor.numel() // count) for tensor in tensors]
        if reason := self._reason_of_scatter(weights):
            self._left.note("reduce_scatter", reason, tensors[0].dtype, sum(sizes), group)
            return original(tensors, group)
        # Zeros where DeepSpeed's has what is in memory: they change no scale.
        rows = torch.cat([
            nn.functional.pad(tensor.reshape(-1), (0, size * count - tensor.numel())
                              ).view(count, size)
            for tensor, size in zip(tensors, sizes)], dim=1).view(-1)
        rows /= count
        result = rows.new_empty(sum(sizes))
        parameters = tuple(self._parameters[weight] for weight in weights)
        with _pytorch.reducing(parameters):
            self._reduction_of(parameters).reductions.scatter(
                result, rows, group, dist.ReduceOp.SUM, False)
        return [part[:max(0, min(size, tensor.numel() - rank * size))]
                for part, size, tensor in zip(result.split(sizes), sizes, tensors)]

    def _reason_of_scatter(self, weights: Sequence[nn.Parameter]) -> str:
        """Why a scatter of gradients is left to DeepSpeed, or an empty string."""
        if not all(weight in self._parameters for weight in weights):
            return _EXPERTS
        # All ranks have the same buckets.
        if (len(self._reductions) >= self._most_reductions and tuple(
                self._parameters[weight] for weight in weights) not in self._reductions):
            return _CHANGING
        return reason_of("reduce_scatter", self._options)

    def _reduction_of(self, parameters: tuple[Parameter, ...]) -> Communication:
        if parameters not in self._reductions:
            names = [each.name for each in parameters]
            name = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
            self._reductions[parameters] = name, self._communicate(
                name, parameters, dataclasses.replace(self._call, latest=0))
        return self._reductions[parameters][1]


@contextlib.contextmanager
def _within(role: str, compression: _Compression, weights: Sequence[nn.Parameter]
            ) -> Iterator[None]:
    """Notes what DeepSpeed does with parameters: its collectives know tensors alone."""
    setattr(_now, role, (compression, weights))
    try:
        yield
    finally:
        setattr(_now, role, None)


def _gather(original: Callable[..., Any], source: torch.Tensor, result: torch.Tensor,
            group: dist.ProcessGroup | None = None) -> Any:
    now = getattr(_now, "gathering", None)
    if now is None:
        return original(source, result, group)
    compression, weights = now
    return compression.gather(original, weights, source, result,
                              group or dist.group.WORLD)


def _scatter(original: Callable[..., Any], tensors: Sequence[torch.Tensor],
             group: dist.ProcessGroup | None = None) -> list[torch.Tensor]:
    now = getattr(_now, "reducing", None)
    if now is None:
        return original(tensors, group)
    compression, weights = now
    return compression.scatter(original, weights, tensors, group or dist.group.WORLD)
