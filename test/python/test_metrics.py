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
from training import ALL_ON, AXES, FAST, NODES, tokens, train
from training import trainer_of, with_options

pytestmark = [pytest.mark.compiler, needs_library]

SMALL = with_options(layers=1)
ROWS, COLUMNS, DEVICES = 512, 64, 8


def jitted(config=SMALL, **options):
    options = {"mesh": NODES, "target": "cpu", **ALL_ON, **options}
    return zpp.jit(trainer_of(config).step, donate_argnums=0,
                   compiler_options=FAST, **options)


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
        "tuning": zpp.Tuning(rotate=0), "compiler_options": FAST, **options})


def test_heavy_tails_step_down():
    weight, batch = arguments()
    fast = guarded(heavy, guard=zpp.Guard(gradients=0.2, every=2))
    expected = jax.jit(make_step(heavy))(weight, batch, 0.1)[0] - weight
    with pytest.warns(UserWarning, match=pattern(
            "guard: i4 has a relative rounding error of 0.5, above the bound of 0.2, "
            "in gradient #1 at …test_metrics.py…; gradients travel as i8 from the next "
            "call on")):
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
        "weights travel as they are from the next call on",
        "gradients travel as they are from the next call on"], said
    assert fast.report()["total"]["after"] == fast.report()["total"]["before"]
    # Each variant is compiled once.
    assert len(fast._loaded) == 2


def test_within_the_bound_nothing_changes():
    weight, batch = arguments()
    fast = guarded(heavy, guard=1.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            weight, _ = fast(weight, batch, 0.1)
    assert len(fast._loaded) == 1


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
            "weights travel as they are from the next call on")):
        fast(weight, batch, np.float16(0.0))
    _, loss = fast(weight, batch, np.float16(0.0))
    assert float(loss) == 0.0


def test_differences_step_down():
    trainer = trainer_of(SMALL)
    fast = jitted(weights="i4:delta", guard=zpp.Guard(weights=1e-9, every=2))
    with pytest.warns(UserWarning, match="weights travel as"):
        run = train(trainer, fast, 6)
    expected = train(trainer, jax.jit(trainer.step, compiler_options=FAST), 6)
    np.testing.assert_allclose(run.losses, expected.losses, rtol=1e-2)


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
