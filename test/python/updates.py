# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps over several micro-batches, as people write them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from training import AXES, MESH

LAYERS, WIDTH, ROWS = 3, 64, 16


def layer(hidden, weight, axes, dtype):
    weight = weight.astype(dtype)
    if axes:
        weight = jax.lax.all_gather(weight, axes, axis=0, tiled=True)
    return hidden + jnp.tanh(hidden @ weight).astype(hidden.dtype)


def loss_of(params, batch, axes, over, dtype):
    """The mean over a micro-batch, of which a device has some rows."""
    apply = jax.checkpoint(functools.partial(layer, axes=axes, dtype=dtype))
    hidden = batch.astype(dtype)
    if over == "scan":
        hidden, _ = jax.lax.scan(lambda h, w: (apply(h, w), None), hidden,
                                 params)
    else:
        for weight in params:
            hidden = apply(hidden, weight)
    return jnp.mean(jnp.square(hidden.astype(jnp.float32)))


# How gradients of micro-batches are added up: functions (gradient of a
# micro-batch, parameters, micro-batches) -> (sum, loss).


def add(a, b):
    return jax.tree.map(jnp.add, a, b)


def by_scan(grad, params, batches):
    def micro(total, batch):
        return add(total, grad(params, batch)), None

    zeros = jax.tree.map(jnp.zeros_like, params)
    return jax.lax.scan(micro, (0.0, zeros), batches)[0]


def by_fori(grad, params, batches):
    zeros = jax.tree.map(jnp.zeros_like, params)
    return jax.lax.fori_loop(
        0, batches.shape[0],
        lambda i, total: add(total, grad(params, batches[i])), (0.0, zeros))


def by_python(grad, params, batches):
    total = grad(params, batches[0])
    for index in range(1, batches.shape[0]):
        total = add(total, grad(params, batches[index]))
    return total


def by_first(grad, params, batches):
    """The first micro-batch in front of the loop."""
    return jax.lax.scan(
        lambda total, batch: (add(total, grad(params, batch)), None),
        grad(params, batches[0]), batches[1:])[0]


def by_last(grad, params, batches):
    """The last one after it."""
    return add(by_scan(grad, params, batches[:-1]), grad(params, batches[-1]))


def by_pairs(grad, params, batches):
    """Two micro-batches in each iteration."""
    pairs = batches.reshape(-1, 2, *batches.shape[1:])
    return by_scan(
        lambda params, pair: add(grad(params, pair[0]), grad(params, pair[1])),
        params, pairs)


def by_tokens(grad, params, batches):
    """Each weighed by a number of tokens that all devices know."""
    def micro(total, batch):
        tokens = 1 + jnp.mean(jax.lax.pmean(jnp.square(batch), AXES))
        return add(total, jax.tree.map(lambda g: g * tokens,
                                       grad(params, batch))), None

    zeros = jax.tree.map(jnp.zeros_like, params)
    return jax.lax.scan(micro, (0.0, zeros), batches)[0]


def by_mean(grad, params, batches):
    """The mean, taken in the loop."""
    return by_scan(lambda *args: jax.tree.map(
        lambda g: g / batches.shape[0], grad(*args)), params, batches)


def by_own_numbers(grad, params, batches):
    """Each device weighs the sum by a number of its own."""
    def micro(total, batch):
        own = jnp.mean(jnp.square(batch))
        return add(total, jax.tree.map(lambda g: g * own,
                                       grad(params, batch))), None

    zeros = jax.tree.map(jnp.zeros_like, params)
    return jax.lax.scan(micro, (0.0, zeros), batches)[0]


def by_norms(grad, params, batches):
    """The loop reads the norm of each micro-batch's gradient."""
    def micro(total, batch):
        loss, gradients = grad(params, batch)
        norm = sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradients))
        return add(total, (loss + norm, gradients)), None

    zeros = jax.tree.map(jnp.zeros_like, params)
    return jax.lax.scan(micro, (0.0, zeros), batches)[0]


