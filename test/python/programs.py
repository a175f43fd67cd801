# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random small training programs: layers, an optimizer and statistics, drawn
from a seed. Weights are sharded over all devices, and each statistic has the
shape of a weight, or is a buffer that a layer adds.

Each program has three forms, by the world it runs in (program_parts.py): with
collectives of its own, partitioned by XLA, and with weights and gradients that
it rounds itself, as zpp does. What zpp makes of the first two may round what the
third rounds, and nothing else: its state is as far from the program as written
as that of the third form is, whatever an optimizer makes of this.

    python test/python/programs.py --seconds 600 [--seed 0] [--train 8]

takes one after the other and says which fail. The roles of all are compared, and
one of `--train` is trained.
"""

import argparse
import collections
import dataclasses
import functools
import math
import random
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import conftest  # noqa: F401  (devices and folders)
import jax
import jax.numpy as jnp
import numpy as np
import program_methods as methods
import program_parts as parts
import training
import zpp
from jax.sharding import NamedSharding, PartitionSpec
from program_methods import ROWS
from program_parts import AXES, SHARDED, WHOLE, WIDTH


@dataclasses.dataclass(frozen=True)
class Choices:
    layers: tuple[Callable, ...]
    #: How often each layer stands in a scan, with weights of its own, or 0.
    repeats: tuple[int, ...]
    loss: Callable
    optimizer: Callable
    statistics: tuple[Callable, ...]
    assigns: tuple[Callable, ...]
    derive: Callable
    normalize: Callable | None
    is_jitted: bool
    #: Names of what else the step does.
    words: frozenset[str]
    #: The number that a mask adds where it hides.
    hidden: float

    def __str__(self):
        named = [*self.layers, self.loss, self.optimizer, *self.statistics,
                 *self.assigns, self.derive, self.normalize]
        return " ".join([*(each.__name__ for each in named if each),
                         f"repeats={self.repeats}", *["jit"] * self.is_jitted,
                         *sorted(self.words)])


#: How likely each word is.
WORDS = {"checkpoint": 0.4, "clip": 0.2, "clamp": 0.1, "scaled": 0.15,
         "spectral": 0.1, "replays": 0.15, "teacher": 0.15, "critic": 0.15,
         "sharpness": 0.1, "curvature": 0.1, "noise": 0.1, "codes-first": 0.5}


#: The same of words that came later, which others than one of ten may have: so seeds
#: keep their programs.
LATER_WORDS = {"packed": 0.3, "integers": 0.2, "ahead": 0.3, "owned": 0.25,
               "sometimes": 0.3, "near": 0.2, "tells": 0.2, "hosted": 0.2,
               "partial": 0.3}
LATER_SEEDS = (1, 2, 9)


#: Losses that programs have told Python.
told: list[float] = []

#: Layers and optimizers, with the shapes of their weights and of their state.
LAYERS = parts.LAYERS | methods.LAYERS
OPTIMIZERS = parts.OPTIMIZERS | methods.OPTIMIZERS | parts.LATER_OPTIMIZERS


def choose(seed: int) -> Choices:
    draw = random.Random(seed)
    # One of ten has what was added later: so seeds keep their programs.
    kinds, losses, optimizers = (
        [*methods.LAYERS, *parts.LAYERS], [*methods.LOSSES, *parts.LOSSES],
        [*methods.OPTIMIZERS, *parts.OPTIMIZERS]) if seed % 10 == 7 else (
            [*parts.LAYERS], [*parts.LOSSES], [*parts.OPTIMIZERS])
    layers = draw.choices(kinds, k=draw.choice((1, 1, 2)))
    words = {word for word, chance in WORDS.items() if draw.random() < chance}
    # Weights are adapted to a task first; the derivative of that may count.
    if draw.random() < 0.2:
        words.add(draw.choice(("adapts-first", "adapts-second")))
    if draw.random() < 0.25:
        words.add(draw.choice(("micro-scan", "micro-list")))
    choices = Choices(
        layers=tuple(layers),
        repeats=tuple(draw.choice((0, 0, 0, 0, 2)) for _ in layers),
        loss=draw.choice(losses),
        optimizer=draw.choice(optimizers),
        statistics=tuple(draw.choices(parts.STATISTICS, k=draw.randint(0, 2))),
        assigns=(draw.choice(parts.ASSIGNMENTS),) * (draw.random() < 0.3),
        derive=draw.choice(parts.DERIVATIVES),
        normalize=draw.choice((None, None, *parts.NORMALIZATIONS)),
        is_jitted=draw.random() < 0.2, words=frozenset(words),
        hidden=draw.choice((-1e9, -math.inf, -30.0)))
    if seed % 10 not in LATER_SEEDS:
        return choices
    later = random.Random(f"later words of {seed}")
    words |= {word for word, chance in LATER_WORDS.items()
              if later.random() < chance}
    # Rows that are replayed are those of a device.
    words -= {"partial"} if "replays" in words else set()
    return dataclasses.replace(
        choices, words=frozenset(words),
        repeats=(3,) * len(layers) if "ahead" in words else choices.repeats,
        optimizer=parts.owned if "owned" in words else choices.optimizer)


def init(choices: Choices, seed: int) -> dict[str, Any]:
    """The state: `weights`, `moments` of the optimizer, `statistics`, `codebooks`
    and `running` averages that no gradient flows into, `buffers`, which come back
    as they are, rows that are `replayed`, `directions` of power iterations, a
    `teacher` that averages weights, the `critic` of the output, and `curvatures`."""
    numbers = np.random.default_rng(seed)

    def matrix(*shape):
        return (WIDTH**-0.5 * numbers.standard_normal(shape)).astype(np.float32)

    def stacked(shape, repeats):
        return (repeats, *shape) if repeats else shape

    kinds = [(LAYERS[layer], repeats) for layer, repeats in zip(
        choices.layers, choices.repeats, strict=True)]
    weights = [{name: matrix(*stacked(shape, repeats))
                for name, shape in shapes.items()} for shapes, repeats in kinds]
    moments = [{name: tuple(np.zeros(stacked(each, repeats), np.float32)
                            for each in OPTIMIZERS[choices.optimizer](shape))
                for name, shape in shapes.items()} for shapes, repeats in kinds]
    distance = np.abs(np.subtract.outer(np.arange(WIDTH), np.arange(WIDTH)))
    words = choices.words
    return {
        "weights": weights, "moments": moments,
        "statistics": [np.zeros(parts.SQUARE, np.float32)
                       for _ in choices.statistics],
        "codebooks": [matrix(*parts.SQUARE) for _ in choices.assigns],
        "buffers": [np.where(np.tri(WIDTH, dtype=bool), -0.05 * distance,
                             choices.hidden).astype(np.float32)],
        "running": [np.zeros(WIDTH, np.float32), np.eye(WIDTH, dtype=np.float32)]
        if choices.normalize else [],
        "replayed": [matrix(ROWS, WIDTH)] * ("replays" in words),
        "directions": [matrix(WIDTH)] * ("spectral" in words),
        "teacher": jax.tree.map(np.copy, weights) if "teacher" in words else [],
        "critic": [matrix(*parts.SQUARE)] * ("critic" in words),
        "curvatures": jax.tree.map(np.zeros_like, weights)
        if words & {"curvature", "near"} else [],
        # Codes that are stored as bf16, two in one, and as they are.
        "packed": [numbers.integers(-127, 127, parts.SQUARE, np.int8).view(
            jnp.bfloat16)] * ("packed" in words),
        "integers": [numbers.integers(-127, 127, parts.SQUARE, np.int8)] * (
            "integers" in words),
        "averages": [matrix(*parts.SQUARE)] * ("sometimes" in words)}


def specs_of(choices: Choices, state) -> dict[str, Any]:
    specs = jax.tree.map(lambda _: SHARDED, state)
    for kind in ("weights", "moments", "teacher", "curvatures"):
        specs[kind] = [
            jax.tree.map(lambda _, repeats=repeats: PartitionSpec(None, AXES)
                         if repeats else SHARDED, each)
            for each, repeats in zip(state[kind], choices.repeats, strict=False)]
    return specs


def is_frozen(path) -> bool:
    return any(getattr(key, "key", None) == "frozen" for key in path)


def first_weight(weights):
    first = jax.tree.leaves(weights[0])[0]
    return first[0] if first.ndim == 3 else first


def step_of(choices: Choices, world):
    """The step (state, batch) -> (state, loss) of a device, or of all."""
    words = choices.words

    def run(weights, batch, gather, given):
        """The loss, and activations on the way. What has no gradient is given."""
        bias, codebooks, lefts, bases = given
        hidden, seen = batch, []
        for base in bases:
            hidden += jnp.tanh(hidden @ (base.astype(jnp.float32) / 127 / 8))

        def quantize(hidden):
            for codebook, assign in zip(codebooks, choices.assigns, strict=True):
                hidden += assign(hidden @ codebook.T, world) @ codebook
            return hidden

        for left in lefts:
            # Divided by an estimate of the first weight's norm.
            first = gather(first_weight(weights))
            rows = min(len(first), len(left))
            norm = jnp.linalg.norm(first[:rows].T @ left[:rows])
            hidden = hidden.at[:, :rows].multiply(1 / (0.1 + norm))
        if "codes-first" in words:
            hidden = quantize(hidden)
        for layer, repeats, shards in zip(choices.layers, choices.repeats, weights,
                                          strict=True):
            def apply(shards, hidden, layer=layer):
                return layer(jax.tree.map(gather, shards), hidden, bias, world)
            def apply_whole(whole, hidden, layer=layer):
                return layer(whole, hidden, bias, world)
            if "checkpoint" in words:
                apply, apply_whole = map(jax.checkpoint, (apply, apply_whole))
            if repeats and "ahead" in words:
                # Each iteration gathers the weights of the next one.
                (hidden, _), _ = jax.lax.scan(
                    lambda carry, following, apply=apply_whole: (
                        (apply(carry[1], carry[0]), jax.tree.map(gather, following)),
                        None),
                    (hidden, jax.tree.map(lambda each: gather(each[0]), shards)),
                    jax.tree.map(lambda each: jnp.roll(each, -1, 0), shards))
            elif repeats:
                hidden, _ = jax.lax.scan(
                    lambda hidden, shards, apply=apply: (apply(shards, hidden), None),
                    hidden, shards)
            else:
                hidden = apply(shards, hidden)
            seen.append(hidden)
        if "codes-first" not in words:
            hidden = quantize(hidden)
        return choices.loss(hidden, batch, world), (seen, hidden)

    def loss_of(state, weights, batch, given):
        gather = world.weight
        if "adapts-first" in words or "adapts-second" in words:
            # By the mean of all devices' tasks.
            weights = jax.tree.map(lambda each: jax.vmap(gather)(each)
                                   if each.ndim == 3 else gather(each), weights)
            changes = jax.tree.map(world.average, jax.grad(lambda whole: run(
                whole, jnp.roll(batch, 1, 1), lambda weight: weight, given)[0])(
                    weights))
            if "adapts-first" in words:
                changes = jax.lax.stop_gradient(changes)
            weights = jax.tree.map(lambda w, g: w - 0.1 * g, weights, changes)

            def gather(weight):
                return weight
        loss, (seen, output) = run(weights, batch, gather, given)
        if "tells" in words:
            jax.debug.callback(lambda loss: told.append(float(loss)), loss)
        if state["teacher"]:
            _, (_, target) = run(state["teacher"], batch, world.weight, given)
            loss += 0.1 * jnp.mean((output - jax.lax.stop_gradient(target)) ** 2)
        for critic in state["critic"]:
            loss += 0.1 * jnp.mean(jnp.tanh(output @ world.weight(critic)))
        return (1024 * loss if "scaled" in words else loss), (seen, output)

    def gradients_of(state, weights, batch, given):
        def of(batch):
            return choices.derive(
                lambda weights: loss_of(state, weights, batch, given), weights)

        if "micro-scan" in words:
            def body(total, batch):
                (loss, seen), gradients = of(batch)
                return jax.tree.map(jnp.add, total, (loss, gradients)), seen

            zero = (jnp.float32(0), jax.tree.map(jnp.zeros_like, weights))
            found, seen = jax.lax.scan(
                body, zero, jnp.stack([jnp.roll(batch, 1, 1), batch]))
            seen = jax.tree.map(lambda each: each[-1], seen)
            loss, gradients = jax.tree.map(lambda each: each / 2, found)
        elif "micro-list" in words:
            (other_loss, _), others = of(jnp.roll(batch, 1, 1))
            (loss, seen), gradients = of(batch)
            loss, gradients = jax.tree.map(
                lambda a, b: (a + b) / 2, (loss, gradients), (other_loss, others))
        else:
            (loss, seen), gradients = of(batch)
        gradients = world.of_loss(gradients)
        if "scaled" in words:
            loss, gradients = jax.tree.map(lambda each: each / 1024,
                                           (loss, gradients))
        return loss, seen, gradients

    def norm_of(tree):
        return jnp.sqrt(world.sum(sum(
            jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))) + 1e-6

    def update(path, weight, gradient, moment, batch):
        if is_frozen(path):
            return weight, moment

        def of_matrix(*args):
            return choices.optimizer(*args, batch, world)
        return (jax.vmap(of_matrix) if weight.ndim == 3 else of_matrix)(
            weight, gradient, moment)

    def step(state, batch):
        raw, weights, running = batch, state["weights"], state["running"]
        replayed = []
        for rows in state["replayed"]:
            batch = batch + 0.5 * world.own_rows(
                jnp.roll(world.gather(rows), WIDTH, 0))
            oldest = jnp.arange(len(rows))[:, None] % 2 == 0
            replayed.append(jnp.where(oldest, raw, rows))
        before = batch
        if choices.normalize:
            mean = world.mean(jnp.mean(batch, 0))
            running = [0.9 * running[0] + 0.1 * world.own_rows(mean),
                       0.9 * running[1] + 0.1 * world.scatter(
                           (batch - mean).T @ (batch - mean) / len(batch))]
            batch = choices.normalize(batch, *map(world.gather, running))
        lefts = []
        for direction in state["directions"]:
            whole = jax.lax.stop_gradient(world.weight(first_weight(weights)))
            size = min(len(whole), WIDTH)
            right = whole[:size].T @ world.gather(direction)[:size]
            left = whole[:size] @ (right / (jnp.linalg.norm(right) + 1e-6))
            lefts.append(jnp.zeros(WIDTH).at[:size].set(
                left / (jnp.linalg.norm(left) + 1e-6)))
        bases = [jax.lax.bitcast_convert_type(world.gather(bits), jnp.int8).reshape(
            parts.SQUARE) for bits in state["packed"]]
        bases += map(world.gather, state["integers"])
        given = (world.gather(state["buffers"][0]),
                 [world.gather(codebook) for codebook in state["codebooks"]], lefts,
                 bases)

        loss, (seen, output), gradients = gradients_of(state, weights, batch, given)
        if "sharpness" in words:
            # The gradient that counts is that of weights which one has moved.
            ratio = 0.05 / norm_of(gradients)
            loss, (seen, output), gradients = gradients_of(state, jax.tree.map(
                lambda w, g: w + ratio * g, weights, gradients), batch, given)
        curvatures = state["curvatures"]
        if curvatures:
            reach = 1e-3 if "near" in words else 0.01
            probes = jax.tree.map(lambda w: jnp.where(w > 0, reach, -reach), weights)
            _, _, there = gradients_of(
                state, jax.tree.map(jnp.add, weights, probes), batch, given)
            curvatures = jax.tree.map(
                lambda c, p, a, b: 0.9 * c + 0.1 * ((b - a) / p) ** 2, curvatures,
                probes, gradients, there)
            gradients = jax.tree.map(lambda g, c: g / (jnp.sqrt(c) + 1),
                                     gradients, curvatures)
        if "clip" in words:
            scale = jnp.minimum(1, 1 / norm_of(gradients))
            gradients = jax.tree.map(lambda g: scale * g, gradients)
        if "clamp" in words:
            gradients = jax.tree.map(lambda g: jnp.clip(g, -0.02, 0.02), gradients)
        if "noise" in words:
            gradients = jax.tree.map(lambda g, w: g + 0.01 * jnp.sin(1e3 * w),
                                     gradients, weights)
        found = jax.tree_util.tree_map_with_path(
            lambda *args: update(*args, batch), weights, gradients, state["moments"])
        updated, moments = (jax.tree.map(
            lambda _, pair, i=i: pair[i], weights, found) for i in (0, 1))
        critics = [critic + 0.1 * world.of_loss(jax.grad(lambda critic: jnp.mean(
            jnp.tanh(jax.lax.stop_gradient(output) @ world.weight(critic))
            - jnp.tanh(batch @ world.weight(critic))))(critic))
            for critic in state["critic"]]
        # As the outer step of DiLoCo, now and then.
        averages = [jax.lax.cond(
            world.mean(jnp.mean(raw)) > 0,
            lambda old=old: 0.5 * old + 0.5 * world.own_rows(
                world.mean(world.gather(old))), lambda old=old: old)
            for old in state["averages"]]
        # With what was known before the step.
        evaluation = run(weights, choices.normalize(
            before, *map(world.gather, state["running"])), world.weight, given)[0] if (
                choices.normalize) else 0
        collected = [0.9 * old + 0.1 * world.scatter(statistic(hidden, batch))
                     for old, statistic, hidden in zip(
                         state["statistics"], choices.statistics, reversed(seen),
                         strict=False)]
        books = []
        for own, codebook, assign in zip(state["codebooks"], given[1],
                                         choices.assigns, strict=True):
            chances = assign(seen[-1] @ codebook.T, world)
            counts = world.own_rows(world.mean(chances.mean(0)))
            books.append(0.9 * own + 0.1 * world.scatter(
                chances.T @ seen[-1] / len(chances)) / (0.001 + counts[:, None]))
        return {"weights": updated, "moments": moments,
                "statistics": collected + state["statistics"][len(collected):],
                "codebooks": books, "buffers": state["buffers"],
                "running": running, "replayed": replayed,
                "directions": [world.own_rows(left) for left in lefts],
                "teacher": jax.tree.map(lambda t, w: 0.9 * t + 0.1 * w,
                                        state["teacher"], weights)
                if state["teacher"] else [],
                "critic": critics, "curvatures": curvatures,
                "packed": state["packed"], "integers": state["integers"],
                "averages": averages,
                }, world.mean(loss + evaluation)

    return step


class Program:
    """The step that `step_of` makes in each world, and its state."""

    def __init__(self, step_of: Callable, state, specs, is_jitted: bool = False,
                 words: frozenset[str] = frozenset()):
        self.step_of, self.specs, self.words = step_of, specs, words
        self.is_partial = "partial" in words
        #: Whether XLA partitions it, or a part of it.
        self.is_jitted = is_jitted or self.is_partial
        self.shardings = jax.tree.map(lambda spec: NamedSharding(
            training.MESH, PartitionSpec(*(each and "gpu" for each in spec))
            if self.is_partial else spec), specs)
        self.state = jax.device_put(state, self.shardings)
        if "hosted" in words:
            self.state["moments"] = jax.device_put(
                self.state["moments"], jax.memory.Space.Host)
        self.step = (self.partial() if self.is_partial
                     else self.partitioned() if is_jitted else self.manual())

    @classmethod
    def of_seed(cls, seed: int):
        choices = choose(seed)
        state = init(choices, seed)
        return cls(functools.partial(step_of, choices), state,
                   specs_of(choices, state), choices.is_jitted, choices.words)

    def from_host(self, step):
        """The same, between whose calls moments may be on the host."""
        if "hosted" not in self.words:
            return step

        def move(state, space):
            return state | {"moments": jax.device_put(state["moments"], space)}

        def moved(state, batch):
            state, loss = step(move(state, jax.memory.Space.Device), batch)
            return move(state, jax.memory.Space.Host), loss

        return moved

    def manual(self):
        return self.from_host(jax.shard_map(
            self.step_of(parts.Manual()), mesh=training.MESH,
            in_specs=(self.specs, SHARDED), out_specs=(self.specs, WHOLE),
            check_vma=False))

    def partial(self):
        """Data parallelism by hand between nodes, what XLA does of FSDP within."""
        step = self.step_of(parts.Partial())

        def placed(state, batch):
            return step(state, jax.lax.with_sharding_constraint(
                batch, PartitionSpec("gpu")))

        over_nodes = jax.shard_map(
            placed, mesh=training.MESH, in_specs=(WHOLE, PartitionSpec("node")),
            out_specs=(WHOLE, WHOLE), axis_names={"node"}, check_vma=False)
        return self.from_host(lambda state, batch: self.constrained(
            *over_nodes(state, batch)))

    def constrained(self, state, loss):
        return jax.lax.with_sharding_constraint(state, self.shardings), loss

    def partitioned(self):
        step = self.step_of(parts.Partitioned())

        def placed(state, batch):
            return self.constrained(*step(state, jax.lax.with_sharding_constraint(
                batch, NamedSharding(training.MESH, SHARDED))))

        return self.from_host(placed)

    def rounded(self):
        """A step (state, batch, whether weights and gradients are rounded)."""
        def step(state, batch, of_weights, of_gradients):
            return self.step_of(parts.Rounded(of_weights, of_gradients))(
                state, batch)

        sharded = jax.shard_map(
            step, mesh=training.MESH, in_specs=(self.specs, SHARDED, WHOLE, WHOLE),
            out_specs=(self.specs, WHOLE), check_vma=False)
        return lambda state, batch, *rounded: self.from_host(
            lambda state, batch: sharded(state, batch, *rounded))(state, batch)


def batch_of(seed: int, step: int):
    numbers = np.random.default_rng([seed, step])
    # Some rows are all of one sign.
    values = numbers.standard_normal((ROWS, WIDTH)).astype(np.float32)
    return jax.device_put(np.where(numbers.random((ROWS, 1)) < 0.3,
                                   np.abs(values), values),
                          NamedSharding(training.MESH, SHARDED))


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The norm of the difference; infinite unless what is not finite in theirs is the
    same in ours."""
    finite = np.isfinite(theirs)
    if not (np.isfinite(ours[finite]).all() and np.array_equal(
            ours[~finite], theirs[~finite], equal_nan=True)):
        return math.inf
    return float(np.linalg.norm(ours[finite] - theirs[finite]))


