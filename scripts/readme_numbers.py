#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the measured numbers in README.md, and the first table of
docs/performance.md, from the other tables of docs/performance.md.

They stand in blocks between "<!-- NAME: begin ... -->" and "<!-- NAME: end -->".
scripts/check_docs.py fails where a block is not what this script writes.
"""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 120
#: In words up to here, as in running text.
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight",
         "nine", "ten")


def section(page, heading):
    """The text below a heading, up to the next one of its rank or above."""
    match = re.search(rf"^(#+) {re.escape(heading)}\n", page, re.MULTILINE)
    if match is None:
        raise ValueError(f"expected the heading '{heading}' in performance.md, but "
                         f"got none")
    rest = page[match.end():]
    end = re.search(rf"^#{{1,{len(match[1])}}} ", rest, re.MULTILINE)
    return rest[:end.start()] if end else rest


def table(page, heading, *columns):
    """The rows, as dictionaries, of the first table below a heading that has these
    columns."""
    names = None
    rows: list[dict[str, str]] = []
    for line in [*section(page, heading).splitlines(), ""]:
        if not line.startswith("|"):
            if rows:
                return rows
            names = None
            continue
        cells = [cell.strip().replace("*", "")
                 for cell in line.strip().strip("|").split("|")]
        if names is None:
            names = cells
        elif set(columns) <= set(names) and not set(line) <= set("|-: "):
            rows.append(dict(zip(names, cells)))
    raise ValueError(f"expected a table with {', '.join(columns)} below '{heading}' "
                     f"in performance.md, but got none")


def row(rows, step):
    found = [entry for entry in rows if entry.get("step", "").startswith(step)]
    if not found:
        raise ValueError(f"expected the row '{step}', but got "
                         f"{[entry.get('step') for entry in rows]}")
    return found[0]


def milliseconds(cell):
    return float(re.match(r"([\d.]+) ms", cell)[1])


def count(number):
    return WORDS[number] if number < len(WORDS) else str(number)


def steps(page):
    """The picture's caption."""
    link = "50 Gbit/s"
    below = "The runtime under JAX on GPUs"
    runtime = table(page, below, "step", link, "peak memory")
    fsdp, ours, differences = (milliseconds(row(runtime, step)[link])
                               for step in ("FSDP", "all (b)", "0.52 M"))
    portable = table(page, "Portable back end on GPUs", "step", link)
    alone = milliseconds(row(portable, "all (ZeRO++)")[link])
    two = table(page, "Two GPUs as two nodes of one", "speed-up", link)
    small = row(two, "0.52 M")[link]
    torch = table(page, "PyTorch on two H100", "step", f"0.88 B, {link}")
    fsdp2, delta = (milliseconds(row(torch, step)[f"0.88 B, {link}"])
                    for step in ("FSDP2", "FSDP2 + zpp, i4:delta"))
    return (
        f"This is one step of a GPT of 0.88 B parameters on GPUs, with fused CUDA "
        f"kernels and NCCL beside XLA's compute. With links of {link} between the "
        f"nodes, ZeRO++ takes {100 * ours / fsdp:.0f} % of the time of JAX FSDP, and "
        f"{100 * differences / fsdp:.0f} % where weights travel as int4 differences "
        f"(i4:delta). As plain StableHLO, without any library of zpp, ZeRO++ takes {alone:.0f} ms. "
        f"On two H100 as two nodes, i4:delta takes {milliseconds(small):.0f} ms for a step "
        f"that takes FSDP {milliseconds(row(two, 'FSDP')[link]):.0f} ms; PyTorch's FSDP2 takes "
        f"{fsdp2:.0f} ms there, and with zpp {delta:.0f}. Machines, commands and more "
        f"numbers are in [docs/performance.md](docs/performance.md).")


def predictions(page):
    rows = table(page, "Predictions and measurements", "table", "predicted", "error")
    missed = sum("misses" in entry["error"] for entry in rows)
    return (
        f"Of {len(rows)} steps that were measured on H200, it predicts "
        f"{len(rows) - missed} within 15 % "
        f"([each of them](docs/performance.md#predictions-and-measurements)).")


def training(page):
    rows = table(page, "Does it train", "step", "compared with FSDP", "holds")
    fsdp, default = row(rows, "FSDP"), next(
        entry for entry in rows if "(default)" in entry["step"])
    failed = [entry["step"] for entry in rows if entry["holds"] != "yes"]
    return (
        f"**Does it train?** In 1200 steps of a GPT of 134 M weights on real text, with "
        f"{count(int(default['seeds']))} orders of the data, the default ended at a "
        f"loss of {default['validation loss']}, "
        f"{default['compared with FSDP'].replace('%', ' %')} compared with FSDP on the "
        f"same orders (standard error {default['standard error'].replace('%', ' %')}), "
        f"where FSDP's own orders end between {fsdp['smallest']} and "
        f"{fsdp['largest']}. Of {count(len(rows))} rows "
        + (f"{count(len(failed))} ended more than 0.5 % above FSDP: "
           f"{'; '.join(failed)}" if failed else "all end within 0.5 % of FSDP")
        + " ([losses](docs/performance.md#does-it-train)).")


