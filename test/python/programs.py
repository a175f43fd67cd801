# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random small training programs: layers, an optimizer and statistics, drawn
from a seed. Weights are sharded over all devices, and each statistic has the
shape of a weight, or is a buffer that a layer adds.

    python test/python/programs.py --seconds 600 [--seed 0]

trains one after the other, as written and rewritten, and says which fail.
"""

import argparse
import dataclasses
import math
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import conftest  # noqa: F401  (devices and folders)
import jax
import jax.numpy as jnp
import numpy as np
import training
import zpp
from jax.sharding import NamedSharding, PartitionSpec

AXES = training.AXES
SHARDED, WHOLE = PartitionSpec(AXES), PartitionSpec()
WIDTH, DEVICES = 64, 8
ROWS = 8 * WIDTH


@dataclasses.dataclass(frozen=True)
class Program:
    """A step (state, batch) -> (state, loss). The state has `weights`, `moments`
    of the optimizer, `statistics`, `codebooks` and `running` averages that no
    gradient flows into, and `buffers`, which come back as they are."""

    choices: tuple[str, ...]
    step: Callable
    state: dict[str, Any]
    #: Whether the partitioner makes the collectives.
    is_jitted: bool
    #: How far weights may be from where they would be after one step, relative
    #: to how far they move: of an optimizer that divides by the gradient's size,
    #: small elements may turn around.
    bound: float
    #: How far statistics may be where activations change a little: some count
    #: which one is the largest.
    drift: float
    #: Whether activations follow from gradients that are summed: of weights that
    #: are adapted first, in a program of `jax.jit`.
    rounds_activations: bool


# Layers: functions (weights, hidden, bias) -> hidden. -------------------------


def dense(weights, hidden, bias):
    return jnp.tanh(hidden @ weights["a"])


def residual(weights, hidden, bias):
    return hidden + jax.nn.gelu(hidden @ weights["a"]) @ weights["b"]


def gated(weights, hidden, bias):
    return hidden + (jax.nn.silu(hidden @ weights["a"])
                     * (hidden @ weights["b"])) @ weights["a"].T


def attention(weights, hidden, bias):
    rows = hidden.reshape(-1, WIDTH, WIDTH)
    scores = (rows @ weights["a"]) @ jnp.swapaxes(rows, 1, 2) * WIDTH**-0.5
    return hidden + (jax.nn.softmax(scores + bias) @ rows
                     @ weights["b"]).reshape(hidden.shape)


def rectified(weights, hidden, bias):
    return jax.nn.relu(hidden @ weights["a"]) @ weights["b"]


def normed(weights, hidden, bias):
    scale = jax.lax.rsqrt(jnp.mean(hidden**2, -1, keepdims=True) + 1e-6)
    return hidden + jnp.tanh((hidden * scale) @ weights["a"]) @ weights["b"]


@jax.custom_vjp
def product(hidden, weight):
    return hidden @ weight


def product_backward(saved, gradient):
    hidden, weight = saved
    return gradient @ weight.T, hidden.T @ gradient


product.defvjp(lambda hidden, weight: (hidden @ weight, (hidden, weight)),
               product_backward)


def by_hand(weights, hidden, bias):
    """A derivative that somebody has written."""
    return hidden + jnp.tanh(product(hidden, weights["a"]))


def tied(weights, hidden, bias):
    return hidden + jnp.tanh(jnp.tanh(hidden @ weights["a"])
                             @ weights["a"]) @ weights["a"].T


def by_heads(weights, hidden, bias):
    """A product per head, vmapped over slices of the weight."""
    heads = weights["a"].reshape(4, WIDTH // 4, WIDTH)
    parts = hidden.reshape(-1, 4, WIDTH // 4)
    products = jax.vmap(jnp.matmul, (1, 0), 1)(parts, heads)
    return hidden + jnp.tanh(products).mean(1) @ weights["b"]


def synced(weights, hidden, bias):
    """Batch normalization: sums of activations over all devices."""
    first, second = (all_mean(jnp.mean(hidden**power, 0)) for power in (1, 2))
    scale = jax.lax.rsqrt(jnp.maximum(second - first**2, 0) + 1e-3)
    return hidden + jnp.tanh((hidden - first) * scale @ weights["a"])


LAYERS = (dense, residual, gated, attention, rectified, normed, by_hand, tied,
          by_heads, synced)

# Losses: functions (output, batch) -> a mean per device. ----------------------


def squares(output, batch):
    return jnp.mean((output - jnp.sin(3 * batch)) ** 2)


def entropy(output, batch):
    target = jax.nn.one_hot(jnp.argmax(batch, 1), WIDTH)
    return -jnp.mean(jnp.sum(target * jax.nn.log_softmax(output), 1))


def huber(output, batch):
    error = jnp.abs(output - batch)
    return jnp.mean(jnp.where(error < 1, error**2 / 2, error - 0.5))


def policy(output, batch):
    """A policy gradient, with advantages that are normalized over all devices."""
    action = jnp.argmax(batch, 1)
    reward = jnp.max(batch, 1) - all_mean(jnp.mean(jnp.max(batch, 1)))
    deviation = jnp.sqrt(all_mean(jnp.mean(reward**2)))
    log = jnp.take_along_axis(jax.nn.log_softmax(output), action[:, None], 1)
    return -jnp.mean(reward / (deviation + 1e-6) * log[:, 0])


LOSSES = (squares, entropy, huber, policy)

# Optimizers: functions (weight, gradient, moment) -> (weight, moment). --------


def sgd(weight, gradient, moment):
    return weight - 0.3 * gradient, moment


def momentum(weight, gradient, moment):
    moment = 0.9 * moment + gradient
    return weight - 0.1 * moment, moment


def decayed(weight, gradient, moment):
    return 0.999 * weight - 0.3 * gradient, 0.9 * moment + 0.1 * weight


def rms(weight, gradient, moment):
    moment = 0.9 * moment + 0.1 * gradient**2
    return weight - 1e-2 * gradient / (jnp.sqrt(moment) + 1e-3), moment


def lion(weight, gradient, moment):
    return (weight - 1e-2 * jnp.sign(0.9 * moment + 0.1 * gradient),
            0.99 * moment + 0.01 * gradient)


def shampoo(weight, gradient, moment):
    """Preconditioned by a covariance of gradients, which is state of its own. The
    inverse is that of the first two terms of its series."""
    moment = 0.9 * moment + all_scatter(gradient.T @ gradient)
    covariance = all_gather(moment)
    covariance /= jnp.sqrt(jnp.sum(covariance**2)) + 1e-12
    return weight - 0.2 * (2 * gradient - gradient @ covariance), moment


def muon(weight, gradient, moment):
    """Orthogonalized momentum, by two steps of Newton and Schulz."""
    moment = 0.9 * moment + gradient
    whole = all_gather(moment)
    whole /= jnp.sqrt(jnp.sum(whole**2)) + 1e-12
    for _ in range(2):
        whole = 1.5 * whole - 0.5 * whole @ (whole.T @ whole)
    return weight - 0.1 * own_rows(whole), moment


OPTIMIZERS = {sgd: 0.2, momentum: 0.2, decayed: 0.2, rms: 0.9, lion: 0.9,
              shampoo: 0.3, muon: 0.4}

# Statistics: functions (hidden, batch) -> a matrix of this device. ------------


def covariance(hidden, batch):
    return hidden.T @ hidden / len(hidden)


def classes(hidden, batch):
    return jax.nn.one_hot(jnp.argmax(batch, 1), WIDTH).T @ hidden / len(hidden)


def correlation(hidden, batch):
    return jnp.tanh(batch).T @ hidden / len(hidden)


def largest(hidden, batch):
    return jnp.zeros((WIDTH, WIDTH)).at[jnp.argmax(hidden, 1)].add(batch) / len(
        hidden)


def probabilities(hidden, batch):
    return jax.nn.softmax(hidden).T @ hidden / len(hidden)


STATISTICS = (covariance, classes, correlation, largest, probabilities)

# Assignments to a codebook: functions of logits. ------------------------------


def soft(logits):
    return jax.nn.softmax(logits)


def hard(logits):
    return jax.nn.one_hot(jnp.argmax(logits, 1), WIDTH)


def straight_through(logits):
    chances = soft(logits)
    return chances + jax.lax.stop_gradient(hard(logits) - chances)


def balanced(logits):
    """By Sinkhorn and Knopp: sums over all devices on the way."""
    chances = jnp.exp(logits - all_max(jnp.max(logits)))
    for _ in range(2):
        chances /= all_mean(jnp.mean(chances, 0)) + 1e-6
        chances /= jnp.sum(chances, 1, keepdims=True)
    return chances


def sparse(logits):
    best, places = jax.lax.top_k(jax.nn.softmax(logits), 4)
    return jnp.zeros_like(logits).at[
        jnp.arange(len(logits))[:, None], places].add(best)


ASSIGNMENTS = (soft, hard, straight_through, balanced, sparse)

#: Those that change by leaps. Int8 weights move logits by 2 % of their deviation
#: after three layers. The two largest of 64 are 0.35 deviations apart on average,
#: so up to 6 % of the choices flip, and a sum of rows by class errs by the root
#: of twice that: 0.35.
LEAPING = {largest, hard, straight_through, sparse}

# Collectives, which the partitioner makes in a program of `jax.jit`. -----------

#: Whether the step that is traced has none of its own.
is_jitted_step = False


def all_mean(value):
    return value if is_jitted_step else jax.lax.pmean(value, AXES)


def all_max(value):
    return value if is_jitted_step else jax.lax.pmax(
        jax.lax.stop_gradient(value), AXES)


def all_gather(shard):
    return shard if is_jitted_step else jax.lax.all_gather(
        shard, AXES, axis=0, tiled=True)


def all_scatter(value):
    return value if is_jitted_step else jax.lax.psum_scatter(
        value, AXES, tiled=True)


def own_rows(whole):
    if is_jitted_step:
        return whole
    rows = len(whole) // DEVICES
    return jax.lax.dynamic_slice_in_dim(
        whole, jax.lax.axis_index(AXES) * rows, rows)


# Derivatives: functions (loss with what it has seen, weights). ----------------


def reverse(function, weights):
    return jax.value_and_grad(function, has_aux=True)(weights)


def linearized(function, weights):
    loss, linear, seen = jax.linearize(function, weights, has_aux=True)
    (gradients,) = jax.linear_transpose(linear, weights)(jnp.ones_like(loss))
    return (loss, seen), gradients


DERIVATIVES = (reverse, reverse, linearized)


# What the batch is normalized with: functions (batch, running averages). --------


def standardized(batch, mean, covariance):
    """By means and variances, as batch normalization is where it is evaluated."""
    return (batch - mean) * jax.lax.rsqrt(
        jnp.maximum(jnp.diagonal(covariance), 0.1))


def whitened(batch, mean, covariance):
    """By an inverse root of the covariance, of which a series has two terms."""
    scale = WIDTH / jnp.trace(covariance)
    return (batch - mean) @ (1.5 * jnp.eye(WIDTH) - 0.5 * scale * covariance)


def masks(draw: random.Random) -> np.ndarray:
    hidden = draw.choice((-1e9, -np.inf, -30.0))
    distance = np.abs(np.subtract.outer(np.arange(WIDTH), np.arange(WIDTH)))
    return np.where(np.tri(WIDTH, dtype=bool), -0.05 * distance,
                    hidden).astype(np.float32)


def make(seed: int) -> Program:
    draw = random.Random(seed)
    layers = [draw.choice(LAYERS) for _ in range(draw.randint(1, 3))]
    loss_of = draw.choice(LOSSES)
    optimizer = draw.choice(list(OPTIMIZERS))
    statistics = [draw.choice(STATISTICS) for _ in range(draw.randint(0, 2))]
    is_jitted = draw.random() < 0.3
    is_checkpointed = draw.random() < 0.5
    clips = draw.random() < 0.3
    derive = draw.choice(DERIVATIVES)
    #: Weights are adapted to a task first; the derivative of that may count.
    adapts = draw.choice((None, None, None, "first", "second"))
    assigns = [draw.choice(ASSIGNMENTS)] * (draw.random() < 0.4)
    buffers = masks(draw)
    normalize = draw.choice((None, None, standardized, whitened))
    numbers = np.random.default_rng(seed)

    def matrix():
        return (WIDTH**-0.5 * numbers.standard_normal((WIDTH, WIDTH))).astype(
            np.float32)

    weights = [{"a": matrix(), "b": matrix()} for _ in layers]
    zeros = jax.tree.map(np.zeros_like, weights)
    state = {"weights": weights, "moments": zeros,
             "statistics": [np.zeros((WIDTH, WIDTH), np.float32)
                            for _ in statistics],
             "codebooks": [matrix() for _ in assigns],
             "buffers": buffers,
             "running": [np.zeros(WIDTH, np.float32),
                         np.eye(WIDTH, dtype=np.float32)]
             if normalize else []}

    def scatter(value):
        return all_scatter(value) if is_jitted else all_scatter(value) / DEVICES

    def step(state, batch):
        global is_jitted_step
        is_jitted_step = is_jitted
        bias = all_gather(state["buffers"])
        running = state["running"]
        given = batch
        if normalize:
            mean = all_mean(jnp.mean(batch, 0))
            running = [
                0.9 * running[0] + 0.1 * own_rows(mean),
                0.9 * running[1] + 0.1 * scatter(
                    (batch - mean).T @ (batch - mean) / len(batch))]
            batch = normalize(batch, *map(all_gather, running))
        codebooks = [all_gather(codebook) for codebook in state["codebooks"]]

        def run(weights, batch, gather):
            hidden, seen = batch, []
            for layer, shards in zip(layers, weights, strict=True):
                def apply(shards, hidden, layer=layer):
                    return layer(jax.tree.map(gather, shards), hidden, bias)
                if is_checkpointed:
                    apply = jax.checkpoint(apply)
                hidden = apply(shards, hidden)
                seen.append(hidden)
            for codebook, assign in zip(codebooks, assigns, strict=True):
                hidden += assign(hidden @ codebook.T) @ codebook
            return loss_of(hidden, batch), seen

        def forward(weights):
            if not adapts:
                return run(weights, batch, all_gather)
            whole = jax.tree.map(all_gather, weights)
            changes = jax.grad(lambda whole: run(
                whole, jnp.roll(batch, 1, 1), lambda weight: weight)[0])(whole)
            if adapts == "first":
                changes = jax.lax.stop_gradient(changes)
            return run(jax.tree.map(lambda w, g: w - 0.1 * g, whole, changes),
                       batch, lambda weight: weight)

        (loss, seen), gradients = derive(forward, state["weights"])
        if not is_jitted:
            # The transposes of gathers are sums.
            gradients = jax.tree.map(lambda g: g / DEVICES, gradients)
        if clips:
            squared = sum(jnp.sum(g**2) for g in jax.tree.leaves(gradients))
            norm = jnp.sqrt(squared if is_jitted
                            else jax.lax.psum(squared, AXES))
            gradients = jax.tree.map(
                lambda g: g * jnp.minimum(1, 1 / (norm + 1e-6)), gradients)
        found = [optimizer(w, g, m) for w, g, m in zip(*map(
            jax.tree.leaves, (state["weights"], gradients, state["moments"])),
            strict=True)]
        tree = jax.tree.structure(state["weights"])
        # With what was known before the step.
        evaluation = run(state["weights"], normalize(
            given, *map(all_gather, state["running"])), all_gather)[0] if (
                normalize) else 0
        collected = [0.9 * old + 0.1 * scatter(statistic(hidden, batch))
                     for old, statistic, hidden in zip(
                         state["statistics"], statistics, reversed(seen),
                         strict=False)]
        collected += state["statistics"][len(collected):]
        books = []
        for own, codebook, assign in zip(state["codebooks"], codebooks, assigns,
                                         strict=True):
            chances = assign(seen[-1] @ codebook.T)
            books.append(0.9 * own + 0.1 * scatter(
                chances.T @ seen[-1] / (0.1 + chances.sum(0)[:, None])))
        return {"weights": tree.unflatten([w for w, _ in found]),
                "moments": tree.unflatten([m for _, m in found]),
                "statistics": collected, "codebooks": books,
                "buffers": state["buffers"], "running": running}, all_mean(
                    loss + evaluation)

    specs = jax.tree.map(lambda _: SHARDED, state)
    if is_jitted:
        def placed(state, batch):
            batch = jax.lax.with_sharding_constraint(
                batch, NamedSharding(training.MESH, SHARDED))
            state, loss = step(state, batch)
            return jax.lax.with_sharding_constraint(
                state, jax.tree.map(lambda spec: NamedSharding(
                    training.MESH, spec), specs)), loss
    else:
        placed = jax.shard_map(
            step, mesh=training.MESH, in_specs=(specs, SHARDED),
            out_specs=(specs, WHOLE), check_vma=False)
    state = jax.tree.map(lambda leaf: jax.device_put(
        leaf, NamedSharding(training.MESH, SHARDED)), state)
    names = [each.__name__ for each in (
        *layers, loss_of, optimizer, *statistics, *assigns, derive)]
    return Program(
        (*names, *["jit"] * is_jitted, *["checkpoint"] * is_checkpointed,
         *["clip"] * clips, *[f"adapts, {adapts} order"] * bool(adapts),
         *[each.__name__ for each in (normalize,) if each]),
        placed, state, is_jitted, OPTIMIZERS[optimizer],
        0.35 if LEAPING & {*statistics, *assigns} else 0.1,
        is_jitted and adapts is not None)


def batch_of(seed: int, step: int):
    numbers = np.random.default_rng([seed, step])
    # Some rows are all of one sign.
    values = numbers.standard_normal((ROWS, WIDTH)).astype(np.float32)
    return jax.device_put(np.where(numbers.random((ROWS, 1)) < 0.3,
                                   np.abs(values), values),
                          NamedSharding(training.MESH, SHARDED))


def distances(start: np.ndarray, ours: np.ndarray, theirs: np.ndarray
              ) -> tuple[float, float]:
    """How far ours are from theirs, and theirs from the start; what is not finite
    in theirs has to be the same in ours."""
    finite = np.isfinite(theirs)
    moved = float(np.linalg.norm((theirs - start)[finite]))
    if not (np.isfinite(ours[finite]).all() and np.array_equal(
            ours[~finite], theirs[~finite], equal_nan=True)):
        return math.inf, moved
    return float(np.linalg.norm((ours - theirs)[finite])), moved


def differences(seed: int) -> list[str]:
    """Differences between the program and its rewrites that must not be."""
    program, found = make(seed), []
    batches = [batch_of(seed, step) for step in range(2)]

    def train(step):
        state = program.state
        for batch in batches:
            state, loss = step(state, batch)
            yield jax.tree.map(np.asarray, state), float(loss)

    def rewritten(**options):
        given = dict(weights="none", gradients="none", secondary="none")
        return zpp.jit(program.step, mesh=training.NODES, target="portable",
                       compiler_options=training.FUSED, **given | options)

    def compare(name, ours, theirs, bounds):
        starts = jax.tree.map(np.asarray, program.state)
        for kind, bound in bounds.items():
            for start, left, right in zip(*map(jax.tree.leaves, (
                    starts[kind], ours[kind], theirs[kind])), strict=True):
                off, moved = distances(start, left, right)
                if off > bound * moved:
                    found.append(f"{name}: {kind} are off by {off:.3g} of "
                                 f"{moved:.3g}")

    plain = list(train(jax.jit(program.step, compiler_options=training.FUSED)))
    found += [f"as written: loss {loss}" for _, loss in plain
              if not math.isfinite(loss)]
    # What XLA compiles once more may round elsewhere.
    exact = 1e-4 if program.is_jitted else 0
    same = dict.fromkeys(program.state, exact)
    for name, options in {"off": {}, "hpZ": {"secondary": "gpu"}}.items():
        for (ours, loss), (theirs, their_loss) in zip(
                train(rewritten(**options)), plain, strict=True):
            compare(name, ours, theirs, same)
            if not abs(loss - their_loss) <= exact * abs(their_loss):
                found.append(f"{name}: loss {loss}, not {their_loss}")
    # One step: what does not follow from a rounded gradient has its bits.
    (ours, _), *_ = train(rewritten(gradients="i8:i4"))
    kept = program.drift if program.rounds_activations else 1e-4
    compare("gradients", ours, plain[0][0], {
        "weights": program.bound, "moments": 0.4,
        "statistics": kept, "codebooks": max(kept, 10 * exact), "buffers": 0,
        "running": exact})
    # Weights in int8 change what all activations are, but not by much.
    for ours, theirs in zip(train(rewritten(weights="i8", gradients="i8:i4",
                                            secondary="gpu")), plain,
                            strict=True):
        compare("all", ours[0], theirs[0], {
            "weights": 1.5 * program.bound, "moments": 0.5,
            "statistics": program.drift, "codebooks": program.drift,
            "buffers": 0, "running": exact})
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0,
                        help="the first of the programs")
    args = parser.parse_args()
    end, seed, failed = time.monotonic() + args.seconds, args.seed, 0
    while time.monotonic() < end:
        if found := differences(seed):
            failed += 1
            print(f"seed {seed}, {' '.join(make(seed).choices)}:",
                  *found, sep="\n  ", flush=True)
        seed += 1
    print(f"{seed - args.seed} programs, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
