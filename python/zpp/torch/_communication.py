# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The collectives that FSDP2 calls in place of its own."""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from zpp._options import parse_mesh
from zpp._torch_options import TorchOptions as Options
from zpp._warn import warn
from zpp.torch import _mesh, _pytorch
from zpp.torch._accumulate import Accumulation, Passes
from zpp.torch._ahead import Order, stream_of_gathers, stream_of_hop
from zpp.torch._bucket import sends_differences
from zpp.torch._calls import AllGather, ReduceScatter, Work
from zpp.torch._functions import Function, run_apart
from zpp.torch._layout import Layout
from zpp.torch._plans import Plan, make_plan, plan_hops, plan_in_vain, plan_sum
from zpp.torch._runtime import follow_timeout
from zpp.torch._secondary import Hops, SecondaryPartition, make_hops

_LEFT_ALONE = {
    "all_gather": "gathers of weights are to stay as they are",
    "reduce_scatter": "scatters of gradients are to stay as they are",
    "all_reduce": "all-reduces of gradients are to stay as they are"}

_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")


def _once(method: "Callable[Concatenate[Communication, Options, _Rest], _Result]"
          ) -> "Callable[Concatenate[Communication, Options, _Rest], _Result]":
    """Has a method called once for equal arguments: FSDP2 asks for the same in each
    step. The options are some of `Communication._variants`, so that their identity is
    enough, where their content would be hashed each time."""
    name = method.__name__

    @functools.wraps(method)
    def call(self, options, *args, **kwargs):
        key = name, id(options), *args, *kwargs.values()
        known = self._known
        if key not in known:
            known[key] = method(self, options, *args, **kwargs)
        return known[key]
    return call


@dataclasses.dataclass(frozen=True)
class _Way:
    """How a gather is executed: by hops, or by a plan."""

    hops: Hops | None = None
    plan: Plan | None = None


@dataclasses.dataclass(frozen=True)
class _Gather:
    """A gather by hops."""

    #: The type and the elements of this rank's slice.
    dtype: torch.dtype
    elements: int
    group: dist.ProcessGroup
    hops: Hops


class Steps:
    """The steps of all modules of a model.

    Args:
      latest: the most of any of them.
    """

    def __init__(self, latest: int):
        self.latest = latest


