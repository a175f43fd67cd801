# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights in steps in which they are not what a gather alone suggests."""

import json
import subprocess

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
    """The very bits of the step as it is written, where gradients are not rounded
    either, and a remark."""
    ours, theirs, _ = run(step, gradients="none")
    assert training.same_bits(ours, theirs)
    _, _, report = run(step)
    assert any("it gathers state, which is not rounded" in reason
               and result in reason for reason in reasons(report))


def test_a_weight_that_is_state_too_is_left_alone():
    _, _, report = run(average_of_whole)
    gathers = [collective for collective in report["collectives"]
               if collective["kind"] == "all_gather"]
    assert not any(collective["rewritten"] for collective in gathers)
    training.assert_rewritten(report, "gradient")


def test_a_permuted_weight_is_one_weight():
    """The copy travels, but 1 M is the weight once."""
    order = np.random.default_rng(0).permutation(ROWS // 8)

    def permuted(w, x):
        return usual(w, x) - 0.1 * jax.grad(lambda w: jnp.mean(
            jnp.tanh(x @ gather(w[order])) ** 2))(w) / 8

    _, _, report = run(permuted)
    gathers = [entry for entry in report["collectives"]
               if entry["role"] == "weight"]
    assert len(gathers) == 2
    assert report["total"]["model_bytes"] == ROWS * COLUMNS * 4


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


# Steps as other people write them. Each takes a state and a batch, and returns
# the state and a loss.

REPLICATED = PartitionSpec()


def loss_of(whole, x):
    return jnp.mean(jnp.tanh(x @ whole) ** 2)


def value_and_grad(w, x):
    value, mine = jax.value_and_grad(lambda w: loss_of(gather(w), x))(w)
    return jax.lax.pmean(value, AXES), mine / 8


def adafactor(state, x):
    """The second moments of columns are sums over devices."""
    w, columns = state
    value, mine = value_and_grad(w, x)
    columns = 0.9 * columns + jax.lax.pmean(jnp.mean(mine**2, axis=0), AXES)
    return (w - 0.1 * mine / jnp.sqrt(columns + 1e-3), columns), value


def momentum_of_whole(state, x):
    """As Muon does: the momentum is gathered and normalized."""
    w, momentum = state
    value, mine = value_and_grad(w, x)
    momentum = 0.9 * momentum + mine
    whole = gather(momentum)
    whole = whole / jnp.sqrt(jnp.sum(whole**2))
    whole = whole @ (1.5 * jnp.eye(COLUMNS) - 0.5 * whole.T @ whole)
    return (w - 0.1 * own_slice(whole), momentum), value


def sharpness_aware(w, x):
    """The gradient that counts is that of weights which another one moved."""
    value, mine = value_and_grad(w, x)
    norm = jnp.sqrt(jax.lax.psum(jnp.sum(mine**2), AXES))
    _, mine = value_and_grad(w + 0.05 * mine / norm, x)
    return w - 0.1 * mine, value


def two_networks(state, x):
    """A GAN: the second loss needs the updated weights of the first."""
    first, second = state
    _, mine = value_and_grad(first, x)
    first = first - 0.1 * mine
    value, mine = jax.value_and_grad(
        lambda second: loss_of(gather(first) - gather(second), x))(second)
    return (first, second - 0.1 * mine / 8), jax.lax.pmean(value, AXES)


def counts(w, x):
    """A metric that is summed over devices, in the shape of the weight."""
    value, mine = value_and_grad(w, x)
    counted = jnp.sum(x, axis=0)[:, None] * jnp.arange(1.0, COLUMNS + 1)
    return w - 0.1 * mine, (
        value, jax.lax.psum_scatter(counted, AXES, tiled=True))


def running_average(state, x):
    """Batch normalization: its averages are summed over devices."""
    w, average = state

    def loss(w):
        h = x @ gather(w)
        mean = jax.lax.pmean(jnp.mean(h, axis=0), AXES)
        return jnp.mean(jnp.tanh(h - mean) ** 2), mean

    (value, mean), mine = jax.value_and_grad(loss, has_aux=True)(w)
    return (w - 0.1 * mine / 8, 0.9 * average + 0.1 * mean), jax.lax.pmean(
        value, AXES)


def normalized_by_the_past(state, x):
    """Its averages are state of each device's own columns, gathered to be
    subtracted: no gradient, no product."""
    w, average = state
    value, mine = jax.value_and_grad(
        lambda w: loss_of(gather(w), x - gather(average)))(w)
    mean = jax.lax.psum_scatter(jnp.mean(x, axis=0), AXES, tiled=True) / 8
    return (w - 0.1 * mine / 8, 0.9 * average + 0.1 * mean), jax.lax.pmean(
        value, AXES)


def one_sequence(state, x):
    """Floating-point data, one sequence per device; a table of positions."""
    w, positions = state

    def loss(state):
        w, positions = state
        return loss_of(gather(w), jnp.tanh(x + gather(positions)[None]))

    value, (of_w, of_positions) = jax.value_and_grad(loss)((w, positions))
    return (w - 0.1 * of_w / 8, positions - 0.1 * of_positions / 8), (
        jax.lax.pmean(value, AXES))


def squares_of_devices(state, x):
    """Adam whose second moment is the mean of each device's own squares. Rounded
    to zero, it would divide by almost nothing."""
    w, first, second = state
    mine = gradient(gather(w), x)
    square = jax.lax.psum_scatter(mine * mine, AXES, tiled=True) / 8
    first = 0.9 * first + 0.1 * jax.lax.psum_scatter(mine, AXES, tiled=True) / 8
    second = 0.99 * second + 0.01 * square
    return (w - 1e-3 * first / (jnp.sqrt(second) + 1e-8), first, second), (
        jax.lax.pmean(jnp.mean(jnp.tanh(x @ gather(w)) ** 2), AXES))


def curvature(state, x):
    """Sophia: the diagonal of the Hessian, estimated on each device, divides."""
    w, first, second = state
    whole = gather(w)
    mine = gradient(whole, x)
    probe = jnp.where(jnp.arange(w.size * 8).reshape(whole.shape) * 7 % 5 < 2,
                      -1.0, 1.0)
    product = jax.jvp(lambda w: gradient(w, x), (whole,), (probe,))[1]
    hessian = jax.lax.psum_scatter(product * probe, AXES, tiled=True) / 8
    first = 0.9 * first + 0.1 * jax.lax.psum_scatter(mine, AXES, tiled=True) / 8
    second = 0.9 * second + 0.1 * hessian
    change = jnp.clip(first / jnp.maximum(second, 1e-6), -1, 1)
    return (w - 1e-3 * change, first, second), (
        jax.lax.pmean(jnp.mean(jnp.tanh(x @ whole) ** 2), AXES))


def balanced(state, x):
    """A router whose bias follows how many tokens each of 256 experts gets."""
    w, bias = state

    def loss(w):
        scores = jax.nn.sigmoid(x @ jnp.tile(gather(w), (1, 8)))
        expert = jnp.argmax(scores + bias, axis=1)
        return jnp.mean(scores ** 2), expert

    (value, expert), mine = jax.value_and_grad(loss, has_aux=True)(w)
    load = jax.lax.psum(jnp.sum(jax.nn.one_hot(expert, bias.size), 0), AXES)
    bias = bias + 0.01 * jnp.sign(jnp.mean(load) - load)
    return (w - 0.1 * mine / 8, bias), jax.lax.pmean(value, AXES)


@jax.custom_vjp
def product(x, w):
    """Each device computes its rows of the gradient, with all activations."""
    return x @ gather(w)


def pull_back(saved, slope):
    x, w = saved
    return slope @ gather(w).T, own_slice(gather(x).T) @ gather(slope)


product.defvjp(lambda x, w: (product(x, w), (x, w)), pull_back)


def gradient_without_a_sum(state, x):
    """As XLA's partitioner has it where activations are smaller than weights."""
    def loss(state):
        first, second = state
        return loss_of(gather(second), product(x, first))

    value, mine = jax.value_and_grad(loss)(state)
    return jax.tree.map(lambda w, g: w - 0.1 * g / 8, state, mine), (
        jax.lax.pmean(value, AXES))


def array(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(
        np.float32)


W, VECTOR, DATA = array(ROWS, COLUMNS), np.zeros(COLUMNS, np.float32), array(
    64, ROWS)
#: Step, state, its sharding, that of the loss, data, and how many gathers are
#: of weights and how many sums of gradients, of all that there are.
STEPS = {
    "adafactor": (adafactor, (W, VECTOR), (SHARDED, REPLICATED), REPLICATED,
                  DATA, 1, 1),
    "muon": (momentum_of_whole, (W, 0 * W), (SHARDED, SHARDED), REPLICATED,
             DATA, 1, 1),
    "sam": (sharpness_aware, W, SHARDED, REPLICATED, DATA, 2, 2),
    "gan": (two_networks, (W / 8, W[::-1] / 8), (SHARDED, SHARDED), REPLICATED,
            DATA, 3, 2),
    "metric": (counts, W, SHARDED, (REPLICATED, SHARDED), DATA, 1, 1),
    "batch-norm": (running_average, (W, VECTOR), (SHARDED, REPLICATED),
                   REPLICATED, DATA, 1, 1),
    "past": (normalized_by_the_past, (W, np.zeros(ROWS, np.float32)),
             (SHARDED, SHARDED), REPLICATED, DATA, 1, 1),
    "squares": (squares_of_devices, (W, 0 * W, 0 * W), (SHARDED,) * 3,
                REPLICATED, DATA, 2, 1),
    "curvature": (curvature, (W, 0 * W, 0 * W), (SHARDED,) * 3, REPLICATED,
                  DATA, 1, 1),
    "balance": (balanced, (W, np.zeros(8 * COLUMNS, np.float32)),
                (SHARDED, REPLICATED), REPLICATED, DATA, 1, 1),
    "one-sequence": (one_sequence, (W, array(64, ROWS)), (SHARDED, SHARDED),
                     REPLICATED, array(8, 64, ROWS), 2, 2),
    "no-sum": (gradient_without_a_sum, (W / 16, array(COLUMNS, COLUMNS) / 4),
               (SHARDED, SHARDED), REPLICATED, DATA, 2, 1),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_others(name):
    """What is rewritten, and that the training stays what it was."""
    step, state, sharding, of_loss, x, weights, gradients = STEPS[name]
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), AXES,
                             axis_types=(AxisType.Auto,) * 2)
    mapped = jax.shard_map(step, mesh=mesh, in_specs=(sharding, SHARDED),
                           out_specs=(sharding, of_loss), check_vma=False)
    fast = zpp.jit(mapped, mesh="node:2,gpu:4", target="portable",
                   gradients="i8:i8")
    plain = jax.jit(mapped)
    ours = theirs = state
    for _ in range(10):
        ours, our_loss = fast(ours, x)
        theirs, their_loss = plain(theirs, x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0.02,
                                                         atol=0.01),
                 our_loss, their_loss)
    distance, moved = (
        np.sqrt(sum(np.sum((np.asarray(a) - np.asarray(b)) ** 2)
                    for a, b in zip(jax.tree.leaves(left),
                                    jax.tree.leaves(right), strict=True)))
        for left, right in ((ours, theirs), (theirs, state)))
    # Most of this is the rounding of weights to int8: tanh is nearly saturated,
    # so its derivative changes much with them. Between 0.4 % ("batch-norm") and
    # 19 % ("curvature", which divides gradients) of the way is seen; a rounded
    # statistic or state is off by more than all of it.
    assert distance <= 0.2 * moved
    report = fast.report()
    for role, count in ("weight", weights), ("gradient", gradients):
        entries = [entry for entry in report["collectives"]
                   if entry["role"] == role and entry["kind"] != "all_reduce"]
        assert len(entries) == count
        assert all(entry["rewritten"] for entry in entries)
    assert all(entry["reason"] for entry in report["collectives"]
               if entry["role"] == "other")
    if name == "balance":
        assert all(entry["role"] == "other" for entry in report["collectives"]
                   if entry["kind"] == "all_reduce")
    if name == "metric":
        assert training.same_bits(our_loss[1], their_loss[1])


