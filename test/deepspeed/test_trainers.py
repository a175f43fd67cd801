# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transformers, Accelerate and TRL with DeepSpeed on zpp: all that changes is the
config."""

import functools

import pytest

import trainers

TRAINERS = {
    "transformers": trainers.with_transformers, "accelerate": trainers.with_accelerate,
    "trl": trainers.with_trl,
    "peft": functools.partial(trainers.with_trl, adapters=True)}


@pytest.mark.parametrize("name", [
    "transformers", *(pytest.param(name, marks=pytest.mark.slow)
                      for name in TRAINERS if name != "transformers")])
def test_trains_as_with_zero3(pool, tmp_path, name):
    ours, plain = (pool(TRAINERS[name], is_on, str(tmp_path))[0]
                   for is_on in (True, False))
    assert plain["total"] == {}
    assert len(ours["losses"]) == trainers.STEPS
    for one, other in zip(ours["losses"], plain["losses"], strict=True):
        assert abs(one / other - 1) < 0.01
    assert ours["losses"] != plain["losses"]
    total = ours["total"]
    assert total["after"]["node"] < 0.5 * total["before"]["node"]
