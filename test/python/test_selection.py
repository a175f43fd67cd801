# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cases that `make test` runs of a matrix."""

import itertools

import pytest
from selection import diagonal, others_slow, with_pairs


@pytest.mark.parametrize("sizes, kept", [
    ([4], [(0,), (1,), (2,), (3,)]),
    ([2, 2], [(0, 0), (1, 1)]),
    ([2, 3], [(0, 0), (1, 1), (0, 2)]),
    ([2, 2, 2], [(0, 0, 0), (1, 1, 1)]),
    # Each pair of the two shorter ones, too.
    ([5, 2, 2], [(0, 0, 0), (1, 1, 1), (2, 0, 1), (3, 1, 0), (4, 0, 0)]),
    ([1, 2], [(0, 0), (0, 1)])], ids=str)
def test_a_diagonal_has_every_value(sizes, kept):
    cases = [dict(enumerate(case)) for case in itertools.product(*map(range, sizes))]
    found = diagonal(cases)
    assert [tuple(case[place] for place in range(len(sizes)))
            for case in found] == kept
    for place, size in enumerate(sizes):
        assert {case[place] for case in found} == set(range(size))


@pytest.mark.parametrize("sizes, count", [([4], 4), ([2, 3], 6), ([2, 2, 2], 5),
                                          ([9, 2, 2], 18), ([3, 3, 3], 9)], ids=str)
def test_pairs_are_few_and_all(sizes, count):
    cases = [dict(enumerate(case)) for case in itertools.product(*map(range, sizes))]
    few = diagonal(cases)
    found = with_pairs(cases, few)
    assert found[:len(few)] == few and len(found) == count
    for places in itertools.combinations(range(len(sizes)), 2):
        assert {tuple(case[place] for place in places) for case in found} == set(
            itertools.product(*(range(sizes[place]) for place in places)))


def test_values_may_be_of_any_type():
    cases = [{"a": {"x": 1}, "b": None}, {"a": {"x": 1}, "b": [2]},
             {"a": {}, "b": None}, {"a": {}, "b": [2]}]
    assert diagonal(cases) == [cases[0], cases[3]]


def test_a_few_are_not_slow():
    first, second = others_slow(["a", "b"], "b")
    assert first.values == ("a",) and [mark.name for mark in first.marks] == ["slow"]
    assert second == "b"


@pytest.mark.matrix
@pytest.mark.parametrize("second", [0, 1])
@pytest.mark.parametrize("first", [0, 1])
def test_cases_off_the_diagonal_are_slow(first, second, request):
    marks = [mark.name for mark in request.node.iter_markers()]
    assert ("slow" in marks) == (first != second)
