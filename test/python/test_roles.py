# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is a weight: steps in which it is not what a gather alone suggests."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import training
import zpp
from jax.sharding import AxisType, PartitionSpec

pytestmark = pytest.mark.compiler

AXES = ("node", "gpu")
SHARDED = PartitionSpec(AXES)
ROWS, COLUMNS = 256, 32


def gather(shard):
    return jax.lax.all_gather(shard, AXES, axis=0, tiled=True)


def gradient(whole, x):
    return jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(whole)


def own_slice(whole):
    rows = whole.shape[0] // 8
    return jax.lax.dynamic_slice_in_dim(
        whole, jax.lax.axis_index(AXES) * rows, rows)


def usual(w, x):
    mine = jax.grad(lambda w: jnp.mean(jnp.tanh(x @ gather(w)) ** 2))(w)
    return w - 0.1 * mine / 8


def update_whole(w, x):
    whole = gather(w)
    return own_slice(whole - 0.1 * jax.lax.pmean(gradient(whole, x), AXES))


def scatter_updated(w, x):
    whole = gather(w)
    updated = whole - 0.1 * gradient(whole, x)
    return jax.lax.psum_scatter(updated, AXES, tiled=True) / 8


def average_of_whole(w, x):
    whole = gather(w)
    mine = jax.lax.psum_scatter(gradient(whole, x), AXES, tiled=True)
    return w - 0.1 * mine / 8 + 1e-3 * own_slice(0.9 * whole)


def gathered_after_update(w, x):
    """ZeRO-1: what is gathered is the new state."""
    mine = jax.lax.psum_scatter(gradient(gather(w), x), AXES, tiled=True)
    return own_slice(gather(w - 0.1 * mine / 8))


def run(step, steps=3, **options):
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), AXES,
                             axis_types=(AxisType.Auto,) * 2)
    mapped = jax.shard_map(step, mesh=mesh, in_specs=(SHARDED, SHARDED),
                           out_specs=SHARDED)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    x = rng.standard_normal((64, ROWS)).astype(np.float32)
    fast = zpp.jit(mapped, mesh="node:2,gpu:4", **options)
    ours, theirs = w, w
    plain = jax.jit(mapped)
    for _ in range(steps):
        ours, theirs = fast(ours, x), plain(theirs, x)
    return np.asarray(ours), np.asarray(theirs), fast.report()


def reasons(report):
    return {collective["reason"] for collective in report["collectives"]}


@pytest.mark.parametrize("step, result", [
    (update_whole, "result 0"), (scatter_updated, "result 0")])
def test_state_is_never_rounded(step, result):
    """The very bits of the step as it is written, and a remark."""
    ours, theirs, report = run(step)
    assert training.same_bits(ours, theirs)
    assert any("it gathers state, which is never rounded" in reason
               and result in reason for reason in reasons(report))


def test_a_weight_that_is_state_too_is_left_alone():
    _, _, report = run(average_of_whole)
    gathers = [collective for collective in report["collectives"]
               if collective["kind"] == "all_gather"]
    assert not any(collective["rewritten"] for collective in gathers)
    training.assert_rewritten(report, "gradient")


def test_weights_gathered_after_the_update_are_state():
    ours, theirs, report = run(gathered_after_update, steps=1)
    rounded = [collective["role"] for collective in report["collectives"]
               if collective["rewritten"]]
    assert sorted(rounded) == ["gradient", "weight"]
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_the_usual_step_is_rewritten():
    ours, theirs, report = run(usual)
    training.assert_rewritten(report, "weight")
    training.assert_rewritten(report, "gradient")
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


@pytest.mark.parametrize("weights_of, rewritten", [
    (None, False), ("all", True), ([0], True), ([1], False),
    (lambda path: path == "[0]", True), (lambda path: False, False)])
def test_an_evaluation_names_its_weights(weights_of, rewritten):
    def evaluate(w, x):
        return jax.lax.pmean(jnp.mean((x @ gather(w)) ** 2), AXES)[None]

    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), AXES,
                             axis_types=(AxisType.Auto,) * 2)
    mapped = jax.shard_map(evaluate, mesh=mesh, in_specs=(SHARDED, SHARDED),
                           out_specs=SHARDED)
    report = zpp.jit(mapped, mesh="node:2,gpu:4", weights_of=weights_of).report(
        np.ones((ROWS, COLUMNS), np.float32), np.ones((64, ROWS), np.float32))
    (gathered,) = [collective for collective in report["collectives"]
                   if collective["kind"] == "all_gather"]
    assert gathered["rewritten"] == rewritten
    assert rewritten or "weights-of names weights" in gathered["reason"]


@pytest.mark.parametrize("weights_of, message", [
    ("some", "weights_of: expected 'all'"), ([-1], "weights_of: expected 'all'"),
    ([2], "expected arguments below 2, but got 2")])
def test_bad_weights_of(weights_of, message):
    with pytest.raises(ValueError, match=message):
        run(usual, weights_of=weights_of)
