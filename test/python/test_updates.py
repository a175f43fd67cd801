# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps over micro-batches: what crosses the nodes once per update."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import updates
import zpp
from jax.sharding import NamedSharding, PartitionSpec
from training import ALL_ON, AXES, MESH, NODES, OFF, same_bits

pytestmark = [pytest.mark.compiler,
              pytest.mark.filterwarnings("ignore:expected a step with")]

#: Bytes of one gather of all weights in bf16 between the nodes.
M = updates.LAYERS * updates.WIDTH**2 * 2 / 8
MICRO = 4
FORMS = [*updates.SUMS, "grad", "eval"]


def arguments(over, sharding, count=MICRO):
    params = jax.tree.map(lambda w: jax.device_put(w, sharding),
                          updates.init(over))
    return params, jax.device_put(
        updates.batches_of(count),
        NamedSharding(MESH, PartitionSpec(None, AXES)))


@functools.cache
def made(kind, over, form, axes=AXES):
    return getattr(updates, kind)(over, form, axes)


@functools.cache
def rewritten(kind, over, form, count=MICRO, axes=AXES, **options):
    """The report of a step, and the step."""
    step, sharding = made(kind, over, form, axes)
    fast = zpp.jit(step, mesh=NODES, target="cpu",
                   **{**ALL_ON, **options})
    return fast.rewritten(*arguments(over, sharding, count)).report


def between_nodes(report, role, when="after"):
    """In units of a gather of all weights."""
    return sum(entry[when]["node"] for entry in report["collectives"]
               if entry["role"] == role) / M


@pytest.mark.matrix
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("over", ["layers", "scan"])
@pytest.mark.parametrize("kind", ["shard_mapped", "jitted"])
def test_weights_cross_the_nodes_once_per_update(kind, over, form):
    """Also where something after the loop reads them."""
    once = between_nodes(rewritten(kind, over, "scan", 1), "weight")
    for weights in "i8", "i4:delta":
        report = rewritten(kind, over, form, weights=weights)
        assert between_nodes(report, "weight", "before") >= MICRO
        now = between_nodes(report, "weight")
        assert now == pytest.approx(
            once * (1 if weights == "i8" else 264 / 512), rel=0.01)


def test_one_micro_batch_is_as_before():
    """The volumes of a step without a loop."""
    for kind in "shard_mapped", "jitted":
        for over in "layers", "scan":
            once = rewritten(kind, over, "scan", 1)["total"]["after"]
            assert once == rewritten(kind, over, "python",
                                     1)["total"]["after"]


@pytest.mark.parametrize("kind, over, form, weights", [
    ("shard_mapped", "layers", "scan", "none"),
    ("shard_mapped", "scan", "scan", "i8"),
    ("shard_mapped", "layers", "last", "i8"),
    ("jitted", "scan", "scan", "i8"),
    ("jitted", "scan", "grad", "i8")])
def test_bits_are_those_without_a_secondary_partition(kind, over, form,
                                                      weights):
    step, sharding = made(kind, over, form)
    given = arguments(over, sharding)
    results = [zpp.jit(step, mesh=NODES, target="cpu",
                       **{**OFF, "weights": weights, "secondary": secondary})(*given)
               for secondary in ("none", "gpu")]
    assert same_bits(*results)


# Gradients.

@pytest.mark.matrix
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("over", ["layers", "scan"])
@pytest.mark.parametrize("kind", ["shard_mapped", "jitted"])
def test_gradients_cross_the_nodes_once_per_update(kind, over, form):
    once = between_nodes(rewritten(kind, over, "scan", 1), "gradient")
    report = rewritten(kind, over, form, accumulate="gpu")
    assert between_nodes(report, "gradient", "before") >= MICRO
    # A stack has less padding.
    assert 0.95 * once < between_nodes(report, "gradient") <= once
    # Partial sums in f32, of which a device has a quarter, not an eighth.
    elements = updates.LAYERS * updates.WIDTH**2
    assert report["total"]["accumulated_bytes"] == elements * 4 // 8
    assert report["total"]["micro_batches"] == MICRO
    # The hops within the node are as they were.
    assert (report["total"]["after"]["gpu"]
            <= rewritten(kind, over, form)["total"]["after"]["gpu"])


@pytest.mark.matrix
@pytest.mark.parametrize("axes", [("gpu",), ()], ids=["hsdp", "replicated"])
@pytest.mark.parametrize("over", ["layers", "scan"])
def test_all_reduces_wait_likewise(over, axes):
    once = between_nodes(rewritten("shard_mapped", over, "scan", 1, axes),
                         "gradient")
    report = rewritten("shard_mapped", over, "scan", MICRO, axes,
                       accumulate="gpu")
    # A stack has less padding.
    assert 0.95 * once < between_nodes(report, "gradient") <= once
    # The gradients are as large.
    assert report["total"]["accumulated_bytes"] == 0
    assert report["total"]["micro_batches"] == MICRO


def test_numbers_that_all_devices_know_may_scale():
    once = between_nodes(rewritten("shard_mapped", "scan", "scan", 1),
                         "gradient")
    report = rewritten("shard_mapped", "scan", "tokens", accumulate="gpu")
    # A stack has less padding.
    assert 0.95 * once < between_nodes(report, "gradient") <= once


