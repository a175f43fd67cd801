# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The scripts that measure what the host pays: that they work, not how fast it is."""

import pathlib
import re
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent.parent.parent / "bench"


def run(script, *options):
    process = subprocess.run(
        [sys.executable, BENCH / script, *options], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert process.returncode == 0, process.stdout
    return process.stdout


def test_host_time():
    text = run("torch_host_time.py", "--blocks", "2", "--steps", "3")
    for name in ("FSDP2", "left to PyTorch", "i8, i8:i4", "i8, i8:i4, kept",
                 "i4:delta, i8:i4", "i4:delta, i8:i4, once per update"):
        assert re.search(rf"^\| {name} \| \d+ \| \d+ \| \d+ \| \d+ \|$", text,
                         re.MULTILINE)


def test_compile_time():
    text = run("torch_compile_time.py", "--blocks", "2")
    seconds = {}
    for blocks in ("different", "equal"):
        for cache in ("empty", "filled"):
            found = re.search(rf"^\| {blocks} \| {cache} \| \S+ s \| (\S+) s \|$",
                              text, re.MULTILINE)
            seconds[blocks, cache] = float(found[1])
    # What is compiled already is read.
    for blocks in ("different", "equal"):
        assert seconds[blocks, "filled"] < 0.5 * seconds[blocks, "empty"]
