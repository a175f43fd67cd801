# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random training programs, as written and rewritten (programs.py)."""

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
