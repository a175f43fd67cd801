# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`jax.shard_map` over some axes, which leaves the others to XLA: rewritten with all
of the gain of the step without it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from jax.sharding import NamedSharding, PartitionSpec
from training import FUSED, MESH, NODES, array

pytestmark = pytest.mark.compiler

BOTH, NODE, GPU = (PartitionSpec(axes) for axes in (
    ("node", "gpu"), "node", "gpu"))
WHOLE = PartitionSpec()


def by_hand(axis, in_specs, out_specs):
    return functools.partial(
        jax.shard_map, mesh=MESH, axis_names={axis}, in_specs=in_specs,
        out_specs=out_specs, check_vma=False)


def loss_of(weights, batch, spec):
    y = batch
    for weight in weights:
        y = jax.lax.with_sharding_constraint(jnp.tanh(y @ weight), spec)
    return jnp.mean(y**2)


def descend(weights, gradients):
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)


def written_as_jit(weights, batch):
    """Leaves to XLA all that the others do."""
    loss, gradients = jax.value_and_grad(loss_of)(
        weights, batch, NamedSharding(MESH, BOTH))
    return descend(weights, gradients), loss


@by_hand("node", (WHOLE, NODE), (WHOLE, WHOLE))
def nodes_by_hand(weights, batch):
    """Data parallelism by hand between the nodes, FSDP by XLA within them."""
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch, GPU)
    return (descend(weights, jax.lax.pmean(gradients, "node")),
            jax.lax.pmean(loss, "node"))


@by_hand("node", (WHOLE, NODE), (WHOLE, WHOLE))
def micro_batches_by_hand(weights, batch):
    """The same, of which each node adds up two micro-batches first."""
    def add(sums, rows):
        return jax.tree.map(jnp.add, sums, jax.value_and_grad(loss_of)(
            weights, rows, GPU)), None

    zeros = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, weights))
    (loss, gradients), _ = jax.lax.scan(add, zeros, batch.reshape(2, -1, 64))
    half = jax.tree.map(lambda g: g / 2, gradients)
    return (descend(weights, jax.lax.pmean(half, "node")),
            jax.lax.pmean(loss / 2, "node"))


@by_hand("gpu", (GPU, GPU), (GPU, WHOLE))
def gpus_by_hand(weights, batch):
    """FSDP by hand within a node, data parallelism by XLA."""
    def loss_of_parts(weights):
        whole = [jax.lax.all_gather(each, "gpu", tiled=True) for each in weights]
        return loss_of(whole, batch, NODE) / 4

    loss, gradients = jax.value_and_grad(loss_of_parts)(weights)
    return descend(weights, gradients), jax.lax.psum(loss, "gpu")


@by_hand("node", (WHOLE, NODE), (WHOLE, WHOLE))
def one_in_the_other(weights, batch):
    """Each axis by hand, in a computation of its own."""
    @functools.partial(jax.shard_map, in_specs=(GPU, GPU), out_specs=(GPU, WHOLE),
                       axis_names={"gpu"}, check_vma=False)
    def within(weights, batch):
        def loss_of_parts(weights):
            y = batch
            for each in weights:
                y = jnp.tanh(y @ jax.lax.all_gather(each, "gpu", tiled=True))
            return jnp.mean(y**2) / 4

        loss, gradients = jax.value_and_grad(loss_of_parts)(weights)
        return gradients, jax.lax.psum(loss, "gpu")

    gradients, loss = within(weights, batch)
    return (descend(weights, jax.lax.pmean(gradients, "node")),
            jax.lax.pmean(loss, "node"))


def run(step):
    """The loss of the second of two calls, and the weights then."""
    weights = [array((64, 64), GPU), array((64, 64), GPU) + 0.01]
    batch = array((32, 64), BOTH, scale=1.0)
    for _ in range(2):
        weights, loss = step(weights, batch)
    return float(loss), weights


def sent_by(fast) -> dict[str, int]:
    """The bytes of weights and gradients. Some forms exchange rows of the batch."""
    return {tier: sum(entry["after"][tier] for entry in fast.report()["collectives"]
                      if entry["role"] in ("weight", "gradient"))
            for tier in ("node", "gpu")}


@functools.cache
def bytes_as_jit() -> dict[str, int]:
    fast = zpp.jit(written_as_jit, mesh=NODES, compiler_options=FUSED)
    run(fast)
    return sent_by(fast)


@pytest.mark.parametrize("step", [
    nodes_by_hand, micro_batches_by_hand, gpus_by_hand, one_in_the_other],
    ids=lambda step: step.__name__)
def test_all_of_the_gain(step):
    loss, weights = run(jax.jit(step, compiler_options=FUSED))
    fast = zpp.jit(step, mesh=NODES, compiler_options=FUSED)
    rewritten, others = run(fast)
    assert rewritten == pytest.approx(loss, rel=0.02)
    for left, right in zip(weights, others, strict=True):
        assert left.sharding.is_equivalent_to(right.sharding, 2)
        np.testing.assert_allclose(left, right, atol=5e-3)
    after = sent_by(fast)
    # The weights of FSDP within the node are gathered for each micro-batch.
    times = 2 if step is micro_batches_by_hand else 1
    assert after["node"] <= 1.1 * bytes_as_jit()["node"]
    assert after["gpu"] <= 1.1 * times * bytes_as_jit()["gpu"]
