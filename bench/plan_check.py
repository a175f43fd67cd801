#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares what is predicted with measured steps of docs/data/measured.json.

    python bench/plan_check.py [--plot FILE.svg]

Needs zpp-opt and JAX, no GPU. Each table of measured steps has the step as it is
written, with FSDP or with replicated weights. These rows are the only ones that
numbers are fitted to, one number each:

- on NVLink, the factor between the model's compute and the measured step;
- on each link between nodes, the rate that XLA's rings reach on it.

Exchanges with single peers reach the nominal rate at 50 Gbit/s. At 100 Gbit/s they
reach that of the gathers of 64 and 256 MiB (set "collectives"), and on the link
that is not shaped that of the rings. The latency of TCP is that of the same two
gathers: what they would take without bytes. For what was measured with NCCL's
longer messages, both are those of the all-reduces; and with one thread for each of
NCCL's channels, the rate is the nominal one there too. What is measured of the
links is shared by all ranks and both directions.

A prediction holds if it is within 15 % of the measurement. The order of two
steps is wrong if they differ by 3 % or more, measured, and the prediction says
the opposite. The exit status is 0 in any case; a table says what holds.
"""

import argparse
import dataclasses
import json
import pathlib
import tempfile

from lab import bars, planned, steps
from lab.measured import LINKS, Measured
from lab.tables import Table

LIMIT = 0.15
#: Options of zpp-opt. Most steps of these tables were measured before gradients were
#: rotated by default.
OFF = {"weights": "none", "gradients": "none", "secondary": "none",
       "tuning.rotate": 0}
ALL = OFF | {"weights": "i8", "gradients": "i8:i4", "secondary": "gpu"}
ROTATED = ALL | {"tuning.rotate": 32}
PORTABLE, RUNTIME = {"target": "portable"}, {"target": "cuda"}


@dataclasses.dataclass(frozen=True)
class Compared:
    """Steps of a set."""

    name: str
    per_node: int
    #: Steps -> options of zpp-opt; None: as it is written.
    rows: dict[str, dict | None]
    kind: str = "FSDP"
    #: The rate of exchanges with single peers at 100 Gbit/s, of `RATES`.
    rates: str = "gathers"
    #: The form of the step, where the set has several.
    form: str | None = None

    def times(self, data: Measured) -> dict[str, dict[str, float]]:
        """Returns step -> link -> ms."""
        equal = {"form": self.form} if self.form else {}
        return {step: data.row(self.name, step, **equal)["ms"] for step in self.rows}


TABLES = [
    Compared("portable", 2, {
        "FSDP, exported and loaded": None,
        "weights i8 (qwZ)": OFF | {"weights": "i8"} | PORTABLE,
        "secondary (hpZ)": OFF | {"secondary": "gpu"} | PORTABLE,
        "gradients i8:i4 (qgZ)": OFF | {"gradients": "i8:i4"} | PORTABLE,
        "all (ZeRO++)": ALL | PORTABLE}),
    Compared("portable-channels", 2, {
        "FSDP, exported and loaded": None, "all (ZeRO++)": ALL | PORTABLE}),
    Compared("forms", 2, {
        "FSDP": None, "all (b)": ROTATED | RUNTIME,
        "0.52 M (b)": ROTATED | {"weights": "i4:delta"} | RUNTIME},
        rates="nominal", form="0.88 B, layers"),
    Compared("runtime-f1546f6", 2, {
        "FSDP, exported and loaded": None, "all (b)": ALL | RUNTIME}),
    Compared("techniques", 2, {
        "FSDP, exported and loaded": None,
        "all, portable (a)": ALL | PORTABLE,
        "weights i8 (qwZ)": OFF | {"weights": "i8"} | RUNTIME,
        "secondary (hpZ)": OFF | {"secondary": "gpu"} | RUNTIME,
        "gradients i8:i4 (qgZ)": OFF | {"gradients": "i8:i4"} | RUNTIME,
        "all (b), then": ALL | RUNTIME}),
    # The only hop was in i8 then, which is the first of two formats.
    Compared("2x1-08d5be6", 1, {
        "FSDP, exported and loaded": None,
        "all (b)": ALL | {"gradients": "i8"} | RUNTIME}),
    Compared("2x1-88634e9", 1, {
        "FSDP": None,
        "weights i8, gradients i4 (0.77 M)":
            ALL | {"gradients": "i4"} | RUNTIME,
        "weights i4:delta, gradients i4 (0.52 M)":
            ALL | {"weights": "i4:delta", "gradients": "i4"} | RUNTIME},
        rates="all-reduces"),
    Compared("ddp-2x1", 1, {
        "DDP, exported": None,
        "all (b), i4 there and i8 back": OFF | {"gradients": "i4"} | RUNTIME,
        "the same, `prefetch-bytes` of 1 GiB":
            OFF | {"gradients": "i4", "tuning.prefetch-bytes": 2**30} | RUNTIME,
        "gradients i4, back i4":
            OFF | {"gradients": "i4", "reduced": "i4"} | RUNTIME},
        kind="DDP", rates="all-reduces"),
]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE.svg")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = list(check(Measured(), Model(pathlib.Path(folder))))
    table = Table(["set", "step", "link", "measured", "predicted", "error"])
    for row in rows:
        table.row([row["of"], row["step"], LINKS[row["link"]],
                   f"{row['measured']:.1f} ms", f"{row['predicted']:.1f} ms",
                   "fit" if row["is_fit"] else error_of(row)])
    checked = [row for row in rows if not row["is_fit"]]
    good = sum(abs(row["predicted"] / row["measured"] - 1) <= LIMIT
               for row in checked)
    wrong, pairs = count_order(rows)
    print(f"\nwithin {LIMIT:.0%}: {good} of {len(checked)}; in the right order: "
          f"{pairs - wrong} of {pairs} pairs")
    if args.plot:
        args.plot.write_text(bars.draw(
            "A training step, measured and predicted", {
                label: {"measured": row["measured"], "predicted": row["predicted"]}
                for label, row in zip(labels_of(checked), checked)}, "ms"))


def labels_of(rows: list[dict]) -> list[str]:
    """The step and the link of each row, and its set where another one has the same."""
    short = [f"{row['step']}, {LINKS[row['link']]}" for row in rows]
    return [f"{label} ({row['of']})" if short.count(label) > 1 else label
            for label, row in zip(short, rows)]


def error_of(row: dict) -> str:
    error = row["predicted"] / row["measured"] - 1
    return f"{error:+.1%}{'' if abs(error) <= LIMIT else ' misses'}"


def count_order(rows: list[dict]) -> tuple[int, int]:
    """Pairs of steps of one set and link that are in the wrong order, and all
    pairs that the measurement tells apart."""
    wrong = pairs = 0
    for index, one in enumerate(rows):
        for other in rows[:index]:
            if (one["of"], one["link"]) != (other["of"], other["link"]):
                continue
            ratio = one["measured"] / other["measured"]
            if max(ratio, 1 / ratio) >= 1.03:
                pairs += 1
                wrong += (ratio > 1) != (one["predicted"] > other["predicted"])
    return wrong, pairs


class Model:
    """Predicts the steps of bench/two_node.py; what it compiled is kept."""

    def __init__(self, folder: pathlib.Path):
        import jax
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", 4)
        self.folder = folder
        self.known: dict[tuple, pathlib.Path] = {}

    def rewritten(self, kind: str, per_node: int, options: dict | None
                  ) -> pathlib.Path:
        key = kind, per_node, json.dumps(options)
        if key not in self.known:
            path = self.folder / f"{len(self.known)}.mlir"
            if options is None:
                path.write_text(self._export(kind, per_node))
            else:
                pipeline = " ".join(f"{name}={value}" for name, value in (
                    {"mesh": self.mesh(per_node)} | options).items())
                planned.run_compiler([self.rewritten(kind, per_node, None),
                                      f"--zeropp={pipeline}", "-o", path])
            self.known[key] = path
        return self.known[key]

    def milliseconds(self, kind: str, per_node: int, options: dict | None,
                     links: str, scale: float) -> float:
        """The time of a step. options: those of --zeropp, or None."""
        return planned.milliseconds(self.rewritten(kind, per_node, options),
                                    self.mesh(per_node), "h200", links, scale)

    def mesh(self, per_node: int) -> str:
        return f"node:2,gpu:{per_node}"

    def _export(self, kind: str, per_node: int) -> str:
        import jax
        import zpp
        of = steps.describe("0.88 B", per_node, "cuda", kind=kind)
        described = steps.Steps(self.folder, of, 0, {})
        trainer = described.trainer()
        return zpp.export(
            jax.jit(trainer.step, donate_argnums=0), trainer.abstract_state(),
            trainer.abstract_batch(described.sequences),
            platforms=["cuda"]).text()


def check(data: Measured, model: Model):
    """Yields a dict per measured step and link, as the set "plan-check" has them."""
    for table in TABLES:
        exchange_100, latency = RATES[table.rates](data)
        measured = table.times(data)
        base = measured[next(step for step, options in table.rows.items()
                             if options is None)]
        scale = fit_scale(model, table.per_node, measured_nvlink(data, table.per_node))
        for link, target in base.items():
            if link == "nvlink":
                text = "node=400gbyte,gpu=400gbyte"
            else:
                ring = fit_ring(model, table, scale, latency, target)
                nominal = {"50gbit": 50.0, "100gbit": exchange_100}
                exchange = (nominal[link] / (2 * table.per_node)
                            if link in nominal else ring)
                text = (f"node={exchange:.3f}gbit/{ring:.3f}gbit"
                        f"+{latency:.0f}us,gpu=400gbyte")
            for step, options in table.rows.items():
                if link not in measured[step]:
                    continue
                yield {"of": table.name, "step": step, "link": link,
                       "measured": measured[step][link],
                       "predicted": model.milliseconds(
                           table.kind, table.per_node, options, text, scale),
                       "is_fit": options is None}


def fit_scale(model: Model, per_node: int, target: float) -> float:
    """The factor on compute with which FSDP on NVLink is as measured."""
    return solve(lambda scale: model.milliseconds(
        "FSDP", per_node, None, "node=400gbyte,gpu=400gbyte", scale), 0.7, target)


def fit_ring(model: Model, table: Compared, scale: float, latency: float,
             target: float) -> float:
    """The rate of rings per device, in Gbit/s, with which the step as it is
    written takes what was measured.
    Times are nearly linear in 1 / rate."""
    return 1 / solve(lambda inverse: model.milliseconds(
        table.kind, table.per_node, None,
        f"node={1 / inverse:.4f}gbit+{latency:.0f}us,gpu=400gbyte", scale),
        1 / 15, target)


def solve(function, guess: float, target: float) -> float:
    """Finds the argument for which a nearly linear function has a value."""
    left, right = guess, guess * 1.1
    low, high = function(left), function(right)
    for _ in range(4):
        left, right = right, left + (target - low) * (right - left) / (
            high - low)
        low, high = high, function(right)
        if abs(high - target) < 0.002 * target:
            break
    return right


def measured_nvlink(data: Measured, per_node: int) -> float:
    """FSDP on NVLink with this number of devices on a node."""
    if per_node == 1:
        return data.ms("2x1-08d5be6", "FSDP, exported and loaded", "nvlink")
    return data.ms("forms", "FSDP", "nvlink", form="0.88 B, layers")


def read_gather(data: Measured) -> tuple[float, float]:
    """Gbit/s and latency in usec of the gathers at 100 Gbit/s, with four threads for each
    of NCCL's channels: each of 4 devices sends its part of int8 codes and scales to the
    other node."""
    row, = data.rows("collectives", link="100gbit", collective="all_gather i8",
                     commit="f89e7f3")
    return fit_link({64: row["usec"]["64 MiB"] / 1e3, 256: row["usec"]["256 MiB"] / 1e3},
                    sent=1 / 2 * (1 + 2 / 128))


def read_all_reduce(data: Measured) -> tuple[float, float]:
    """The same of the last all-reduces at 100 Gbit/s: each of 2 devices sends
    int4 codes and scales of half of the bf16 elements, and int8 back."""
    usec = data.rows("all-reduces", link="100gbit")[-1]["usec"]
    scales = 2 / 128
    return fit_link({64: usec["64 MiB"] / 1e3, 128: usec["128 MiB"] / 1e3},
                    sent=2 * (1 / 8 * (1 + 2 * scales) + 1 / 4 * (1 + scales)))


#: Rates of exchanges -> a function of what was measured: Gbit/s, and the latency in usec.
RATES = {"gathers": read_gather, "all-reduces": read_all_reduce,
         "nominal": lambda data: (100.0, read_all_reduce(data)[1])}


def fit_link(times: dict[int, float], sent: float) -> tuple[float, float]:
    """Gbit/s and latency in usec of a link over which so many ms pass for so
    many MiB of a tensor, each of which is `sent` MiB on the link."""
    (small, first), (large, last) = times.items()
    per_mib = (last - first) / (large - small)
    return (sent * 2**20 * 8 / 1e6 / per_mib,
            max(first - small * per_mib, 0.0) * 1e3)


if __name__ == "__main__":
    main()
