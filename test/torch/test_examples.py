# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""examples/torch_fsdp.py, as a user starts it."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def test_torch_fsdp():
    process = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         "--nproc-per-node", "2", ROOT / "examples" / "torch_fsdp.py", "--mesh",
         "node:2,gpu:1", "--steps", "3"], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert process.returncode == 0, process.stdout
    first, last = map(float, re.findall(r"^step \d: loss (\S+)$", process.stdout,
                                        re.MULTILINE))
    assert last < first
    sent, before = map(float, re.search(
        r"^node: (\S+) MB sent, (\S+) MB without zpp$", process.stdout,
        re.MULTILINE).groups())
    assert 0 < sent < 0.5 * before
