# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights that a step takes and does not return: the base of a LoRA, a teacher,
a reference policy, a discriminator (R16)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from selection import others_slow
from training import ALL_ON, AXES, MESH, NODES, array, same_bits

pytestmark = pytest.mark.compiler

OPTIONS = {**ALL_ON, "mesh": NODES, "target": "cpu",
           "tuning": {"block": 32}}
KEEP = {**OPTIONS, "frozen": "keep"}
WIDTH, RANK = 64, 8
WHOLE = NamedSharding(MESH, P())
PARTS = P(AXES)

#: How a step gathers a weight and takes the mean of a loss, by its form.
GATHERS = {
    "shard_map": lambda weight: jax.lax.all_gather(
        weight.astype(jnp.bfloat16), AXES, tiled=True).astype(jnp.float32),
    "jit": lambda weight: jax.lax.with_sharding_constraint(
        weight.astype(jnp.bfloat16), WHOLE).astype(jnp.float32)}
MEANS = {"shard_map": lambda loss: jax.lax.pmean(loss, AXES),
         "jit": lambda loss: loss}


def network(gather, weights, x):
    for weight in weights[:-1]:
        x = jnp.tanh(x @ gather(weight))
    return x @ gather(weights[-1])


def lora(gather, adapters, base, x):
    for weight, (left, right) in zip(base, adapters, strict=True):
        x = jax.checkpoint(lambda x, weight, left, right: jnp.tanh(
            x @ gather(weight) + x @ gather(left) @ gather(right)))(
                x, weight, left, right)
    return jnp.mean((x - 0.25) ** 2)


def gan(gather, generator, discriminator, noise):
    """The generator's step."""
    made = network(gather, generator, noise)
    return jnp.mean(jax.nn.softplus(-network(gather, discriminator, made)))


def distillation(gather, student, teacher, x):
    wanted = jax.nn.softmax(network(gather, teacher, x))
    return -jnp.mean(jnp.sum(
        wanted * jax.nn.log_softmax(network(gather, student, x)), -1))


def likelihood(gather, weights, tokens):
    """A transformer of one layer, with a table of embeddings."""
    table, query, value, up, head = weights
    x = gather(table)[tokens]
    scores = (x @ gather(query)) @ jnp.swapaxes(x, -1, -2)
    x = x + jax.nn.softmax(scores / 8) @ (x @ gather(value))
    x = x + jax.nn.gelu(x @ gather(up)) @ gather(up).T
    of_next = jax.nn.log_softmax(x @ gather(head))[:, :-1]
    return jnp.take_along_axis(of_next, tokens[:, 1:, None], -1).sum((1, 2))


def dpo(gather, policy, reference, tokens):
    better, worse = tokens
    margin = (likelihood(gather, policy, better)
              - likelihood(gather, reference, better)
              - likelihood(gather, policy, worse)
              + likelihood(gather, reference, worse))
    return -jnp.mean(jax.nn.log_sigmoid(0.1 * margin))


def weights(*shapes):
    return [array(shape, PARTS) for shape in shapes]


def sequences(seed):
    return jax.device_put(np.random.default_rng(seed).integers(
        0, WIDTH, (16, 9)), NamedSharding(MESH, PARTS))


SQUARE = (WIDTH, WIDTH)
MODEL = [SQUARE] * 3 + [(WIDTH, 2 * WIDTH), SQUARE]


@dataclasses.dataclass(frozen=True)
class Case:
    loss: Callable
    #: Makes what is trained, what is not, and the batch.
    inputs: Callable[[], tuple[Any, Any, Any]]


def batch():
    return array((64, WIDTH), PARTS, scale=1)


CASES = {
    "lora": Case(lora, lambda: (
        [tuple(weights((WIDTH, RANK), (RANK, WIDTH))) for _ in range(3)],
        weights(*[SQUARE] * 3), batch())),
    "gan": Case(gan, lambda: (
        weights(SQUARE, SQUARE), weights(SQUARE, SQUARE, (WIDTH, 16)), batch())),
    "distillation": Case(distillation, lambda: (
        weights(SQUARE, SQUARE), weights((WIDTH, 128), (128, 128), (128, WIDTH)),
        batch())),
    "dpo": Case(dpo, lambda: (
        weights(*MODEL), jax.tree.map(lambda leaf: leaf * 0.9, weights(*MODEL)),
        (sequences(0), sequences(1)))),
}


