# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/time_to_loss.py, small: that it works, not how fast anything is."""

import itertools
import json
import math
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from conftest import ROOT
from zpp.jax import _runtime

sys.path.append(str(ROOT / "bench"))

import time_to_loss
from lab import curves

ROWS = ["FSDP", "ZeRO++, i4:delta, k = 4"]


@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.skipif(_runtime.obstacle("cpu") is not None,
                    reason="needs libzpp_xla")
def test_exports_trains_and_prints(tmp_path, capsys):
    def script(*options):
        process = subprocess.run(
            [sys.executable, ROOT / "bench" / "time_to_loss.py", *options],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert process.returncode == 0, process.stdout
        return process.stdout

    script("--export", tmp_path, "--tiny", "--platform", "cpu", "--text",
           ROOT / "docs")
    run = ["--run", tmp_path, "--link", "shared", "--minutes", "0.01", "--rows",
           *ROWS, "--seeds", "0", "3"]
    printed = script(*run)
    assert f"{ROWS[1]}, shared, order 0: step 12 of" in printed
    assert f"{ROWS[1]}, shared, order 3: step 12 of" in printed
    results = time_to_loss.read_results(tmp_path)
    assert {link: list(rows) for link, rows in results.items()} == {"shared": ROWS}
    for runs in results["shared"].values():
        assert [run["seed"] for run in runs] == [0, 3]
        curves = [run["curve"] for run in runs]
        # One first state, and data in another order.
        assert curves[0][0] == curves[1][0] and curves[0][-1] != curves[1][-1]
    for result in itertools.chain(*results["shared"].values()):
        seconds, steps, losses = zip(*result["curve"])
        assert list(seconds) == sorted(seconds) and list(steps) == sorted(steps)
        assert losses[0] == pytest.approx(math.log(256), rel=0.05)
        assert losses[-1] < losses[0]
    # What is there is not trained again.
    assert script(*run) == ""
    time_to_loss.print_tables(results)
    assert "\n| FSDP | " in capsys.readouterr().out


def test_a_loss_is_reached_between_two_validations():
    curve = json.loads("[[0, 0, 4.0], [10, 1, 3.0], [20, 2, 2.0]]")
    assert time_to_loss.seconds_until(curve, 2.5) == 15
    assert time_to_loss.seconds_until(curve, 3) == 10
    assert time_to_loss.seconds_until(curve, 4.5) == 0
    assert time_to_loss.seconds_until(curve, 1.9) is None


def test_links_are_checked_first(tmp_path):
    process = subprocess.run(
        [sys.executable, ROOT / "bench" / "time_to_loss.py", "--run", tmp_path,
         "--link", "fast"], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False)
    assert process.returncode == 1
    assert process.stdout == "expected Ngbit, shared or nvlink, but got 'fast'\n"


def test_losses_are_drawn(tmp_path):
    """A file for each number of micro-batches, with the mean of the runs."""
    def run(row, *losses):
        return {"row": row, "curve": [(0, 0, 9.0), *(
            (10.0 * look, look, loss) for look, loss in enumerate(losses, 1))]}

    rows = {"FSDP": [run("FSDP", 4.0, 3.0, 2.9), run("FSDP", 4.0, 3.2, 3.1)],
            "ZeRO++, k = 4": [run("ZeRO++, k = 4", 3.0, 2.5, 2.0)]}
    files = time_to_loss.draw({"50gbit": rows}, tmp_path / "loss.svg")
    assert [file.name for file in files] == ["loss-50gbit-k1.svg", "loss-50gbit-k4.svg"]
    words = [[element.text for element in xml.etree.ElementTree.parse(file).iter()]
             for file in files]
    assert "FSDP  3.00" in words[0] and "ZeRO++, k = 4  2.00" in words[1]
    assert curves.loss_at([(10, 4.0), (20, 3.0)], 15) == 3.5
    assert curves.loss_at([(10, 4.0), (20, 3.0)], 5) == 4.0