# Statistics of a codebook, in a module without the names of autodiff. ---------


def softmax(logits):
    return jax.nn.softmax(logits)


def masked_softmax(logits):
    chances = jax.nn.softmax(jnp.where(jnp.arange(64) < 50, logits, -1e9))
    return jnp.where(chances > 0.01, chances, 0)


def straight_through(logits):
    chances = jax.nn.softmax(logits)
    hard = jax.nn.one_hot(jnp.argmax(logits, 1), 64)
    return chances + jax.lax.stop_gradient(hard - chances)


def other_straight_through(logits):
    chances = jax.nn.softmax(logits)
    return jax.nn.one_hot(jnp.argmax(logits, 1), 64) + chances - chances


def gates(logits):
    return jax.nn.sigmoid(logits)


def sharpened(logits):
    chances = jax.nn.softmax(logits) ** 1.5
    return chances / chances.sum(0)


def sinkhorn(logits):
    def balance(chances, _):
        chances /= jax.lax.psum(chances.sum(0, keepdims=True), AXES)
        return chances / chances.sum(1, keepdims=True), None

    return jax.lax.scan(balance, jnp.exp(logits), None, length=3)[0]


def kernel(logits):
    chances = 1 / (1 + jnp.maximum(3 - 2 * logits, 0))
    return chances / chances.sum(1, keepdims=True)


