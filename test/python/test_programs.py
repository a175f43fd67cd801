# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random training programs, as written and rewritten (programs.py)."""

import math

import numpy as np
import programs
import pytest

pytestmark = pytest.mark.compiler

#: In `make test`, and in `make test-all`.
FEW, MANY = 8, 40


@pytest.mark.parametrize("seed", [
    seed if seed < FEW else pytest.param(seed, marks=pytest.mark.slow)
    for seed in range(MANY)])
def test_programs_train_as_written(seed):
    assert programs.differences(seed) == [], programs.make(seed).choices


@pytest.mark.parametrize("ours, expected", [
    ([1.0, math.nan, -math.inf], 0), ([1.5, math.nan, -math.inf], 0.5),
    ([1.0, math.inf, -math.inf], math.inf), ([1.0, math.nan, math.inf], math.inf),
    ([1.0, math.nan, 0.0], math.inf), ([math.nan, math.nan, -math.inf], math.inf)])
def test_what_is_not_finite_has_to_be_the_same(ours, expected):
    theirs = np.array([1.0, math.nan, -math.inf])
    assert programs.distances(np.zeros(3), np.array(ours), theirs) == (expected, 1)
