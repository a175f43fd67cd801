# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that call Python: rewritten where they are compiled in this process."""

import collections
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from jax.experimental import io_callback
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec
from training import AXES, MESH, NODES, array

pytestmark = pytest.mark.compiler

ROWS = PartitionSpec(AXES)
SHARDED = NamedSharding(MESH, ROWS)
#: Numbers that the steps have told, by kind, in the order of the calls.
told: collections.defaultdict[str, list] = collections.defaultdict(list)


def tell(name, *values):
    told[name].append([float(np.ravel(value)[0]) for value in values])


def doubled(values):
    tell("doubled", values)
    return 2 * np.asarray(values)


@custom_partitioning
def _split(values):
    return 2 * jnp.tanh(values)


def _partition(mesh, shapes, result):
    sharding = shapes[0].sharding
    return mesh, lambda values: 2 * jnp.tanh(values), sharding, (sharding,)


_split.def_partition(_partition, sharding_rule="i j -> i j")


@jax.custom_vjp
def split(values):
    """An activation as cuDNN's attention is one: with a rule for each pass."""
    return _split(values)


split.defvjp(lambda values: (_split(values), values),
             lambda values, given: (2 * given * (1 - jnp.tanh(values)**2),))


def loss_of(weights, batch, kind, constrain):
    y = batch
    for weight in weights:
        y = constrain(jnp.tanh(y @ weight))
        if kind == "debug.callback":
            jax.debug.callback(lambda *given: tell("mean", *given), jnp.mean(y))
        if kind == "custom_partitioning":
            y = split(y)
    return jnp.mean(y**2)


def jit_step(kind):
    """Data parallelism with partitioned weights, which XLA partitions."""
    def step(weights, batch):
        loss, gradients = jax.value_and_grad(loss_of)(
            weights, batch, kind,
            lambda y: jax.lax.with_sharding_constraint(y, SHARDED))
        if kind == "debug.print":
            jax.debug.print("loss {}", loss)
        number = jax.ShapeDtypeStruct((), loss.dtype)
        if kind == "pure_callback":
            loss = jax.pure_callback(doubled, number, loss)
        if kind in ("io_callback", "ordered"):
            for _ in range(2):
                loss = io_callback(doubled, number, loss, ordered=kind == "ordered")
        if kind == "partitioned":
            jax.debug.callback(lambda *given: tell("part", *given), gradients[0],
                               partitioned=True)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), loss

    return step


def shard_map_step(kind):
    """The same by hand, on each device."""
    def local(weights, batch):
        def loss(weights):
            whole = [jax.lax.all_gather(each, AXES, tiled=True) for each in weights]
            return loss_of(whole, batch, kind, lambda y: y) / MESH.size

        value, gradients = jax.value_and_grad(loss)(weights)
        if kind == "debug.print":
            jax.debug.print("loss {}", value)
        return (jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients),
                jax.lax.psum(value, AXES))

    return jax.shard_map(local, mesh=MESH, in_specs=(ROWS, ROWS),
                         out_specs=(ROWS, PartitionSpec()), check_vma=False)


def arguments():
    return ([array((64, 64), ROWS), array((64, 64), ROWS) + 0.01],
            array((16, 64), ROWS, scale=1.0))


def run(step, capfd):
    """The loss of the second of two calls, and what they have told."""
    told.clear()
    weights, batch = arguments()
    for _ in range(2):
        weights, loss = step(weights, batch)
    jax.effects_barrier()
    printed = [line.split()[1] for line in capfd.readouterr().out.splitlines()
               if line.startswith("loss ")]
    return float(loss), dict(told) | {"printed": [[float(each)] for each in printed]}


CASES = [(jit_step, kind) for kind in (
    "debug.print", "debug.callback", "pure_callback", "io_callback", "ordered",
    "partitioned", "custom_partitioning")] + [
        (shard_map_step, kind) for kind in (
            "debug.print", "debug.callback", "custom_partitioning")]


@pytest.mark.parametrize("make, kind", CASES, ids=lambda each: getattr(
    each, "__name__", each))
