# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers, statistics and buffers whose shapes are those of weights. Each is
trained beside its original, and all leaves of the state are compared."""

import dataclasses
from collections.abc import Callable
from typing import Any

import blockquant
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import training
import zpp
from jax.sharding import NamedSharding, PartitionSpec

pytestmark = pytest.mark.compiler

AXES = training.AXES
SHARDED, REPLICATED = PartitionSpec(AXES), PartitionSpec()
#: Rows and columns of all weights: statistics have the same shape.
SIZE = 64


def gather(shard):
    return jax.lax.all_gather(shard, AXES, axis=0, tiled=True)


def scatter(whole):
    return jax.lax.psum_scatter(whole, AXES, tiled=True) / 8


def own_rows(whole):
    rows = whole.shape[0] // 8
    return jax.lax.dynamic_slice_in_dim(
        whole, jax.lax.axis_index(AXES) * rows, rows)


def network(first, second, x):
    return jnp.tanh(x @ first) @ second


def loss_of(weights, x):
    return jnp.mean((network(*weights, x) - jnp.sin(3 * x)) ** 2)


def gradients(weights, x):
    """Gradients of whole weights on this device, and the loss of all."""
    value, whole = jax.value_and_grad(loss_of)(weights, x)
    return jax.lax.pmean(value, AXES), whole


def shampoo(state, x):
    """Left preconditioners: moments of rows of the gradient."""
    weights, factors = state
    value, whole = gradients([gather(w) for w in weights], x)
    factors = [0.95 * r + scatter(g @ g.T)
               for r, g in zip(factors, whole, strict=True)]

    def precondition(factor, mine):
        values, vectors = jnp.linalg.eigh(gather(factor) + 1e-4 * jnp.eye(SIZE))
        root = vectors * jnp.maximum(values, 1e-5) ** -0.25 @ vectors.T
        return own_rows(root) @ gather(mine)

    weights = [w - 0.3 * precondition(r, scatter(g))
               for w, r, g in zip(weights, factors, whole, strict=True)]
    return (weights, factors), value


def k_fac(state, x):
    """The covariance of what the first layer reads."""
    weights, factor = state
    value, whole = gradients([gather(w) for w in weights], x)
    factor = 0.9 * factor + 0.1 * scatter(x.T @ x / len(x))
    inverse = jnp.linalg.inv(gather(factor) + 0.1 * jnp.eye(SIZE))
    first, second = (gather(scatter(g)) for g in whole)
    return ([weights[0] - 0.1 * own_rows(inverse @ first),
             weights[1] - 0.3 * own_rows(second)], factor), value


def code_loss(weights, book, x):
    """That of a VQ-VAE, with the chosen codes and what chose them."""
    z = x @ weights[0]
    nearest = jnp.argmin(jnp.sum(book**2, 1) - 2 * z @ book.T, axis=1)
    chosen = jax.nn.one_hot(nearest, SIZE)
    quantized = z + jax.lax.stop_gradient(chosen @ book - z)
    penalty = jnp.mean((z - jax.lax.stop_gradient(chosen @ book)) ** 2)
    return (jnp.mean((quantized @ weights[1] - x) ** 2) + penalty,
            (chosen, z))


def codebook(state, x):
    """A VQ-VAE whose codes are averages of what was assigned to them."""
    weights, codes, counts = state
    book = gather(codes)
    (value, (chosen, z)), whole = jax.value_and_grad(code_loss, has_aux=True)(
        [gather(w) for w in weights], book, x)
    counts = 0.9 * counts + 0.1 * jax.lax.psum(jnp.sum(chosen, 0), AXES)
    sums = jax.lax.psum_scatter(chosen.T @ z, AXES, tiled=True)
    codes = 0.9 * codes + 0.1 * sums / (own_rows(counts)[:, None] + 1)
    weights = [w - 0.3 * scatter(g)
               for w, g in zip(weights, whole, strict=True)]
    return (weights, codes, counts), jax.lax.pmean(value, AXES)


def partitioned_codebook(state, x):
    """The same, where XLA makes the collectives."""
    weights, codes, counts = state
    (value, (chosen, z)), mine = jax.value_and_grad(code_loss, has_aux=True)(
        weights, codes, x)
    counts = 0.9 * counts + 0.1 * jnp.sum(chosen, 0)
    codes = 0.9 * codes + 0.1 * chosen.T @ z / (counts[:, None] + 1)
    return jax.lax.with_sharding_constraint((
        [w - 0.3 * g for w, g in zip(weights, mine, strict=True)], codes,
        counts), placed(([SHARDED] * 2, SHARDED, REPLICATED))), value


def placed(specs):
    return jax.tree.map(lambda spec: NamedSharding(training.MESH, spec), specs)


def covariance(state, x):
    """The covariance of hidden activations, as pruning reads it."""
    weights, seen = state
    whole = [gather(w) for w in weights]
    value, mine = gradients(whole, x)
    hidden = jnp.tanh(x @ whole[0])
    seen = seen + scatter(hidden.T @ hidden)
    return ([w - 0.3 * scatter(g)
             for w, g in zip(weights, mine, strict=True)], seen), value


def prototypes(state, x):
    """Means of hidden activations per class."""
    weights, means = state
    whole = [gather(w) for w in weights]
    value, mine = gradients(whole, x)
    classes = jax.nn.one_hot(jnp.argmax(x, axis=1), SIZE)
    means = 0.9 * means + 0.1 * scatter(classes.T @ jnp.tanh(x @ whole[0]))
    return ([w - 0.3 * scatter(g)
             for w, g in zip(weights, mine, strict=True)], means), value


def masked(state, x):
    """Attention among rows, with a bias that the step returns as it came."""
    weights, bias = state
    added = gather(bias)

    def loss(weights):
        scores = (x @ weights[0]) @ x.T + added
        return jnp.mean((jax.nn.softmax(scores) @ x @ weights[1] - x) ** 2)

    value, whole = jax.value_and_grad(loss)([gather(w) for w in weights])
    return ([w - 0.3 * scatter(g) for w, g in zip(weights, whole, strict=True)],
            bias), jax.lax.pmean(value, AXES)


def adahessian(state, x):
    """The diagonal of the Hessian, as a difference of gradients."""
    weights, moments = state
    probe = jnp.where(jnp.arange(SIZE * SIZE).reshape(SIZE, SIZE) * 7 % 5 < 2,
                      -1.0, 1.0)
    whole = [gather(w) for w in weights]
    value, here = gradients(whole, x)
    _, there = gradients([w + 1e-2 * probe for w in whole], x)
    here, there = [scatter(g) for g in here], [scatter(g) for g in there]
    moments = [0.9 * m + 0.1 * (own_rows(probe) * (b - a) / 1e-2) ** 2
               for m, a, b in zip(moments, here, there, strict=True)]
    return ([w - 0.02 * g / (jnp.sqrt(m) + 1e-2)
             for w, g, m in zip(weights, here, moments, strict=True)],
            moments), value


def bank(state, x):
    """Contrasted with rows of all devices, of which each replaces its own."""
    weights, rows = state
    memory = gather(rows)

    def loss(weights):
        z = network(*weights, x)
        return (jnp.mean(z**2) - jnp.mean(jax.nn.log_softmax(
            z @ memory.T * 0.1)[:, 0]), z)

    (value, z), whole = jax.value_and_grad(loss, has_aux=True)(
        [gather(w) for w in weights])
    return ([w - 0.3 * scatter(g) for w, g in zip(weights, whole, strict=True)],
            jnp.concatenate([z[:4], rows[:-4]])), jax.lax.pmean(value, AXES)


def whitened(state, x):
    """Rows are whitened by a running covariance before the layers."""
    weights, covariance = state
    values, vectors = jnp.linalg.eigh(gather(covariance) + 1e-2 * jnp.eye(SIZE))
    rows = x @ (vectors * values**-0.5 @ vectors.T)
    value, whole = gradients([gather(w) for w in weights], rows)
    return ([w - 0.3 * scatter(g) for w, g in zip(weights, whole, strict=True)],
            0.9 * covariance + 0.1 * scatter(x.T @ x / len(x))), value


def rotary(state, x):
    """Rows are rotated by a table that the step returns as it came."""
    weights, table = state
    cosines, sines = jnp.split(gather(table), 2, 1)

    def rotate(rows):
        left, right = jnp.split(rows, 2, 1)
        return jnp.concatenate([left * cosines - right * sines,
                                left * sines + right * cosines], 1)

    def loss(weights):
        scores = rotate(x @ weights[0]) @ rotate(x).T / 8
        return jnp.mean((jax.nn.softmax(scores) @ x @ weights[1] - x) ** 2)

    value, whole = jax.value_and_grad(loss)([gather(w) for w in weights])
    return ([w - 0.3 * scatter(g) for w, g in zip(weights, whole, strict=True)],
            table), jax.lax.pmean(value, AXES)


@jax.custom_vjp
def tapped(x, weight, factor):
    return x @ weight


def tapped_backward(saved, cotangent):
    """The factor is the cotangent of an argument that nothing uses."""
    x, weight = saved
    return (cotangent @ weight.T, x.T @ cotangent,
            len(x) * cotangent.T @ cotangent)


tapped.defvjp(lambda x, weight, factor: (x @ weight, (x, weight)),
              tapped_backward)


def k_fac_by_hand(state, x):
    """The covariance of gradients, made in the backward pass."""
    weights, factors = state

    def loss(weights, taps):
        hidden = jnp.tanh(tapped(x, weights[0], taps[0]))
        return jnp.mean((tapped(hidden, weights[1], taps[1]) - jnp.sin(3 * x))
                        ** 2)

    value, (whole, made) = jax.value_and_grad(loss, (0, 1))(
        [gather(w) for w in weights], [jnp.zeros((SIZE, SIZE))] * 2)
    factors = [0.9 * f + 0.1 * scatter(g)
               for f, g in zip(factors, made, strict=True)]
    return ([w - 0.1 * scatter(g) @ jnp.linalg.inv(
        gather(f) + 0.1 * jnp.eye(SIZE))
        for w, g, f in zip(weights, whole, factors, strict=True)],
        factors), jax.lax.pmean(value, AXES)


def unit(vector):
    return vector / (jnp.sqrt(jnp.sum(vector**2)) + 1e-12)


def spectral(state, x):
    """Weights divided by their spectral norms, by power iterations whose vectors
    are state."""
    weights, vectors = state
    whole = [gather(w) for w in weights]
    rights = [unit(w.T @ gather(u)) for w, u in zip(whole, vectors, strict=True)]
    lefts = [unit(w @ v) for w, v in zip(whole, rights, strict=True)]

    def loss(weights):
        return loss_of([w / (u @ (w @ v)) for w, u, v in zip(
            weights, lefts, rights, strict=True)], x)

    value, mine = jax.value_and_grad(loss)(whole)
    return ([w - 0.3 * scatter(g) for w, g in zip(weights, mine, strict=True)],
            [own_rows(u) for u in lefts]), jax.lax.pmean(value, AXES)


def replayed(state, x):
    """Rows of the batch, which has the buffer's type, replace half of it."""
    weights, rows = state
    value, mine = gradients([gather(w) for w in weights], gather(rows)[::8])
    return ([w - 0.3 * scatter(g) for w, g in zip(weights, mine, strict=True)],
            jnp.where(jnp.arange(len(x))[:, None] % 2 == 0, x, rows)), value


