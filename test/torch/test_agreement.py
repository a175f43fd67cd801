# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decisions of ranks that differ, and groups of a part of them."""

import pytest
import torch

import differing
import ranks
import training
from test_accumulate import ONCE
from test_differences import DELTA
from test_fsdp import HELD, HYBRID, I4_ERROR, check_gradients
from training import OFF, ZEROPP
from zpp.torch import _secondary

#: hpZ alone.
HPZ = {**ZEROPP, **OFF, "secondary": "gpu"}
AT_ONCE = ["_change_by_load", "_change_in_place", "_change_data", "_change_rows",
           "_change_on_some_ranks", "_change_unseen_on_some_ranks"]


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
@pytest.mark.parametrize("options", [HELD, DELTA], ids=["held", "delta"])
@pytest.mark.parametrize("change", AT_ONCE)
def test_changes_where_hosts_vote_once_in_a_pass(pool, known, change, options, frozen):
    """As on GPUs."""
    plain = ZEROPP if options is HELD else None
    results = pool(differing.evaluate_as_on_gpus, change, options, frozen=frozen)
    expected = known(training.evaluate_around, change, plain, frozen=frozen)
    for (result, _), (other, _) in zip(results, expected):
        assert all(map(torch.equal, result, other))


@pytest.mark.parametrize("options", [HELD, DELTA], ids=["held", "delta"])
def test_trainings_where_hosts_vote_once_in_a_pass(pool, known, options):
    for more in ({}, {"frozen": True}, {"checkpointed": True}):
        results = pool(differing.train_as_on_gpus, "train", options, **more)
        expected = known(training.train, options, **more)
        assert [r["losses"] for r in results] == [r["losses"] for r in expected]
    assert (pool(differing.train_as_on_gpus, "train_shared_block", options) ==
            pool(training.train_shared_block, options))


@pytest.mark.parametrize("at_once", [False, True], ids=["CPU", "GPU"])
@pytest.mark.parametrize(("end", "options", "plain"), [
    ("forward", HELD, ZEROPP), ("backward", HPZ, None), ("method", HPZ, None),
    ("raises", HPZ, None), ("stops on one", HPZ, None),
    ("method raises on one", HPZ, None)])
def test_writes_between_gathers_by_hand(pool, end, options, plain, at_once):
    """Also in steps whose passes make no checksums, and after passes that an exception
    has ended."""
    results, expected = (pool(differing.weights_by_hand, each, at_once=at_once, end=end)
                         for each in (options, plain))
    for result, other in zip(results, expected):
        assert len(result) == len(other)
        assert all(map(torch.equal, result, other))


def test_passes_within_passes(pool, known):
    """Blocks behind one of another model do not vote again, which may change meanwhile."""
    expected = known(differing.passes_with_another, None)
    for (losses, votes), (other, _) in zip(
            pool(differing.passes_with_another, HPZ), expected):
        assert losses == other
        # Those of the other model, of backward passes, and of what is held.
        assert votes == [2, 3, 3, 2, 3]


def test_writes_in_the_middle_of_a_pass(pool):
    """Where hosts vote once in a pass, the others have used what was there before."""
    for error in pool(differing.writes_within_a_pass, HELD, False):
        assert error == (
            "'1': expected weights that stay as they are in a forward or backward pass, "
            "but got others than the pass has used; call zpp.torch.forget(model) in the "
            "pass, after they are written to")
    assert pool(differing.writes_within_a_pass, HELD, True) == 4 * ["none"]


@pytest.mark.parametrize("options", [HPZ, HELD, DELTA], ids=["hpZ", "held", "delta"])
def test_averages_that_skip_empty_shards(pool, known, options):
    results = pool(differing.train_with_average, options)
    expected = known(differing.train_with_average, None)
    for result, other in zip(results, expected):
        if options is HPZ:
            assert result == other
        assert result == pytest.approx(other, rel=0.1, abs=0.1)


@pytest.mark.parametrize("options", [HPZ, HELD, DELTA], ids=["hpZ", "held", "delta"])
def test_merged_adapters(pool, known, options):
    expected = known(differing.merge_and_train, None)
    for (losses, warnings), (other, _) in zip(
            pool(differing.merge_and_train, options), expected):
        if options is HPZ:
            assert losses == other
        assert losses == pytest.approx(other, rel=0.05)
        assert warnings == [
            "'0': weights were written to through .data, or by a kernel that PyTorch does "
            "not know; they are sent again, as are those of other modules without "
            "another warning"]


def test_warnings_name_the_module(pool):
    for root, part in pool(differing.warnings_of_parts, HELD):
        assert root.startswith("the root, Sequential: weights were written to")
        assert part.startswith("'0': weights were written to")


