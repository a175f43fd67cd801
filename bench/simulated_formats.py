#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains with formats that zpp does not have, before anyone writes kernels.

    python bench/simulated_formats.py --export DIR --text PACKAGE.deb ...
    python bench/simulated_formats.py --run DIR --seconds 540    # on a GPU
    python bench/simulated_formats.py --table DIR

The model and the text are those of convergence.py, smaller, and nothing is
compiled by zpp: what hops round is simulated between the gradients and the
optimizer. Four devices, 2 nodes of 2, and all orders of the data are trained at
once on one GPU, with `jax.vmap`. The rows differ in nothing else.

Gradients are rotated, rounded in the first format, summed within the node,
rounded in the second, summed, and rotated back. With feedback a hop adds what it
has rounded away in the step before. `i8` and `i4` are as in
zpp/Support/BlockQuant.h. `i3` is alike, with codes from -3 to 3. `i2` has the
four levels that suit a normal distribution best (Max, 1960): -1.5, -0.5, 0.5 and
1.5 times 0.996, in units of the block's root mean square. Three levels by the
largest element lose more.

Weights sent as differences are the sum of all differences so far, as rounded.

While FSDP trains, the script counts by how many units in the last place bf16
weights change in a step, which is what a code without an error has to send. For
the learning rates of fine-tuning it goes on from the trained weights.
"""

import concurrent.futures
import dataclasses
import functools
import json
import math
import pathlib
import statistics
import sys
import time

import numpy as np

import convergence
import lab
from lab import stages, text
from lab.tables import Table

sys.path.insert(0, str(lab.ROOT / "test" / "python"))
import blockquant

NODES, GPUS, BLOCK = 2, 2, 128
#: Codes of largest magnitude.
MAX_CODE = blockquant.MAX_CODE | {"i3": 3}
#: Between the levels of i2, in units of the block's root mean square.
I2_STEP = 0.996
#: The learning rates at which weights are compared after the training, and for
#: how many steps each.
LATER_RATES, LATER_STEPS = (3e-5, 1e-5, 1e-6), 20
#: The learning rate grows in this part of all steps.
WARM_UP = 8
#: Rows that are trained at the same time.
AT_A_TIME = 3
#: Counts of changes: none, 1, 2, ... and all above.
MOST_CHANGE = 8


@dataclasses.dataclass(frozen=True)
class Row:
    #: Formats of the two hops of gradients, or none.
    gradients: tuple[str, str] | None = ("i8", "i4")
    rotates: bool = True
    #: The hops that add what they have rounded away.
    feedback: tuple[bool, bool] = (False, False)
    #: The format of differences of weights, or none.
    weights: str | None = None


FSDP = Row(gradients=None)
ROWS = {
    "FSDP": FSDP,
    "i8:i2, feedback last": Row(("i8", "i2"), feedback=(False, True)),
    "i8:i2": Row(("i8", "i2")),
    "i4:i2, feedback last": Row(("i4", "i2"), feedback=(False, True)),
    "i4:i2": Row(("i4", "i2")),
    "i8:i4 (default)": Row(),
    "i4:i4, rotate=0": Row(("i4", "i4"), rotates=False),
    "i4:i4": Row(("i4", "i4")),
    "i4:i4, feedback all": Row(("i4", "i4"), feedback=(True, True)),
    "weights i4:delta": Row(weights="i4"),
    "weights i3:delta": Row(weights="i3"),
    "weights i2:delta": Row(weights="i2"),
}


@dataclasses.dataclass(frozen=True)
class Experiment(convergence.Experiment):
    seeds: int = 5

    def trainer(self, mesh=(("node", 1),)):
        import gpt
        # Weights are whole: nothing is gathered, and gradients are those of one
        # device.
        return gpt.Trainer(gpt.Config(
            **self.config, mesh=mesh, replicated=tuple(name for name, _ in mesh)))


def full() -> dict:
    return {"config": dict(layers=6, width=320, heads=5, vocab=256, context=512,
                           learning_rate=1e-3),
            "sequences": 16, "steps": 1000, "every": 100, "batches": 8}


def tiny() -> dict:
    return {"config": dict(layers=1, width=64, heads=2, vocab=256, context=32,
                           learning_rate=3e-3),
            "sequences": 8, "steps": 20, "every": 10, "batches": 2, "seeds": 2}


def read(folder: pathlib.Path) -> Experiment:
    content = json.loads((folder / "experiment.json").read_text())
    return Experiment(**content | {"variants": tuple(content["variants"])})


def export(folder: pathlib.Path, pages: bytes, settings: dict):
    folder.mkdir(parents=True, exist_ok=True)
    text.write(folder, pages)
    experiment = Experiment(**settings, platform="cuda", variants=())
    (folder / "experiment.json").write_text(
        json.dumps(dataclasses.asdict(experiment), indent=1))


# Formats -----------------------------------------------------------------


def rounded(values, form: str):
    """`values`, f32 [..., elements], as they arrive. Blocks divide elements."""
    import jax
    import jax.numpy as jnp
    blocks = values.reshape(-1, BLOCK)
    if form == "i2":
        scale = I2_STEP * jnp.sqrt((blocks ** 2).mean(1, keepdims=True))
        # Halves: zero is not among the levels.
        sent = (jnp.clip(jnp.floor(blocks / jnp.where(scale > 0, scale, 1)),
                         -2, 1) + 0.5) * scale
    else:
        most = MAX_CODE[form]
        amax = jnp.abs(blocks).max(1, keepdims=True)
        bits = jax.lax.bitcast_convert_type(amax / most, jnp.uint32) + 0xFFFF
        scale = jax.lax.bitcast_convert_type(
            bits & jnp.uint32(0xFFFF0000), jnp.float32)
        sent = jnp.clip(jnp.rint(blocks / jnp.where(scale > 0, scale, 1)),
                        -most, most) * scale
    return sent.reshape(values.shape)


@functools.cache
def rotation() -> np.ndarray:
    """The matrix of blockquant.rotate, orthogonal."""
    unit = np.eye(blockquant.ROTATION, dtype=np.float32)
    matrix = np.stack([blockquant.rotate(row) for row in unit])
    return matrix / np.linalg.norm(matrix[0])


def rotate(values, back: bool):
    """`values` [..., elements], each 32 elements rotated."""
    import jax.numpy as jnp
    matrix = rotation().T if back else rotation()
    return jnp.matmul(values.reshape(-1, len(matrix)), matrix,
                      precision="highest").reshape(values.shape)


def reduced(row: Row, gradients, kept: list):
    """The mean of gradients [nodes, gpus, elements], and what hops keep."""
    if row.gradients is None:
        return gradients.mean((0, 1)), kept
    values = rotate(gradients, back=False) if row.rotates else gradients
    now = []
    for hop, form in enumerate(row.gradients):
        if row.feedback[hop]:
            values = values + kept[hop]
        sent = rounded(values, form)
        now.append(values - sent if row.feedback[hop] else kept[hop])
        # Within the node first, then over the nodes.
        values = sent.sum(1 - hop)
    if row.rotates:
        values = rotate(values, back=True)
    return values / (NODES * GPUS), now


# Training ----------------------------------------------------------------


class Training:
    """All orders of the data of one row."""

    def __init__(self, row: Row, experiment: Experiment,
                 tokens: text.Tokens):
        import jax
        import jax.numpy as jnp
        import optax
        self.jax, self.jnp, self.optax = jax, jnp, optax
        self.row, self.experiment, self.tokens = row, experiment, tokens
        self.trainer = experiment.trainer()
        peak, steps = experiment.config["learning_rate"], experiment.steps
        self.schedule = optax.warmup_cosine_decay_schedule(
            0, peak, max(1, steps // WARM_UP), steps)
        params = self.trainer.init()["params"]
        self.state = jax.tree.map(
            lambda leaf: jnp.stack([leaf] * experiment.seeds),
            self._start(params))
        self.advance = jax.jit(
            lambda state, batches: jax.lax.scan(
                lambda state, batch: jax.vmap(self._step)(state, batch),
                state, batches), donate_argnums=0)
        self.validate = jax.jit(lambda state, batch: jax.vmap(
            lambda each: self.trainer.loss_and_gradients(
                self._weights(each), batch)[0])(state))

    def _start(self, params):
        jnp = self.jnp
        _, matrices = self._split(params)
        shapes = ((NODES, GPUS, matrices.size), (NODES, matrices.size))
        return {"params": params, "adam": self._adam(1.0).init(params),
                "held": matrices if self.row.weights else (),
                "kept": [jnp.zeros(shape if has_feedback else (), jnp.float32)
                         for shape, has_feedback in zip(
                             shapes, self.row.feedback)],
                "count": jnp.int32(0), "rate": jnp.float32(0)}

    def _adam(self, rate):
        return self.optax.adam(rate, b1=0.9, b2=0.99)

    def _split(self, params, leading: int = 0):
        """The leaves that travel exactly, and all others, the matrices, as one
        array [..., elements] in f32 with so many leading dims."""
        leaves, _ = self.jax.tree.flatten(params)
        matrices = [leaf.astype("float32").reshape(*leaf.shape[:leading], -1)
                    for leaf in leaves if leaf.ndim >= leading + 2]
        return ([leaf for leaf in leaves if leaf.ndim < leading + 2],
                self.jnp.concatenate(matrices, axis=-1))

    def _join(self, like, others: list, matrices):
        """The inverse of _split(), with the shapes of `like`."""
        rest, found, first = iter(others), [], 0
        for leaf in self.jax.tree.leaves(like):
            if leaf.ndim < 2:
                found.append(next(rest))
            else:
                found.append(matrices[first:first + leaf.size].reshape(
                    leaf.shape))
                first += leaf.size
        return self.jax.tree.unflatten(self.jax.tree.structure(like), found)

    def _weights(self, state):
        """Those that the products see."""
        if not self.row.weights:
            return state["params"]
        others, _ = self._split(state["params"])
        return self._join(state["params"], others, state["held"])

    def _step(self, state, tokens):
        """One step of one order of the data. A rate in the state replaces that of
        the schedule."""
        jax, row = self.jax, self.row
        devices = tokens.reshape(NODES, GPUS, -1, tokens.shape[-1])
        each = functools.partial(self.trainer.loss_and_gradients,
                                 self._weights(state))
        loss, gradients = jax.vmap(jax.vmap(each))(devices)
        others, matrices = self._split(gradients, leading=2)
        matrices, kept = reduced(row, matrices, state["kept"])
        gradients = self._join(
            state["params"], [other.mean((0, 1)) for other in others], matrices)
        rate = self.jnp.where(state["rate"] > 0, state["rate"],
                              self.schedule(state["count"]))
        updates, adam = self._adam(rate).update(gradients, state["adam"])
        params = self.optax.apply_updates(state["params"], updates)
        held = state["held"]
        if row.weights:
            held = held + rounded(self._split(params)[1] - held, row.weights)
        return {"params": params, "adam": adam, "held": held, "kept": kept,
                "count": state["count"] + 1, "rate": state["rate"]}, loss.mean()

    def train(self, steps: range):
        batches = np.stack([
            np.stack([self.tokens.batch(seed, step)
                      for seed in range(self.experiment.seeds)])
            for step in steps])
        self.state, losses = self.advance(self.state, batches)
        return np.asarray(losses)

    def losses(self) -> list[float]:
        """The validation loss of each order."""
        return np.mean([self.validate(self.state, self.tokens.validation(number))
                        for number in range(self.experiment.batches)],
                       axis=0).tolist()

    def changes(self, step: int, rate: float = 0.0) -> dict:
        """Trains one step; by how many units in the last place bf16 weights
        change, by kind of weight: counts of 0, 1, ... MOST_CHANGE and above."""
        jnp, jax = self.jnp, self.jax
        self.state["rate"] = jnp.full_like(self.state["rate"], rate)

        def order(leaf):
            bits = jax.lax.bitcast_convert_type(
                leaf.astype(jnp.bfloat16), jnp.int16).astype(jnp.int32)
            return jnp.where(bits < 0, -(bits & 0x7FFF), bits)

        before = jax.tree.map(order, self.state["params"])
        self.train(range(step, step + 1))
        found: dict[str, np.ndarray] = {}
        after = jax.tree.map(order, self.state["params"])
        for (path, old), new in zip(
                jax.tree_util.tree_leaves_with_path(before),
                jax.tree.leaves(after)):
            # The first dim is that of the orders of the data.
            if new.ndim < 3:
                continue
            name = str(path[-1].key)
            distance = jnp.minimum(jnp.abs(new - old), MOST_CHANGE)
            counts = np.bincount(np.asarray(distance).ravel(),
                                 minlength=MOST_CHANGE + 1)
            found[name] = found.get(name, 0) + counts
        return {"step": step, "rate": rate or float(self.schedule(step)),
                "counts": {name: counts.tolist()
                           for name, counts in found.items()}}


def run(folder: pathlib.Path, seconds: float):
    """Trains the rows that are missing. Several at a time, so that one is
    compiled while others train."""
    end = time.monotonic() + seconds
    experiment = read(folder)
    tokens = experiment.tokens(folder)
    (folder / "results").mkdir(exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(
            lambda name: train_row(folder, name, experiment, tokens, end),
            ROWS))


def train_row(folder: pathlib.Path, name: str, experiment: Experiment,
              tokens: text.Tokens, end: float):
    path = convergence.result_path(folder, name, 0)
    if path.exists() or time.monotonic() > end:
        return
    started = time.monotonic()
    training = Training(ROWS[name], experiment, tokens)
    looks = ROWS[name] == FSDP
    curve, changes = [], []
    for first in range(0, experiment.steps, experiment.every):
        last = first + experiment.every
        if looks:
            changes.append(training.changes(first))
        training.train(range(first + looks, last))
        curve.append((last, training.losses()))
        if time.monotonic() > end:
            return
    if looks:
        step = experiment.steps
        for rate in LATER_RATES:
            for _ in range(LATER_STEPS):
                change = training.changes(step, rate)
                step += 1
            changes.append(change)
    print(f"{name}: {statistics.mean(curve[-1][1]):.4f}, "
          f"{time.monotonic() - started:.0f} s", flush=True)
    path.write_text(json.dumps(
        {"row": name, "curve": curve, "changes": changes}))


# Tables ------------------------------------------------------------------


def bits_of(counts: np.ndarray) -> tuple[float, float, float]:
    """Bits per weight of codes without an error: the entropy, and codes of 2 and
    4 bits whose largest value says that 16 bits follow elsewhere."""
    share = counts / counts.sum()
    # Both signs are as frequent.
    signed = np.concatenate([share[:1], np.repeat(share[1:] / 2, 2)])
    entropy = -sum(p * math.log2(p) for p in signed if p > 0)

    def escaped(bits):
        # Codes -n ... n, and the escape.
        most = 2 ** (bits - 1) - 1
        return bits + 16 * share[most + 1:].sum()

    return entropy, escaped(2), escaped(4)


def print_tables(folder: pathlib.Path):
    results = {}
    for path in (folder / "results").glob("*.json"):
        result = json.loads(path.read_text())
        results[result["row"]] = result
    base = results["FSDP"]["curve"][-1][1]
    table = Table(["formats", "validation loss", "smallest", "largest",
                   "compared with FSDP", "standard error"])
    for name in ROWS:
        if name not in results:
            continue
        losses = results[name]["curve"][-1][1]
        above = [loss / other - 1 for loss, other in zip(losses, base)]
        error = statistics.stdev(above) / math.sqrt(len(above))
        table.row([name, f"{statistics.mean(losses):.4f}",
                   f"{min(losses):.4f}", f"{max(losses):.4f}",
                   f"{statistics.mean(above):+.2%}", f"{error:.2%}"])
    print()
    table = Table(["step", "learning rate", "weight", "unchanged", "by 1",
                   "2 to 7", "more", "entropy, bits", "2 bits with escapes",
                   "4 bits with escapes"])
    for look in results["FSDP"]["changes"]:
        counts = {name: np.array(each)
                  for name, each in look["counts"].items()}
        for name, each in {**counts, "all": sum(counts.values())}.items():
            share = each / each.sum()
            table.row([look["step"], f"{look['rate']:.1e}", name,
                       *(f"{part:.1%}" for part in (
                           share[0], share[1], share[2:-1].sum(), share[-1])),
                       *(f"{bits:.2f}" for bits in bits_of(each))])


def main():
    args = stages.parser(__doc__).parse_args()
    if args.export:
        export(args.export, text.read(args.text),
               tiny() if args.tiny else full())
    elif args.run:
        run(args.run, args.seconds)
    else:
        print_tables(args.table)


if __name__ == "__main__":
    main()
