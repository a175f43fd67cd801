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


def gather(weight):
    return jax.lax.all_gather(weight, AXES, tiled=True)


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


def step_of(loss_of):
    def step(weights, x):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x)
        weights = jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)
        return weights, jax.lax.pmean(loss, AXES), gradients

    spec = P(None, AXES)
    return jax.shard_map(step, mesh=MESH, in_specs=(spec, P(AXES)),
                         out_specs=(spec, P(), spec), check_vma=False)


def make_weights():
    """Gains of which those of one layer are 1e-5, matrices, biases and scales."""
    random = np.random.default_rng(0)
    gain = np.ones((LAYERS, WIDTH), np.float32)
    gain[1] = 1e-5
    weights = (gain, 0.05 * random.normal(size=(LAYERS, WIDTH, WIDTH)),
               1e-3 * random.normal(size=(LAYERS, WIDTH)),
               1 + 0.1 * random.normal(size=(LAYERS, WIDTH)))
    put = NamedSharding(MESH, P(None, AXES))
    return (tuple(jax.device_put(weight.astype(np.float32), put) for weight in weights),
            jax.device_put(random.normal(size=(64, WIDTH)).astype(np.float32),
                           NamedSharding(MESH, P(AXES))))


@pytest.mark.parametrize("target", ["portable", "cpu"])
@pytest.mark.parametrize("loss_of", [loss_of_layers, loss_of_scan],
                         ids=["layers", "scan"])
def test_each_tensor_has_blocks_of_its_own(loss_of, target):
    step, given = step_of(loss_of), make_weights()
    _, _, expected = jax.jit(step)(*given)
    _, _, found = zpp.jit(step, mesh=NODES, weights="i8", gradients="i8:i4",
                          target=target)(*given)
    for wanted, gradients in zip(expected, found, strict=True):
        for of_layer, other in zip(np.asarray(wanted), np.asarray(gradients)):
            error = np.linalg.norm(other - of_layer) / np.linalg.norm(of_layer)
            assert error < 0.25


def test_they_share_buffers():
    """As the test above needs it."""
    step = zpp.export(jax.jit(step_of(loss_of_layers)), *make_weights())

    def transfers(**tuning):
        rewritten = zpp.rewrite(step, mesh=NODES, weights="i8", gradients="i8:i4",
                                target="cpu", tuning=zpp.Tuning(**tuning))
        return len(rewritten.bundle.manifest["functions"])

    assert transfers() < transfers(coalesce_bytes=0)
