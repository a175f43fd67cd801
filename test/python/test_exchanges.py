# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Experts with `exchanges`: which all-to-alls are rounded, and what that does to a
step and to a training. All else in a step keeps its bits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from program_parts import sent
from training import AXES, MESH, NODES, OFF, same_bits

pytestmark = [pytest.mark.compiler,
              pytest.mark.filterwarnings("ignore:.*of the bytes")]

WIDTH, EXPERTS, DEVICES, TOKENS = 64, 8, 8, 16
#: Fewer rows than a popular expert is sent: some tokens are dropped.
ROOM = 5
OWN = NamedSharding(MESH, P(AXES))


def gather(x, axes=AXES, dim=0):
    return jax.lax.all_gather(x, axes, axis=dim, tiled=True)


def exchange(x, split, concat, axes=AXES):
    return jax.lax.all_to_all(x, axes, split, concat, tiled=True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def rounded_exchange(x, split, concat):
    """The same with `exchanges=i8`: rows are rounded on both ways, each by itself."""
    return exchange(_arrived(x), split, concat)


def _arrived(x):
    return sent(x.astype(jnp.float32), "i8", WIDTH).astype(x.dtype)


rounded_exchange.defvjp(
    lambda x, split, concat: (rounded_exchange(x, split, concat), None),
    lambda split, concat, _, dy: (
        exchange(_arrived(dy), concat, split),))


# Layers of experts ------------------------------------------------------------

def route(x, router):
    """The experts of each token, their weights, and places among their rows."""
    gates, experts = jax.lax.top_k(jax.nn.softmax(x @ router), 2)
    chosen = jax.nn.one_hot(experts.reshape(-1), EXPERTS, dtype=jnp.int32)
    places = ((jnp.cumsum(chosen, 0) - 1) * chosen).sum(-1)
    return gates, experts.reshape(-1), places, places < ROOM


def experts_of(rows, layer):
    hidden = jax.nn.gelu(jnp.einsum("...erd,edh->...erh", rows, layer["up"]))
    return jnp.einsum("...erh,ehd->...erd", hidden, layer["down"])


def by_product(x, layer, router, exchange=exchange):
    """With one-hot masks, as GShard has them."""
    gates, experts, places, fits = route(x, router)
    mask = (jax.nn.one_hot(experts, EXPERTS)[:, :, None]
            * jax.nn.one_hot(jnp.where(fits, places, -1), ROOM)[:, None])
    mask = mask.reshape(len(x), 2, EXPERTS, ROOM)
    rows = exchange(jnp.einsum("tker,td->erd", mask, x), 0, 1)
    rows = exchange(experts_of(rows, layer), 1, 0)
    return jnp.einsum("tker,erd->td", gates[:, :, None, None] * mask, rows)


def by_place(x, layer, router, exchange=exchange):
    """With scatters and lookups of rows. Dims of devices are apart."""
    gates, experts, places, fits = route(x, router)
    slots = jnp.where(fits, experts * ROOM + places, EXPERTS * ROOM)
    rows = jnp.zeros((EXPERTS * ROOM, WIDTH), x.dtype).at[slots].set(
        jnp.repeat(x, 2, 0), mode="drop")
    rows = exchange(rows.reshape(DEVICES, -1, ROOM, WIDTH), 0, 0)
    rows = experts_of(rows.swapaxes(0, 1).reshape(1, -1, WIDTH), layer)
    rows = exchange(rows.reshape(-1, DEVICES, ROOM, WIDTH).swapaxes(0, 1), 0, 0)
    found = rows.reshape(-1, WIDTH)[jnp.where(fits, slots, 0)] * fits[:, None]
    return (found.reshape(len(x), 2, WIDTH) * gates[..., None]).sum(1)


def hop_by_hop(x, layer, router, exchange=None):
    """First over the nodes, and back over them last."""
    def both(x, split, concat):
        if split == 0:
            x = x.reshape(2, 4, *x.shape[1:])
            x = jax.lax.all_to_all(x, "node", 0, 0)
            return jax.lax.all_to_all(x, "gpu", 1, 1).reshape(1, -1, WIDTH)
        x = x.reshape(2, 4, -1, WIDTH)
        x = jax.lax.all_to_all(x, "gpu", 1, 1)
        return jax.lax.all_to_all(x, "node", 0, 0).reshape(DEVICES, -1, WIDTH)

    return by_product(x, layer, router, exchange or both)


# Steps ------------------------------------------------------------------------

def loss_of(weights, batch, layer_of):
    x, y = batch
    x = jnp.tanh(x @ gather(weights["in"]))
    for layer in weights["layers"]:
        x = x + layer_of(x, layer, gather(layer["router"]))
    return jnp.mean((x @ gather(weights["out"]) - y)**2)


def in_scan(weights, batch, layer_of):
    """Over layers, which are computed again in the backward pass."""
    @jax.checkpoint
    def body(x, layer):
        return x + layer_of(x, layer, gather(layer["router"])), None

    x, y = batch
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *weights["layers"])
    x, _ = jax.lax.scan(body, jnp.tanh(x @ gather(weights["in"])), stack)
    return jnp.mean((x @ gather(weights["out"]) - y)**2)