@dataclasses.dataclass
class Outcome:
    #: Differences between the program and its rewrites that must not be.
    wrong: list[str]
    #: Collectives of weights and gradients, and how many of them are rewritten,
    #: of a program in a shard_map, with the names of autodiff and without.
    known: int = 0
    rewritten: int = 0
    rewritten_without: int = 0


def line_of(collective) -> int:
    return int((collective["location"] or "::").split(":")[-2] or 0)


def roles(program: Program, seed: int) -> Outcome:
    """Compares roles alone, of the program in a shard_map of all axes: what is rounded has to
    be at lines of weights and gradients, with the names that autodiff has left in
    the module and without."""
    if program.is_partial:
        return Outcome([])
    text = zpp.export(jax.jit(program.manual()), program.state, batch_of(seed, 0),
                      disabled_checks=[jax.export.DisabledSafetyCheck.custom_call(
                          "ALL")]).text()
    lines = parts.lines_of_weights()
    outcome = Outcome([])
    forms = {"with": text}
    if not parts.MIXING & program.words:
        forms["without"] = text.replace("jvp(", "(").replace("transpose(", "(")
    for form, module in forms.items():
        collectives = zpp.rewrite(module, mesh=training.NODES, target="portable",
                                  **training.ALL_ON).report["collectives"]
        outcome.wrong += [
            f"{form} names: {each['kind']} as {each['role']} by {each['rule']} at "
            f"{each['location']}" for each in collectives
            if each["rewritten"] and each["floor"] != "none"
            and line_of(each) not in lines]
        known = [each for each in collectives if line_of(each) in lines]
        outcome.known = len(known)
        rewritten = sum(each["rewritten"] for each in known)
        if form == "with":
            outcome.rewritten = rewritten
        outcome.rewritten_without = rewritten
    return outcome


