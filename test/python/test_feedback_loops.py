# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""feedback in loops: over layers, over micro-batches, over both."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_forms as forms
import zpp
from jax.sharding import NamedSharding, PartitionSpec
from startwait import needs_library
from test_feedback import SHAPE, gpt_step, jitted, mesh_of, value_and_gradient
from test_numerics import values
from training import (FAST, NODES, OFF, TINY, kept_arrays, same_bits, tokens,
                      with_options)

pytestmark = [pytest.mark.compiler,
              pytest.mark.filterwarnings("ignore:expected a step with")]

AXES = ("node", "gpu")
LAYERS, MICRO = 3, 2

# Steps (shards, contributions, *more) -> (gradients, loss), with a loop.
# Contributions have a dim for each loop.


def gradient(shard, contribution):
    return value_and_gradient(shard, contribution, AXES)[::-1]


def behind_products(shard, contribution):
    """With something for a loop's next iteration to hide the hops under."""
    product = contribution.T @ contribution
    product = jnp.sum(product @ product)
    shard, loss = gradient(shard, contribution)
    return shard, loss + product


def over_layers(shards, contributions, unroll=1, gradient=gradient):
    gradients, losses = jax.lax.scan(
        lambda _, layer: (None, gradient(*layer)), None,
        (shards, contributions), unroll=unroll)[1]
    return gradients, losses.sum()


def over_micro_batches(shards, contributions, gradient=gradient):
    def micro_batch(total, contribution):
        return jax.tree.map(jnp.add, total,
                            gradient(shards, contribution)), None

    return jax.lax.scan(micro_batch, (jnp.zeros_like(shards), 0.0),
                        contributions)[0]


def over_layers_at(shards, contributions):
    """As written by hand."""
    def layer(stack, index):
        layer, loss = gradient(shards[index], contributions[index])
        return stack.at[index].set(layer), loss

    stack, losses = jax.lax.scan(layer, jnp.zeros_like(shards),
                                 jnp.arange(shards.shape[0]))
    return stack, losses.sum()


over_both = functools.partial(over_micro_batches, gradient=over_layers)
over_layers_unrolled = functools.partial(over_layers, unroll=2)


def over_an_own_index(shards, contributions, order):
    """The step says which layer an iteration is of."""
    def layer(stack, index):
        layer, loss = gradient(shards[order[index]],
                               contributions[order[index]])
        return stack.at[order[index]].add(layer), loss

    stack, losses = jax.lax.scan(layer, jnp.zeros_like(shards),
                                 jnp.arange(order.shape[0]))
    return stack, losses.sum()


def over_some_layers(shards, contributions, count):
    """The step says how many."""
    def layer(index, carry):
        layer, loss = gradient(shards[index], contributions[index])
        return (jax.lax.dynamic_update_index_in_dim(carry[0], layer, index, 0),
                carry[1] + loss)

    return jax.lax.fori_loop(0, count, layer, (jnp.zeros_like(shards), 0.0))


def over_some_micro_batches(shard, contributions, count):
    return jax.lax.fori_loop(
        0, count,
        lambda index, total: jax.tree.map(
            jnp.add, total, gradient(shard, contributions[index])),
        (jnp.zeros_like(shard), 0.0))


def handed_on(shards, contributions):
    """An iteration writes what the one before it has computed."""
    def layer(carry, index):
        stack, last = carry
        stack = jax.lax.dynamic_update_index_in_dim(
            stack, last, jnp.maximum(index - 1, 0), 0)
        last, loss = gradient(shards[index], contributions[index])
        return (stack, last), loss

    (stack, last), losses = jax.lax.scan(
        layer, (jnp.zeros_like(shards), jnp.zeros_like(shards[0])),
        jnp.arange(shards.shape[0]))
    return stack.at[-1].set(last), losses.sum()


def masked(shards, contributions):
    """Each iteration adds a stack with one layer in it."""
    def layer(stack, index):
        layer, loss = gradient(shards[index], contributions[index])
        mask = jnp.arange(shards.shape[0]) == index
        return stack + mask[:, None, None] * layer, loss

    stack, losses = jax.lax.scan(layer, jnp.zeros_like(shards),
                                 jnp.arange(shards.shape[0]))
    return stack, losses.sum()


def permuted(shards, contributions, order):
    """The step says in which order the layers are."""
    gradients, loss = over_layers(shards, contributions)
    return jnp.zeros_like(shards).at[order].set(gradients), loss


