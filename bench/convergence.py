#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a GPT on real text as FSDP and as ZeRO++, and compares the validation
losses.

    python bench/convergence.py --export DIR --text PACKAGE.deb ...   # with zpp-opt
    python bench/convergence.py --run DIR --seconds 540 [--gpus 1]    # on GPUs
    python bench/convergence.py --table DIR

--export writes the steps and the text into a folder, --run trains what is
missing there, and --table prints what has been found and draws curves.svg. --run
ends after --seconds and saves what it was doing; called again it goes on. Runs
that are finished are in results/*.json, a few KiB each, so that a folder may
travel between machines.

The text are the pages of Debian packages, without HTML: linux-doc-6.1 (GPL-2)
and python3.11-doc (PSF-2) have 72 MB together. Tokens are bytes. The last 5 %
are for validation: their loss is that of the step as it is written, with weights
that are not quantized, on the same sequences for all.

There is a process for each of the 2 x 2 ranks. They may share GPUs (--gpus), for
which NCCL 2.30 or newer and NCCL_MULTI_RANK_GPU_ENABLE=1 are needed. With
--platform cpu, one process trains on CPU devices.
"""

import argparse
import dataclasses
import gzip
import hashlib
import io
import json
import lzma
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tarfile
import time

import numpy as np

import lab
from lab import launch
from lab.tables import Table

MESH = (("node", 2), ("gpu", 2))
OFF = {"weights": "none", "gradients": "none", "secondary": "none"}
WEIGHTS = OFF | {"weights": "i8", "secondary": "gpu"}
PAPER = {"weights": "i8", "secondary": "gpu", "gradients": "i4:i4"}
#: Rewritten steps: name -> options.
VARIANTS = {
    "weights": WEIGHTS, "paper": PAPER,
    "default": PAPER | {"gradients": "i8:i4"},
    "delta": PAPER | {"weights": "i4:delta", "gradients": "i8:i4"},
}
#: Rows: name -> the step of the first and of the second half, None for FSDP, and
#: the number of seeds.
ROWS = {
    "FSDP": (None, None, 3),
    "qwZ + hpZ": ("weights", "weights", 2),
    "ZeRO++, i4:i4 (paper)": ("paper", "paper", 2),
    "ZeRO++, i8:i4 (default)": ("default", "default", 2),
    "ZeRO++, weights i4:delta": ("delta", "delta", 2),
    "i4:i4 in the first half (5.4)": ("paper", "weights", 2),
}
LIMIT = 0.005
VALIDATION = 0.05
#: Of packages and folders: what is no text that somebody wrote to be read.
SKIPPED = (".html", ".js", ".css", ".svg", ".png", ".gif", ".woff", ".woff2",
           ".dot", ".inv", ".json", ".py")
CHUNK = 25
LAUNCH_SECONDS = 3600


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What is trained, as experiment.json has it."""

    #: Options of gpt.Config.
    config: dict
    #: Of all devices together, per step.
    sequences: int
    steps: int
    #: Steps between validations, and batches of each.
    every: int
    batches: int
    platform: str
    variants: tuple[str, ...]

    def trainer(self):
        import gpt
        return gpt.Trainer(gpt.Config(**self.config | {"mesh": MESH}))

    def rows(self) -> dict:
        return {name: row for name, row in ROWS.items()
                if {*row[:2]} - {None} <= set(self.variants)}

    def runs(self) -> list[tuple[str, int]]:
        """Rows and seeds, the first seed of every row first."""
        return sorted(((name, seed) for name, (*_, seeds) in self.rows().items()
                       for seed in range(seeds)), key=lambda run: run[1])


def full() -> dict:
    return {"config": dict(layers=12, width=960, heads=15, vocab=256,
                           context=512, learning_rate=3e-4,
                           checkpoint="policy"),
            "sequences": 16, "steps": 2000, "every": 200, "batches": 8}


def tiny() -> dict:
    return {"config": dict(layers=1, width=64, heads=2, vocab=256, context=32,
                           learning_rate=3e-3, checkpoint="policy"),
            "sequences": 8, "steps": 60, "every": 20, "batches": 4}


# Text --------------------------------------------------------------------


def read_text(paths: list[pathlib.Path]) -> bytes:
    """All pages of packages, folders and files, each once."""
    pages, seen = [], set()
    for path in paths:
        for name, content in sorted(find_pages(path)):
            if name.endswith(".gz"):
                content = gzip.decompress(content)
            digest = hashlib.sha256(content).digest()
            try:
                content.decode()
            except UnicodeDecodeError:
                continue
            if digest not in seen:
                seen.add(digest)
                pages.append(content)
    return b"\n".join(pages)


def find_pages(path: pathlib.Path):
    def is_page(name):
        return (not name.removesuffix(".gz").endswith(SKIPPED)
                and "changelog" not in name)

    if path.is_dir():
        for file in path.rglob("*"):
            if file.is_file() and is_page(file.name):
                yield str(file), file.read_bytes()
    elif path.suffix == ".deb":
        archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", path],
                                 stdout=subprocess.PIPE, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as members:
            for member in members:
                if member.isfile() and is_page(member.name):
                    yield member.name, members.extractfile(member).read()
    else:
        yield path.name, path.read_bytes()


class Tokens:
    """Windows of the text of an exported folder."""

    def __init__(self, folder: pathlib.Path, experiment: Experiment):
        text = np.frombuffer(
            lzma.decompress((folder / "text.xz").read_bytes()), np.uint8)
        self.length = experiment.config["context"] + 1
        self.sequences = experiment.sequences
        border = int(len(text) * (1 - VALIDATION))
        self.train, self.held_out = text[:border], text[border:]

    def batch(self, seed: int, step: int) -> np.ndarray:
        """The same for every row: the seed is that of the data's order."""
        return self._windows(self.train, np.random.default_rng([seed, step]))

    def validation(self, number: int) -> np.ndarray:
        return self._windows(self.held_out,
                             np.random.default_rng([2**31, number]))

    def _windows(self, text, rng) -> np.ndarray:
        starts = rng.integers(0, len(text) - self.length, self.sequences)
        return text[starts[:, None] + np.arange(self.length)].astype(np.int32)


# Export ------------------------------------------------------------------


def export(folder: pathlib.Path, text: bytes, settings: dict, platform: str):
    """Writes the steps and the text; needs zpp-opt."""
    import jax
    import zpp
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    experiment = Experiment(**settings, platform=platform, variants=())
    trainer = experiment.trainer()
    step = zpp.export(
        jax.jit(trainer.step, donate_argnums=0), trainer.abstract_state(),
        trainer.abstract_batch(experiment.sequences), platforms=[platform])
    for name, options in VARIANTS.items():
        try:
            chosen = zpp.Options(mesh="node:2,gpu:2", target="portable",
                                 **options)
            rewritten = zpp.rewrite(step, chosen)
        except (TypeError, ValueError) as error:
            print(f"left out: {name}: {error}")
            continue
        if getattr(rewritten.step, "state", None) is not None:
            print(f"left out: {name}: it keeps state between calls, which only "
                  f"zpp.jit does")
            continue
        zpp.save(rewritten, folder / f"{name}.zpp")
        found.append(name)
    experiment = dataclasses.replace(experiment, variants=tuple(found))
    (folder / "text.xz").write_bytes(lzma.compress(text))
    (folder / "experiment.json").write_text(
        json.dumps(dataclasses.asdict(experiment), indent=1))
    print(f"{trainer.model_elements() / 1e6:.0f} M parameters, "
          f"{len(text) / 1e6:.1f} MB of text, "
          f"{len(experiment.runs())} runs of {experiment.steps} steps")


def use_cpu():
    """Four CPU devices in this process."""
    import jax
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 4)


def read(folder: pathlib.Path) -> Experiment:
    content = json.loads((folder / "experiment.json").read_text())
    return Experiment(**content | {"variants": tuple(content["variants"])})


# Run ---------------------------------------------------------------------


def result_path(folder: pathlib.Path, row: str, seed: int) -> pathlib.Path:
    label = "".join(c if c.isalnum() else "-" for c in row)
    return folder / "results" / f"{label}-{seed}.json"


class Runner:
    """Trains on the devices of this process."""

    def __init__(self, folder: pathlib.Path, end: float):
        self.folder, self.end = folder, end
        self.experiment = read(folder)
        self.tokens = Tokens(folder, self.experiment)
        self.trainer = self.experiment.trainer()
        import jax
        self.jax = jax
        #: As it is written; without donation it validates.
        self.steps = {None: jax.jit(self.trainer.step, donate_argnums=0)}
        self.validate = jax.jit(lambda state, batch: self.trainer.step(
            state, batch)[1])

    def step(self, variant: str | None):
        if variant not in self.steps:
            import zpp
            self.steps[variant] = zpp.load(self.folder / f"{variant}.zpp")
        return self.steps[variant]

    def run(self):
        for row, seed in self.experiment.runs():
            if result_path(self.folder, row, seed).exists():
                continue
            if not self.train(row, seed):
                return

    def train(self, row: str, seed: int) -> bool:
        """Trains one run to its end; False if the time is over before."""
        first, second, _ = self.experiment.rows()[row]
        state, done, curve = self.restore(row, seed)
        half = self.experiment.steps // 2
        for index in range(done, self.experiment.steps):
            if index % CHUNK == 0 and self.is_over():
                self.save(row, seed, state, index, curve)
                return False
            batch = self.trainer.batch(self.tokens.batch(seed, index))
            state, loss = self.step(first if index < half else second)(
                state, batch)
            if (index + 1) % self.experiment.every == 0:
                curve.append((index + 1, float(loss), self.loss(state)))
                if self.jax.process_index() == 0:
                    print(f"{row}, seed {seed}: step {index + 1}, validation "
                          f"{curve[-1][2]:.4f}", flush=True)
        if self.jax.process_index() == 0:
            path = result_path(self.folder, row, seed)
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps({"row": row, "seed": seed,
                                        "curve": curve}))
        self.state_path(row, seed).unlink(missing_ok=True)
        return True

    def loss(self, state) -> float:
        return statistics.mean(
            float(self.validate(state, self.trainer.batch(
                self.tokens.validation(number))))
            for number in range(self.experiment.batches))

    def is_over(self) -> bool:
        """The first process decides for all."""
        over = np.int32(time.monotonic() > self.end)
        if self.jax.process_count() == 1:
            return bool(over)
        from jax.experimental import multihost_utils
        return bool(multihost_utils.broadcast_one_to_all(over))

    def state_path(self, row: str, seed: int) -> pathlib.Path:
        path = result_path(self.folder, row, seed)
        return path.with_name(f"{path.stem}-{self.jax.process_index()}.npz")

    def save(self, row: str, seed: int, state, done: int, curve: list):
        """What each process holds; two processes may not mix."""
        arrays = {f"{number}-{index}": np.asarray(shard.data)
                  for number, leaf in enumerate(self.jax.tree.leaves(state))
                  for index, shard in enumerate(leaf.addressable_shards)}
        path = self.state_path(row, seed)
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(".part")
        with open(partial, "wb") as file:
            np.savez(file, done=done, curve=json.dumps(curve), **arrays)
        partial.rename(path)

    def restore(self, row: str, seed: int):
        state = self.trainer.init()
        path = self.state_path(row, seed)
        if not path.exists():
            return state, 0, []
        with np.load(path) as saved:
            leaves, tree = self.jax.tree.flatten(state)
            for number, leaf in enumerate(leaves):
                parts = [self.jax.device_put(saved[f"{number}-{index}"],
                                             shard.device)
                         for index, shard in enumerate(
                             leaf.addressable_shards)]
                leaves[number] = (
                    self.jax.make_array_from_single_device_arrays(
                        leaf.shape, leaf.sharding, parts))
            return (self.jax.tree.unflatten(tree, leaves), int(saved["done"]),
                    json.loads(str(saved["curve"])))


def run(folder: pathlib.Path, seconds: float, gpus: int):
    """Trains what is missing, in a process per rank, or on CPU in this one."""
    experiment = read(folder)
    if experiment.platform == "cpu":
        use_cpu()
        Runner(folder, time.monotonic() + seconds).run()
        return
    launch.prepare()
    port, ranks = launch.free_port(), math.prod(size for _, size in MESH)
    environment = {
        "PYTHONPATH": os.pathsep.join((
            str(lab.ROOT / "bench"), os.environ.get("PYTHONPATH", ""))),
        "PYTHONUNBUFFERED": "1", "NCCL_NVLS_ENABLE": "0",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
        # Ranks that share a GPU share its memory.
        "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.8 * gpus / ranks:.2f}"}
    if gpus < ranks:
        environment["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    launch.run([
        launch.Process([sys.executable, __file__, "--run", folder, "--seconds",
                        seconds, "--gpus", gpus, "--port", port, "--rank", rank],
                       environment, folder / f"rank-{rank}.txt")
        for rank in range(ranks)], seconds + LAUNCH_SECONDS,
        lambda line: print(line, end="", flush=True)
        if ", seed " in line else None)


def run_rank(args):
    end = time.monotonic() + args.seconds
    import jax
    jax.distributed.initialize(
        f"localhost:{args.port}", math.prod(size for _, size in MESH),
        args.rank, local_device_ids=[args.rank % args.gpus])
    Runner(args.run, end).run()
    jax.distributed.shutdown()


# Table -------------------------------------------------------------------


def read_results(folder: pathlib.Path) -> dict[str, list[dict]]:
    found = {}
    for path in sorted((folder / "results").glob("*.json")):
        result = json.loads(path.read_text())
        found.setdefault(result["row"], []).append(result)
    return {row: found[row] for row in ROWS if row in found}


def print_table(results: dict[str, list[dict]]) -> bool:
    """True if every row holds: within the spread of FSDP's seeds, or at most
    0.5 % above its mean."""
    if "FSDP" not in results:
        sys.exit("expected a finished run of FSDP, but got none")
    last = {row: [run["curve"][-1][2] for run in runs]
            for row, runs in results.items()}
    base = statistics.mean(last["FSDP"])
    limit = max(max(last["FSDP"]), base * (1 + LIMIT))
    table = Table(["step", "seeds", "validation loss", "smallest", "largest",
                   "compared with FSDP", "holds"])
    everything = True
    for row, losses in last.items():
        mean = statistics.mean(losses)
        holds = mean <= limit
        everything &= holds
        table.row([row, len(losses), f"{mean:.4f}", f"{min(losses):.4f}",
                   f"{max(losses):.4f}", f"{mean / base - 1:+.2%}",
                   "yes" if holds else "no"])
    return everything


def draw(results: dict[str, list[dict]]) -> str:
    """Curves of the validation loss, the mean of the seeds, as SVG."""
    width, height, left, top = 720, 400, 60, 40
    colors = ("#818b98", "#0969da", "#bc4c00", "#8250df", "#1a7f37", "#bf3989")
    curves = {}
    for row, runs in results.items():
        steps = [step for step, *_ in runs[0]["curve"]]
        curves[row] = [(step, statistics.mean(run["curve"][index][2]
                                              for run in runs))
                       for index, step in enumerate(steps)]
    points = [point for curve in curves.values() for point in curve]
    most = max(step for step, _ in points)
    low, high = (pick(loss for _, loss in points) for pick in (min, max))
    spread = max(high - low, 1e-6)

    def place(step, loss):
        return (left + (width - left - 20) * step / most,
                top + (height - top - 40) * (high - loss) / spread)

    parts = []
    for number, (row, curve) in enumerate(curves.items()):
        color = colors[number % len(colors)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in
                        (place(*point) for point in curve))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" '
                     f'stroke-width="1.5"/>')
        parts.append(f'<text x="{width - 240}" y="{top + 16 * number + 12}" '
                     f'fill="{color}">{row}</text>')
    for loss in (low, (low + high) / 2, high):
        parts.append(f'<text x="8" y="{place(0, loss)[1] + 4:.0f}">{loss:.3f}'
                     f'</text>')
    for step in (most // 2, most):
        parts.append(f'<text x="{place(step, low)[0] - 16:.0f}" '
                     f'y="{height - 16}">{step}</text>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
        f'{height}" width="{width}" height="{height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<text x="8" y="20" font-weight="bold">Validation loss by step, mean of '
        'the seeds</text>', *parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    stage = parser.add_mutually_exclusive_group(required=True)
    stage.add_argument("--export", type=pathlib.Path, metavar="DIR")
    stage.add_argument("--run", type=pathlib.Path, metavar="DIR")
    stage.add_argument("--table", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--text", type=pathlib.Path, nargs="+", default=[],
                        metavar="FILE", help="packages, folders or files")
    parser.add_argument("--tiny", action="store_true",
                        help="export a small model for a few steps")
    parser.add_argument("--steps", type=int, help="export for so many steps")
    parser.add_argument("--platform", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--gpus", type=int, default=4)
    for name in ("--port", "--rank"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.export:
        settings = tiny() if args.tiny else full()
        if args.steps:
            settings |= {"steps": args.steps, "every": max(1, args.steps // 10)}
        text = read_text(args.text)
        if len(text) < 100 * settings["config"]["context"]:
            sys.exit(f"expected more text, but got {len(text)} bytes")
        use_cpu()
        export(args.export, text, settings, args.platform)
    elif args.rank is not None:
        run_rank(args)
    elif args.run:
        run(args.run, args.seconds, args.gpus)
    else:
        results = read_results(args.table)
        print_table(results)
        (args.table / "curves.svg").write_text(draw(results))


if __name__ == "__main__":
    main()