def in_bf16(weights, batch, layer_of):
    """In mixed precision."""
    return loss_of(jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights),
                   tuple(each.astype(jnp.bfloat16) for each in batch), layer_of)


def step_of(layer_of, loss_of=loss_of, parts=1, rate=0.1):
    """A step (weights, batch) -> (weights, loss) of a device, with micro-batches."""
    def step(weights, batch):
        def add(total, part):
            loss, gradients = jax.value_and_grad(loss_of)(weights, part, layer_of)
            return jax.tree.map(jnp.add, total, gradients), loss

        parts_of = jax.tree.map(lambda x: x.reshape(parts, -1, WIDTH), batch)
        gradients, losses = jax.lax.scan(
            add, jax.tree.map(jnp.zeros_like, weights), parts_of)
        return (jax.tree.map(lambda w, g: w - rate / DEVICES / parts * g, weights,
                             gradients),
                jax.lax.pmean(losses.mean().astype(jnp.float32), AXES))

    def once(weights, batch):
        loss, gradients = jax.value_and_grad(loss_of)(weights, batch, layer_of)
        return (jax.tree.map(lambda w, g: w - rate / DEVICES * g.astype(w.dtype),
                             weights, gradients),
                jax.lax.pmean(loss.astype(jnp.float32), AXES))

    return step if parts > 1 else once


def shard_map(step, specs=P(AXES)):
    return jax.jit(jax.shard_map(step, mesh=MESH, in_specs=(specs, P(AXES)),
                                 out_specs=(specs, P()), check_vma=False))


def first(layers=1, seed=0):
    rng = np.random.default_rng(seed)

    def weight(*shape):
        return jax.device_put((rng.standard_normal(shape)
                               / np.sqrt(shape[-2])).astype(np.float32), OWN)

    return {"in": weight(WIDTH, WIDTH), "out": weight(WIDTH, WIDTH),
            "layers": [{"router": weight(WIDTH, EXPERTS),
                        "up": weight(EXPERTS, WIDTH, WIDTH),
                        "down": weight(EXPERTS, WIDTH, WIDTH)}
                       for _ in range(layers)]}


def batch_of(seed=0):
    x = np.random.default_rng(seed).standard_normal(
        (DEVICES * TOKENS, WIDTH)).astype(np.float32)
    return tuple(jax.device_put(each, OWN) for each in (x, np.sin(2 * x)))


def rewritten(step, **options):
    """Nothing else is rounded."""
    return zpp.jit(step, target="portable", mesh=NODES, **{**OFF, **options})


def exchanges_of(report):
    return [entry for entry in report["collectives"] if entry["kind"] == "all_to_all"]


def distance(left, right):
    return np.sqrt(sum(np.sum(np.subtract(a, b, dtype=np.float64)**2) for a, b in
                       zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)))


# Tests ------------------------------------------------------------------------

