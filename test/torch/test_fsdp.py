# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training with zpp.torch.compress beside FSDP2 as it is, on four ranks."""

import math
import os
import re

import pytest
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy

import ranks
import training
import zpp.torch
from zpp.torch import _compress
from training import MIXED, OFF, ZEROPP

#: The relative L2 error of a gradient: a step of i4 is a seventh of the largest
#: value of a block, one of i8 a 127th. Small gradients share blocks, and the
#: groups that are rotated, with larger ones, whose errors they then have.
I4_ERROR, I8_ERROR = 0.3, 0.02
FULL = MixedPrecisionPolicy()
BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                            reduce_dtype=torch.bfloat16)
#: Without a type for gradients, which was that of the weights before PyTorch 2.15.
UNSAID = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
#: FSDP2 divides before and after the sum.
F16 = MixedPrecisionPolicy(param_dtype=torch.float16,
                           reduce_dtype=torch.float16)


def check_losses(results, expected, tolerance=0.03):
    for result, other in zip(results, expected):
        assert result["losses"] == pytest.approx(other["losses"], rel=tolerance)
    assert results[0]["losses"][-1] < 0.9 * results[0]["losses"][0]


def check_gradients(results, expected, bound):
    for result, other in zip(results, expected):
        assert result.keys() == other.keys()
        for name, value in result.items():
            error = (value - other[name]).norm() / other[name].norm()
            assert error <= bound, name
            assert torch.isfinite(value).all() and value.any(), name


def test_losses_are_those_of_fsdp2(pool, plain):
    first = pool(training.train, ZEROPP)
    check_losses(first, plain(training.train))
    # The same to the bit, each time; all ranks compute with the same weights.
    again = pool(training.train, ZEROPP)
    assert [r["losses"] for r in again] == [r["losses"] for r in first]
    assert {r["digest"] for r in first + again} == {first[0]["digest"]}


@pytest.mark.parametrize("policy", [FULL, MIXED, BF16, F16],
                         ids=["f32", "mixed", "bf16", "f16"])
def test_gradients_are_means_over_all_ranks(pool, plain, policy):
    """1-D and indivisible parameters among them."""
    options = {**ZEROPP, "weights": "none"}
    expected = plain(training.gradients, policy=policy)
    for formats, bound in (("i8:i4", I4_ERROR), ("i8", I8_ERROR)):
        check_gradients(
            pool(training.gradients, {**options, "gradients": formats},
                 policy=policy), expected, bound)


@pytest.mark.parametrize("policy", [FULL, BF16], ids=["f32", "bf16"])
def test_tiny_gradients(pool, plain, policy):
    check_gradients(
        pool(training.gradients, {**ZEROPP, "weights": "none"}, scale=1e-9,
             policy=policy),
        plain(training.gradients, scale=1e-9, policy=policy), I4_ERROR)


@pytest.mark.parametrize("sync_each", [False, True])
def test_gradients_are_accumulated(pool, plain, sync_each):
    options = {"micro_batches": 3, "sync_each": sync_each}
    check_gradients(
        pool(training.gradients, {**ZEROPP, "weights": "none"}, **options),
        plain(training.gradients, **options), I4_ERROR)


def test_forced_sums(pool, plain):
    check_gradients(
        pool(training.gradients, {**ZEROPP, "weights": "none"},
             forced_sum=True), plain(training.gradients), I4_ERROR)


@pytest.mark.parametrize("scale", [math.inf, math.nan])
def test_divergence_stays_visible(pool, plain, scale):
    """What is not finite on one rank is not finite on any."""
    expected = plain(training.gradients, last_scale=scale)
    for result, other in zip(pool(training.gradients, ZEROPP,
                                  last_scale=scale), expected):
        for name, value in other.items():
            diverged = ~value.isfinite()
            assert diverged.any(), name
            assert not result[name][diverged].isfinite().any(), name


def test_divide_factor(pool, plain):
    """gloo knows no such sum, but zpp multiplies its own."""
    expected = [{name: value / 2 for name, value in gradients.items()}
                for gradients in plain(training.gradients)]
    check_gradients(
        pool(training.gradients, {**ZEROPP, "weights": "none"}, factor=8.0),
        expected, I4_ERROR)


