# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choices that depend on the memory of the devices."""

import dataclasses
import re

import gpt
import jax
import pytest
import zpp
from training import BATCH, NODES, trainer_of
from zpp import _compiler
from zpp._plan import Auto
from zpp.jax import _rewrite

LARGE = gpt.Config(width=512, layers=2, vocab=1024)
#: In-flight limits where the default does not fit, as parts of it.
_SMALLER = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 0)


@pytest.fixture(scope="module")
def large():
    trainer = trainer_of(LARGE)
    return trainer.mesh, zpp.export(
        jax.jit(trainer.step, donate_argnums=0), trainer.abstract_state(),
        trainer.abstract_batch(BATCH))


def rewritten(monkeypatch, large, limit, auto=None, **changes):
    """The step on devices that have `limit` bytes."""
    monkeypatch.setattr(_rewrite, "get_memory_limit", lambda device: limit)
    mesh, step = large
    options = zpp.Options(mesh=NODES, target="cpu").replace(**changes)
    return _rewrite.rewrite_step(step, options, auto, mesh)


def _without_choices(text):
    """A module without what it says of choices, and what follows from that."""
    return re.sub(r'device = "h100", |zpp\.choices = \[\{.*?\}\], |bundle = "\w+"', "",
                  text)


@pytest.fixture(scope="module")
def peaks(large):
    """The predicted peak of ZeRO++ by its in-flight limit."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        first = rewritten(monkeypatch, large, 1 << 40)
        limit = first.report["prefetch_bytes"]
        found = {limit: first.report["time"]["peak_bytes"]}
        for size in (int(limit * part) for part in _SMALLER):
            other = rewritten(monkeypatch, large, 1 << 40, auto=None,
                              tuning=zpp.Tuning(prefetch_bytes=size))
            assert "time" not in other.report, "nobody asks what a given one needs"
            found[size] = zpp.plan(
                large[1], mesh=NODES, device="h100", target="cpu",
                tuning=zpp.Tuning(prefetch_bytes=size))["ZeRO++"].peak_bytes
        return found


@pytest.mark.compiler
def test_a_limit_that_fits_stays(monkeypatch, large, peaks):
    limit = max(peaks.values())
    result = rewritten(monkeypatch, large, limit)
    assert result.report["prefetch_bytes"] == max(peaks)
    assert result.report["memory_limit"] == limit
    assert not result.report["choices"]


@pytest.mark.compiler
def test_the_largest_limit_that_fits(monkeypatch, large, peaks, caplog):
    limit = max(peaks.values()) - 1
    expected = max(size for size, peak in peaks.items() if peak <= limit)
    bundled = []
    monkeypatch.setattr(_compiler, "find_bundler", lambda find=_compiler.find_bundler: (
        bundled.append(1), find())[1])
    result = rewritten(monkeypatch, large, limit)
    assert len(bundled) == 1, "candidates that are not taken have no host side"
    assert result.report["prefetch_bytes"] == expected < max(peaks)
    assert result.report["time"]["peak_bytes"] == peaks[expected] <= limit
    (choice,) = result.report["choices"]
    assert choice["options"] == f"tuning.prefetch-bytes={expected}"
    assert "; in-flight limit 256.0 MiB would take" in choice["why"]
    assert choice["why"] in caplog.text
    assert any(choice["why"] in remark.message for remark in result.remarks)
    # The same text as with this limit.
    assert _without_choices(result.text) == _without_choices(rewritten(
        monkeypatch, large, limit, tuning=zpp.Tuning(prefetch_bytes=expected)).text)


@pytest.mark.compiler
def test_what_begins_a_state_is_for_the_same_device(monkeypatch, large):
    devices = []

    def rewrite(*args, rewrite_text=_rewrite.rewrite_text, **more):
        devices.append(more["machine"]["device"])
        return rewrite_text(*args, **more)

    monkeypatch.setattr(_rewrite, "rewrite_text", rewrite)
    assert rewritten(monkeypatch, large, 1 << 40, weights="i4:delta").step.start
    assert devices == ["h100"] * 2


@pytest.mark.compiler
def test_where_none_fits_the_least_is_taken(monkeypatch, large, peaks):
    result = rewritten(monkeypatch, large, 1)
    assert peaks[result.report["prefetch_bytes"]] == min(peaks.values())
    (choice,) = result.report["choices"]
    assert "and this needs the least" in choice["why"]


@pytest.mark.compiler
def test_the_limit_of_auto_is_kept(monkeypatch, large, peaks):
    limit = max(peaks.values()) - 1
    result = rewritten(monkeypatch, large, 1 << 40, links="node=1gbit,gpu=400gbyte",
                       auto=Auto("h100", memory_limit=limit))
    assert result.report["memory_limit"] == limit
    assert result.report["time"]["peak_bytes"] <= limit


@pytest.mark.compiler
@pytest.mark.parametrize("limit, changes", [
    (0, {}), (1, {"target": "portable"}),
    (1, {"tuning": zpp.Tuning(prefetch_bytes=1 << 20)})])
def test_where_there_is_no_limit(monkeypatch, large, limit, changes):
    result = rewritten(monkeypatch, large, limit, **changes)
    assert not {"memory_limit", "time"} & set(result.report)


@pytest.fixture(scope="module")
def pair():
    """A step on two nodes of one device."""
    trainer = trainer_of(dataclasses.replace(
        LARGE, mesh=(("node", 2), ("gpu", 1))))
    return trainer.mesh, zpp.export(
        jax.jit(trainer.step, donate_argnums=0), trainer.abstract_state(),
        trainer.abstract_batch(BATCH))


PAIR = {"mesh": "node:2,gpu:1", "links": "node=1gbit,gpu=400gbyte"}


@pytest.mark.compiler
def test_nodes_of_one_device_keep_whole_weights(monkeypatch, pair):
    result = rewritten(monkeypatch, pair, 1 << 40, **PAIR)
    assert result.report["total"]["secondary_bytes"] > 0
    (choice,) = result.report["choices"]
    assert choice["why"].startswith("secondary=1: nodes have one device")
    assert _without_choices(result.text) == _without_choices(rewritten(
        monkeypatch, pair, 1 << 40, **PAIR, secondary=1).text)
    once, twice = (found.report["total"]["after"]["node"] for found in (
        result, rewritten(monkeypatch, pair, 1 << 40, **PAIR, secondary="none")))
    assert once < 0.7 * twice


@pytest.mark.compiler
@pytest.mark.parametrize("limit, changes", [
    # It does not fit, the memory or the links are not known, it was not asked for.
    (1, {}), (0, {}), (1 << 40, {"links": None}), (1 << 40, {"secondary": "none"}),
    # On such links weights are not quantized.
    (1 << 40, {"links": "node=400gbyte,gpu=400gbyte"})])
def test_where_they_do_not(monkeypatch, pair, limit, changes):
    result = rewritten(monkeypatch, pair, limit, **PAIR | changes)
    assert not any("nodes have one device" in choice["why"]
                   for choice in result.report["choices"])


@pytest.mark.compiler
def test_nodes_of_several_devices_keep_parts(monkeypatch, large):
    result = rewritten(monkeypatch, large, 1 << 40, links=PAIR["links"])
    assert not any("nodes have one device" in choice["why"]
                   for choice in result.report["choices"])


@pytest.mark.parametrize("said, expected", [
    (["7", "5"], 5), (["7", "7"], 7), (["7", "0"], None)])
def test_processes_have_the_same_limit(monkeypatch, said, expected):
    devices = jax.devices()
    monkeypatch.setattr(_rewrite, "get_memory_limit", lambda device: 7)
    monkeypatch.setattr(
        _rewrite, "exchange_between", lambda devices, topic, text: (
            said if (text, topic) == ("7", "memory") else None))
    assert _rewrite.find_memory_limit(devices) == expected


def test_devices_that_do_not_say():
    assert _rewrite.find_memory_limit(None) is None
    assert _rewrite.find_memory_limit(jax.devices()) is None
