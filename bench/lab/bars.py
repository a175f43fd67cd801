# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bars side by side, as SVG: what two sources say about the same thing."""

from collections.abc import Mapping
from xml.sax.saxutils import escape

_WIDTH, _MARGIN, _NUMBERS = 760, 16, 90
_BAR, _GAP = 12, 8
_COLORS = ("#818b98", "#0969da", "#8250df", "#bc4c00")


def draw(title: str, groups: Mapping[str, Mapping[str, float]], unit: str
         ) -> str:
    """groups: name -> series -> value; the series are the same everywhere."""
    series = list(dict.fromkeys(name for values in groups.values()
                                for name in values))
    labels = 24 + 7 * max(map(len, groups))
    largest = max(value for values in groups.values()
                  for value in values.values())
    scale = (_WIDTH - 2 * _MARGIN - labels - _NUMBERS) / largest
    parts = []

    def text(x, y, words, weight="normal"):
        parts.append(f'<text x="{x:.0f}" y="{y:.0f}" font-weight="{weight}">'
                     f'{escape(words)}</text>')

    def bar(x, y, width, color):
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" '
                     f'height="{_BAR}" fill="{color}"/>')

    text(_MARGIN, 28, title, "bold")
    x = _MARGIN
    for name, color in zip(series, _COLORS):
        bar(x, 40, _BAR, color)
        text(x + _BAR + 6, 51, name)
        x += 50 + 7 * len(name)
    y = 68
    for group, values in groups.items():
        text(_MARGIN, y + _BAR, group)
        for name, color in zip(series, _COLORS):
            if name in values:
                bar(_MARGIN + labels, y, scale * values[name], color)
                text(_MARGIN + labels + scale * values[name] + 6, y + _BAR - 1,
                     f"{values[name]:.3g} {unit}")
                y += _BAR + 2
        y += _GAP
    height = y + 8
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} '
        f'{height}" width="{_WIDTH}" height="{height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *parts, "</svg>", ""])
