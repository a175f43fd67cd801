#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tables of the ZeRO++ paper (arXiv 2306.10209), beside what zpp compiles
and predicts for the same meshes and sizes.

    python bench/paper_tables.py [--plot FILE.svg] [--sizes 18B 138B]

Needs zpp-opt and JAX, no GPU. The steps are those of the example GPT with a
`lax.scan` over its layers, in f16, for nodes of 16 V100: 24 nodes for the
throughput table, 8 for the ablation, 4 for hpZ beside MiCS, and 64 for the memory
of hpZ. The paper does not name widths and depths; the ones here give its sizes.

Each step is predicted twice. "In sequence" nothing hides: compute, and then what
the links between nodes need. This is how the paper's numbers for ZeRO-3 with 1
and with 8 links relate to each other. "zpp" is the prediction of `zpp plan`: XLA's
schedule for ZeRO-3, and the compiler's for ZeRO++.

Two numbers are fitted to one row of the baseline, ZeRO-3 in sequence with 138 B
and 2K tokens per GPU, with 1 and with 8 links: the factor on compute, and the
part of a link's rate that is reached. All others come from data sheets: 125
TFLOP/s, 900 GB/s of memory, 150 GB/s of NVLink, 100 Gbit/s per InfiniBand link,
which the 16 GPUs of a node share. "TFLOPs" are the paper's: 8 operations per
weight and token, with the forward pass that is done again.
"""

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from lab import bars
from lab.tables import Table

#: Size in the paper -> layers and width.
SHAPES = {"7.5B": (36, 4096), "10B": (48, 4096), "18B": (40, 6144),
          "49B": (60, 8192), "91B": (72, 10240), "100B": (80, 10240),
          "138B": (76, 12288)}
#: Table "End-to-end speedup of ZeRO++ on 384 GPUs": size, thousands of tokens ->
#: TFLOPs of the baseline and of ZeRO++ with 1 link, and with 8.
THROUGHPUT = {
    ("138B", 2): (19.96, 37.90, 47.55, 55.30),
    ("138B", 1): (11.25, 21.81, 34.19, 44.38),
    ("91B", 2): (19.99, 38.06, 47.74, 56.26),
    ("91B", 1): (11.27, 21.93, 34.49, 44.36),
    ("49B", 2): (20.06, 38.08, 48.05, 56.24),
    ("49B", 1): (11.27, 21.95, 34.54, 44.46),
    ("18B", 2): (25.98, 46.40, 47.31, 53.65),
    ("18B", 1): (14.15, 30.57, 31.27, 37.87),
}
#: Figure "Throughput of 18B models on 128 GPUs", as its text has it: speed-up
#: of each technique with 1 link and with 8.
ABLATION = {"qwZ": ("1.3-1.4x", "1.13-1.16x"), "hpZ": ("1.3-1.4x", "1.13-1.16x"),
            "qgZ": ("1.3-1.4x", "1.13-1.16x"), "ZeRO++": ("2.26x", "1.3x")}
#: Table "hpZ vs MiCS": TFLOPs of ZeRO, hpZ and MiCS on 64 GPUs.
MICS = {("7.5B", 1): ("36.99", "38.39", "38.96"),
        ("7.5B", 2): ("53.3", "54.4", "52.72"),
        ("18B", 1): ("51.47", "52.42", "OOM"),
        ("18B", 2): ("60.94", "61.44", "OOM")}
OFF = {"weights": "none", "gradients": "none", "secondary": "none"}
#: Steps as they are written: the axes over which weights are replicated.
PLACEMENTS = {"ZeRO-3": (), "MiCS": ("node",)}
TECHNIQUES = {
    "qwZ": OFF | {"weights": "i8"},
    "hpZ": OFF | {"secondary": "gpu"}, "qgZ": OFF | {"gradients": "i4:i4"},
    # The paper's formats.
    "ZeRO++": {"weights": "i8", "gradients": "i4:i4", "secondary": "gpu"}}
FITTED = ("138B", 2)


@dataclasses.dataclass(frozen=True)
class Shape:
    """A step: a size of SHAPES, thousands of tokens per GPU, and nodes."""

    size: str
    tokens: int
    nodes: int

    @property
    def mesh(self) -> str:
        return f"node:{self.nodes},gpu:16"


class Model:
    """Compiles and predicts; keeps what it compiled."""

    def __init__(self, folder: pathlib.Path):
        import jax
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", 1024)
        from zpp import find_compiler
        self.compiler = find_compiler()
        self.folder = folder
        self.parameters: dict[str, int] = {}
        #: The two fitted numbers.
        self.scale = self.reached = 1.0

    @functools.cache  # noqa: B019
    def path(self, shape: Shape, technique: str) -> pathlib.Path:
        path = self.folder / f"{shape}-{technique}.mlir".replace(" ", "")
        if technique in PLACEMENTS:
            path.write_text(self._export(shape, PLACEMENTS[technique]))
            return path
        options = TECHNIQUES[technique]
        pipeline = {"mesh": shape.mesh, "target": "cuda"} | options
        words = " ".join(f"{name}={value}" for name, value in pipeline.items())
        self._run([self.path(shape, "ZeRO-3"), f"--zeropp={words}", "-o", path])
        return path

    def report(self, shape: Shape, technique: str, links: int) -> dict:
        """links: InfiniBand links of a node."""
        report = self.folder / "report.json"
        speed = f"node={self.reached * links * 100 / 16}gbit,gpu=150gbyte"
        self._run([self.path(shape, technique), "-o", os.devnull,
                   f"--zero-report=mesh={shape.mesh} device=v100 links={speed} "
                   f"compute-scale={self.scale} format=json output={report}"])
        return json.loads(report.read_text())

    def tflops(self, shape: Shape, technique: str, links: int,
               in_sequence: bool) -> float:
        time = self.report(shape, technique, links)["time"]
        usec = (time["compute_usec"] + time["busy_usec"]["node"] if in_sequence
                else time["usec"])
        return self.count(shape) / usec / 1e6

    def count(self, shape: Shape) -> float:
        self.path(shape, "ZeRO-3")
        return 8 * self.parameters[shape.size] * shape.tokens * 1024

    def fit(self):
        """Finds the two numbers: compute * scale + busy / reached is the
        baseline's time with 1 link and with 8."""
        shape = Shape(*FITTED, 24)
        slow, _, fast, _ = THROUGHPUT[FITTED]
        usec = [self.count(shape) / tflops / 1e6 for tflops in (slow, fast)]
        times = [self.report(shape, "ZeRO-3", links)["time"]
                 for links in (1, 8)]
        busy = [time["busy_usec"]["node"] for time in times]
        self.reached = (busy[0] - busy[1]) / (usec[0] - usec[1])
        self.scale = (usec[1] - busy[1] / self.reached) / times[1][
            "compute_usec"]

    def _export(self, shape: Shape, replicated: tuple[str, ...]) -> str:
        import gpt
        import jax
        import zpp
        layers, width = SHAPES[shape.size]
        trainer = gpt.Trainer(gpt.Config(
            layers=layers, width=width, heads=width // 128, vocab=51200,
            context=1024, mesh=(("node", shape.nodes), ("gpu", 16)),
            replicated=replicated, dtype="float16", scan=True))
        self.parameters[shape.size] = trainer.model_elements()
        batch = shape.nodes * 16 * shape.tokens
        return zpp.export(
            jax.jit(trainer.step, donate_argnums=0), trainer.abstract_state(),
            trainer.abstract_batch(batch)).text()

    def _run(self, words: list):
        found = subprocess.run(
            [self.compiler, *map(str, words), "--verify-each=false"],
            stderr=subprocess.PIPE, text=True, check=False)
        if found.returncode:
            sys.exit(found.stderr[-2000:])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE.svg")
    parser.add_argument("--sizes", nargs="+", choices=list(SHAPES),
                        default=list(SHAPES))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Model(pathlib.Path(folder))
        model.fit()
        print(f"fitted: compute x {model.scale:.2f}, {model.reached:.0%} of the "
              f"rate of a link\n")
        print_volume(model)
        speed_ups = print_throughput(model, args.sizes)
        print_ablation(model)
        print_memory(model)
        print_mics(model)
    if args.plot:
        args.plot.write_text(bars.draw(
            "Speed-up of ZeRO++ on 384 V100: the paper, and predicted by zpp",
            speed_ups, "x"))