def time_to_loss(page):
    rows = table(page, "Time to loss", "step", "held-out loss", "smallest, largest")
    fsdp, once, ours = (row(rows, step)
                        for step in ("FSDP", "FSDP, gathered once", "ZeRO++"))

    def ends(entry):
        return " to ".join(entry["smallest, largest"].split(", "))

    its, of_once = (ours[name] for name in ("has FSDP's last loss after",
                                            "that of FSDP, gathered once"))
    return (
        f"In seconds of training, on held-out text, ZeRO++ has the last loss of "
        f"JAX FSDP ({fsdp['held-out loss']} after {fsdp['seconds']} s) after "
        f"{its}, and that of FSDP that gathers its weights "
        f"once per step ({once['held-out loss']} after {once['seconds']} s) after "
        f"{of_once}. ZeRO++ ended at {ends(ours)} on three orders of the data, the "
        f"latter at {ends(once)}. A GPT of 0.35 B parameters on two H200 as two nodes, "
        f"with a link of 50 Gbit/s ([how](docs/performance.md#time-to-loss)).")


#: Rows of the first table: that of a step which others are compared with -> what it
#: is, and the links.
ON_LINKS = {
    "0.88 B, layers: FSDP": (
        "0.88 B weights, 2048 tokens per GPU",
        ("50 Gbit/s", "100 Gbit/s", "NVLink only")),
    "six layers of 4096: FSDP": (
        "1.35 B weights in six layers, 8192 tokens per GPU",
        ("50 Gbit/s", "100 Gbit/s", "not shaped", "NVLink only"))}
#: The same for steps that were measured on one link, of 0.88 B weights.
ON_ONE_LINK = {
    "four micro-batches: FSDP": "four micro-batches",
    "HSDP": "HSDP",
    "HSDP, four micro-batches": "HSDP, four micro-batches",
    "data parallelism, four micro-batches": "data parallelism, four micro-batches",
    "ZeRO-1, four micro-batches": "ZeRO-1, four micro-batches",
    "tensor parallelism, FSDP between nodes": "tensor parallelism within nodes"}
#: How the rows of rewritten steps begin, which follow the step as it was. The later
#: ones have more of zpp.
OURS, DIFFERENCES = ("all (b)", "and `updated"), ("0.52 M (b)",)
REWRITTEN = (*OURS, *DIFFERENCES, "jit (b)")


def rewritten(rows, step):
    """The row of a step as it was, and those of the same step rewritten."""
    first = next((index for index, entry in enumerate(rows) if re.fullmatch(
        re.escape(step) + r"( \([A-Z]\))?", entry["step"])), None)
    if first is None:
        raise ValueError(f"expected the row '{step}', but got "
                         f"{[entry['step'] for entry in rows]}")
    last = first + 1
    while last < len(rows) and rows[last]["step"].startswith(REWRITTEN):
        last += 1
    return rows[first], rows[first + 1:last]


def glance(page):
    """A table of what steps take as they are, and rewritten."""
    lines = ["| training step | link | as it is | ZeRO++ | i4:delta |",
             "| --- | --- | ---: | ---: | ---: |"]

    def compare(what, link, before, after):
        if not before[link]:
            return
        time = milliseconds(before[link])

        def best(names):
            found = [milliseconds(entry[link]) for entry in after
                     if entry["step"].startswith(names) and entry[link]]
            return f"{found[-1]:.0f} ms ({time / found[-1]:.2f}x)" if found else ""

        lines.append(f"| {what} | {link} | {time:.0f} ms | {best(OURS)} | "
                     f"{best(DIFFERENCES)} |")

    below, link = "The runtime under JAX on GPUs", "50 Gbit/s"
    forms = table(page, below, "step", "planned", "not shaped", "NVLink only")
    for step, (what, on) in ON_LINKS.items():
        for number, name in enumerate(on):
            compare(what if number == 0 else "", name, *rewritten(forms, step))
    kinds = table(page, below, "step", link, "planned", "link busy", "loss")
    for step, what in ON_ONE_LINK.items():
        compare(what, link, *rewritten(kinds, step))
    return "\n".join(lines)


BLOCKS = {"steps": steps, "time-to-loss": time_to_loss,
          "predictions": predictions, "training": training, "glance": glance}
MARKED = re.compile(
    r"^(<!-- ([\w-]+): begin \(scripts/readme_numbers\.py\) -->\n)(.*?)"
    r"^(<!-- \2: end -->)$", re.MULTILINE | re.DOTALL)


def updated(text, page):
    """`text` with the numbers of the text of performance.md."""
    def write(match):
        if match[2] not in BLOCKS:
            raise ValueError(f"expected a block of {', '.join(BLOCKS)}, but got "
                             f"'{match[2]}'")
        lines = BLOCKS[match[2]](page)
        if not lines.startswith("|"):
            # Links stay whole.
            lines = textwrap.fill(lines, WIDTH, break_long_words=False,
                                  break_on_hyphens=False)
        return f"{match[1]}{lines}\n{match[4]}"

    return MARKED.sub(write, text)


def main():
    page = ROOT / "docs" / "performance.md"
    for path in (page, ROOT / "README.md"):
        path.write_text(updated(path.read_text(), page.read_text()))


if __name__ == "__main__":
    sys.exit(main())
