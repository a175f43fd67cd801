# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every way to shard a model with each option that keeps something from step to step,
beside FSDP2, on four ranks."""

import functools

import pytest

import together
from test_fsdp import HELD, check_losses
from training import ZEROPP

DELTA = {**ZEROPP, "weights": "i4:delta"}
OPTIONS = {
    "held": HELD, "i4:delta": DELTA, "accumulate": {**ZEROPP, "accumulate": "gpu"},
    "all": {**DELTA, "accumulate": "gpu"}}


@pytest.fixture(scope="module")
def plain(pool):
    return functools.cache(lambda setup: pool(together.train, setup, None))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("setup", together.SETUPS)
def test_losses_are_those_of_fsdp2(pool, plain, setup, options):
    results = pool(together.train, setup, options)
    check_losses(results, plain(setup))
    # The same weights on all ranks, to the bit.
    assert len({result.get("digest") for result in results}) == 1
    entries = results[0]["report"]["collectives"]
    gathers = [entry for entry in entries if entry["kind"] == "all_gather"
               and entry["module"] and entry["group"] != "gpu:2"]
    if setup == "float8":
        assert {entry["reason"] for entry in gathers} <= {
            "its parameters are gathered in a format of their own, of which zpp does "
            "not know the order",
            "there is nothing that differences could be added to", ""}
    else:
        # Differences are added to what was sent whole.
        assert all(entry["rewritten"] or entry["calls"] == 1 and entry["reason"] ==
                   "there is nothing that differences could be added to"
                   for entry in gathers)
    # Gradients are compressed everywhere.
    assert any(entry["rewritten"] and entry["kind"] != "all_gather"
               for entry in entries)
    keeps = options is HELD or options["weights"] == "i4:delta"
    crosses = setup not in ("HSDP", "float8")
    assert (results[0]["ahead"] > 0) is (keeps and crosses)


@pytest.mark.parametrize("setup", together.SETUPS)
def test_gradients_cross_nodes_once_per_update(pool, setup):
    def sent(options):
        report = pool(together.train, setup, options, updates=2)[0]["report"]
        return sum(entry["after"].get("node", 0) * entry["calls"]
                   for entry in report["collectives"]
                   if entry["kind"] != "all_gather")

    # Without `accumulate`, FSDP2 reduces with the last micro-batch only.
    assert sent(OPTIONS["accumulate"]) == sent(ZEROPP) > 0
