# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gathers of weights that FSDP2 calls in place of its own."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from zpp._option_kinds import parse_mesh
from zpp._torch_options import TorchOptions as Options
from zpp.torch import _fsdp, _mesh, _pytorch
from zpp.torch._ahead import stream_of_gathers, streams_of_hops
from zpp.torch._bucket import sends_differences
from zpp.torch._functions import run_apart
from zpp.torch._plans import Plan, make_plan, plan_hops, plan_in_vain
from zpp.torch._runtime import follow_timeout
from zpp.torch._secondary import Hops, SecondaryPartition, Vote, make_hops
from zpp.torch._shared import Shared, once, reason_of


#: The steps in which it is checked that backward passes have the weights of forward
#: passes: the first ones, and some later.
_FIRST, _EVERY = 10, 50


@dataclasses.dataclass(frozen=True)
class _Gather:
    """A gather by hops."""

    #: The type and the elements of this rank's slice.
    dtype: torch.dtype
    elements: int
    group: dist.ProcessGroup
    hops: Hops


class Gathers:
    """The gathers of a group of parameters."""

    def __init__(self, shared: Shared):
        self.shared = shared
        self._parameters = shared.parameters
        self._mesh = shared.mesh
        self.secondary = SecondaryPartition(shared.parameters)
        self._order = shared.call.order
        self._ballots = shared.call.ballots
        #: This rank's slice, while a gather of it votes.
        self._source: torch.Tensor | None = None
        #: The pass and the step in which the ranks know that what is held is right.
        self._voted: tuple | None = None
        #: The pass in which what is held was filled, and the first step.
        self._filled: tuple[int, int] | None = None
        self._first_step = shared.steps
        #: Whether forward passes have used what another one has filled.
        self._is_reused = False
        #: Whether weights were written to after the vote in the middle of a pass.
        self._is_late = False
        #: The latest gather by hops.
        self._latest: _Gather | None = None
        #: The hop that was run ahead of its gather.
        self._ahead: Plan | None = None
        self._hooks: list[Any] = []
        shared.on_change.append(self._send_whole)

    def makers(self) -> list[Callable[[], Plan]]:
        """Functions that make the plans of the next gathers, as far as they are known."""
        slices = _pytorch.slices_of(self._parameters)
        group = _fsdp.shard_group(self._parameters)
        makers: list[Callable[[], Plan]] = []
        for options in self.shared.options if group and slices.gathered else ():
            elements, dtype = slices.gathered
            if hops := self._hops(options, group):
                makers.append(functools.partial(
                    self._outer_plan, options, dtype, elements, hops,
                    sends_differences(options)))
            else:
                makers.append(functools.partial(
                    self._whole_plan, options, group, dtype, elements))
        return makers

    def gather(self, result: torch.Tensor, source: torch.Tensor,
               group: dist.ProcessGroup, async_op: bool = False) -> Any:
        self.shared.follow(source)
        options = self._gather_options()
        if options.weights != "none":
            self.shared.look()
        plan = self._way(options, group, source.dtype, source.numel(), type(source))
        if isinstance(plan, Hops):
            gather = functools.partial(self._gather_in_hops, result, source, group, plan,
                                       options)
            return run_apart(gather, stream_of_gathers(source.device), source,
                             result) if async_op else gather()
        self.shared.calls[plan] += 1
        if not plan.compiled:
            original, _ = _fsdp.original_collectives(self._parameters)
            return original(result, source, group, async_op)
        return self.shared.function(plan)([source], result, async_op=async_op)

    @once
    def _way(self, options: Options, group: dist.ProcessGroup, dtype: torch.dtype,
             elements: int, kind: type) -> Hops | Plan:
        """How a gather is executed. In a dry run, `kind` is that of fake tensors."""
        shards = _fsdp.shard_group(self._parameters)
        if shards is not None and group.size() < shards.size():
            self._check_secondary(options, group)
            return self._whole_plan(options, group, dtype, elements,
                                    "it is gathered from a secondary partition")
        return self._hops(options, group) or self._whole_plan(
            options, group, dtype, elements)

    def _whole_plan(self, options: Options, group: dist.ProcessGroup, dtype: torch.dtype,
                    elements: int, reason: str = "") -> Plan:
        """The plan of a gather without hops, which has no differences to send."""
        whole = options.replace(weights="i8") if sends_differences(options) else options
        return make_plan(
            "all_gather", dtype, elements, False, self._mesh, group, whole,
            reason or reason_of("all_gather", options),
            self.shared.layout_of_gather(options, dtype, elements))

    def _hops(self, options: Options, group: dist.ProcessGroup) -> Hops | None:
        """The hops of a gather over all ranks, if the secondary group's part is kept."""
        tiers = parse_mesh(self._mesh)
        secondary = options.secondary
        if secondary is None and sends_differences(options):
            secondary = list(tiers)[-1]
        if (secondary in (None, "none") or _pytorch.is_dry_run(group)
                or not _pytorch.all_have_elements(self._parameters)):
            return None
        return make_hops(group, _mesh.devices_of(secondary, tiers),
                         self._parameters.device)

    def _gather_options(self) -> Options:
        return self.shared.options_at(self.shared.step)

    def _gather_in_hops(self, result: torch.Tensor, source: torch.Tensor,
                        group: dist.ProcessGroup, hops: Hops, options: Options
                        ) -> None:
        follow_timeout(group, source.device)
        # The weights are there now; the hop of this gather is not yet complete.
        begin = (torch.cuda.current_stream(source.device).record_event()
                 if source.is_cuda else None)
        self._latest = _Gather(source.dtype, source.numel(), group, hops)
        key = options, group, source.dtype, source.numel()
        is_held, takes_differences = self._decide(key, source, hops, options)
        ahead, self._ahead = self._ahead, None
        if is_held:
            outer = ahead or self._outer_plan(
                options, source.dtype, source.numel(), hops, False)
        else:
            outer = self._fill(source, hops, options, key, takes_differences)
            if ahead is not None:
                self.shared.calls[plan_in_vain(ahead, self._mesh, group)] += 1
        self._voted = self._now()
        if not _pytorch.is_backward():
            after = self._order.follow(self, group)
            if after is not None and after is not self:
                after._run_ahead(begin)
        self.secondary.gather(result, hops)
        self.shared.calls[plan_hops(
            outer, self._mesh, group, hops.inner, source.dtype,
            is_held and ahead is None)] += 1

    def _decide(self, key: tuple, source: torch.Tensor, hops: Hops, options: Options
                ) -> tuple[bool, bool]:
        """Whether what is held is what a gather now returns, and whether differences may
        be added to it, as the ranks of the gather decide together."""
        secondary, step = self.secondary, self.shared.steps
        is_held = secondary.is_for(key, step)
        self._is_reused |= (is_held and not _pytorch.is_backward()
                            and not _is_now(self._filled))
        takes_differences = (sends_differences(options)
                             and secondary.has_base(hops.outer, step))
        if not is_held and not takes_differences:
            self._ballots.join(self, hops.outer, hops.inner)
            return False, False
        if self._ballots.at_once and self._voted and self._voted == self._now():
            # That was in the same pass, as with a checkpoint, or ahead of the gather.
            outcome: int = Vote.SAME
        else:
            outcome = self._ask(source, hops)
        if outcome == Vote.LATE:
            raise self._late_error()
        if outcome == Vote.UNSEEN and is_held:
            self._ballots.warn_once(
                f"{self.shared.title}: weights were written to through .data, or by a "
                f"kernel that PyTorch does not know; they are sent again, as are those of "
                f"other modules without another warning")
        is_held = is_held and outcome == Vote.SAME
        if is_held and self._ballots.at_once:
            # The vote may be one of the begin of the pass.
            self._is_late |= secondary.vote() != Vote.SAME
            if secondary.has_checksum:
                secondary.note_use(source)
        return is_held, takes_differences and outcome != Vote.WHOLE

    def _now(self) -> tuple | None:
        """The pass that is under way, and the step; None between passes."""
        now = _pytorch.current_pass()
        return now and (now, self.shared.steps)

    def _ask(self, source: torch.Tensor, hops: Hops) -> int:
        self._source = source
        try:
            return self._ballots.ask(self, hops.outer, hops.inner)
        finally:
            self._source = None

    def vote(self) -> int:
        self._is_late |= self.secondary.was_wrong()
        if self._is_late:
            return Vote.LATE
        if self.secondary.is_lost(self.shared.steps):
            return Vote.WHOLE
        vote = self.secondary.vote()
        is_known = (self.secondary.has_checksum or _pytorch.is_backward()
                    or _is_now(self._filled))
        return vote if is_known else max(vote, Vote.WRITTEN)

    def vote_on_device(self) -> torch.Tensor | None:
        if self._ballots.at_once and _pytorch.is_backward():
            # Weights are most often those of the forward pass: what GPUs find out may
            # come later.
            return None
        source = self._source
        if source is None:
            source = _pytorch.next_slice(self._parameters)
        if source is None or not self.secondary.has_checksum:
            return None
        return self.secondary.differs(source) * int(Vote.UNSEEN)

    def _late_error(self) -> RuntimeError:
        return RuntimeError(
            f"{self.shared.title}: expected weights that stay as they are in a forward or "
            f"backward pass, but got others than the pass has used; call "
            f"zpp.torch.forget(model) in the pass, after they are written to")

    def _fill(self, source: torch.Tensor, hops: Hops, options: Options, key: tuple,
              takes_differences: bool) -> Plan:
        """Runs the outer hop, whose result is held."""
        secondary = self.secondary
        base = (secondary.get_base(source, hops.outer) if takes_differences else None)
        outer = self._outer_plan(options, source.dtype, source.numel(), hops,
                                 base is not None)
        if base is not None and outer.compiled:
            own = base.narrow(0, source.numel() * hops.outer.rank(),
                              source.numel())
            self.shared.function(outer)([source, own, base], base)
        else:
            held = secondary.get_buffer(source.numel() * hops.outer.size(),
                                        source)
            if outer.compiled:
                self.shared.function(outer)([source], held)
            else:
                dist.all_gather_into_tensor(held, source, hops.outer)
        secondary.keep(key, self.shared.steps, source, hops.outer,
                       outer.layout if any(map(sends_differences, self.shared.options))
                       else None,
                       self._checks())
        self._filled = _pytorch.current_pass()
        return outer

    def _checks(self) -> bool:
        """Whether uses of what is held now are checked. A step of one forward pass uses
        it in its backward pass only, between which and the former nobody writes to
        weights: that is checked in some steps. What is gathered by hand between passes
        may be written to before its next use."""
        step = self.shared.steps
        return (step - self._first_step < _FIRST or step % _EVERY == 0
                or _pytorch.current_pass() is None
                or self._is_reused or not _pytorch.computes_gradients()
                or not _pytorch.trained_parameters(self._parameters))

    def _run_ahead(self, begin: torch.cuda.Event | None) -> None:
        """Runs the outer hop of the gather that comes next, if it is needed, beside what
        the calling stream does, after an event on GPUs. That gather finds what is
        held."""
        if self._latest is None:
            return
        latest, options = self._latest, self._gather_options()
        of = latest.dtype, latest.elements
        if self._way(options, latest.group, *of, torch.Tensor) != latest.hops:
            return
        # Written to or not: that is not put to the vote yet.
        key = options, latest.group, *of
        if self.secondary.is_for(key, self.shared.steps):
            return
        if begin is None:
            self._fill_ahead(latest, options, key)
            return
        device = self._parameters.device
        stream = next(streams_of_hops(device))
        stream.wait_event(begin)
        with torch.cuda.stream(stream):
            copied = self._fill_ahead(latest, options, key)
        if copied is not None:
            # Nobody changes the weights before.
            torch.cuda.current_stream(device).wait_event(copied)

    def _fill_ahead(self, gather: _Gather, options: Options, key: tuple
                    ) -> torch.cuda.Event | None:
        """Runs the outer hop of a gather on the current stream. Returns the event after
        which the weights may change; None on the CPU, or if there is no such hop."""
        source = _pytorch.next_slice(self._parameters)
        if (source is None or source.dtype != gather.dtype
                or source.numel() != gather.elements):
            return None
        copied = (torch.cuda.current_stream(source.device).record_event()
                  if source.is_cuda else None)
        if self._ahead is not None:
            self.shared.calls[plan_in_vain(self._ahead, self._mesh, gather.group)] += 1
        hops = gather.hops
        self._voted = self._now()
        takes_differences = (
            sends_differences(options)
            and self.secondary.has_base(hops.outer, self.shared.steps)
            and self._ask(source, hops) < Vote.WHOLE)
        self._ahead = self._fill(source, hops, options, key, takes_differences)
        self.secondary.record_use()
        return copied

    @once
    def _outer_plan(self, options: Options, dtype: torch.dtype, elements: int,
                    hops: Hops, is_difference: bool) -> Plan:
        reason = reason_of("all_gather", options)
        if sends_differences(options) and not is_difference:
            reason = "there is nothing that differences could be added to"
        return make_plan("all_gather", dtype, elements, False, self._mesh,
                         hops.outer, options, reason,
                         self.shared.layout_of_gather(options, dtype, elements),
                         is_difference)

    def forget(self) -> None:
        """Has the next gather cross nodes, whatever is held, with whole weights."""
        was_wrong = self.secondary.was_wrong(wait=True)
        self._send_whole()
        if was_wrong:
            raise self._late_error()

    def _send_whole(self) -> None:
        """Has the next gather send whole weights. All ranks call it."""
        self.secondary.drop()
        self._voted = None
        self._ballots.ask_again(self)

    def can_hold(self, options: Options) -> bool:
        """Whether a secondary group keeps what gathers from others return."""
        group = _fsdp.shard_group(self._parameters)
        return group is not None and self._hops(options, group) is not None

    def sends_differences(self) -> bool:
        """Whether gathers send differences, at some steps."""
        return self._difference_hops() is not None

    def _difference_hops(self) -> Hops | None:
        """The hops of the first options that send differences."""
        group = _fsdp.shard_group(self._parameters)
        hops = (self._hops(options, group)
                for _, options in reversed(self.shared.variants)
                if group is not None and sends_differences(options))
        return next(filter(None, hops), None)

    def own(self) -> torch.Tensor | None:
        """A copy of what others hold of this slice for differences; None if nothing."""
        hops = self._difference_hops()
        return self.secondary.own(hops.outer) if hops else None

    def empty_own(self) -> torch.Tensor | None:
        """Zeros of its shape, on the device; None if that is not known yet."""
        slices = _pytorch.slices_of(self._parameters)
        if slices.gathered is None:
            return None
        elements, dtype = slices.gathered
        return torch.zeros(elements, dtype=dtype, device=self._parameters.device)

    def load_own(self, own: torch.Tensor) -> None:
        """Has the next gather send differences to what `own` returned, on all ranks."""
        hops = self._difference_hops()
        assert hops
        self.secondary.load(
            own.to(self._parameters.device), hops.outer,
            self.shared.layout_of_gather(self._gather_options(), own.dtype, own.numel()))

    def follow_loads(self) -> None:
        """Has whole weights sent after a state dict was loaded."""
        if self.sends_differences():
            self._hooks = _fsdp.on_load(
                self._parameters, lambda *_: self.secondary.drop())

    def detach(self) -> None:
        """Undoes `follow_loads`, and leaves the order of gathers and the votes."""
        self._order.leave(self)
        self._ballots.leave(self)
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def unused(self) -> Plan | None:
        """The plan of a hop whose gather has not come yet, as the report counts it."""
        if self._ahead is None or self._latest is None:
            return None
        return plan_in_vain(self._ahead, self._mesh, self._latest.group)

    def _check_secondary(self, options: Options, group: dist.ProcessGroup
                         ) -> None:
        """Checks that FSDP2's own secondary partition, of
        reshard_after_forward, is that of the options. PyTorch does not provide
        its group earlier."""
        if options.secondary in (None, "none"):
            return
        wanted = _mesh.devices_of(options.secondary, parse_mesh(self._mesh))
        if group.size() != wanted:
            raise ValueError(
                f"secondary={options.secondary!r}: expected '{self.shared.name}' to "
                f"gather over {wanted} ranks in the backward pass, but got "
                f"{group.size()}; call fully_shard with "
                f"reshard_after_forward={wanted} or True")


def _is_now(pass_: tuple[int, int] | None) -> bool:
    """Whether a pass is the one that is under way."""
    return pass_ is not None and pass_ == _pytorch.current_pass()