def normed(state, x):
    """Weight normalization by a function, its gradient by whole weights."""
    weights, gains = state

    def loss(weights, gains):
        return loss_of([w * (g / jnp.linalg.norm(w, axis=0))
                        for w, g in zip(weights, gains, strict=True)], x)

    value, (mine, of_gains) = jax.value_and_grad(loss, (0, 1))(
        [gather(w) for w in weights], gains)
    return ([w - 0.3 * scatter(g) for w, g in zip(weights, mine, strict=True)],
            [g - 0.3 * jax.lax.pmean(d, AXES)
             for g, d in zip(gains, of_gains, strict=True)]
            ), jax.lax.pmean(value, AXES)


def total(values):
    return jax.lax.psum(sum(jnp.sum(value) for value in values), AXES)


def secant(state, x):
    """The step of Barzilai and Borwein: by the last gradient."""
    weights, last, last_weights = state
    value, mine = gradients([gather(w) for w in weights], x)
    mine = [scatter(g) for g in mine]
    moved = [w - v for w, v in zip(weights, last_weights, strict=True)]
    turned = [g - p for g, p in zip(mine, last, strict=True)]
    rate = total([m * m for m in moved]) / (jnp.abs(total(
        [m * t for m, t in zip(moved, turned, strict=True)])) + 1e-12)
    rate = jnp.where(rate == 0, 0.3, jnp.clip(rate, 0.05, 2))
    return ([w - rate * g for w, g in zip(weights, mine, strict=True)], mine,
            weights), value


