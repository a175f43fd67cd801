# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses by seconds of training, as SVG: of each row the mean of its runs, in a band
from the smallest to the largest one."""

import bisect
import math
import statistics
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

#: The seconds and the losses of one run, as they follow each other.
Curve = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 760, 380
_LEFT, _TOP, _RIGHT, _BOTTOM = 56, 64, 216, 48
_COLORS = ("#59636e", "#8250df", "#0969da", "#bc4c00")
#: Places at which the runs of a row are compared.
_PLACES = 48


def loss_at(curve: Curve, seconds: float) -> float:
    """Returns the loss of a run at a time within it, between its looks."""
    place = bisect.bisect_left([time for time, _ in curve], seconds)
    if place in (0, len(curve)):
        return curve[min(place, len(curve) - 1)][1]
    (start, before), (end, after) = curve[place - 1], curve[place]
    return before + (after - before) * (seconds - start) / (end - start)


def draw(title: str, rows: Mapping[str, Sequence[Curve]]) -> str:
    """Draws rows, by their names. Losses above those of the first third of a row are not
    shown: they fall too fast."""
    last, low, high = _ranges([curve for runs in rows.values() for curve in runs])
    parts: list[str] = []

    def x_of(seconds: float) -> float:
        return _LEFT + seconds / last * (_WIDTH - _LEFT - _RIGHT)

    def y_of(loss: float) -> float:
        part = (loss - low) / (high - low)
        return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)

    def text(x: float, y: float, words: str, anchor: str = "start", weight: str = "normal",
             color: str = "#59636e"):
        parts.append(f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" '
                     f'font-weight="{weight}" fill="{color}">{escape(words)}</text>')

    def points(pairs: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{x_of(seconds):.1f},{y_of(loss):.1f}" for seconds, loss in pairs)

    text(16, 28, title, weight="bold", color="#1f2328")
    text(16, 50, "loss on held-out text")
    for step in range(round((high - low) * 5) + 1):
        loss = low + step / 5
        parts.append(f'<path d="M{_LEFT} {y_of(loss):.1f}H{_WIDTH - _RIGHT}" '
                     'stroke="#d1d9e0"/>')
        text(_LEFT - 8, y_of(loss) + 4, f"{loss:.1f}", "end")
    for seconds in range(0, math.floor(last) + 1, 10):
        text(x_of(seconds), _HEIGHT - _BOTTOM + 20, f"{seconds} s", "middle")
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    parts.append(f'<clipPath id="axes"><rect x="{_LEFT}" y="{_TOP}" width="{width}" '
                 f'height="{height}"/></clipPath><g clip-path="url(#axes)">')
    labels: list[tuple[float, str, str]] = []
    for (name, runs), color in zip(rows.items(), _COLORS):
        end = min(run[-1][0] for run in runs)
        begin = max(run[0][0] for run in runs)
        places = [begin + (end - begin) * place / _PLACES for place in range(_PLACES + 1)]
        losses = [[loss_at(run, place) for run in runs] for place in places]
        if len(runs) > 1:
            above = list(zip(places, map(max, losses)))
            below = list(zip(places, map(min, losses)))
            parts.append(f'<polygon points="{points([*above, *reversed(below)])}" '
                         f'fill="{color}" fill-opacity="0.18"/>')
        means = list(map(statistics.mean, losses))
        parts.append(f'<polyline points="{points(list(zip(places, means)))}" fill="none" '
                     f'stroke="{color}" stroke-width="2"/>')
        labels.append((y_of(means[-1]), f"{name}  {means[-1]:.2f}", color))
    parts.append("</g>")
    place = -math.inf
    for y, words, color in sorted(labels):
        place = max(y, place + 17)
        text(_WIDTH - _RIGHT + 8, place + 4, words, weight="bold", color=color)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *parts, "</svg>", ""])


def _ranges(curves: Sequence[Curve]) -> tuple[float, float, float]:
    """The end of the axis of time, and both ends of that of losses, multiples of 0.2."""
    low = min(loss for curve in curves for _, loss in curve)
    high = max(curve[len(curve) // 3][1] for curve in curves)
    return (max(curve[-1][0] for curve in curves), math.floor(low * 5) / 5,
            math.ceil(high * 5) / 5)