#: The largest distance from the reference, as a part of what rounding changes,
#: where ours rounds all that it rounds: codes may differ by one where a number
#: is between two of them.
TIGHT = 0.25
#: The largest distance from the program as written otherwise, likewise.
LOOSE = 2.0


def numbers_of(leaf) -> np.ndarray:
    """Its elements; of bf16, which are bits here, these."""
    array = np.asarray(leaf)
    bits = array.view(np.uint16) if array.dtype == jnp.bfloat16 else array
    return bits if bits.dtype == np.float32 else bits.astype(np.float64)


def named(tree) -> list[tuple[str, np.ndarray]]:
    return [(jax.tree_util.keystr(path), numbers_of(leaf)) for path, leaf in
            jax.tree_util.tree_flatten_with_path(tree)[0]]


def trained(program: Program, seed: int) -> Outcome:
    """Trains two steps, the second one from the state of the program as written."""
    is_jitted = program.is_jitted
    plain = jax.jit(program.step)
    batches = [batch_of(seed, step) for step in range(2)]
    starts, losses = [program.state], []
    for batch in batches:
        after, loss = plain(starts[-1], batch)
        starts.append(after)
        losses.append(float(loss))
    theirs = [named(state) for state in starts[1:]]
    outcome = Outcome([]) if is_jitted else roles(program, seed)
    wrong = outcome.wrong
    wrong += [f"as written: loss {loss}" for loss in losses
              if not math.isfinite(loss)]
    reference = jax.jit(program.rounded())

    def referred(index, of_weights, of_gradients):
        return named(reference(starts[index], batches[index], of_weights,
                               of_gradients)[0])

    def rewritten(**on):
        return zpp.jit(program.step, mesh=training.NODES, target="portable",
                       **training.OFF | on)

    # What XLA compiles once more may round elsewhere, by far less than any format.
    exact = 1e-4 if is_jitted else 1e-5
    floors = [[exact * distance(right, old) + 4 * distance(same, right)
               + 1e-5 * is_jitted * float(np.linalg.norm(old[np.isfinite(old)]))
               for (_, old), (_, right), (_, same) in zip(
                   named(starts[index]), theirs[index],
                   referred(index, False, False), strict=True)]
              for index in range(2)]
    step = rewritten(secondary="gpu")
    for index in range(2):
        ours, loss = step(starts[index], batches[index])
        wrong += [f"hpZ: {path} is off by {off:.3g}"
                  for (path, left), (_, right), floor in zip(
                      named(ours), theirs[index], floors[index], strict=True)
                  if (off := distance(left, right)) > floor]
        if not abs(float(loss) - losses[index]) <= exact * abs(losses[index]):
            wrong.append(f"hpZ: loss {loss}, not {losses[index]}")
    is_tight = 0 < outcome.known == outcome.rewritten
    step = rewritten(**training.ALL_ON)
    for index in range(2):
        ours, _ = step(starts[index], batches[index])
        for (path, left), (_, right), (_, rounded), floor in zip(
                named(ours), theirs[index], referred(index, True, True),
                floors[index], strict=True):
            drift = distance(rounded, right)
            off, allowed = ((distance(left, rounded), TIGHT) if is_tight
                            else (distance(left, right), LOOSE))
            if not off <= allowed * drift + floor:
                wrong.append(
                    f"step {index}: {path} is off by {off:.3g} from "
                    f"{'the reference' if is_tight else 'the original'}; rounding "
                    f"changes it by {drift:.3g}, compiling by {floor:.3g}")
    return outcome