def one_of_them(shards, contributions, number):
    """Without a loop."""
    layer, loss = gradient(shards[number], contributions[number])
    return jax.lax.dynamic_update_index_in_dim(
        jnp.zeros_like(shards), layer, number, 0), loss


def clipped(shards, contributions, loop=over_micro_batches):
    """Scales what is added by what is known of all of it."""
    def clip(shard, contribution):
        shard, loss = gradient(shard, contribution)
        norm = jnp.sqrt(jnp.sum(jnp.square(shard)))
        return shard * jnp.minimum(1, 100 / norm), loss

    return loop(shards, contributions, gradient=clip)


def looped(loop, numLayers, **options):
    """The step with this loop, jitted."""
    spec = PartitionSpec(*[None] * bool(numLayers), AXES)

    def step(shards, contributions, *more):
        gradients, loss = loop(shards, contributions[0], *more)
        return shards - gradients / 64, gradients, loss[None]

    fast = zpp.jit(
        lambda *args: jax.shard_map(
            step, mesh=mesh_of("2x4"), check_vma=False,
            in_specs=(spec, PartitionSpec(AXES),
                      *[PartitionSpec()] * (len(args) - 2)),
            out_specs=(spec, spec, PartitionSpec(AXES)))(*args),
        weights_of=[0], **{**OFF, "target": "portable", "mesh": NODES,
                           "gradients": "i8:i4", "feedback": "all",
                           "tuning": {"block": 32}, **options})
    shape = (numLayers, *SHAPE) if numLayers else SHAPE
    weights = jax.device_put(np.zeros(shape, np.float32),
                             NamedSharding(mesh_of("2x4"), spec))

    def train(contributions, *more):
        nonlocal weights
        gradients = []
        for contribution in contributions:
            weights, gradient, _ = fast(weights, contribution, *more)
            gradients.append(np.asarray(gradient))
        return np.array(gradients)

    return fast, train


def contributions(steps, *dims):
    """Contributions to each step: 8 ranks, then the dims of loops."""
    return np.array([values((8, *dims, *SHAPE), np.float32, seed=step)
                     for step in range(steps)])


#: Steps without a loop, compiled once for all layers and tests.
step_of = functools.cache(jitted)


def plain(contributions, feedback="all", **options):
    """Gradients of a step without a loop, and what is kept."""
    fast = step_of(feedback=feedback, **options)
    fast.state = None
    weight = jax.device_put(
        np.zeros(SHAPE, np.float32),
        NamedSharding(mesh_of("2x4"), PartitionSpec(AXES)))
    gradients = []
    for contribution in contributions:
        weight, gradient, _ = fast(weight, contribution)
        gradients.append(np.asarray(gradient))
    return np.array(gradients), {
        name: np.asarray(array).reshape(8, -1)
        for name, array in kept_arrays(fast).items()}


def per_device(fast):
    return {name: np.asarray(array).reshape(8, -1)
            for name, array in kept_arrays(fast).items()}


@pytest.mark.parametrize("feedback", ["last", "all"])
@pytest.mark.parametrize("loop", [over_layers, over_layers_at,
                                  over_layers_unrolled])
def test_each_layer_is_a_step_of_its_own(loop, feedback):
    layers = LAYERS + (loop is over_layers_unrolled)
    given = contributions(4, layers)
    fast, train = looped(loop, layers, feedback=feedback)
    gradients = train(given)
    kept = 0
    for layer in range(layers):
        expected, state = plain(given[:, :, layer], feedback=feedback)
        assert same_bits(gradients[:, layer], expected)
        kept += sum(array.nbytes for array in state.values())
        if loop is not over_layers_unrolled:
            for name, array in per_device(fast).items():
                number = array.reshape(8, layers, -1)[:, layer]
                assert same_bits(number, state[name])
    assert sum(array.nbytes for array in kept_arrays(fast).values()) == kept
    assert fast.report()["total"]["state_bytes"] == kept // 8


@pytest.mark.parametrize("feedback", ["last", "all"])
def test_a_micro_batch_is_a_step_of_its_own(feedback):
    """What one rounds, the next one sends: one tensor is kept."""
    given = contributions(3, MICRO)
    fast, train = looped(over_micro_batches, 0, feedback=feedback)
    gradients = train(given)
    expected, state = plain(
        given.swapaxes(1, 2).reshape(-1, 8, *SHAPE), feedback=feedback)
    assert same_bits(gradients, expected.reshape(3, MICRO, *SHAPE).sum(1))
    assert same_bits(per_device(fast), state)
    assert fast.report()["total"]["state_bytes"] == sum(
        array.nbytes for array in state.values()) // 8


