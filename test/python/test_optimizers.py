# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers, statistics and buffers whose shapes are those of weights. Each is
trained beside its original, and all leaves of the state are compared."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import training
import zpp
from jax.sharding import PartitionSpec

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


def codebook(state, x):
    """A VQ-VAE whose codes are averages of what was assigned to them."""
    (encoder, decoder), codes, counts = state
    book = gather(codes)

    def loss(weights):
        z = x @ weights[0]
        nearest = jnp.argmin(jnp.sum(book**2, 1) - 2 * z @ book.T, axis=1)
        chosen = jax.nn.one_hot(nearest, SIZE)
        quantized = z + jax.lax.stop_gradient(chosen @ book - z)
        penalty = jnp.mean((z - jax.lax.stop_gradient(chosen @ book)) ** 2)
        return (jnp.mean((quantized @ weights[1] - x) ** 2) + penalty,
                (chosen, z))

    (value, (chosen, z)), whole = jax.value_and_grad(loss, has_aux=True)(
        [gather(encoder), gather(decoder)])
    counts = 0.9 * counts + 0.1 * jax.lax.psum(jnp.sum(chosen, 0), AXES)
    sums = jax.lax.psum_scatter(chosen.T @ z, AXES, tiled=True)
    codes = 0.9 * codes + 0.1 * sums / (own_rows(counts)[:, None] + 1)
    weights = [w - 0.3 * scatter(g)
               for w, g in zip((encoder, decoder), whole, strict=True)]
    return (weights, codes, counts), jax.lax.pmean(value, AXES)


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
    fast = zpp.jit(mapped, mesh=training.NODES, target="portable",
                   compiler_options=training.FAST, **training.ALL_ON)
    plain = jax.jit(mapped, compiler_options=training.FAST)
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
                         target="portable").report(state, array(8 * SIZE, SIZE))
        assert [entry["rule"] for entry in report["collectives"]
                if entry["kind"] == "reduce_scatter"].count("R15") == 1
    with pytest.raises(ValueError, match="gradients_of: expected arguments below"):
        zpp.jit(mapped, mesh=training.NODES, gradients_of=[9]).report(
            state, array(8 * SIZE, SIZE))
