# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Engines of DeepSpeed's ZeRO-3 with zpp, beside those without."""

import os
import pathlib
import subprocess
import sys

import pytest

import engines
import zpp.deepspeed
from engines import WIDTH, ZEROPP, make_config, train
from zpp.deepspeed import _seams

#: Largest relative difference of losses over 24 steps.
APART = 0.01
DELTA = {"weights": "i4:delta"}
BF16 = {"bf16": {"enabled": True}}
FP16 = {"fp16": {"enabled": True, "initial_scale_power": 24, "loss_scale_window": 4,
                 "hysteresis": 1}}
CPU = {"device": "cpu"}
#: Everything is gathered again in the backward pass.
NO_REUSE = {"stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0,
            "stage3_prefetch_bucket_size": 0}


def compare(pool, config, steps=24, apart=APART, **options):
    """Trains with zpp and without; returns the results of the former."""
    ours = pool(train, config, steps, **options)
    plain = pool(train, engines.without_zpp(config), steps, **options)[0]
    for one, other in zip(ours[0]["losses"], plain["losses"], strict=True):
        assert abs(one / other - 1) < apart
    assert ours[0]["losses"][-1] < ours[0]["losses"][0]
    assert len({each["digest"] for each in ours}) == 1
    assert ours[0]["digest"] != plain["digest"]
    return ours[0]


SLOW = pytest.mark.slow


@pytest.mark.parametrize("own", [pytest.param({}, marks=SLOW), DELTA],
                         ids=["i8", "delta"])
def test_trains_as_zero3(pool, own):
    compare(pool, make_config(ZEROPP, own))


