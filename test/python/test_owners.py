# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Momenta with owners (zero-assign-owners): a device orthogonalizes some of them for
all others. Trainings are the same where nothing is rounded."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import program_parts as parts
import pytest
import test_moments as moments
import zpp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from optax.contrib._muon import orthogonalize_via_newton_schulz
from test_moments import REPLICATED, WIDTH, batch_of, descend, first_moments
from test_moments import gather, orthogonalize, own, shard_map, tree
from training import AXES, MESH, OFF, same_bits

pytestmark = [pytest.mark.compiler,
              pytest.mark.filterwarnings("ignore:expected a step with"),
              pytest.mark.filterwarnings("ignore:.*of the bytes")]

#: In one tier, exchanges of two matrices send no more than their gathers do.
TIER = "rank:8"


def state_of(layers, is_stack=False):
    """Weights and momenta, of which each device has its rows."""
    rng = np.random.default_rng(1)

    def arrays(scale):
        values = [(scale * rng.standard_normal((WIDTH, WIDTH))).astype(np.float32)
                  for _ in range(layers)]
        sharding = NamedSharding(MESH, P(None, AXES) if is_stack else P(AXES))
        return tree(lambda x: jax.device_put(x, sharding),
                    np.stack(values) if is_stack else values)

    return {"weights": arrays(0.125), "moments": arrays(1e-3)}


def as_stack(layers, state, batch):
    """The momenta of a stack of layers, tall ones, orthogonalized together."""
    weights, stack = state["weights"], state["moments"]
    loss, momenta, _ = first_moments(gather, {
        "weights": [weights[i] for i in range(layers)],
        "moments": [stack[i] for i in range(layers)]}, batch)
    momenta = jnp.stack(momenta)
    updates = own(orthogonalize(gather(momenta, dim=1)), dim=1)
    return {"weights": descend(weights, updates), "moments": momenta}, loss


def in_turn(state, batch):
    """A weight is updated before the next momentum is gathered."""
    loss, momenta, _ = first_moments(gather, state, batch)
    weights = [w - 0.02 * own(orthogonalize(gather(m)))
               for w, m in zip(state["weights"], momenta, strict=True)]
    return {"weights": weights, "moments": momenta}, loss


def program_of(step, layers):
    is_stack = step is as_stack
    state = state_of(layers, is_stack)
    if step in (moments.constrained, moments.as_transformation):
        shardings = tree(lambda x: x.sharding, state)
        return jax.jit(step, out_shardings=(shardings, REPLICATED)), state
    if is_stack:
        step = functools.partial(as_stack, layers)
    return jax.jit(shard_map(step, P(None, AXES) if is_stack else P(AXES))), state


def rewritten(step, mesh, **options):
    """Nothing but momenta is rounded."""
    return zpp.jit(step, target="cpu", mesh=mesh, moments="i8", **OFF, **options)


def moments_in(report):
    return [entry for entry in report["collectives"] if entry["role"] == "moment"]


def remarks_of(step, state, mesh=TIER):
    result = zpp.rewrite(zpp.export(step, state, batch_of()), mesh=mesh, moments="i8",
                         **OFF)
    return result, "\n".join(str(remark) for remark in result.remarks)


def of_optax(next_of, state, batch):
    """Optax's iteration, with coefficients in the state, which the step returns as
    `next_of` has them."""
    loss, momenta, gradients = first_moments(gather, state, batch)
    updates = tree(lambda m: own(orthogonalize_via_newton_schulz(
        gather(m), state["coefficients"])), momenta)
    return {"weights": descend(state["weights"], updates), "moments": momenta,
            "coefficients": next_of(state["coefficients"], gradients)}, loss


def with_coefficients(next_of, layers):
    state = state_of(layers) | {"coefficients": jax.device_put(
        np.float32([3.4445, -4.775, 2.0315]), REPLICATED)}
    specs = {"weights": P(AXES), "moments": P(AXES), "coefficients": P()}
    return jax.jit(jax.shard_map(
        functools.partial(of_optax, next_of), mesh=MESH, in_specs=(specs, P(AXES)),
        out_specs=(specs, P()), check_vma=False)), state


def as_they_are(coefficients, _):
    return coefficients


def of_all(coefficients, gradients):
    return coefficients + 1e-3 * jax.lax.pmean(gradients[0][0, 0], AXES)


def of_each(coefficients, gradients):
    return coefficients + 1e-3 * gradients[0][0, 0]


STEPS = [moments.by_hand, in_turn, moments.nesterov, as_stack, moments.constrained,
         moments.as_transformation]


