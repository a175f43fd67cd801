# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients that cross nodes once per update (accumulate="gpu"), on four ranks."""

import re

import pytest
import torch
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

import training
from test_fsdp import (BF16, F16, HYBRID, I4_ERROR, REPLICATED,
                       check_gradients)
from training import ZEROPP

#: Exact weights, so that gradients are those of FSDP2 but for their own format.
ONCE = {**ZEROPP, "weights": "none", "accumulate": "gpu"}
ACROSS = ((0, 2), (1, 3))


@pytest.mark.parametrize("options, more", [
    (ONCE, {}), (ONCE, {"policy": BF16}), (ONCE, {"policy": F16}),
    (ONCE, {"forced_sum": True}), (ONCE, {"frozen": True}),
    (ONCE, {"checkpointed": True}), (ONCE, {"offloaded": True}),
    (ONCE, {"adapters": True}), (ONCE, {"compiled": True}),
    (ONCE, {"rows": HYBRID}), (ONCE, {"rows": REPLICATED}),
    # One rank of each node: it sums its own.
    (ONCE, {"rows": ACROSS}), ({**ONCE, "accumulate": 2}, {}),
    ({**ONCE, "accumulate": 1}, {})],
    ids=lambda value: next(iter(value), "") if "weights" not in value else
    str(value["accumulate"]))
def test_gradients_are_those_of_fsdp2(pool, plain, options, more):
    more = {"micro_batches": 3, **more}
    check_gradients(pool(training.gradients, options, **more),
                    plain(training.gradients, **more), I4_ERROR)


@pytest.mark.parametrize("group", ["gpu", 1])
def test_exact_gradients_may_be_summed(pool, plain, group):
    options = {**ONCE, "gradients": "none", "accumulate": group}
    check_gradients(pool(training.gradients, options, micro_batches=3),
                    plain(training.gradients, micro_batches=3), 1e-5)


@pytest.mark.parametrize("node, rewritten", [("0.001", True), ("300", False)])
def test_hops_that_do_not_pay_are_left_to_pytorch(pool, plain, node, rewritten):
    """Within a node of NVLink sums stay exact, and between fast nodes, too."""
    options = {**ONCE, "links": f"node={node}gbyte,gpu=300gbyte"}
    check_gradients(pool(training.gradients, options, micro_batches=3),
                    plain(training.gradients, micro_batches=3), I4_ERROR)
    report = pool(training.train, options, steps=1, report=True)[0]["report"]
    assert {entry["rewritten"] for entry in report["collectives"]
            if entry["kind"] == "reduce_scatter"} == {rewritten}


def test_divide_factor(pool, plain):
    expected = [{name: value / 2 for name, value in gradients.items()}
                for gradients in plain(training.gradients, micro_batches=2)]
    check_gradients(pool(training.gradients, ONCE, micro_batches=2, factor=8.0),
                    expected, I4_ERROR)


@pytest.mark.parametrize("how", ["sync", "last"])
def test_gradients_cross_nodes_once_per_update(pool, plain, how):
    """Losses and norms are those of FSDP2; all ranks agree."""
    one = pool(training.updates, ONCE, "sync", 1)
    each = pool(training.updates, {**ONCE, "accumulate": "none"}, "none", 3)
    once = pool(training.updates, ONCE, how, 3)
    assert len({result["digest"] for result in once}) == 1
    expected = plain(training.updates, how="sync", micro_batches=3)
    for result, other in zip(once, expected):
        assert result["losses"] == pytest.approx(other["losses"], rel=0.05)
    assert once[0]["sent"] == one[0]["sent"] == each[0]["sent"] / 3
    # In float32, divided by the ranks of a node.
    elements = 4 * sum(entry for entry in _slices(pool))
    assert once[0]["waiting"] == 4 * elements // 2 and one[0]["waiting"] == 0


def _slices(pool) -> list[int]:
    """Elements of a rank's slice of the gradients of each module."""
    report = pool(training.train, ZEROPP, steps=1, report=True)[0]["report"]
    return [entry["elements"] for entry in report["collectives"]
            if entry["kind"] == "reduce_scatter"]


@pytest.mark.parametrize("rows", [None, HYBRID], ids=["FSDP", "HSDP"])
def test_one_micro_batch_has_the_same_bits(pool, rows):
    options = {} if rows is None else {"rows": rows}
    for how in ("sync", "last"):
        for result, other in zip(
                pool(training.updates, ONCE, how, 1, **options),
                pool(training.updates, {**ONCE, "accumulate": "none"}, "none", 1,
                     **options)):
            assert result == other


