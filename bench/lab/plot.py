# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The measured steps as a picture."""

import pathlib

from lab.results import median, speed_up
from lab.steps import EXPORTED, JITTED, Steps


def draw(steps: Steps, results: dict[str, dict[str, dict]],
         path: pathlib.Path) -> bool:
    """Draws bars for each link: the median of each step, its exposed part, and
    its speed-up. Returns whether there is matplotlib to draw with."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import patches, pyplot
    names = [name for name in steps.variants
             if any(name in runs for runs in results.values())]
    figure, axes = pyplot.subplots(
        1, len(results), sharey=True, squeeze=False, layout="constrained",
        figsize=(2.5 + 3 * len(results), 1.6 + 0.4 * len(names)))
    for axis, (link, runs) in zip(axes[0], results.items()):
        for place, name in enumerate(names):
            if name not in runs:
                continue
            total = median(runs[name]) * 1e3
            exposed = min(total, runs[name].get("exposed", 0) * 1e3)
            color = "#888888" if name in (JITTED, EXPORTED) else "#3572b0"
            axis.barh(place, total - exposed, color=color)
            axis.barh(place, exposed, left=total - exposed, color=color,
                      alpha=0.45, linewidth=0,
                      hatch="" if runs[name].get("is_estimate") else "////")
            axis.text(total, place, f" {speed_up(runs, name)}", va="center")
        axis.set_title(link)
        axis.set_xlabel("ms per step")
        axis.margins(x=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_yticks(range(len(names)), names)
    axes[0][0].invert_yaxis()
    light = {"facecolor": "#3572b0", "alpha": 0.45, "linewidth": 0}
    figure.legend(
        handles=[patches.Patch(**light, hatch="////",
                               label="exposed communication, traced"),
                 patches.Patch(**light, label="the same, estimated")],
        loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=150)
    return True
