# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps whose first and last micro-batch stand outside of the loop, so that what
crosses the nodes once per update runs under their compute."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import updates
import zpp
from jax.sharding import PartitionSpec as P
from startwait import needs_library
from test_updates import arguments
from training import ALL_ON, AXES, MESH, NODES, array, same_bits

pytestmark = [pytest.mark.compiler, needs_library,
              pytest.mark.filterwarnings("ignore:expected a step with")]

#: On these links, what crosses the nodes takes long.
SLOW = "node=0.001gbit,gpu=400gbyte"
#: Said of a loop that is left as it is.
LEFT = ("weights are gathered in front of the loop, where nothing hides it",
        "gradients are sent after the loop, where nothing hides it")


@functools.cache
def made(kind, over, form):
    return getattr(updates, kind)(over, form)


def jitted(kind, over, form, links, **options):
    step, _ = made(kind, over, form)
    return zpp.jit(step, mesh=NODES, target="cpu", links=links,
                   **{**ALL_ON, "accumulate": "gpu", **options})


def count_left(fast, given):
    remarks = [str(remark) for remark in fast.rewritten(*given).remarks]
    return [sum(text in remark for remark in remarks) for text in LEFT]


@pytest.mark.parametrize("kind, over, form, count, peeled", [
    ("shard_mapped", "layers", "scan", 2, [1, 1]),
    ("shard_mapped", "layers", "scan", 3, [1, 1]),
    ("shard_mapped", "layers", "fori", 4, [1, 1]),
    ("shard_mapped", "scan", "scan", 2, [1, 1]),
    ("shard_mapped", "scan", "scan", 3, [1, 1]),
    ("shard_mapped", "scan", "mean", 4, [1, 1]),
    ("shard_mapped", "layers", "first", 4, [0, 1]),
    ("shard_mapped", "scan", "last", 4, [1, 0]),
    ("shard_mapped", "layers", "pairs", 4, [1, 1]),
    # JAX gathers in front of the loop.
    ("shard_mapped", "layers", "grad", 4, [0, 1]),
    ("shard_mapped", "layers", "python", 4, [0, 0]),
    ("jitted", "layers", "scan", 3, [1, 1])])
def test_the_same_bytes_and_bits(kind, over, form, count, peeled):
    """Against a step whose links are too fast for it."""
    _, sharding = made(kind, over, form)
    given = arguments(over, sharding, count)
    fast = jitted(kind, over, form, SLOW)
    left = jitted(kind, over, form, None)
    assert count_left(fast, given) == [0, 0]
    assert count_left(left, given) == peeled
    assert same_bits(fast(*given), left(*given))
    now, then = fast.report()["total"], left.report()["total"]
    assert now["before"] == then["before"]
    assert now["accumulated_bytes"] == then["accumulated_bytes"]
    # A stack has less padding than its layers.
    assert now["after"] == pytest.approx(then["after"], rel=0.01)


def test_a_partitioned_scan():
    """XLA compiles the two programs to others, whose products differ."""
    _, sharding = made("jitted", "scan", "scan")
    given = arguments("scan", sharding, 3)
    fast = jitted("jitted", "scan", "scan", SLOW)
    left = jitted("jitted", "scan", "scan", None)
    assert count_left(fast, given) == [0, 0]
    assert count_left(left, given) == [1, 1]
    (params, loss), (expected, expected_loss) = fast(*given), left(*given)
    assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
    np.testing.assert_allclose(np.asarray(params), np.asarray(expected),
                               rtol=0, atol=2e-3)
    assert fast.report()["total"]["after"] == pytest.approx(
        left.report()["total"]["after"], rel=0.01)


@pytest.mark.parametrize("over", ["layers", "scan"])
def test_hops_run_under_the_first_and_the_last(over):
    """Nothing that crosses the nodes is waited for before anything is computed,
    or sent after all is."""
    _, sharding = made("shard_mapped", over, "scan")
    fast = jitted("shard_mapped", over, "scan", SLOW)
    left = jitted("shard_mapped", over, "scan", None)
    hidden = []
    for step in fast, left:
        step.rewritten(*arguments(over, sharding, 4))
        hidden.append(sum(
            entry["heavy_ops"] > 0 for entry in step.report()["schedule"]
            if entry["event"] == "wait" and entry["trips"] < 4))
    assert hidden[0] > hidden[1]


def test_differences_are_sent_under_the_first():
    _, sharding = made("shard_mapped", "layers", "scan")
    given = arguments("layers", sharding, 3)
    fast, left = (jitted("shard_mapped", "layers", "scan", links,
                         weights="i4:delta") for links in (SLOW, None))
    assert count_left(left, given) == [1, 1]
    results = []
    for step in fast, left:
        params, losses = given[0], []
        for _ in range(2):
            params, loss = step(params, given[1])
            losses.append(loss)
        results.append((params, losses))
    assert same_bits(*results)


def check_hidden(mapped, given, slow, hidden, **options):
    """On `slow` links so many waits have compute to hide under, without links none has
    any, and the results are the same."""
    results, found = [], []
    for links in slow, None:
        fast = zpp.jit(mapped, mesh=NODES, target="cpu", links=links,
                       gradients="i8:i4",
                       tuning={"coalesce_bytes": 0}, **options)
        assert count_left(fast, given)[1] == (links is None)
        results.append(fast(*given))
        found.append(sum(entry["heavy_ops"] > 0 for entry in fast.report()["schedule"]
                         if entry["event"] == "wait" and entry["trips"] == 1))
    assert same_bits(*results)
    assert found == [hidden, 0]


