# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Momenta of Muon, on four ranks."""

import pytest

import moments
from training import OFF, ZEROPP

MOMENTS = {**ZEROPP, **OFF, "moments": "i8"}


@pytest.mark.parametrize("kind", ["Muon", "Recipe"])
@pytest.mark.parametrize("more", [{}, {"rows": ((0, 2), (1, 3))}], ids=["FSDP", "HSDP"])
def test_muon_trains(pool, known, kind, more):
    """On the same bits on all ranks. What else travels is exact here."""
    results = pool(moments.train, MOMENTS, kind, **more)
    expected = known(moments.train, None, kind, **more)
    assert len({result["digest"] for result in results}) == 1
    for result, other in zip(results, expected):
        assert result["losses"][0] == other["losses"][0]
        assert result["losses"] != other["losses"]
        assert result["losses"] == pytest.approx(other["losses"], rel=0.01)
        assert 0.002 < result["metrics"]["error/moments"] < 0.02
        entries = result["entries"]
        assert sum(entry["calls"] for entry in entries) == 5 * 6
        assert all(entry["rewritten"] for entry in entries)
        before, after = (sum(entry[side]["node"] for entry in entries)
                         for side in ("before", "after"))
        # Slices of 808 elements are padded to blocks.
        assert after < 0.29 * before


def test_muon_without_the_option_is_pytorchs(pool):
    for result, other in zip(pool(moments.train, {**ZEROPP, **OFF, "secondary": "gpu"}),
                             pool(moments.train, None)):
        assert result["losses"] == other["losses"] and not result["entries"]
        assert result["digest"] == other["digest"]


@pytest.mark.parametrize("options, more, rounded", [
    (MOMENTS, {}, True), (MOMENTS, {"offloaded": True}, True),
    ({**MOMENTS, "mesh": "gpu:4"}, {}, True),
    ({**MOMENTS, "mesh": "node:1,gpu:4"}, {}, False),
    ({**MOMENTS, "exact": "*"}, {}, False), ({**MOMENTS, "moments": "none"}, {}, False)],
    ids=["i8", "offloaded", "one tier", "one node", "exact", "none"])
def test_gathered_momenta(pool, options, more, rounded):
    for found in pool(moments.errors, options, **more):
        for name, error in found.items():
            is_matrix = name.endswith(("up.weight", "down.weight", "2.weight"))
            assert error < 0.02 and bool(error) == (is_matrix and rounded), name


def test_slices_of_columns(pool):
    for found in pool(moments.errors_of_columns, MOMENTS):
        assert 0.001 < found["weight"] < 0.02