def test_secondary(pool, known):
    """The backward pass gathers within the node, what the forward pass used."""
    options = {**ZEROPP, "secondary": "gpu"}
    results = pool(training.train, options, reshard=2, report=True)
    expected = known(training.train, ZEROPP, report=True)
    assert results[0]["losses"] == expected[0]["losses"]
    small = [entry for entry in results[0]["report"]["collectives"]
             if entry["group"] == "gpu:2"]
    assert len(small) == 2
    for entry in small:
        assert entry["before"] == entry["after"]
        assert entry["reason"] == "it is gathered from a secondary partition"
    sent = [r[0]["report"]["total"]["after"]["node"] for r in (results, expected)]
    assert sent[0] < 0.8 * sent[1]


def test_options_without_effect_are_warnings(pool):
    """Others are none, whatever is compiled with them."""
    for options, texts in (
            ({"secondary": "node"}, [
                "secondary='node': no weights are gathered from another such group, so it "
                "has no effect"]),
            ({"secondary": "gpu", "tuning": {"rotate": 0}}, [])):
        assert pool(training.warnings_of, {**ZEROPP, **options}) == 4 * [texts]


def test_another_secondary_of_fully_shard_is_an_error(pool):
    for error in pool(training.error_of, {
            **ZEROPP, "mesh": "node:4", "secondary": 1}, reshard=2):
        assert error == (
            "ValueError: secondary=1: expected '1' to gather over 1 ranks in the "
            "backward pass, but got 2; call fully_shard with "
            "reshard_after_forward=1 or True")


#: Options with which what a node holds is kept.
HELD = {**ZEROPP, "secondary": "gpu"}


@pytest.mark.parametrize("options", [{}, {"policy": F16}, {"frozen": True},
                                     {"checkpointed": True}, {"offloaded": True}],
                         ids=lambda options: next(iter(options), "plain"))
def test_what_is_kept_has_the_same_bits(pool, known, options):
    results = pool(training.train, HELD, report=True, **options)
    expected = known(training.train, ZEROPP, report=True, **options)
    for result, other in zip(results, expected):
        assert result["losses"] == other["losses"]
        assert result["digest"] == other["digest"]
        sent = [r["report"]["total"]["after"]["node"] for r in (result, other)]
        assert sent[0] < 0.9 * sent[1]


def test_exact_weights_may_be_kept(pool, known, plain):
    results = pool(training.train, {**HELD, **OFF, "gradients": "i8"},
                   report=True)
    expected = known(training.train, {**ZEROPP, **OFF, "gradients": "i8"})
    assert [r["losses"] for r in results] == [r["losses"] for r in expected]


def test_kept_weights_cross_nodes_once_per_update(pool):
    (first, *others), = {tuple(sent) for sent in pool(
        training.bytes_between_nodes, HELD)}
    assert others == [first, first]
    # Also with micro-batches, and what is frozen never again.
    assert {tuple(sent) for sent in pool(
        training.bytes_between_nodes, HELD, micro_batches=3)} == {
            (first, first, first)}
    (first, *others), = {tuple(sent) for sent in pool(
        training.bytes_between_nodes, HELD, frozen=True)}
    assert 0 < others[0] < 0.8 * first and others[0] == others[1]


@pytest.mark.parametrize("change, frozen", [
    *((change, False) for change in training.CHANGES),
    *((change, True) for change in training.CHANGES if "optimizer" not in change)])
def test_what_changes_is_gathered_again(pool, known, change, frozen):
    results = pool(training.evaluate_around, change, HELD, frozen=frozen)
    expected = known(training.evaluate_around, change, ZEROPP, frozen=frozen)
    for (result, entries), (other, _) in zip(results, expected):
        assert all(map(torch.equal, result, other))
        assert not torch.equal(result[1], result[2])
        # The second time within the node.
        assert {"node:2,gpu:2"} == {entry["group"] for entry in entries}
        assert any(entry["after"]["node"] == 0 for entry in entries)


def test_compress_drops_what_is_kept(pool):
    options = {**HELD, "weights": "none"}
    for (before, after), (other, _) in zip(
            pool(training.evaluate_after_compress, HELD, options),
            pool(training.evaluate_after_compress, options, HELD)):
        assert torch.equal(after, other) and not torch.equal(before, after)