def test_they_are_called_as_often_and_with_the_same(make, kind, capfd):
    step = make(kind)
    loss, before = run(jax.jit(step), capfd)
    fast = zpp.jit(step, mesh=NODES, donate_argnums=0)
    rewritten, after = run(fast, capfd)
    assert rewritten == pytest.approx(loss, rel=0.02)
    assert {name: len(calls) for name, calls in after.items()} == {
        name: len(calls) for name, calls in before.items()}
    for name, calls in before.items():
        # In the order of the calls only if this is asked for.
        order = (lambda each: each) if kind == "ordered" else sorted
        np.testing.assert_allclose(order(after[name]), order(calls), rtol=0.05,
                                   atol=2e-3)
    total = fast.report()["total"]
    # Int8 weights in one of two gathers, int4 gradients: as without the calls.
    assert total["after"]["node"] < 0.3 * total["before"]["node"]


@pytest.mark.parametrize("kind", ["ordered", "debug.callback"])
def test_a_program_that_begins_state_calls_nothing(kind, capfd):
    step = jit_step(kind)
    loss, before = run(jax.jit(step), capfd)
    fast = zpp.jit(step, mesh=NODES, weights="i4:delta",
                   weights_of=lambda path: path.startswith("[0]"))
    rewritten, after = run(fast, capfd)
    assert rewritten == pytest.approx(loss, rel=0.02)
    assert {name: len(calls) for name, calls in after.items()} == {
        name: len(calls) for name, calls in before.items()}
    assert fast.state is not None
    # The number is that of the leaf also where a token stands before it.
    assert set(fast.rewritten().step.state.sources.values()) == {0, 1}


@pytest.mark.parametrize("form", ["exported", "lowered"])
def test_what_is_loaded_in_this_process_calls_them(form, capfd):
    step = jit_step("debug.print")
    given = (zpp.export(step, *arguments())
             if form == "exported" else jax.jit(step).lower(*arguments()))
    load = zpp.load(zpp.rewrite(given, mesh=NODES).step)
    weights, batch = arguments()
    loss = jax.tree.leaves(load(weights, batch))[-1]
    jax.effects_barrier()
    assert capfd.readouterr().out == f"loss {loss}\n"


def test_a_folder_cannot_hold_them(tmp_path):
    step = zpp.export(jit_step("debug.print"), *arguments())
    lines = pathlib.Path(__file__).read_text().splitlines()
    line = 1 + next(number for number, text in enumerate(lines)
                    if 'jax.debug.print("loss {}", loss)' in text)
    with pytest.raises(ValueError, match=(
            rf"calls Python of this process: debug_print at {__file__}:{line}\. .* "
            "with zpp.jit or zpp run")):
        zpp.save(zpp.rewrite(step, mesh=NODES), tmp_path / "step.zpp")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["exported", "lowered"])
def test_a_folder_holds_what_is_partitioned_by_python(form, tmp_path):
    """The rules are asked before, when zpp has the step partitioned."""
    step = jit_step("custom_partitioning")
    given = (zpp.export(step, *arguments())
             if form == "exported" else jax.jit(step).lower(*arguments()))
    result = zpp.rewrite(given, mesh=NODES)
    zpp.save(result, tmp_path / "step.zpp")
    here, there = (jax.tree.leaves(zpp.load(each)(*arguments()))
                   for each in (result.step, tmp_path / "step.zpp"))
    for left, right in zip(here, there, strict=True):
        np.testing.assert_array_equal(left, right)


def test_what_jax_cannot_export_runs_as_written():
    count = jax.new_ref(jax.device_put(0, NamedSharding(MESH, PartitionSpec())))
    plain = jit_step(None)

    def step(weights, batch):
        count[...] += 1
        return plain(weights, batch)

    fast = zpp.jit(step, mesh=NODES, schedule={1: {"gradients": "none"}})
    with pytest.warns(UserWarning, match=(
            "leaves the step as it was written, since jax.export does not take it: "
            rf"it changes a mutable array, get at {__file__}:\d+:.*; zpp run")):
        weights, loss = fast(*arguments())
    weights, loss = fast(weights, arguments()[1])
    expected, batch = arguments()
    for _ in range(2):
        expected, value = jax.jit(plain)(expected, batch)
    assert (int(count[...]), float(loss)) == (2, float(value))
    assert fast.report()["collectives"] == [] and fast.metrics() == {}