@pytest.mark.parametrize("layer_of, loss_of, parts", [
    (hop_by_hop, loss_of, 1), (by_place, loss_of, 2), (by_product, in_scan, 1),
    (by_place, in_bf16, 1),
], ids=["hops", "micro-batches", "scan", "bf16"])
def test_rows_are_rounded_and_nothing_else(layer_of, loss_of, parts):
    """All leaves are those of a step that rounds the rows of both ways itself: the
    backward pass is straight through."""
    weights, batch = first(2 if loss_of is in_scan else 1), batch_of()
    step = shard_map(step_of(layer_of, loss_of, parts))
    expected, _ = step(weights, batch)
    rounded, _ = shard_map(step_of(functools.partial(
        layer_of, exchange=rounded_exchange), loss_of, parts))(weights, batch)
    fast = rewritten(step, exchanges="i8")
    found, _ = fast(weights, batch)
    for before, right, other, own in zip(*map(jax.tree.leaves, (
            weights, expected, rounded, found)), strict=True):
        error = distance(right, other)
        assert 0 < error < 0.03 * distance(before, right)
        # XLA rounds to bf16 in other places where it computes the format, too.
        assert distance(own, other) < (0.5 if loss_of is in_bf16 else 0.1) * error
    entries = exchanges_of(fast.report())
    if layer_of is hop_by_hop:
        within = [entry for entry in entries if not entry["before"]["node"]]
        assert {entry["reason"] for entry in within} == {
            "its devices share a node, and nothing of it crosses slower links"}
        entries = [entry for entry in entries if entry not in within]
    # A scan computes dispatches again.
    assert len(entries) == (6 if loss_of is in_scan else 4)
    assert {(entry["role"], entry["rule"], entry["rewritten"]) for entry in entries
            } == {("exchange", "R20", True)}
    most = 0.53 if loss_of is in_bf16 else 0.265
    assert all(entry["after"]["node"] <= most * entry["before"]["node"]
               for entry in entries)
    assert not any(entry["rewritten"] for entry in fast.report()["collectives"]
                   if entry["role"] != "exchange")


def constrained(layer_of):
    """With shardings: XLA's partitioner exchanges rows, and for one-hot masks some of
    these instead."""
    def to(*axes):
        return lambda x: jax.lax.with_sharding_constraint(
            x, NamedSharding(MESH, P(*axes)))

    own, second = to(AXES), to(None, AXES)

    def by_product(x, layer):
        def masks(x):
            gates, experts, places, fits = route(x, layer["router"])
            mask = (jax.nn.one_hot(experts, EXPERTS)[:, :, None]
                    * jax.nn.one_hot(jnp.where(fits, places, -1), ROOM)[:, None])
            mask = mask.reshape(TOKENS, 2, EXPERTS, ROOM)
            return mask.sum(1), (gates[:, :, None, None] * mask).sum(1)

        mask, gated = jax.vmap(masks)(x)
        rows = own(jnp.einsum("gter,gtd->egrd", mask, x))
        rows = second(own(jax.vmap(expert)(rows, layer["up"], layer["down"])))
        return own(jnp.einsum("gter,egrd->gtd", gated, rows))

    def by_place(x, layer):
        def dispatch(x):
            gates, experts, places, fits = route(x, layer["router"])
            slots = jnp.where(fits, experts * ROOM + places, EXPERTS * ROOM)
            return jnp.zeros((EXPERTS * ROOM, WIDTH)).at[slots].set(
                jnp.repeat(x, 2, 0), mode="drop").reshape(EXPERTS, ROOM, WIDTH), (
                gates, jnp.where(fits, slots, 0), fits)

        def combine(rows, taken):
            gates, slots, fits = taken
            found = rows.reshape(-1, WIDTH)[slots] * fits[:, None]
            return (found.reshape(TOKENS, 2, WIDTH) * gates[..., None]).sum(1)

        rows, taken = jax.vmap(dispatch)(x)
        rows = own(second(own(rows)).swapaxes(0, 1))
        rows = own(jax.vmap(expert)(rows, layer["up"], layer["down"]))
        return own(jax.vmap(combine)(second(rows).swapaxes(0, 1), taken))

    def expert(rows, up, down):
        return jax.nn.gelu(rows @ up) @ down

    layer_of = {"product": by_product, "place": by_place}[layer_of]

    def loss_of(weights, batch):
        x, y = (own(each.reshape(DEVICES, TOKENS, WIDTH)) for each in batch)
        x = jnp.tanh(x @ weights["in"])
        for layer in weights["layers"]:
            x = own(x + layer_of(x, layer))
        return jnp.mean((x @ weights["out"] - y)**2)

    def step(weights, batch):
        loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
        return jax.tree.map(lambda w, g: w - 0.1 * own(g), weights, gradients), loss

    return jax.jit(step, out_shardings=(jax.tree.map(lambda w: w.sharding, first()),
                                        NamedSharding(MESH, P())))