@pytest.mark.parametrize("options", [
    {"checkpointed": True}, {"clip": 0.1}, {"frozen": True}, {"adapters": True},
    {"compiled": True}, {"offloaded": True}, {"reshard": False}],
    ids=lambda options: next(iter(options)))
def test_training_with(pool, plain, options):
    check_losses(pool(training.train, ZEROPP, **options),
                 plain(training.train, **options))


def test_training_like_torchtitan(pool, plain):
    results = pool(training.train_like_torchtitan, ZEROPP)
    check_losses(results, plain(training.train_like_torchtitan))
    entries = results[0]["report"]["collectives"]
    assert {entry["module"] for entry in entries} == {"0", "1", "2"}
    for entry in entries:
        assert entry["rewritten"] and entry["group"] == "node:2"


def test_parameters_of_several_meshes(pool):
    for report in pool(training.train_with_expert_mesh, ZEROPP):
        if report is None:
            pytest.skip("this PyTorch has one mesh for a module")
        entries = report["collectives"]
        assert sorted((entry["kind"], entry["group"]) for entry in entries) == [
            (kind, group) for kind in ("all_gather", "reduce_scatter")
            for group in ("gpu:2", "node:2,gpu:2")]
        # Not one of them is taken for a gather from a secondary partition.
        assert all(entry["rewritten"] for entry in entries)


#: Rows of ranks that shard; weights are replicated between rows.
HYBRID, REPLICATED = ((0, 1), (2, 3)), ((0,), (1,), (2,), (3,))


@pytest.mark.parametrize("rows", [HYBRID, REPLICATED],
                         ids=["shards", "replicas only"])
def test_replicas_stay_equal(pool, rows):
    """HSDP: all ranks have the same weights, to the bit, after each training."""
    first = pool(training.train, ZEROPP, rows=rows, report=True)
    check_losses(first, pool(training.train, None, rows=rows))
    again = pool(training.train, ZEROPP, rows=rows)
    assert [r["losses"] for r in again] == [r["losses"] for r in first]
    assert {r["digest"] for r in first + again} == {first[0]["digest"]}
    reduces = [entry for entry in first[0]["report"]["collectives"]
               if entry["kind"] == "all_reduce"]
    assert [entry["module"] for entry in reduces] == ["", "0", "1"]
    for entry in reduces:
        assert entry["rewritten"] and entry["calls"] == 6
        assert entry["group"] == (
            "node:2" if rows == HYBRID else "node:2,gpu:2")
        # In i4 there and in i8 back, instead of in f32, but for vectors; the root's
        # matrix has 768 elements beside one of 24.
        assert entry["after"]["node"] < (0.22 if entry["module"] else
                                         0.31) * entry["before"]["node"]


@pytest.mark.parametrize("options", [
    {}, {"factor": 8.0}, {"policy": BF16}, {"policy": F16},
    {"micro_batches": 3}, {"micro_batches": 3, "sync_each": True},
    {"micro_batches": 3, "sync_each": True, "reduce_each": False}],
    ids=["one", "factor", "bf16", "f16", "accumulated", "each", "scattered"])
def test_hybrid_sharding(pool, plain, options):
    if "factor" in options:
        # gloo knows no such sum.
        expected = [{name: value / 2 for name, value in gradients.items()}
                    for gradients in plain(training.gradients, rows=HYBRID)]
    else:
        expected = plain(training.gradients, rows=HYBRID, **options)
    check_gradients(
        pool(training.gradients, {**ZEROPP, "weights": "none"}, rows=HYBRID,
             **options), expected, I4_ERROR)


def test_all_reduces_may_stay_as_they_are(pool):
    results = pool(training.train, {**ZEROPP, "gradients": "none"}, rows=HYBRID,
                   report=True)
    assert {entry["reason"] for entry in results[0]["report"]["collectives"]
            if entry["kind"] == "all_reduce"} == {
                "all-reduces of gradients are to stay as they are"}


def test_state_dicts_are_those_of_fsdp2(pool):
    for plain, compressed in pool(training.states):
        assert list(plain) == list(compressed)
        assert all(torch.equal(plain[name], compressed[name]) for name in plain)
    assert all(pool(training.loads_states))


