# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/two-node: that it works, not how fast anything is."""

import importlib.machinery
import importlib.util
import json
import re
import subprocess
import sys

import pytest
from conftest import ROOT
from zpp.jax import _runtime

SCRIPT = ROOT / "bench" / "two-node"


@pytest.fixture(name="script")
def script_fixture(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("two_node", str(SCRIPT))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("two_node", loader))
    loader.exec_module(module)
    return module


def run(folder, *options):
    return subprocess.run(
        [sys.executable, SCRIPT, "--log", folder, *options], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


@pytest.mark.compiler
@pytest.mark.skipif(_runtime.obstacle("cpu") is not None,
                    reason="needs libzpp_xla")
def test_exports_trains_and_prints(tmp_path):
    process = run(tmp_path, "--tiny", "--platform", "cpu", "--sequences", "2",
                  "--links", "nvlink", "--variants", "all (b)",
                  "--gpus-per-node", "1", "--warm-up", "0", "--steps", "1")
    assert process.returncode == 0, process.stdout
    assert "2 x 64 tokens per device" in process.stdout
    tables = process.stdout.partition("| step")[2]
    # Without FSDP there is no speed-up, without nodes nothing between them.
    # Nothing stalls on the CPU.
    start = r"\n\| %s \| \S+ GB \| - \| \S+ ms \| - \| "
    assert re.search(start % r"all \(b\)" + r"0\.0 ms \(0%\) \|", tables), tables
    # For NVLink, links leave all of it to XLA.
    assert re.search(start % r"all \(b\), links" + r"~\S+ ms \(\d+%\) \|",
                     tables), tables
    assert re.search(r"\n\| all \(b\) \| \S+ usec \| \S+ usec \|", tables), tables
    assert "plot: " in tables
    results = json.loads((tmp_path / "results.json").read_text())
    assert {link: list(runs) for link, runs in results.items()} == {
        "nvlink": ["all (b)", "all (b), links"]}


def test_links_are_checked_first(tmp_path):
    (tmp_path / "manifest.json").write_text('{"variants": {}}')
    process = run(tmp_path, "--run", tmp_path, "--links", "shared", "fast")
    assert process.returncode == 1
    assert process.stdout == ("expected Ngbit, shared or nvlink, but got "
                              "'fast'\n")


def test_stalls_of_all_processes(script, tmp_path):
    """Only slices of the category count; the mean is over all devices."""
    def event(category, usec):
        return {"ph": "X", "name": "all_gather gpt.py:1", "cat": category,
                "pid": 0, "tid": 0, "ts": 0, "dur": usec}

    row = {"ph": "M", "name": "thread_name", "args": {"name": "rank 0: stalls"}}
    for process, events in enumerate((
            [event("stall", 3000), event("quantize", 5)], [event("stall", 1000)],
            [], [])):
        (tmp_path / f"step.trace0.{process}.json").write_text(
            json.dumps({"traceEvents": [row, *events]}))
    assert script._stalled_seconds(
        tmp_path / "step.trace0.json", processes=4, ranks=4) == 0.001


def test_what_xla_exposes_is_estimated(script):
    def run_of(seconds, **more):
        return {"seconds": [seconds]} | more

    variants = {name: {"is_traced": name == script.RUNTIME}
                for name in (script.JITTED, "fast", script.RUNTIME)}
    runs = {script.JITTED: run_of(7.0), "fast": run_of(1.0),
            script.RUNTIME: run_of(2.0, stalls=[0.4, 0.5, 0.9])}
    script.expose({"variants": variants}, runs)
    assert [(run["exposed"], run["is_estimate"]) for run in runs.values()] == [
        (5.5, True), (0.0, True), (0.5, False)]

    runs = {script.JITTED: run_of(7.0)}
    script.expose({"variants": variants}, runs)
    assert "exposed" not in runs[script.JITTED]


def test_speed_up_of_rounds(script):
    """The table's is of all steps; beside it the smallest and largest of the
    rounds."""
    def run_of(rounds):
        return script._joined([
            {"seconds": seconds, "peak": 1, "bytes": 1,
             "host_times": {"start": seconds[0]}} for seconds in rounds])

    runs = {script.EXPORTED: run_of([[2.0, 4.0, 4.0], [6.0, 6.0, 6.0]]),
            "slow": run_of([[4.0, 4.0, 4.0], [8.0, 8.0, 8.0]])}
    assert script._speed_up(runs, "slow") == "0.83x (0.75x to 1.00x)"
    assert runs["slow"]["host_times"] == {"start": 6.0}
    once = {name: run_of(run["rounds"][:1]) for name, run in runs.items()}
    assert script._speed_up(once, "slow") == "1.00x"
    assert script._speed_up({"slow": runs["slow"]}, "slow") == ""
