# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cases that `make test` leaves to `make test-all`, and those that repeat others."""

import collections
import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def others_slow(cases: Iterable[str], *few: str) -> list:
    """The values of a parameter, of which all but a few are slow."""
    cases = list(cases)
    assert set(few) <= set(cases), set(few) - set(cases)
    return [case if case in few else pytest.param(case, marks=pytest.mark.slow)
            for case in cases]


def mark_matrices(items: list[pytest.Item]) -> list[pytest.Item]:
    """Marks as slow the cases off the diagonal of each test with the mark `matrix`.
    Returns those that have no pair of values that others do not have."""
    matrices, repeated = collections.defaultdict(list), []
    for item in items:
        if item.get_closest_marker("matrix"):
            matrices[item.function].append(item)
    for cases in matrices.values():
        all_of_them = [case.callspec.params for case in cases]
        few = diagonal(all_of_them)
        kept = with_pairs(all_of_them, few)
        for case in cases:
            if case.callspec.params not in kept:
                repeated.append(case)
            elif case.callspec.params not in few:
                case.add_marker(pytest.mark.slow)
    return repeated


def diagonal(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cases of a matrix that together have every value of every parameter: as
    many as the longest parameter has values.

    Each parameter begins again after its last value. Where it does, the next shorter
    one skips a value, so that pairs of values differ.
    """
    axes: dict[str, list] = {name: [] for name in cases[0]}
    for case in cases:
        for name, value in case.items():
            if value not in axes[name]:
                axes[name].append(value)
    longest_first = sorted(axes.items(), key=lambda axis: -len(axis[1]))
    found = []
    for number in range(len(longest_first[0][1])):
        case, size = {}, len(longest_first[0][1])
        for name, values in longest_first:
            case[name] = values[(number + number // size) % len(values)]
            size = len(values)
        found.append(case)
    return found


def with_pairs(cases: list[dict[str, Any]], few: list[dict[str, Any]]
               ) -> list[dict[str, Any]]:
    """A few cases of a matrix and as many others as it takes to have every pair of
    values of two parameters, each time the one that has most of those that lack."""
    def pairs(case):
        values = sorted(case.items(), key=lambda item: str(item[0]))
        return list(itertools.combinations(values, 2))

    found = list(few)
    had = [pair for case in few for pair in pairs(case)]
    lack = [pair for case in cases for pair in pairs(case) if pair not in had]
    while lack:
        most = max(cases, key=lambda case: sum(pair in lack for pair in pairs(case)))
        found.append(most)
        has = pairs(most)
        lack = [pair for pair in lack if pair not in has]
    return found
