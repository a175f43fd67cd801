# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of very different sizes that travel in one buffer: each has blocks of its own,
so a gain of 1e-5 is not lost beside a matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from training import AXES, MESH, NODES

pytestmark = pytest.mark.compiler

LAYERS, WIDTH = 4, 256
SECOND = P(None, AXES)


def gather(weight, dim=0):
    return jax.lax.all_gather(weight, AXES, axis=dim, tiled=True)


def layer(x, weights):
    gain, matrix, bias, scale = map(gather, weights)
    return x + gain * jnp.tanh(x @ matrix + bias) * scale, None


def loss_of_layers(weights, x):
    for number in range(LAYERS):
        x, _ = layer(x, [stack[number] for stack in weights])
    return jnp.mean(x**2)


def loss_of_scan(weights, x):
    x, _ = jax.lax.scan(jax.checkpoint(layer), x, weights)
    return jnp.mean(x**2)


def step_of(loss_of, spec=SECOND):
    def step(weights, x):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x)
        weights = jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)
        return weights, jax.lax.pmean(loss, AXES), gradients

    return jax.shard_map(step, mesh=MESH, in_specs=(spec, P(AXES)),
                         out_specs=(spec, P(), spec), check_vma=False)


def put(weights, x, spec):
    def place(value, spec):
        return jax.device_put(value.astype(np.float32), NamedSharding(MESH, spec))

    return jax.tree.map(lambda w: place(w, spec), weights), place(x, P(AXES))


def make_weights(width=WIDTH, layers=LAYERS, spec=SECOND):
    """Gains of which those of one layer are 1e-5, matrices of which those of another
    one are, biases and scales."""
    random = np.random.default_rng(0)
    gain = np.ones((layers, width))
    gain[1] = 1e-5
    matrix = 0.05 * random.normal(size=(layers, width, width))
    matrix[2] *= 1e-5
    return put((gain, matrix, 1e-3 * random.normal(size=(layers, width)),
                1 + 0.1 * random.normal(size=(layers, width))),
               random.normal(size=(64, width)), spec)


def assert_each_has_its_values(step, given, **options):
    """The gradient of each layer, as written and rewritten."""
    _, _, expected = jax.jit(step)(*given)
    fast = zpp.jit(step, mesh=NODES, weights="i8", gradients="i8:i4",
                   **options)
    _, _, found = fast(*given)
    for wanted, gradients in zip(*map(jax.tree.leaves, (expected, found)), strict=True):
        for of_layer, other in zip(np.asarray(wanted), np.asarray(gradients)):
            error = np.linalg.norm(other - of_layer) / np.linalg.norm(of_layer)
            assert error < 0.25
    return fast.report(*given)["collectives"]


@pytest.mark.parametrize("target", ["portable", "cpu"])
@pytest.mark.parametrize("loss_of", [loss_of_layers, loss_of_scan],
                         ids=["layers", "scan"])
def test_each_tensor_has_blocks_of_its_own(loss_of, target):
    assert_each_has_its_values(step_of(loss_of), make_weights(), target=target)


def apply(x, weights):
    gain, matrix, bias, scale = weights
    return x + gain * jnp.tanh(x @ matrix + bias) * scale, None


def in_turn(weights, x):
    for number in range(len(weights[0])):
        x, _ = apply(x, [stack[number] for stack in weights])
    return x


def in_scan(weights, x):
    return jax.lax.scan(jax.checkpoint(apply), x, weights)[0]


def at_once(weights, x):
    return jnp.mean(jax.vmap(lambda weights: apply(x, weights)[0])(weights), 0)


def joined(weights, x):
    """Takes a tensor apart whose last rows are not of its matrices."""
    parts, = weights
    return in_turn((parts[:, -1], parts[:, :-3], parts[:, -2], parts[:, -3]), x)


def scaled(weights, x):
    """A vector of the scales of all layers."""
    scales, matrices = weights
    return jax.lax.scan(lambda x, w: (x + w[0] * jnp.tanh(x @ w[1]), None), x,
                        (scales, matrices))[0]


@pytest.mark.parametrize("apply_all, dim, width, layers", [
    (in_turn, 1, 256, 3), (at_once, 1, 256, 3), (in_scan, 0, 48, 16),
    (joined, 2, 256, 3), (scaled, 0, 32, 32)],
    ids=lambda value: getattr(value, "__name__", value))
def test_stacks_that_are_gathered_whole(apply_all, dim, width, layers):
    """A block has no elements of two layers."""
    spec = P(*[None] * dim, AXES)
    weights, x = make_weights(width, layers, spec if dim < 2 else P(None, AXES))
    if apply_all is joined:
        gain, matrix, bias, scale = map(np.asarray, weights)
        weights, x = put((np.concatenate(
            [matrix, scale[:, None], bias[:, None], gain[:, None]], 1),), np.asarray(x),
            spec)
    if apply_all is scaled:
        weights = (weights[0][:, 0], weights[1])

    def loss_of(weights, x):
        return jnp.mean(apply_all([gather(w, dim) for w in weights], x)**2)

    assert_each_has_its_values(step_of(loss_of, spec), (weights, x), target="cpu")


@pytest.mark.parametrize("apply_all, spec", [
    (in_scan, SECOND), (in_scan, P()), (at_once, SECOND)],
    ids=["sharded", "replicated", "vmap"])
def test_stacks_that_xla_gathers(apply_all, spec):
    def step(weights, x):
        def loss_of(weights):
            y = apply_all(weights, jax.lax.with_sharding_constraint(
                x, NamedSharding(MESH, P(AXES))))
            return jnp.mean(jax.lax.with_sharding_constraint(
                y, NamedSharding(MESH, P(AXES)))**2)

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        weights = jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)
        return jax.lax.with_sharding_constraint(
            (weights, loss, gradients), (NamedSharding(MESH, spec),
                                         NamedSharding(MESH, P()),
                                         NamedSharding(MESH, spec)))

    assert_each_has_its_values(step, make_weights(64, 4, spec), target="cpu")


def test_they_share_buffers():
    """As the test above needs it."""
    step = zpp.export(jax.jit(step_of(loss_of_layers)), *make_weights())

    def transfers(**tuning):
        rewritten = zpp.rewrite(step, mesh=NODES, weights="i8", gradients="i8:i4",
                                target="cpu", tuning=zpp.Tuning(**tuning))
        return len(rewritten.bundle.manifest["functions"])

    assert transfers() < transfers(coalesce_bytes=0)
