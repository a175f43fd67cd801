# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/peers.py with PyTorch: that it works, not how fast anything is."""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(folder, *options):
    return subprocess.run(
        [sys.executable, ROOT / "bench" / "peers.py", "--platform", "cpu",
         "--tiny", "--log", folder, *options], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def test_trains_and_prints(tmp_path):
    process = run(tmp_path, "--links", "shared", "--peers", "JAX", "FSDP2", "ZeRO++",
                  "--warm-up", "1", "--steps", "2", "--micro-batches", "2",
                  "--layers", "1", "--width", "384")
    assert process.returncode == 0, process.stdout
    text = process.stdout
    assert ("1 layers of width 384, 1 x 64 tokens per device, 2 times, FSDP, "
            "2 nodes x 1" in text)
    for name, speed_up in (("FSDP2", r"1\.00x"), (r"FSDP2 \+ zpp", r"\S+x")):
        assert re.search(rf"\[\S+\] shared, {name}: \S+ ms, first", text)
        assert re.search(rf"\n\| {name} \| \S+ GB \| \S+ ms \| {speed_up} \| ",
                         text)
    # What it is for, or what it needs, is not here.
    assert "\n| FSDP2 + zpp, links |" not in text
    assert "\nJAX FSDP: skipped; it is trained without micro-batches here\n" in text
    assert ("\nDeepSpeed ZeRO++: skipped; DeepSpeed is not run on CPU devices\n"
            in text)
    measured = json.loads((tmp_path / "results.json").read_text())["shared"]
    plain = measured["FSDP2"]
    # With i4:delta weights once, as differences, where FSDP2 gathers them four times.
    for name, most in (("FSDP2 + zpp", 0.7), ("FSDP2 + zpp, i4:delta", 0.25)):
        ours = measured[name]
        assert ours["bytes"] < most * plain["bytes"]
        for one, other in zip(ours["losses"], plain["losses"], strict=True):
            assert abs(one / other - 1) < 0.01
        assert ours["losses"][-1] < ours["losses"][0]


def test_a_peer_that_fails_is_named(tmp_path):
    # It says what there is, but the link gets no rate.
    tc = tmp_path / "tc"
    tc.write_text('#!/bin/sh\ntest "$2" = show\n')
    tc.chmod(0o755)
    process = run(tmp_path, "--links", "9gbit", "--peers", "JAX", "hpZ", "--tc", str(tc))
    assert process.returncode == 1
    assert "FSDP2 + zpp, hpZ: expected all ranks to end with 0, but got" in (
        process.stdout)
    assert "JAX FSDP: skipped; jax is not installed\n" in process.stdout
    assert process.stdout.endswith("failed: FSDP2 + zpp, hpZ\n")


def test_a_width_without_whole_heads_is_an_error(tmp_path):
    process = run(tmp_path, "--width", "200")
    assert process.returncode == 1
    assert process.stdout == "--width: expected a multiple of 128, but got 200\n"
