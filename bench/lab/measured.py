# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measurements in docs/data/measured.json, from which README.md, docs/performance.md and
their pictures are made.

It has a set for each run of an experiment, with date, commit, machine and command, and
the rows of each set. A row has `ms`, `planned` and `exposed` (ms), and `busy` (%) by link
between the nodes: "50gbit", "shared" (not shaped) and so on. One with `base` is what the
rows after it are compared with. Where a row, or its time on one link (`machines`), comes
from another machine than its set, it says so.
"""

import json
import pathlib
from typing import Any

import lab

FILE = lab.ROOT / "docs" / "data" / "measured.json"
#: Links as pages name them.
LINKS = {"12.5gbit": "12.5 Gbit/s", "25gbit": "25 Gbit/s", "50gbit": "50 Gbit/s",
         "100gbit": "100 Gbit/s", "shared": "not shaped", "nvlink": "NVLink only"}

Row = dict[str, Any]


class Measured:
    """The sets and their rows. Raises ValueError where something is asked for that is
    not there."""

    def __init__(self, path: pathlib.Path = FILE):
        data = json.loads(path.read_text())
        self.machines: dict[str, str] = data["machines"]
        self.sets: dict[str, dict[str, Any]] = data["sets"]
        self._rows: list[Row] = data["rows"]

    def rows(self, name: str, **equal) -> list[Row]:
        """Returns the rows of a set for which all of `equal` holds."""
        found = [row for row in self._rows if row["set"] == name
                 and all(row.get(key) == value for key, value in equal.items())]
        if not found:
            raise ValueError(f"expected rows of '{name}' with {equal} in {FILE.name}, "
                             "but got none")
        return found

    def row(self, name: str, step: str, **equal) -> Row:
        return self.rows(name, step=step, **equal)[0]

    def ms(self, name: str, step: str, link: str, **equal) -> float:
        """Returns the time of a step on a link."""
        times = self.row(name, step, **equal).get("ms", {})
        if link not in times:
            raise ValueError(f"expected a time of '{step}' of '{name}' on {link} in "
                             f"{FILE.name}, but got {sorted(times)}")
        return times[link]

    def with_bases(self, name: str) -> list[tuple[Row, Row | None]]:
        """Returns the rows of a set, each with the one that it is compared with."""
        base, found = None, []
        for row in self.rows(name):
            if base is not None and row.get("form") != base.get("form"):
                base = None
            base = row if row.get("base") else base
            found.append((row, base))
        return found

    def source(self, name: str) -> str:
        """Says when, at which commit, where and how a set was measured."""
        about = self.sets[name]
        machine = self.machines.get(about["machine"], about["machine"])
        return ", ".join(part for part in (
            f"`{name}`: {about['date']}", about["commit"], machine, about.get("method"))
            if part and part != "-")