@pytest.mark.parametrize("form, masks", [("product", 2), ("place", 0)])
def test_what_the_partitioner_makes(form, masks):
    step, weights, batch = constrained(form), first(), batch_of()
    expected = step(weights, batch)
    off = rewritten(step)
    assert same_bits(off(weights, batch), expected)
    assert {entry["reason"] for entry in exchanges_of(off.report())
            if entry["role"] == "exchange"} == {
        "it exchanges rows with experts; exchanges=i8 rounds what is sent (R20)"}
    fast = rewritten(step, exchanges="i8")
    found = fast(weights, batch)
    for before, right, rounded in zip(*map(jax.tree.leaves, (
            weights, expected[0], found[0])), strict=True):
        assert 0 < distance(right, rounded) < 0.03 * distance(before, right)
    roles = [entry["role"] for entry in exchanges_of(fast.report())]
    assert roles.count("exchange") >= 2 and roles.count("other") == masks


def test_with_everything_else():
    """The runtime measures the errors, and a guard leaves exact what is above its
    bound."""
    step, weights, batch = shard_map(step_of(by_product)), first(), batch_of()
    fast = zpp.jit(step, target="cpu", mesh=NODES, exchanges="i8", weights="i8",
                   gradients="i8:i4")
    fast.metrics()
    fast(weights, batch)
    assert 0.001 < fast.metrics()["error/exchanges"] < 0.01
    assert {entry["role"] for entry in fast.report()["collectives"]
            if entry["rewritten"]} == {"weight", "gradient", "exchange"}
    guarded = zpp.jit(step, target="cpu", mesh=NODES, exchanges="i8",
                      guard=zpp.Guard(exchanges=1e-4, every=1), **OFF)
    with pytest.warns(UserWarning, match="guard: i8 has a relative rounding error of "
                      r"0\.00\d+, above the bound of 0.0001, in exchange #"):
        for _ in range(2):
            guarded(weights, batch)
            guarded.metrics()
    assert same_bits(guarded(weights, batch), step(weights, batch))


def test_the_loss_of_a_training():
    """Three orders of the data."""
    exact = shard_map(step_of(by_product, rate=0.3))
    fast = rewritten(exact, exchanges="i8")

    def train(step, order):
        weights, losses = first(), []
        for index in range(120):
            weights, loss = step(weights, batch_of(1000 * order + index))
            losses.append(float(loss))
        assert np.mean(losses[-20:]) < 0.6 * losses[0]
        return np.mean(losses[-20:])

    for order in range(3):
        right, rounded = train(exact, order), train(fast, order)
        print(order, right, rounded)
        assert abs(rounded - right) < 0.005 * right


# What is left as it is: what stands between the first and the last weight of a
# device, by (x, weights of experts, another input).

def rows_of(x):
    """A row for each expert, of a device."""
    return x[:EXPERTS, None]


def back(x, rows):
    return x.at[:EXPERTS].add(exchange(rows, 1, 0)[:, 0])


def probabilities(x, layer, other):
    rows = exchange(rows_of(jax.nn.softmax(x @ gather(layer["router"]))), 0, 1)
    return x * rows.mean()


def distributions(x, layer, other):
    """Probabilities that experts contract."""
    return back(x, exchange(rows_of(jax.nn.softmax(x)), 0, 1) @ layer["up"])


def made_gates(x, layer, other):
    """Probabilities that experts have made."""
    gates = jax.nn.sigmoid(exchange(rows_of(x), 0, 1) @ layer["up"])
    return x.at[:EXPERTS].multiply(exchange(gates, 1, 0)[:, 0])


def masks(x, layer, other):
    return x * exchange(jnp.where(rows_of(x) > 0, 1.0, 0.0), 0, 1).mean()


def one_hot(x, layer, other):
    """Numbers that experts look up by a product."""
    ones = jax.nn.one_hot(jnp.argmax(x, -1), WIDTH)
    return back(x, exchange(rows_of(ones), 0, 1) @ layer["up"])


def numbers(x, layer, other):
    """Positions, as floating-point numbers."""
    places = exchange(jnp.floor(64 * rows_of(x)), 0, 1)
    return x + layer["up"][0][places[0, 0].astype(jnp.int32) % WIDTH].mean(0)


