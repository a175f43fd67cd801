# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The report as a page that needs no server and no other file."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from zpp._option_kinds import write_mesh
from zpp._plan_picture import Step, draw

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em;
       padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; margin: 1em 0; width: 100% }
th, td { border-bottom: 1px solid #ddd; padding: .2em .6em; text-align: left;
         vertical-align: top }
th button { all: unset; cursor: pointer; font-weight: 600 }
th button:focus-visible { outline: 2px solid #06c }
th[aria-sort=ascending] button::after { content: " \\25B2" }
th[aria-sort=descending] button::after { content: " \\25BC" }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
code { font-size: 90%; overflow-wrap: anywhere }
td code { white-space: nowrap }
figure { margin: 1em 0; overflow-x: auto }
@media (prefers-color-scheme: dark) {
  body { background: #181818; color: #ddd } th, td { border-color: #444 } }
"""

_SCRIPT = """
for (const head of document.querySelectorAll("th")) {
  head.querySelector("button").addEventListener("click", () => {
    const rows = head.closest("table").tBodies[0];
    const falls = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.children)
      other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falls ? "descending" : "ascending");
    const value = row => row.cells[head.cellIndex].dataset.value;
    const isNumber = head.classList.contains("number");
    rows.append(...[...rows.rows].sort((a, b) => (falls ? -1 : 1) * (isNumber
      ? value(a) - value(b) : value(a).localeCompare(value(b)))));
  });
}
"""

#: The page on reasons; a wheel does not have it.
_WHY = pathlib.Path(__file__).resolve().parents[2] / "docs" / "why.md"


def render(report: Mapping[str, Any], title: str) -> str:
    """Writes the page of a report, with its predicted timeline if it has one."""
    tiers = report["tiers"]
    total, entries = report["total"], report["collectives"]
    shape = write_mesh({tier: report["mesh"][tier] for tier in tiers})
    parts = [
        "<!DOCTYPE html>", '<html lang="en">', '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{escape(title)}</title>", f"<style>{_STYLE}</style>",
        f"<h1>{escape(title)}</h1>",
        f"<p>Bytes that one device sends in a step, on the mesh "
        f"<code>{escape(shape)}</code>. 1 M is all weights once.</p>",
        "<h2>Total</h2>", _table(
            ["tier", "before", "after", "before, M", "after, M"],
            ([tier, total["before"].get(tier, 0), total["after"].get(tier, 0),
              total["before_in_M"].get(tier), total["after_in_M"].get(tier)]
             for tier in tiers)),
        _table(["memory of a device", "bytes"],
               ([name.removesuffix("_bytes"), total[name]] for name in (
                   "secondary_bytes", "accumulated_bytes", "state_bytes")))]
    time = report.get("time", {})
    if time.get("tasks"):
        parts += ["<h2>Predicted timeline</h2>", f"<p>{escape(_bound(time))}</p>",
                  "<figure>" + draw(title, f"on {shape}", ("compute", *tiers), [
                      Step("this step", time["usec"] / 1e6, time["tasks"])]) + "</figure>"]
    left = [entry for entry in entries if entry["reason"]]
    if left:
        why = (f'<a href="{escape(_WHY.as_uri())}">Why was this left alone?</a>'
               if _WHY.exists() else "docs/why.md")
        parts += ["<h2>Left alone</h2>",
                  f"<p>{why} says of each reason what helps.</p>", _table(
            ["at", "kind", "why", *tiers],
            ([_Code(entry["location"]), entry["kind"], entry["reason"],
              *(entry["after"].get(tier, 0) for tier in tiers)]
             for entry in left))]
    parts += ["<h2>Collectives</h2>", _table(
        ["at", "kind", "role", "rule", "phase", "group", "rewritten",
         *(f"{tier}, {when}" for tier in tiers for when in ("before", "after"))],
        ([_Code(entry["location"]), entry["kind"], entry["role"], entry["rule"],
          entry["phase"], entry["group"], "yes" if entry["rewritten"] else "no",
          *(entry[when].get(tier, 0) for tier in tiers
            for when in ("before", "after"))] for entry in entries))]
    return "\n".join([*parts, f"<script>{_SCRIPT}</script>", "</html>", ""])


class _Code(str):
    """A place in a program, of whose file only the name is shown."""


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Writes a table that sorts by the column whose head is pressed."""
    rows = [list(row) for row in rows]
    numbers = [all(isinstance(row[index], int | float | None) for row in rows)
               for index in range(len(heads))]

    def cell(value: Any, is_number: bool) -> str:
        if isinstance(value, _Code):
            text = (f'<code title="{escape(value)}">'
                    f'{escape(value.rpartition("/")[2])}</code>')
        elif isinstance(value, float):
            text = f"{value:.3f}"
        elif isinstance(value, int):
            text = f"{value:,}"
        else:
            text = escape(value or "")
        kind = ' class="number"' if is_number else ""
        order = escape(str(0 if value is None and is_number else value))
        return f'<td{kind} data-value="{order}">{text}</td>'

    head = "".join(
        f'<th scope="col"{" class=number" if is_number else ""}>'
        f'<button type="button">{escape(name)}</button></th>'
        for name, is_number in zip(heads, numbers, strict=True))
    body = "\n".join(
        "<tr>" + "".join(map(cell, row, numbers)) + "</tr>" for row in rows)
    return (f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
            f"</table>")


def _bound(time: Mapping[str, Any]) -> str:
    """How far the predicted step is above its bound, and what makes that so long."""
    usec, bound = time["usec"], time["bound_usec"]
    above = max(0.0, usec / bound - 1) if bound else 0.0
    reasons = ", ".join(
        f"{stream} {part / bound:.0%}" for stream, part in
        sorted(time["bound_by"].items(), key=lambda by: -by[1]) if part >= bound / 100)
    return (f"{usec / 1000:.2f} ms, {above:.1%} above the bound of any schedule"
            + (f", which is {reasons}" if reasons else ""))
