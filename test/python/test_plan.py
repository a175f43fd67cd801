# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Predictions of plans, and what is chosen by them."""

import dataclasses
import json
import xml.etree.ElementTree

import gpt
import jax
import numpy as np
import pytest
import zpp
from training import BATCH, NODES, TINY, train, trainer_of
from zpp import _cli

pytestmark = pytest.mark.compiler

SLOW = "node=10gbit,gpu=400gbyte"
FAST_LINKS = "node=400gbyte,gpu=400gbyte"
#: The rows of a step without micro-batches.
ROWS = ["FSDP", "qwZ", "hpZ", "qgZ", "qwZ + hpZ", "ZeRO++", "differences"]
#: Weights are large enough that bytes decide, not latencies.
LARGE = gpt.Config(width=512, layers=2, vocab=1024)


@pytest.fixture(scope="module")
def text():
    trainer = trainer_of(LARGE)
    return zpp.export(jax.jit(trainer.step, donate_argnums=0),
                      trainer.abstract_state(),
                      trainer.abstract_batch(BATCH)).text()


@pytest.fixture(scope="module")
def slow(text):
    return zpp.plan(text, mesh=NODES, links=SLOW, device="h100")


def test_all_techniques_have_a_row(slow):
    assert [row.name for row in slow.predictions] == ROWS[:-1]
    first = slow["FSDP"]
    for row in slow.predictions:
        assert row.seconds == pytest.approx(row.compute + row.exposed, rel=0.02)
        assert row.peak_bytes > row.state_bytes == first.state_bytes
        assert (row.secondary_bytes > 0) == (row.options.secondary != "none")
        assert row.sent["node"] <= first.sent["node"]
        # No resource can do with less, and no schedule is shorter.
        assert max(row.compute, *row.busy.values()) <= row.bound * 1.0001
        assert row.bound <= row.seconds * 1.0001
        assert row.binding.split()[0] in ("compute", "node", "gpu")
        assert sum(row.bound_by.values()) == pytest.approx(row.bound, rel=0.01)
        for stream, begin, end, _ in row.tasks:
            assert 0 <= begin < end <= row.seconds * 1e6 * 1.0001, stream


def test_a_scan_keeps_what_layers_keep():
    kept = []
    for scan in False, True:
        trainer = trainer_of(dataclasses.replace(
            LARGE, layers=8, scan=scan))
        step = zpp.export(jax.jit(trainer.step, donate_argnums=0),
                          trainer.abstract_state(), trainer.abstract_batch(BATCH))
        kept.append(zpp.plan(step, mesh=NODES, device="h100",
                             gradients="none")["hpZ"].secondary_bytes)
    assert kept[1] == pytest.approx(kept[0], rel=0.03)


def test_the_in_flight_limit_and_what_others_would_give(text, capsys):
    found = zpp.plan(text, mesh=NODES, links=SLOW, device="h100", limits=True)
    chosen = found["ZeRO++"]
    assert chosen.prefetch_bytes == 256 << 20
    assert found["FSDP"].prefetch_bytes is None
    assert [limit.name for limit in found.limits] == ["half", "double", "unlimited"]
    assert [limit.prefetch_bytes / chosen.prefetch_bytes
            for limit in found.limits] == [0.5, 2, 2**20]
    # This step is small: any limit holds all of it.
    assert {limit.seconds for limit in found.limits} == {chosen.seconds}
    assert "in-flight limit of ZeRO++: 256.0 MiB" in found.table()
    assert "  unlimited: " in found.table() and "(+0.0%)" in found.table()
    assert len(found.to_json()["limits"]) == 3
    # Tensors that may not be in flight are waited for.
    small = zpp.plan(text, mesh=NODES, links=SLOW, device="h100", limits=True,
                     tuning=zpp.Tuning(prefetch_bytes=4096))
    assert small.limits[-1].seconds < small["ZeRO++"].seconds
    assert not zpp.plan(text, mesh=NODES, links=SLOW, target="portable",
                        limits=True).limits


def test_tuning_is_for_the_rows_that_have_formats(text, recwarn):
    found = zpp.plan(text, mesh=NODES, device="h100", weights="i4",
                     tuning=zpp.Tuning(rotate=0, block=64))
    tuned = {row.name: (row.options.tuning.rotate, row.options.tuning.block)
             for row in found.predictions}
    assert tuned["ZeRO++"] == tuned["qgZ"] == (0, 64)
    # Defaults are no wish.
    assert tuned["qwZ + hpZ"] == (32, 64) and tuned["hpZ"] == (32, 128)
    assert [str(each.message) for each in recwarn] == []


def test_on_slow_links_all_techniques_are_the_best(slow):
    assert slow["ZeRO++"].seconds < 0.5 * slow["FSDP"].seconds
    assert slow.best.name == "ZeRO++"