class Communication:
    """The state that the collectives of a group of parameters share. A module of
    fully_shard has one group, or one for each mesh of its parameters.

    Args:
      module: the one of fully_shard that the group belongs to.
      parameters: what fully_shard knows of the group.
      variants: options by the step from which on they hold, the latest first.
      steps: those of all modules of the same call of `compress`, which share `passes`
        and `order`, too.
    """

    def __init__(self, name: str, module: FSDPModule, parameters: Any, mesh: str,
                 variants: list[tuple[int, Options]], steps: Steps,
                 passes: Passes, order: "Order[Communication]"):
        self.name = name
        self.mesh = mesh
        self._parameters = parameters
        self._variants = variants
        #: Backward passes in which the gradients were reduced.
        self._steps = steps.latest
        self._has_gradients = False
        self._steps_of_all = steps
        #: The options of the latest scatter, until its result is reduced.
        self._reduced: Options | None = None
        self._calls: Counter[Plan] = Counter()
        #: The results of methods, see `_once`.
        self._known: dict[tuple, Any] = {}
        self._functions: dict[Plan, Function] = {}
        self._secondary = SecondaryPartition(name, parameters)
        self._order = order
        #: The latest gather by hops.
        self._latest: _Gather | None = None
        #: The hop that was run ahead of its gather.
        self._ahead: Plan | None = None
        self._hooks: list[Any] = []
        self._has_warned = False
        self._accumulation = Accumulation(name, module, parameters, passes,
                                          self._accumulates)

    def collectives(self) -> _pytorch.Collectives:
        """For FSDP2."""
        return AllGather(self), ReduceScatter(self)

    def makers(self) -> list[Callable[[], Plan]]:
        """Functions that make the plans of the collectives that the next steps
        will have, as far as they are known."""
        slices = _pytorch.slices_of(self._parameters)
        wanted = [("reduce_scatter", _pytorch.scatter_group(self._parameters),
                   slices.reduced),
                  ("all_reduce", _pytorch.replica_group(self._parameters),
                   slices.reduced)]
        scatters = _pytorch.scatter_group(self._parameters)
        makers: list[Any] = [functools.partial(
                      make_plan, kind, slice_[1], slice_[0], slices.is_mean,
                      self.mesh, group, options, self._reason(kind, options))
                  for kind, group, slice_ in wanted if group and slice_
                  for _, options in self._variants]
        for _, options in self._variants if scatters and slices.reduced else ():
            if hops := self._sum_hops(options, scatters):
                makers += [functools.partial(
                    self._sum_plan, options, scatters, *slices.reduced, is_inner)
                    for is_inner in (True, False)
                    if hops.inner.size() > 1 or not is_inner]
        group = _pytorch.shard_group(self._parameters)
        for _, options in self._variants if group and slices.gathered else ():
            elements, dtype = slices.gathered
            if hops := self._hops(options, group):
                makers.append(functools.partial(
                    self._outer_plan, options, dtype, elements, hops,
                    sends_differences(options)))
            else:
                makers.append(functools.partial(
                    make_plan, "all_gather", dtype, elements, False, self.mesh,
                    group, _whole(options), self._reason("all_gather", options),
                    layout=slices.layout))
        return makers

    def facts(self) -> list:
        """Returns what the ranks of its groups must agree on, as JSON has it."""
        slices = _pytorch.slices_of(self._parameters)
        types = slices.layout.segments if slices.layout else ()
        return [*([str(part) for part in slice_] if slice_ else None
                  for slice_ in (slices.gathered, slices.reduced)),
                [[str(dtype), count] for dtype, count in types]]

    def gather(self, result: torch.Tensor, source: torch.Tensor,
               group: dist.ProcessGroup, async_op: bool) -> Any:
        self._check_capture(source)
        options = self._gather_options()
        way = self._gather_way(options, group, source.dtype, source.numel(),
                               type(source))
        hops, plan = way.hops, way.plan
        if hops is not None:
            def gather():
                self._gather_in_hops(result, source, group, hops, options)

            return run_apart(gather, stream_of_gathers(source.device), source,
                             result) if async_op else gather()
        assert plan
        self._calls[plan] += 1
        if not plan.compiled:
            return _pytorch.all_gather(result, source, group, async_op)
        return self._function(plan)([source], result, async_op)

    @_once
    def _gather_way(self, options: Options, group: dist.ProcessGroup,
                    dtype: torch.dtype, elements: int, kind: type) -> _Way:
        """Args:
          kind: torch.Tensor, or the one of fake tensors in a dry run.
        """
        shards = _pytorch.shard_group(self._parameters)
        reason = self._reason("all_gather", options)
        if shards is not None and group.size() < shards.size():
            self._check_secondary(options, group)
            reason = "it is gathered from a secondary partition"
        elif hops := self._hops(options, group):
            return _Way(hops=hops)
        return _Way(plan=make_plan(
            "all_gather", dtype, elements, False, self.mesh, group, _whole(options),
            reason, layout=self._layout(dtype, elements)))

    def _hops(self, options: Options, group: dist.ProcessGroup) -> Hops | None:
        """The hops of a gather over all ranks of the weights, if what the secondary group
        holds is kept."""
        tiers = parse_mesh(self.mesh)
        secondary = options.secondary
        if secondary is None and sends_differences(options):
            secondary = list(tiers)[-1]
        if secondary in (None, "none") or _pytorch.is_dry_run(group):
            return None
        return make_hops(group, _mesh.devices_of(secondary, tiers),
                         self._parameters.device)

    def _gather_options(self) -> Options:
        # A frozen module has no steps of its own.
        return self._options_at(self._steps if self._has_gradients else
                                self._steps_of_all.latest)

    def _gather_in_hops(self, result: torch.Tensor, source: torch.Tensor,
                        group: dist.ProcessGroup, hops: Hops, options: Options
                        ) -> None:
        follow_timeout(group, source.device)
        # The weights are there now; the hop of this gather is not yet complete.
        begin = (torch.cuda.current_stream(source.device).record_event()
                 if source.is_cuda else None)
        self._latest = _Gather(source.dtype, source.numel(), group, hops)
        state, step = self._version(source.dtype, source.numel(), group, options)
        is_held = self._secondary.holds(state, step, source)
        ahead, self._ahead = self._ahead, None
        if is_held:
            outer = ahead or self._outer_plan(
                options, source.dtype, source.numel(), hops, False)
        else:
            outer = self._fill(source, hops, options, state, step)
            if ahead is not None:
                self._calls[plan_in_vain(ahead, self.mesh, group)] += 1
        if not _pytorch.is_backward():
            after = self._order.follow(self, group)
            if after is not None and after is not self:
                after._run_ahead(begin)
        self._secondary.gather(result, hops)
        self._calls[plan_hops(outer, self.mesh, group, hops.inner, source.dtype,
                              is_held and ahead is None)] += 1

    def _version(self, dtype: torch.dtype, elements: int, group: dist.ProcessGroup,
                 options: Options) -> tuple[tuple | None, int]:
        """Returns the state and the step of the weights: what is held of other ones
        is not that of a gather now."""
        state = self._secondary.get_state(options, group, dtype, elements)
        # Trained weights change after their gradients were reduced, whoever
        # changes them.
        return state, (self._steps if _pytorch.is_trained(self._parameters) else 0)

    def _fill(self, source: torch.Tensor, hops: Hops, options: Options,
              state: tuple | None, step: int) -> Plan:
        """Runs the outer hop, whose result is held."""
        secondary = self._secondary
        base = None
        if sends_differences(options):
            base = secondary.get_base(hops.outer, step, source)
        outer = self._outer_plan(options, source.dtype, source.numel(), hops,
                                 base is not None)
        if base is not None and outer.compiled:
            own = base.narrow(0, source.numel() * hops.outer.rank(),
                              source.numel())
            self._function(outer)([source, own, base], base)
        else:
            held = secondary.get_buffer(source.numel() * hops.outer.size(),
                                        source)
            if outer.compiled:
                self._function(outer)([source], held)
            else:
                _pytorch.all_gather(held, source, hops.outer)
        secondary.keep(state, step, source, hops.outer)
        return outer

    def _run_ahead(self, begin: torch.cuda.Event | None) -> None:
        """Runs the outer hop of the gather that comes next, if it is needed, beside
        what the calling stream does. That gather finds what is held.

        Args:
          begin: what the hop waits for; None on the CPU.
        """
        if self._latest is None:
            return
        latest, options = self._latest, self._gather_options()
        of = latest.dtype, latest.elements
        if self._gather_way(options, latest.group, *of,
                            torch.Tensor).hops != latest.hops:
            return
        state, step = self._version(*of, latest.group, options)
        if state is None or self._secondary.is_of(state, step):
            return
        if begin is None:
            self._fill_ahead(latest, options, state, step)
            return
        device = self._parameters.device
        stream = stream_of_hop(device)
        stream.wait_event(begin)
        with torch.cuda.stream(stream):
            copied = self._fill_ahead(latest, options, state, step)
        if copied is not None:
            # Nobody changes the weights before.
            torch.cuda.current_stream(device).wait_event(copied)

    def _fill_ahead(self, gather: _Gather, options: Options, state: tuple,
                    step: int) -> torch.cuda.Event | None:
        """Runs the outer hop of a gather on the current stream. Returns the event after
        which the weights may change; None on the CPU, or if there is no such hop."""
        source = _pytorch.next_slice(self._parameters)
        if (source is None or source.dtype != gather.dtype
                or source.numel() != gather.elements):
            return None
        copied = (torch.cuda.current_stream(source.device).record_event()
                  if source.is_cuda else None)
        if self._ahead is not None:
            self._calls[plan_in_vain(self._ahead, self.mesh, gather.group)] += 1
        self._ahead = self._fill(source, gather.hops, options, state, step)
        self._secondary.record_use()
        return copied

    @_once
    def _outer_plan(self, options: Options, dtype: torch.dtype, elements: int,
                    hops: Hops, is_difference: bool) -> Plan:
        reason = self._reason("all_gather", options)
        if sends_differences(options) and not is_difference:
            reason = "there is nothing that differences could be added to"
        return make_plan("all_gather", dtype, elements, False, self.mesh,
                         hops.outer, options, reason, is_difference,
                         layout=self._layout(dtype, elements))

    def _layout(self, dtype: torch.dtype, elements: int) -> Layout | None:
        """The order of a slice that is gathered as bytes, if it is known."""
        if dtype != torch.uint8:
            return None
        layout = _pytorch.slices_of(self._parameters).layout
        return layout if layout and layout.bytes == elements else None

    def scatter(self, result: torch.Tensor, source: torch.Tensor,
                group: dist.ProcessGroup, op: Any, async_op: bool) -> Any:
        self._check_capture(source)
        accumulation = self._accumulation
        self._reduced = self._reduction_options()
        if (accumulation.is_partial or accumulation.is_pending) and (
                hops := self._sum_hops(self._reduced, group)):
            self._scatter_sum(result, source, group, op, hops)
            return Work() if async_op else None
        plan, factor = self._plan_reduction(
            "reduce_scatter", result, group, op, self._reduced)
        if not plan.compiled:
            return _pytorch.reduce_scatter(result, source, group, op, async_op)
        return self._function(plan)([source], result, async_op, factor)

    def all_reduce(self, tensor: torch.Tensor, group: dist.ProcessGroup, op: Any
                   ) -> None:
        """In place, over the replicas of HSDP."""
        self._check_capture(tensor)
        accumulation = self._accumulation
        # It is of the same step as the scatter, if there was one.
        options, self._reduced = self._reduced or self._reduction_options(), None
        shards = _pytorch.scatter_group(self._parameters)
        if not (shards and self._sum_hops(options, shards)):
            # Between replicas alone.
            if accumulation.is_partial:
                accumulation.add(tensor)
            elif accumulation.is_pending:
                tensor += accumulation.take()
        if accumulation.is_partial:
            tensor.zero_()
            return
        plan, factor = self._plan_reduction(
            "all_reduce", tensor, group, op, options)
        if not plan.compiled:
            dist.all_reduce(tensor, op=op, group=group)
            return
        self._function(plan)([tensor], tensor, factor=factor)

    def _plan_reduction(self, kind: str, result: torch.Tensor,
                        group: dist.ProcessGroup, op: Any, options: Options
                        ) -> tuple[Plan, float | None]:
        """With the number by which the sum is multiplied, if it is."""
        is_mean = op == dist.ReduceOp.AVG
        # PyTorch multiplies each summand, zpp multiplies the sum.
        factor = _pytorch.factor_of(op)
        is_sum = op == dist.ReduceOp.SUM or factor is not None
        other = ("" if is_mean or is_sum else
                 f"it is no sum and no mean, but {op}")
        plan = self._reduction(options, kind, result.dtype, result.numel(), group,
                               is_mean, other)
        self._calls[plan] += 1
        return plan, factor

    @_once
    def _reduction(self, options: Options, kind: str, dtype: torch.dtype,
                   elements: int, group: dist.ProcessGroup, is_mean: bool,
                   other: str) -> Plan:
        """Args:
          other: what the reduction is, if zpp does not know it.
        """
        return make_plan(kind, dtype, elements, is_mean, self.mesh, group, options,
                         self._reason(kind, options) or other)

    def _accumulates(self) -> bool:
        """Whether gradients wait for the last micro-batch, at this step."""
        options = self._options_at(self._steps)
        if not self._can_accumulate(options):
            return False
        if not _pytorch.has_gradient_hooks(self._parameters):
            return True
        if not self._has_warned:
            self._has_warned = True
            warn(f"'{self.name}': gradients cross nodes in each micro-batch, "
                 f"because hooks of the user see them as soon as they are reduced")
        return False

    def can_accumulate(self) -> bool:
        """Whether there is something to send once per update, at some steps."""
        return any(self._can_accumulate(options) for _, options in self._variants)

    def _can_accumulate(self, options: Options) -> bool:
        if options.accumulate in (None, "none"):
            return False
        shards = _pytorch.scatter_group(self._parameters)
        return (shards is not None and self._sum_hops(options, shards) is not None
                or self._crosses(options,
                                 _pytorch.replica_group(self._parameters)))

    @_once
    def _crosses(self, options: Options, group: dist.ProcessGroup | None) -> bool:
        """Whether a group has ranks that do not sum their gradients in each
        micro-batch."""
        tiers = parse_mesh(self.mesh)
        return group is not None and not set(_mesh.find_tiers(
            tiers, dist.get_process_group_ranks(group))) <= set(
                _mesh.inner_tiers(options.accumulate, tiers))

    def _sum_hops(self, options: Options, group: dist.ProcessGroup
                  ) -> Hops | None:
        """The hops of a scatter, of which the outer one waits for the last
        micro-batch; None if there is none. The inner group may be this rank."""
        if options.accumulate in (None, "none") or _pytorch.is_dry_run(group):
            return None
        return self._find_sum_hops(options, group)

    @_once
    def _find_sum_hops(self, options: Options, group: dist.ProcessGroup
                       ) -> Hops | None:
        if not self._crosses(options, group):
            return None
        tiers = parse_mesh(self.mesh)
        devices = math.prod(tiers[name] for name in _mesh.inner_tiers(
            options.accumulate, tiers))
        return make_hops(group, devices, self._parameters.device)

    @_once
    def _sum_plan(self, options: Options, group: dist.ProcessGroup,
                  elements: int, dtype: torch.dtype, is_inner: bool) -> Plan:
        """The inner hop, or the outer one of sums in float32."""
        tiers = parse_mesh(self.mesh)
        inner = _mesh.inner_tiers(options.accumulate, tiers)
        along = tuple(
            name for name in _mesh.find_tiers(
                tiers, dist.get_process_group_ranks(group))
            if (name in inner) is is_inner)
        return make_plan(
            "reduce_scatter", dtype if is_inner else torch.float32, elements,
            False, self.mesh, group, options,
            self._reason("reduce_scatter", options), along=along)

    def _scatter_sum(self, result: torch.Tensor, source: torch.Tensor,
                     group: dist.ProcessGroup, op: Any, hops: Hops) -> None:
        """The inner hop; for the last micro-batch the outer one, of all."""
        follow_timeout(group, source.device)
        accumulation, options = self._accumulation, self._reduced
        assert options
        run = []
        if hops.inner.size() == 1:
            accumulation.add(source)
        else:
            inner = self._sum_plan(options, group, result.numel(), source.dtype,
                                   True)
            part = source.new_empty(result.numel() * hops.outer.size())
            if inner.compiled:
                self._function(inner)([source], part)
            else:
                _pytorch.reduce_scatters(
                    part.split(result.numel()),
                    source.split(hops.inner.size() * result.numel()), hops.inner)
            accumulation.add(part)
            run.append(inner)
        outer = self._sum_plan(options, group, result.numel(), source.dtype, False)
        if not accumulation.is_partial:
            run.append(outer)
        self._calls[plan_sum(outer, source.dtype, tuple(run),
                             accumulation.is_reduced)] += 1
        if accumulation.is_partial:
            result.zero_()
            return
        total = accumulation.take()
        sums = (result if result.dtype == torch.float32 else
                total.new_empty(result.numel()))
        if outer.compiled:
            self._function(outer)([total], sums)
        else:
            _pytorch.reduce_scatter(sums, total, hops.outer, dist.ReduceOp.SUM)
        if op == dist.ReduceOp.AVG:
            sums /= group.size()
        elif (factor := _pytorch.factor_of(op)) is not None:
            sums *= factor
        if sums is not result:
            result.copy_(sums)

    @staticmethod
    def _reason(kind: str, options: Options) -> str:
        """Why the options leave a collective to PyTorch, or an empty string."""
        format_ = (options.weights if kind == "all_gather" else
                   options.gradients)
        return _LEFT_ALONE[kind] if format_ == "none" else ""

    def _reduction_options(self) -> Options:
        """The options of the step whose gradients are reduced now: the micro-batches
        of an update are one."""
        return (self._options_at(self._steps) if self._accumulation.is_partial
                else self._next_step())

    def _next_step(self) -> Options:
        options = self._options_at(self._steps)
        self._steps += 1
        self._steps_of_all.latest = max(self._steps, self._steps_of_all.latest)
        self._has_gradients = True
        return options

    def forget(self) -> None:
        """The next gather crosses nodes, whatever is held; with whole weights.
        Gradients that wait are dropped."""
        self._secondary.forget()
        self._accumulation.drop()

    def sends_differences(self) -> bool:
        """Whether gathers send differences, at some steps."""
        return self._difference_hops() is not None

    def _difference_hops(self) -> Hops | None:
        """The hops of the first options that send differences."""
        group = _pytorch.shard_group(self._parameters)
        hops = (self._hops(options, group)
                for _, options in reversed(self._variants)
                if group is not None and sends_differences(options))
        return next(filter(None, hops), None)

    def own(self) -> torch.Tensor | None:
        """A copy of what the other ranks hold of this one's slice; None if they
        hold nothing that differences could be added to."""
        hops = self._difference_hops()
        return self._secondary.own(hops.outer) if hops else None

    def empty_own(self) -> torch.Tensor | None:
        """Zeros of its shape, on the device; None if the latter is not known
        before the first step."""
        slices = _pytorch.slices_of(self._parameters)
        if slices.gathered is None:
            return None
        elements, dtype = slices.gathered
        return torch.zeros(elements, dtype=dtype, device=self._parameters.device)

    def load_own(self, own: torch.Tensor) -> None:
        """The next gather sends differences to what `own` returned. All ranks
        of the group call it."""
        hops = self._difference_hops()
        assert hops
        self._secondary.load(own.to(self._parameters.device), hops.outer)

    def is_dry_run(self) -> bool:
        group = _pytorch.shard_group(self._parameters)
        return group is not None and _pytorch.is_dry_run(group)

    def follow_loads(self) -> None:
        """Has whole weights sent after a state dict was loaded."""
        if self.sends_differences():
            self._hooks = _pytorch.on_load(
                self._parameters, lambda *_: self._secondary.forget())

    def detach(self) -> None:
        """Undoes `follow_loads`, and leaves the order of gathers."""
        self._order.leave(self)
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def links(self) -> Any:
        """The speeds of the tiers, in the options of the next step."""
        return self._options_at(self._steps).links

    def state_bytes(self) -> int:
        """Bytes of this rank's device that hold weights, and gradients of an update
        that is not complete."""
        return self._secondary.bytes + self._accumulation.bytes

    def is_pending(self) -> bool:
        """Whether gradients wait for the last micro-batch of an update."""
        return self._accumulation.is_pending

    def post_backward(self, original: Callable[..., None], *args: Any) -> None:
        """In the place of FSDP2's."""
        self._accumulation.post_backward(original, *args)

    def entries(self, name: str) -> list[dict]:
        """The entries of the report."""
        calls = self._calls.copy()
        if self._ahead is not None and self._latest is not None:
            # Nobody has asked for it yet.
            calls[plan_in_vain(self._ahead, self.mesh, self._latest.group)] += 1
        return [plan.entry(name, count) for plan, count in calls.items()]

    def make_runner(self, plan: Plan) -> None:
        """Makes the runner of a plan before it is needed: the ranks of a group
        make it together."""
        # A dry run has no devices.
        if not _pytorch.is_dry_run(plan.group):
            _ = self._function(plan).runner

    def _function(self, plan: Plan) -> Function:
        if plan not in self._functions:
            # After set_separate_reduce_scatter_group, hops have groups of their own
            # too.
            is_separate = (
                plan.kind == "reduce_scatter" and
                plan.group is not _pytorch.shard_group(self._parameters))
            self._functions[plan] = Function(
                self.name, plan, self._parameters.device, is_separate)
        return self._functions[plan]

    def _options_at(self, step: int) -> Options:
        for first, options in self._variants:
            if first <= step:
                return options
        raise AssertionError("expected options from step 0 on")

    def _check_capture(self, tensor: torch.Tensor) -> None:
        if _pytorch.is_captured(tensor):
            raise RuntimeError(
                f"'{self.name}': expected collectives that run, but got some that a "
                f"CUDA graph records; what zpp counts and keeps from step to step "
                f"would stand still while it is replayed; leave CUDA graphs out "
                f"(torchtitan: training.disable_cuda_graphs)")

    def _check_secondary(self, options: Options, group: dist.ProcessGroup
                         ) -> None:
        """Checks that FSDP2's own secondary partition, of
        reshard_after_forward, is that of the options. PyTorch does not provide
        its group earlier."""
        if options.secondary in (None, "none"):
            return
        wanted = _mesh.devices_of(options.secondary, parse_mesh(self.mesh))
        if group.size() != wanted:
            raise ValueError(
                f"secondary={options.secondary!r}: expected '{self.name}' to "
                f"gather over {wanted} ranks in the backward pass, but got "
                f"{group.size()}; call fully_shard with "
                f"reshard_after_forward={wanted} or True")


def _whole(options: Options) -> Options:
    """The options of a gather that has no differences to send."""
    return (options.replace(weights="i8") if sends_differences(options)
            else options)

