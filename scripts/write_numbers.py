#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the numbers in README.md and docs/*.md from docs/data/measured.json.

They stand between "<!-- numbers: WORDS -->" and "<!-- numbers: end -->". WORDS are the
name of a text below, or a set and the columns of its table:

    forms; form, step, 50gbit ms, 50gbit x, 50gbit planned, peak_gib

"x" is the speed-up compared with the row above that has `base`. Columns that are not of
a link are what the rows call them. scripts/check_docs.py fails where a page is not what
this script writes.
"""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "bench"))

from lab.measured import LINKS, Measured, Row  # noqa: E402

WIDTH = 120
#: In words up to here, as in running text.
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight",
         "nine", "ten")
#: Kinds of a link's columns -> their headings and how they are written.
OF_LINK = {"ms": ("", "{:.1f} ms"), "planned": ("planned", "{:.1f} ms"),
           "exposed": ("exposed", "{:.1f} ms"), "busy": ("link busy", "{:.0f}%"),
           "x": ("speed-up", "{:.2f}x")}
#: The same of other columns that are numbers.
OTHERS = {"reported_gb": ("reported", "{:.2f} GB"), "measured_gb": ("measured", "{:.2f} GB"),
          "peak_gib": ("peak memory", "{:.2f} GiB")}
#: A prediction holds within this part of what was measured.
LIMIT = 0.15


def count(number: int) -> str:
    return WORDS[number] if number < len(WORDS) else str(number)


# Tables --------------------------------------------------------------------------


def table(data: Measured, words: str) -> str:
    """The table of a set, and a line that says where its numbers come from."""
    name, _, rest = words.partition(";")
    columns = split(rest, data.rows(name))
    lines = ["| " + " | ".join(map(heading, columns)) + " |",
             "| " + " | ".join("---" if is_text(column) else "---:"
                               for column in columns) + " |"]
    form = None
    for row, base in data.with_bases(name):
        cells = [cell(row, base, column) for column in columns]
        if "form" in columns:
            place = columns.index("form")
            if cells[place] == form:
                cells[place] = ""
            else:
                form = cells[place]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", data.source(name)])


def split(words: str, rows: list[Row]) -> list[str]:
    """Splits a list of columns. Names of some have commas."""
    known = {key for row in rows for key in row}
    columns: list[str] = []
    for part in words.split(","):
        longer = f"{columns[-1]},{part}" if columns else ""
        if longer in known:
            columns[-1] = longer
        else:
            columns.append(part.strip())
    return columns


def is_text(column: str) -> bool:
    return column in ("form", "step")


def of_link(column: str) -> tuple[str, str] | None:
    """The link and the kind of a column; None if it is not of a link."""
    link, _, kind = column.partition(" ")
    return (link, kind) if link in LINKS and kind in OF_LINK else None


def heading(column: str) -> str:
    if found := of_link(column):
        link, kind = found
        return LINKS[link] if kind == "ms" else OF_LINK[kind][0]
    return {"form": "", **{key: name for key, (name, _) in OTHERS.items()}}.get(
        column, column)


def cell(row: Row, base: Row | None, column: str) -> str:
    found = of_link(column)
    if found is None:
        value = row.get(column, "")
        return OTHERS[column][1].format(value) if column in OTHERS and value != "" else str(value)
    link, kind = found
    if kind == "x":
        if base is None or link not in base["ms"] or link not in row.get("ms", {}):
            return ""
        return OF_LINK[kind][1].format(base["ms"][link] / row["ms"][link])
    if link not in row.get(kind, {}):
        return ""
    return OF_LINK[kind][1].format(row[kind][link])


# Texts ---------------------------------------------------------------------------


def steps(data: Measured) -> str:
    """The caption of README's first picture."""
    link = "50gbit"
    times = {step: data.ms("forms", step, link, form="0.88 B, layers")
             for step in ("FSDP", "all (b)", "0.52 M (b)")}
    fsdp2 = data.ms("torch-2x1", "FSDP2", link, form="0.88 B")
    ours = data.ms("torch-2x1", "FSDP2 + zpp, i4:delta", link, form="0.88 B")
    return (f"A step of a GPT of 0.88 B weights on four GPUs, two nodes of two. At 50 Gbit/s "
            f"between the nodes, ZeRO++ is {times['FSDP'] / times['all (b)']:.1f}x as fast as "
            f"JAX FSDP, and {times['FSDP'] / times['0.52 M (b)']:.1f}x where weights travel as "
            f"int4 differences (i4:delta). PyTorch's FSDP2 between two GPUs is "
            f"{fsdp2 / ours:.1f}x as fast with zpp.")


def predictions(data: Measured) -> str:
    rows = data.rows("plan-check")
    good = [row for row in rows if abs(row["predicted"] / row["measured"] - 1) <= LIMIT]
    return (f"Of {len(rows)} steps that were measured on H200, `zpp plan` predicts {len(good)} "
            f"within {LIMIT:.0%} ([how](docs/performance.md#is-the-prediction-right)).")


def training(data: Measured) -> str:
    rows = data.rows("convergence")
    default, = (row for row in rows if "(default)" in row["step"])
    failed = [row["step"] for row in rows if row["holds"] != "yes"]
    return (f"**Does it train?** After 1200 steps of 134 M weights on real text, with "
            f"{count(int(default['seeds']))} orders of the data, the default's loss is "
            f"{default['compared with FSDP'].strip('+%')} % above FSDP's (standard error "
            f"{default['standard error'].strip('%')} %; {count(len(failed))} of "
            f"{count(len(rows))} formats ended more than 0.5 % above: "
            f"{'; '.join(failed)}; [losses](docs/losses.md#at-the-same-step)).")


