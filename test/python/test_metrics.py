# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers about a step, and the guard over them, with target cpu."""

import math
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from jax.sharding import NamedSharding, PartitionSpec
from startwait import needs_library
from training import ALL_ON, AXES, NODES, tokens, train
from training import trainer_of, with_options
from zpp._compiler import Rewritten
from zpp.jax import _metrics

pytestmark = [pytest.mark.compiler, needs_library]

SMALL = with_options(layers=1)
ROWS, COLUMNS, DEVICES = 512, 64, 8


def jitted(config=SMALL, **options):
    options = {"mesh": NODES, "target": "cpu", **ALL_ON, **options}
    return zpp.jit(trainer_of(config).step, donate_argnums=0,
                   **options)


def test_metrics():
    trainer = trainer_of(SMALL)
    fast = jitted()
    assert fast.metrics() == {}
    train(trainer, fast, 1)
    first = fast.metrics()
    train(trainer, fast, 3)
    second = fast.metrics()
    assert (first["call"], second["call"]) == (0, 1)  # Those after it cost nothing.
    total = fast.report()["total"]
    for tier in ("node", "gpu"):
        assert second[f"bytes/{tier}"] == total["after"][tier]
        assert second[f"bytes_as_written/{tier}"] == total["before"][tier]
        assert 0 < second[f"link_ms/{tier}"] <= second["step_ms"]
    assert 0 < second["exposed_ms"] <= second["step_ms"]
    assert second["state_bytes"] == 0
    # Half a step of i8 at most, of values that are spread evenly less; i4 in the
    # second hop of gradients.
    assert 0.001 < second["error/weights"] < 0.01
    assert 0.03 < second["error/gradients"] < 0.2
    for role in ("weights", "gradients"):
        assert second[f"largest_error/{role}"] >= second[f"error/{role}"]
        assert second[f"not_finite/{role}"] == 0
    assert all(isinstance(value, (int, float)) for value in second.values())


def test_metrics_change_nothing():
    trainer = trainer_of(SMALL)
    runs = []
    for is_measured in (False, True):
        fast = jitted()
        state, losses = trainer.init(), []
        for index in range(3):
            if is_measured:
                fast.metrics()
            state, loss = fast(state, trainer.batch(tokens(SMALL, index)))
            losses.append(float(loss))
        runs.append((losses, jax.device_get(state)))
    assert runs[0][0] == runs[1][0]
    jax.tree.map(np.testing.assert_array_equal, runs[0][1], runs[1][1])


def test_the_state_is_counted():
    trainer = trainer_of(SMALL)
    fast = jitted(weights="i4:delta")
    state = trainer.init()
    for index in range(3):
        fast.metrics()
        state, _ = fast(state, trainer.batch(tokens(SMALL, index)))
    found = fast.metrics()
    assert found["state_bytes"] == fast.report()["total"]["state_bytes"] > 0
    # A difference is small, and so is what is rounded of it.
    assert found["error/weights"] < 0.01


def test_target_portable_knows_what_it_sends():
    trainer = trainer_of(SMALL)
    fast = jitted(target="portable")
    fast.metrics()
    train(trainer, fast, 1)
    found = fast.metrics()
    assert found["bytes/node"] == fast.report()["total"]["after"]["node"]
    assert "link_ms/node" not in found


def test_a_trace_goes_on(tmp_path):
    trainer = trainer_of(SMALL)
    fast = jitted()
    fast.metrics()
    with zpp.trace(tmp_path / "trace.json"):
        train(trainer, fast, 2)
    found = fast.metrics()
    assert found["error/weights"] > 0 and "exposed_ms" not in found
    assert (tmp_path / "trace.json").stat().st_size > 0


# The guard. ------------------------------------------------------------------


def sharded(array):
    mesh = jax.make_mesh((2, 4), AXES)
    return jax.device_put(array, NamedSharding(mesh, PartitionSpec(AXES)))


def make_step(loss_of):
    """A step of one weight whose gradient is scattered, by plain descent."""
    mesh = jax.make_mesh((2, 4), AXES)

    def local(weight, batch, rate):
        def loss(weight):
            whole = jax.lax.all_gather(weight, AXES, axis=0, tiled=True)
            return loss_of(batch @ whole)

        value, gradient = jax.value_and_grad(loss)(weight)
        return weight - rate * gradient / DEVICES, jax.lax.pmean(value, AXES)

    return jax.shard_map(
        local, mesh=mesh, in_specs=(PartitionSpec(AXES), PartitionSpec(AXES),
                                    PartitionSpec()),
        out_specs=(PartitionSpec(AXES), PartitionSpec()), check_vma=False)


