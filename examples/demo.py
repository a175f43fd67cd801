# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a small GPT as written and as ZeRO++, side by side.

    make demo    # or: python examples/demo.py [--steps N]

Eight virtual CPU devices play two nodes of four. The step is written FSDP-style
with plain JAX collectives (gpt.py); zpp rewrites it. Prints what each technique
saves on the wire, both loss curves and how far they are apart.
"""

import argparse
import math
import pathlib
import sys
import time
from typing import Any

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

import numpy as np  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
if str(ROOT / "python") not in sys.path:
    sys.path.insert(0, str(ROOT / "python"))

import gpt  # noqa: E402
import zpp  # noqa: E402

MESH = "node:2,gpu:4"
CONFIG = gpt.Config(width=128, layers=2, context=32, checkpoint="policy",
                    learning_rate=1e-3)
BATCH = 32

OFF = {"weights": "none", "gradients": "none", "secondary": "none"}
WEIGHTS = {**OFF, "weights": "i8", "secondary": "gpu"}
ALL_ON = {"weights": "i8", "gradients": "i8:i4", "secondary": "gpu"}
DELTA = {**ALL_ON, "weights": "i4:delta"}
TECHNIQUES = {
    "as written": OFF,
    "qwZ  int8 weights": {**OFF, "weights": "i8"},
    "hpZ  secondary copy per node": {**OFF, "secondary": "gpu"},
    "qgZ  int8, int4 gradients": {**OFF, "gradients": "i8:i4"},
    "qwZ + hpZ": WEIGHTS,
    "ZeRO++  all three": ALL_ON,
    "i4:delta  int4 differences": DELTA,
}

#: The trainings, and how far the final loss may be from the original's.
RUNS: dict[str, dict[str, Any] | None] = {
    "as written": None, "qwZ + hpZ": WEIGHTS, "ZeRO++": ALL_ON, "i4:delta": DELTA}
LIMITS = {"qwZ + hpZ": 0.001, "ZeRO++": 0.01, "i4:delta": 0.01}


# Text ------------------------------------------------------------------------


def find_text() -> tuple[str, np.ndarray]:
    """Real text on this machine, as bytes, and where it is from."""
    places: list[tuple[str | pathlib.Path, str]] = [
        ("/usr/share/common-licenses", "*"),
        (pathlib.Path(sys.base_prefix, "lib"), "python3.*/LICENSE.txt"),
        (ROOT, "LICENSE"),
        (ROOT, "README.md"),
    ]
    for folder, pattern in places:
        files = sorted({path.resolve() for path in
                        pathlib.Path(folder).glob(pattern) if path.is_file()})
        text = b"".join(path.read_bytes() for path in files)
        if len(text) > 10_000:
            return (f"{folder}/{pattern}, {len(text) // 1024} KiB",
                    np.frombuffer(text, np.uint8))
    raise FileNotFoundError("expected text to train on, but got no LICENSE")


def batches(text: np.ndarray, steps: int):
    """Random windows of the text; the same for everyone who asks."""
    rng = np.random.default_rng(0)
    length = CONFIG.context + 1
    for _ in range(steps):
        starts = rng.integers(0, len(text) - length, BATCH)
        yield text[starts[:, None] + np.arange(length)]


# Bytes -----------------------------------------------------------------------


def print_bytes(trainer: gpt.Trainer) -> dict:
    """The table of what each technique sends; returns the report of ZeRO++."""
    step = zpp.export(jax.jit(trainer.step, donate_argnums=0),
                      trainer.abstract_state(), trainer.abstract_batch(BATCH))
    tiers = [part.split(":")[0] for part in MESH.split(",")]
    names = {"node": "between nodes", "gpu": "inside a node"}
    print("Bytes that a device sends in one step; 1 M is all weights once")
    print()
    print(f"{'':30}" + "".join(f"{names[tier]:>24}" for tier in tiers)
          + f"{'extra memory':>15}")
    for name, options in TECHNIQUES.items():
        found = zpp.rewrite(step, mesh=MESH, **options).report
        if options == ALL_ON:
            report = found
        total = found["total"]
        memory = total["secondary_bytes"] + total["state_bytes"]
        cells = ""
        for tier in tiers:
            cells += (f"{total['after'][tier] / 1024:9.1f} KiB "
                      f"{total['after_in_M'][tier]:6.2f} M   ")
        print(f"{name:30}{cells}{memory / 1024:10.1f} KiB")
    print()
    total = report["total"]
    before, after = (sum(total[when].values()) for when in ("before", "after"))
    between = total["before"]["node"] / total["after"]["node"]
    print(f"ZeRO++ sends {between:.1f}x less between nodes and "
          f"{before / after:.1f}x less in all.")
    left = [entry for entry in report["collectives"] if not entry["rewritten"]]
    for reason in sorted({entry["reason"] for entry in left}):
        kinds = [entry["kind"] for entry in left if entry["reason"] == reason]
        print(f"Left as written: {len(kinds)} x {'/'.join(sorted(set(kinds)))}: "
              f"{reason}")
    return report


# Training --------------------------------------------------------------------


def train(trainer: gpt.Trainer, text: np.ndarray, steps: int) -> tuple:
    """Trains all of RUNS on the same batches: losses and final weights."""
    functions = {
        name: jax.jit(trainer.step, donate_argnums=0) if options is None else
        zpp.jit(trainer.step, donate_argnums=0, mesh=MESH, **options)
        for name, options in RUNS.items()}
    states = {name: trainer.init(seed=0) for name in RUNS}
    losses: dict[str, list[float]] = {name: [] for name in RUNS}
    print(f"{'step':>5}" + "".join(f"{name:>14}" for name in RUNS)
          + f"{'seconds':>10}")
    start = time.time()
    for index, tokens in enumerate(batches(text, steps)):
        batch = trainer.batch(tokens)
        for name, function in functions.items():
            states[name], loss = function(states[name], batch)
            losses[name].append(float(loss))
        if index == 0 or (index + 1) % max(1, steps // 10) == 0:
            print(f"{index + 1:5}"
                  + "".join(f"{losses[name][-1]:14.4f}" for name in RUNS)
                  + f"{time.time() - start:10.0f}", flush=True)
    weights = {name: np.concatenate(
        [np.ravel(leaf) for leaf in jax.tree.leaves(state["params"])])
        for name, state in states.items()}
    return {name: np.array(values) for name, values in losses.items()}, weights


def smooth(losses: np.ndarray, window: int = 10) -> np.ndarray:
    """Means over the last `window` steps (batches differ a lot)."""
    sums = np.cumsum(np.concatenate([np.zeros(1), losses]))
    ends = np.arange(1, len(losses) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def print_curves(losses: dict, width: int = 68, height: int = 14) -> None:
    """Both loss curves in one frame, and their difference below."""
    written, rewritten = (smooth(losses[name])
                          for name in ("as written", "ZeRO++"))
    columns = np.linspace(0, len(written) - 1, width).astype(int)
    top = max(written.max(), rewritten.max())
    low = min(written.min(), rewritten.min())

    def row(value):
        return round((top - value) / (top - low) * (height - 1))

    grid = [[" "] * width for _ in range(height)]
    for column, step in enumerate(columns):
        grid[row(written[step])][column] = "o"
        both = row(written[step]) == row(rewritten[step])
        grid[row(rewritten[step])][column] = "*" if both else "+"
    print("Loss (mean of 10 steps): o as written, + ZeRO++, * both")
    print()
    for line, cells in enumerate(grid):
        value = top - (top - low) * line / (height - 1)
        print(f"{value:7.3f} |{''.join(cells)}")
    print(f"{'':8}+{'-' * width}")
    print(f"{'':8} 1{len(written):>{width - 1}}")
    print()
    relative = np.abs(rewritten - written) / written
    bars = " ▁▂▃▄▅▆▇█"
    scale = max(relative.max(), 1e-9)
    shades = "".join(bars[math.ceil(relative[step] / scale * 8)]
                     for step in columns)
    print(f"{'apart':>7} |{shades}")
    print(f"{'':8} full height {100 * scale:.3f} %")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150)
    steps = parser.parse_args().steps
    started = time.time()

    trainer = gpt.Trainer(CONFIG)
    source, text = find_text()
    print(f"A GPT of {trainer.model_elements():,} weights on 8 virtual CPU "
          f"devices, {MESH}, JAX {jax.__version__}")
    print(f"Text: {source}")
    heading("What travels")
    report = print_bytes(trainer)
    heading(f"Training, {steps} steps")
    losses, weights = train(trainer, text, steps)
    heading("Loss")
    print_curves(losses)

    heading("Summary")
    good = True
    exact = losses["as written"]
    print(f"{'':14}{'final loss':>12}{'apart':>10}{'limit':>8}"
          f"{'largest apart':>16}{'weights apart':>16}")
    print(f"{'as written':14}{smooth(exact)[-1]:12.4f}")
    for name, limit in LIMITS.items():
        final = smooth(losses[name])[-1]
        apart = abs(final / smooth(exact)[-1] - 1)
        largest = np.max(np.abs(losses[name] / exact - 1))
        distance = (np.linalg.norm(weights[name] - weights["as written"])
                    / np.linalg.norm(weights["as written"]))
        good &= bool(apart < limit)
        print(f"{name:14}{final:12.4f}{100 * apart:9.3f}%{100 * limit:7.1f}%"
              f"{100 * largest:15.3f}%{100 * distance:15.3f}%")
    total = report["total"]
    print()
    print(f"Between nodes: {total['before_in_M']['node']:.2f} M before, "
          f"{total['after_in_M']['node']:.2f} M after. "
          f"{time.time() - started:.0f} seconds.")
    print("The rewritten step trains as the original does." if good else
          "The rewritten step is FURTHER from the original than it may be.")
    return 0 if good else 1


def heading(title: str) -> None:
    print(f"\n--- {title} {'-' * (72 - len(title))}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