def test_checkpoints_are_those_of_fsdp2(pool, tmp_path):
    off = {**ZEROPP, **OFF}
    for number, (saved, loaded) in enumerate(
            [(None, ZEROPP), (ZEROPP, None), (off, ZEROPP)]):
        assert all(pool(training.resumes_from_checkpoint,
                        str(tmp_path / str(number)), saved, loaded))


def test_what_does_not_gain_is_left_alone(pool, plain):
    results = pool(training.train, {
        **ZEROPP, "links": "node=900gbyte,gpu=900gbyte"}, report=True)
    assert [r["losses"] for r in results] == [
        r["losses"] for r in plain(training.train)]
    for entry in results[0]["report"]["collectives"]:
        assert entry["reason"].startswith("on these links it takes")


@pytest.mark.parametrize("more", [{}, {"rows": ((0, 1), (2, 3))}],
                         ids=["FSDP", "HSDP"])
def test_what_is_measured_decides(pool, plain, more):
    """On NVLink nothing is rewritten, and the bits are those of FSDP2."""
    results = pool(training.train_on_links, ZEROPP, "node=3200gbit,gpu=3200gbit",
                   **more)
    assert [r["losses"] for r in results] == [
        r["losses"] for r in plain(training.train, **more)]
    assert not any(entry["rewritten"] for r in results
                   for entry in r["report"]["collectives"])
    total = results[0]["report"]["total"]
    assert total["before"] == total["after"]
    results = pool(training.train_on_links, ZEROPP, "node=0.01gbit,gpu=0.01gbit", **more)
    assert all(entry["rewritten"] for r in results
               for entry in r["report"]["collectives"])


@pytest.mark.parametrize("links, device, is_measured", [
    (None, "cuda", True), (None, "cpu", False), ("measured", "cpu", True),
    ("none", "cuda", False), ("gpu=1gbit", "cuda", False)])
def test_links_are_measured_by_default_on_gpus(links, device, is_measured):
    assert _compress.is_measured(
        zpp.torch.Options(links=links), torch.device(device)) is is_measured


def test_links_are_measured(pool):
    """The same on all ranks, in steps that do not change from run to run."""
    results = pool(training.train, {**ZEROPP, "links": "measured"}, report=True)
    (links,) = {r["report"]["links"] for r in results}
    speeds = re.fullmatch(r"node=(\S+)gbit,gpu=(\S+)gbit", links).groups()
    for speed in speeds:
        steps = 2 * math.log2(float(speed))
        assert steps == pytest.approx(round(steps), abs=0.02)
    # What is measured decides as what is given does.
    given = pool(training.train, {**ZEROPP, "links": links}, report=True)
    for measured, stated in zip(results, given):
        assert measured["report"]["collectives"] == stated["report"]["collectives"]
        assert measured["losses"] == stated["losses"]
    for error in pool(training.error_of_disagreement, {"links": "measured"}, 2):
        assert re.match("ValueError: .*: expected the same on all ranks, but got "
                        ".*links=None.* on rank 0 and None on rank 2$", error)


@pytest.mark.parametrize("rows", [None, HYBRID], ids=["FSDP", "HSDP"])
def test_off_again(pool, plain, rows):
    options = {} if rows is None else {"rows": rows}
    results = pool(training.train, ZEROPP, report=True, switched_off=True,
                   **options)
    assert [r["losses"] for r in results] == [
        r["losses"] for r in plain(training.train, **options)]
    total = results[0]["report"]["total"]
    assert total["before"] == total["after"]


def test_schedule(pool):
    def calls(result):
        """How often gradients were compressed, and not."""
        entries = [entry for entry in result["report"]["collectives"]
                   if entry["kind"] == "reduce_scatter"]
        return [sum(entry["calls"] for entry in entries
                    if entry["rewritten"] is rewritten)
                for rewritten in (True, False)]

    options = {**ZEROPP, "schedule": {4: {"gradients": "none"}}}
    assert calls(pool(training.train, options, report=True)[0]) == [12, 6]
    # A frozen block has no steps of its own.
    weights = pool(training.train, {**ZEROPP, "schedule": {4: {
        "weights": "none"}}}, report=True, frozen=True)[0]["report"]
    frozen = [entry["calls"] for entry in weights["collectives"]
              if entry["module"] == "0" and entry["kind"] == "all_gather" and
              not entry["rewritten"]]
    assert len(frozen) == 1 and frozen[0] >= 2
    options["steps_done"] = 3
    assert calls(pool(training.train, options, report=True)[0]) == [3, 15]