def print_volume(model: Model):
    print("### Volume between nodes, 18 B on 384 GPUs, in M\n")
    table = Table(["", "forward gather", "backward gather", "scatter", "step"])
    table.row(["ZeRO-3, paper", "1", "1", "1", "3"])
    table.row(volume(model, "ZeRO-3"))
    table.row(["ZeRO++, paper", "0.5", "0", "0.25", "0.75"])
    table.row(volume(model, "ZeRO++"))
    print()


def volume(model: Model, technique: str) -> list[str]:
    report = model.report(Shape("18B", 2, 24), technique, 1)
    kinds = {("weight", "forward"): 0, ("weight", "backward"): 0,
             ("gradient", "backward"): 0}
    unit = report["total"]["after"]["node"] / report["total"]["after_in_M"][
        "node"]
    for entry in report["collectives"]:
        kind = entry["role"], entry["phase"]
        if kind in kinds:
            kinds[kind] += entry["after"]["node"]
    return [f"{technique}, zpp", *(f"{count / unit:.3f}"
                                   for count in kinds.values()),
            f"{report['total']['after_in_M']['node']:.3f}"]


def print_throughput(model: Model, sizes: list[str]) -> dict:
    speed_ups = {}
    for links, first in ((1, 0), (8, 2)):
        print(f"### TFLOPs per GPU on 384 GPUs, {links} link"
              f"{'s' * (links > 1)} per node\n")
        table = Table([
            "size", "tokens", "ZeRO-3, paper", "in sequence", "ZeRO++, paper",
            "in sequence", "speed-up, paper", "in sequence", "zpp"])
        for (size, tokens), paper in THROUGHPUT.items():
            if size not in sizes:
                continue
            shape = Shape(size, tokens, 24)
            base, fast = paper[first:first + 2]
            slow_fast = {way: [model.tflops(shape, technique, links, way)
                               for technique in ("ZeRO-3", "ZeRO++")]
                         for way in (True, False)}
            ratios = {way: found[1] / found[0]
                      for way, found in slow_fast.items()}
            is_fit = (size, tokens) == FITTED
            table.row([
                size, f"{tokens}K", f"{base:.1f}",
                f"{slow_fast[True][0]:.1f}{' (fit)' if is_fit else ''}",
                f"{fast:.1f}", f"{slow_fast[True][1]:.1f}",
                f"{fast / base:.2f}x", f"{ratios[True]:.2f}x",
                f"{ratios[False]:.2f}x"])
            speed_ups[f"{size}, {tokens}K tokens, {links} link"
                      f"{'s' * (links > 1)}"] = {
                "paper": fast / base, "in sequence": ratios[True],
                "zpp": ratios[False]}
        print()
    return speed_ups