def heavy(products):
    """Each row of the gradient has one large element; the others are half a
    step of i4, so that their rounding loses most of them."""
    scales = jnp.where(jnp.arange(COLUMNS) == 0, 1.0, 1 / 14.5)
    # The gradient follows from the weights, a little: they are proven to be some.
    return jnp.sum(products * scales) + 1e-6 * jnp.sum(products**2)


def arguments():
    random = np.random.default_rng(0)
    weight = random.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    batch = random.choice([-1.0, 1.0], size=(DEVICES, ROWS)).astype(np.float32)
    return sharded(weight), sharded(batch)


def pattern(text):
    """Stands for this text with any numbers, and anything in place of "…"."""
    return re.sub(r"\d+", r"\\d+", re.escape(text)).replace("…", ".*")


def guarded(loss_of, **options):
    return zpp.jit(make_step(loss_of), **{
        "mesh": NODES, "target": "cpu", "weights": "i8", "gradients": "i8:i4",
        "tuning": zpp.Tuning(rotate=0), **options})


def test_heavy_tails_step_down():
    weight, batch = arguments()
    fast = guarded(heavy, guard=zpp.Guard(gradients=0.2, every=2))
    expected = jax.jit(make_step(heavy))(weight, batch, 0.1)[0] - weight
    with pytest.warns(UserWarning, match=pattern(
            "guard: i4 has a relative rounding error of 0.5, above the bound of 0.2, "
            "in gradient #1 weight at …test_metrics.py…; it travels as i8 from the next "
            "call on, as with floors='1=i8'")):
        before = fast(weight, batch, 0.1)[0] - weight
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after = fast(weight, batch, 0.1)[0] - weight
        fast(weight, batch, 0.1)
    off = [float(jnp.linalg.norm(found - expected) / jnp.linalg.norm(expected))
           for found in (before, after)]
    assert off[0] > 0.2 > 0.05 > off[1]
    fast.metrics()
    fast(weight, batch, 0.1)
    assert fast.metrics()["largest_error/gradients"] < 0.05


def test_it_steps_down_to_none():
    weight, batch = arguments()
    fast = guarded(heavy, guard=zpp.Guard(weights=1e-4, gradients=1e-4, every=1))
    with pytest.warns(UserWarning) as warned:
        for _ in range(3):
            weight, _ = fast(weight, batch, 0.1)
    said = [text for warning in warned
            if (text := str(warning.message)).startswith("guard")]
    assert [text.rpartition("; ")[2] for text in said] == [
        f"it travels unquantized from the next call on, as with floors='{number}=none'"
        for number in (0, 1)], said
    assert fast.report()["total"]["after"] == fast.report()["total"]["before"]
    # Each variant is compiled once.
    assert (len(fast._latest.loaded), len(fast._latest.widened)) == (1, 1)