def recursive(state, x):
    """STORM: an average that the gradient at the last weights corrects."""
    weights, last_weights, averages, count = state
    value, here = gradients([gather(w) for w in weights], x)
    _, there = gradients([gather(w) for w in last_weights], x)
    averages = [scatter(g) + jnp.where(count == 0, 0, 0.8) * (v - scatter(p))
                for g, p, v in zip(here, there, averages, strict=True)]
    return ([w - 0.3 * v for w, v in zip(weights, averages, strict=True)],
            weights, averages, count + 1), value


def belief(state, x):
    """AdaBelief: divided by the distance of gradients to their average."""
    weights, means, distances = state
    value, mine = gradients([gather(w) for w in weights], x)
    mine = [scatter(g) for g in mine]
    means = [0.9 * m + 0.1 * g for m, g in zip(means, mine, strict=True)]
    distances = [0.9 * s + 0.1 * (g - m) ** 2
                 for s, g, m in zip(distances, mine, means, strict=True)]
    return ([w - 1e-3 * m / (jnp.sqrt(s) + 1e-5) for w, m, s in zip(
        weights, means, distances, strict=True)], means, distances), value


def averaged(state, x):
    """An average that moves towards the gradient, and a negated momentum."""
    weights, means, momenta = state
    value, mine = gradients([gather(w) for w in weights], x)
    mine = [scatter(g) for g in mine]
    means = [m + 0.3 * (g - m) for m, g in zip(means, mine, strict=True)]
    momenta = [0.9 * v - 0.1 * g for v, g in zip(momenta, mine, strict=True)]
    return ([w + v - 0.1 * m for w, v, m in zip(
        weights, momenta, means, strict=True)], means, momenta), value