@pytest.mark.parametrize("name, others, options", [
    pytest.param("bf16", BF16, {"micro_batches": 2}, marks=SLOW),
    ("fp16", FP16, {}),
    pytest.param("clipped", {"gradient_clipping": 0.1}, {}, marks=SLOW),
])
def test_types_and_micro_batches(pool, name, others, options):
    found = compare(pool, make_config(ZEROPP, DELTA, **others), apart=0.02, **options)
    if name == "fp16":
        # The first steps overflow: they change nothing, and nothing crosses nodes.
        assert found["skipped"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("zero", [
    {"offload_optimizer": CPU}, {"offload_param": CPU, "offload_optimizer": CPU}],
    ids=["optimizer", "parameters"])
def test_offload(pool, zero):
    compare(pool, make_config({**ZEROPP, **zero}, DELTA))


def test_gradients_of_what_is_on_nvme_are_compressed(pool):
    reductions = [entry for entry in pool(engines.train_swapped_out, make_config(ZEROPP))[0]
                  if entry["kind"] == "reduce_scatter"]
    assert reductions
    for entry in reductions:
        assert entry["rewritten"], entry["reason"]
        assert entry["after"]["node"] < entry["before"]["node"] / 4


@pytest.mark.parametrize("own", [{}, DELTA], ids=["i8", "delta"])
def test_tensor_parallelism_of_deepspeeds(pool, own):
    """AutoTP within nodes: what crosses them is compressed."""
    config = make_config(ZEROPP, own)
    found = pool(engines.train_with_tensor_parallelism, config)
    plain = pool(engines.train_with_tensor_parallelism, engines.without_zpp(config))
    for result, other in zip(found, plain):
        assert result["losses"] == pytest.approx(other["losses"], rel=0.01)
        assert result["losses"] != other["losses"]
        entries = [entry for entry in result["report"]["collectives"]
                   if entry["module"].endswith(("up.weight", "down.weight"))]
        assert len(entries) > 4
        for entry in entries:
            assert entry["group"] == "node:2"
        total = result["report"]["total"]
        assert total["after"]["node"] < 0.5 * total["before"]["node"]


def test_buckets_that_change_are_bounded(pool):
    config = make_config({**ZEROPP, "reduce_bucket_size": 9000})
    reductions = [entry for entry in pool(engines.train_with_few_reductions, config)[0]
                  if entry["kind"] == "reduce_scatter"]
    assert [entry["calls"] for entry in reductions if entry["rewritten"]] == [2]
    others = [entry for entry in reductions if not entry["rewritten"]]
    assert others
    for entry in others:
        assert entry["reason"].startswith("DeepSpeed's buckets have had other parameters")


@pytest.mark.parametrize("own, most", [({}, 0.775), (DELTA, 0.525)], ids=["i8", "delta"])
def test_bytes(pool, own, most):
    """1 M is all weights, once."""
    first, last = (
        pool(train, make_config({**ZEROPP, **NO_REUSE}, own, **BF16), steps,
             hidden=16 * WIDTH, bias=False)[0]["report"]["total"] for steps in (1, 3))
    before, after = (last[side]["node"] - first[side]["node"]
                     for side in ("before", "after"))
    # ZeRO-3 sends them in the forward pass, in the backward pass, and the gradients.
    assert after / (before / 3) < most


def test_off_is_equal_to_zero3(pool):
    """Without a setting nothing is replaced; with formats that are all off but one,
    what is off has ZeRO-3's bits."""
    plain = pool(train, make_config())[0]
    assert plain["report"] == {}
    off = {name: type(value)() for name, value in ZEROPP.items()}
    assert pool(train, make_config(off, {}))[0] == plain
    kept = pool(train, make_config({"zero_hpz_partition_size": 2}))[0]
    assert kept["losses"] == plain["losses"] and kept["digest"] == plain["digest"]
    assert kept["report"]["total"]["state_bytes"] > 0


def test_init_context_and_loads(pool, tmp_path):
    """zero.Init, GatheredParameters, evaluation, checkpoints, frozen weights."""
    for found in pool(engines.use_everything, make_config(ZEROPP, DELTA), str(tmp_path)):
        assert found["is_exact"] and found["is_free"] and found["error"] == "no memory"
        # The weight was made zero: what is left is its bias, for all inputs.
        assert found["spread"] == 0
        assert found["resumed"] == pytest.approx(found["losses"], rel=APART)
        assert "error/weights/2.weight" in found["metrics"]
        # Frozen weights cross nodes once, and after the load.
        crossed = [entry for entry in found["entries"]
                   if entry["module"] == "0.up.weight" and entry["after"]["node"]]
        assert sum(entry["calls"] for entry in crossed) == 2


@pytest.mark.parametrize("other", [make_config(), make_config(ZEROPP)],
                         ids=["zero3", "i8"])
def test_another_engine_with_the_module_is_on_its_own(pool, other):
    """It does what its config says, and nothing of a former one's."""
    for found in pool(engines.train_again, make_config(ZEROPP, DELTA), other):
        assert found["again"] == found["fresh"]
        assert found["is_over"]


def test_a_load_that_fails_drops_all(pool):
    """Its error is the load's."""
    for found in pool(engines.fail_to_load, make_config(ZEROPP, DELTA)):
        assert found["errors"] == ["no such file", "0.up.weight was wrong"]
        assert found["dropped"] == 2 * [
            f"{name}.weight" for name in ("0.up", "0.down", "1.up", "1.down", "2")]


def test_zero_to_fp32(pool, tmp_path):
    assert all(pool(engines.save_checkpoint, make_config(ZEROPP, DELTA),
                    str(tmp_path)))


@pytest.mark.parametrize("formats, error", [("i8:i4", 0.15), ("i4:i4", 0.3)])
def test_gradients_are_means_of_all_ranks(pool, formats, error):
    """Of large and small parameters, with an outlier, whose sign matters where the
    largest value of a block is clipped."""
    for largest in (100.0, -100.0):
        ours = pool(engines.gradients, make_config(
            ZEROPP, {"gradients": formats}), largest)[0]
        plain = pool(engines.gradients, make_config(), largest)[0]
        for name, expected in plain.items():
            off = (ours[name] - expected).norm() / expected.norm()
            assert off < error, name
            assert (ours[name].abs().max() / expected.abs().max()
                    ).item() == pytest.approx(1, abs=error), name


def test_ranks_that_differ_are_errors(pool):
    """All of them say so."""
    other = make_config(ZEROPP, {"weights": "i4:delta"})
    for error in pool(engines.error_of, make_config(ZEROPP), other):
        assert "options: expected the same on all ranks, but got " in error
        assert "on rank 3" in error
    for error in pool(engines.error_of, *[make_config(ZEROPP, {"mesh": "node:3"})] * 2):
        assert error == ("mesh: expected tiers of 4 devices, as many as there are ranks, "
                         "but got node:3")


def test_secondary_partitions_of_deepspeed_are_errors(pool):
    """It gathers them rather than the slices."""
    expected = ("expected zpp.deepspeed.install() before zero.Init, from_pretrained and all "
                "else that reads zero_hpz_partition_size, but got ")
    for errors in pool(engines.errors_of_secondary, make_config(ZEROPP)):
        assert errors == [
            f"{expected}a secondary partition of '0.norm.weight' of DeepSpeed's",
            f"{expected}secondary groups of DeepSpeed's"]


def test_another_deepspeed_is_an_error(monkeypatch):
    monkeypatch.setattr(_seams, "_EXPECTED", (
        (engines, "make_batch", "seed"), *_seams._EXPECTED))
    monkeypatch.delattr(_seams.DeepSpeedConfig, "_zpp_settings", raising=False)
    with pytest.raises(RuntimeError) as caught:
        zpp.deepspeed.install()
    assert str(caught.value).startswith(
        "expected make_batch(seed) in engines, as DeepSpeed 0.19.6 to 0.19.8 have it, but "
        "got make_batch(seed, rank) in DeepSpeed 0.19.")


def test_an_engine_without_zpp_has_no_report():
    for call in (zpp.deepspeed.report, zpp.deepspeed.metrics, zpp.deepspeed.forget):
        with pytest.raises(ValueError, match="expected an engine whose config has zero_"):
            call(object())


def test_inputs_of_environment(tmp_path):
    """ZPP_DEEPSPEED=1 installs zpp as soon as DeepSpeed is imported, also if the
    program has looked whether it is there."""
    code = ("from importlib.util import find_spec; assert find_spec('deepspeed');"
            "import deepspeed; from deepspeed.runtime import config;"
            "print(hasattr(config.DeepSpeedConfig, '_zpp_settings'))")
    startup = pathlib.Path(zpp.__file__).parent / "startup"

    def run(value):
        return subprocess.run(
            [sys.executable, "-c", code], text=True, capture_output=True, check=False,
            env={**os.environ, "ZPP_DEEPSPEED": value, "PYTHONPATH": str(startup)})
    assert run("1").stdout.endswith("True\n")
    assert run("0").stdout.endswith("False\n")
    assert "ZPP_DEEPSPEED: expected 1 or 0, but got 'yes'" in run("yes").stderr
