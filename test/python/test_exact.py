# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bits, codes, integers and points of differences, which are never rounded; weights
that wait in a loop, an owner's broadcasts, and collectives in branches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import training
import zpp
from jax.sharding import PartitionSpec as P
from training import AXES, NODES, OFF

pytestmark = [pytest.mark.compiler, pytest.mark.filterwarnings("ignore")]

WIDTH, ROWS = 32, 16
WEIGHT, WHOLE = P(AXES), P()
OPTIONS = {"mesh": NODES, "target": "portable"}
#: Weights in int8, whatever the user declares.
ROUNDED = {"weights": "i8", "gradients": "none", "secondary": "none",
           "weights_of": "all"}
#: Options that may not change a step whose only weights are exact.
WAYS = {"off": OFF, "weights": ROUNDED, "hpZ": ROUNDED | {"secondary": "gpu"},
        "differences": ROUNDED | {"weights": "i4:delta", "secondary": "gpu"},
        "frozen": ROUNDED | {"secondary": "gpu", "frozen": "keep"},
        "all": training.ALL_ON}


def gather(shard):
    return jax.lax.all_gather(shard, AXES, axis=0, tiled=True)


def shard(step, ins, outs):
    return jax.shard_map(step, mesh=training.MESH, in_specs=ins, out_specs=outs,
                         check_vma=False)


def put(values, spec=WEIGHT):
    return jax.device_put(values, jax.sharding.NamedSharding(training.MESH, spec))


def rows():
    return put(training.array((ROWS * 8, WIDTH)))


def collectives_of(step, inputs, **options):
    return zpp.rewrite(zpp.export(jax.jit(step), *inputs),
                       **{"mesh": NODES, "target": "portable"} | training.ALL_ON
                       | options).report["collectives"]


def assert_same(step, inputs, ways=WAYS, calls=2):
    """The step is the same to the last bit, in all of `ways`."""
    wanted = jax.jit(step)(*inputs)
    for name in ways:
        fast = zpp.jit(step, **OPTIONS | WAYS[name])
        for _ in range(calls):
            found = fast(*inputs)
        assert training.same_bits(found, wanted), name


# Bits -------------------------------------------------------------------------------

CODES = np.random.default_rng(0).integers(-127, 127, (WIDTH, WIDTH), np.int8)


def as_bits(codes):
    """Bytes, two of which are stored as one bf16."""
    return jax.lax.bitcast_convert_type(
        jnp.asarray(codes).reshape(*codes.shape[:-1], -1, 2), jnp.bfloat16)


def as_bytes(bits):
    return jax.lax.bitcast_convert_type(bits, jnp.int8).reshape(WIDTH, WIDTH)