def test_report(pool):
    reports = pool(training.train, ZEROPP, steps=1, report=True)
    report = reports[0]["report"]
    assert all(other["report"] == report for other in reports)
    assert report["mesh"] == {"node": 2, "gpu": 2}
    scatter = next(entry for entry in report["collectives"]
                   if entry["module"] == "0" and
                   entry["kind"] == "reduce_scatter")
    # Slices are padded to 4 ranks: 2 x 32, 101 x 32, 101, 32 x 101, 1.
    elements = 8 + 8 + 26 * 32 + 26 + 8 * 101 + 1
    assert scatter == {
        "module": "0", "kind": "reduce_scatter", "type": "f32",
        "elements": elements, "group": "node:2,gpu:2", "calls": 1,
        "before": {"node": 4 * elements, "gpu": 8 * elements},
        "after": scatter["after"], "rewritten": True, "reason": "", "hops": []}
    # Half a byte and a byte per element of whole blocks, with their scales;
    # parameters of one dim travel as they are.
    blocks, exact = 2 * 7 * 128, 8 + 8 + 26 + 1
    assert scatter["after"] == {
        "node": pytest.approx(0.516 * blocks + 4 * exact, rel=0.01),
        "gpu": pytest.approx(2.032 * blocks + 8 * exact, rel=0.01)}
    for side in ("before", "after"):
        assert report["total"][side]["node"] == sum(
            entry[side]["node"] * entry["calls"]
            for entry in report["collectives"])


def test_report_of_hops(pool):
    """Each hop says what it was; the slow one decides about the whole."""
    for links, is_rewritten in (("none", True),
                                ("node=900gbyte,gpu=900gbyte", False)):
        entries = [entry for entry in pool(
            training.train, {**HELD, "links": links}, steps=2, report=True
            )[0]["report"]["collectives"] if entry["kind"] == "all_gather"]
        crossing = [entry for entry in entries if entry["after"]["node"]]
        kept = [entry for entry in entries if not entry["after"]["node"]]
        assert (len(crossing), len(kept)) == (3, 2)
        for entry in crossing:
            outer, inner = entry["hops"]
            assert (outer["group"], inner["group"]) == ("node:2", "gpu:2")
            assert entry["rewritten"] is outer["rewritten"] is is_rewritten
            assert entry["reason"] == outer["reason"]
            assert is_rewritten or outer["reason"].startswith("on these links")
            assert entry["after"] == {**outer["after"], **inner["after"]}
        for entry in kept:
            assert entry["rewritten"] and not entry["reason"]
            (inner,) = entry["hops"]
            assert inner == {
                "group": "gpu:2", "after": {"gpu": entry["after"]["gpu"]},
                "rewritten": False, "reason":
                "within the secondary group weights travel as they are"}


def test_metrics(pool):
    for found, sent in pool(training.measured, **ZEROPP):
        assert found[0] == {}
        # An evaluation after the pass belongs to it.
        for numbers, bytes_ in zip(found[1:], (sent[0], sent[1], sent[3])):
            assert numbers["bytes/node"] >= bytes_ > 0
            assert numbers["bytes_as_written/node"] > numbers["bytes/node"]
            assert 0.001 < numbers["error/weights"] < 0.02
            # A block has elements of one parameter, of like sizes.
            assert 0.025 < numbers["error/gradients"] < 0.25
            assert numbers["not_finite/gradients"] == 0
            assert numbers["state_bytes"] == 0


def test_metrics_of_what_nobody_calls(pool):
    for texts, found in pool(training.measured_where_nobody_calls, False):
        assert not texts and found["bytes/node"] > 0 and found["error/gradients"] > 0
    for texts, found in pool(training.measured_where_nobody_calls, True):
        assert "bytes/node" not in found
        assert texts == [
            "metrics: expected calls of Block, from one to the next of which is "
            "measured, but got gradients of its other methods, or of parts of it, alone; "
            "call metrics for a part that is called"]


