# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The reductions of gradients that FSDP2 calls in place of its own."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from zpp._option_kinds import parse_mesh
from zpp._torch_options import TorchOptions as Options
from zpp._warn import warn
from zpp.torch import _fsdp, _mesh, _pytorch
from zpp.torch._accumulate import Accumulation
from zpp.torch._functions import Work
from zpp.torch._plans import Plan, make_plan, plan_sum
from zpp.torch._runtime import follow_timeout
from zpp.torch._secondary import Hops, make_hops
from zpp.torch._shared import Shared, once, reason_of


#: Sets of parameters whose gradients are compressed: a module whose branches stay has few.
_MOST_SETS = 64
_CHANGING = ("gradients of other parameters of its module were reduced too often: what zpp "
             "keeps of each set would fill the memory")


class Reductions:
    """The scatters and all-reduces of a group of parameters."""

    def __init__(self, shared: Shared, module: FSDPModule):
        self.shared = shared
        self._parameters = shared.parameters
        self._mesh = shared.mesh
        #: The options of the latest scatter, until its result is reduced.
        self._reduced: Options | None = None
        self._has_warned = False
        #: Those whose gradients were reduced together.
        self._sets: set[tuple] = set()
        self.accumulation = Accumulation(shared, module,
                                          self._accumulates)

    def makers(self) -> list[Callable[[], Plan]]:
        """Functions that make the plans of the next reductions, as far as they are known."""
        slices = _pytorch.slices_of(self._parameters)
        if not slices.reduced:
            return []
        elements, dtype = slices.reduced
        scatters = _fsdp.scatter_group(self._parameters)
        wanted = [("reduce_scatter", scatters),
                  ("all_reduce", _fsdp.replica_group(self._parameters))]
        trained = _pytorch.trained_parameters(self._parameters)
        makers: list[Callable[[], Plan]] = [
            functools.partial(
                self._reduction, options, kind, dtype, elements, group, trained,
                slices.is_mean, "")
            for kind, group in wanted if group
            for options in self.shared.options]
        for options in self.shared.options if scatters else ():
            if hops := self._sum_hops(options, scatters):
                makers += [
                    functools.partial(self._sum_plan, options, scatters, elements,
                                      dtype, trained, is_inner)
                    for is_inner in (True, False)
                    if hops.inner.size() > 1 or not is_inner]
        return makers

    def scatter(self, result: torch.Tensor, source: torch.Tensor,
                group: dist.ProcessGroup, op: Any, async_op: bool = False) -> Any:
        self.shared.follow(source)
        accumulation = self.accumulation
        self._reduced = self._reduction_options()
        if (accumulation.is_partial or accumulation.is_pending) and (
                hops := self._sum_hops(self._reduced, group)):
            self._scatter_sum(result, source, group, op, hops)
            return Work() if async_op else None
        plan, factor = self._plan_reduction(
            "reduce_scatter", result, group, op, self._reduced)
        if not plan.compiled:
            _, original = _fsdp.original_collectives(self._parameters)
            return original(result, source, group, op, async_op)
        return self.shared.function(plan)(
            [source], result,
            functools.partial(dist.reduce_scatter_tensor, group=group,
                              op=_without_factor(op, factor)), async_op, factor)

    def all_reduce(self, tensor: torch.Tensor, group: dist.ProcessGroup, op: Any
                   ) -> None:
        """In place, over the replicas of HSDP."""
        self.shared.follow(tensor)
        accumulation = self.accumulation
        # It is of the same step as the scatter, if there was one.
        options, self._reduced = self._reduced or self._reduction_options(), None
        shards = _fsdp.scatter_group(self._parameters)
        if not (shards and self._sum_hops(options, shards)):
            # Between replicas alone.
            if accumulation.is_partial:
                accumulation.add(tensor)
            elif accumulation.is_pending:
                accumulation.add(tensor)
                tensor.copy_(accumulation.take())
        if accumulation.is_partial:
            tensor.zero_()
            return
        plan, factor = self._plan_reduction(
            "all_reduce", tensor, group, op, options)
        if not plan.compiled:
            dist.all_reduce(tensor, op=op, group=group)
            return
        def exchange(result: torch.Tensor, source: torch.Tensor) -> None:
            result.copy_(source)
            dist.all_reduce(result, op=_without_factor(op, factor), group=group)

        self.shared.function(plan)([tensor], tensor, exchange, factor=factor)

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
        reduced = _pytorch.reduced_parameters()
        # All ranks have had the same.
        if reduced not in self._sets and len(self._sets) >= _MOST_SETS:
            reduced, other = (), _CHANGING
        else:
            self._sets.add(reduced)
        plan = self._reduction(options, kind, result.dtype, result.numel(), group,
                               reduced, is_mean, other)
        self.shared.calls[plan] += 1
        return plan, factor

    @once
    def _reduction(self, options: Options, kind: str, dtype: torch.dtype,
                   elements: int, group: dist.ProcessGroup, reduced: tuple,
                   is_mean: bool, other: str) -> Plan:
        """The plan of a reduction of the gradients of some parameters. `other` says why
        it is PyTorch's, for another reason than the options."""
        # An all-reduce cuts its slice into one for each rank.
        pieces = group.size() if kind == "all_reduce" else 1
        return make_plan(
            kind, dtype, elements, is_mean, self._mesh, group, options,
            reason_of(kind, options) or other,
            self.shared.layout_of(options, dtype, elements, reduced, pieces))

    def _accumulates(self) -> bool:
        """Whether gradients wait for the last micro-batch, at this step."""
        options = self.shared.options_at(self.shared.steps)
        if not self._can_accumulate(options):
            return False
        if not self.shared.call.ballots.ask(self, *_fsdp.groups_of_gradients(self._parameters)):
            return True
        if not self._has_warned:
            self._has_warned = True
            warn(f"{self.shared.title}: gradients cross nodes in each micro-batch, "
                 f"because hooks of the user see them as soon as they are reduced")
        return False

    def vote(self) -> int:
        """Whether hooks of this rank's user see gradients."""
        return int(_fsdp.has_gradient_hooks(self._parameters))

    def vote_on_device(self) -> None:
        return None

    def can_accumulate(self) -> bool:
        """Whether there is something to send once per update, at some steps."""
        return any(self._can_accumulate(options)
                   for options in self.shared.options)

    def _can_accumulate(self, options: Options) -> bool:
        if options.accumulate in (None, "none"):
            return False
        shards = _fsdp.scatter_group(self._parameters)
        return (shards is not None and self._sum_hops(options, shards) is not None
                or self._crosses(options,
                                 _fsdp.replica_group(self._parameters)))

    @once
    def _crosses(self, options: Options, group: dist.ProcessGroup | None) -> bool:
        """Whether a group has ranks that do not sum gradients in each micro-batch."""
        return group is not None and not {*_mesh.tiers_of_group(self._mesh, group)} <= {
            *_mesh.inner_tiers(options.accumulate, parse_mesh(self._mesh))}

    def _sum_hops(self, options: Options, group: dist.ProcessGroup
                  ) -> Hops | None:
        """The hops of a scatter, of which the outer one waits for the last
        micro-batch; None if there is none. The inner group may be this rank."""
        if options.accumulate in (None, "none") or _pytorch.is_dry_run(group):
            return None
        return self._find_sum_hops(options, group)

    @once
    def _find_sum_hops(self, options: Options, group: dist.ProcessGroup
                       ) -> Hops | None:
        if not self._crosses(options, group):
            return None
        tiers = parse_mesh(self._mesh)
        devices = math.prod(tiers[name] for name in _mesh.inner_tiers(
            options.accumulate, tiers))
        return make_hops(group, devices, self._parameters.device)

    @once
    def _sum_plan(self, options: Options, group: dist.ProcessGroup,
                  elements: int, dtype: torch.dtype, reduced: tuple,
                  is_inner: bool) -> Plan:
        """The inner hop, or the outer one of sums in float32."""
        inner = _mesh.inner_tiers(options.accumulate, parse_mesh(self._mesh))
        along = tuple(name for name in _mesh.tiers_of_group(self._mesh, group)
                      if (name in inner) is is_inner)
        dtype = dtype if is_inner else torch.float32
        return make_plan(
            "reduce_scatter", dtype, elements, False, self._mesh, group, options,
            reason_of("reduce_scatter", options),
            self.shared.layout_of(options, dtype, elements, reduced), along=along)

    def _scatter_sum(self, result: torch.Tensor, source: torch.Tensor,
                     group: dist.ProcessGroup, op: Any, hops: Hops) -> None:
        """The inner hop; for the last micro-batch the outer one, of all."""
        follow_timeout(group, source.device)
        accumulation, options = self.accumulation, self._reduced
        assert options
        of = options, group, result.numel(), source.dtype, _pytorch.reduced_parameters()
        run = []
        if hops.inner.size() == 1:
            accumulation.add(source)
        else:
            inner = self._sum_plan(*of, True)
            part = source.new_empty(result.numel() * hops.outer.size())

            def exchange(result: torch.Tensor, source: torch.Tensor) -> None:
                _pytorch.reduce_scatters(result.chunk(hops.outer.size()),
                                         source.chunk(hops.outer.size()), hops.inner)

            if inner.compiled:
                self.shared.function(inner)([source], part, exchange)
            else:
                exchange(part, source)
            accumulation.add(part)
            run.append(inner)
        outer = self._sum_plan(*of, False)
        if not accumulation.is_partial:
            run.append(outer)
        self.shared.calls[plan_sum(outer, source.dtype, tuple(run),
                                    accumulation.is_reduced)] += 1
        if accumulation.is_partial:
            result.zero_()
            return
        total = accumulation.take()
        sums = (result if result.dtype == torch.float32 else
                total.new_empty(result.numel()))
        send = functools.partial(dist.reduce_scatter_tensor, group=hops.outer,
                                 op=dist.ReduceOp.SUM)
        if outer.compiled:
            self.shared.function(outer)([total], sums, send)
        else:
            send(sums, total)
        if op == dist.ReduceOp.AVG:
            sums /= group.size()
        elif (factor := _pytorch.factor_of(op)) is not None:
            sums *= factor
        if sums is not result:
            result.copy_(sums)

    def _reduction_options(self) -> Options:
        """The options of the step that is reduced: micro-batches of an update are one."""
        shared = self.shared
        return (shared.options_at(shared.steps) if self.accumulation.is_partial
                else shared.next_step())


def _without_factor(op: Any, factor: float | None) -> Any:
    """The operation of a reduction whose result is multiplied by the factor later."""
    return op if factor is None else dist.ReduceOp.SUM