def test_differences_cost_memory(text, slow):
    """A row of their own; who cannot afford them is told what they take."""
    options = zpp.Options(mesh=NODES, links=SLOW, weights="i4:delta")
    found = zpp.plan(text, options, device="h100")
    assert [row.name for row in found.predictions] == ROWS
    without, row = found["ZeRO++"], found["differences"]
    assert without.sent == slow["ZeRO++"].sent
    assert row.sent["node"] < 0.72 * without.sent["node"]
    report = zpp.rewrite(text, options, target="cuda").report
    assert row.state_bytes == (without.state_bytes
                               + report["total"]["state_bytes"])
    assert without.options.weights == "i8"
    assert row.options.weights == "i4:delta"
    assert without.peak_bytes < row.peak_bytes


def micro_batches(count, **changes):
    trainer = trainer_of(dataclasses.replace(LARGE, accumulate=count,
                                             **changes))
    return zpp.export(jax.jit(trainer.step, donate_argnums=0),
                      trainer.abstract_state(),
                      trainer.abstract_batch(BATCH * count)).text()


@pytest.mark.parametrize("scan", [False, True])
def test_micro_batches_have_a_row(scan):
    """What crosses the nodes once per update, and what it takes."""
    text = micro_batches(4, scan=scan)
    found = zpp.plan(text, mesh=NODES, links=SLOW, device="h100")
    assert [row.name for row in found.predictions] == [
        *ROWS[:-1], "ZeRO++, once per update"]
    without, row = found["ZeRO++"], found["ZeRO++, once per update"]
    assert without.options.accumulate == "none"
    assert row.options.accumulate == "gpu"
    assert row.sent["node"] < 0.6 * without.sent["node"]
    assert row.seconds < 0.9 * without.seconds
    assert found.best == row
    # It is weighed against the memory.
    assert row.peak_bytes > without.peak_bytes
    portable = {"mesh": NODES, "links": SLOW, "device": "h100", "target": "portable"}
    limit = zpp.plan(text, **portable)[row.name].peak_bytes - 1
    limited = zpp.plan(text, **portable, memory_limit=limit)
    assert limited.best.name != row.name
    assert "ZeRO++, once per update would take" in limited.why
    assert "ZeRO++, once per update" in found.table()


def test_no_group_has_no_row():
    found = zpp.plan(micro_batches(2), mesh=NODES, links=SLOW, device="h100",
                     accumulate="none")
    assert [row.name for row in found.predictions] == ROWS[:-1]


def test_state_is_what_a_device_holds(slow):
    trainer = trainer_of(LARGE)
    leaves = [*jax.tree.leaves(trainer.abstract_state()),
              trainer.abstract_batch(BATCH)]
    assert slow["FSDP"].state_bytes == sum(
        leaf.dtype.itemsize * int(jax.numpy.prod(jax.numpy.array(
            leaf.sharding.shard_shape(leaf.shape), dtype=int)))
        for leaf in leaves)


def test_bytes_are_those_of_the_report(text, slow):
    report = zpp.rewrite(text, mesh=NODES, links=SLOW, weights="none",
                         secondary="none", target="portable").report
    assert slow["qgZ"].sent == report["total"]["after"]


def test_measured_compute_takes_the_place_of_the_model(text, slow):
    found = zpp.plan(text, mesh=NODES, links=SLOW, compute=np.float64(0.25),
                     memory_limit=80e9)
    assert found["FSDP"].compute == pytest.approx(0.25)
    # What the techniques add is scaled alike.
    assert found["ZeRO++"].compute == pytest.approx(
        0.25 * slow["ZeRO++"].compute / slow["FSDP"].compute)


def test_a_plan_must_fit_and_be_worth_it(text, slow):
    def plan(limit):
        return zpp.plan(text, mesh=NODES, links=SLOW, device="h100",
                        target="portable", memory_limit=limit)

    limit = max(row.peak_bytes for row in plan(None).predictions) - 1
    found = plan(limit)
    assert found.best.peak_bytes <= limit
    others = [row for row in found.predictions if row.peak_bytes > limit]
    assert others
    assert all(f"{row.name} would take" in found.why for row in others
               if row.seconds < found.best.seconds)
    least = plan(1)
    assert least.best.peak_bytes == min(row.peak_bytes for row in least.predictions)
    assert "nothing fits into 0.00 GiB" in least.why
    # Where a technique gains less than 2 %, there is no reason to round.
    fast = zpp.plan(text, mesh=NODES, links=FAST_LINKS, device="h100",
                    compute=10.0)
    assert fast.best.name == "FSDP"


def test_options_restrict_the_rows(text):
    found = zpp.plan(text, mesh=NODES, gradients="none", device="h100")
    assert [row.name for row in found.predictions] == [
        "FSDP", "qwZ", "hpZ", "qwZ + hpZ"]


