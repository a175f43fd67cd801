#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws pictures in docs/images from docs/data/measured.json: steps.svg from measured
steps, real-sizes.svg from those that are predicted for a model of 7 B weights, and
time-to-loss.svg from losses of trainings (-k4: with four micro-batches).

    python bench/draw_steps.py [--check]

Bars show how long a training step takes on each link, as FSDP and as ZeRO++, and
for how much of that time compute waits for communication. With --check nothing is
written; the exit status is 1 if a picture differs from the numbers.
"""

import argparse
import math
import pathlib
import sys
from xml.sax.saxutils import escape

from lab import curves
from lab.measured import FILE, LINKS, Measured

ROOT = pathlib.Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
#: By link and step: the time of a step and the exposed part of it, in ms.
Times = dict[str, dict[str, tuple[float, float]]]
#: A step -> its name in the picture and its style.
STEPS = {"FSDP": ("FSDP", "fsdp"), "all (b)": ("ZeRO++", "zpp"),
         "0.52 M (b)": ("i4:delta", "delta")}

WIDTH, MARGIN, LABELS, NUMBERS = 560, 16, 112, 132
BAR, GAP, TOP = 20, 16, 88
STYLE = """
  .card { fill: #ffffff; stroke: #d1d9e0 }
  text { fill: #1f2328; font: 15px system-ui, -apple-system, "Segoe UI",
         Helvetica, Arial, sans-serif }
  .title { font-weight: 600; font-size: 16px }
  .soft { fill: #59636e; font-size: 14px }
  .strong { font-weight: 600 }
  .fsdp { fill: #818b98 } .fsdp.wait { fill: #d1d9e0 }
  .zpp { fill: #0969da } .zpp.wait { fill: #a5cdf7 }
  .delta { fill: #bc4c00 } .delta.wait { fill: #f7c9a5 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc }
    .soft { fill: #9198a1 }
    .fsdp { fill: #9198a1 } .fsdp.wait { fill: #3d444d }
    .zpp { fill: #4493f8 } .zpp.wait { fill: #1f4272 }
    .delta { fill: #db6d28 } .delta.wait { fill: #6b3a1e }
  }
"""


def rounded(time: float) -> int:
    """Half up, as the text beside the picture is rounded."""
    return math.floor(time + 0.5)


def read(data: Measured) -> Times:
    """The measured steps, on links on which their waits were measured."""
    times: Times = {}
    for step in STEPS:
        row = data.row("forms", step, form="0.88 B, layers")
        for link, exposed in row["exposed"].items():
            times.setdefault(LINKS[link], {})[step] = (row["ms"][link], exposed)
    return times


def read_sizes(data: Measured) -> Times:
    """The predicted steps of 7 B weights. Their compute is what is left where the
    links are fast."""
    rows = data.rows("sizes", size="7 B", form="layers")
    compute = min(row["busy"] for row in rows)
    return {f"{row['gbit']} Gbit/s": {
        step: (time, time - compute)
        for step, time in zip(STEPS, (row["fsdp"], row["default"]))} for row in rows}


def read_curves(data: Measured, words: str = "") -> dict[str, list]:
    """The losses of trainings whose names end with these words, and of no others, by
    seconds."""
    found: dict[str, list] = {}
    for row in data.rows("curves"):
        name = row["step"].removesuffix(words)
        if " k = " not in name and (name != row["step"] or not words):
            found.setdefault(name.rstrip(", "), []).append(row["curve"])
    return found


def draw(title: str, footer: str, times: Times) -> str:
    largest = max(time for steps in times.values() for time, _ in steps.values())
    scale = (WIDTH - 2 * MARGIN - LABELS - NUMBERS) / largest
    left = MARGIN + LABELS
    parts = []

    def text(x, y, words, style="", anchor="start"):
        parts.append(f'<text x="{x:.0f}" y="{y:.0f}" class="{style}" '
                     f'text-anchor="{anchor}">{escape(words)}</text>')

    def rectangle(x, y, width, style):
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" '
                     f'height="{BAR}" class="{style}"/>')

    text(MARGIN, 32, title, "title")
    styles = list(dict.fromkeys(STEPS[step][1] for steps in times.values()
                                for step in steps))
    for x, wait, words in ((MARGIN, "", "compute"),
                           (MARGIN + 148, " wait",
                            "compute waits for communication")):
        for i, style in enumerate(styles):
            rectangle(x + i * BAR, 46, BAR, f"{style}{wait}")
        text(x + len(styles) * BAR + 8, 61, words, "soft")
    y = TOP
    for link, steps in times.items():
        baseline, _ = next(iter(steps.values()))
        text(MARGIN, y + BAR + 5, link, "strong")
        for step, (time, exposed) in steps.items():
            name, style = STEPS[step]
            rectangle(left, y, scale * (time - exposed), style)
            rectangle(left + scale * (time - exposed), y, scale * exposed,
                      f"{style} wait")
            end = left + scale * time + 8
            words = f"{name} {rounded(time)} ms"
            if style != "fsdp":
                words += f" ({baseline / time:.2f}x)"
            text(end, y + BAR - 5, words, "strong" if style != "fsdp" else "")
            y += BAR + 2
        y += GAP
    text(MARGIN, y + 10, footer, "soft")
    height = y + 28
    summary = "; ".join(
        f"{link}: " + ", ".join(f"{STEPS[step][0]} {rounded(time)} ms"
                                for step, (time, _) in steps.items())
        for link, steps in times.items())
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}" role="img">',
        "<title>Time of a training step as FSDP and as ZeRO++</title>",
        f"<desc>{escape(summary)}</desc>",
        "<!-- Drawn by bench/draw_steps.py from docs/data/measured.json. -->",
        f"<style>{STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" '
        'rx="8" class="card"/>', *parts, "</svg>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true",
                        help="compare, do not write")
    arguments = parser.parse_args()
    data = Measured()
    pictures = {
        "steps.svg": draw(
            "Time of a training step, by the link between nodes",
            "GPT of 0.88 B parameters, 4 H200 as 2 nodes x 2, 2048 tokens per GPU",
            read(data)),
        "real-sizes.svg": draw(
            "Predicted step, by a GPU's link between nodes",
            "GPT of 7 B parameters, 8 nodes x 8 H100, 2048 tokens per GPU",
            read_sizes(data)),
        "time-to-loss.svg": curves.draw(
            "ZeRO++ has the loss of FSDP in a quarter of its time",
            read_curves(data)),
        "time-to-loss-k4.svg": curves.draw(
            "Four micro-batches: FSDP hardly learns in the same time",
            read_curves(data, "k = 4"))}
    for name, picture in pictures.items():
        path = IMAGES / name
        if not arguments.check:
            IMAGES.mkdir(exist_ok=True)
            path.write_text(picture)
        elif not path.exists() or path.read_text() != picture:
            print(f"{path.relative_to(ROOT)}: expected the numbers of "
                  f"{FILE.relative_to(ROOT)}; run bench/draw_steps.py")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