def test_modules_may_have_other_options(pool):
    entries = pool(training.overridden, ZEROPP["mesh"])[0]["collectives"]
    kinds = {(entry["module"], entry["kind"]): entry for entry in entries}
    assert kinds["0", "all_gather"]["reason"] == (
        "gathers of weights are to stay as they are")
    assert kinds["1", "all_gather"]["rewritten"]
    # One hop over the whole group sends more between nodes than two.
    assert (kinds["0", "reduce_scatter"]["after"]["node"] >
            3 * kinds["1", "reduce_scatter"]["after"]["node"])
    # Their tiers are in the totals, too.
    for report in pool(training.overridden, "all:4"):
        total = report["total"]["before"]
        assert [*total] == ["node", "gpu", "all"] and all(total.values())


def test_parameters_that_change_are_bounded(pool):
    for first, other in pool(training.entries_of_changing_parameters):
        assert first["rewritten"] and first["calls"] == 2
        assert not other["rewritten"] and other["calls"] == 1
        assert other["reason"].startswith(
            "gradients of other parameters of its module were reduced too often")


def test_mesh_of_hosts(pool):
    """All ranks are on this one: one tier, and default options."""
    results = pool(training.train, {}, steps=1, report=True)
    assert results[0]["report"]["mesh"] == {"gpu": 4}
    assert all(entry["rewritten"]
               for entry in results[0]["report"]["collectives"])


def test_mesh_of_devices(pool):
    for report in pool(training.report_on_device_mesh):
        assert report["mesh"] == {"node": 2, "gpu": 2}
    for unnamed, unordered in pool(training.errors_of_device_meshes):
        assert "expected a device mesh whose dims have names" in unnamed
        assert "expected a device mesh of all 4 ranks in their order" in unordered


def test_other_types_are_left_alone(pool):
    for report in pool(training.error_of_f64):
        assert {entry["reason"] for entry in report["collectives"]} == {
            "expected elements of float32, bfloat16 or float16, but got "
            "float64"}


def test_without_parameters(pool):
    for report in pool(training.report_without_parameters):
        assert not report["collectives"]


def test_bytes_among_the_types_are_left_alone(pool):
    """A base that is quantized already, with an adapter."""
    for report in pool(training.report_of_quantized_base):
        (entry,) = report["collectives"]
        assert entry["reason"].startswith(
            "all of its parameters travel as they are: those of one dim, ")
        # 2 x 8 bytes and 2 f32 on each of 4 ranks.
        assert entry["type"] == "uint8+f32" and entry["elements"] == 18
        assert report["total"]["before"] == report["total"]["after"] == {
            "node": 24, "gpu": 48}


def test_groups_outside_of_the_mesh_are_errors(pool):
    for error in pool(training.error_of, ZEROPP, rows=((0, 3), (1, 2))):
        assert "expected a process group of ranks that differ in whole tiers " \
            "of the mesh node:2,gpu:2, in order, but got the ranks" in error


def test_failed_exchanges_are_pytorchs_errors(pool):
    for error in pool(training.error_of_exchange):
        assert error == "DistBackendError: connection closed by peer"


def test_captured_steps_are_errors(pool):
    for error in pool(training.error_of_capture):
        assert error.startswith(
            "RuntimeError: the root, Sequential: expected collectives that run, but got some that a "
            "CUDA graph records")


@pytest.mark.skipif("ZPP_TEST_GPUS" in os.environ,
                    reason="test/gpu/check_torch.py does it with NCCL")
def test_a_lost_rank_ends_the_others(cache):
    """As it does with FSDP2: an error of the process group, in time."""
    *others, (_, lost) = ranks.Pool(4, exchange_limit=10).outcomes(
        training.lose_last, ZEROPP)
    assert lost == "ended with 1"
    for error, trace in others:
        assert trace is None and re.search(
            "RuntimeError: .*(Connection|Timed out|peer)", error)


@pytest.mark.skipif("ZPP_TEST_GPUS" in os.environ,
                    reason="NCCL's watchdog ends the process")
def test_the_time_limit_holds_in_hops(cache):
    *others, _ = ranks.Pool(4, limit=150, exchange_limit=6).outcomes(
        training.stop_last, ZEROPP)
    for error, trace in others:
        assert trace is None and re.search(
            "RuntimeError: .*(Connection|Timed out|peer)", error)


def test_hops_follow_the_time_limit_of_their_group(cache):
    # Ranks of its own: others may know the groups of a mesh, which keep theirs.
    own = ranks.Pool(4)
    try:
        # The groups of hops are the same, and were made with the first.
        for options in (ZEROPP, HELD, {**ZEROPP, "weights": "i4:delta"}):
            for before, after in own(training.timeouts_of_hops, options):
                assert before == [ranks.LIMIT] and after == [77]
    finally:
        own.close()


