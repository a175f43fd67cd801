# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/simulated_formats.py rounds as zpp does, for the formats that zpp has."""

import sys

import blockquant
import numpy as np
import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "bench"))

import simulated_formats

ELEMENTS = 4096


def draw(*shape):
    return np.random.default_rng(7).standard_normal(
        (*shape, ELEMENTS)).astype(np.float32)


@pytest.mark.parametrize("form", ["i8", "i4"])
def test_blocks(form):
    values = draw() * 10.0**np.repeat(np.arange(ELEMENTS // 128) - 16.0, 128)
    values[:128] = 0
    values = values.astype(np.float32)
    assert np.array_equal(
        simulated_formats.rounded(values, form),
        blockquant.transport(values, form, simulated_formats.BLOCK))


def test_rotation():
    values = draw()
    rotated = simulated_formats.rotate(values, back=False)
    # They differ by a power of two, as quantization does not see.
    ratio = blockquant.rotate(values) / np.asarray(rotated)
    assert np.allclose(ratio, np.median(ratio), rtol=1e-3)
    assert np.allclose(simulated_formats.rotate(rotated, back=True), values,
                       atol=1e-5)


@pytest.mark.parametrize("rotates", [False, True])
def test_hops(rotates):
    values = draw(2, 2)
    got, _ = simulated_formats.reduced(
        simulated_formats.Row(("i8", "i4"), rotates), values, [None, None])
    expected = np.concatenate(blockquant.reduce_scatter(
        values.reshape(4, -1), [2, 2], ["i8", "i4"], simulated_formats.BLOCK, 0,
        np.float32, rotates=rotates)) / 4
    # XLA may divide by multiplying, which can change the last bit of a scale.
    exact = values.mean((0, 1))
    error, other = (np.linalg.norm(each - exact) for each in (got, expected))
    assert abs(error - other) < 0.02 * other
    assert np.linalg.norm(got - expected) < 0.5 * other


def test_feedback_keeps_what_is_rounded():
    """What arrives in all steps is off by what is kept in the end."""
    row = simulated_formats.Row(("i4", "i2"), False, (True, True))
    kept = [np.zeros((2, 2, ELEMENTS), np.float32),
            np.zeros((2, ELEMENTS), np.float32)]
    total = np.zeros(ELEMENTS)
    for _ in range(8):
        mean, kept = simulated_formats.reduced(row, draw(2, 2), kept)
        total += np.asarray(mean)
    kept = np.asarray(kept[0]).sum((0, 1)) + np.asarray(kept[1]).sum(0)
    assert np.allclose(total + kept / 4, 8 * draw(2, 2).mean((0, 1)),
                       atol=1e-4)


def test_two_bits_lose_a_third_of_a_normal_distribution():
    lost = np.linalg.norm(draw() - simulated_formats.rounded(draw(), "i2"))
    assert 0.3 < lost / np.linalg.norm(draw()) < 0.4
