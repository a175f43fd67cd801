# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO-1 and ZeRO-2 with `updated`: devices send by how much their slices of
the weights have changed. What a training must keep is that all replicas hold
the same bits, and its losses."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from training import AXES, MESH, NODES, array, ranks_agree

pytestmark = [pytest.mark.compiler,
              pytest.mark.filterwarnings("ignore:expected a step with")]

WIDTH = 64
DEVICES = 8
EXACT = {"weights": "none", "gradients": "none", "secondary": "none"}


def put(x, spec=P()):
    return jax.device_put(x, NamedSharding(MESH, spec))


def loss_of(weights, batch):
    x, y = batch
    for weight in weights:
        x = jnp.tanh(x @ weight.astype(jnp.float32))
    return jnp.mean(jnp.square(x - y))


def slice_of(x):
    """The rows of a device."""
    size = x.shape[0] // DEVICES
    return jax.lax.dynamic_slice_in_dim(
        x, size * jax.lax.axis_index(AXES), size)


def gather(x):
    return jax.lax.all_gather(x, AXES, tiled=True)


def sum_and_slice(gradients):
    """ZeRO-1."""
    return jax.tree.map(slice_of, jax.lax.pmean(gradients, AXES))


def sum_in_parts(gradients):
    """ZeRO-2."""
    return jax.tree.map(lambda g: jax.lax.psum_scatter(
        g, AXES, tiled=True) / DEVICES, gradients)


def adam(gradients, moments, rate=1e-3):
    """Updates, and moments with the number of the step."""
    first, second, count = moments
    count += 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second,
                          gradients)
    updates = jax.tree.map(
        lambda m, v: rate * (m / (1 - 0.9**count))
        / (jnp.sqrt(v / (1 - 0.99**count)) + 1e-8), first, second)
    return updates, (first, second, count)


# Programs as other people write them: (state, batch) -> (state, loss).

def sgd_step(scatter, state, batch):
    """The weights are the only copy."""
    loss, gradients = jax.value_and_grad(loss_of)(state, batch)
    own = jax.tree.map(lambda w, g: slice_of(w) - 0.3 * g, state,
                       scatter(gradients))
    return jax.tree.map(gather, own), jax.lax.pmean(loss, AXES)


def adam_step(scatter, state, batch):
    """Moments are sharded, the weights are the only copy."""
    weights, moments = state
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
    updates, moments = adam(scatter(gradients), moments)
    own = jax.tree.map(lambda w, u: slice_of(w) - u, weights, updates)
    return (jax.tree.map(gather, own), moments), jax.lax.pmean(loss, AXES)


def master_step(scatter, state, batch):
    """Each device keeps its slice in f32, beside all weights in bf16."""
    weights, masters, moments = state
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
    gradients = jax.tree.map(lambda g: g.astype(jnp.float32), gradients)
    updates, moments = adam(scatter(gradients), moments)
    masters = jax.tree.map(jnp.subtract, masters, updates)
    weights = jax.tree.map(lambda m: gather(m.astype(jnp.bfloat16)), masters)
    return (weights, masters, moments), jax.lax.pmean(loss, AXES)


def moments_of(weights):
    # Each is donated.
    first, second = ([put(np.zeros(w.shape, np.float32), P(AXES))
                      for w in weights] for _ in range(2))
    return first, second, put(np.zeros((), np.float32))


def first_sgd():
    weights = [array((WIDTH, WIDTH)), array((WIDTH, WIDTH))]
    return weights, [P(), P()]


def first_adam():
    weights, specs = first_sgd()
    sharded = [P(AXES), P(AXES)]
    return ((weights, moments_of(weights)),
            (specs, (sharded, sharded, P())))


def first_master():
    (weights, moments), (specs, moment_specs) = first_adam()
    return (([w.astype(jnp.bfloat16) for w in weights],
             [put(np.asarray(w), P(AXES)) for w in weights], moments),
            (specs, moment_specs[0], moment_specs))


@dataclasses.dataclass(frozen=True)
class Program:
    step: Callable
    first: Callable


