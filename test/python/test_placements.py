# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory kinds, donation, shardings and layouts of a step's values: as written in
all forms of it."""

import collections
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from jax.experimental.compute_on import compute_on
from jax.experimental.layout import Format, Layout
from jax.sharding import NamedSharding, PartitionSpec
from training import AXES, FUSED, MESH, NODES

pytestmark = pytest.mark.compiler

ROWS, WHOLE = PartitionSpec(AXES), PartitionSpec()
DEVICE, HOST = (NamedSharding(MESH, ROWS, memory_kind=kind)
                for kind in ("device", "pinned_host"))
#: Shardings of the results; one weight is stored by columns.
RESULTS = ([Format(Layout((1, 0)), DEVICE), DEVICE], [HOST] * 2,
           NamedSharding(MESH, WHOLE))


def update(weights, momenta, gradients):
    """The momenta are on the host between steps."""
    momenta = [0.9 * jax.device_put(m, jax.memory.Space.Device) + g
               for m, g in zip(momenta, gradients, strict=True)]
    return ([w - 0.1 * m for w, m in zip(weights, momenta, strict=True)],
            [jax.device_put(m, jax.memory.Space.Host) for m in momenta])


def jit_step(weights, momenta, batch):
    def loss_of(weights):
        y = batch
        for weight in weights:
            y = jax.lax.with_sharding_constraint(jnp.tanh(y @ weight), DEVICE)
        return jnp.mean(y**2)

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return *update(weights, momenta, gradients), loss


def shard_map_step(weights, momenta, batch):
    def local(weights, momenta, batch):
        def loss_of(weights):
            y = batch
            for weight in weights:
                y = jnp.tanh(y @ jax.lax.all_gather(weight, AXES, tiled=True))
            return jnp.mean(y**2) / MESH.size

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        return *update(weights, momenta, gradients), jax.lax.psum(loss, AXES)

    return jax.shard_map(local, mesh=MESH, in_specs=(ROWS, ROWS, ROWS),
                         out_specs=(ROWS, ROWS, WHOLE), check_vma=False)(
                             weights, momenta, batch)


def partial_step(weights, momenta, batch):
    """Data parallelism by hand between the nodes."""
    inner = PartitionSpec("gpu")

    def local(weights, batch):
        def loss_of(weights):
            y = batch
            for weight in weights:
                y = jax.lax.with_sharding_constraint(jnp.tanh(y @ weight), inner)
            return jnp.mean(y**2)

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        return (jax.lax.pmean(loss, "node"), jax.lax.pmean(gradients, "node"))

    loss, gradients = jax.shard_map(
        local, mesh=MESH, axis_names={"node"}, in_specs=(WHOLE, PartitionSpec("node")),
        out_specs=(WHOLE, WHOLE), check_vma=False)(weights, batch)
    gradients = jax.lax.with_sharding_constraint(gradients, DEVICE)
    return *update(weights, momenta, gradients), loss


FORMS = pytest.mark.parametrize("step", [jit_step, shard_map_step, partial_step],
                                ids=lambda step: step.__name__)


def jitted(step):
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=RESULTS,
                   compiler_options=FUSED)


def shapes():
    def shape(rows, sharding):
        return jax.ShapeDtypeStruct((rows, 64), np.float32, sharding=sharding)

    return [shape(64, DEVICE)] * 2, [shape(64, HOST)] * 2, shape(16, DEVICE)


def arguments():
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda each: jax.device_put(
        0.1 * rng.normal(size=each.shape).astype(each.dtype), each.sharding), shapes())


def placements(text):
    """How many values are marked with each memory kind."""
    return collections.Counter(re.findall(
        r'_xla_buffer_placement = "(\w+)"|mhlo.memory_kind = "(\w+)"', text))


@FORMS
def test_what_is_compiled_for_gpus_has_the_same_marks(step):
    """Also where XLA partitions it on CPU devices."""
    exported = zpp.export(jitted(step), *shapes(), platforms=["cuda"])
    result = zpp.rewrite(exported, mesh=NODES, target="portable")
    before, after = (placements(each.text()) for each in (exported, result.step))
    assert any("pinned_host" in kind for kind in before)
    assert after == before
    total = result.report["total"]
    assert total["after"]["node"] < 0.3 * total["before"]["node"]
    assert result.step.donated == exported.donated == (0, 1, 2, 3)


@FORMS
@pytest.mark.parametrize("form", ["jit", "lowered", "saved"])
def test_results_are_where_they_were(step, form, tmp_path):
    """In memory kind, sharding and layout; and what was donated is gone."""
    if form == "jit":
        fast = zpp.jit(jitted(step), mesh=NODES, compiler_options=FUSED)
    else:
        given = (zpp.export if form == "saved" else lambda step, *shapes:
                 step.lower(*shapes))(jitted(step), *shapes())
        result = zpp.rewrite(given, mesh=NODES)
        if form == "saved":
            zpp.save(result, tmp_path / "step.zpp")
        fast = zpp.load(tmp_path / "step.zpp" if form == "saved" else result.step,
                        compiler_options=FUSED)
    given = arguments()
    before, after = jitted(step)(*arguments()), fast(*given)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for left, right in zip(jax.tree.leaves(before), jax.tree.leaves(after),
                           strict=True):
        assert left.sharding.is_equivalent_to(right.sharding, left.ndim)
        assert left.sharding.memory_kind == right.sharding.memory_kind
        assert left.format.layout == right.format.layout
        np.testing.assert_allclose(left, right, atol=5e-3)
    assert [leaf.is_deleted() for leaf in jax.tree.leaves(given)] == (
        [True] * 4 + [False])


def test_what_is_lost_is_an_error():
    """XLA for CPUs forgets what the host is to compute."""
    def step(weights, momenta, batch):
        def loss_of(weights):
            return jnp.mean(jnp.tanh(batch @ weights[0]))

        loss, gradients = jax.value_and_grad(loss_of)(weights)

        @compute_on("device_host")
        @jax.jit
        def on_host(momenta, gradients):
            return [0.9 * m + g for m, g in zip(momenta, gradients, strict=True)]

        gradients = jax.tree.map(
            lambda g: jax.device_put(g, jax.memory.Space.Host), gradients)
        return weights, on_host(momenta, gradients), loss

    exported = zpp.export(jitted(step), *shapes(), platforms=["cuda"])
    with pytest.raises(ValueError, match="XLA for CPUs has lost what the step puts or "
                       "computes on host"):
        zpp.rewrite(exported, mesh=NODES, target="portable")


def test_a_layout_beside_results_on_another_mesh():
    """Of the same devices."""
    flat = NamedSharding(jax.sharding.Mesh(MESH.devices.reshape(-1), ("all",)),
                         PartitionSpec("all"))

    def step(weight, batch):
        def loss_of(weight):
            y = jax.lax.with_sharding_constraint(jnp.tanh(batch @ weight), flat)
            return jnp.mean(y**2)

        return weight - jax.grad(loss_of)(weight), 2 * batch

    (weight, _), _, batch = arguments()
    plain = jax.jit(step, out_shardings=(Format(Layout((1, 0)), DEVICE), flat),
                    compiler_options=FUSED)
    fast = zpp.jit(plain, mesh=NODES, compiler_options=FUSED)
    batch = jax.device_put(batch, flat)
    for result, other in zip(fast(weight, batch), plain(weight, batch), strict=True):
        assert result.format == other.format
        np.testing.assert_allclose(result, other, atol=1e-3)