def time_to_loss(data: Measured) -> str:
    fsdp, once, ours = (data.row("time-to-loss", step)
                        for step in ("FSDP", "FSDP, gathered once", "ZeRO++"))
    its, of_once = (ours[name] for name in ("has FSDP's last loss after",
                                            "that of FSDP, gathered once"))
    return (f"ZeRO++ has the loss that JAX FSDP reaches in {fsdp['seconds']} s "
            f"({fsdp['held-out loss']}) after {its}, and that of FSDP that gathers its weights "
            f"once per step ({once['held-out loss']} after {once['seconds']} s) after {of_once}: "
            f"0.35 B weights on two H200 as two nodes, 50 Gbit/s, three orders of the data "
            f"([how](docs/losses.md#time-to-loss)).")


#: Rows of the first table: set and form -> what it is, and the links.
ON_LINKS = {
    ("forms", "0.88 B, layers"): (
        "0.88 B weights, 2048 tokens per GPU", ("50gbit", "100gbit", "nvlink")),
    ("forms", "six layers of 4096, layers"): (
        "1.35 B weights in six layers, 8192 tokens per GPU",
        ("50gbit", "100gbit", "shared", "nvlink"))}
#: Kinds of steps, of 0.88 B weights at 50 Gbit/s.
KINDS = ("four micro-batches", "HSDP", "HSDP, four micro-batches",
         "data parallelism, four micro-batches", "ZeRO-1, four micro-batches",
         "tensor parallelism within nodes")


def summary(data: Measured) -> str:
    """The first rows of `glance`."""
    return "\n".join(glance(data).splitlines()[:2 + 3 + 4 + 1])


def glance(data: Measured) -> str:
    """A table of what steps take as they are, and rewritten."""
    lines = ["| training step | link | as it is | ZeRO++ | i4:delta |",
             "| --- | --- | ---: | ---: | ---: |"]

    def compare(what: str, link: str, name: str, form: str):
        first, *after = data.rows(name, form=form)
        time = first["ms"][link]

        def best(differences: bool) -> str:
            found = [row["ms"][link] for row in after
                     if row["step"].startswith("0.52 M") == differences and
                     row["step"].startswith(("all (b)", "0.52 M")) and
                     "links" not in row["step"] and link in row["ms"]]
            return f"{found[-1]:.0f} ms ({time / found[-1]:.2f}x)" if found else ""

        lines.append(f"| {what} | {LINKS[link]} | {time:.0f} ms | {best(False)} | "
                     f"{best(True)} |")

    for (name, form), (what, links) in ON_LINKS.items():
        for number, link in enumerate(links):
            compare(what if number == 0 else "", link, name, form)
    for kind in KINDS:
        compare(kind, "50gbit", "kinds", kind)
    return "\n".join(lines)


def sizes(data: Measured) -> str:
    """A table of predicted steps of 7 B weights, without scans, which are like layers."""
    lines = ["| | Gbit/s | FSDP | default | speed-up | busy | bound | above it | which is |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for row in data.rows("sizes", size="7 B"):
        if row["form"] == "scan":
            continue
        lines.append(
            f"| {row['form']} | {row['gbit']} | {row['fsdp']} | {row['default']} | "
            f"{row['fsdp'] / row['default']:.2f}x | {row['busy']} | {row['bound']} | "
            f"{row['default'] / row['bound'] - 1:+.1%} | {row['binding']} |")
    return "\n".join(lines)


def collectives(data: Measured) -> str:
    """A table of collectives beside NCCL's."""
    lines = ["| link | collective | 64 MiB | | 256 MiB | | relative error |",
             "| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for row in data.rows("collectives"):
        if "commit" not in row and row["link"] != "100gbit":
            small, large = (f"{row['usec'][size] / 1e3:.2f} ms | {row['ratio'][size]:.2f}x"
                            for size in ("64 MiB", "256 MiB"))
            lines.append(f"| {LINKS[row['link']]} | {row['collective']} | {small} | {large} | "
                         f"{row['error']} |")
    return "\n".join(lines)


TEXTS = {"steps": steps, "predictions": predictions, "training": training,
         "time to loss": time_to_loss, "glance": glance, "summary": summary, "sizes": sizes,
         "collectives": collectives}
MARKED = re.compile(r"^(<!-- numbers: (.*?) -->\n)(.*?)^(<!-- numbers: end -->)$",
                    re.MULTILINE | re.DOTALL)


def updated(text: str, data: Measured) -> str:
    """`text` with the numbers of the data."""
    def write(match):
        words = match[2]
        if words in TEXTS:
            lines = TEXTS[words](data)
            if not lines.startswith(("|", "- ")):
                # Links stay whole.
                lines = textwrap.fill(lines, WIDTH, break_long_words=False,
                                      break_on_hyphens=False)
        elif ";" in words:
            lines = table(data, words)
        else:
            raise ValueError(f"expected numbers of {', '.join(TEXTS)}, or of a set and its "
                             f"columns, but got '{words}'")
        return f"{match[1]}{lines}\n{match[4]}"

    return MARKED.sub(write, text)


def pages(root: pathlib.Path) -> list[pathlib.Path]:
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def main():
    data = Measured()
    for path in pages(ROOT):
        path.write_text(updated(path.read_text(), data))


if __name__ == "__main__":
    sys.exit(main())
