# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""feedback: what a gradient's hops round is part of the next step's gradient."""

import functools

import blockquant
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import zpp
from jax.sharding import AxisType, PartitionSpec
from startwait import needs_library
from test_numerics import DTYPES, MESHES, values
from training import (FAST, NODES, OFF, TINY, baseline, kept_arrays,
                      ranks_agree, same_bits, tokens, trainer_of, with_options)

pytestmark = [pytest.mark.compiler,
              pytest.mark.filterwarnings("ignore:expected a step with")]

SHAPE = (64, 24)


@functools.cache
def mesh_of(name: str) -> jax.sharding.Mesh:
    sizes = MESHES[name]
    return jax.sharding.Mesh(
        np.array(jax.devices()).reshape(list(sizes.values())), tuple(sizes),
        axis_types=(AxisType.Auto,) * len(sizes))


def placed(mesh: str, dim: int) -> PartitionSpec:
    return PartitionSpec(*[None] * dim, tuple(MESHES[mesh]))


def value_and_gradient(shard, contribution, axes, dim=0):
    """A gradient that is the reduce-scatter of what each rank contributes. All
    rows are looked up, as in test_numerics."""
    def loss(shard):
        whole = jax.lax.all_gather(shard, axes, axis=dim, tiled=True)
        whole = whole.at[jnp.arange(whole.shape[0])].get(
            mode="promise_in_bounds")
        return jnp.sum(whole * contribution)

    return jax.value_and_grad(loss)(shard)


@functools.cache
def gradient_step(mesh_name: str, dim: int):
    """(shard, contribution) -> (updated shard, gradient shard, loss)"""
    axes = tuple(MESHES[mesh_name])

    def step(shard, contribution):
        value, gradient = value_and_gradient(shard, contribution[0], axes, dim)
        return ((shard - gradient / 64).astype(shard.dtype), gradient,
                value[None])

    spec = placed(mesh_name, dim)
    return jax.shard_map(step, mesh=mesh_of(mesh_name),
                         in_specs=(spec, PartitionSpec(axes)),
                         out_specs=(spec, spec, PartitionSpec(axes)))


def jitted(mesh="2x4", dim=0, rotate=None, **options):
    tiers = ",".join(f"{name}:{size}" for name, size in MESHES[mesh].items())
    return zpp.jit(gradient_step(mesh, dim), weights_of=[0], **{
        **OFF, "target": "portable", "mesh": tiers, "gradients": "i8:i4",
        "feedback": "last", "tuning": {"block": 32, "rotate": rotate},
        **options})


def contributions(count, shape=SHAPE, dtype=np.float32):
    return [values((8, *shape), dtype, seed=step) for step in range(count)]


def zeros(given, mesh="2x4", dim=0):
    return jax.device_put(
        np.zeros(given[0].shape[1:], given[0].dtype),
        jax.sharding.NamedSharding(mesh_of(mesh), placed(mesh, dim)))


def train(fast, given, weight=None):
    weight = zeros(given) if weight is None else weight
    gradients = []
    for contribution in given:
        weight, gradient, _ = fast(weight, contribution)
        gradients.append(np.asarray(gradient))
    return weight, gradients


@pytest.mark.parametrize("dtype, mesh, dim, shape, formats, rotate, feedback", [
    ("f32", "2x4", 0, (64, 24), "i8:i4", 0, "last"),
    ("f32", "2x4", 0, (64, 24), "i8:i4", 32, "all"),
    ("bf16", "2x4", 1, (24, 64), "i8:i4", 0, "all"),
    ("bf16", "4x2", 1, (24, 64), "i8:i4", 32, "last"),
    # Ranks have padding; two of three hops stay rotated.
    ("f32", "2x2x2", 0, (1000,), "i8:i8:i4", 0, "all"),
    ("f32", "2x2x2", 0, (1024,), "i8:i8:i4", 32, "last"),
    # The last quantized hop is not the last one.
    ("f32", "4x2", 0, (64, 24), "i4:none", 0, "last"),
    ("f16", "1x8", 0, (64, 24), "i8:i4", 0, "last"),
    ("f32", "8", 0, (64, 24), "i4", 32, "last"),
])
def test_three_steps_are_what_the_definition_says(
        dtype, mesh, dim, shape, formats, rotate, feedback):
    given = contributions(3, shape, DTYPES[dtype])
    fast = jitted(mesh, dim, gradients=formats, rotate=rotate,
                  feedback=feedback)
    _, gradients = train(fast, given, zeros(given, mesh, dim))
    tiers = list(MESHES[mesh].values())
    errors = {}
    for contribution, gradient in zip(given, gradients, strict=True):
        expected = blockquant.reduce_scatter(
            contribution.astype(np.float32), tiers, formats.split(":"), 32, dim,
            DTYPES[dtype], rotates=rotate == 32, feedback=feedback,
            errors=errors)
        assert same_bits(gradient, np.concatenate(expected, axis=dim))
    kept = sum(np.size(array) for array in errors.values())
    assert sum(array.size for array in kept_arrays(fast).values()) == kept
    assert fast.report()["total"]["state_bytes"] == 2 * kept // 8