PROGRAMS = {
    "sgd": Program(sgd_step, first_sgd),
    "adam": Program(adam_step, first_adam),
    "master": Program(master_step, first_master),
}
KINDS = {"zero-1": sum_and_slice, "zero-2": sum_in_parts}


def program_of(name, kind):
    """The step and its first state."""
    state, specs = PROGRAMS[name].first()
    step = functools.partial(PROGRAMS[name].step, KINDS[kind])
    return jax.shard_map(step, mesh=MESH, in_specs=(specs, P(AXES)),
                         out_specs=(specs, P()), check_vma=False), state


def batch_of(step):
    """Another model's results for random rows, with noise that stays as a
    loss."""
    rng = np.random.default_rng(step)
    x = rng.standard_normal((64, WIDTH), np.float32)
    teacher = np.random.default_rng(7).standard_normal((WIDTH, WIDTH))
    y = np.tanh(x @ teacher * WIDTH**-0.5)
    y += 0.5 * rng.standard_normal(y.shape)
    return put(x, P(AXES)), put(y.astype(np.float32), P(AXES))


def run(step, state, steps):
    losses = []
    for number in range(steps):
        state, loss = step(state, batch_of(number))
        losses.append(float(loss))
    return state, np.array(losses)


@functools.cache
def unmodified(name, kind, steps):
    step, state = program_of(name, kind)
    return run(jax.jit(step), state, steps)


def rewritten(name, kind, target="cpu", **options):
    step, state = program_of(name, kind)
    return zpp.jit(step, target=target, mesh=NODES, **{**EXACT, **options}), state


def gathers_of(report):
    return [entry for entry in report["collectives"]
            if entry["kind"] == "all_gather"]


def share(report, tier):
    gathers = gathers_of(report)
    return (sum(entry["after"][tier] for entry in gathers)
            / sum(entry["before"][tier] for entry in gathers))