@dataclasses.dataclass
class Program:
    step: Callable
    #: The state beside the weights, and its sharding.
    extra: Any
    sharding: Any
    #: How many sums are of gradients, and the rule that keeps the others.
    gradients: int
    rule: str


def array(*shape, scale: float = 1.0):
    return scale * np.random.default_rng(sum(shape)).standard_normal(
        shape).astype(np.float32)


ZERO = np.zeros((SIZE, SIZE), np.float32)
ALIBI = -np.abs(np.subtract.outer(np.arange(SIZE), np.arange(SIZE)))
CAUSAL = np.tri(SIZE, dtype=bool)
PROGRAMS = {
    "shampoo": Program(shampoo, ([ZERO, ZERO],), ([SHARDED] * 2,), 2, "R9"),
    "k-fac": Program(k_fac, (ZERO,), (SHARDED,), 2, "R9"),
    "codebook": Program(codebook, (array(SIZE, SIZE), np.ones(SIZE, np.float32)),
                        (SHARDED, REPLICATED), 2, "R9"),
    "covariance": Program(covariance, (ZERO,), (SHARDED,), 2, "R11"),
    "prototypes": Program(prototypes, (ZERO,), (SHARDED,), 2, "R11"),
    "bank": Program(bank, (array(SIZE, SIZE),), (SHARDED,), 2, "R7"),
    "whitened": Program(whitened, (np.eye(SIZE, dtype=np.float32),), (SHARDED,),
                        2, "R7"),
    "rotary": Program(rotary, (np.cos(0.1 * array(SIZE, SIZE)),), (SHARDED,), 2,
                      "R7"),
    "k-fac-by-hand": Program(k_fac_by_hand, ([ZERO, ZERO],), ([SHARDED] * 2,),
                             2, "R9"),
    "spectral": Program(
        spectral, ([array(SIZE)] * 2,), ([SHARDED] * 2,), 2, "R4"),
    "replayed": Program(replayed, (array(8 * SIZE, SIZE),), (SHARDED,), 2, "R7"),
    "normed": Program(normed, ([np.ones(SIZE, np.float32)] * 2,),
                      ([REPLICATED] * 2,), 2, "R1"),
    "secant": Program(secant, ([ZERO] * 2, [ZERO] * 2), ([SHARDED] * 2,) * 2, 0,
                      "R14"),
    "recursive": Program(
        recursive, ([ZERO] * 2, [ZERO] * 2, np.float32(0)),
        ([SHARDED] * 2, [SHARDED] * 2, REPLICATED), 0, "R14"),
    "belief": Program(belief, ([ZERO] * 2, [ZERO] * 2), ([SHARDED] * 2,) * 2, 0,
                      "R14"),
    "averaged": Program(averaged, ([ZERO] * 2, [ZERO] * 2),
                        ([SHARDED] * 2,) * 2, 2, "R1"),
    "adahessian": Program(adahessian, ([ZERO, ZERO],), ([SHARDED] * 2,), 0,
                          "R14"),
} | {
    f"mask-{name}": Program(
        masked, (np.where(CAUSAL, 0.02 * ALIBI, hidden).astype(np.float32),),
        (SHARDED,), 2, "R7")
    for name, hidden in (("alibi", 0.02 * ALIBI), ("large", -1e9),
                         ("infinite", -np.inf))}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_looks_like_a_weight(name):
    program = PROGRAMS[name]
    state = ([array(SIZE, SIZE, scale=0.1), array(SIZE, SIZE, scale=0.1).T],
             *program.extra)
    sharding = ([SHARDED] * 2, *program.sharding)
    mapped = jax.shard_map(
        program.step, mesh=training.MESH, in_specs=(sharding, SHARDED),
        out_specs=(sharding, REPLICATED), check_vma=False)
    fast = zpp.jit(mapped, mesh=training.NODES, target="cpu",
                   **training.ALL_ON)
    plain = jax.jit(mapped)
    ours = theirs = state
    for step in range(6):
        x = array(8 * SIZE, SIZE) * np.cos(step + np.arange(SIZE), dtype=np.float32)
        ours, our_loss = fast(ours, x)
        theirs, their_loss = plain(theirs, x)
    np.testing.assert_allclose(our_loss, their_loss, rtol=0.05)
    for start, left, right in zip(*map(jax.tree.leaves, (state, ours, theirs)),
                                  strict=True):
        same = np.isfinite(start)
        left, right = np.asarray(left), np.asarray(right)
        assert np.array_equal(np.isfinite(left), same)
        distance = np.linalg.norm((left - right)[same])
        # Weights are sent in int8 and gradients in int8 and int4; what follows
        # from them moves with them. A rounded statistic is off by more.
        assert distance <= 0.2 * np.linalg.norm((right - start)[same])
    entries = fast.report()["collectives"]
    assert all(entry["rule"] for entry in entries)
    sums = [entry for entry in entries if entry["kind"] == "reduce_scatter"]
    assert sum(entry["role"] == "gradient" for entry in sums) == program.gradients
    left_alone = [entry for entry in entries if entry["role"] == "other"]
    assert any(entry["rule"] == program.rule for entry in left_alone)


