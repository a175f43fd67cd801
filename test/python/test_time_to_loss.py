# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/time_to_loss.py, small: that it works, not how fast anything is."""

import itertools
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import xml.etree.ElementTree

import numpy as np
import pytest
from conftest import ROOT
from zpp.jax import _runtime

sys.path.append(str(ROOT / "bench"))

import time_to_loss
from lab import curves, text

def write_tokens(folder: pathlib.Path, apart: int = 0) -> list[pathlib.Path]:
    """Files as public speedruns have them; the first is held out. The tokens of each
    count up to a hundred from a number of its own, which are so far apart."""
    files = []
    for number, name in enumerate(("a_val_0.bin", "a_train_1.bin", "a_train_2.bin")):
        header = np.zeros(256, "<i4")
        header[:3] = 20240520, 1, 4000
        tokens = np.arange(4000, dtype="<u2") % 100 + apart * number
        files.append(folder / name)
        files[-1].write_bytes(header.tobytes() + tokens.tobytes())
    return files


def script(folder: pathlib.Path, *options) -> tuple[int, str]:
    process = subprocess.run(
        [sys.executable, ROOT / "bench" / "time_to_loss.py", *options], cwd=folder,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return process.returncode, process.stdout


ROWS = ["FSDP", "ZeRO++, i4:delta, k = 4"]


@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.skipif(_runtime.obstacle("cpu") is not None,
                    reason="needs libzpp_xla")
def test_exports_trains_and_prints(tmp_path):
    data = write_tokens(tmp_path)
    run = ["--link", "shared", "--minutes", "0.01", "--rows", *ROWS, "--seeds", "0", "3"]
    status, printed = script(tmp_path, "--data", *data, "--tiny", "--platform", "cpu",
                             *run, "--target", "11")
    assert status == 0, printed
    assert f"{ROWS[1]}, shared, order 0: step 12 of" in printed
    assert f"{ROWS[1]}, shared, order 3: step 12 of" in printed
    results = time_to_loss.read_results(tmp_path / "time-to-loss")
    assert {link: list(rows) for link, rows in results.items()} == {"shared": ROWS}
    for runs in results["shared"].values():
        assert [run["seed"] for run in runs] == [0, 3]
        curves = [run["curve"] for run in runs]
        # One first state, and data in another order.
        assert curves[0][0] == curves[1][0] and curves[0][-1] != curves[1][-1]
    for result in itertools.chain(*results["shared"].values()):
        seconds, steps, losses = zip(*result["curve"])
        assert list(seconds) == sorted(seconds) and list(steps) == sorted(steps)
        assert losses[0] == pytest.approx(math.log(128), rel=0.05)
        assert losses[-1] < losses[0]
    # What is there is not trained again.
    assert script(tmp_path, "--run", "time-to-loss", *run) == (0, "")
    # Nor does it count for other data.
    status, said = script(tmp_path, "--data", *data[:2], "--tiny")
    assert status == 1 and "but got those of {'data': " in said
    (fsdp,) = re.findall(r"^\| FSDP \| .*", printed, re.MULTILINE)
    last = [run["curve"][-1][2] for run in results["shared"]["FSDP"]]
    sigma, surely = map(float, fsdp.split("|")[9:11])
    assert sigma == pytest.approx(statistics.stdev(last), abs=1e-4)
    assert surely == pytest.approx((11 - statistics.mean(last)) * 2 ** 0.5, abs=1e-3)


@pytest.mark.parametrize(("change", "said"), [
    (lambda content: content[4:], r"begin with 20240520 and 1, but got 1024 that begin with \[1, "),
    (lambda content: content[:10], r"1024 bytes begin .*, but got 10 that begin with \[20240520, 1"),
    (lambda content: content[:-2], "expected 4000 tokens, but got 3999")])
def test_files_of_tokens_are_checked(tmp_path, change, said):
    data = write_tokens(tmp_path)
    data[1].write_bytes(change(data[1].read_bytes()))
    status, printed = script(tmp_path, "--data", *data)
    assert status == 1 and re.search(said, printed), printed
    status, printed = script(tmp_path, "--data", data[0])
    assert status == 1 and "and others, but got a_val_0.bin" in printed


def test_windows_come_from_all_files(tmp_path):
    files = write_tokens(tmp_path, apart=200)
    assert (text.vocabulary([]), text.vocabulary(files)) == (256, 512)
    text.name_files(tmp_path, files)
    tokens = text.Tokens(tmp_path, context=64, sequences=64)
    batch = tokens.batch(0, 0)
    assert batch.shape == (64, 65)
    assert (np.diff(batch) % 100 == 1).all()
    assert {tuple(set(row // 200)) for row in batch} == {(1,), (2,)}
    assert {tuple(set(row // 200)) for row in tokens.validation(0)} == {(0,)}


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