@pytest.mark.parametrize("options, name", [
    ({"tuning": {"rotate": 0}}, "options from step 0"),
    ({"steps_done": 3}, "steps_done"),
    ({"weights": "i4"}, "options from step 0"),
    ({"schedule": {7: {"weights": "none"}}}, "options from step")],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)))
def test_ranks_that_disagree_are_errors(pool, options, name):
    for error in pool(training.error_of_disagreement, options, 2):
        assert error.startswith(f"ValueError: {name}")
        assert ": expected the same on all ranks, but got " in error
        assert "on rank 0 and" in error and error.endswith("on rank 2")


def test_ranks_that_do_not_call_are_errors(pool):
    outcomes = pool.outcomes(training.error_of_absence, 3)
    assert not any(error for _, error in outcomes)
    *others, last = [result for result, _ in outcomes]
    assert last == "none"
    assert others[0] == (
        "RuntimeError: expected rank 3 to call zpp.torch.compress as this one "
        "does, but got no call within 2 s")
    for error in others[1:]:
        assert error.startswith("RuntimeError: expected rank")


@pytest.mark.parametrize("options", [
    {}, {"policy": BF16}, {"policy": F16}, {"policy": UNSAID}, {"rows": HYBRID},
    {"frozen": True}, {"offloaded": True}],
    ids=lambda options: next(iter(options), "plain"))
def test_compress_compiles_everything(pool, options):
    assert all(pool(training.compiles_early, ZEROPP, **options))


def test_off_gives_pytorchs_own_collectives_back(pool):
    for found in pool(training.own_collectives_after_off):
        assert found == 3 * [
            "DefaultAllGather", "DefaultReduceScatter", "NoneType"]
    for found in pool(training.own_collectives_after_off, rows=HYBRID):
        assert found == 3 * [
            "DefaultAllGather", "DefaultReduceScatter", "ProcessGroup"]


def test_collectives_of_the_user_are_not_replaced(pool):
    """Neither those that were there before, nor those that the user sets later."""
    for errors in pool(training.errors_of_own_collectives):
        assert errors == 3 * [
            "'0': expected PyTorch's own collectives, which zpp replaces, but "
            "got Collective and DefaultReduceScatter; leave out "
            "set_custom_all_gather and set_custom_reduce_scatter for this module, "
            "compress the others alone, or shard this one within nodes and replicate "
            "it between them (HSDP), where its collectives stay as they are, and zpp "
            "reduces between the nodes"]


def test_collectives_of_the_user_within_nodes_stay(pool):
    """As those in symmetric memory do."""
    plain = pool(training.train, None, rows=HYBRID, steps=3)
    results = pool(training.train_with_own_gathers, ZEROPP)
    assert results == pool(training.train_with_own_gathers, ZEROPP, again=True)
    for result, other in zip(results, plain):
        assert result["calls"] > 0
        assert {entry["kind"] for entry in result["report"]["collectives"]} == {
            "all_reduce"}
        assert all(entry["rewritten"] for entry in result["report"]["collectives"])
        assert result["losses"] == pytest.approx(other["losses"], rel=0.01)


@pytest.mark.parametrize("options", [ZEROPP, HELD], ids=["reshard", "held"])
def test_memory_that_gpus_share(pool, options):
    """It is used for all buffers, and for the gathers within nodes that zpp leaves to
    PyTorch (hpZ of FSDP2 itself)."""
    reshard = 2 if options == ZEROPP else True
    plain = pool(training.train, options, reshard=reshard)
    for result, other in zip(pool(training.train_in_other_memory, options, reshard),
                             plain):
        assert result["losses"] == other["losses"]
        # Of three modules, in each of six steps; the root's weights stay.
        assert result["gathers"] == (6 * 2 * [2] if options == ZEROPP else [])
        assert result["buffers"] >= 6 * 5


def test_separate_groups_of_scatters(pool, known):
    expected = known(training.train, ZEROPP)
    for result, other in zip(pool(training.train_with_separate_scatters),
                             expected):
        if result is None:
            pytest.skip("this PyTorch does not separate scatters")
        losses, is_separate = result
        assert losses == other["losses"] and is_separate


