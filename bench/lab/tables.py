# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables in Markdown, as docs/performance.md has them."""

from collections.abc import Iterable


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
