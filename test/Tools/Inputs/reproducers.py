# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the reproducers of all passes and pipelines of zpp-opt, each followed by a pass that fails.

reproducers.py FOLDER
"""

import concurrent.futures
import itertools
import pathlib
import re
import subprocess
import sys

FAILS = "--zero-quantize-all-gather=format=i2"
MESSAGE = "expected a format none, i8 or i4, but got 'i2'"
MODULE = 'module attributes {zpp.machine = {mesh = "node:2,gpu:4"}} {}\n'
# What some cannot do without.
OPTIONS = {
    "zero-import-compiled": "=mesh=node:2,gpu:4",
}
# Pipelines have other passes with other options.
OTHERS = [
    "zeropp=mesh=node:2,gpu:4 weights=i4:delta frozen=keep start=all links=node=50gbit,gpu=400gbyte",
    "zeropp=choose=true plans= memory-limit=1 links=node=50gbit,gpu=400gbyte target=cuda",
    "zeropp=memory-limit=1 target=cuda",
    "zeropp=target=cuda accumulate=gpu updated=i8 regather=true",
    "zero-bufferize-host=reuse=any",
    "zero-report-options=warnings={{what it does, and 'why'},{write a=b}}",
]


def opt(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["zpp-opt", *arguments], capture_output=True, text=True)


def reproduce(flag: str, folder: pathlib.Path, number: int) -> str:
    """Returns what is wrong with the reproducer of `flag`, or nothing."""
    reproducer = folder / f"{number}.mlir"
    failed = opt(
        str(folder / "module.mlir"),
        f"--{flag}",
        FAILS,
        f"--mlir-pass-pipeline-crash-reproducer={reproducer}",
    )
    if MESSAGE not in failed.stderr:
        return f"{flag}: expected the last pass to fail, but got {failed.stderr}"
    again = opt("--run-reproducer", str(reproducer))
    if again.returncode != 1 or MESSAGE not in again.stderr:
        return f"{flag}: expected its reproducer to fail alike, but got {again.stderr}"
    return ""


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "module.mlir").write_text(MODULE)
    names = re.findall(r"^ +--([\w-]+) +-   ", opt("--help").stdout, re.M)
    flags = [name + OPTIONS.get(name, "") for name in names] + OTHERS
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        errors = list(filter(None, pool.map(reproduce, flags, itertools.repeat(folder), itertools.count())))
    print(*errors, sep="\n")
    print(f"{len(flags) - len(errors)} reproducers of {len(flags)} run")
    sys.exit(bool(errors))


main()
