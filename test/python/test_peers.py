# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/peers.py with JAX: that it works, not how fast anything is."""

import json
import re
import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.mark.slow
@pytest.mark.compiler
def test_trains_and_prints(tmp_path):
    process = subprocess.run(
        [sys.executable, ROOT / "bench" / "peers.py", "--platform", "cpu",
         "--tiny", "--log", tmp_path, "--links", "shared", "--peers", "JAX",
         "zpp.jit", "--warm-up", "1", "--steps", "2"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert process.returncode == 0, process.stdout
    for name, speed_up in (("JAX FSDP", r"1\.00x"), (r"zpp\.jit", r"\S+x")):
        assert re.search(
            rf"\n\| {name} \| \S+ GB \| \S+ ms \| {speed_up} \| \S+ GiB \| ",
            process.stdout), process.stdout
    measured = json.loads((tmp_path / "results.json").read_text())["shared"]
    for one, other in zip(measured["zpp.jit"]["losses"],
                          measured["JAX FSDP"]["losses"], strict=True):
        assert abs(one / other - 1) < 0.01
