# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps over micro-batches: what crosses the nodes once per update."""

import functools

import jax
import pytest
import updates
import zpp
from jax.sharding import NamedSharding, PartitionSpec
from training import ALL_ON, AXES, FAST, MESH, NODES, OFF, same_bits

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
    fast = zpp.jit(step, mesh=NODES, target="portable",
                   **{**ALL_ON, **options})
    return fast.rewritten(*arguments(over, sharding, count)).report


def between_nodes(report, role, when="after"):
    """In units of a gather of all weights."""
    return sum(entry[when]["node"] for entry in report["collectives"]
               if entry["role"] == role) / M


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("over", ["layers", "scan"])
@pytest.mark.parametrize("kind", ["shard_mapped", "jitted"])
def test_weights_cross_the_nodes_once_per_update(kind, over, form):
    """Also where something behind the loop reads them."""
    once = between_nodes(rewritten(kind, over, "scan", 1), "weight")
    times = 1
    if (kind, over, form) == ("jitted", "scan", "grad"):
        # The forward pass casts all layers in a loop of its own.
        times = 2
    for weights in "i8", "i4:delta":
        report = rewritten(kind, over, form, weights=weights)
        assert between_nodes(report, "weight", "before") >= MICRO
        now = between_nodes(report, "weight")
        assert now == pytest.approx(
            times * once * (1 if weights == "i8" else 264 / 512), rel=0.01)


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
    ("jitted", "scan", "scan", "i8")])
def test_bits_are_those_without_a_secondary_partition(kind, over, form,
                                                      weights):
    step, sharding = made(kind, over, form)
    given = arguments(over, sharding)
    results = [zpp.jit(step, mesh=NODES, target="portable",
                       **{**OFF, "weights": weights, "secondary": secondary},
                       compiler_options=FAST)(*given)
               for secondary in ("none", "gpu")]
    assert same_bits(*results)