def check_exact(step, state, report, steps):
    """Trains with owners whose exchanges round nothing: equal to the bit. Returns the
    rewritten step."""
    numbers = [entry["id"] for entry in moments_in(report)]
    fast = rewritten(step, TIER, floors=dict.fromkeys(numbers, "none"))
    found = expected = state
    for number in range(steps):
        found, loss = fast(found, batch_of(number))
        expected, other = step(expected, batch_of(number))
        assert same_bits((found, loss), (expected, other))
    return fast


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_training_is_the_same(step):
    """Three steps with three matrices on eight devices, all leaves, exchanged as they
    are: to the bit, but for products of fewer layers at once."""
    step, state = program_of(step, 3)
    fast = check_exact(step, state, remarks_of(step, state)[0].report, 3)
    # Two exchanges of eight parts, where three gathers had eight parts each.
    assert all(abs(entry["after"]["rank"] / entry["before"]["rank"] - 2 / 3) < 1e-3
               for entry in moments_in(fast.report()))


@pytest.mark.parametrize("layers, mesh", [(3, TIER), (8, moments.NODES)])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_what_is_rounded(step, layers, mesh):
    step, state = program_of(step, layers)
    fast = rewritten(step, mesh)
    found, loss = fast(state, batch_of())
    expected, other = step(state, batch_of())
    assert same_bits((found["moments"], loss), (expected["moments"], other))
    for before, right, rounded in zip(*map(jax.tree.leaves, (
            state["weights"], expected["weights"], found["weights"])), strict=True):
        error = (np.linalg.norm(np.subtract(rounded, right))
                 / np.linalg.norm(np.subtract(right, before)))
        assert 0 < error < 0.1


def differing(state, batch):
    """The number of iterations differs."""
    loss, momenta, _ = first_moments(gather, state, batch)
    updates = [own(orthogonalize(gather(m), 4 + i)) for i, m in enumerate(momenta)]
    return {"weights": descend(state["weights"], updates), "moments": momenta}, loss


def scaled_by_device(state, batch):
    """Devices scale what they orthogonalize by what they have."""
    loss, momenta, gradients = first_moments(gather, state, batch)
    updates = [own(orthogonalize(gather(m) * (1 + jnp.sum(g * g))))
               for m, g in zip(momenta, gradients, strict=True)]
    return {"weights": descend(state["weights"], updates), "moments": momenta}, loss


def with_norm(state, batch):
    """All devices need the norms of updates."""
    loss, momenta, _ = first_moments(gather, state, batch)
    updates = [orthogonalize(gather(m)) for m in momenta]
    scale = jnp.minimum(1, 8 / jnp.linalg.norm(jnp.stack(updates)))
    return {"weights": descend(state["weights"], [own(u) * scale for u in updates]),
            "moments": momenta}, loss


@pytest.mark.parametrize("step, reason", [
    (differing, "nothing else of its shape is computed alike"),
    (scaled_by_device, "is made of other things, too"),
    (with_norm, "all devices need all of what follows from it, for "),
], ids=lambda case: getattr(case, "__name__", ""))
def test_what_has_no_owner(step, reason):
    step, state = program_of(step, 3)
    result, remarks = remarks_of(step, state)
    assert remarks.count(reason) == 3, remarks
    assert "stablehlo.all_to_all" not in result.text


@pytest.mark.parametrize("next_of, is_owned", [
    (as_they_are, True), (of_all, True), (of_each, False)],
    ids=lambda case: getattr(case, "__name__", ""))
def test_numbers_in_the_state(next_of, is_owned):
    """All devices have the same of what is replicated, if they compute it alike."""
    step, state = with_coefficients(next_of, 3)
    result, remarks = remarks_of(step, state)
    assert remarks.count("made of other things, too") == (0 if is_owned else 3)
    assert ("stablehlo.all_to_all" in result.text) == is_owned
    check_exact(step, state, result.report, 2)


# Owners that a step has itself. The state has eight matrices of 64, or more.

def to_owners(x, axes=AXES):
    return jax.lax.all_to_all(x, axes, 0, 1, tiled=True)


def from_owners(x, axes=AXES):
    return jax.lax.all_to_all(x, axes, 1, 0, tiled=True)


def updates_by(back, sent, momenta):
    """Updates of matrices, one of each device at most, which `back` returns."""
    stack = jnp.stack(momenta + momenta[-1:] * (-len(momenta) % 8))
    updates = back(sent(orthogonalize(to_owners(sent(stack)))))
    return [updates[i] for i in range(len(momenta))]