def beside_gates(x, layer, other):
    """Gates in the last elements of each row."""
    rows = exchange(jnp.concatenate([rows_of(x), rows_of(jnp.cos(x))], -1), 0, 1)
    return back(x, (rows[..., :WIDTH] @ layer["up"]) * rows[..., WIDTH:])


def bits(x, layer, other):
    rows = jax.lax.bitcast_convert_type(rows_of(x), jnp.int32) ^ 1
    rows = exchange(jax.lax.bitcast_convert_type(rows, jnp.float32), 0, 1)
    return back(x, rows @ layer["up"])


def chosen(x, layer, other):
    """An expert ignores small elements."""
    rows = exchange(rows_of(x), 0, 1)
    return back(x, jnp.where(jnp.abs(rows) > 0.1, rows, 0) @ layer["up"])


# Rows of another kind beside those of tokens, or in them.

def positions(x, layer, other):
    places = jnp.broadcast_to(60.0 * jnp.arange(WIDTH), (EXPERTS, 1, WIDTH))
    rows = exchange(jnp.concatenate([rows_of(x), places], 1), 0, 1)
    rows = rows.reshape(DEVICES, 2, WIDTH)
    return back(x, (rows[:, 0] * jnp.cos(rows[:, 1]))[None] @ layer["up"])


def selected(x, layer, other):
    rows = exchange(jnp.where(jnp.arange(WIDTH) < 63, rows_of(x), 100 * x[:8, None, :1]),
                    0, 1)
    return back(x, rows @ layer["up"])


def masked_sum(x, layer, other):
    mask = jnp.zeros(WIDTH).at[63].set(1.0)
    rows = exchange(rows_of(x) * (1 - mask) + 100 * x[:8, None, :1] * mask, 0, 1)
    return back(x, rows @ layer["up"])


def sentinels(x, layer, other):
    rows = exchange(jnp.where(jnp.arange(WIDTH) < 60, rows_of(x), -1e30), 0, 1)
    return back(x, rows @ layer["up"])


def made_parts(x, layer, other):
    """An expert that makes numbers that are small beside the rest of a row."""
    mask = jnp.zeros(WIDTH).at[60:].set(1.0)
    rows = exchange(rows_of(x), 0, 1)
    rows = (rows @ layer["up"]) * (1 - mask) + 1e-3 * (rows @ layer["down"]) * mask
    rows = exchange(rows, 1, 0)[:, 0]
    return x.at[:EXPERTS].add(rows * (1 + 1e3 * rows[:, 60:61]))


def weights_alone(x, layer, other):
    product = layer["up"][0] @ layer["down"][0]
    return x @ exchange(product.reshape(8, 8, WIDTH), 0, 0).reshape(WIDTH, WIDTH)


def halves(x, layer, other):
    rows = exchange(rows_of(x).astype(jnp.float16), 0, 1)
    return back(x, (rows @ layer["up"].astype(jnp.float16)).astype(jnp.float32))


# Readers that amplify, or choose.

def exponential(x, layer, other):
    rows = exchange(rows_of(x), 0, 1)
    return back(x, rows @ layer["up"] + jnp.exp(20 * rows))


def logarithm(x, layer, other):
    return back(x, jnp.log(exchange(rows_of(x**4 + 1e-6), 0, 1)) @ layer["up"])


def variance(x, layer, other):
    made = jax.nn.softplus(exchange(rows_of(x), 0, 1) @ layer["up"])
    return x.at[:8].multiply(jax.lax.rsqrt(exchange(made, 1, 0)[:, 0]))


def ranks(x, layer, other):
    rows = exchange(rows_of(x), 0, 1)[0]
    rank = (rows[:, None, :] > rows[None]).sum(1)
    return back(x, (rows * rank)[None] @ layer["up"])


def after_return(x, layer, other):
    rows = exchange(exchange(rows_of(x), 0, 1) @ layer["up"], 1, 0)[:, 0]
    return x.at[:8].add(rows * jnp.exp(30 * rows[:, 63:]))


def of_logits(x, layer, other):
    logits = (gather(x) @ layer["up"][0]).reshape(DEVICES, TOKENS, WIDTH)
    logits = exchange(logits, 0, 0).swapaxes(0, 1).reshape(TOKENS, -1)
    return x * jax.nn.log_softmax(logits)[:, :1]


def columns(x, layer, other):
    return x.at[:EXPERTS].add(exchange(jnp.tanh(exchange(x[:EXPERTS], 1, 0)), 0, 1))


