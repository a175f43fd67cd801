# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs of FSDP2, some of those that `make fuzz` has more of."""

import pytest

import programs


@pytest.mark.parametrize("seed", range(12))
def test_programs(pool, seed):
    program = programs.choose(seed)
    assert not programs.compare(pool, program), str(program)
