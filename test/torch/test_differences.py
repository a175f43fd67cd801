# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights as differences to what a node holds (weights="i4:delta"), on four ranks."""

import re

import pytest
import torch

import differing
import training
from test_fsdp import BF16, F16, FULL, HELD, check_losses
from training import ZEROPP

DELTA = {**ZEROPP, "weights": "i4:delta"}
FINE = {**ZEROPP, "weights": "i8:delta"}
#: HSDP whose shards cross nodes.
ACROSS = ((0, 2), (1, 3))


@pytest.mark.parametrize("options, more", [
    (DELTA, {}), (FINE, {}), ({**DELTA, "secondary": 1}, {}),
    (DELTA, {"policy": FULL}), (DELTA, {"policy": BF16}), (DELTA, {"policy": F16}),
    (DELTA, {"checkpointed": True}), (DELTA, {"frozen": True}),
    (DELTA, {"adapters": True}), (DELTA, {"clip": 0.1}), (DELTA, {"reshard": 2}),
    (DELTA, {"reshard": False}), (DELTA, {"compiled": True}),
    (DELTA, {"offloaded": True}), (DELTA, {"rows": ACROSS})],
    ids=lambda value: next(iter(value), "") if "weights" not in value else
    f"{value['weights']}-{value.get('secondary', 'gpu')}")
def test_losses_are_those_of_fsdp2(pool, plain, options, more):
    results = pool(training.train, options, **more)
    check_losses(results, plain(training.train, **more))
    # The same weights on all ranks, to the bit.
    assert len({result["digest"] for result in results}) == 1


def test_the_same_bits_each_time(pool):
    first, again = (pool(training.train, DELTA) for _ in range(2))
    assert [r["losses"] for r in first] == [r["losses"] for r in again]


def test_only_differences_cross_nodes(pool):
    """The first step sends whole weights, as they are; the others differences of
    matrices, in 30 blocks with scales of two bytes, and vectors, padded."""
    def sent(options, **more):
        (found,) = {tuple(each) for each in pool(
            training.bytes_between_nodes, options, **more)}
        return found

    matrices, vectors = 3460, 104
    whole = 2 * (matrices + vectors)
    i8, i4 = (2 * [30 * (bytes_ + 2) + 2 * vectors + 20] for bytes_ in (128, 64))
    assert sent(FINE) == (whole, *i8) and sent(DELTA) == (whole, *i4)
    # Once per update, also with micro-batches and checkpoints.
    assert sent(DELTA, micro_batches=3) == (whole, *i4)
    assert sent(DELTA, checkpointed=True) == (whole, *i4)
    # What is frozen never again.
    _, *frozen = sent(DELTA, frozen=True)
    assert frozen[0] == frozen[1] < 0.8 * i4[0]
    assert sent(DELTA, forget_after=1) == (whole, i4[0], whole)


def test_the_first_step_is_that_of_fsdp2(pool, plain):
    """Whole weights are exact."""
    options = {**DELTA, "gradients": "none"}
    for result, other in zip(pool(training.train, options, steps=1),
                             plain(training.train, steps=1)):
        assert result["losses"] == other["losses"]


@pytest.mark.parametrize("change, frozen", [
    *((change, False) for change in training.CHANGES if "optimizer" not in change),
    ("_change_by_load", True)])
def test_changes_without_a_step_send_whole_weights(pool, known, change, frozen):
    results = pool(training.evaluate_around, change, DELTA, frozen=frozen)
    expected = known(training.evaluate_around, change, None, frozen=frozen)
    for (result, _), (other, _) in zip(results, expected):
        assert all(map(torch.equal, result, other))


def test_steps_send_differences(pool, known):
    results = pool(training.evaluate_around, "_change_by_optimizer", {
        **DELTA, "gradients": "none"})
    expected = known(training.evaluate_around, "_change_by_optimizer", None)
    for (result, _), (other, _) in zip(results, expected):
        assert torch.equal(result[1], other[1])
        assert not torch.equal(result[2], other[2])
        torch.testing.assert_close(result[2], other[2], rtol=0.05, atol=0.05)


def test_evaluation_in_between(pool):
    """It reads what is held, and leaves it as it is but for one difference."""
    once, twice = (pool(training.train_and_evaluate, DELTA, evaluations)
                   for evaluations in (1, 2))
    assert once == twice
    without = pool(training.train_and_evaluate, DELTA, 0)
    assert once == without