def make_step(loss, form, trained):
    def step(trained, taken, batch):
        value, gradients = jax.value_and_grad(lambda trained: MEANS[form](
            loss(GATHERS[form], trained, taken, batch)))(trained)
        return jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient,
                            trained, gradients), value

    if form == "shard_map":
        return jax.jit(jax.shard_map(
            step, mesh=MESH, in_specs=(PARTS, PARTS, PARTS),
            out_specs=(PARTS, P()), check_vma=False))
    return jax.jit(step, out_shardings=(
        jax.tree.map(lambda leaf: leaf.sharding, trained), WHOLE))


@pytest.mark.matrix
@pytest.mark.parametrize("form", GATHERS)
@pytest.mark.parametrize("name", others_slow(CASES, "lora", "gan"))
def test_what_a_step_only_takes_is_sent_once(name, form):
    trained, taken, given = CASES[name].inputs()
    step = make_step(CASES[name].loss, form, trained)
    fast, sent = zpp.jit(step, **KEEP), zpp.jit(step, **OPTIONS)
    ours, theirs, same = trained, trained, trained
    for _ in range(3):
        ours, our_loss = fast(ours, taken, given)
        same, same_loss = sent(same, taken, given)
        theirs, their_loss = step(theirs, taken, given)
    # What is kept is what would have been sent.
    assert same_bits((ours, our_loss), (same, same_loss))
    np.testing.assert_allclose(our_loss, their_loss, rtol=0.02)
    gathers = [entry for entry in fast.report()["collectives"]
               if entry["kind"] == "all_gather"]
    assert {entry["role"] for entry in gathers} == {"weight"}
    of_layers = [entry for entry in gathers if entry["rule"] == "R16"]
    assert len(of_layers) >= len(taken)
    assert all(entry["after"]["node"] == 0 for entry in of_layers)


def test_a_lora_sends_little():
    wide, rank = 256, 4
    trained = [(array((wide, rank), PARTS), array((rank, wide), P(None, AXES)))
               for _ in range(2)]
    base = weights((wide, wide), (wide, wide))
    step = make_step(lora, "jit", trained)
    fast = zpp.jit(step, **KEEP)
    fast(trained, base, array((64, wide), PARTS))
    assert fast.report()["total"]["after_in_M"]["node"] <= 0.08


def test_another_base_is_sent():
    trained, taken, given = CASES["lora"].inputs()
    step = make_step(lora, "shard_map", trained)
    fast, fresh = (zpp.jit(step, **KEEP) for _ in range(2))
    trained, _ = fast(trained, taken, given)
    other = [taken[0], taken[1] + 1, taken[2]]
    assert same_bits(fast(trained, other, given), fresh(trained, other, given))


def retrieval(gather, trained, rows, x):
    """Negatives of all devices."""
    scores = network(gather, trained, x) @ gather(rows).T
    return -jnp.mean(jax.nn.log_softmax(scores)[:, 0])


def memory(gather, trained, rows, x):
    keys, values = rows
    found = jax.nn.softmax(network(gather, trained, x) @ gather(keys).T)
    return jnp.mean((found @ gather(values)) ** 2)


def images(gather, trained, rows, x):
    """Each device computes with what all have."""
    return jnp.mean((network(gather, trained, gather(rows)).sum(0) - x) ** 2)


def mask(gather, trained, rows, x):
    return jnp.mean(jnp.tanh(network(gather, trained, x) + gather(rows)) ** 2)


def cache(gather, trained, rows, x):
    """Keys with a sequence for each row of the batch."""
    return jnp.mean(jax.nn.softmax(jnp.einsum(
        "bd,btd->bt", network(gather, trained, x), gather(rows)[:8])) ** 2)


ROWS = {"retrieval": (retrieval, (32, WIDTH)), "images": (images, (16, WIDTH)),
        "mask": (mask, (64, WIDTH)), "cache": (cache, (64, 4, WIDTH))}


@pytest.mark.parametrize("name", [*ROWS, "memory"])
def test_data_is_left_alone(name):
    if name == "memory":
        loss, rows = memory, (array((32, WIDTH), PARTS),
                              array((32, 2 * WIDTH), PARTS))
    else:
        loss, rows = ROWS[name][0], array(ROWS[name][1], PARTS)
    x = array((512 if name == "mask" else 64, WIDTH), PARTS, scale=1)
    trained = weights(SQUARE, SQUARE)
    step = make_step(loss, "shard_map", trained)
    report = zpp.jit(step, **KEEP | {"weights_of": None}).report(
        trained, rows, x)
    gathers = [entry for entry in report["collectives"]
               if entry["kind"] == "all_gather"]
    left = [entry for entry in gathers if entry["role"] == "other"]
    assert len(left) >= (2 if name == "memory" else 1)
    assert all(not entry["rewritten"] and entry["rule"] == "R4"
               for entry in left)
    assert {entry["rule"] for entry in gathers if entry not in left} == {"R4"}