@pytest.mark.parametrize("form", ["own", "norms", "stop"])
def test_what_a_loop_reads_is_left_alone(form):
    step, sharding = made("shard_mapped", "layers", form)
    given = arguments("layers", sharding)
    fast = zpp.jit(step, mesh=NODES, target="portable", **ALL_ON,
                   accumulate="gpu")
    with pytest.warns(UserWarning, match="accumulate=gpu: of the bytes of gradients, "
                      "none have sums within the group; .* of a loop"):
        left = fast.rewritten(*given)
    assert any("it crosses the slower tiers in each iteration of a loop"
               in str(remark) for remark in left.remarks)
    plain = zpp.jit(step, mesh=NODES, target="portable", **ALL_ON)
    # But for the reason itself.
    assert (re.sub(r"lacks = \{[^}]*\}, ", "", left.step.text(locations=False))
            == plain.rewritten(*given).step.text(locations=False))


@pytest.mark.parametrize("kind, over, form", [
    ("shard_mapped", "scan", "scan"), ("shard_mapped", "layers", "first"),
    ("shard_mapped", "scan", "last"), ("shard_mapped", "layers", "tokens"),
    ("jitted", "scan", "mean")])
def test_only_the_order_of_sums_differs(kind, over, form):
    """In f32, without formats."""
    assert_only_the_order_of_sums_differs(kind, over, form, mesh=NODES,
                                          accumulate="gpu",
                                          gradients="none:none")


@pytest.mark.parametrize("over", ["layers", "scan"])
@pytest.mark.parametrize("kind", ["shard_mapped", "jitted"])
def test_what_is_left_in_one_hop_waits_too(kind, over):
    """Nodes of one device, on links on which one collective is faster."""
    step = assert_only_the_order_of_sums_differs(
        kind, over, "scan", mesh="host:8,device:1", accumulate="device",
        gradients="i8:i4", links="host=0.01gbit/400gbyte,device=400gbyte")
    assert any("zero.reduce_scatter is left alone: on these links" in str(remark)
               for remark in step.remarks)
    gradients = [entry for entry in step.report["collectives"]
                 if entry["role"] == "gradient"]
    assert gradients
    for entry in gradients:
        assert entry["gets"] == ["accumulate"]
        assert MICRO * entry["after"]["host"] == entry["before"]["host"]


def assert_only_the_order_of_sums_differs(kind, over, form, **options):
    """Returns the rewritten step."""
    step, sharding = getattr(updates, kind)(over, form, dtype=np.float32)
    given = arguments(over, sharding)
    fast = zpp.jit(step, target="cpu", **OFF | options)
    params, loss = fast(*given)
    expected, expected_loss = jax.jit(step)(*given)
    assert loss == pytest.approx(float(expected_loss), rel=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(
        np.asarray(a), np.asarray(b), rtol=0, atol=2e-6), params, expected)
    assert fast.report()["total"]["accumulated_bytes"] > 0
    return fast.rewritten(*given)


def test_sums_over_calls_have_a_warning():
    """`optax.MultiSteps` adds up what each call sends over all tiers."""
    optax = pytest.importorskip("optax")
    loss_of = functools.partial(updates.loss_of, axes=AXES, over="layers",
                                dtype=jnp.bfloat16)
    transform = optax.MultiSteps(optax.sgd(0.03), MICRO)
    state = transform.init(updates.init("layers"))
    specs = jax.tree.map(
        lambda leaf: PartitionSpec(*[AXES] * bool(np.ndim(leaf))), state)
    weights = PartitionSpec(AXES)

    @functools.partial(jax.shard_map, mesh=MESH, check_vma=False,
                       in_specs=(weights, specs, PartitionSpec(AXES)),
                       out_specs=(weights, specs, PartitionSpec()))
    def step(params, state, batch):
        loss, gradients = jax.value_and_grad(loss_of)(params, batch)
        changes, state = transform.update(gradients, state, params)
        return (optax.apply_updates(params, changes), state,
                jax.lax.pmean(loss, AXES))

    def train(step):
        params, batches = arguments("layers", NamedSharding(MESH, weights), 1)
        own = jax.tree.map(lambda leaf, spec: jax.device_put(
            leaf, NamedSharding(MESH, spec)), state, specs)
        losses = []
        for _ in range(2 * MICRO):
            params, own, loss = step(params, own, batches[0])
            losses.append(float(loss))
        return losses

    fast = zpp.jit(step, mesh=NODES, target="cpu", **ALL_ON,
                   accumulate="gpu")
    with pytest.warns(UserWarning, match="accumulate=gpu: of the bytes of gradients, "
                      "none have sums within the group; .* by optax.MultiSteps"):
        losses = train(fast)
    assert fast.report()["total"]["accumulated_bytes"] == 0
    plain = train(jax.jit(step))
    # An update is seen.
    assert max(plain[MICRO:]) < 0.99 * min(plain[:MICRO])
    np.testing.assert_allclose(losses, plain, rtol=2e-3)
