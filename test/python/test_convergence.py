# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/convergence.py, small: every technique trains like FSDP, and a training
that is interrupted goes on as if it were not."""

import gzip
import json
import math
import sys
import xml.etree.ElementTree

import numpy as np
import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "bench"))

import convergence
from lab import text

STEPS = 6
#: Each way to send weights, and each in which gradients differ in more than `rotate`.
ROWS = ("FSDP", "ZeRO++, i8:i4, rotate=32 (default)",
        "ZeRO++, i8:i4, weights i4:delta", "i4:i4 in the first half (5.4)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("convergence")
    settings = convergence.tiny() | {"steps": STEPS, "every": 3, "batches": 1}
    convergence.export(folder, text.read([ROOT / "docs"]), settings, "cpu")
    return folder


@pytest.mark.slow
@pytest.mark.compiler
def test_every_row_trains_like_fsdp(folder, monkeypatch, capsys):
    monkeypatch.setattr(convergence, "SEEDS", 1)
    runners = {row: convergence.Runner(folder, row, math.inf)
               for row in ROWS}
    for runner in runners.values():
        runner.run()
    results = convergence.read_results(folder)
    assert list(results) == list(ROWS)
    # In the first steps, losses fall fast and differ by more than at the end of a
    # training.
    last = results["FSDP"][0]["curve"][-1][2]
    for row, runs in results.items():
        steps, _, losses = zip(*runs[0]["curve"])
        assert steps == (3, 6)
        assert losses[1] < losses[0] < math.log(256) * 1.05
        assert losses[1] == pytest.approx(last, rel=0.01), row
    convergence.print_table(results)
    assert "| FSDP | 1 |" in capsys.readouterr().out
    xml.etree.ElementTree.fromstring(convergence.draw(results))

    # The same again, interrupted in the middle; what is kept between calls is
    # saved as well.
    row = "ZeRO++, i8:i4, weights i4:delta"
    path = convergence.result_path(folder, row, 0)
    before = json.loads(path.read_text())
    path.unlink()
    monkeypatch.setattr(convergence, "CHUNK", 1)
    stops = iter([False, False, True, True])
    runner = runners[row]
    monkeypatch.setattr(runner, "is_over", lambda: next(stops, False))
    runner.run()
    assert not path.exists() and runner.state_path(0).exists()
    runner.run()
    assert json.loads(path.read_text()) == before


def test_table_has_the_last_common_step(tmp_path):
    (tmp_path / "results").mkdir()
    for row, steps in (("FSDP", (10, 20, 30)), ("qwZ + hpZ", (10, 20))):
        path = convergence.result_path(tmp_path, row, 0)
        path.write_text(json.dumps({
            "row": row, "seed": 0, "curve": [[step, 2, 2] for step in steps]}))
    results = convergence.read_results(tmp_path)
    assert {row: runs[0]["curve"][-1][0] for row, runs in results.items()} == {
        "FSDP": 20, "qwZ + hpZ": 20}


def test_text_has_every_page_once(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.rst").write_text("one")
    (tmp_path / "c.rst.gz").write_bytes(gzip.compress(b"two"))
    (tmp_path / "d.html").write_text("three")
    (tmp_path / "e.txt").write_bytes(b"\xff\xfe")
    assert text.read([tmp_path]) == b"one\ntwo"


def test_a_text_that_is_too_short_is_an_error(tmp_path):
    with pytest.raises(SystemExit, match="expected at least 81920 bytes of text, "
                                         "but got 4"):
        text.write(tmp_path, b"text")
    assert not list(tmp_path.iterdir())


def test_validation_is_held_out(tmp_path):
    piece, count = text.PIECE, text.VALIDATION
    pages = b"".join(bytes([number]) * piece for number in range(2 * count))
    text.write(tmp_path, pages + b"rest")
    tokens = convergence.Experiment(
        **convergence.tiny(), platform="cpu", variants=()).tokens(tmp_path)
    (train,), (held_out,) = tokens.train, tokens.held_out
    assert set(held_out) == {count - 1, 2 * count - 1}
    assert set(train) == set(range(2 * count)) - set(held_out)
    assert len(train) + len(held_out) == len(pages)
    first, again = tokens.batch(1, 5), tokens.batch(1, 5)
    assert first.shape == (8, 33) and first.dtype == np.int32
    assert np.array_equal(first, again)
    assert not np.array_equal(first, tokens.batch(2, 5))


def test_a_row_above_the_limit_does_not_hold(capsys):
    def runs(*losses):
        return [{"seed": seed, "curve": [[10, loss, loss]]}
                for seed, loss in enumerate(losses)]

    assert convergence.print_table({"FSDP": runs(2.0, 2.02),
                                    "good": runs(2.018, 2.02)})
    assert not convergence.print_table({"FSDP": runs(2.0, 2.002),
                                        "bad": runs(2.02, 2.02)})
    assert "| bad | 2 | 2.0200 | 2.0200 | 2.0200 | +0.95% | 0.05% | no |" in (
        capsys.readouterr().out)


def test_rows_are_compared_with_fsdp_of_their_seeds(tmp_path, capsys):
    """One seed is 10 % worse for all, and a seed without FSDP is left out."""
    (tmp_path / "results").mkdir()
    losses = {"FSDP": {0: 2.0, 1: 2.2}, "qwZ + hpZ": {1: 2.2},
              "ZeRO++, i8:i4": {0: 2.02, 1: 2.222, 2: 9.0}}
    for row, seeds in losses.items():
        for seed, loss in seeds.items():
            convergence.result_path(tmp_path, row, seed).write_text(json.dumps(
                {"row": row, "seed": seed, "curve": [[10, loss, loss]]}))
    results = convergence.read_results(tmp_path)
    assert convergence.print_table(results)
    table = capsys.readouterr().out
    assert "| qwZ + hpZ | 1 | 2.2000 | 2.2000 | 2.2000 | +0.00% |  | yes |" in table
    assert ("| ZeRO++, i8:i4 | 2 | 2.1210 | 2.0200 | 2.2220 | +1.00% | 0.00% | yes |"
            in table)
    xml.etree.ElementTree.fromstring(convergence.draw(results))
