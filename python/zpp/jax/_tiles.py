# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Placements of devices as axes of a mesh, or as parts of axes."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis of a mesh, or the part of it of `size` places inside of `before` others."""

    name: str
    size: int
    before: int = 1


class DeviceMesh:
    """The devices of a step, along axes."""

    def __init__(self, axes: dict[str, int], devices: Sequence[int] = ()):
        """devices: their numbers in the order of the axes, where it is another one."""
        self.axes = dict(axes)
        #: The axes in parts that cannot be divided, from the slowest to the fastest.
        self._parts = [part for name, size in axes.items()
                       for part in _divide(name, size)]
        count = math.prod(axes.values())
        self._devices = np.array(devices if len(devices) else range(count), np.int64)

    @property
    def size(self) -> int:
        return len(self._devices)

    def find_axes(self, places: np.ndarray) -> list[Axis] | None:
        """The axes, slowest first, along which devices have these places; None without."""
        found = np.asarray(places)[self._devices].reshape(
            [part.size for part in self._parts])
        strides = [int(found[tuple(place)]) for place in np.eye(found.ndim, dtype=int)]
        expected: Any = sum(np.ix_(*(stride * np.arange(part.size) for stride, part in
                                     zip(strides, self._parts))))
        if (found != expected).any():
            return None
        order = sorted((axis for axis, stride in enumerate(strides) if stride),
                       key=lambda axis: -strides[axis])
        below = 1
        for axis in reversed(order):
            if strides[axis] != below:
                return None
            below *= self._parts[axis].size
        return _join([self._parts[axis] for axis in order])

    def find_group_axes(self, groups: np.ndarray) -> list[Axis] | None:
        """The axes along which these groups are; None if there are none."""
        if groups.size != self.size or len(np.unique(groups)) != self.size:
            return None
        places = np.empty(self.size, np.int64)
        places[groups] = np.arange(groups.shape[1])
        axes = self.find_axes(places)
        if axes is None or not np.array_equal(
                *(each[each[:, 0].argsort()] for each in (
                    groups, groups_along(self._devices, self.axes, axes)))):
            return None
        return axes


def groups_along(devices: np.ndarray, sizes: Mapping[str, int], axes: Sequence[Axis]
                 ) -> np.ndarray:
    """Returns the numbers of the devices of a mesh along some axes, a row for each group.
    `devices` are those of the mesh in the order of its axes, which have these sizes."""
    # Every place where a part of an axis begins or ends.
    cuts = {name: {1, size} for name, size in sizes.items()}
    for axis in axes:
        cuts[axis.name] |= {axis.before, axis.before * axis.size}
    parts = [Axis(name, end // begin, begin) for name in sizes
             for begin, end in itertools.pairwise(sorted(cuts[name]))]
    inner = [index for axis in axes for index, part in enumerate(parts)
             if part.name == axis.name
             and axis.before <= part.before < axis.before * axis.size]
    outer = [index for index in range(len(parts)) if index not in inner]
    size = math.prod(axis.size for axis in axes)
    return devices.reshape([part.size for part in parts]).transpose(
        outer + inner).reshape(-1, size)


def _divide(name: str, size: int) -> list[Axis]:
    parts, before, factor = [], 1, 2
    while before < size:
        rest = size // before
        while rest % factor:
            factor += 1 if factor * factor <= rest else rest - factor
        parts.append(Axis(name, factor, before))
        before *= factor
    return parts


def _join(parts: list[Axis]) -> list[Axis]:
    """The same with neighbors as one."""
    joined: list[Axis] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last and last.name == part.name and last.before * last.size == part.before:
            joined[-1] = Axis(part.name, last.size * part.size, last.before)
        else:
            joined.append(part)
    return joined