def test_within_the_bound_nothing_changes():
    weight, batch = arguments()
    fast = guarded(heavy, guard=1.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            weight, _ = fast(weight, batch, 0.1)
    assert (len(fast._latest.loaded), len(fast._latest.widened)) == (1, 0)


def test_a_loss_that_diverges_is_not_the_formats_fault():
    """It becomes Inf and NaN as it does without zpp."""
    weight, batch = arguments()

    def square(products):
        return jnp.sum(products**2)

    fast = guarded(square, guard=zpp.Guard(gradients=0.5, weights=0.5, every=1))
    plain = jax.jit(make_step(square))
    other = weight
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(30):
            weight, loss = fast(weight, batch, 10.0)
            other, expected = plain(other, batch, 10.0)
    assert not math.isfinite(float(loss)) and not math.isfinite(float(expected))
    assert not [each for each in warned if "guard" in str(each.message)], [
        str(each.message) for each in warned]


def test_values_that_the_format_loses_step_down():
    """The largest f16 as i8 is Inf."""
    weight = sharded(np.full((ROWS, COLUMNS), 65504.0, np.float16))
    batch = sharded(np.zeros((DEVICES, ROWS), np.float16))
    fast = guarded(lambda products: jnp.sum(products.astype(jnp.float32)**2),
                   guard=zpp.Guard(every=1), weights="i8")
    with pytest.warns(UserWarning, match=(
            "guard: i8 made values NaN or Inf that were finite in weight #0 .*; "
            "it travels unquantized from the next call on, as with floors='0=none'")):
        fast(weight, batch, np.float16(0.0))
    _, loss = fast(weight, batch, np.float16(0.0))
    assert float(loss) == 0.0


def test_differences_step_down():
    trainer = trainer_of(SMALL)
    fast = jitted(weights="i4:delta", guard=zpp.Guard(weights=1e-9, every=2))
    with pytest.warns(UserWarning, match="it travels unquantized"):
        run = train(trainer, fast, 6)
    expected = train(trainer, jax.jit(trainer.step), 6)
    np.testing.assert_allclose(run.losses, expected.losses, rtol=1e-2)


# One of several. --------------------------------------------------------------


def make_pair(loss_of):
    """The same for two weights, of which `loss_of` has one for each."""
    mesh = jax.make_mesh((2, 4), AXES)

    def local(weights, batch, rate):
        def loss(weights):
            return sum(loss_of[name](batch @ jax.lax.all_gather(
                weight, AXES, axis=0, tiled=True)) for name, weight in weights.items())

        value, gradients = jax.value_and_grad(loss)(weights)
        return {name: weight - rate * gradients[name] / DEVICES
                for name, weight in weights.items()}, jax.lax.pmean(value, AXES)

    return jax.shard_map(
        local, mesh=mesh, in_specs=(PartitionSpec(AXES), PartitionSpec(AXES),
                                    PartitionSpec()),
        out_specs=(PartitionSpec(AXES), PartitionSpec()), check_vma=False)


def quiet(products):
    return jnp.mean(jnp.tanh(products)**2)


PAIR = {"calm": quiet, "tails": heavy}


def jitted_pair(loss_of=PAIR, **options):
    return zpp.jit(make_pair(loss_of), **{
        "mesh": NODES, "target": "cpu", "weights": "i8", "gradients": "i4:i4",
        "tuning": zpp.Tuning(rotate=0), **options})


def pair(scale=1.0):
    weight, batch = arguments()
    return {"calm": weight * scale, "tails": weight * scale}, batch


def floors_in(fast):
    return {entry["id"]: entry["floor"] for entry in fast.report()["collectives"]
            if entry["floor"]}


def number_of(text):
    """The collective whose floor a warning names."""
    return int(re.search(r"floors='(\d+)=", text)[1])


def guards_said(warned):
    return [text for each in warned
            if (text := str(each.message)).startswith("guard")]


def equals(one, other):
    return bool((np.asarray(one) == np.asarray(other)).all())


@pytest.mark.parametrize("sizes", [(8,), (8, 16)], ids=["one size", "two sizes"])
def test_only_what_is_above_the_bound_steps_down(sizes):
    """The other gradient travels as before, to the bit. Batches of another size
    have the floor from their first call on."""
    weights, batch = pair()
    fast = jitted_pair(guard=zpp.Guard(gradients=0.2, every=1))
    with pytest.warns(UserWarning) as warned:
        before, _ = fast(weights, batch, 0.1)
    (said,) = guards_said(warned)
    number = number_of(said)
    assert f"in gradient #{number} weights['tails'] at " in said
    first = {entry["id"]: entry for entry in fast.report()["collectives"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after, _ = fast(weights, batch, 0.1)
        for size in sizes[1:]:
            fast(weights, sharded(np.repeat(batch, size // 8, 0)), 0.1)
    assert floors_in(fast) == {number: "i8"}
    for entry in fast.report()["collectives"]:
        sent, other = (each["after"]["node"] for each in (entry, first[entry["id"]]))
        assert sent > other if entry["id"] == number else sent == other, entry
    assert equals(before["calm"], after["calm"])
    assert not equals(before["tails"], after["tails"])
    # As with the option that the warning names.
    given = jitted_pair(floors={number: "i8"})
    same, _ = given(weights, batch, 0.1)
    assert equals(same["tails"], after["tails"]) and equals(same["calm"], after["calm"])


def test_none_leaves_a_gradient_as_it_was():
    weights, batch = pair()
    fast = jitted_pair(floors="2=none", weights="none", secondary="none")
    found, _ = fast(weights, batch, 0.1)
    expected, _ = jax.jit(make_pair(PAIR))(weights, batch, 0.1)
    np.testing.assert_allclose(found["tails"], expected["tails"], rtol=1e-6)
    assert not equals(found["calm"], expected["calm"])
    (left,) = [entry for entry in fast.report()["collectives"] if entry["id"] == 2]
    assert left["reason"] == "floors has it travel unquantized"


def test_the_others_keep_their_differences():
    """One weight steps down, twice; what is kept of both goes on."""
    weights, batch = pair(1e-3)
    fast = jitted_pair(weights="i4:delta", gradients="none", tuning=None,
                       guard=zpp.Guard(weights=0.02, every=1))
    said, states = [], []
    plain = jax.jit(make_pair(PAIR))
    other = weights
    for _ in range(6):
        fast.metrics()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            weights, _ = fast(weights, batch, 0.1)
        other, _ = plain(other, batch, 0.1)
        said.append(guards_said(warned))
        states.append({name: array.shape for name, array in fast.state.items()})
        # The first call sends whole weights before the step, which then has no
        # difference to send. So would another one whose state were lost.
        assert (fast.metrics()["error/weights"] > 0) == (len(said) > 1)
    spoken = [text for each in said for text in each]
    assert spoken and all("weights['tails']" in text for text in spoken), spoken
    assert set(floors_in(fast)) == {number_of(spoken[0])}, spoken
    assert all(each == states[0] for each in states)
    for name in PAIR:
        np.testing.assert_allclose(weights[name], other[name], rtol=1e-3, atol=1e-6)


def test_a_loss_that_diverges_with_heavy_tails():
    """What tails cost is the format's fault; what diverges is not."""
    weights, batch = pair()
    grows = {"calm": lambda products: jnp.sum(products**2), "tails": heavy}
    fast = jitted_pair(grows, weights="i4:delta",
                       guard=zpp.Guard(weights=0.5, gradients=0.45, every=1))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(25):
            weights, loss = fast(weights, batch, 10.0)
    assert not math.isfinite(float(loss))
    assert {text.partition(" in ")[2].partition(" at ")[0]
            for text in guards_said(warned)} == {"gradient #2 weights['tails']"}
    assert set(floors_in(fast)) == {2}


def test_processes_decide_alike(monkeypatch):
    """Each sees a large error of another collective, or of none."""
    def entry(number, role, weight=None):
        return {"id": number, "kind": "all_gather", "role": role, "weight": weight}

    def rounding(number, role, form, error, not_finite=0):
        return _metrics.Rounding(role, number, f"{role} #{number}", form, error**2, 1.0,
                                 not_finite)

    given = Rewritten("", {"collectives": [
        entry(0, "weight", 0), entry(1, "weight", 1), entry(2, "gradient"),
        entry(3, "weight", 0)]}, ())
    processes = [
        [rounding(3, "weight", "i4", 0.5), rounding(2, "gradient", "i4", 0.01)],
        [rounding(2, "gradient", "i8", 0.01, not_finite=1),
         rounding(0, "weight", "i4", 0.1), rounding(1, "weight", "i8", 0.1),
         # Of another step.
         rounding(9, "weight", "i8", 0.9)],
        []]
    vectors = []
    monkeypatch.setattr(_metrics, "_largest_of_all",
                        lambda values, mesh: vectors.append(values) or values)
    for roundings in processes:
        with warnings.catch_warnings(record=True):
            _metrics.Gauge(zpp.Guard(0.2, 0.2))._check(roundings, given, None)
    largest = [max(each) for each in zip(*vectors, strict=True)]
    monkeypatch.setattr(_metrics, "_largest_of_all", lambda values, mesh: largest)
    for roundings in processes:
        gauge = _metrics.Gauge(zpp.Guard(0.2, 0.2))
        with pytest.warns(UserWarning) as warned:
            gauge._check(roundings, given, None)
        # The gathers of a weight are one.
        assert gauge.floors_of(given) == ((0, "i8"), (2, "none"))
        assert [text.rpartition("floors=")[2] for text in guards_said(warned)] == [
            "'0=i8'", "'2=none'"]


def test_target_portable_is_not_guarded():
    weight, batch = arguments()
    fast = guarded(heavy, guard=0.1, target="portable")
    with pytest.warns(UserWarning, match=(
            "guard: nothing is guarded with target portable; the runtime measures, "
            "with target cuda")):
        fast(weight, batch, 0.1)


@pytest.mark.parametrize("given, text", [
    ("much", "guard: expected a number or a zpp.Guard, but got 'much'"),
    (0.0, "guard: expected a positive bound for weights, but got 0.0"),
    (True, "guard: expected a number or a zpp.Guard, but got True")])
def test_wrong_bounds(given, text):
    with pytest.raises(ValueError, match=text):
        zpp.jit(lambda x: x, mesh=NODES, guard=given)


def test_wrong_guards():
    with pytest.raises(ValueError, match="guard: expected a positive number of calls, "
                                         "but got every=0"):
        zpp.Guard(every=0)
    with pytest.raises(ValueError, match="guard: expected formats in the options"):
        zpp.jit(lambda x: x, mesh=NODES, guard=0.1, options="auto")