@pytest.mark.matrix
@pytest.mark.parametrize("form", ["i8", "i4"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_training(name, kind, form):
    """An update is rounded, never a weight."""
    steps = 120
    fast, state = rewritten(name, kind, updated=form)
    state, losses = run(fast, state, steps)
    _, expected = unmodified(name, kind, steps)
    assert expected[-1] < 0.8 * expected[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-2)
    assert all(map(ranks_agree, jax.tree.leaves(state)))
    report = fast.report()
    assert all(entry["rewritten"] and entry["role"] == "update"
               for entry in gathers_of(report))
    # A chunk of 512 elements has four scales, in 16 bytes.
    part = ({"i8": 8, "i4": 4}[form] + 32 / 128) / (
        16 if name == "master" else 32)
    for tier in AXES:
        assert share(report, tier) == pytest.approx(part, rel=0.02)


@pytest.mark.matrix
@pytest.mark.parametrize("target", ["portable", "cpu"])
@pytest.mark.parametrize("name", ["adam", "master"])
def test_with_everything_else(name, target):
    fast, state = rewritten(name, "zero-1", target, updated="i8", weights="i8",
                            gradients="i8:i4", secondary="gpu",
                            donate_argnums=0)
    state, losses = run(fast, state, 50)
    np.testing.assert_allclose(losses, unmodified(name, "zero-1", 50)[1],
                               rtol=1e-2)
    assert all(map(ranks_agree, jax.tree.leaves(state)))
    report = fast.report()
    assert {entry["role"] for entry in report["collectives"]
            if entry["rewritten"]} == {"gradient", "update"}
    if target == "cpu":
        # Updates are started when they are there.
        assert any(event["role"] == "update" for event in report["schedule"])
        fast.metrics()
        run(fast, state, 1)
        assert 0 < fast.metrics()["error/updates"] < 0.01


@pytest.mark.matrix
@pytest.mark.parametrize("target", ["portable", "cpu"])
@pytest.mark.parametrize("keeps", [False, True], ids=["only-copy", "own-copy"])
def test_jit_with_shardings(keeps, target):
    """ZeRO-1 as shardings say it: the partitioner makes slices and gathers."""
    whole, part = NamedSharding(MESH, P()), NamedSharding(MESH, P(AXES))

    def to(sharding, tree):
        return jax.tree.map(
            lambda x: jax.lax.with_sharding_constraint(x, sharding), tree)

    def step(state, batch):
        weights, masters, momentum = state
        loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
        gradients = to(part, jax.tree.map(
            lambda g: g.astype(jnp.float32), gradients))
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
        masters = jax.tree.map(
            lambda w, m: w - 0.1 * m,
            masters if keeps else to(part, weights), momentum)
        weights = to(whole, jax.tree.map(
            lambda m, w: m.astype(w.dtype), masters, weights))
        return (weights, masters, momentum), loss

    weights, _ = first_sgd()
    masters = [put(np.asarray(w), P(AXES)) for w in weights]
    if keeps:
        weights = [w.astype(jnp.bfloat16) for w in weights]
    momentum = [put(np.zeros(w.shape, np.float32), P(AXES)) for w in weights]
    state = (weights, masters, momentum)
    shardings = (jax.tree.map(lambda x: x.sharding, state), whole)
    step = jax.jit(step, out_shardings=shardings)
    _, expected = run(step, state, 100)
    fast = zpp.jit(step, target=target, mesh=NODES, updated="i8", **EXACT)
    state, losses = run(fast, state, 100)
    np.testing.assert_allclose(losses, expected, rtol=1e-2)
    assert all(map(ranks_agree, jax.tree.leaves(state)))
    roles = [entry["role"] for entry in gathers_of(fast.report())]
    assert roles.count("update") == 2


@pytest.mark.parametrize("keeps", [False, True], ids=["only-copy", "own-copy"])
def test_all_weights_as_one_vector(keeps):
    """Raveled, padded, and gathered at once."""
    shapes = [(WIDTH, WIDTH), (WIDTH,), (WIDTH, 6)]
    weights = [exact_in_int8(shape) for shape in shapes]
    size = sum(w.size for w in weights) + 64
    assert size % (DEVICES * 32) == 0

    def ravel(weights):
        return jnp.concatenate([*map(jnp.ravel, weights), jnp.zeros(64)])

    def step(state, update):
        weights, own = state
        flat = ravel(weights)
        own = (own if keeps else slice_of(flat)) + update
        whole, parts = gather(own), []
        for shape in shapes:
            parts.append(whole[:np.prod(shape)].reshape(shape))
            whole = whole[np.prod(shape):]
        return (parts, own), jnp.sum(jnp.abs(flat))

    specs = ([P()] * 3, P(AXES))
    step = jax.shard_map(step, mesh=MESH, in_specs=(specs, P(AXES)),
                         out_specs=(specs, P()), check_vma=False)
    state = ([put(w) for w in weights], put(np.asarray(ravel(weights)),
                                            P(AXES)))
    update = put(exact_in_int8((size,)), P(AXES))
    expected = jax.jit(step)(state, update)
    fast = zpp.jit(step, target="cpu", mesh=NODES, updated="i8",
                   tuning={"block": 32}, **EXACT)
    for a, b in zip(*map(jax.tree.leaves, (fast(state, update), expected))):
        np.testing.assert_array_equal(a, b)
    entry, = gathers_of(fast.report())
    if keeps:
        assert "the step returns it in parts" in entry["reason"]
    else:
        assert entry["role"] == "update", entry["reason"]


def test_three_tiers():
    tiers = ("rack", "node", "gpu")
    mesh = jax.make_mesh((2, 2, 2), tiers,
                         axis_types=(jax.sharding.AxisType.Auto,) * 3)

    def step(weights, batch):
        loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
        index = jax.lax.axis_index(tiers)
        own = [jax.lax.dynamic_slice_in_dim(w, 8 * index, 8) - 0.3 / 8
               * jax.lax.psum_scatter(g, tiers, tiled=True)
               for w, g in zip(weights, gradients)]
        return ([jax.lax.all_gather(w, tiers, tiled=True) for w in own],
                jax.lax.pmean(loss, tiers))

    step = jax.shard_map(step, mesh=mesh, in_specs=(P(), P(tiers)),
                         out_specs=P(), check_vma=False)
    first, _ = first_sgd()
    first = [jax.device_put(np.asarray(w), NamedSharding(mesh, P()))
             for w in first]
    batch = [jax.device_put(np.asarray(x), NamedSharding(mesh, P(tiers)))
             for x in batch_of(0)]

    def run(step):
        state, losses = first, []
        for _ in range(20):
            state, loss = step(state, tuple(batch))
            losses.append(float(loss))
        return state, losses

    _, expected = run(jax.jit(step))
    fast = zpp.jit(step, target="cpu", mesh="rack:2,node:2,gpu:2", updated="i4",
                   **EXACT)
    state, losses = run(fast)
    np.testing.assert_allclose(losses, expected, rtol=1e-2)
    assert all(map(ranks_agree, state))
    for tier in tiers:
        assert share(fast.report(), tier) < 0.14


def test_a_plan_has_its_bytes():
    step, state = program_of("master", "zero-2")
    exported = zpp.export(step, state, batch_of(0))
    plans = {form: zpp.plan(exported, mesh=NODES, device="h100",
                            gradients="i8:i4", updated=form)
             for form in ("none", "i8")}
    sent = {form: {row.name: row.sent["node"] for row in plan.predictions}
            for form, plan in plans.items()}
    assert sent["i8"]["qgZ"] < 0.7 * sent["none"]["qgZ"]


# Where slices go. Updates that int8 has exactly make the same bits.

@dataclasses.dataclass(frozen=True)
class Form:
    """How a device cuts out its slice, and how all of them gather it."""
    cut: Callable
    gather: Callable
    #: The axes of the devices that have slices.
    axes: tuple = AXES
    #: The dim that is partitioned over them, where a slice has two.
    dim: int | None = 0
    #: How the weights lie, and what is cut out of them.
    held: P = P()
    part: P | None = None


def cut(axes, dim=0):
    def slice_of(x):
        size = x.shape[dim] // jax.lax.axis_size(axes)
        return jax.lax.dynamic_slice_in_dim(
            x, size * jax.lax.axis_index(axes), size, dim)
    return slice_of


def gather_over(*hops, dim=0):
    def gather(x):
        for axes in hops:
            x = jax.lax.all_gather(x, axes, axis=dim, tiled=True)
        return x
    return gather


FORMS = {
    "all": Form(cut(AXES), gather_over(AXES)),
    "columns": Form(cut(AXES, 1), gather_over(AXES, dim=1), dim=1),
    "within-nodes": Form(cut("gpu"), gather_over("gpu"), ("gpu",)),
    "between-nodes": Form(cut("node"), gather_over("node"), ("node",)),
    "other-order": Form(cut(AXES[::-1]), gather_over(AXES[::-1]), AXES[::-1]),
    "hop-by-hop": Form(cut(AXES), gather_over("gpu", "node")),
    "hop-by-hop-outwards": Form(cut(AXES[::-1]), gather_over("node", "gpu"),
                                AXES[::-1]),
    "rows-of-a-reshape": Form(
        lambda x: x.reshape(DEVICES, -1)[jax.lax.axis_index(AXES)],
        lambda x: gather_over(AXES)(x).reshape(WIDTH, WIDTH), dim=None),
    "untiled": Form(
        cut(AXES),
        lambda x: jax.lax.all_gather(x, AXES).reshape(WIDTH, WIDTH)),
    # Of each part of a tensor-parallel weight.
    "partitioned": Form(cut("gpu"), gather_over("gpu"), held=P(None, "node"),
                        part=P("gpu", "node")),
    "transposed": Form(
        lambda x: cut(AXES)(x.T), lambda x: gather_over(AXES)(x).T),
}


def exact_in_int8(shape):
    """Numbers of which each block has the largest code, 127."""
    rng = np.random.default_rng(5)
    values = rng.integers(-127, 128, shape).astype(np.float32)
    values[..., ::4] = 127
    return values / 1024


def shares_of(form):
    if form.part:
        return form.part
    return (P(form.axes) if form.dim is None
            else P(*[None] * form.dim, form.axes))


def step_in(form, keeps):
    """Adds updates to a slice, of the weights or of a copy that is kept."""
    def step(state, update):
        weights, own = state["weights"], state["own"]
        own = (own if keeps else form.cut(weights)) + update
        return ({"weights": form.gather(own), "own": own},
                jax.lax.pmean(jnp.sum(jnp.abs(weights)), AXES))

    spec = {"weights": form.held, "own": shares_of(form)}
    return jax.shard_map(step, mesh=MESH, in_specs=(spec, shares_of(form)),
                         out_specs=(spec, P()), check_vma=False)


@pytest.mark.matrix
@pytest.mark.parametrize("target", ["portable", "cpu"])
@pytest.mark.parametrize("keeps", [False, True], ids=["only-copy", "own-copy"])
@pytest.mark.parametrize("name", FORMS)
def test_each_slice_goes_to_its_place(name, keeps, target):
    form = FORMS[name]
    weights = put(exact_in_int8((WIDTH, WIDTH)), form.held)
    own = jax.jit(jax.shard_map(form.cut, mesh=MESH, in_specs=form.held,
                                out_specs=shares_of(form),
                                check_vma=False))(weights)
    update = jax.device_put(exact_in_int8(own.shape), own.sharding)
    step = step_in(form, keeps)

    def run(step):
        state = {"weights": weights, "own": own}
        for _ in range(2):
            state, _ = step(state, update)
        return state

    expected = run(jax.jit(step))
    fast = zpp.jit(step, target=target, mesh=NODES, updated="i8",
                   tuning={"block": 32}, **EXACT)
    state = run(fast)
    gathers = gathers_of(fast.report())
    assert gathers and all(entry["role"] == "update" for entry in gathers)
    for key in state:
        np.testing.assert_array_equal(state[key], expected[key])
    if form.held == P():
        assert ranks_agree(state["weights"])


# What is left as it is.

def test_an_average_of_weights_stays_exact():
    """The optimizer's state is gathered here, too."""
    def step(state, batch):
        loss, gradients = jax.value_and_grad(loss_of)(state["weights"], batch)
        own = jax.tree.map(lambda w, g: slice_of(w) - 0.3 * g,
                           state["weights"], sum_in_parts(gradients))
        average = jax.tree.map(lambda a, w: 0.9 * slice_of(a) + 0.1 * w,
                               state["average"], own)
        return ({"weights": jax.tree.map(gather, own),
                 "average": jax.tree.map(gather, average)},
                jax.lax.pmean(loss, AXES))

    weights, specs = first_sgd()
    specs = {"weights": specs, "average": specs}
    step = jax.shard_map(step, mesh=MESH, in_specs=(specs, P(AXES)),
                         out_specs=(specs, P()), check_vma=False)
    state = {"weights": weights, "average": weights}
    fast = zpp.jit(step, target="cpu", mesh=NODES, updated="i8", **EXACT)
    state, _ = fast(state, batch_of(0))
    assert all(map(ranks_agree, jax.tree.leaves(state)))
    gathers = gathers_of(fast.report())
    assert [entry["role"] for entry in gathers].count("update") == 2
    assert [entry["reason"] for entry in gathers if entry["reason"]] == [
        f"it gathers state, of which no update is sent: argument {number} "
        f"(state['average'][{number}]) is no weight: no gradient is computed "
        "from it" for number in (0, 1)]


def test_weights_that_were_not_finite():
    """A step that finds its loss so takes weights that it has kept."""
    def step(state, batch):
        weights, kept = state
        loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
        loss = jax.lax.pmean(loss, AXES)
        own = [jnp.where(jnp.isfinite(loss), slice_of(w) - 0.3 * g, k) for w, g, k in
               zip(weights, sum_in_parts(gradients), kept, strict=True)]
        # A batch of zeros is what spoils them.
        largest = jax.lax.pmax(jnp.max(jnp.abs(batch[0])), AXES)
        own = [jnp.where(largest == 0, jnp.inf, w) for w in own]
        return (list(map(gather, own)), kept), loss

    weights, specs = first_sgd()
    kept = [put(np.asarray(w), P(AXES)) for w in weights]
    specs = (specs, [P(AXES)] * 2)
    step = jax.shard_map(step, mesh=MESH, in_specs=(specs, P(AXES)),
                         out_specs=(specs, P()), check_vma=False)
    fast = zpp.jit(step, target="cpu", mesh=NODES, updated="i8", **EXACT)
    batches = [batch_of(0), jax.tree.map(jnp.zeros_like, batch_of(0)),
               batch_of(1), batch_of(2), batch_of(3)]
    found = []
    for run in (jax.jit(step), fast):
        state, losses = (weights, kept), []
        for batch in batches:
            state, loss = run(state, batch)
            losses.append(float(loss))
        found.append(losses)
    assert np.isnan(found[0]).tolist() == [False, False, True, False, False]
    np.testing.assert_allclose(*found, rtol=1e-2)


def exchanged(weights, update):
    """Two weights take each other's places."""
    return {"a": gather(slice_of(weights["b"]) + update),
            "b": gather(slice_of(weights["a"]) + update)}


def test_a_weight_in_the_place_of_another_one_stays_exact():
    """It does not differ by an update from what is held."""
    step = jax.shard_map(exchanged, mesh=MESH, in_specs=(P(), P(AXES)), out_specs=P(),
                         check_vma=False)
    weights = dict(zip("ab", first_sgd()[0], strict=True))
    update = array((WIDTH, WIDTH), P(AXES))
    fast = zpp.jit(step, target="cpu", mesh=NODES, updated="i8", **EXACT)
    expected, found = jax.jit(step)(weights, update), fast(weights, update)
    for name in "ab":
        np.testing.assert_array_equal(found[name], expected[name])
    assert all("and the step returns it in place of another one" in entry["reason"]
               for entry in gathers_of(fast.report()))


def of_a_root(weights, update):
    """Small weights matter most."""
    own = slice_of(weights) + update * scatter_of_roots(weights)
    return gather(jnp.maximum(own, 1e-9))


def scatter_of_roots(weights):
    return jax.lax.psum_scatter(jax.lax.rsqrt(weights), AXES, tiled=True)


def in_a_loop(weights, update):
    """Several steps of the optimizer: weights change in between."""
    def one(weights, _):
        return gather(slice_of(weights) + update), None

    return jax.lax.scan(one, weights, None, length=2)[0]


def not_in_place(weights, update):
    """Devices update the slices of their neighbors."""
    index = (jax.lax.axis_index(AXES) + 1) % DEVICES
    own = jax.lax.dynamic_slice_in_dim(
        weights, WIDTH // DEVICES * index, WIDTH // DEVICES)
    return gather(own + update)


def normalized(weights, update):
    """A step that returns something else than what is gathered."""
    whole = gather(slice_of(weights) + update)
    return whole / jnp.max(jnp.abs(whole))


@pytest.mark.parametrize("step, reason", [
    (in_a_loop, "it is in a loop, in which what devices hold changes"),
    (not_in_place, "is not the one that it puts in its place"),
    (normalized, "no result of the step is what it gathers"),
    (of_a_root, "the step divides by elements of argument 0"),
])
def test_what_is_not_certain_stays_exact(step, reason):
    step = jax.shard_map(step, mesh=MESH, in_specs=(P(), P(AXES)),
                         out_specs=P(), check_vma=False)
    arguments = (abs(array((WIDTH, WIDTH))), array((WIDTH, WIDTH), P(AXES)))
    fast = zpp.jit(step, target="cpu", mesh=NODES, updated="i8", **EXACT)
    np.testing.assert_array_equal(
        fast(*arguments), jax.jit(step)(*arguments))
    entry, = gathers_of(fast.report())
    assert not entry["rewritten"]
    assert reason in entry["reason"]
    assert any("of which no update is sent" in str(remark)
               for remark in fast.rewritten(*arguments).remarks)
