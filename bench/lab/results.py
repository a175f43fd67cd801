# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results of measured steps, per link and step, and their tables.

The result of a step on a link is a dict: "seconds" of each timed step; "losses"
of all steps; the "peak" of a device's memory and "bytes" sent between the nodes
per step; "lost", what TCP lost in all timed steps; "host_times", medians in usec;
and, if the runtime was traced, "stalls" in seconds.
"""

import statistics
from collections.abc import Iterable

from lab import links
from lab.steps import BASELINES, RUNTIME, Steps
from lab.tables import Table


def join(rounds: list[dict]) -> dict:
    """Joins several rounds of a step. Each round trains from the
    same weights on the same batch, so the losses are those of the first."""
    joined = rounds[0] | {
        "rounds": [run["seconds"] for run in rounds],
        "seconds": [time for run in rounds for time in run["seconds"]],
        "peak": max(run["peak"] for run in rounds),
        "bytes": statistics.mean(run["bytes"] for run in rounds),
        "lost": {kind: sum(run["lost"][kind] for run in rounds)
                 for kind in rounds[0]["lost"]}}
    if "host_times" in joined:
        joined["host_times"] = {
            kind: statistics.median(run["host_times"][kind] for run in rounds)
            for kind in rounds[0]["host_times"]}
    if "stalls" in joined:
        joined["stalls"] = [stall for run in rounds for stall in run["stalls"]]
    return joined


def median(run: dict) -> float:
    """Seconds per step."""
    return statistics.median(run["seconds"])


def add_exposed(steps: Steps, runs: dict[str, dict]):
    """Adds to the runs of a link how long each step's communication is exposed,
    in seconds, where that can be told, and whether it is an estimate."""
    compute = None
    if RUNTIME in runs and steps.variants[RUNTIME].is_traced:
        run = runs[RUNTIME]
        compute = median(run) - statistics.median(run["stalls"])
    for name, run in runs.items():
        if steps.variants[name].is_traced:
            run["exposed"] = statistics.median(run["stalls"])
            run["is_estimate"] = False
        elif compute is not None:
            run["exposed"] = max(0.0, median(run) - compute)
            run["is_estimate"] = True


def speed_up(runs: dict[str, dict], name: str,
             baselines: Iterable[str] = BASELINES) -> str:
    """Compared with the first of the baselines that was run; empty if none
    was. With several rounds, also the smallest and the largest of a round."""
    for baseline in baselines:
        if baseline not in runs:
            continue
        text = f"{median(runs[baseline]) / median(runs[name]):.2f}x"
        ratios = [statistics.median(base) / statistics.median(own) for base, own
                  in zip(runs[baseline]["rounds"], runs[name]["rounds"])]
        if len(ratios) > 1:
            text += f" ({min(ratios):.2f}x to {max(ratios):.2f}x)"
        return text
    return ""


def print_tables(steps: Steps, results: dict[str, dict[str, dict]]):
    """Prints the table of all steps, and the one of the host's times if the
    runtime took part. `results` are by link and name of the step."""
    header = ["step", "reported", "measured"]
    for link in results:
        header += [link, "speed-up"]
        header += ["planned"] if _is_planned(steps, link) else []
        header += ["busy"] if links.rate(link) else []
        header += ["exposed"]
    count = len(next(run["losses"] for runs in results.values()
                     for run in runs.values()))
    table = Table(header + ["peak memory", f"loss after {count}",
                            "largest difference"])
    baseline = None
    for name, variant in steps.variants.items():
        runs = [result[name] for result in results.values() if name in result]
        if not runs:
            continue
        between = [result[name] for link, result in results.items()
                   if link != "nvlink" and name in result]
        reported = steps.ranks * variant.bytes["node"]
        row = [name, f"{reported / 1e9:.2f} GB",
               f"{between[0]['bytes'] / 1e9:.2f} GB" if between else "-"]
        for link, result in results.items():
            planned = variant.planned.get(link)
            row += _cells(link, result, name, [
                f"{planned:.1f} ms" if planned else "-"
            ] if _is_planned(steps, link) else [])
        losses = runs[0]["losses"]
        baseline = baseline or losses
        difference = max(abs(a - b) for a, b in zip(losses, baseline))
        table.row(row + [f"{runs[0]['peak'] / 2**30:.2f} GiB",
                         f"{losses[-1]:.4f}", f"{difference:.4f}"])
    if any(run.get("is_estimate") for runs in results.values()
           for run in runs.values()):
        print(f"\n~: an estimate, the time by which the step exceeds the "
              f"compute of '{RUNTIME}'")
    _print_host_times(steps.variants, results)
    print_lost(steps.variants, results)


def print_lost(names: Iterable[str], results: dict[str, dict]):
    """A table of what TCP lost, if it lost anything."""
    rows = [[name, link, *map(str, lost.values())]
            for name in names for link, result in results.items()
            if name in result and any((lost := result[name]["lost"]).values())]
    if not rows:
        return
    print("\nSegments that TCP sent again in all timed steps together, those of them "
          "that\nhad not been lost, those that a receiver's full queue dropped, and how "
          "often\na sender waited until its timer ran out, which takes 200 ms:\n")
    table = Table(["step", "link", "sent again", "arrived twice", "dropped",
                   "timeouts"])
    for row in rows:
        table.row(row)


def _print_host_times(names: Iterable[str], results: dict[str, dict]):
    kinds = ["start", "wait", "queue"]
    rows = []
    for name in names:
        times = [result[name]["host_times"] for result in results.values()
                 if result.get(name, {}).get("host_times")]
        if times:
            rows.append([name, *(
                f"{max(time[kind] for time in times):.1f} usec"
                if kind in times[0] else "-" for kind in kinds)])
    if not rows:
        return
    print("\nMedian time that a collective's start and wait take on XLA's "
          "threads, and that\nqueueing it takes on the rank's own thread; the "
          "largest of all links:\n")
    table = Table(["host time", *kinds])
    for row in rows:
        table.row(row)


def _is_planned(steps: Steps, link: str) -> bool:
    return any(link in variant.planned for variant in steps.variants.values())


def _cells(link: str, runs: dict, name: str, planned: list[str]) -> list[str]:
    """The cells of a step for a link: time, speed-up, what was `planned`, for a
    link with a rate how busy it was, and exposed communication."""
    count = (4 if links.rate(link) else 3) + len(planned)
    if name not in runs:
        return ["-"] * count
    run = runs[name]
    seconds = median(run)
    cells = [f"{seconds * 1e3:.1f} ms", speed_up(runs, name) or "-", *planned]
    if links.rate(link):
        cells.append(f"{run['bytes'] * 8 / links.rate(link) / seconds:.0%}")
    if "exposed" in run:
        cells.append(f"{'~' * run['is_estimate']}{run['exposed'] * 1e3:.1f} ms "
                     f"({run['exposed'] / seconds:.0%})")
    return cells + ["-"] * (count - len(cells))