def test_loading_sends_whole_weights(pool):
    """Also between a backward pass and the next step: of a state dict, differences
    would be large."""
    for exact, other in zip(pool(training.load_after_backward, DELTA),
                            pool(training.load_after_backward, None)):
        assert torch.equal(exact, other)


def test_a_block_that_is_used_twice(pool, plain):
    results = pool(training.train_shared_block, DELTA)
    check_losses(results, plain(training.train_shared_block))
    assert len({result["digest"] for result in results}) == 1


def test_with_tensor_parallelism(pool, plain):
    """Each node has one rank of a group, which holds all of its weights."""
    results = pool(training.train_like_torchtitan, DELTA)
    check_losses(results, plain(training.train_like_torchtitan))
    entries = [entry for entry in results[0]["report"]["collectives"]
               if entry["kind"] == "all_gather"]
    assert {entry["group"] for entry in entries} == {"node:2"}
    assert any(0 < entry["after"]["node"] < 0.3 * entry["before"]["node"]
               for entry in entries)


@pytest.mark.parametrize("more", [{}, {"rows": ACROSS}, {"frozen": True}],
                         ids=["FSDP", "HSDP", "frozen"])
def test_a_restart_with_the_state_continues(pool, tmp_path, more):
    for result in pool(training.resume, DELTA, str(tmp_path), True, **more):
        assert result["resumed"] == result["losses"][3:]
        assert not result["keys"]


def test_a_restart_without_the_state_sends_whole_weights(pool, tmp_path):
    (whole, small, _), *_ = pool(training.bytes_between_nodes, DELTA)
    for result in pool(training.resume, DELTA, str(tmp_path), False):
        assert result["resumed"] == pytest.approx(result["losses"][3:], rel=0.03)
        assert result["bytes"] == whole + 2 * small


def test_states_of_another_mesh_are_dropped(pool):
    for warnings, first, again in pool(
            training.bytes_after_state_of_another_mesh, DELTA):
        assert first == again > 0
        mesh, shape = warnings
        assert mesh == (
            "the state of zpp.torch is dropped, and whole weights are sent once: "
            "expected one of the mesh node:2,gpu:2, but got node:4")
        assert re.search("expected slices of the same model and options, but got "
                         r"\(\d+,\) of torch.bfloat16 for 'root.0'", shape)


def test_schedules(pool, plain):
    options = {**ZEROPP, "schedule": {1: {"weights": "i4:delta"}}}
    (first, second, third), *_ = pool(training.bytes_between_nodes, options)
    (whole, small, _), *_ = pool(training.bytes_between_nodes, DELTA)
    assert second == whole and third == small
    # What int8 weights have left is enough to add differences to.
    options["secondary"] = "gpu"
    (first, second, third), *_ = pool(training.bytes_between_nodes, options)
    assert first < whole and second == third == small
    check_losses(pool(training.train, options), plain(training.train))


def test_the_report_counts_what_is_held(pool):
    def held(options):
        (total, *_) = [result["report"]["total"] for result in pool(
            training.train, options, steps=1, report=True)]
        return total["state_bytes"]

    assert held(ZEROPP) == 0
    assert held(DELTA) == held(HELD) > 0
    assert held({**DELTA, "secondary": 1}) == 2 * held(DELTA)


def test_nothing_to_send_differences_of_is_a_warning(pool):
    for found in pool(training.warnings_of, {**DELTA, "mesh": "gpu:4"}):
        assert found == [
            "weights='i4:delta': no weights are gathered from another secondary "
            "group: what is gathered travels whole, in i8; with secondary=1 each device "
            "holds all weights"]
    assert pool(training.warnings_of, DELTA) == 4 * [[]]


def test_compress_compiles_differences(pool):
    assert all(pool(training.compiles_early, DELTA))


@pytest.mark.parametrize("policy", [FULL, training.MIXED], ids=["f32", "mixed"])
def test_weights_that_are_restored_after_nan(pool, policy):
    """Nothing stays of what was not finite."""
    for losses, expected in zip(pool(differing.losses_around_nan, DELTA, policy),
                                pool(differing.losses_around_nan, None, policy)):
        assert losses == pytest.approx(expected, rel=0.02)
