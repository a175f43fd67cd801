# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Slices whose elements have several types.

FSDP2 gathers the parameters of a module as bytes if some are float32 and others
bfloat16 (adapters beside a frozen base, norms with a policy of their own). To
quantize them, the compiler needs the elements of each type side by side. They
still travel in one message.
"""

import dataclasses
import functools
import math

import torch


@dataclasses.dataclass(frozen=True)
class Layout:
    """The order of the elements in a slice."""

    #: Types and elements of its parameters.
    segments: tuple[tuple[torch.dtype, int], ...]

    @functools.cached_property
    def parts(self) -> tuple[tuple[torch.dtype, int], ...]:
        """Types, in the order of their first elements, and all elements of each."""
        counts: dict[torch.dtype, int] = {}
        for dtype, count in self.segments:
            if count:
                counts[dtype] = counts.get(dtype, 0) + count
        return tuple(counts.items())

    @functools.cached_property
    def bytes(self) -> int:
        return sum(count * dtype.itemsize for dtype, count in self.segments)

    @functools.cached_property
    def _unit(self) -> torch.dtype:
        """The widest integer of which all runs are multiples: copies are fast with
        it."""
        size = math.gcd(8, *self._sizes)
        return {8: torch.int64, 4: torch.int32, 2: torch.int16,
                1: torch.uint8}[size]

    @functools.cached_property
    def _runs(self) -> list[tuple[torch.dtype, int]]:
        """Types and bytes of neighbors of one type."""
        runs: list[tuple[torch.dtype, int]] = []
        for dtype, count in self.segments:
            size = count * dtype.itemsize
            if runs and runs[-1][0] == dtype:
                runs[-1] = dtype, runs[-1][1] + size
            elif size:
                runs.append((dtype, size))
        return runs

    @property
    def _sizes(self) -> list[int]:
        return [size for _, size in self._runs]

    def pack(self, slices: torch.Tensor) -> list[torch.Tensor]:
        """The elements of each type, of one slice or of several in a row. They are
        copies."""
        columns = self._columns(slices)
        return [torch.cat([column for (other, _), column in
                           zip(self._runs, columns) if other == dtype], dim=1)
                .view(-1).view(dtype) for dtype, _ in self.parts]

    def unpack(self, parts: list[torch.Tensor], slices: torch.Tensor) -> None:
        """Writes what `pack` has returned to where it was."""
        rows = slices.numel() // self.bytes
        columns = self._columns(slices)
        for (dtype, _), part in zip(self.parts, parts):
            own = [column for (other, _), column in zip(self._runs, columns)
                   if other == dtype]
            sources = part.view(self._unit).view(rows, -1).split(
                [column.size(1) for column in own], dim=1)
            for column, source in zip(own, sources):
                column.copy_(source)

    def _columns(self, slices: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The runs, with a row for each slice."""
        unit = self._unit
        return slices.view(unit).view(-1, self.bytes // unit.itemsize).split(
            [size // unit.itemsize for size in self._sizes], dim=1)
