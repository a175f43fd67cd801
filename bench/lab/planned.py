# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Predicted times of steps, as `zpp plan` has them."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from lab import links

#: The rate of a device on NVLink.
NVLINK = "400gbyte"


def run_compiler(words: list):
    """Runs zpp-opt; exits with what it says if it fails."""
    from zpp import find_compiler
    found = subprocess.run(
        [find_compiler(), *map(str, words), "--verify-each=false"],
        stderr=subprocess.PIPE, text=True, check=False)
    if found.returncode:
        sys.exit(found.stderr[-2000:])


def milliseconds(step: pathlib.Path, mesh: str, device: str, speeds: str,
                 scale: float) -> float:
    """The time of the step in a file, rewritten or not. `speeds` are the links as
    zpp's options have them, `scale` is the factor on the time of compute."""
    with tempfile.TemporaryDirectory(prefix="zpp-") as folder:
        report = pathlib.Path(folder, "report.json")
        run_compiler([step, "-o", os.devnull,
                      f"--zero-report=mesh={mesh} device={device} links={speeds} "
                      f"compute-scale={scale} format=json output={report}"])
        return json.loads(report.read_text())["time"]["usec"] / 1e3


def speeds_of(link: str, tier: str, per_node: int) -> str | None:
    """The links of two nodes of `per_node` devices: all devices and both directions
    share a shaped link. None for a link whose rate nobody knows."""
    if link == "nvlink":
        return f"node={NVLINK},{tier}={NVLINK}"
    rate = links.rate(link) / 1e9 / (2 * per_node)
    return f"node={rate:g}gbit,{tier}={NVLINK}" if rate else None