def test_errors_of_a_sum_over_steps_do_not_add_up():
    """Of i4 in one hop, the error of the sum is that of one step."""
    random = np.random.default_rng(0)
    given = [random.standard_normal((8, *SHAPE)).astype(np.float32)
             for _ in range(16)]
    exact = np.cumsum([array.astype(np.float64).sum(0) for array in given], 0)
    one_step = {}
    for feedback in ("none", "last"):
        _, gradients = train(jitted(gradients="i4", feedback=feedback), given)
        lost = np.cumsum(np.array(gradients, np.float64), 0) - exact
        one_step[feedback] = np.linalg.norm(lost, axis=(1, 2))
    plain, fed = one_step["none"], one_step["last"]
    # As a random walk, and not at all.
    assert plain[-1] > 2.5 * plain[0]
    assert fed.max() < 1.5 * plain[0]
    assert fed[-1] < 0.4 * plain[-1]


def test_a_small_gradient_arrives_in_time():
    """Beside a large element, elements below half a step of it are lost in
    every step without feedback, if they are not rotated."""
    contribution = np.full((8, *SHAPE), 0.01, np.float32)
    contribution[:, :, 0] = 1
    sums = {}
    for feedback in ("none", "all"):
        _, gradients = train(jitted(gradients="i4", rotate=0, feedback=feedback),
                             20 * [contribution])
        sums[feedback] = np.sum(gradients, 0)[:, 1:]
    assert np.all(sums["none"] == 0)
    np.testing.assert_allclose(sums["all"], 20 * 8 * 0.01, rtol=0.5)


def test_what_is_not_finite_shows_once():
    """In the step in which it is there, and not in what is kept of it."""
    given = contributions(4)
    given[1][3, 10, 7] = np.inf
    _, gradients = train(jitted(feedback="all"), given)
    assert not np.isfinite(gradients[1]).all()
    for gradient in (gradients[0], *gradients[2:]):
        assert np.isfinite(gradient).all()


def test_zeros_stay_zeros():
    fast = jitted(feedback="all", rotate=32)
    _, gradients = train(fast, 2 * [np.zeros((8, *SHAPE), np.float32)])
    assert not np.any(gradients)
    assert not any(np.asarray(array).any() for array in kept_arrays(fast).values())


def gpt_step(config=TINY, **options):
    trainer = trainer_of(config)
    return trainer, zpp.jit(
        trainer.step, donate_argnums=0, compiler_options=FAST, **{
            "mesh": NODES, "target": "portable", "weights": "i8",
            "gradients": "i8:i4", "secondary": "gpu", "feedback": "last",
            **options})


@pytest.mark.parametrize("options", [
    {}, {"config": with_options(replicated=("node",))}, pytest.param({"target": "cpu", "weights": "i4:delta", "feedback": "all",
                      "tuning": {"rotate": 32}}, marks=needs_library)], ids=str)
def test_training_with_all_techniques(options):
    trainer, fast = gpt_step(**options)
    state = trainer.init()
    for step, expected in enumerate(baseline(trainer.config).losses):
        state, loss = fast(state, trainer.batch(tokens(TINY, step)))
        np.testing.assert_allclose(loss, expected, rtol=0.02)
        assert jax.tree.all(jax.tree.map(ranks_agree, state))
    errors = [name for name in fast.state if name.startswith("error.")]
    assert errors
    report = fast.report()["total"]
    assert report["state_bytes"] == sum(
        array.nbytes for array in kept_arrays(fast).values()) // 8
    # Hops do not send more than without, but for gains that travel otherwise.
    _, plain = gpt_step(**{**options, "feedback": "none"})
    before = plain.report(trainer.init(), trainer.batch(tokens(TINY, 0)))
    for tier, size in before["total"]["after"].items():
        assert report["after"][tier] == pytest.approx(size, rel=0.05)


