# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parameters in a slice: which are quantized, and where they are.

FSDP2 gathers the weights of a module, and scatters their gradients, in one flat
buffer, in which the slice of each rank has its part of each parameter. A block has one
scale, so it must not have elements of two parameters: a gain of 1e-5 beside one of 1
would arrive as zero. To quantize them, the compiler needs the elements of each type
side by side, where each parameter begins a block. Parameters that are to stay exact,
such as those of one dim, travel as they are, in the same message.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

#: The types that the compiler quantizes, by its names.
TYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
#: The part of a slice that may be exact and quantized as well, in vain: then all others
#: stay where they are, and nothing is copied.
_IN_VAIN = 1 / 512


class Segment(NamedTuple):
    """A parameter's elements in a slice, with those that FSDP2 pads it by."""

    dtype: torch.dtype
    elements: int
    is_exact: bool

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.itemsize


class Blocks(NamedTuple):
    """Whole blocks of a parameter that is quantized, or all of it."""

    #: The place of its segment.
    place: int
    dtype: torch.dtype
    begin: int
    size: int


class _Run(NamedTuple):
    """Neighbors that are treated alike, in bytes: where they begin, how many they are,
    and what follows them in the part that is quantized."""

    begin: int
    size: int
    padding: int = 0


@dataclasses.dataclass(frozen=True)
class Layout:
    """The order of the elements in a slice."""

    segments: tuple[Segment, ...]
    #: The elements that share a scale.
    block: int
    #: The equal pieces that a slice is cut into, each of which has blocks of its own.
    pieces: int = 1

    @functools.cached_property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)

    @functools.cached_property
    def exact_bytes(self) -> int:
        return sum(run.size for run in self._exact)

    @functools.cached_property
    def types(self) -> tuple[torch.dtype, ...]:
        """In the order of their first elements."""
        return tuple(dict.fromkeys(
            segment.dtype for segment in self.segments if segment.elements))

    @functools.cached_property
    def parts(self) -> tuple[tuple[torch.dtype, int], ...]:
        """Types, and the elements of each that are quantized, with padding."""
        if self.is_in_place:
            return ((self.types[0], self.bytes // self.types[0].itemsize),)
        return tuple((dtype, sum(run.size + run.padding for run in runs)
                      // dtype.itemsize) for dtype, runs in self._quantized.items())

    @functools.cached_property
    def exact_part(self) -> tuple[torch.dtype, int] | None:
        """The type, and the elements, in which what is exact travels; None if all is
        quantized. Bits of several types travel as if they were of one, padded."""
        if not self.exact_bytes:
            return None
        dtype = self.types[0] if len(self.types) == 1 else torch.bfloat16
        return dtype, -(-self.exact_bytes // dtype.itemsize)

    @functools.cached_property
    def is_in_place(self) -> bool:
        """Whether a slice can be quantized as it is: each parameter begins a block
        there, and what is exact is little, and taken out."""
        if len(self.types) != 1 or self.exact_bytes > _IN_VAIN * self.bytes:
            return False
        block = self.block * self.types[0].itemsize
        return self.bytes % (block * self.pieces) == 0 and all(
            run.begin % block == 0 and (run.size + run.padding) % block == 0
            for run in self._quantized.get(self.types[0], ()))

    @functools.cached_property
    def _exact(self) -> list[_Run]:
        """The runs that travel as they are, of all types."""
        runs: list[_Run] = []
        begin = 0
        for segment in self.segments:
            if segment.is_exact:
                _extend(runs, begin, segment.bytes)
            begin += segment.bytes
        return runs

    @functools.cached_property
    def _quantized(self) -> dict[torch.dtype, list[_Run]]:
        runs: dict[torch.dtype, list[_Run]] = {}
        begin = 0
        for segment in self.segments:
            if segment.elements and not segment.is_exact:
                _extend(runs.setdefault(segment.dtype, []), begin, segment.bytes,
                        -segment.bytes % (self.block * segment.dtype.itemsize))
            begin += segment.bytes
        for dtype, of_type in runs.items():
            total = sum(run.size + run.padding for run in of_type)
            last = of_type.pop()
            of_type.append(last._replace(padding=last.padding + -total % (
                self.block * self.pieces * dtype.itemsize)))
        return runs

    @functools.cached_property
    def _unit(self) -> torch.dtype:
        """The widest integer of which all runs are multiples: it copies fast."""
        size = math.gcd(8, self.bytes, *(
            number for runs in (self._exact, *self._quantized.values())
            for run in runs for number in run))
        return {8: torch.int64, 4: torch.int32, 2: torch.int16,
                1: torch.uint8}[size]

    def pack(self, slices: torch.Tensor) -> list[torch.Tensor]:
        """Returns what is quantized of each type, of one slice or of several in a row:
        copies, or the slices, without what is exact."""
        if self.is_in_place:
            # Zeros change no scale.
            if self.exact_bytes:
                torch._foreach_zero_(self._columns(slices, self._exact))
            return [slices]
        return [torch.cat([
            piece for run, column in zip(runs, self._columns(slices, runs))
            for piece in (column, self._zeros(column, run)) if piece is not None],
            dim=1).view(-1).view(dtype) for dtype, runs in self._quantized.items()]

    def unpack(self, parts: list[torch.Tensor], slices: torch.Tensor) -> None:
        """Writes what `pack` has returned to where it was."""
        if not self.is_in_place:
            for runs, part in zip(self._quantized.values(), parts):
                self._write(part, runs, slices)

    def pack_exact(self, slices: torch.Tensor) -> list[torch.Tensor]:
        """A copy of what travels as it is, as `exact_part` says; none of nothing."""
        if self.exact_part is None:
            return []
        dtype, elements = self.exact_part
        columns = self._columns(slices, self._exact)
        if padding := elements * dtype.itemsize - self.exact_bytes:
            columns.append(columns[0].new_zeros(columns[0].size(0), padding))
        return [torch.cat(columns, dim=1).view(-1).view(dtype)]

    def unpack_exact(self, parts: list[torch.Tensor], slices: torch.Tensor) -> None:
        """Writes what `pack_exact` has returned to where it was."""
        for part in parts:
            self._write(part, self._exact, slices)

    def _write(self, part: torch.Tensor, runs: Sequence[_Run], slices: torch.Tensor
               ) -> None:
        columns = self._columns(slices, runs)
        sources = part.view(self._unit).view(columns[0].size(0), -1)
        begin, places = 0, []
        for run in runs:
            places.append(begin)
            begin += (run.size + run.padding) // self._unit.itemsize
        torch._foreach_copy_(columns, [
            sources.narrow(1, place, column.size(1))
            for place, column in zip(places, columns)])

    def sample(self, most: int = 1 << 62, turn: int = 0) -> list[Blocks]:
        """All of each quantized parameter, or blocks whose turn it is, at `most` so many."""
        found = []
        begin = 0
        for place, (dtype, elements, is_exact) in enumerate(self.segments):
            if elements and not is_exact:
                size = min(elements, max(most, self.block))
                first = (turn * size // self.block * self.block) % elements
                first = first if first + size <= elements else 0
                found.append(Blocks(place, dtype, begin + first * dtype.itemsize,
                                    size * dtype.itemsize))
            begin += elements * dtype.itemsize
        return found

    def read(self, slices: torch.Tensor, blocks: list[Blocks]) -> list[torch.Tensor]:
        """Copies of some blocks, with a row for each slice."""
        return [column.clone(memory_format=torch.contiguous_format).view(each.dtype)
                for each, column in zip(blocks, self._columns(slices, blocks))]

    def extremes(self, slice_: torch.Tensor) -> torch.Tensor | None:
        """A number that is not finite if something quantized is not; None of nothing."""
        columns = [
            # One that is not aligned cannot be read as it is.
            (column if self._unit.itemsize >= dtype.itemsize else column.clone()).view(dtype)
            for dtype, runs in self._quantized.items()
            for column in self._columns(slice_, runs)]
        if not columns:
            return None
        # Each is the fastest there.
        found = (torch._foreach_norm(columns, math.inf) if slice_.is_cuda else
                 [each for column in columns for each in torch.aminmax(column)])
        return torch.stack([each.float() for each in found]).abs().max()

    def _columns(self, slices: torch.Tensor, runs: Sequence["_Run | Blocks"]
                 ) -> list[torch.Tensor]:
        """The runs, with a row for each slice."""
        unit = self._unit
        rows = slices.view(unit).view(-1, self.bytes // unit.itemsize)
        return [rows.narrow(1, run.begin // unit.itemsize, run.size // unit.itemsize)
                for run in runs]

    def _zeros(self, column: torch.Tensor, run: _Run) -> torch.Tensor | None:
        """The padding after a run."""
        return (column.new_zeros(column.size(0), run.padding // self._unit.itemsize)
                if run.padding else None)


def _extend(runs: list[_Run], begin: int, size: int, padding: int = 0) -> None:
    """Adds a run, or makes the last one longer."""
    last = runs[-1] if runs else None
    if last and not last.padding and last.begin + last.size == begin:
        runs[-1] = _Run(last.begin, last.size + size, padding)
    elif size:
        runs.append(_Run(begin, size, padding))