def by_exchange(sent, momenta):
    return updates_by(from_owners, sent, momenta)


def by_gather(sent, momenta):
    return [own(u) for u in updates_by(gather, sent, momenta)]


def by_hops(sent, momenta):
    """Within a node first, and back within it at last: there, all is exact."""
    stack = jnp.stack(momenta).reshape(2, 4, 8, WIDTH)
    mine = to_owners(sent(jax.lax.all_to_all(stack, "gpu", 1, 2, tiled=True))[:, 0],
                     "node")
    back = from_owners(sent(orthogonalize(mine)), "node")[:, None]
    updates = jax.lax.all_to_all(back, "gpu", 2, 1, tiled=True)
    return [updates[i // 4, i % 4] for i in range(8)]


def by_rows(sent, momenta):
    """The part of each matrix is a half of a row, and each device has two matrices."""
    def exchange(parts):
        rows = jnp.concatenate([part.reshape(8, -1) for part in parts], 1)
        rows = jax.lax.all_to_all(sent(rows), AXES, 0, 0, tiled=True)
        return [half.reshape(8, 8, WIDTH) for half in jnp.split(rows, 2, 1)]

    parts = exchange([jnp.stack(momenta[:8]), jnp.stack(momenta[8:])])
    updates = orthogonalize(jnp.stack(parts).reshape(2, WIDTH, WIDTH))
    return [u for part in exchange(list(updates)) for u in part]


def with_own(updates_of, sent, state, batch):
    loss, momenta, _ = first_moments(gather, state, batch)
    return {"weights": descend(state["weights"], updates_of(sent, momenta)),
            "moments": momenta}, loss


def of_own_stack(sent, state, batch):
    """Weights and momenta are stacks, and so are updates."""
    weights, stack = state["weights"], state["moments"]
    loss, momenta, _ = first_moments(gather, {
        "weights": list(weights), "moments": list(stack)}, batch)
    momenta = jnp.stack(momenta)
    updates = from_owners(sent(orthogonalize(to_owners(sent(momenta)))))
    return {"weights": descend(weights, updates), "moments": momenta}, loss


def as_it_is(x):
    return x


@pytest.mark.parametrize("updates_of, layers, mesh", [
    (by_exchange, 8, moments.NODES), (by_exchange, 3, TIER), (by_gather, 8, TIER),
    (by_hops, 8, moments.NODES), (by_rows, 16, TIER), (None, 16, TIER)])
def test_owners_of_the_step(updates_of, layers, mesh):
    """Both ways are rounded, each row by itself, and nothing else is."""
    step = functools.partial(with_own, updates_of) if updates_of else of_own_stack
    spec = P(AXES) if updates_of else P(None, AXES)
    state = state_of(layers, is_stack=not updates_of)
    written, rounded = (jax.jit(shard_map(functools.partial(step, sent), spec))
                        for sent in (as_it_is, lambda x: parts.sent(x, "i8", WIDTH)))
    fast = rewritten(written, mesh)
    found = fast(state, batch_of())
    for right, other in zip(*map(jax.tree.leaves, (
            rounded(state, batch_of()), found)), strict=True):
        np.testing.assert_allclose(other, right, rtol=1e-5, atol=1e-7)
    exact = zpp.jit(written, target="cpu", mesh=mesh, **OFF)
    assert same_bits(exact(state, batch_of()), written(state, batch_of()))
    sent = [(entry["rule"], max(entry["before"].values()), entry["rewritten"])
            for entry in moments_in(fast.report())]
    assert [rule for rule, *_ in sent] == ["R19"] * (4 if updates_of is by_hops else 2)
    assert {is_sent for *_, is_sent in sent} == (
        {True, False} if updates_of is by_hops else {True})


# Owners whose exchanges stay exact.

def keeps_squares(momenta, state):
    """NorMuon: second moments of the updates are kept."""
    updates = by_exchange(as_it_is, momenta[:-1])
    second = 0.9 * state["moments"][-1] + 0.1 * updates[0]**2
    return [updates[0] / (jnp.sqrt(second) + 1e-8), *updates[1:], momenta[-1]], second


def of_weights(momenta, state):
    return by_exchange(as_it_is, [m + 1e-3 * w for m, w in zip(
        momenta, state["weights"], strict=True)]), None


def by_signs(momenta, state):
    return [jnp.sign(u) for u in by_exchange(as_it_is, momenta)], None


def with_averages(momenta, state):
    updates = by_exchange(as_it_is, momenta[:-1])
    return [*updates, momenta[-1]], 0.9 * state["moments"][-1] + 0.1 * (
        state["weights"][0] - 0.02 * updates[0])


def of_updated_weights(momenta, state):
    mine = orthogonalize(to_owners(jnp.stack(momenta)))
    weights = from_owners(to_owners(jnp.stack(state["weights"])) - 0.02 * mine)
    return [(w - new) / 0.02 for w, new in zip(state["weights"], weights, strict=True)
            ], None


def beside_what_is_sent(momenta, state):
    """A device that has an update takes its slice of it, and not what arrives."""
    mine = orthogonalize(to_owners(jnp.stack(momenta)))
    updates = gather(mine)
    return [own(jnp.where(jax.lax.axis_index(AXES) == i, mine[0], updates[i]))
            for i in range(8)], None


def subtracted(momenta, state):
    """Little is left of the difference of two updates."""
    mine = orthogonalize(to_owners(jnp.stack(momenta)))
    one, other = from_owners(mine), from_owners(1.001 * mine)
    return list(1e3 * (other - one)), None


def divided(momenta, state):
    """Elements that are rounded to zero would have no sign."""
    updates = from_owners(orthogonalize(to_owners(jnp.stack(momenta))))
    return list(updates / jnp.abs(updates)), None


def bounded(momenta, state):
    """A sign in fact."""
    updates = from_owners(orthogonalize(to_owners(jnp.stack(momenta))))
    return list(jnp.tanh(1e6 * updates)), None


def contracted_later(momenta, state):
    """Half an orthogonalization is sent back."""
    mine = orthogonalize(to_owners(jnp.stack(momenta)), 2)
    return [own(orthogonalize(u, 3)) for u in gather(mine)], None


def with_numbers(momenta, state):
    """An owner adds whole numbers that follow from a weight."""
    mine = orthogonalize(to_owners(jnp.stack(momenta)))
    counts = (state["weights"][0][0] > 0).astype(jnp.int32)
    updates = from_owners(mine + counts.astype(jnp.float32))
    return [updates[i] for i in range(8)], None


def with_last_dim(momenta, state):
    """Neighbors in memory are of different matrices."""
    stack = jnp.stack(momenta * 32, -1)
    mine = jax.lax.all_to_all(stack, AXES, 2, 0, tiled=True)
    updates = jnp.moveaxis(orthogonalize(jnp.moveaxis(mine, -1, 0)), 0, -1)
    back = jax.lax.all_to_all(updates, AXES, 0, 2, tiled=True)
    return [back[..., i] for i in range(8)], None


def with_kept(updates_of, state, batch):
    loss, momenta, _ = first_moments(gather, state, batch)
    updates, kept = updates_of(momenta, state)
    momenta = momenta if kept is None else [*momenta[:-1], kept]
    return {"weights": descend(state["weights"], updates), "moments": momenta}, loss


@pytest.mark.parametrize("updates_of, reason, count", [
    (keeps_squares, "it exchanges state: result 7 ", 0),
    (of_weights, "it exchanges state: result ", 0),
    (by_signs, "needs it as it is: the step chooses by it", 0),
    (with_averages, "is not known to be the one updated weight of a gradient", 0),
    (of_updated_weights, "it exchanges state: result ", 0),
    (beside_what_is_sent, "devices update weights with what they send, too", 1),
    (subtracted, "it is subtracted from another one", 1),
    (bounded, "the step bounds its elements", 0),
    (divided, "the step divides by its elements", 0),
    (contracted_later, "it gathers state, which is not rounded: result 8 ", 1),
    (with_numbers, "it exchanges state: result 8 ", 1),
    (with_last_dim, "its rows have elements of several matrices", 0)],
    ids=lambda case: getattr(case, "__name__", ""))
@pytest.mark.filterwarnings("ignore:moments=i8")
def test_what_owners_exchange_as_it_is(updates_of, reason, count):
    step = jax.jit(shard_map(functools.partial(with_kept, updates_of)))
    report = remarks_of(step, state_of(8))[0].report
    assert sum(entry["rewritten"] for entry in report["collectives"]) == count
    assert any(reason in entry["reason"] for entry in report["collectives"]), {
        entry["reason"] for entry in report["collectives"]}


def with_owners(state, batch):
    return with_own(by_exchange, as_it_is, state, batch)


@pytest.mark.parametrize("target", ["portable", "cpu"])
@pytest.mark.parametrize("step", [moments.by_hand, as_stack, with_owners],
                         ids=lambda step: step.__name__)
def test_with_everything_else(step, target):
    moments.check_with_everything_else(*program_of(step, 8), target, 0.02)