def print_ablation(model: Model):
    print("### Speed-up of each technique, 18 B on 128 GPUs, 1K tokens\n")
    table = Table(["technique", "1 link, paper", "in sequence", "zpp",
                   "8 links, paper", "in sequence", "zpp"])
    shape = Shape("18B", 1, 8)
    for technique, paper in ABLATION.items():
        row = [technique]
        for links, text in zip((1, 8), paper):
            row.append(text)
            for way in (True, False):
                found = [model.tflops(shape, name, links, way)
                         for name in (technique, "ZeRO-3")]
                row.append(f"{found[0] / found[1]:.2f}x")
        table.row(row)
    print()


def print_memory(model: Model):
    """The paper counts 16 bytes of state per weight."""
    print("### Memory of model states, 100 B on 1024 GPUs with secondary groups "
          "of 16\n")
    table = Table(["", "GB per GPU", "compared with ZeRO-3"])
    shape = Shape("100B", 1, 64)
    secondary = {technique: model.report(shape, technique, 1)["total"][
        "secondary_bytes"] for technique in ("hpZ", "ZeRO++")}
    weights = model.parameters["100B"]
    state = 16 * weights / 1024
    table.row(["ZeRO-3", f"{state / 1e9:.2f}", "1.0x"])
    table.row(["hpZ, paper", "", "8.9x"])
    for name, technique in (("hpZ, zpp", "hpZ"),
                            ("qwZ + hpZ, zpp: kept as int8", "ZeRO++")):
        total = state + secondary[technique]
        table.row([name, f"{total / 1e9:.2f}", f"{total / state:.1f}x"])
    print()


def print_mics(model: Model):
    """MiCS is a step whose weights are replicated over the nodes: it gathers and
    scatters within a node, and sums gradients over the nodes."""
    print("### hpZ beside MiCS on 4 nodes of 16: memory of states and bytes "
          "between nodes, per GPU and step\n")
    names = ("ZeRO-3", "hpZ", "MiCS")
    table = Table(["size", "tokens", "ZeRO / hpZ / MiCS, paper", "in sequence",
                   *(f"memory: {name}" if name == names[0] else name
                     for name in names),
                   *(f"between nodes: {name}" if name == names[0] else name
                     for name in names)])
    for (size, tokens), paper in MICS.items():
        shape = Shape(size, tokens, 4)
        reports = [model.report(shape, name, 8) for name in names]
        tflops = [model.tflops(shape, name, 8, True) for name in names]
        table.row([size, f"{tokens}K", " / ".join(paper),
                   " / ".join(f"{value:.1f}" for value in tflops),
                   *(f"{memory(report) / 1e9:.1f} GB" for report in reports),
                   *(f"{report['total']['after']['node'] / 1e9:.2f} GB"
                     for report in reports)])


def memory(report: dict) -> float:
    """Bytes of a device's states: the step has 12 bytes per weight in f32, and the
    paper counts 16."""
    return (report["time"]["state_bytes"] * 16 / 12 +
            report["total"]["secondary_bytes"])


if __name__ == "__main__":
    main()