def over_layers(layer, weights, x):
    """The layers of a list, or a scan over those of a stack."""
    if isinstance(weights, list):
        for weight in weights:
            x = layer(weight, x)
        return x
    return jax.lax.scan(lambda x, weight: (layer(weight, x), None), x, weights)[0]


def make_weights(layers, width, spec, is_stack):
    if is_stack:
        return array((layers, width, width), P(None, *spec))
    return [array((width, width), spec)] * layers


@pytest.mark.parametrize("is_stack", [False, True])
@pytest.mark.parametrize("scatters", [False, True])
def test_sums_after_the_loop_are_sent_under_the_last(scatters, is_stack):
    """Weights are replicated, and the step itself sums once per update."""
    axes, width, layers, count = ("node", "gpu"), 128, 3, 3
    spec = P(axes if scatters else None)

    def loss_of(weights, x):
        x = over_layers(lambda weight, x: jnp.tanh(x @ weight), weights, x)
        return jnp.mean(x * x)

    def add(weights, total, x):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x)
        return jax.tree.map(jnp.add, total, (jax.lax.pmean(loss, axes), gradients))

    def step(weights, own, batch):
        local = jax.tree.map(lambda w: jax.lax.pcast(w, axes, to="varying"), weights)
        zeros = jnp.zeros(()), jax.tree.map(jnp.zeros_like, local)
        (loss, total), _ = jax.lax.scan(
            lambda total, x: (add(local, total, x), None), zeros, batch)
        mean = jax.tree.map(lambda g: g / count, total)
        if scatters:
            mean = jax.tree.map(lambda g: jax.lax.psum_scatter(
                g, axes, scatter_dimension=int(is_stack), tiled=True), mean)
        else:
            mean = jax.tree.map(lambda g: jax.lax.psum(g, axes), mean)
        return jax.tree.map(lambda w, g: w - 0.1 * g, own, mean), loss

    # The same weights, as each device has them and as it updates them.
    weights, own = (make_weights(layers, width, of, is_stack) for of in (P(), spec))
    spec = P(None, *spec) if is_stack else spec
    mapped = jax.jit(jax.shard_map(
        step, mesh=MESH, in_specs=(P(), spec, P(None, axes)), out_specs=(spec, P())))
    given = weights, own, array((count, 16, width), P(None, axes), 1.0)
    # A scan computes a gradient of what its first layer reads, too.
    check_hidden(mapped, given, SLOW, layers - 1 + is_stack)


@pytest.mark.parametrize("is_stack", [False, True])
def test_scattered_sums_are_sent_under_the_last(is_stack):
    """Weights are replicated between nodes only: each micro-batch scatters within
    the node, and the step sums between the nodes once per update."""
    width, layers, count = 128, 3, 3

    def loss_of(weights, x):
        x = over_layers(lambda weight, x: jnp.tanh(
            x @ jax.lax.all_gather(weight, "gpu", tiled=True)), weights, x)
        return jnp.mean(x * x)

    def add(weights, total, x):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x)
        return jax.tree.map(jnp.add, total,
                            (jax.lax.pmean(loss, ("node", "gpu")), gradients))

    def step(weights, batch):
        local = jax.tree.map(lambda w: jax.lax.pcast(w, "node", to="varying"), weights)
        zeros = jnp.zeros(()), jax.tree.map(jnp.zeros_like, local)
        (loss, total), _ = jax.lax.scan(
            lambda total, x: (add(local, total, x), None), zeros, batch)
        mean = jax.tree.map(lambda g: jax.lax.psum(g / count, "node"), total)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, mean), loss

    spec = P(None, "gpu") if is_stack else P("gpu")
    mapped = jax.jit(jax.shard_map(
        step, mesh=MESH, in_specs=(spec, P(None, ("node", "gpu"))),
        out_specs=(spec, P())))
    given = (make_weights(layers, width, P("gpu"), is_stack),
             array((count, 16, width), P(None, ("node", "gpu")), 1.0))
    # Both hops of each gradient but the last one. On slow links within nodes, too,
    # scatters have the same formats as on none. A scan computes a gradient of what its
    # first layer reads, too.
    check_hidden(mapped, given, "node=0.001gbit,gpu=0.001gbit",
                 2 * (layers - 1) + is_stack, weights="none")


def test_layers_of_the_last_micro_batch_are_joined():
    """The update reads the sums of its layers where they are, without a stack of zeros."""
    layers, width = 4, 256

    def local(params, batches):
        def loss_of(params, batch):
            apply = jax.checkpoint(lambda hidden, weight: jnp.tanh(hidden @ weight))
            hidden, _ = jax.lax.scan(
                lambda hidden, weight: (apply(hidden, weight), None), batch, params)
            return jnp.mean(jnp.square(hidden - 0.25))

        loss, gradient = updates.by_scan(
            jax.value_and_grad(loss_of), params, batches)
        return params - jax.lax.psum(gradient, AXES) / 32, loss[None]

    step = jax.shard_map(
        local, mesh=MESH, in_specs=(P(), P(None, AXES)),
        out_specs=(P(), P(AXES)), check_vma=False)
    given = (array((layers, width, width), P()),
             array((3, 16, width), P(None, AXES)))
    fast, left = (zpp.jit(
        step, mesh=NODES, target="cpu", links=links,
        weights="none", gradients="i8:i4", secondary="none")
        for links in (SLOW, None))
    assert same_bits(fast(*given), left(*given))
    text = fast.lower(*given).as_text()
    joined, = re.findall(rf"%(\S+) = stablehlo.concatenate .*{layers}x{width}x{width}", text)
    assert f"stablehlo.divide %{joined}, " in text
    # Those of the other micro-batches, which their loop begins and adds up.
    assert len(re.findall("stablehlo.dynamic_update_slice .*x256x256xf32>, ", text)) == 1