def narrow(x, layer, other):
    return back(x, exchange(rows_of(x)[..., :48], 0, 1) @ layer["up"][:, :48])


def within_nodes(x, layer, other):
    rows = exchange(x[:4, None], 0, 1, "gpu") @ layer["up"]
    return x.at[:4].add(exchange(rows, 1, 0, "gpu")[:, 0])


def sequences(x, layer, other):
    """Ulysses: a device has a head of the whole sequence."""
    q, k, v = (exchange((x @ w).reshape(TOKENS, DEVICES, -1), 1, 0)
               for w in gather(layer["up"])[:3])
    scores = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", q, k))
    heads = exchange(jnp.einsum("hqk,khd->qhd", scores, v), 0, 1)
    return heads.reshape(TOKENS, -1) @ gather(layer["down"])[0]


def cached(x, layer, other):
    """Keys of earlier tokens, which the step takes."""
    return back(x, exchange(other[:, None], 0, 1) @ layer["up"])


def transformed(x, layer, other):
    """A Fourier transform over two dims."""
    once = jnp.abs(jnp.fft.fft(rows_of(x)))
    return x + jnp.abs(jnp.fft.fft(exchange(once, 0, 1)[0], axis=0)).mean(0)


def moved_weights(x, layer, other):
    """Experts move to other devices."""
    up = exchange(layer["up"].reshape(DEVICES, -1, WIDTH), 0, 0)
    return x @ up.reshape(WIDTH, WIDTH)


def held_step(function):
    """A step with `function` and a state beside its weights."""
    def step(state, batch):
        def loss_of(weights):
            x, y = batch
            x = function(jnp.tanh(x @ gather(weights["in"])), weights["layers"][0],
                         state["other"])
            return jnp.mean((x @ gather(weights["out"]) - y)**2)

        loss, gradients = jax.value_and_grad(loss_of)(state["weights"])
        return {"weights": jax.tree.map(lambda w, g: w - 0.1 * g, state["weights"],
                                        gradients),
                "other": 0.9 * state["other"]}, jax.lax.pmean(loss, AXES)

    return step


def of_state(state, batch):
    """A momentum goes to the device that owns its preconditioner, as an optimizer
    that shares its work sends it."""
    step = held_step(lambda x, layer, other: x)
    found, loss = step(state, batch)
    change = found["weights"]["in"] - state["weights"]["in"]
    moment = 0.9 * state["other"] + change
    update = exchange(exchange(moment[:, None], 0, 1)
                      @ state["weights"]["layers"][0]["up"], 1, 0)[:, 0]
    found["weights"]["in"] = state["weights"]["in"] + update
    return {**found, "other": moment}, loss


def evaluation(state, batch):
    x, layer = batch[0], state["weights"]["layers"][0]
    x = jnp.tanh(x @ gather(state["weights"]["in"]))
    x = back(x, exchange(rows_of(x), 0, 1) @ layer["up"])
    return state, jax.lax.pmean(jnp.mean(x**2), AXES)


def differences(state, batch):
    """The curvature of experts alone, by their gradients at two points."""
    x, weights = batch[0], state["weights"]

    def loss_of(layer, others):
        h = jnp.tanh(x @ gather(others["in"]))
        h = back(h, exchange(rows_of(h), 0, 1) @ layer["up"])
        return jnp.mean((h @ gather(others["out"]))**2)

    layer = weights["layers"][0]
    loss, (gradient, others) = jax.value_and_grad(loss_of, (0, 1))(layer, weights)
    moved = jax.grad(loss_of)({**layer, "up": layer["up"] + 1e-3}, weights)
    curvature = 1 + jnp.abs(moved["up"] - gradient["up"]) / 1e-3
    return {"weights": {"in": weights["in"] - 0.1 * others["in"],
                        "out": weights["out"] - 0.1 * others["out"],
                        "layers": [{**layer, "up": layer["up"]
                                    - 0.1 * gradient["up"] / curvature}]},
            "other": state["other"]}, jax.lax.pmean(loss, AXES)


