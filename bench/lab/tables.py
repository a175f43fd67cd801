# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables in Markdown, as docs/performance.md has them."""

import pathlib
import subprocess
from collections.abc import Iterable

import lab


class Table:
    """Prints a row as soon as it is known. The first column is aligned to the
    left, the others to the right."""

    def __init__(self, header: Iterable[str]):
        header = list(header)
        self._row(header)
        self._row(["---"] + ["---:"] * (len(header) - 1))

    def row(self, cells: Iterable):
        self._row(map(str, cells))

    @staticmethod
    def _row(cells: Iterable[str]):
        print("| " + " | ".join(cells) + " |", flush=True)


def describe_commit() -> str | None:
    """The commit that a table is of, with "-dirty" if files have changed since;
    None for a copy without git."""
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=lab.ROOT, check=True, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None


def write_between(page: pathlib.Path, name: str, table: str):
    """Replaces what `page` has between the comments "NAME: begin" and "NAME:
    end"."""
    before, begin, rest = page.read_text().partition(f"<!-- {name}: begin -->\n")
    _, end, after = rest.partition(f"<!-- {name}: end -->\n")
    page.write_text(f"{before}{begin}{table}\n{end}{after}")
