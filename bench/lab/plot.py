# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The measured steps as a picture: a panel for each link, a bar for each step."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from lab.results import median, speed_up
from lab.steps import BASELINES, Steps

#: Colours of steps that zpp has rewritten, and of those that it has not.
OURS, OTHERS = "#3572b0", "#888888"


@dataclasses.dataclass
class Bar:
    """The time of a step."""

    seconds: float
    #: The words beside the bar.
    text: str
    color: str
    #: A part of the time that is drawn lighter.
    exposed: float = 0
    is_estimate: bool = False


def draw(steps: Steps, results: dict[str, dict[str, dict]],
         path: pathlib.Path) -> bool:
    """Draws bars for each link: the median of each step, its exposed part, and
    its speed-up. Returns whether there is matplotlib to draw with."""
    names = [name for name in steps.variants
             if any(name in runs for runs in results.values())]
    return draw_bars(names, {
        link: {name: Bar(median(run), speed_up(runs, name),
                         OTHERS if name in BASELINES else OURS,
                         run.get("exposed", 0), run.get("is_estimate", False))
               for name, run in runs.items()}
        for link, runs in results.items()}, path)


def draw_bars(names: Sequence[str], panels: Mapping[str, Mapping[str, Bar]],
              path: pathlib.Path) -> bool:
    """Draws the bars of each panel in the order of `names`. Returns whether
    there is matplotlib to draw with."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import patches, pyplot
    figure, axes = pyplot.subplots(
        1, len(panels), sharey=True, squeeze=False, layout="constrained",
        figsize=(2.5 + 3 * len(panels), 1.6 + 0.4 * len(names)))
    for axis, (title, bars) in zip(axes[0], panels.items()):
        for place, name in enumerate(names):
            if name not in bars:
                continue
            bar = bars[name]
            total = bar.seconds * 1e3
            exposed = min(total, bar.exposed * 1e3)
            axis.barh(place, total - exposed, color=bar.color)
            axis.barh(place, exposed, left=total - exposed, color=bar.color,
                      alpha=0.45, linewidth=0,
                      hatch="" if bar.is_estimate else "////")
            axis.text(total, place, f" {bar.text}", va="center")
        axis.set_title(title)
        axis.set_xlabel("ms per step")
        axis.margins(x=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_yticks(range(len(names)), names)
    axes[0][0].invert_yaxis()
    if any(bar.exposed for bars in panels.values() for bar in bars.values()):
        light = {"facecolor": OURS, "alpha": 0.45, "linewidth": 0}
        figure.legend(
            handles=[patches.Patch(**light, hatch="////",
                                   label="exposed communication, traced"),
                     patches.Patch(**light, label="the same, estimated")],
            loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=150)
    return True
