# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The report against an independent count of what was emitted."""

import dataclasses
import re

import collectives
import gpt
import jax
import pytest
import zpp
from training import ALL_ON, BATCH, NODES, OFF, TINY, with_options

pytestmark = pytest.mark.compiler

#: Weights are large enough that scales and padding are as in real models.
LARGE = gpt.Config(width=128, layers=2, checkpoint="policy")

CASES = {
    "off": (TINY, {"mesh": NODES, **OFF}),
    "qwZ": (TINY, {"mesh": NODES, **OFF, "weights": "i8"}),
    "hpZ": (TINY, {"mesh": NODES, **OFF, "secondary": "gpu"}),
    "qgZ": (TINY, {"mesh": NODES, **OFF, "gradients": "i8:i4"}),
    "qgZ in one hop": (TINY, {"mesh": NODES, **OFF, "gradients": "i4"}),
    "all": (TINY, {"mesh": NODES, **ALL_ON}),
    "large": (LARGE, {"mesh": NODES, **ALL_ON}),
    "scan": (with_options(scan=True), {"mesh": NODES, **ALL_ON}),
    "micro-batches": (with_options(accumulate=2), {"mesh": NODES, **ALL_ON}),
    "jitted layers": (with_options(jit_layer=True),
                      {"mesh": NODES, **ALL_ON}),
    "1-D": (with_options(mesh=(("data", 8),)), {"mesh": NODES, **ALL_ON}),
    "tensor": (with_options(mesh=(("node", 2), ("gpu", 2), ("tensor", 2))),
               {"mesh": "node:2,gpu:2,tensor:2", **ALL_ON}),
    "differences": (TINY, {"mesh": NODES, **ALL_ON, "weights": "i4:delta"}),
    "differences, nodes of one": (
        with_options(mesh=(("node", 2), ("gpu", 1))),
        {"mesh": "node:2,gpu:1", **ALL_ON, "weights": "i4:delta"}),
    "differences, scan": (with_options(scan=True), {
        "mesh": NODES, **ALL_ON, "weights": "i4:delta"}),
    "three tiers": (with_options(
        mesh=(("rack", 2), ("node", 2), ("gpu", 2))),
        {"mesh": "rack:2,node:2,gpu:2", **ALL_ON, "secondary": "node"}),
}


def rewrite(config, options) -> tuple[zpp.Step, zpp.Rewritten]:
    trainer = gpt.Trainer(config)
    step = zpp.export(jax.jit(trainer.step, donate_argnums=0),
                      trainer.abstract_state(), trainer.abstract_batch(BATCH))
    return step, zpp.rewrite(step, **options)


@pytest.mark.parametrize("case", CASES)
def test_report_is_what_can_be_counted(case):
    config, options = CASES[case]
    step, result = rewrite(config, options)
    report = result.report
    tiers = {name: int(size) for name, size in
             (part.split(":") for part in options["mesh"].split(","))}
    assert report["mesh"] == tiers
    for when, text in (("before", step.text()), ("after", result.text)):
        counted = collectives.sent_bytes(text, tiers)
        assert report["total"][when] == counted
        for tier in tiers:
            assert counted[tier] == sum(
                entry[when][tier] for entry in report["collectives"])


@pytest.mark.parametrize("case", ["qwZ", "all", "scan", "tensor"])
def test_entries_say_where_what_and_why(case):
    config, options = CASES[case]
    _, result = rewrite(config, options)
    for entry in result.report["collectives"]:
        assert re.search(r"gpt\.py", entry["location"]), entry
        assert entry["kind"] in collectives.KINDS
        assert entry["role"] in ("weight", "gradient", "other")
        assert entry["rewritten"] or entry["reason"], entry
    assert {entry["role"] for entry in result.left_alone} >= {"other"}


def test_inter_node_bytes_fall_to_0_78_of_three():
    """A step that gathers its weights twice sends 3M between nodes."""
    _, result = rewrite(LARGE, {"mesh": NODES, **ALL_ON})
    entries = [entry for entry in result.report["collectives"]
               if entry["role"] != "other"]
    before = sum(entry["before"]["node"] for entry in entries)
    after = sum(entry["after"]["node"] for entry in entries)
    assert 3 * after / before <= 0.78


@pytest.mark.parametrize("nodes", [
    (("node", 2), ("gpu", 4)), (("node", 2), ("gpu", 1))], ids=str)
def test_inter_node_bytes_fall_to_0_52_of_three(nodes):
    """With differences. Each tensor's last block and what is too small count."""
    config = dataclasses.replace(LARGE, mesh=nodes)
    _, result = rewrite(config, {
        "mesh": ",".join(f"{name}:{size}" for name, size in nodes),
        **ALL_ON, "weights": "i4:delta",
        "gradients": "i8:i4" if nodes[1][1] > 1 else "i4"})
    assert result.report["total"]["after_in_M"]["node"] <= 0.53
    assert "from step to step, a device keeps" in zpp._compiler.report_table(
        result.text, zpp.Options())


def test_model_and_secondary_memory():
    config = LARGE
    trainer = gpt.Trainer(config)
    _, result = rewrite(config, {"mesh": NODES, **ALL_ON})
    elements = trainer.model_elements()
    assert result.report["total"]["model_bytes"] == 2 * elements
    # Weights that are gathered again keep a fourth of themselves: quantized
    # where they travel quantized, as bf16 otherwise.
    secondary = result.report["total"]["secondary_bytes"]
    assert 0 < secondary <= 2 * elements / 4


def executed_gathers(function, *arguments) -> int:
    return len(re.findall(
        r" all-gather(?:-start)?\(",
        function.lower(*arguments).compile().as_text()))


@pytest.mark.parametrize("options", [
    {**OFF, "secondary": "gpu"}, ALL_ON], ids=["hpZ", "all"])
def test_the_second_gather_survives_xla(options):
    trainer = gpt.Trainer(with_options(layers=1))
    arguments = trainer.abstract_state(), trainer.abstract_batch(BATCH)
    original = jax.jit(trainer.step)
    if executed_gathers(original, *arguments) < collectives.count(
            original.lower(*arguments).as_text())["all_gather"]:
        pytest.skip("this XLA drops optimization barriers on CPU, and with them "
                    "the re-gathers of jax.checkpoint itself")
    fast = zpp.jit(trainer.step, mesh=NODES, **options)
    wanted = collectives.count(fast.rewritten(*arguments).text)["all_gather"]
    assert executed_gathers(fast, *arguments) == wanted