def test_layers_in_micro_batches():
    given = contributions(3, MICRO, LAYERS)
    fast, train = looped(over_both, LAYERS)
    gradients = train(given)
    for layer in range(LAYERS):
        expected, state = plain(
            given[:, :, :, layer].swapaxes(1, 2).reshape(-1, 8, *SHAPE))
        assert same_bits(gradients[:, layer],
                         expected.reshape(3, MICRO, *SHAPE).sum(1))
        for name, array in per_device(fast).items():
            assert same_bits(array.reshape(8, LAYERS, -1)[:, layer],
                             state[name])


def test_what_is_scaled_by_its_norm():
    fast, train = looped(clipped, 0)
    train(contributions(1, MICRO))
    assert sorted(fast.state) == ["error.0", "error.1", "mesh"]


def test_as_many_micro_batches_as_the_step_says():
    given = contributions(3, MICRO + 1)
    fast, train = looped(over_some_micro_batches, 0)
    gradients = train(given, MICRO)
    expected, state = plain(
        given[:, :, :MICRO].swapaxes(1, 2).reshape(-1, 8, *SHAPE))
    assert same_bits(gradients, expected.reshape(3, MICRO, *SHAPE).sum(1))
    assert same_bits(per_device(fast), state)


@pytest.mark.parametrize("loop, more, reason", [
    (over_an_own_index, (jnp.array([2, 0, 1]),),
     "the loop stores it at an index that does not follow from the number of "
     "the iteration alone"),
    (over_some_layers, (LAYERS,),
     "the loop does not count its iterations from 0 to a constant, and each has "
     "a place of its own for it"),
    (handed_on, (), "the loop hands it to its next iteration, which may use it "
     "for anything"),
    (masked, (), "the loop computes with it and with what changes from "
     "iteration to iteration, which may choose where it goes"),
    (permuted, (jnp.array([2, 0, 1]),),
     "the step stores it at an index that it computes, which may be another one "
     "in the next step"),
    (one_of_them, (1,),
     "the step stores it at an index that it computes, which may be another one "
     "in the next step"),
])
def test_a_loop_that_is_not_understood_goes_without(loop, more, reason):
    """With a remark that says why, and the same bits."""
    given = contributions(2, LAYERS)
    fast, train = looped(loop, LAYERS)
    with pytest.warns(UserWarning, match="feedback=all: no gradient has any; "
                      ".* is not fed back"):
        gradients = train(given, *more)
    assert same_bits(gradients,
                     looped(loop, LAYERS, feedback="none")[1](given, *more))
    assert fast.state is None
    assert any(f"what it rounds is not fed back: {reason}" in remark.message
               for remark in fast.rewritten().remarks)


@pytest.mark.parametrize("loop, dims", [(over_layers, (LAYERS,)),
                                        (over_micro_batches, (MICRO,))])
def test_errors_of_a_sum_over_steps_do_not_add_up(loop, dims):
    random = np.random.default_rng(0)
    given = random.standard_normal((12, 8, *dims, *SHAPE)).astype(np.float32)
    exact = np.cumsum(given.astype(np.float64).sum(1), 0)
    layers = LAYERS if loop is over_layers else 0
    if not layers:
        exact = exact.sum(1)
    lost = {}
    for feedback in ("none", "last"):
        _, train = looped(loop, layers, gradients="i4", feedback=feedback)
        off = np.cumsum(train(given).astype(np.float64), 0) - exact
        lost[feedback] = np.linalg.norm(off.reshape(12, -1), axis=1)
    assert lost["none"][-1] > 2.5 * lost["none"][0]
    assert lost["last"].max() < 1.5 * lost["none"][0]
    # The error of the mean gradient falls with the number of steps.
    assert lost["last"][-1] / 12 < 0.15 * lost["last"][0]


@needs_library
@pytest.mark.parametrize("loop, dims", [(over_layers, (10,)),
                                        (over_micro_batches, (10,)),
                                        (over_both, (2, 8))])
def test_runtime_and_xla_agree_to_the_bit(loop, dims):
    """Also where iterations of the loop overlap."""
    given = contributions(3, *dims)
    layers = 0 if loop is over_micro_batches else dims[-1]
    results = []
    for target in ("portable", "cpu"):
        fast, train = looped(loop, layers, target=target)
        results.append((train(given), fast.state))
    assert same_bits(*results)


