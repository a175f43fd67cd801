# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The collectives that FSDP2 calls in place of its own."""

import functools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from zpp._options import parse_mesh
from zpp._torch_options import TorchOptions as Options
from zpp._warn import warn
from zpp.torch import _mesh, _pytorch
from zpp.torch._accumulate import Accumulation, Passes
from zpp.torch._ahead import Order, stream_of_gathers, stream_of_hops
from zpp.torch._bucket import sends_differences
from zpp.torch._calls import AllGather, ReduceScatter, Work
from zpp.torch._layout import Layout
from zpp.torch._plans import Plan, make_plan, plan_hops, plan_in_vain, plan_sum
from zpp.torch._runtime import Runner, get_runner, run_as_op
from zpp.torch._secondary import Hops, SecondaryPartition, make_hops

_LEFT_ALONE = {
    "all_gather": "gathers of weights are to stay as they are",
    "reduce_scatter": "scatters of gradients are to stay as they are",
    "all_reduce": "all-reduces of gradients are to stay as they are"}


class Communication:
    """The state that the collectives of a group of parameters share. A module of
    fully_shard has one group, or one for each mesh of its parameters.

    Args:
      module: the one of fully_shard that the group belongs to.
      parameters: what fully_shard knows of the group.
      variants: options by the step from which on they hold, the latest first.
      steps: backward passes in which the gradients were reduced.
      passes: those of the same call of `compress`, as are `order` and `others`.
    """

    def __init__(self, name: str, module: FSDPModule, parameters: Any, mesh: str,
                 variants: list[tuple[int, Options]], steps: int,
                 passes: Passes, order: "Order[Communication]",
                 others: list["Communication"]):
        self.name = name
        self.mesh = mesh
        self._parameters = parameters
        self._variants = variants
        self._steps = steps
        self._has_gradients = False
        #: The options of the latest scatter, until its result is reduced.
        self._reduced: Options | None = None
        self._others = others
        #: Ranks of the largest group so far: that of the sharded weights.
        self._ranks = 0
        self._calls: Counter[Plan] = Counter()
        self._secondary = SecondaryPartition(name, parameters)
        self._order = order
        #: The type and the elements of this rank's slice in the latest gather by hops,
        #: the group and the hops.
        self._latest: tuple[torch.dtype, int, dist.ProcessGroup, Hops] | None = None
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
            if hops := self._hops(options, group, self._parameters.device):
                makers.append(functools.partial(
                    self._outer_plan, dtype, elements, hops, options,
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
        self._check_capture()
        options = self._gather_options()
        self._check_secondary(options, group)
        self._ranks = max(self._ranks, group.size())
        reason = self._reason("all_gather", options)
        if group.size() < self._ranks:
            reason = "it is gathered from a secondary partition"
        elif hops := self._hops(options, group, source.device):
            def gather():
                self._gather_in_hops(result, source, group, hops, options)

            return _run_apart(gather, stream_of_gathers(source.device), source,
                              result) if async_op else gather()
        plan = make_plan("all_gather", source.dtype, source.numel(), False,
                         self.mesh, group, _whole(options), reason,
                         layout=self._layout(source.dtype, source.numel()))
        self._calls[plan] += 1
        if not plan.compiled:
            return dist.all_gather_into_tensor(result, source, group=group,
                                               async_op=async_op)
        return self._run(plan, [source], result, group, async_op)

    def _hops(self, options: Options, group: dist.ProcessGroup,
              device: torch.device) -> Hops | None:
        """The hops of a gather over all ranks of the weights, if what the secondary group
        holds is kept."""
        tiers = parse_mesh(self.mesh)
        secondary = options.secondary
        if secondary is None and sends_differences(options):
            secondary = list(tiers)[-1]
        if secondary in (None, "none") or _pytorch.is_dry_run(group):
            return None
        return make_hops(group, _mesh.devices_of(secondary, tiers), device)

    def _gather_options(self) -> Options:
        # A frozen module has no steps of its own.
        return self._options_at(self._steps if self._has_gradients else
                                max(other._steps for other in self._others))

    def _gather_in_hops(self, result: torch.Tensor, source: torch.Tensor,
                        group: dist.ProcessGroup, hops: Hops, options: Options
                        ) -> None:
        self._latest = source.dtype, source.numel(), group, hops
        state, step = self._version(source.dtype, source.numel(), group, options)
        is_held = self._secondary.holds(state, step, source)
        ahead, self._ahead = self._ahead, None
        if is_held:
            outer = ahead or self._outer_plan(source.dtype, source.numel(), hops,
                                              options, False)
        else:
            outer = self._fill(source, hops, options, state, step)
            if ahead is not None:
                self._calls[plan_in_vain(ahead, self.mesh, group)] += 1
        if not _pytorch.is_backward():
            after = self._order.follow(self, group)
            if after is not None and after is not self:
                after._run_ahead()
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
        outer = self._outer_plan(source.dtype, source.numel(), hops, options,
                                 base is not None)
        if base is not None and outer.compiled:
            own = base.chunk(hops.outer.size())[hops.outer.rank()]
            self._run(outer, [source, own, base], base, hops.outer)
        else:
            held = secondary.get_buffer(source.numel() * hops.outer.size(),
                                        source)
            if outer.compiled:
                self._run(outer, [source], held, hops.outer)
            else:
                dist.all_gather_into_tensor(held, source, group=hops.outer)
        secondary.keep(state, step, source, hops.outer)
        return outer

    def _run_ahead(self) -> None:
        """Runs the outer hop of the gather that comes next, if it is needed, beside
        what the calling stream does. That gather finds what is held."""
        if self._latest is None:
            return
        dtype, elements, group, hops = self._latest
        options = self._gather_options()
        if self._hops(options, group, self._parameters.device) != hops:
            return
        state, step = self._version(dtype, elements, group, options)
        if state is None or self._secondary.is_of(state, step):
            return
        source = _pytorch.next_slice(self._parameters)
        if (source is None or source.dtype != dtype or source.numel() != elements):
            return
        if self._ahead is not None:
            self._calls[plan_in_vain(self._ahead, self.mesh, group)] += 1
        if not source.is_cuda:
            self._ahead = self._fill(source, hops, options, state, step)
            return
        stream = stream_of_hops(source.device)
        stream.wait_stream(torch.cuda.current_stream(source.device))
        with torch.cuda.stream(stream):
            self._ahead = self._fill(source, hops, options, state, step)
            self._secondary.record_use()
        source.record_stream(stream)

    def _outer_plan(self, dtype: torch.dtype, elements: int, hops: Hops,
                    options: Options, is_difference: bool) -> Plan:
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
        self._check_capture()
        accumulation = self._accumulation
        # The micro-batches of an update are one step.
        self._reduced = (self._options_at(self._steps) if accumulation.is_partial
                         else self._next_step())
        if (accumulation.is_partial or accumulation.is_pending) and (
                hops := self._sum_hops(self._reduced, group)):
            self._scatter_sum(result, source, group, op, hops)
            return Work() if async_op else None
        plan, factor = self._plan_reduction(
            "reduce_scatter", result, group, op, self._reduced)
        if not plan.compiled:
            return dist.reduce_scatter_tensor(result, source, op=op,
                                              group=group, async_op=async_op)
        return self._run(plan, [source], result, group, async_op, factor)

    def all_reduce(self, tensor: torch.Tensor, group: dist.ProcessGroup, op: Any
                   ) -> None:
        """In place, over the replicas of HSDP."""
        self._check_capture()
        # It is of the same step as the scatter, if there was one.
        accumulation = self._accumulation
        if accumulation.is_partial:
            options, self._reduced = (
                self._reduced or self._options_at(self._steps), None)
        else:
            options, self._reduced = self._reduced or self._next_step(), None
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
        self._run(plan, [tensor], tensor, group, factor=factor)

    def _plan_reduction(self, kind: str, result: torch.Tensor,
                        group: dist.ProcessGroup, op: Any, options: Options
                        ) -> tuple[Plan, float | None]:
        """With the number by which the sum is multiplied, if it is."""
        is_mean = op == dist.ReduceOp.AVG
        # PyTorch multiplies each summand, zpp multiplies the sum.
        factor = (op.__getstate__()[1] if op == dist.ReduceOp.PREMUL_SUM
                  else None)
        reason = self._reason(kind, options)
        if (not reason and not is_mean and factor is None
                and op != dist.ReduceOp.SUM):
            reason = f"it is no sum and no mean, but {op}"
        plan = make_plan(kind, result.dtype, result.numel(), is_mean, self.mesh,
                         group, options, reason)
        self._calls[plan] += 1
        return plan, factor

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
        if (options.accumulate in (None, "none") or _pytorch.is_dry_run(group)
                or not self._crosses(options, group)):
            return None
        tiers = parse_mesh(self.mesh)
        devices = math.prod(tiers[name] for name in _mesh.inner_tiers(
            options.accumulate, tiers))
        return make_hops(group, devices, self._parameters.device)

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
        accumulation, options = self._accumulation, self._reduced
        run = []
        if hops.inner.size() == 1:
            accumulation.add(source)
        else:
            inner = self._sum_plan(options, group, result.numel(), source.dtype,
                                   True)
            part = source.new_empty(result.numel() * hops.outer.size())
            if inner.compiled:
                self._run(inner, [source], part, group)
            else:
                count = hops.inner.size() * result.numel()
                for slices, sums in zip(source.split(count),
                                        part.split(result.numel())):
                    dist.reduce_scatter_tensor(sums, slices, group=hops.inner)
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
            self._run(outer, [total], sums, group)
        else:
            dist.reduce_scatter_tensor(sums, total, group=hops.outer)
        if op == dist.ReduceOp.AVG:
            sums /= group.size()
        elif op == dist.ReduceOp.PREMUL_SUM:
            sums *= op.__getstate__()[1]
        if sums is not result:
            result.copy_(sums)

    @staticmethod
    def _reason(kind: str, options: Options) -> str:
        """Why the options leave a collective to PyTorch, or an empty string."""
        format_ = (options.weights if kind == "all_gather" else
                   options.gradients)
        return _LEFT_ALONE[kind] if format_ == "none" else ""

    def _next_step(self) -> Options:
        """The options of a step whose gradients are reduced now."""
        options = self._options_at(self._steps)
        self._steps += 1
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
        hops = (self._hops(options, group, self._parameters.device)
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
            calls[plan_in_vain(self._ahead, self.mesh, self._latest[2])] += 1
        return [plan.entry(name, count) for plan, count in calls.items()]

    def make_runner(self, plan: Plan) -> None:
        """Makes the runner of a plan before it is needed: the ranks of a group
        make it together."""
        # A dry run has no devices.
        if not _pytorch.is_dry_run(plan.group):
            self.runner(plan, plan.group, self._parameters.device)

    def runner(self, plan: Plan, group: dist.ProcessGroup,
               device: torch.device) -> Runner:
        """Returns the runner of a plan on a group of this rank."""
        # After set_separate_reduce_scatter_group, hops have groups of their own
        # too.
        is_separate = (plan.kind == "reduce_scatter" and
                       group is not _pytorch.shard_group(self._parameters))
        return get_runner(group, plan.tiers, device, plan.kind, is_separate)

    def _run(self, plan: Plan, sources: list[torch.Tensor],
             result: torch.Tensor, group: dist.ProcessGroup,
             async_op: bool = False, factor: float | None = None
             ) -> dist.Work | None:
        # FSDP2 gathers and reduces in place, but a function's buffers must not
        # overlap, but for what is held.
        if plan.layout is None and _share_memory(sources[0], result):
            sources = [sources[0].clone(), *sources[1:]]
        device = result.device
        compiled, layout = plan.compiled, plan.layout
        assert compiled
        label = (f"zpp::{plan.kind} {self.name or 'the root module'} "
                 f"{sum(compiled.sent.values())} B")
        get = functools.partial(self.runner, plan, group, device)

        def run():
            if layout is not None:
                _run_parts(functools.partial(run_as_op, get, compiled, label=label),
                           sources, result, layout)
            else:
                run_as_op(get, compiled, sources, [result], label)
            if factor is not None:
                result.mul_(factor)

        if not async_op:
            return run()
        return _run_apart(run, get().stream if result.is_cuda else None, *sources,
                          result)

    def _options_at(self, step: int) -> Options:
        return next(options for first, options in self._variants
                    if first <= step)

    def _check_capture(self) -> None:
        if _pytorch.is_captured():
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
        if options.secondary in (None, "none") or group.size() >= self._ranks:
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


def _run_parts(run: Callable[[list[torch.Tensor], list[torch.Tensor]], None],
               sources: list[torch.Tensor], result: torch.Tensor, layout: Layout
               ) -> None:
    """Runs a function that has arguments and a result for each type."""
    packed = [layout.pack(source) for source in sources]
    # A difference is added to what is held.
    parts = (packed[-1] if sources[-1] is result else
             [result.new_empty(count * (result.numel() // layout.bytes), dtype=dtype)
              for dtype, count in layout.parts])
    run([part for of_type in zip(*packed) for part in of_type], parts)
    layout.unpack(parts, result)


def _share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def _run_apart(run: Callable[[], None], stream: torch.cuda.Stream | None,
               *tensors: torch.Tensor) -> Work:
    """Calls `run`, which uses the tensors, on a stream for which the calling one does
    not wait; None on the CPU."""
    if stream is None:
        run()
        return Work()
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        run()
    for tensor in tensors:
        tensor.record_stream(stream)
    return Work(stream.record_event())