@pytest.mark.parametrize("is_jitted", [
    False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_codebook_errs_by_assignments_alone(is_jitted):
    """With weights as they are, the average that codes move to is that of the step
    as written, though gradients are rounded. With int8 weights other codes are
    the nearest for some rows, as many as in the original step with weights that
    were rounded before."""
    state = ([array(SIZE, SIZE, scale=0.1), array(SIZE, SIZE, scale=0.1).T],
             array(SIZE, SIZE), np.ones(SIZE, np.float32))
    sharding = ([SHARDED] * 2, SHARDED, REPLICATED)
    x = array(8 * SIZE, SIZE)
    step = partitioned_codebook if is_jitted else jax.shard_map(
        codebook, mesh=training.MESH, in_specs=(sharding, SHARDED),
        out_specs=(sharding, REPLICATED), check_vma=False)

    def codes_after(step, weights=state[0]):
        return np.asarray(step(*jax.device_put(
            ((weights, *state[1:]), x), placed((sharding, SHARDED))))[0][1])

    def rewritten(**options):
        return zpp.jit(step, mesh=training.NODES, target="cpu",
                       **training.OFF | options)

    plain = jax.jit(step)
    theirs = codes_after(plain)
    moved = np.linalg.norm(theirs - state[1])
    kept = codes_after(rewritten(gradients="i8:i4", secondary="gpu"))
    # What XLA compiles once more may round elsewhere.
    assert np.linalg.norm(kept - theirs) <= (1e-5 if is_jitted else 0) * moved
    rounded = codes_after(plain, [blockquant.all_gather(
        np.split(w, 8), "i8", 128, 0, np.float32) for w in state[0]])
    by_rounding = np.linalg.norm(rounded - theirs)
    assert 0.01 * moved < by_rounding < 0.3 * moved
    ours = codes_after(rewritten(weights="i8"))
    if is_jitted:
        # XLA may gather a transposed weight, whose blocks lie otherwise.
        assert np.linalg.norm(ours - theirs) <= 1.5 * by_rounding
    else:
        np.testing.assert_allclose(ours, rounded, atol=1e-5)


def test_what_the_user_declares():
    """A covariance that is rounded because it is called a gradient."""
    program = PROGRAMS["covariance"]
    state = ([ZERO + 0.1] * 2, ZERO)
    sharding = ([SHARDED] * 2, SHARDED)
    mapped = jax.shard_map(
        program.step, mesh=training.MESH, in_specs=(sharding, SHARDED),
        out_specs=(sharding, REPLICATED), check_vma=False)
    for named in ([2], lambda path: path == "[0][1]"):
        report = zpp.jit(mapped, mesh=training.NODES, gradients_of=named,
                         target="cpu").report(state, array(8 * SIZE, SIZE))
        assert [entry["rule"] for entry in report["collectives"]
                if entry["kind"] == "reduce_scatter"].count("R15") == 1
    with pytest.raises(ValueError, match="gradients_of: expected arguments below"):
        zpp.jit(mapped, mesh=training.NODES, gradients_of=[9]).report(
            state, array(8 * SIZE, SIZE))