@needs_library
def test_runtime_and_xla_agree_to_the_bit():
    results = []
    for target in ("portable", "cpu"):
        fast = jitted(feedback="all", rotate=32, target=target)
        results.append((train(fast, contributions(3)), fast.state))
    assert same_bits(*results)


def test_a_saved_state_continues(tmp_path):
    fast = jitted(feedback="all")
    given = contributions(5)
    weight, _ = train(fast, given[:3])
    saved = jax.tree.map(lambda leaf: leaf.copy(), (weight, fast.state))
    expected = train(fast, given[3:], weight)
    resumed = jitted(feedback="all")
    weight, resumed.state = saved
    assert same_bits(train(resumed, given[3:], weight), expected)
    assert same_bits(resumed.state, fast.state)

    # Other weights have other gradients: what is kept begins anew.
    other = zeros(given) + 1
    assert same_bits(train(fast, given[:2], other),
                     train(jitted(feedback="all"), given[:2], other))

    # A folder carries it as zpp.jit does.
    step = jax.jit(gradient_step("2x4", 0), donate_argnums=0)
    zpp.save(zpp.rewrite(
        zpp.export(step, zeros(given), given[0]), weights_of=[0],
        **{**OFF, "mesh": NODES, "target": "portable", "gradients": "i8:i4",
           "feedback": "all", "tuning": {"block": 32}}), tmp_path / "step.zpp")
    loaded = zpp.load(tmp_path / "step.zpp", FAST)
    assert same_bits(train(loaded, given), train(jitted(feedback="all"), given))


def test_a_state_of_another_mesh_is_dropped_with_a_warning():
    given = contributions(2)
    fast, fresh, other = jitted(), jitted(), jitted("4x2")
    train(other, given[:1], zeros(given, "4x2"))
    fast.state = other.state
    with pytest.warns(UserWarning, match="state: expected one of a step on the "
                      "mesh node:2,gpu:4 .*, but got one of another mesh"):
        results = fast(zeros(given), given[0])
    assert same_bits(results, fresh(zeros(given), given[0]))
    assert same_bits(fast.state, fresh.state)


@pytest.mark.filterwarnings("error")
def test_f16_is_a_warning():
    """It is why steps have a loss scale, of which the step shows nothing."""
    given = contributions(1, dtype=np.float16)
    with pytest.warns(UserWarning, match="feedback=last: what is kept has the "
                      "scale of the gradients .* train without feedback"):
        jitted()(zeros(given), given[0])
    given = contributions(1, dtype=ml_dtypes.bfloat16)
    jitted()(zeros(given), given[0])


def test_a_state_of_other_options_is_refused():
    given = contributions(1)
    fast, both, without = jitted(), jitted(feedback="all"), jitted(
        feedback="none")
    weight, _ = train(fast, given)
    for other in (both, without):
        other.state = fast.state
    with pytest.raises(ValueError, match="state: expected 3 arrays, error.0, "
                       "error.1, mesh, but got error.0, mesh; it is of another "
                       "step or of other options. Set it to None to begin it anew"):
        both(weight, given[0])
    with pytest.raises(ValueError, match="state: expected None for a step that "
                       "keeps nothing between calls, but got arrays; "
                       "weights=i4:delta or feedback=last would keep some"):
        without(weight, given[0])
    without.state = None
    without(weight, given[0])
    with pytest.raises(TypeError, match="state: expected a dict of arrays, as it "
                       "was read, or None, but got list"):
        fast.state = list(fast.state.values())


def test_feedback_needs_formats():
    with pytest.raises(zpp.CompileError, match="expected formats of gradients "
                       "with feedback=last, which is of what they round, but "
                       "got gradients=none"):
        jitted(gradients="none")(np.zeros(SHAPE, np.float32),
                                 contributions(1)[0])
    with pytest.raises(ValueError, match="feedback: expected 'none', 'last' or "
                       "'all', but got 'some'"):
        zpp.Options(feedback="some")