def through_a_loop(base):
    def body(whole, shard):
        return jax.lax.dynamic_update_slice_in_dim(
            whole, gather(shard)[None], 0, 0), None
    return as_bytes(jax.lax.scan(body, jnp.zeros((1, WIDTH, WIDTH // 2), base.dtype),
                                 base[None])[0][0])


def through_an_owner(base):
    rows = WIDTH // 8
    me = jax.lax.axis_index(AXES)
    placed = jax.lax.dynamic_update_slice_in_dim(
        jnp.zeros((WIDTH, WIDTH // 2), base.dtype), base, me * rows, 0)
    return as_bytes(jax.lax.psum(placed, AXES))


def through_hops(base):
    inner = jax.lax.all_gather(base, "gpu", axis=0, tiled=True)
    inner, _ = jax.lax.optimization_barrier((inner, base))
    return as_bytes(jax.lax.all_gather(inner, "node", axis=0, tiled=True))


def through_a_sum(base):
    """Chosen among two."""
    both = jnp.stack([gather(base), gather(base) + 1])
    return as_bytes(jnp.sum(both * jnp.array([1, 0], base.dtype)[:, None, None], 0))


FORMS = {
    "plain": lambda base: as_bytes(gather(base)),
    "in f32": lambda base: as_bytes(gather(base.astype(jnp.float32)).astype(
        jnp.bfloat16)),
    "joined": lambda base: as_bytes(gather(
        jnp.concatenate([base, jnp.zeros_like(base)], 1))[:, :WIDTH // 2]),
    "transposed": lambda base: as_bytes(jax.lax.all_gather(
        base.T, AXES, axis=1, tiled=True).T),
    "chosen": lambda base: as_bytes(jnp.where(
        jnp.arange(WIDTH)[:, None] < 99, gather(base), 0)),
    "loop": through_a_loop, "owner": through_an_owner, "hops": through_hops,
    "negated": lambda base: as_bytes(-gather(base)),
    "clipped": lambda base: as_bytes(jnp.clip(gather(base), -1e30, 1e30)),
    "sum": through_a_sum,
    "product": lambda base: as_bytes(jnp.eye(WIDTH, dtype=base.dtype) @ gather(base)),
    "called": lambda base: jax.jit(as_bytes)(jax.jit(gather)(base)),
}


def quantized_step(read, base_of=as_bits):
    """The step of a bias behind a base, both as they come and a base of bits."""
    def step(bias, base, x):
        @jax.checkpoint
        def layer(x):
            return jnp.tanh(x @ (read(base).astype(jnp.float32) / 127 / 8))

        def loss(bias):
            return jnp.mean((layer(layer(x) + bias) - x) ** 2)

        value, gradient = jax.value_and_grad(loss)(bias)
        return (bias - 0.1 * jax.lax.pmean(gradient, AXES), base), jax.lax.pmean(
            value, AXES)

    return shard(step, (WHOLE, WEIGHT, WEIGHT), ((WHOLE, WEIGHT), WHOLE)), (
        put(jnp.zeros(WIDTH), WHOLE), put(base_of(CODES)), rows())


@pytest.mark.parametrize("form", FORMS)
def test_bits_are_not_rounded(form):
    ways = WAYS if form == "plain" else ("weights", "frozen")
    # Codes that are no NaNs as numbers, which arithmetic would spread.
    base_of = as_bits if form not in ("sum", "product") else (
        lambda codes: as_bits(codes & 63))
    assert_same(*quantized_step(FORMS[form], base_of), ways=ways)


def test_bits_of_the_step_are_not_rounded():
    """Integers that are viewed as floats for the gather alone."""
    assert_same(*quantized_step(
        lambda base: as_bytes(gather(as_bits(base))), base_of=lambda codes: codes),
        ways=("weights", "frozen"))


def test_codes_are_not_rounded():
    """Whole numbers up to 510, which are read as integers."""
    assert_same(*quantized_step(
        lambda base: gather(base).astype(jnp.int32) - 255,
        base_of=lambda codes: 2 * (codes.astype(np.float32) + 128) + 1),
        ways=("weights", "frozen"))


def test_bits_get_a_secondary_partition():
    step, inputs = quantized_step(FORMS["plain"])
    gathers = [each for each in collectives_of(step, inputs)
               if each["kind"] == "all_gather"]
    assert {each["floor"] for each in gathers} == {"none"}
    assert any("secondary" in each["gets"] for each in gathers)
    step, inputs = quantized_step(FORMS["plain"])
    kept = collectives_of(step, inputs, frozen="keep")
    assert all(each["after"]["node"] == 0 for each in kept
               if each["kind"] == "all_gather")


def test_why_bits_are_left_alone():
    step, inputs = quantized_step(FORMS["plain"])
    reasons = {each["reason"] for each in collectives_of(
        step, inputs, secondary="none") if each["kind"] == "all_gather"}
    assert reasons == {"its elements are bits, not numbers: the step reads them as i8 "
                       "(R17)"}


# Integers ---------------------------------------------------------------------------


def nibbles(packed):
    return jnp.stack([packed & 15, packed >> 4], -1).reshape(WIDTH, WIDTH) - 8.0


def normal_float(packed):
    """As QLoRA has them: a table of sixteen numbers."""
    table = np.linspace(-1, 1, 16, dtype=np.float32) ** 3 * 127
    return jnp.asarray(table)[(nibbles(packed) + 8).astype(jnp.int32)]


@pytest.mark.parametrize("base_of, read", [
    (lambda codes: codes, gather),
    (lambda codes: (codes[:, ::2] & 127).astype(np.uint8),
     lambda base: normal_float(gather(base))),
    (lambda codes: (codes[:, ::2] & 127).astype(np.uint8),
     lambda base: nibbles(gather(base))),
    (lambda codes: np.ascontiguousarray(codes).view(np.uint32),
     lambda base: as_bytes(gather(base)))], ids=["i8", "nf4", "u4", "u32"])
def test_a_base_of_integers_is_kept(base_of, read):
    step, inputs = quantized_step(read, base_of)
    gathers = [each for each in collectives_of(step, inputs, frozen="keep")
               if each["kind"] == "all_gather"]
    assert {(each["rule"], each["after"]["node"]) for each in gathers} == {("R16", 0)}
    assert_same(step, inputs, ways=("weights", "hpZ", "frozen"))


# Weights that divide ----------------------------------------------------------------


@pytest.mark.parametrize("use, divides", [
    (lambda scales, x: x / scales, True),
    (lambda scales, x: scales * jnp.round(x / jnp.maximum(2 * scales, 1e-9)), True),
    (lambda scales, x: x * jax.lax.rsqrt(scales**2), True),
    (lambda scales, x: x * jnp.log(scales + 1e-9), True),
    (lambda scales, x: x / scales[jnp.argsort(x[0])], True),
    (lambda scales, x: x / jnp.exp(scales), False),
    (lambda scales, x: x * scales / jnp.sqrt(jnp.sum(scales**2)), False),
], ids=["quotient", "codes", "root", "logarithm", "looked up", "exponent", "norm"])
def test_weights_that_divide_are_not_rounded(use, divides):
    """Beside a scale of 1, int8 makes one of 1e-5 zero."""
    count = 8 * 256

    def step(weights, x):
        def loss(weights):
            scales, first, last = map(gather, weights)
            return jnp.mean((jnp.tanh(use(scales, x @ first)) @ last - x) ** 2)

        value, gradients = jax.value_and_grad(loss)(weights)
        return [w - 1e-9 * g for w, g in zip(weights, gradients, strict=True)
                ], jax.lax.pmean(value, AXES)

    scales = (10.0 ** np.random.default_rng(0).uniform(-5, 0, count)).astype(np.float32)
    weights = [put(each) for each in (scales, training.array((WIDTH, count)),
                                      training.array((count, WIDTH)))]
    sharded = shard(step, (WEIGHT, WEIGHT), (WEIGHT, WHOLE))
    exact = [each["floor"] for each in collectives_of(
        sharded, (weights, rows()), secondary="none", gradients="none", weights="i8")
        if each["kind"] == "all_gather"]
    assert exact.count("none") == divides, exact
    fast = zpp.jit(sharded, **OPTIONS | ROUNDED | {"weights_of": None})
    for _ in range(2):
        found = fast(weights, rows())
    assert np.isclose(found[1], jax.jit(sharded)(weights, rows())[1], rtol=0.05)


def test_a_factor_of_a_weight_does_not_divide():
    """Adam divides by what it makes of gradients, of which another weight is a
    factor."""
    def step(weights, squares, x):
        gradients = jax.grad(lambda weights: jnp.mean(jnp.tanh(
            x @ (gather(weights[0]) * gather(weights[1]))) ** 2))(weights)
        squares = [0.9 * s + g * g for s, g in zip(squares, gradients, strict=True)]
        return [w - 0.01 * g / (jnp.sqrt(s) + 1e-6) for w, g, s in zip(
            weights, gradients, squares, strict=True)], squares

    pair = [put(training.array((WIDTH, WIDTH)))] * 2
    found = collectives_of(shard(step, (WEIGHT,) * 3, (WEIGHT,) * 2),
                           (pair, pair, rows()), tuning={"block": 32})
    assert {(each["rewritten"], each["floor"]) for each in found
            if each["kind"] == "all_gather"} == {(True, "")}


# Points of a difference -------------------------------------------------------------


@pytest.mark.parametrize("is_random, is_stacked", [
    (False, False), (True, False), (False, True)], ids=["fixed", "random", "vmap"])
def test_points_of_a_difference_are_not_rounded(is_random, is_stacked):
    """The Hessian's diagonal by differences, as AdaHessian has it."""
    def step(weights, curvatures, x, seed):
        def slopes(weights):
            def loss(weights):
                first, second = map(gather, weights)
                return jnp.mean((jnp.tanh(x @ first) @ second - jnp.sin(3 * x)) ** 2)
            return jax.tree.map(lambda each: each / 8, jax.grad(loss)(weights))

        key = jax.random.fold_in(jax.random.key(seed[0]), jax.lax.axis_index(AXES))
        signs = [jax.random.rademacher(key, w.shape, jnp.float32) if is_random else
                 jnp.where(jnp.sin(1e4 * w) > 0, 1.0, -1.0) for w in weights]
        beside = [w + 1e-3 * s for w, s in zip(weights, signs, strict=True)]
        if is_stacked:
            here, there = zip(*jax.vmap(slopes)(
                jax.tree.map(lambda *points: jnp.stack(points), weights, beside)),
                strict=True)
        else:
            here, there = slopes(weights), slopes(beside)
        curvatures = [0.9 * c + 0.1 * s * (b - a) / 1e-3 for c, s, a, b in zip(
            curvatures, signs, here, there, strict=True)]
        return [w - 0.1 * a / (jnp.abs(c) + 0.1) for w, a, c in zip(
            weights, here, curvatures, strict=True)], curvatures

    weights = [put(training.array((WIDTH, WIDTH)))] * 2
    assert_same(shard(step, (WEIGHT, WEIGHT, WEIGHT, WHOLE), (WEIGHT, WEIGHT)),
                (weights, [put(jnp.zeros((WIDTH, WIDTH)))] * 2, rows(),
                 jnp.zeros(1, np.uint32)), ways=("weights", "all"), calls=1)


def test_weights_of_two_tasks_are_rounded():
    """Of two gradients at one point one is made orthogonal to the other."""
    def step(weight, x):
        def slope(target):
            return jax.grad(lambda weight: jnp.mean(
                (jnp.tanh(x @ gather(weight)) - target) ** 2))(weight) / 8

        first, second = slope(jnp.sin(x)), slope(jnp.cos(x))
        part = jax.lax.psum(jnp.vdot(first, second), AXES)
        return weight - 0.1 * (first - part * second)

    found = collectives_of(shard(step, (WEIGHT, WEIGHT), WEIGHT),
                           (put(training.array((WIDTH, WIDTH))), rows()))
    assert {(each["rewritten"], each["floor"]) for each in found
            if each["kind"] == "all_gather"} == {(True, "")}


@pytest.mark.parametrize("reach", [1e-3, 0])
def test_numbers_of_gradients_at_two_points(reach):
    """The curvature along a gradient, by two products of gradients. At one point it is
    the noise of two halves of a batch."""
    def step(weight, curvature, x):
        def slope(weight, x):
            return jax.grad(lambda weight: jnp.mean(
                (jnp.tanh(x @ gather(weight)) - jnp.sin(x)) ** 2))(weight) / 8

        def product(a, b):
            return jax.lax.psum(jnp.vdot(a, b), AXES)

        here = slope(weight, x[::2])
        there = slope(weight + reach * here, x[::2]) if reach else slope(weight, x[1::2])
        change = (product(here, there) - product(here, here)) / (reach or 1)
        return weight - 0.1 * here / (1 + jnp.abs(change)), 0 * curvature + change

    inputs = (put(training.array((WIDTH, WIDTH))), put(jnp.zeros(4), WHOLE), rows())
    sharded = shard(step, (WEIGHT, WHOLE, WEIGHT), (WEIGHT, WHOLE))
    if reach:
        assert_same(sharded, inputs, ways=("weights", "all"), calls=1)
    found = [each for each in collectives_of(sharded, inputs, tuning={"block": 32})
             if each["kind"] != "all_reduce"]
    assert {each["floor"] == "none" or not each["rewritten"] for each in found} == {
        bool(reach)}


def test_losses_that_are_compared():
    """The smallest step that makes the loss smaller is taken."""
    def step(weight, x):
        def loss(weight):
            return jnp.mean((jnp.tanh(x @ gather(weight)) - jnp.sin(x)) ** 2)

        least, slope = jax.value_and_grad(loss)(weight)
        best, least = weight, jax.lax.pmean(least, AXES)
        for rate in (1e-5, 1e-4, 1e-3):
            moved = weight - rate * slope
            found = jax.lax.pmean(loss(moved), AXES)
            best = jnp.where(found < least, moved, best)
            least = jnp.minimum(found, least)
        return best, least

    assert_same(shard(step, (WEIGHT, WEIGHT), (WEIGHT, WHOLE)),
                (put(training.array((WIDTH, WIDTH))), rows()),
                ways=("weights", "differences"), calls=1)


def test_an_average_of_negated_momenta_is_no_difference():
    """As `optax.ema` behind `optax.sgd` has it."""
    def step(weight, momentum, average, x):
        slope = jax.grad(lambda weight: jnp.mean(
            (jnp.tanh(x @ gather(weight)) - jnp.sin(x)) ** 2))(weight) / 8
        momentum = 0.9 * momentum + slope
        average = 0.9 * average - 0.01 * momentum
        return weight + average, momentum, average

    zeros = put(jnp.zeros((WIDTH, WIDTH)))
    found = collectives_of(shard(step, (WEIGHT,) * 4, (WEIGHT,) * 3), (
        put(training.array((WIDTH, WIDTH))), zeros, zeros, rows()))
    assert {each["rewritten"] for each in found} == {True}


# Weights that wait ------------------------------------------------------------------

LAYERS = 4


def ahead(weights, x, *, count=1, body=lambda step: step, order=lambda n, h: (n, h)):
    """A scan that gathers the weights of `count` layers ahead."""
    @body
    def step(carry, following):
        hidden, first, *rest = carry
        following, hidden = order(following, hidden)
        return (jnp.tanh(hidden @ first), *rest, gather(following)), None

    first = [gather(weights[layer]) for layer in range(count)]
    (hidden, *_), _ = jax.lax.scan(step, (x, *first), jnp.roll(weights, -count, 0))
    return hidden


def last_behind(weights, x):
    def step(carry, following):
        hidden, whole = carry
        return (jnp.tanh(hidden @ whole), gather(following)), None

    (hidden, whole), _ = jax.lax.scan(step, (x, gather(weights[0])), weights[1:])
    return jnp.tanh(hidden @ whole)


SCANS = {"one": ahead, "last behind": last_behind,
         "two": lambda weights, x: ahead(weights, x, count=2),
         "checkpoint": lambda weights, x: ahead(weights, x, body=jax.checkpoint),
         "barrier": lambda weights, x: ahead(
             weights, x, order=lambda *each: jax.lax.optimization_barrier(each))}


@pytest.mark.parametrize("form", SCANS)
def test_a_scan_may_prefetch_its_weights(form):
    def step(weights, x):
        value, gradient = jax.value_and_grad(lambda weights: jnp.mean(
            (SCANS[form](weights, x) - jnp.sin(3 * x)) ** 2))(weights)
        return weights - 0.1 * gradient / 8, jax.lax.pmean(value, AXES)

    stack = P(None, AXES)
    sharded = shard(step, (stack, WEIGHT), (stack, WHOLE))
    inputs = put(training.array((LAYERS, WIDTH, WIDTH)), stack), rows()
    found = collectives_of(sharded, inputs, tuning={"block": 32})
    assert all(each["rewritten"] for each in found if each["weight_bytes"])
    # Int8 has a quarter of f32.
    for each in found:
        if each["role"] == "weight":
            assert each["after"]["node"] <= 0.32 * each["before"]["node"] or (
                "secondary" in each["gets"])
    loss = jax.jit(sharded)(*inputs)[1]
    fast = zpp.jit(sharded, **OPTIONS | training.ALL_ON)(*inputs)[1]
    assert np.isclose(loss, fast, rtol=0.02)


# Stacks -----------------------------------------------------------------------------


def test_a_gradient_has_the_blocks_of_its_weight():
    """A stack of gains has the shape of a matrix."""
    def step(gains, matrix, x):
        def loss(gains, matrix):
            hidden, _ = jax.lax.scan(lambda hidden, gain: (jnp.tanh(
                hidden * gain), None), x, gather(gains))
            return jnp.mean((hidden @ gather(matrix).T) ** 2)

        slopes = jax.grad(loss, (0, 1))(gains, matrix)
        return [w - 0.1 * s for w, s in zip((gains, matrix), slopes, strict=True)]

    weight = put(training.array((WIDTH, 24)))
    found = collectives_of(shard(step, (WEIGHT,) * 3, [WEIGHT] * 2), (
        weight, weight, put(training.array((ROWS * 8, 24)))), tuning={"block": 32})
    assert [(each["kind"], "R18" in each["reason"]) for each in found] == [
        ("all_gather", True), ("all_gather", False), ("reduce_scatter", False),
        ("reduce_scatter", True)]


# Broadcasts -------------------------------------------------------------------------


def by_choice(me, owner, value):
    return jnp.where(me == owner, value(), 0)


def by_branch(me, owner, value):
    return jax.lax.cond(me == owner, value, lambda: jnp.zeros((WIDTH, WIDTH)))


def by_factor(me, owner, value):
    return value() * (me == owner)


@pytest.mark.parametrize("of", [by_choice, by_branch, by_factor])
@pytest.mark.parametrize("is_replicated", [False, True])
def test_an_owner_sends_what_it_makes_of_gradients(of, is_replicated):
    def whole(weight):
        return weight if is_replicated else gather(weight)

    def step(weights, x):
        gradients = jax.grad(lambda weights: jnp.mean((jnp.tanh(
            x @ whole(weights[0])) @ whole(weights[1]) - jnp.sin(x)) ** 2))(weights)
        me = jax.lax.axis_index(AXES)
        changed = []
        for owner, (weight, gradient) in enumerate(zip(weights, gradients,
                                                       strict=True)):
            gradient = (jax.lax.pmean(gradient, AXES) if is_replicated
                        else gather(gradient / 8))
            update = jax.lax.psum(of(
                me, owner, lambda g=gradient: g @ (g.T @ g) / jnp.sum(g**2)), AXES)
            if not is_replicated:
                update = jax.lax.dynamic_slice_in_dim(
                    update, me * len(weight), len(weight))
            changed.append(weight - update)
        return changed

    spec = WHOLE if is_replicated else WEIGHT
    found = collectives_of(
        shard(step, (spec, WEIGHT), spec),
        ([put(training.array((WIDTH, WIDTH)), spec)] * 2, rows()))
    # As many gradients as owners' sums, of which none is rounded.
    sums = [(each["rule"], each["rewritten"]) for each in found
            if "reduce" in each["kind"]]
    assert sorted(sums) == [("R1", False)] * 2 + [("R10", True)] * 2


# Branches ---------------------------------------------------------------------------


def test_what_branches_send_counts_apart():
    def step(weight, outer, x, count):
        gradient = jax.grad(lambda weight: jnp.mean((x @ gather(weight)) ** 2))(weight)
        outer = jax.lax.cond(count[0] % 10 == 0,
                             lambda: jax.lax.pmean(outer, "node"), lambda: outer)
        return weight - 0.1 * gradient, outer

    weight = put(training.array((WIDTH, WIDTH)))
    result = zpp.rewrite(zpp.export(
        jax.jit(shard(step, (WEIGHT, WEIGHT, WEIGHT, WHOLE), (WEIGHT, WEIGHT))),
        weight, weight, rows(), jnp.zeros(1, np.int32)), mesh=NODES, target="portable")
    found, total = result.report["collectives"], result.report["total"]
    assert [each["kind"] for each in found if each["conditional"]] == ["all_reduce"]
    size = 4 * WIDTH * WIDTH // 8
    assert total["branches_before"] == {"node": size, "gpu": 0}
    assert total["before"]["node"] == sum(
        each["before"]["node"] for each in found if not each["conditional"])