def returned(state, batch):
    """Rows are kept for the next step."""
    kept = []

    def layer_of(x, layer, other):
        rows = exchange(rows_of(x), 0, 1)
        kept.append(jax.lax.stop_gradient(rows[0]))
        return back(x, rows @ layer["up"])

    def loss_of(weights):
        kept.clear()
        x = layer_of(jnp.tanh(batch[0] @ gather(weights["in"])), weights["layers"][0],
                     None)
        return jnp.mean((x @ gather(weights["out"]))**2), kept[0]

    (loss, rows), gradients = jax.value_and_grad(loss_of, has_aux=True)(
        state["weights"])
    return {"weights": jax.tree.map(lambda w, g: w - 0.1 * g, state["weights"],
                                    gradients), "other": rows}, loss


def codebook(state, batch):
    """Rows go to the devices that have the codes next to them, which move towards the
    rows."""
    def loss_of(weights):
        x = jnp.tanh(batch[0] @ gather(weights["in"]))
        rows = exchange(rows_of(x), 0, 1)[0]
        chosen = jax.nn.one_hot(jnp.argmax(rows @ state["other"].T, -1), EXPERTS)
        codes = exchange((chosen @ state["other"])[None], 1, 0)[:, 0]
        x = x.at[:EXPERTS].add(codes)
        moved = 0.9 * state["other"] + 0.1 * chosen.T @ rows
        return jnp.mean((x @ gather(weights["out"]))**2), moved

    (loss, moved), gradients = jax.value_and_grad(loss_of, has_aux=True)(
        state["weights"])
    return {"weights": jax.tree.map(lambda w, g: w - 0.1 * g, state["weights"],
                                    gradients), "other": moved}, loss


OTHER_READER = "what arrives is not only moved, added up and scaled, but read by "
PARTS = "its rows have parts that are used in different ways"
NO_ROWS = "it moves no rows of experts: no product with a weight"


@pytest.mark.parametrize("step, reason, rewritten", [
    (probabilities, NO_ROWS, 0),
    (distributions, "it moves masks, numbers or probabilities", 3),
    (made_gates, NO_ROWS, 3),
    (masks, NO_ROWS, 0),
    (one_hot, "it moves masks, numbers or probabilities", 1),
    (numbers, "its elements are bits, not numbers", 0),
    (beside_gates, PARTS, 1),
    (bits, "its elements are bits, not numbers", 1),
    (chosen, OTHER_READER, 3),
    (positions, PARTS, 2),
    (selected, PARTS, 3),
    (masked_sum, PARTS, 3),
    (sentinels, PARTS, 3),
    (made_parts, PARTS, 2),
    (weights_alone, "it moves what is made of weights alone", 0),
    (halves, "its rows are f16", 2),
    (exponential, OTHER_READER, 1),
    (logarithm, OTHER_READER, 3),
    (variance, "it moves masks, numbers or probabilities", 2),
    (ranks, OTHER_READER, 3),
    (after_return, OTHER_READER, 2),
    (of_logits, OTHER_READER, 0),
    (columns, "it cuts along its last dim", 0),
    (narrow, "its rows have 48 elements, which are no whole blocks", 2),
    (within_nodes, "its devices share a node, and nothing of it crosses slower links",
     0),
    (sequences, NO_ROWS, 0),
    (cached, "it exchanges what the step takes: data, state or weights", 0),
    (transformed, NO_ROWS, 0),
    (moved_weights, "it exchanges what the step takes: data, state or weights", 0),
    (of_state, "it exchanges what the step takes: data, state or weights", 0),
    (evaluation, "no gradient is computed from what it exchanges", 0),
    (returned, "it exchanges state: result 0 ", 3),
    (codebook, NO_ROWS, 0),
    (differences, "the step subtracts gradients from each other, or losses", 0),
], ids=lambda case: getattr(case, "__name__", ""))
@pytest.mark.filterwarnings("ignore:exchanges=i8")
def test_what_is_not_proven_stays_exact(step, reason, rewritten):
    state = {"weights": first(), "other": jax.device_put(
        np.ones((DEVICES * EXPERTS, WIDTH), np.float32), OWN)}
    if step not in (of_state, evaluation, returned, codebook, differences):
        step = held_step(step)
    result = zpp.rewrite(zpp.export(shard_map(step), state, batch_of()), mesh=NODES,
                         exchanges="i8", **OFF)
    entries = exchanges_of(result.report)
    assert any(reason in entry["reason"] for entry in entries), {
        entry["reason"] for entry in entries}
    assert sum(entry["rewritten"] for entry in entries) == rewritten