def largest(logits):
    best, places = jax.lax.top_k(jax.nn.softmax(logits), 4)
    return jnp.zeros_like(logits).at[
        jnp.arange(len(logits))[:, None], places].add(best)


def centered(logits):
    chances = jax.nn.softmax(logits)
    return chances - chances.mean(0)


def gelu(logits):
    return jax.nn.gelu(logits)


def student(logits):
    """Distances to unit vectors, which nothing shows to be no less than 0."""
    chances = 1 / (1 + (2 - 2 * logits))
    return chances / chances.sum(1, keepdims=True)


def noisy(logits):
    noise = jnp.sin(jnp.arange(64.0))
    return jax.nn.tanh(logits + noise)


def refined(logits):
    return jnp.tanh(jnp.tanh(logits) @ jnp.eye(64) * 2)


@pytest.mark.parametrize("assign", [
    centered, gelu, student, noisy, refined, softmax, masked_softmax, straight_through, other_straight_through, gates,
    sharpened, sinkhorn, kernel, largest])
def test_soft_assignments_are_no_gradients(assign):
    """`p.T @ z` has the form of a gradient of `z @ codebook.T`. What is
    written by hand beside it, with a residual of both signs, is one."""
    def step(weight, codebook, x):
        whole, codes = gather(weight), gather(codebook)
        z = jnp.tanh(x @ whole)
        chances = assign(z @ codes.T)
        residual = z - chances @ codes
        mine = jax.lax.psum_scatter(
            x.T @ (residual * (1 - z**2)), AXES, tiled=True)
        sums = jax.lax.psum_scatter(chances.T @ z, AXES, tiled=True)
        return weight - 0.1 * mine, 0.9 * codebook + 0.1 * sums

    mapped = jax.shard_map(step, mesh=training.MESH, in_specs=(SHARDED,) * 3,
                           out_specs=(SHARDED,) * 2, check_vma=False)
    weight, x = array(64, 64), array(512, 64)
    text = jax.jit(mapped).lower(weight, weight, x).compiler_ir(
        "stablehlo").operation.get_asm(
            enable_debug_info=False, print_generic_op_form=True)
    report = json.loads(subprocess.run(
        [zpp.find_compiler(), "-", "-o", "/dev/null",
         "--zero-report=format=json mesh=node:2,gpu:4 output=-"],
        input=text, text=True, check=True, capture_output=True).stdout)
    sums = [(entry["role"], entry["rule"]) for entry in report["collectives"]
            if entry["kind"] == "reduce_scatter"]
    assert sorted(sums) == [("gradient", "R9"), ("other", "R9")]


@pytest.mark.parametrize("option, named, message", [
    ("weights_of", lambda path: False, r"weights_of: the function chooses no argument "
     r"that the step uses; paths are such as \[0\]"),
    ("gradients_of", lambda path: False, "gradients_of: the function chooses no"),
    ("weights_of", [0, 2], "weights_of: the step does not use argument 2;")])
def test_a_name_of_nothing_is_a_warning(option, named, message):
    def evaluate(w, x, unused):
        return jax.lax.pmean(jnp.mean((x @ gather(w)) ** 2), AXES)[None]

    mapped = jax.shard_map(evaluate, mesh=training.MESH,
                           in_specs=(SHARDED, SHARDED, SHARDED), out_specs=SHARDED)
    rows = np.ones((64, ROWS), np.float32)
    with pytest.warns(UserWarning, match=message):
        zpp.jit(mapped, mesh="node:2,gpu:4", **{option: named}).report(
            np.ones((ROWS, COLUMNS), np.float32), rows, rows)


def test_updated_without_updates_is_a_warning():
    with pytest.warns(UserWarning, match="updated=i8: no update is sent; it is for "
                      "steps in which each device updates a slice"):
        run(usual, steps=1, updated="i8")