@needs_library
@pytest.mark.parametrize("feedback", ["last", "all"])
@pytest.mark.parametrize("loop, dims", [
    (over_layers, (8,)), (over_micro_batches, (9,)), (over_both, (2, 8))])
def test_an_iteration_sends_what_the_one_before_computes(loop, dims, feedback):
    """With the bits of iterations that send it themselves."""
    given = contributions(3, *dims)
    # What is not finite is not kept.
    given[1, 2, ..., 5, 7] = np.inf
    layers = 0 if loop is over_micro_batches else dims[-1]
    within = (functools.partial(over_layers, gradient=behind_products)
              if loop is over_both else behind_products)
    results = []
    for options in ({"tuning": {"block": 32, "prefetch_bytes": 0}}, {}):
        fast, train = looped(functools.partial(loop, gradient=within), layers,
                             target="cpu", feedback=feedback, **options)
        results.append((train(given), fast.state))
        left = [remark.message for remark in fast.rewritten().remarks if
                "scattered in the iteration that computes it" in remark.message]
        if options:
            assert all("more than prefetch-bytes = 0" in reason
                       for reason in left)
        # An outer loop is given the last ones of the inner loop.
        assert len(left) == (2 if options or loop is over_both else 0)
    assert same_bits(*results)
    assert not np.isfinite(results[0][0]).all()
    assert all(np.isfinite(array.astype(np.float32)).all()
               for array in per_device(fast).values())


def test_a_saved_state_continues():
    given = contributions(5, MICRO, LAYERS)
    fast, train = looped(over_both, LAYERS)
    train(given[:3])
    saved = jax.tree.map(lambda leaf: leaf.copy(), fast.state)
    expected = train(given[3:])
    resumed, train_on = looped(over_both, LAYERS)
    resumed.state = saved
    assert same_bits(train_on(given[3:]), expected)
    assert same_bits(resumed.state, fast.state)
    # Of another number of layers.
    other, train_other = looped(over_both, LAYERS + 1)
    other.state = fast.state
    with pytest.raises(ValueError, match=r"state: expected 'error.0' of "
                       r"bfloat16\[49152\], but got bfloat16\[36864\]; it is "
                       r"of another mesh or format. Set it to None to begin it "
                       r"anew"):
        train_other(contributions(1, MICRO, LAYERS + 1))


@pytest.mark.parametrize("name", [
    "scan", "scan-nested", "scan-unrolled", "scan-unrolled-with-a-rest",
    "scan-without-checkpoint", "scan-scaled", "grad-outside-scan",
    "several-steps", "zero-1", "zero-2"])
def test_forms_have_feedback(name):
    """Each scatter of them, and no rounding adds up."""
    form = forms.FORMS[name]
    off = {}
    for feedback in ("none", "all"):
        fast = zpp.jit(form.step, compiler_options=FAST, feedback=feedback,
                       **{**OFF, "mesh": NODES, "target": "portable",
                          "gradients": "i4:i4", "tuning": {"block": 32},
                          **form.options})
        state, _ = forms.run(form, fast)
        off[feedback] = np.sqrt(sum(
            np.sum(np.square(left - right)) for left, right in zip(
                jax.tree.leaves(state),
                jax.tree.leaves(forms.unmodified(name)[0]), strict=True)))
    assert off["all"] < 0.75 * off["none"]
    assert not any("is not fed back" in remark.message
                   for remark in fast.rewritten().remarks)


@pytest.mark.parametrize("changes", [
    {"scan": True}, {"scan": True, "accumulate": 2},
    pytest.param({"scan": True, "layers": 8, "target": "cpu"},
                 marks=needs_library)], ids=str)
def test_training_a_gpt_with_a_scan(changes):
    """Beside the same GPT without a loop over layers, where layers are equal."""
    options = {key: changes[key] for key in changes if key == "target"}
    config = {key: changes[key] for key in changes if key != "target"}
    losses, kept = [], []
    for scan in (True, False):
        trainer, fast = gpt_step(with_options(**{**config, "scan": scan}),
                                 feedback="all", tuning={"block": 32}, **options)
        state = trainer.init()
        losses.append([])
        for step in range(4):
            state, loss = fast(state, trainer.batch(tokens(TINY, step)))
            losses[-1].append(float(loss))
        assert not any("is not fed back" in remark.message
                       for remark in fast.rewritten().remarks)
        kept.append(fast.report()["total"]["state_bytes"])
        assert kept[-1] == sum(
            array.nbytes for array in kept_arrays(fast).values()) // 8
    np.testing.assert_allclose(*losses, rtol=2e-3)
    assert kept[0] == kept[1]
