#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses of trainings whose gradients cross the nodes per micro-batch or per
update.

    python bench/micro_batch_losses.py [--steps 200] [--seeds 3] [--text FILE ...]

A small GPT with four micro-batches per step learns bytes of text on eight virtual
CPU devices, node:2,gpu:4: as FSDP (the step as it is written), and as zpp rewrites
its gradients, with and without `accumulate=gpu`. A row has the distance of its
losses from FSDP's in the same step, relative to it, in the mean over the second
half of the steps and over the seeds; what its loss is at the end, in the mean over
the last tenth, beside FSDP's; and what a device sends between the nodes.

The distances in single steps show the rounding, the ends whether it matters.
Seeds differ in the first weights and in the order of the data. All of it takes
half an hour on two cores.
"""

import argparse
import dataclasses
import pathlib
import statistics
import sys

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

import numpy as np  # noqa: E402

import lab  # noqa: E402
from lab import text as texts  # noqa: E402
from lab.tables import Table, describe_commit  # noqa: E402

sys.path[:0] = [str(lab.ROOT / "examples"), str(lab.ROOT / "python")]

import gpt  # noqa: E402
import zpp  # noqa: E402

MESH = "node:2,gpu:4"
CONFIG = gpt.Config(width=64, layers=2, context=32, accumulate=4,
                    learning_rate=1e-3)
BATCH = 32

EXACT = {"weights": "none", "gradients": "none:none", "secondary": "gpu"}
GRADIENTS = EXACT | {"gradients": "i8:i4"}
ONCE = {"accumulate": "gpu"}
#: Rows: name -> options; None is the step as it is written.
ROWS = {
    "FSDP": None,
    "gradients in f32, per micro-batch": EXACT,
    "gradients in f32, once per update": EXACT | ONCE,
    "gradients i8:i4, per micro-batch": GRADIENTS,
    "gradients i8:i4, once per update": GRADIENTS | ONCE,
}


@dataclasses.dataclass
class Training:
    #: The loss of each step.
    losses: np.ndarray
    #: Bytes between the nodes per step, in M, a model of 16 bits.
    sent: float


def batches(text: np.ndarray, seed: int, steps: int):
    """Random windows of the text, the same for the same seed."""
    random = np.random.default_rng(seed)
    length = CONFIG.context + 1
    for _ in range(steps):
        starts = random.integers(0, len(text) - length, BATCH)
        yield text[starts[:, None] + np.arange(length)]


def prepare(trainer: gpt.Trainer, options: dict | None):
    """The step of a row, and what it sends between the nodes."""
    plain = jax.jit(trainer.step, donate_argnums=0)
    arguments = trainer.abstract_state(), trainer.abstract_batch(BATCH)
    total = zpp.rewrite(zpp.export(plain, *arguments), mesh=MESH,
                        **(options or EXACT)).report["total"]
    if options is None:
        return plain, total["before_in_M"]["node"]
    return (zpp.jit(trainer.step, donate_argnums=0, mesh=MESH, **options),
            total["after_in_M"]["node"])


def train(trainer: gpt.Trainer, step, text: np.ndarray, seed: int,
          steps: int) -> np.ndarray:
    state, losses = trainer.init(seed, last_step=steps), []
    for tokens in batches(text, seed, steps):
        state, loss = step(state, trainer.batch(tokens))
        losses.append(float(loss))
    return np.array(losses)


def print_row(table: Table, name: str, trainings: list[Training],
              plain: list[Training]):
    apart, ends, differences = [], [], []
    for training, exact in zip(trainings, plain):
        steps = len(exact.losses)
        late, last = slice(steps // 2, None), slice(-max(1, steps // 10), None)
        apart.append(np.mean(np.abs(training.losses - exact.losses)[late]
                             / exact.losses[late]))
        ends.append(training.losses[last].mean())
        differences.append(ends[-1] / exact.losses[last].mean() - 1)
    table.row([name, f"{trainings[0].sent:.2f} M",
               f"{100 * statistics.mean(apart):.4f} %",
               f"{statistics.mean(ends):.4f}",
               f"{100 * statistics.mean(differences):+.3f} % "
               f"({100 * min(differences):+.3f} to "
               f"{100 * max(differences):+.3f})"])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--text", type=pathlib.Path, nargs="+",
                        default=[lab.ROOT / "docs", lab.ROOT / "README.md"],
                        help="files, folders or Debian packages (default: the "
                        "project's own pages)")
    args = parser.parse_args()
    text = np.frombuffer(texts.read(args.text), np.uint8)
    print(f"{len(text) // 1024} KiB of text, {args.steps} steps, {args.seeds} "
          f"seeds, {MESH}, commit {describe_commit()}\n", flush=True)
    trainer = gpt.Trainer(CONFIG)
    table = Table(["", "between nodes", "distance from FSDP per step",
                   "loss at the end", "from FSDP's"])
    plain: list[Training] = []
    for name, options in ROWS.items():
        step, sent = prepare(trainer, options)
        trainings = []
        for seed in range(args.seeds):
            print(f"{name}, seed {seed} ...", file=sys.stderr, flush=True)
            trainings.append(Training(
                train(trainer, step, text, seed, args.steps), sent))
        plain = plain or trainings
        print_row(table, name, trainings, plain)


if __name__ == "__main__":
    main()
