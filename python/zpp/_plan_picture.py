# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A picture of what each stream of a device does in one step."""

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape


class Step(NamedTuple):
    """A way to run a step: its time, and (stream, begin, end, label) in microseconds."""

    name: str
    seconds: float
    tasks: Sequence[Sequence]


_WIDTH, _MARGIN, _LABELS, _NUMBERS = 900, 16, 150, 110
_BAR, _LINE, _TOP = 14, 17, 96
#: Label of a task -> its style and its name in the legend.
_KINDS = {
    "compute": ("compute", "compute"),
    "forward weight": ("forward", "weights, forward"),
    "backward weight": ("backward", "weights, backward"),
    "gradient": ("gradient", "gradients"),
    "": ("other", "other collectives"),
}
_STYLE = """
  .card { fill: #ffffff; stroke: #d1d9e0 }
  text { fill: #1f2328; font: 14px system-ui, -apple-system, "Segoe UI",
         Helvetica, Arial, sans-serif }
  .title { font-weight: 600; font-size: 16px } .strong { font-weight: 600 }
  .soft { fill: #59636e; font-size: 12px }
  .lane { fill: #f0f2f5 }
  .compute { fill: #818b98 } .forward { fill: #0969da }
  .backward { fill: #8250df } .gradient { fill: #bc4c00 }
  .other { fill: #1a7f37 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc } .soft { fill: #9198a1 } .lane { fill: #1c2128 }
    .compute { fill: #9198a1 } .forward { fill: #4493f8 }
    .backward { fill: #ab7df8 } .gradient { fill: #f0883e }
    .other { fill: #3fb950 }
  }
"""


def draw(title: str, subtitle: str, streams: Sequence[str], steps: Sequence[Step]) -> str:
    """Draws steps as SVG, on one scale of time."""
    longest = max(step.seconds for step in steps)
    scale = (_WIDTH - 2 * _MARGIN - _LABELS - _NUMBERS) / longest if longest else 0
    left = _MARGIN + _LABELS
    parts = []

    def text(x, y, words, style=""):
        parts.append(f'<text x="{x:.0f}" y="{y:.0f}" class="{style}">'
                     f'{escape(words)}</text>')

    def bar(x, y, width, style, label=""):
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.3):.1f}" '
                     f'height="{_BAR}" class="{style}">'
                     + (f"<title>{escape(label)}</title>" if label else "") + "</rect>")

    text(_MARGIN, 30, title, "title")
    text(_MARGIN, 50, subtitle, "soft")
    x = _MARGIN
    for style, name in _KINDS.values():
        bar(x, 62, _BAR, style)
        text(x + _BAR + 6, 74, name, "soft")
        x += 44 + 7 * len(name)
    y = _TOP
    for step in steps:
        text(_MARGIN, y + _BAR - 2, step.name, "strong")
        end = left + scale * step.seconds + 6
        text(end, y + _BAR - 2, f"{step.seconds * 1e3:.0f} ms", "strong")
        text(end, y + _BAR - 2 + _LINE, f"{steps[0].seconds / step.seconds:.2f}x"
             if step.seconds and len(steps) > 1 else "", "soft")
        for name in streams:
            text(left - 8 - 7 * len(name), y + _BAR - 3, name, "soft")
            bar(left, y, scale * step.seconds, "lane")
            # What lies closer together than can be seen is one bar.
            for begin, stop, label in _merge(step.tasks, name, longest / _WIDTH * 1e6 / 4):
                bar(left + begin / 1e6 * scale, y, (stop - begin) / 1e6 * scale,
                    _KINDS.get(label, _KINDS[""])[0],
                    f"{label}: {begin:.0f} to {stop:.0f} usec")
            y += _LINE
        y += 12
    height = y + 8
    summary = "; ".join(f"{step.name} {step.seconds * 1e3:.1f} ms" for step in steps)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} '
        f'{height}" width="{_WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(summary)}</desc>",
        f"<style>{_STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" '
        'rx="8" class="card"/>', *parts, "</svg>", ""])


def _merge(tasks: Sequence[Sequence], stream: str, gap: float
           ) -> list[tuple[float, float, str]]:
    """(begin, end, label) of a stream's tasks, of which neighbors of one label are one
    where they are closer together than the gap."""
    bars: list[tuple[float, float, str]] = []
    for name, begin, end, label in tasks:
        if name != stream:
            continue
        if bars and bars[-1][2] == label and begin - bars[-1][1] < gap:
            bars[-1] = (bars[-1][0], end, label)
        else:
            bars.append((begin, end, label))
    return bars