def compared(program: Program, seed: int, trains: bool) -> Outcome:
    with warnings.catch_warnings():
        # That collectives are left alone, or have no secondary partition.
        warnings.simplefilter("ignore")
        return (trained if trains else roles)(program, seed)


def differences(seed: int, trains: bool = True) -> Outcome:
    return compared(Program.of_seed(seed), seed, trains)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0,
                        help="the first of the programs")
    parser.add_argument("--train", type=int, default=8,
                        help="one of so many programs trains")
    args = parser.parse_args()
    end, seed = time.monotonic() + args.seconds, args.seed
    counts: collections.Counter[str] = collections.Counter()
    while time.monotonic() < end:
        trains = seed % args.train == 0
        outcome = differences(seed, trains)
        if outcome.wrong:
            print(f"seed {seed}, {choose(seed)}:", *outcome.wrong, sep="\n  ",
                  flush=True)
        counts.update(programs=1, trained=trains, failed=bool(outcome.wrong),
                      known=outcome.known, rewritten=outcome.rewritten,
                      without=outcome.rewritten_without)
        seed += 1
    print(f"{counts['programs']} programs, of which {counts['trained']} trained; "
          f"{counts['failed']} failed; {counts['rewritten']} of "
          f"{counts['known']} collectives of weights and gradients rewritten, "
          f"{counts['without']} without the names of autodiff")
    return counts["failed"] > 0


if __name__ == "__main__":
    sys.exit(main())
