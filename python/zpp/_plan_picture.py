# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A plan as a picture: what each stream of a device does in one step."""

import typing
from xml.sax.saxutils import escape

from zpp._option_kinds import write_mesh

if typing.TYPE_CHECKING:
    from zpp._plan import Plan

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


def draw(plan: "Plan") -> str:
    """The plan as SVG."""
    longest = max(prediction.seconds for prediction in plan.predictions)
    scale = (_WIDTH - 2 * _MARGIN - _LABELS - _NUMBERS) / longest
    left = _MARGIN + _LABELS
    parts = []

    def text(x, y, words, style=""):
        parts.append(f'<text x="{x:.0f}" y="{y:.0f}" class="{style}">'
                     f'{escape(words)}</text>')

    def bar(x, y, width, style):
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.3):.1f}" '
                     f'height="{_BAR}" class="{style}"/>')

    text(_MARGIN, 30, f"One predicted step on {write_mesh(plan.mesh)}, {plan.device}",
         "title")
    text(_MARGIN, 50, f"links: {plan.links or 'the default model'}", "soft")
    x = _MARGIN
    for style, name in _KINDS.values():
        bar(x, 62, _BAR, style)
        text(x + _BAR + 6, 74, name, "soft")
        x += 44 + 7 * len(name)
    y = _TOP
    first = plan.predictions[0]
    for prediction in plan.predictions:
        lanes = {name: _merge(prediction.tasks, name, scale)
                 for name in ("compute", *plan.mesh)}
        text(_MARGIN, y + _BAR - 2, prediction.name, "strong")
        text(left + scale * prediction.seconds + 6, y + _BAR - 2,
             f"{prediction.seconds * 1e3:.0f} ms", "strong")
        text(left + scale * prediction.seconds + 6, y + _BAR - 2 + _LINE,
             f"{first.seconds / prediction.seconds:.2f}x", "soft")
        for name, bars in lanes.items():
            text(left - 8 - 7 * len(name), y + _BAR - 3, name, "soft")
            bar(left, y, scale * prediction.seconds, "lane")
            for begin, end, style in bars:
                bar(left + begin, y, end - begin, style)
            y += _LINE
        y += 12
    height = y + 8
    summary = "; ".join(f"{prediction.name} {prediction.seconds * 1e3:.1f} ms"
                        for prediction in plan.predictions)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} '
        f'{height}" width="{_WIDTH}" height="{height}" role="img">',
        "<title>A training step as FSDP and as ZeRO++</title>",
        f"<desc>{escape(summary)}</desc>",
        f"<style>{_STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" '
        'rx="8" class="card"/>', *parts, "</svg>", ""])


def _merge(tasks, stream: str, scale: float) -> list[tuple[float, float, str]]:
    """(begin, end, style) of a stream's tasks, in pixels. What lies closer
    together than can be seen is one."""
    bars: list[tuple[float, float, str]] = []
    for name, begin, end, label in tasks:
        if name != stream:
            continue
        style = _KINDS.get(label, _KINDS[""])[0]
        begin, end = begin / 1e6 * scale, end / 1e6 * scale
        if bars and bars[-1][2] == style and begin - bars[-1][1] < 0.25:
            bars[-1] = (bars[-1][0], end, style)
        else:
            bars.append((begin, end, style))
    return bars