@pytest.mark.parametrize("more", [{}, {"frozen": True}, {"rows": ((0, 2), (1, 3))}],
                         ids=["FSDP", "frozen", "HSDP"])
def test_secondary_alone_has_the_bits_of_fsdp2(pool, more):
    results = pool(training.train, HPZ, report=True, **more)
    for result, other in zip(results, pool(training.train, None, **more)):
        assert result["losses"] == other["losses"]
        assert result["digest"] == other["digest"]
    total = results[0]["report"]["total"]
    assert 0 < total["after"]["node"] < 0.8 * total["before"]["node"]
    assert total["state_bytes"] > 0


def test_secondary_alone_crosses_once_per_step(pool):
    (first, *others), = {tuple(sent) for sent in pool(
        training.bytes_between_nodes, HPZ, micro_batches=2)}
    assert others == [first, first]


def test_switching_what_is_trained_sends_differences(pool):
    for whole, first, *others in pool(differing.bytes_of_switched, DELTA):
        assert first < 0.3 * whole and all(sent <= first for sent in others)


def test_groups_of_a_part_of_the_ranks(pool):
    """Groups of all ranks that are made later are named alike."""
    assert all(pool(differing.groups_after_a_part_compresses))


def test_checkpoints_beside_groups_of_a_part(pool, tmp_path):
    assert all(pool(differing.saves_after_a_part_compresses, str(tmp_path)))


def test_states_of_parts(pool, tmp_path):
    for found in pool(differing.resumes_parts, DELTA, str(tmp_path)):
        assert found["resumed"] == found["losses"][2:] and not found["warnings"]


@pytest.mark.parametrize("options, name", [
    ({}, "mesh"), ({**ZEROPP, "links": "measured"}, "links")], ids=["mesh", "links"])
def test_what_all_ranks_find_out_is_an_error_in_a_part(pool, options, name):
    results = [result for result, _ in pool.outcomes(differing.error_of_a_part, options)]
    assert results[1] == results[3] == "none"
    assert results[0] == (
        "RuntimeError: expected rank 1, 3 to call zpp.torch.compress as this one does, "
        f"but got no call within 2 s; with {name}= only ranks that have a part of the "
        "model need to")
    assert results[2].startswith("RuntimeError: expected rank")


def test_ranks_that_begin_anew(pool):
    """What they have done in another world does not count."""
    outcomes = pool.outcomes(differing.losses_in_a_new_world, {**ZEROPP, "weights": "i8"})
    assert not any(error for _, error in outcomes)
    first, *others, last = [result for result, _ in outcomes]
    assert others == [[], []] and first == last and first[-1] < first[0]


def test_wrapped_process_groups(cache):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    own = ranks.Pool(4, debug="DETAIL")
    try:
        for options in (ZEROPP, HELD, DELTA, {**ONCE, "weights": "i8"}):
            losses = [result["losses"] for result in own(training.train, options)]
            assert losses[0][-1] < losses[0][0]
        for before, after in own(training.timeouts_of_hops, HELD):
            assert before == [ranks.LIMIT] and after == [77]
    finally:
        own.close()


@pytest.mark.parametrize("options, more", [
    (ZEROPP, {}), (DELTA, {}), (ONCE, {}), (ZEROPP, {"rows": HYBRID}), (HPZ, {})],
    ids=["i8", "delta", "accumulate", "HSDP", "hpZ"])
def test_models_are_freed(pool, options, more):
    assert pool(differing.is_freed, options, **more) == 4 * [3 * [True]]


def test_hooks_on_one_rank(pool):
    check_gradients(pool(differing.gradients_with_hooks_on_one_rank, ONCE),
                    pool(differing.gradients_with_hooks_on_one_rank, None), I4_ERROR)


@pytest.mark.parametrize("elements", [1, 3, 1023, 1024, 5000, 70001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_checksums_have_an_order(dtype, elements):
    whole = torch.randint(0, 100, (elements + 1,)).to(dtype)
    source = whole[1:]
    source[0] = 101
    checksum = _secondary._checksum(source)
    assert checksum == _secondary._checksum(source.clone())
    for _ in range(20):
        first, second = torch.randint(elements, (2,)).tolist()
        changed = source.clone()
        changed[[first, second]] = source[[second, first]]
        assert bool(_secondary._checksum(changed) == checksum) is torch.equal(
            changed, source)
    if elements > 1:
        assert _secondary._checksum(source.flip(0)) != checksum


def test_checksums_see_signs_that_change_places():
    source = torch.ones(4096, dtype=torch.bfloat16)
    checksums = set()
    for place in range(0, 4096, 37):
        changed = source.clone()
        changed[place] = -1
        checksums.add(int(_secondary._checksum(changed)))
    assert len(checksums) == len(range(0, 4096, 37))
