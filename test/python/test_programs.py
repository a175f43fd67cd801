# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random training programs, as written and rewritten (programs.py)."""

import math

import numpy as np
import programs
import pytest

pytestmark = pytest.mark.compiler

#: Those that train in `make test`, and those that do in `make test-all`, too. Together
#: they have 80 of the 99 things that one may have; no other eight add as many.
FEW, MORE = (1, 3, 9, 12), (30, 47, 53, 78, 93, 207, 243, 361)
#: Those whose roles are compared in `make test`: some that once were wrong, and
#: how many are in `make test-all`, so many by a test. `make fuzz` has more of both.
FOUND = (1003, 1004, 1006, 1027, 1038, 1497, 4030, 4045, 4046, 4085, 4098, 4156, 6366)
ALL, AT_ONCE = 40, 20


@pytest.mark.parametrize("seed", [
    *FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MORE)])
def test_programs_train_as_written(seed):
    assert programs.differences(seed).wrong == [], str(programs.choose(seed))


@pytest.mark.parametrize("seeds", [
    FOUND, range(AT_ONCE), *(
        pytest.param(range(first, first + AT_ONCE), marks=pytest.mark.slow)
        for first in range(AT_ONCE, ALL, AT_ONCE))], ids=lambda seeds: seeds[0])
def test_roles_of_programs(seeds):
    wrong = {f"seed {seed}, {programs.choose(seed)}": found for seed in seeds
             if (found := programs.differences(seed, trains=False).wrong)}
    assert wrong == {}


@pytest.mark.parametrize("ours, expected", [
    ([1.0, math.nan, -math.inf], 0), ([1.5, math.nan, -math.inf], 0.5),
    ([1.0, math.inf, -math.inf], math.inf), ([1.0, math.nan, math.inf], math.inf),
    ([1.0, math.nan, 0.0], math.inf), ([math.nan, math.nan, -math.inf], math.inf)])
def test_what_is_not_finite_has_to_be_the_same(ours, expected):
    theirs = np.array([1.0, math.nan, -math.inf])
    assert programs.distance(np.array(ours), theirs) == expected


def test_a_wrong_role_is_seen():
    """Everything that a program sums called a gradient: its statistics as well."""
    assert programs.choose(0).statistics
    program = programs.Program.of_seed(0)
    report = programs.zpp.jit(
        program.manual(), mesh=programs.training.NODES, target="cpu",
        gradients_of="all", **programs.training.ALL_ON).report(
            program.state, programs.batch_of(0, 0))
    assert any(
        each["rewritten"] and programs.line_of(each)
        not in programs.parts.lines_of_weights() for each in report["collectives"])