def by_early_stop(grad, params, batches):
    """The loop ends where the sum is large."""
    def more(state):
        index, (_, total) = state
        largest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf))
                                     for leaf in jax.tree.leaves(total)]))
        return (index < batches.shape[0]) & (jax.lax.pmax(largest, AXES) < 1e9)

    zeros = jax.tree.map(jnp.zeros_like, params)
    return jax.lax.while_loop(
        more, lambda state: (state[0] + 1, add(
            state[1], grad(params, batches[state[0]]))),
        (0, (0.0, zeros)))[1]


SUMS = {"scan": by_scan, "fori": by_fori, "python": by_python,
        "first": by_first, "last": by_last, "pairs": by_pairs,
        "mean": by_mean}
#: In a shard_map.
MORE_SUMS = {"tokens": by_tokens, "own": by_own_numbers, "norms": by_norms,
             "stop": by_early_stop}


def init(over):
    """Weights in f32, alike for a scan and for a list."""
    rng = np.random.default_rng(0)
    weights = (0.5 * WIDTH**-0.5
               * rng.standard_normal((LAYERS, WIDTH, WIDTH))).astype(np.float32)
    return weights if over == "scan" else list(weights)


def batches_of(count):
    rng = np.random.default_rng(1)
    return rng.standard_normal((count, 8 * ROWS, WIDTH)).astype(np.float32)


def update(params, gradients, count):
    return jax.tree.map(lambda w, g: w - 0.1 * g / (8 * count), params,
                        gradients)


def shard_mapped(over, form, axes=AXES, dtype=jnp.bfloat16):
    """A step (params, batches) -> (params, loss) and the sharding of weights
    over `axes`. Gradients are summed over all devices."""
    rest = tuple(axis for axis in AXES if axis not in axes)
    spec = (PartitionSpec(None, axes or None) if over == "scan"
            else PartitionSpec(axes or None))

    def step(params, batches):
        loss = functools.partial(loss_of, axes=axes, over=over, dtype=dtype)

        def grad(params, batch):
            value, gradients = jax.value_and_grad(loss)(params, batch)
            if rest:
                gradients = jax.tree.map(
                    lambda g: jax.lax.psum(g, rest), gradients)
            return value, gradients

        if form == "grad":
            def total(params):
                def micro(carry, batch):
                    return carry + loss(params, batch), None
                return jax.lax.scan(micro, 0.0, batches)[0]
            value, gradients = jax.value_and_grad(total)(params)
        elif form == "eval":
            value, gradients = by_scan(grad, params, batches)
            value = value + loss(params, batches[0])
        else:
            value, gradients = (SUMS | MORE_SUMS)[form](grad, params, batches)
        params = update(params, gradients, batches.shape[0])
        return params, jax.lax.pmean(value, AXES)

    def wrapped(params, batches):
        specs = jax.tree.map(lambda _: spec, params)
        return jax.shard_map(step, mesh=MESH, check_vma=False,
                             in_specs=(specs, PartitionSpec(None, AXES)),
                             out_specs=(specs, PartitionSpec()))(params,
                                                                 batches)
    return wrapped, NamedSharding(MESH, spec)


def jitted(over, form, axes=AXES, dtype=jnp.bfloat16):
    """The same for XLA's partitioner."""
    spec = (PartitionSpec(None, axes or None) if over == "scan"
            else PartitionSpec(axes or None))
    sharding = NamedSharding(MESH, spec)

    def step(params, batches):
        loss = functools.partial(loss_of, axes=(), over=over, dtype=dtype)

        def grad(params, batch):
            value, gradients = jax.value_and_grad(loss)(params, batch)
            return value, jax.lax.with_sharding_constraint(
                gradients, sharding)

        if form == "grad":
            value, gradients = jax.value_and_grad(lambda params: jax.lax.scan(
                lambda carry, batch: (carry + loss(params, batch), None), 0.0,
                batches)[0])(params)
        elif form == "eval":
            value, gradients = by_scan(grad, params, batches)
            value = value + loss(params, batches[0])
        else:
            value, gradients = SUMS[form](grad, params, batches)
        return jax.tree.map(
            lambda w, g: w - 0.1 * g / batches.shape[0], params,
            gradients), value

    return step, sharding
