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
ends after --seconds and saves what it was doing; called again it goes on. The
losses so far are in results/*.json, a few KiB each, so that a folder may travel
between machines. The table has the last step that all runs have reached.

The text are the pages of Debian packages, without HTML: linux-doc-6.1 (GPL-2)
and python3.11-doc (PSF-2) have 72 MB together. Tokens are bytes. Each 20th piece of
4 KiB is for validation: its loss is that of the step as it is written, with
weights that are not quantized, on the same sequences for all. --experts exports a
model with experts, whose rows of tokens travel as int8.

The steps are those that zpp writes for 2 x 2 devices, target portable. All four
run on one device (`lab.one_device`): they compute what four would, and nothing
travels. There is a process for each row of the table, several on a GPU.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import lzma
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

import lab
from lab import stages, text
from lab.tables import Table

MESH = (("node", 2), ("gpu", 2))
OFF = {"weights": "none", "gradients": "none", "secondary": "none"}
WEIGHTS = OFF | {"weights": "i8", "secondary": "gpu"}
ROTATED, UNROTATED = {"tuning": {"rotate": 32}}, {"tuning": {"rotate": 0}}
PAPER = {"weights": "i8", "secondary": "gpu", "gradients": "i4:i4"} | UNROTATED
DEFAULT = PAPER | {"gradients": "i8:i4"} | ROTATED
#: Rewritten steps: name -> options.
VARIANTS: dict[str, dict[str, Any]] = {
    "weights": WEIGHTS, "paper": PAPER, "paper-rotate": PAPER | ROTATED,
    "unrotated": DEFAULT | UNROTATED, "default": DEFAULT,
    "delta": DEFAULT | {"weights": "i4:delta"} | UNROTATED,
}
#: Those of a model with experts.
OF_EXPERTS: dict[str, dict[str, Any]] = {
    "exchanges": OFF | {"exchanges": "i8"},
    "default-exchanges": DEFAULT | {"exchanges": "i8"},
}
#: Rows: name -> the step of the first and of the second half.
ROWS = {
    "FSDP": ("fsdp", "fsdp"),
    "qwZ + hpZ": ("weights", "weights"),
    "ZeRO++, i4:i4 (paper)": ("paper", "paper"),
    "ZeRO++, i4:i4, rotate=32": ("paper-rotate", "paper-rotate"),
    "ZeRO++, i8:i4": ("unrotated", "unrotated"),
    "ZeRO++, i8:i4, rotate=32 (default)": ("default", "default"),
    "ZeRO++, i8:i4, weights i4:delta": ("delta", "delta"),
    "i4:i4 in the first half (5.4)": ("paper", "weights"),
    "exchanges i8": ("exchanges", "exchanges"),
    "ZeRO++, i8:i4, rotate=32, exchanges i8": ("default-exchanges", "default-exchanges"),
}
#: Orders of the data. All rows have the same, because one may be 1 % better than
#: another.
SEEDS = 5
LIMIT = 0.005
CHUNK = 25
#: For ranks to end and save after --seconds.
GRACE_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The training, as experiment.json has it."""

    #: Options of gpt.Config.
    config: dict
    #: Sequences of all devices together, per step.
    sequences: int
    steps: int
    #: Steps between validations, and batches of each.
    every: int
    batches: int
    platform: str
    variants: tuple[str, ...]

    def trainer(self, mesh=(("node", 1), ("gpu", 1))):
        import gpt
        return gpt.Trainer(gpt.Config(
            **self.config, mesh=mesh, is_scheduled=True))

    def tokens(self, folder: pathlib.Path) -> text.Tokens:
        return text.Tokens(folder, self.config["context"], self.sequences)

    def rows(self) -> dict:
        return {name: row for name, row in ROWS.items()
                if {*row} <= set(self.variants)}


def full() -> dict:
    return {"config": dict(layers=12, width=960, heads=15, vocab=256,
                           context=512, learning_rate=3e-4,
                           checkpoint="policy"),
            "sequences": 16, "steps": 1200, "every": 100, "batches": 8}


def experts() -> dict:
    """Eight experts in each layer, 22 M weights."""
    settings = full()
    return settings | {"steps": 600, "config": settings["config"] | dict(
        layers=5, width=256, heads=4, learning_rate=1e-3, experts=8)}


def tiny() -> dict:
    return {"config": dict(layers=1, width=64, heads=2, vocab=256, context=32,
                           learning_rate=3e-3, checkpoint="policy"),
            "sequences": 8, "steps": 60, "every": 20, "batches": 4}


# Export ------------------------------------------------------------------


def export(folder: pathlib.Path, pages: bytes, settings: dict, platform: str):
    """Writes the steps and the text; needs zpp-opt and four devices."""
    import jax
    import zpp
    folder.mkdir(parents=True, exist_ok=True)
    text.write(folder, pages)
    variants = OF_EXPERTS if "experts" in settings["config"] else VARIANTS
    experiment = Experiment(**settings, platform=platform,
                            variants=("fsdp", *variants))
    trainer = experiment.trainer(MESH)
    step = zpp.export(
        jax.jit(trainer.step), trainer.abstract_state(),
        trainer.abstract_batch(experiment.sequences), platforms=[platform])
    write(folder / "fsdp.step", step, platform)
    for name, options in variants.items():
        rewritten = zpp.rewrite(step, zpp.Options(
            mesh="node:2,gpu:2", target="portable", **options)).step
        write(folder / f"{name}.step", rewritten, platform)
        if rewritten.start is not None:
            write(folder / f"{name}-start.step", rewritten.start, platform)
    (folder / "experiment.json").write_text(
        json.dumps(dataclasses.asdict(experiment), indent=1))
    print(f"{trainer.model_elements() / 1e6:.0f} M parameters, "
          f"{len(pages) / 1e6:.1f} MB of text, "
          f"{len(experiment.rows()) * SEEDS} runs of {experiment.steps} steps")


def write(path: pathlib.Path, step, platform: str):
    """Writes a step of zpp so that it runs on one device. Its arguments and
    results are flat."""
    import jax
    from lab import one_device
    taken = step.state.arguments if step.state else ()
    exported = jax.export.export(
        jax.jit(one_device.Program(step.text(locations=False))),
        platforms=[platform])(*(
            jax.ShapeDtypeStruct(aval.shape, aval.dtype)
            for aval in (*step.exported.in_avals, *taken)))
    path.write_bytes(lzma.compress(bytes(exported.serialize()), preset=1))


def use_cpu():
    """Four CPU devices in this process."""
    import jax
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 4)


def read(folder: pathlib.Path) -> Experiment:
    content = json.loads((folder / "experiment.json").read_text())
    return Experiment(**content | {"variants": tuple(content["variants"])})


# Run ---------------------------------------------------------------------


def label(row: str) -> str:
    return re.sub(r"[^0-9A-Za-z]+", "-", row).strip("-")


def result_path(folder: pathlib.Path, row: str, seed: int) -> pathlib.Path:
    return folder / "results" / f"{label(row)}-{seed}.json"


def load(folder: pathlib.Path, name: str):
    """A step that `write` has written, compiled."""
    import jax
    exported = jax.export.deserialize(
        bytearray(lzma.decompress((folder / f"{name}.step").read_bytes())))
    return jax.jit(exported.call).lower(*exported.in_avals).compile()


@dataclasses.dataclass
class Training:
    """One run: a row with one order of the data."""

    row: str
    seed: int
    #: Leaves of the state, without what weights=i4:delta keeps.
    state: list
    kept: list
    done: int
    curve: list


class Runner:
    """Trains a row on one device, all seeds in turn."""

    def __init__(self, folder: pathlib.Path, row: str, end: float):
        self.folder, self.row, self.end = folder, row, end
        self.experiment = read(folder)
        self.tokens = self.experiment.tokens(folder)
        import jax
        self.jax = jax
        trainer = self.experiment.trainer()
        initial = jax.tree.map(
            np.asarray, trainer.init(last_step=self.experiment.steps))
        self.initial, self.tree = jax.tree.flatten(initial)

        @jax.jit
        def validate(state, batch):
            return trainer.step(jax.tree.unflatten(self.tree, state), batch)[1]

        batch = self.tokens.validation(0)
        self.variants = first, second = self.experiment.rows()[row]
        names = {name for variant in (first, second)
                 for name in (variant, f"{variant}-start")
                 if (folder / f"{name}.step").exists()}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            loading = {name: pool.submit(load, folder, name) for name in names}
            self.validate = validate.lower(self.initial, batch).compile()
            self.steps = {name: step.result()
                          for name, step in loading.items()}

    def run(self):
        """Trains what is missing; the seeds in turn, up to each validation."""
        trainings = [self.restore(seed) for seed in range(SEEDS)]
        missing = [training for training in trainings
                   if training.done < self.experiment.steps]
        while missing and not self.is_over():
            for training in missing:
                self.advance(training)
            missing = [training for training in missing
                       if training.done < self.experiment.steps]
        for training in missing:
            self.save(training)

    def is_over(self) -> bool:
        return time.monotonic() > self.end

    def advance(self, training: Training):
        """Trains up to the next validation or the end of the time."""
        every, started = self.experiment.every, time.monotonic()
        first = training.done
        while True:
            loss = self.step(training)
            training.done += 1
            if training.done % every == 0:
                break
            # Waits, so that the time is not that of starting work alone.
            if training.done % CHUNK == 0 and (float(loss), self.is_over())[1]:
                return
        loss = float(loss)
        milliseconds = (time.monotonic() - started) / (
            training.done - first) * 1e3
        training.curve.append((training.done, loss, self.loss(training.state)))
        print(f"{self.row}, seed {training.seed}: step {training.done}, "
              f"validation {training.curve[-1][2]:.4f}, "
              f"{milliseconds:.1f} ms per step", flush=True)
        path = result_path(self.folder, self.row, training.seed)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"row": self.row, "seed": training.seed,
                                    "curve": training.curve}))

    def step(self, training: Training):
        half = training.done >= self.experiment.steps // 2
        name = self.variants[half]
        batch = self.tokens.batch(training.seed, training.done)
        begins = self.steps.get(f"{name}-start")
        if begins is not None and not training.kept:
            training.kept = begins(*training.state, batch)
        results = self.steps[name](*training.state, batch, *training.kept)
        count = len(training.state)
        training.state, training.kept = results[:count], results[count + 1:]
        return results[count]

    def loss(self, state) -> float:
        return statistics.mean(
            float(self.validate(state, self.tokens.validation(number)))
            for number in range(self.experiment.batches))

    def state_path(self, seed: int) -> pathlib.Path:
        return result_path(self.folder, self.row, seed).with_suffix(".npz")

    def save(self, training: Training):
        path = self.state_path(training.seed)
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(".part")
        with open(partial, "wb") as file:
            np.savez(file, done=training.done,
                     curve=json.dumps(training.curve),
                     **pack("state", training.state),
                     **pack("kept", training.kept))
        partial.rename(path)

    def restore(self, seed: int) -> Training:
        """The point at which a run was saved, or its start. A run whose losses are there but
        whose state is on another machine begins again if it has not ended."""
        result = result_path(self.folder, self.row, seed)
        if result.exists():
            curve = json.loads(result.read_text())["curve"]
            if curve[-1][0] >= self.experiment.steps:
                return Training(self.row, seed, [], [],
                                self.experiment.steps, curve)
        path = self.state_path(seed)
        if not path.exists():
            return Training(self.row, seed, self.initial, [], 0, [])
        with np.load(path) as saved:
            return Training(self.row, seed, unpack("state", saved),
                            unpack("kept", saved), int(saved["done"]),
                            json.loads(str(saved["curve"])))


def pack(name: str, arrays: list) -> dict[str, np.ndarray]:
    """Arrays by name, as NumPy can save them: bf16 as bits."""
    found = {}
    for number, array in enumerate(map(np.asarray, arrays)):
        is_bits = array.dtype.kind == "V"
        found[f"{name}-{number}-{'bf16' if is_bits else 'plain'}"] = (
            array.view(np.uint16) if is_bits else array)
    return found


def unpack(name: str, saved) -> list[np.ndarray]:
    import jax.numpy
    keys = sorted((key for key in saved if key.startswith(name + "-")),
                  key=lambda key: int(key.split("-")[1]))
    return [saved[key].view(jax.numpy.bfloat16.dtype)
            if key.endswith("bf16") else saved[key] for key in keys]


def run(folder: pathlib.Path, seconds: float, gpus: int):
    """Trains what is missing: in a process for each row, or on CPU in this
    one."""
    experiment = read(folder)
    end = time.monotonic() + seconds
    if experiment.platform == "cpu":
        use_cpu()
        for row in experiment.rows():
            if time.monotonic() < end:
                Runner(folder, row, end).run()
        return
    processes = {}
    for number, row in enumerate(experiment.rows()):
        environment = {
            "PYTHONPATH": os.pathsep.join((
                str(lab.ROOT / "bench"), os.environ.get("PYTHONPATH", ""))),
            "CUDA_VISIBLE_DEVICES": str(number % gpus),
            "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
            # Several share a GPU and its memory.
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        with open(log_path(folder, row), "w") as log:
            processes[row] = subprocess.Popen(
                [sys.executable, __file__, "--run", folder, "--row", row,
                 "--seconds", str(max(end - time.monotonic(), 0))],
                env=os.environ | environment, stdout=log,
                stderr=subprocess.STDOUT)
    for row, process in processes.items():
        try:
            code = process.wait(max(end + GRACE_SECONDS - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code:
            print(f"{row} ended with {code}:\n"
                  f"{log_path(folder, row).read_text()[-2000:]}")


def log_path(folder: pathlib.Path, row: str) -> pathlib.Path:
    return folder / f"{label(row)}.txt"


# Table -------------------------------------------------------------------


def read_results(folder: pathlib.Path) -> dict[str, list[dict]]:
    """The runs of each row, up to the last step that all have reached."""
    found: dict[str, list[dict]] = {}
    for path in sorted((folder / "results").glob("*.json")):
        result = json.loads(path.read_text())
        found.setdefault(result["row"], []).append(result)
    last = min((run["curve"][-1][0] for runs in found.values()
                for run in runs), default=0)
    for runs in found.values():
        for run in runs:
            run["curve"] = [point for point in run["curve"]
                            if point[0] <= last]
    if "FSDP" not in found:
        sys.exit("expected a run of FSDP, but got none")
    # Rows are compared with FSDP of the same seeds.
    seeds = {run["seed"] for run in found["FSDP"]}
    found = {row: [run for run in runs if run["seed"] in seeds]
             for row, runs in found.items()}
    return {row: found[row] for row in ROWS if found.get(row)}


def print_table(results: dict[str, list[dict]]) -> bool:
    """True if every row holds: within the spread of FSDP's seeds, or at most
    0.5 % above its mean, for the seeds of the row."""
    last = {row: {run["seed"]: run["curve"][-1][2] for run in runs}
            for row, runs in results.items()}
    table = Table(["step", "seeds", "validation loss", "smallest", "largest",
                   "compared with FSDP", "standard error", "holds"])
    everything = True
    for row, losses in last.items():
        base = [last["FSDP"][seed] for seed in losses]
        above = [loss / other - 1
                 for loss, other in zip(losses.values(), base)]
        mean = statistics.mean(losses.values())
        holds = mean <= max(*base, statistics.mean(base) * (1 + LIMIT))
        everything &= holds
        error = (f"{statistics.stdev(above) / math.sqrt(len(above)):.2%}"
                 if len(above) > 1 else "")
        table.row([row, len(losses), f"{mean:.4f}", f"{min(losses.values()):.4f}",
                   f"{max(losses.values()):.4f}", f"{statistics.mean(above):+.2%}",
                   error, "yes" if holds else "no"])
    return everything


COLORS = ("#818b98", "#0969da", "#bc4c00", "#8250df", "#1a7f37", "#bf3989",
          "#57606a", "#9a6700")
PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP = 720, 300, 60, 40


def draw(results: dict[str, list[dict]]) -> str:
    """Curves of the validation loss, the mean of the seeds, and below them how
    much each is above FSDP's of the same seeds; as SVG."""
    base = {run["seed"]: run["curve"] for run in results["FSDP"]}
    means, above = {}, {}
    for row, runs in results.items():
        steps = [step for step, *_ in runs[0]["curve"]]
        means[row] = [
            (step, statistics.mean(run["curve"][index][2] for run in runs))
            for index, step in enumerate(steps)]
        above[row] = [
            (step, statistics.mean(
                run["curve"][index][2] / base[run["seed"]][index][2] - 1
                for run in runs) * 100)
            for index, step in enumerate(steps)]
    parts = []
    for number, row in enumerate(means):
        parts.append(
            f'<text x="{PANEL_WIDTH - 240}" y="{TOP + 16 * number + 12}" '
            f'fill="{COLORS[number % len(COLORS)]}">{row}</text>')
    height = 2 * PANEL_HEIGHT
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PANEL_WIDTH} '
        f'{height}" width="{PANEL_WIDTH}" height="{height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{PANEL_WIDTH}" height="{height}" fill="#ffffff"/>',
        *draw_panel(0, "Validation loss by step, mean of the seeds", "{:.2f}",
                    means),
        *draw_panel(PANEL_HEIGHT, "The same, above FSDP", "{:+.1f} %", above),
        *parts, "</svg>", ""])


def draw_panel(y: int, title: str, label: str,
               curves: dict[str, list[tuple[int, float]]]) -> list[str]:
    """Curves in a panel whose top is at `y`; `label` formats their values."""
    points = [point for curve in curves.values() for point in curve]
    most = max(step for step, _ in points)
    low, high = (pick(value for _, value in points) for pick in (min, max))
    spread = max(high - low, 1e-6)

    def place(step, value):
        return (LEFT + (PANEL_WIDTH - LEFT - 20) * step / most,
                y + TOP + (PANEL_HEIGHT - TOP - 40) * (high - value) / spread)

    parts = [f'<text x="8" y="{y + 20}" font-weight="bold">{title}</text>']
    for number, curve in enumerate(curves.values()):
        path = " ".join("{:.1f},{:.1f}".format(*place(*point))
                        for point in curve)
        parts.append(f'<polyline points="{path}" fill="none" '
                     f'stroke="{COLORS[number % len(COLORS)]}" '
                     'stroke-width="1.5"/>')
    for value in (low, (low + high) / 2, high):
        parts.append(f'<text x="8" y="{place(0, value)[1] + 4:.0f}">'
                     f'{label.format(value)}</text>')
    for step in (most // 2, most):
        parts.append(f'<text x="{place(step, low)[0] - 16:.0f}" '
                     f'y="{y + PANEL_HEIGHT - 16}">{step}</text>')
    return parts


def main():
    parser = stages.parser(__doc__)
    parser.add_argument("--steps", type=int, help="export for so many steps")
    parser.add_argument("--experts", action="store_true",
                        help="export a model with experts, and rows of int8 for them")
    parser.add_argument("--platform", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.export:
        settings = tiny() if args.tiny else experts() if args.experts else full()
        if args.tiny and args.experts:
            settings["config"] |= {"experts": 8}
        if args.steps:
            settings |= {"steps": args.steps, "every": max(1, args.steps // 10)}
        use_cpu()
        export(args.export, text.read(args.text), settings, args.platform)
    elif args.row:
        Runner(args.run, args.row, time.monotonic() + args.seconds).run()
    elif args.run:
        run(args.run, args.seconds, args.gpus)
    else:
        results = read_results(args.table)
        print_table(results)
        (args.table / "curves.svg").write_text(draw(results))


if __name__ == "__main__":
    main()