@pytest.mark.parametrize("first", [False, True], ids=["second", "first"])
@pytest.mark.parametrize("options", [ZEROPP, HELD], ids=["whole", "held"])
def test_asynchronous_gathers(pool, options, first):
    assert all(pool(training.unshards_asynchronously, options, first))


@pytest.mark.parametrize("rows", [None, HYBRID], ids=["FSDP", "HSDP"])
def test_profiles_have_names(pool, rows):
    options = {} if rows is None else {"rows": rows}
    for names in pool(training.names_in_profile, **options):
        assert "zpp::run" in names
        for kind in ("all_gather", "reduce_scatter"):
            assert any(re.fullmatch(rf"zpp::{kind} 0 \d+ B", name)
                       for name in names)


def test_what_is_not_sharded_is_a_warning(pool):
    for warnings in pool(training.warnings_before_the_root):
        assert warnings == [
            "expected fully_shard to be called for all of the model before "
            "compress, but got 2 parameters outside of it, such as '1.weight': they "
            "are not compressed, and neither is what fully_shard is called for later"]


def test_fsdp1_is_an_error(pool):
    for error in pool(training.error_of_fsdp1):
        assert "expected modules of fully_shard (FSDP2), but got '0' of " \
            "FullyShardedDataParallel (FSDP1)" in error


def test_a_schedule_has_steps(pool):
    for error in pool(training.error_of, {**ZEROPP, "schedule": [5000]}):
        assert error == (
            "TypeError: schedule: expected options by step, such as "
            "{5000: {'gradients': 'none'}}, but got [5000]")


@pytest.mark.parametrize("options, error", [
    ({"mesh": "node:2,gpu:4"}, "mesh: expected tiers of 4 devices, as many as "
     "there are ranks, but got node:2,gpu:4"),
    ({"weights": "i3"}, "weights: expected 'none', 'i8', 'i4', 'i8:delta' or "
     "'i4:delta', but got 'i3'"),
    ({"weights": "i8:delta", "secondary": "none"}, "secondary: expected a tier or "
     "a number of devices, whose group holds what weights='i8:delta' adds "
     "differences to, but got 'none'; leave it out for the innermost tier"),
    ({"secondary": 3}, "secondary: expected a number that divides the devices of "
     "node:2,gpu:2, but got 3"),
    ({"frozen": "keep"}, "expected options among mesh, weights, gradients, "
     "reduced, secondary, links, tuning, accumulate, exact, moments, but got frozen"),
    ({"target": "cuda", "updated": "i8"}, "expected options among mesh, weights, "
     "gradients, reduced, secondary, links, tuning, accumulate, exact, moments, but got "
     "target, updated"),
    ({"tuning": {"prefetch_bytes": 1}}, "tuning: expected options among block, rotate, "
     "compile_timeout, but got prefetch_bytes"),
    ({"secondary": "rack"}, "secondary: expected a tier of node:2,gpu:2 or a "
     "number of devices, but got 'rack'"),
    ({"schedule": {0: {}}}, "schedule: expected steps counted from 1, but got "
     "0"),
    ({"schedule": {3: {"mesh": "gpu:4"}}}, "schedule: expected the mesh "
     "node:2,gpu:2 at all steps, but got gpu:4"),
    ({"steps_done": -1}, "steps_done: expected a number of steps, but got -1"),
    ({"steps_done": True}, "steps_done: expected a number of steps, but got True"),
    ({"micro_batches": 4}, "expected options among mesh, weights, gradients, "
     "reduced, secondary, links, tuning, accumulate, exact, moments, but got micro_batches"),
    ({"links": "node=1apple,gpu=1gbit"}, "links: expected TIER=NUMBERgbit or "
     "TIER=NUMBERgbyte, but got 'node=1apple'"),
    ({"gradients": "i8:i4:i8:i4:i4"}, "gradients: expected at most 2 formats on "
     "the mesh node:2,gpu:2, one for each tier, but got 'i8:i4:i8:i4:i4'"),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_bad_options_are_errors(pool, options, error):
    kind = "TypeError" if "expected options" in error else "ValueError"
    for found in pool(training.error_of, {**ZEROPP, **options}):
        assert found == f"{kind}: {error}"