def test_replicas_are_reduced_once_per_update(pool):
    one = pool(training.updates, ONCE, "sync", 1, rows=HYBRID)
    once = pool(training.updates, ONCE, "last", 3, rows=HYBRID)
    assert len({result["digest"] for result in once}) == 1
    assert once[0]["sent"] == one[0]["sent"] > 0 and once[0]["waiting"] > 0


@pytest.mark.parametrize("shards_blocks", [
    False, pytest.param(True, marks=pytest.mark.skipif(
        hasattr(FSDPParam, "to_accumulated_grad_if_needed"),
        reason="FSDP2 of this PyTorch fails there, too"))],
    ids=["one", "each"])
def test_modules_that_the_last_micro_batch_does_not_use(pool, plain, shards_blocks):
    results = pool(training.alternating_gradients, ONCE, shards_blocks)
    expected = plain(training.alternating_gradients,
                     shards_blocks=shards_blocks)
    for result, other in zip(results, expected):
        without = {name for name, value in other.items() if value is None}
        assert without == {"other.weight"}
        assert without == {name for name, value in result.items()
                           if value is None}
        result.pop("other.weight"), other.pop("other.weight")
    check_gradients(results, expected, I4_ERROR)


@pytest.mark.parametrize("gradients", [
    training.gradients_where_ranks_differ, training.gradients_of_finalized])
def test_ways_of_newer_versions(pool, plain, gradients):
    expected = plain(gradients)
    if expected[0] is None:
        pytest.skip("this PyTorch has no such way")
    check_gradients(pool(gradients, ONCE), expected, I4_ERROR)


def test_modules_that_only_some_ranks_use_are_errors(pool):
    for error in pool(training.error_of_other_modules):
        assert "expected all ranks to gather and to reduce the same modules" in error


def test_with_differences(pool):
    """Weights cross nodes once per update, too."""
    options = {**ZEROPP, "weights": "i4:delta", "accumulate": "gpu"}
    (found,) = {tuple(each) for each in pool(
        training.bytes_between_nodes, options, micro_batches=3)}
    assert found == tuple(pool(training.bytes_between_nodes, {
        **ZEROPP, "weights": "i4:delta"})[0])


def test_a_block_that_is_used_twice(pool, plain):
    check_gradients(pool(training.gradients_of_shared_block, ONCE),
                    plain(training.gradients_of_shared_block), I4_ERROR)


def test_nothing_to_sum_is_a_warning(pool):
    for found in pool(training.warnings_of, {**ONCE, "mesh": "gpu:4"}):
        assert found == [
            "accumulate='gpu': no gradients are summed between such groups, so it "
            "has no effect"]


@pytest.mark.parametrize("how", ["forget", "reset"])
def test_an_update_may_be_given_up(pool, how):
    """Or left without its last micro-batch, as with FSDP2."""
    for found in pool(training.gradients_after_one_given_up,
                      {**ONCE, "gradients": "none"}, how):
        if found is None:
            pytest.skip("this PyTorch cannot reset an update")
        dropped, alone, kept, both = found
        torch.testing.assert_close(dropped, alone)
        torch.testing.assert_close(kept, both)
        assert not torch.equal(kept, alone)


def test_errors(pool):
    for pending, other, step in pool(training.errors_of_accumulation):
        assert pending == (
            "the root, Sequential: expected compress to be called between updates, but "
            "gradients wait for the last micro-batch of one; zpp.torch.forget(model) "
            "drops them")
        assert other == "none"
        assert re.fullmatch(
            r"(the root, Sequential|'\d'): expected the last micro-batch of an update "
            r"before the optimizer's step, but got gradients that wait for it; call "
            r"model\.set_requires_gradient_sync\(True\), or "
            r"set_is_last_backward\(True\), before the last backward pass of each "
            r"update, also of a shorter one, or zpp\.torch\.forget\(model\) to drop "
            r"them", step)
    for error in pool(training.error_of, {**ONCE, "accumulate": 3}):
        assert error == (
            "ValueError: accumulate: expected a tier of node:2,gpu:2 or the number "
            "of devices of whole ones, but got 3")


@pytest.mark.parametrize("rows", [None, HYBRID], ids=["FSDP", "HSDP"])
def test_other_parameters_of_one_size_are_errors(pool, rows):
    """They would be added up."""
    for error in pool(training.error_of_other_parameters, rows):
        assert error == (
            "'0': expected the same trained parameters in all micro-batches of an "
            "update, but got '0.norm.bias' in some")


def test_hooks_see_the_gradients_of_each_micro_batch(pool):
    for warnings, calls in pool(training.hooks_see_gradients_of_each):
        assert calls == 2 and warnings == [
            "'0': gradients cross nodes in each micro-batch, because hooks of the "
            "user see them as soon as they are reduced"]


def test_everything_is_compiled_early(pool):
    assert all(pool(training.compiles_early, ONCE))