def test_rows_without_what_an_option_needs(text):
    """frozen needs hpZ, reduced qgZ; the other rows do without."""
    found = zpp.plan(text, mesh=NODES, device="h100", frozen="keep",
                     reduced="i8")
    assert [row.name for row in found.predictions][:4] == [
        "FSDP", "qwZ", "hpZ", "qgZ"]
    assert found["hpZ"].options.frozen == "keep"
    assert found["qwZ"].options.frozen == "none"
    assert found["qgZ"].options.reduced == "i8"
    assert found["qwZ"].options.reduced == "none"


def test_picture(slow):
    root = xml.etree.ElementTree.fromstring(slow.svg())
    words = [element.text for element in root.iter()
             if element.tag.endswith("}text")]
    assert set(ROWS[:-1]) <= set(words)
    assert {"compute", "node", "gpu"} <= set(words)


def test_jit_plans_and_chooses():
    trainer = trainer_of(TINY)
    shapes = trainer.abstract_state(), trainer.abstract_batch(BATCH)
    fast = zpp.jit(trainer.step, mesh=NODES, links=SLOW, donate_argnums=0,
                   options="auto")
    found = fast.plan(*shapes, device="h100")
    rewritten = fast.rewritten(*shapes)
    assert list(found.mesh.items()) == [("node", 2), ("gpu", 4)]
    (choice,) = rewritten.report["choices"]
    assert choice["why"].startswith(found.best.name)
    assert any(choice["why"] in remark.message for remark in rewritten.remarks)
    losses = train(trainer, fast, 2).losses
    assert losses[1] < losses[0] * 1.01


def test_auto_takes_what_fits(text, slow):
    # As portable StableHLO, the target of text.
    options = zpp.Options(mesh=NODES, links=SLOW, target="portable")
    plan = zpp.plan(text, options, device="h100", memory_limit=1)
    result = zpp.rewrite(text, zpp.Auto(device="h100", memory_limit=1),
                         mesh=NODES, links=SLOW)
    best = plan.best
    assert result.report["choices"][0]["why"] == plan.why
    assert plan.why.startswith(f"{best.name}: predicted")
    changed = any(entry["rewritten"] for entry in result.report["collectives"])
    assert changed == (best.name != "FSDP")
    with pytest.raises(TypeError, match="expected zpp.Options, zpp.Auto or"):
        zpp.rewrite(text, "automatic", mesh=NODES)


def test_command(text, tmp_path, capsys):
    step, plot = tmp_path / "step.mlir", tmp_path / "plan.svg"
    step.write_text(text)
    command = ["plan", str(step), "--mesh", NODES, "--links", SLOW, "--compute",
               "54us", "--memory-limit", "1GiB", "--plot", str(plot)]
    assert _cli.main(command) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("one step on node:2,gpu:4, h100, links node=10g")
    assert "\nbest: ZeRO++: predicted" in printed
    assert plot.read_text().startswith("<svg")
    assert _cli.main([*command, "--format", "json"]) == 0
    plans = json.loads(capsys.readouterr().out)
    assert plans["best"] == "ZeRO++"
    # Differences are planned where they are asked for.
    assert [row["name"] for row in plans["plans"]] == ROWS[:-1]


@pytest.mark.parametrize("arguments, message", [
    (["--compute", "54"], "expected a time as 54ms, but got '54'"),
    (["--memory-limit", "much"], "expected a number of bytes as 70GiB, but got"),
])
def test_command_says_what_is_wrong(arguments, message, capsys):
    with pytest.raises(SystemExit):
        _cli.main(["plan", "step.mlir", *arguments])
    assert message in capsys.readouterr().err


def test_errors(text):
    with pytest.raises(zpp.CompileError, match="expected a device"):
        zpp.plan(text, mesh=NODES, device="abacus")
    with pytest.raises(ValueError, match="compute: expected a positive number"):
        zpp.plan(text, mesh=NODES, compute=0.0)
    with pytest.raises(ValueError, match="memory_limit: expected a positive number"):
        zpp.plan(text, mesh=NODES, memory_limit=0)


def test_quantities():
    assert _cli.read_bytes("70GiB") == 70 * 2**30
    assert _cli.read_bytes("1.5GB") == 1_500_000_000
    assert _cli.read_bytes("12") == 12
    assert _cli.read_seconds("54ms") == pytest.approx(0.054)
    assert _cli.read_seconds("1.5 s") == 1.5
    assert _cli.read_seconds("20us") == pytest.approx(20e-6)


def test_loops_cost_what_their_layers_cost():
    """A scan over layers does the operations of the unrolled step."""
    def flops(config):
        trainer = trainer_of(config)
        step = zpp.export(jax.jit(trainer.step), trainer.abstract_state(),
                          trainer.abstract_batch(BATCH))
        return zpp.plan(step, mesh=NODES, weights="none", gradients="none",
                        secondary="none").flops

    assert flops(dataclasses.replace(TINY, scan=True)) == flops(TINY)
