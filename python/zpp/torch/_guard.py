# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rounding errors of single parameters, and a guard over them.

In some steps each rank compares what has arrived of its own weights with what they are,
and sums of a few blocks of each gradient with those that PyTorch makes of them. The
ranks add their errors up, so that they decide alike. Nobody waits for that: what one
collective of a module measures is added up with the next, and read with the one after.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from zpp._guard import Guard
from zpp._measures import relative
from zpp.torch import _fsdp, _pytorch
from zpp.torch._layout import Layout

#: A relative error that is worth a warning: half of a parameter is lost.
_LOST = 0.5
_DEFAULT = Guard(every=50)
#: Elements of a gradient that are compared on each rank.
_SAMPLE = 1024

#: Moves what travels as it is: called with the result and the source.
Exchange = Callable[[torch.Tensor, torch.Tensor], Any]


class Lost(NamedTuple):
    """A parameter of which a format leaves too little."""

    #: "weights" or "gradients"
    role: str
    parameter: Any
    #: Relative; infinite if values have been made NaN or Inf.
    error: float
    #: Above which it is too much.
    bound: float


@dataclasses.dataclass
class _Sample:
    """The rounding errors of a collective."""

    role: str
    parameters: Sequence[Any]
    #: For each parameter the sums of squares of errors and of values, and how many
    #: values have been made NaN or Inf.
    sums: torch.Tensor
    #: After which they are there; None on the CPU.
    end: torch.cuda.Event | None
    #: Whether the ranks have added them up.
    is_total: bool = False


class Gauge:
    """Measures a group of parameters, for the user's guard."""

    def __init__(self, parameters: Any, guard: Guard | None):
        self._parameters = parameters
        self._guard = guard or _DEFAULT
        #: The latest errors, by role and parameter.
        self.errors: dict[tuple[str, Any], float] = {}
        self._turn = -1
        #: The roles that are to be measured, and those that have been.
        self._wanted: set[str] = set()
        self._measured: set[str] = set()
        self._samples: list[_Sample] = []

    def follow(self, step: int) -> list[Lost]:
        """Called before each gather and each reduction, in the same order on all ranks,
        with the step that it belongs to. Returns what is lost, alike on all."""
        lost = []
        if self._samples or self._measured:
            self._wanted -= self._measured
            self._measured = set()
            ready = [each for each in self._samples if each.is_total]
            self._samples = [self._add_up(each) for each in self._samples
                             if not each.is_total]
            lost = [each for sample in ready for each in self._read(sample)]
        turn = step // self._guard.every
        if turn != self._turn:
            self._turn = turn
            if not any(map(_pytorch.is_dry_run, _fsdp.groups_of(self._parameters))):
                self._wanted = {"weights", "gradients"}
        return lost

    def begin(self, kind: str, layout: Layout, source: torch.Tensor, rows: int,
              exchange: Exchange | None
              ) -> Callable[[torch.Tensor, int], None] | None:
        """Called before a collective of `source`, whose result has so many rows. Returns
        what is to be called after it, with the result and the place of this rank in its
        group; None if it is not measured. `exchange` does what a reduction does, without
        rounding."""
        role = "weights" if kind == "all_gather" else "gradients"
        if role not in self._wanted:
            return None
        self._measured.add(role)
        if role == "weights":
            parameters = tuple(self._parameters.fsdp_params)
            sample = layout.sample()
            expected = layout.read(source, sample)
        else:
            parameters = _pytorch.reduced_parameters()
            sample = layout.sample(_SAMPLE, self._turn)
            # One message for all, of one type as gradients are.
            assert exchange
            sent = torch.cat(layout.read(source, sample), dim=1)
            added = sent.new_empty(rows, sent.size(1))
            exchange(added.view(-1), sent.view(-1))
            expected = added.split([each.size // each.dtype.itemsize
                                    for each in sample], dim=1)

        def end(result: torch.Tensor, place: int) -> None:
            if role == "weights":
                result = result.chunk(rows)[place]
            arrived = layout.read(result, sample)
            if not sample:
                return
            sums = torch.stack([_compare(*pair, layout.block)
                                for pair in zip(expected, arrived)])
            self._samples.append(_Sample(
                role, [parameters[each.place] for each in sample], sums,
                torch.cuda.current_stream(sums.device).record_event()
                if sums.is_cuda else None))
        return end

    def _add_up(self, sample: _Sample) -> _Sample:
        """Adds up what the ranks have measured."""
        if sample.end is not None:
            sample.end.wait()
        with torch.no_grad():
            total = sample.sums.clone()
            for group in _fsdp.groups_of(self._parameters):
                dist.all_reduce(total, group=group)
        total, end = _pytorch.to_host(total)
        return dataclasses.replace(sample, sums=total, end=end, is_total=True)

    def _read(self, sample: _Sample) -> list[Lost]:
        if sample.end is not None:
            sample.end.synchronize()
        found = []
        for parameter, (squared_error, squared, not_finite) in zip(
                sample.parameters, sample.sums.tolist()):
            error = math.inf if not_finite else relative(squared_error, squared)
            self.errors[sample.role, parameter] = error
            bound = min(getattr(self._guard, sample.role), _LOST)
            if error > bound:
                found.append(Lost(sample.role, parameter, error, bound))
        return found

    def drop(self, role: str) -> None:
        """Drops what was measured of former formats and not read, on all ranks."""
        self._samples = [each for each in self._samples if each.role != role]

    def steps_down(self, lost: Lost) -> bool:
        """Whether the guard has a wider format for it, rather than only a warning."""
        return lost.error > getattr(self._guard, lost.role)


def _compare(expected: torch.Tensor, arrived: torch.Tensor, block: int) -> torch.Tensor:
    """The sums of a `_Sample`, of rows that begin with a block."""
    expected, arrived = expected.double(), arrived.double()
    # A value that is not finite makes all of its block NaN, so that it stays visible: a
    # loss scale that is too large is not the format's doing.
    blocks = nn.functional.pad(expected.isfinite(), (0, -expected.size(1) % block),
                               value=True).view(expected.size(0), -1, block)
    is_finite = blocks.all(2, keepdim=True).expand_as(blocks).flatten(1)
    is_finite, stays = is_finite[:, :expected.size(1)], arrived.isfinite()
    is_both = is_finite & stays
    return torch.stack([
        torch.where(is_both, arrived - expected, 0.0).square().sum(),
        torch.where(is_both, expected, 0.0).square().sum(),
        (is_finite & ~stays).sum().double()])
