# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains the example with target cpu: the compiler's program for target cuda,
executed by libzpp_xla and the runtime's cpu back end."""

import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from jax.sharding import PartitionSpec as P
from selection import others_slow
from startwait import needs_library
from test_training import MESHES, MODELS, TECHNIQUES
from training import ALL_ON, AXES, BATCH, MESH, NODES, OFF, TINY, baseline
from training import compiler_options, same_bits, tokens, train
from training import trainer_of, with_options

pytestmark = [pytest.mark.compiler, needs_library]

SMALL = with_options(layers=1)


def jitted(config, target, **options):
    return zpp.jit(trainer_of(config).step, target=target, donate_argnums=0,
                   compiler_options=compiler_options(config),
                   **{"mesh": NODES, **options})


def check(config, options, steps=4):
    """Trains with both targets; returns the runtime's step and run.

    The runtime's arithmetic is that of the portable program to the bit; XLA's
    own may round elsewhere, where it fuses differently."""
    trainer = trainer_of(config)
    fast = jitted(config, "cpu", **options)
    run = train(trainer, fast, steps)
    portable = train(trainer, jitted(config, "portable", **options), steps)
    np.testing.assert_allclose(run.losses, portable.losses, rtol=1e-3)
    assert run.losses[0] == portable.losses[0]
    assert run.ranks_agree
    assert run.dtypes == portable.dtypes
    assert jax.tree.all(jax.tree.map(
        lambda array, a, b: a.is_equivalent_to(b, array.ndim), run.state,
        run.shardings, portable.shardings))
    return fast, run


@pytest.mark.parametrize("technique", others_slow(
    TECHNIQUES, "nothing", "hpZ", "two hops", "all"))
def test_technique(technique):
    fast, _ = check(SMALL, TECHNIQUES[technique])
    functions = fast.rewritten().bundle.manifest["functions"]
    rewritten = [entry for entry in fast.report()["collectives"]
                 if entry["rewritten"]]
    assert bool(functions) == bool(rewritten)


@pytest.mark.parametrize("model", others_slow(
    ["gathered along dim 1", "micro-batches, scan", "f16"],
    "micro-batches, scan", "f16"))
def test_model(model):
    check(with_options(**MODELS[model]), ALL_ON)


@pytest.mark.parametrize("mesh", others_slow(
    ["1-D as three tiers", "tensor in the middle", "two devices"], "two devices"))
def test_mesh(mesh):
    axes, tiers, options = MESHES[mesh]
    check(with_options(mesh=axes, layers=1),
          {**ALL_ON, **options, "mesh": tiers})


@pytest.mark.slow
def test_a_longer_training_follows_the_portable_one():
    """Every loss within 0.1 %, and 1 % of the step as written."""
    config = with_options(layers=1, learning_rate=3e-3)
    _, run = check(config, ALL_ON, steps=30)
    trainer = trainer_of(config)
    expected = train(trainer, jax.jit(trainer.step), 30)
    np.testing.assert_allclose(run.losses, expected.losses, rtol=1e-2)
    assert run.losses[-1] < 0.8 * run.losses[0]


def test_complex_numbers_beside_transfers():
    """A start waits for what is computed before it: a Fourier transform, too."""
    def layer(x, weight):
        whole = jax.lax.all_gather(weight, AXES, tiled=True)
        product = jnp.fft.rfft(x) * jnp.fft.rfft(whole)
        return x + jnp.tanh(jnp.fft.irfft(product, n=x.shape[1])), None

    def step(weights, x):
        slopes = jax.grad(lambda weights: jnp.mean(jax.lax.scan(
            jax.checkpoint(layer), x, weights)[0] ** 2))(weights)
        return weights - slopes / 8

    mapped = jax.shard_map(step, mesh=MESH, in_specs=(P(None, AXES), P(AXES)),
                           out_specs=P(None, AXES), check_vma=False)
    random = np.random.default_rng(0)
    arguments = [scale * random.normal(size=shape).astype(np.float32)
                 for scale, shape in ((0.03, (3, 1024)), (1, (16, 1024)))]
    exact = jax.jit(mapped)
    runs = zpp.jit(mapped, mesh=NODES, target="cpu", gradients="i8")
    moved = exact(*arguments) - arguments[0]
    error = np.linalg.norm(runs(*arguments) - exact(*arguments))
    assert error < 0.2 * np.linalg.norm(moved)
    assert runs.rewritten().bundle.manifest["functions"]


def test_quantized_gradients_are_bit_equal_to_portable_ones():
    """After one step the momentum holds the gradients. Those that are too small
    to quantize are sums in another order: portable ones are XLA's."""
    config = with_options(layers=1, optimizer="sgd", dtype="float32")
    trainer = trainer_of(config)
    results = []
    for target in ("cpu", "portable"):
        step = jitted(config, target, **OFF | {"gradients": "i8:i4"})
        state, _ = step(trainer.init(), trainer.batch(tokens(config, 0)))
        results.append(state["m"])

    def check_leaf(ours, portable):
        if ours.ndim == 2:
            assert same_bits(ours, portable)
        else:
            np.testing.assert_allclose(ours, portable, atol=1e-8)

    jax.tree.map(check_leaf, *results)


@pytest.mark.parametrize("model", [{}, {"scan": True}], ids=["layers", "scan"])
def test_collectives_of_xla_come_behind_the_last_wait(model):
    """Wide enough that only the loss's sum stays with XLA: ranks call the
    functions of starts beside it."""
    trainer = trainer_of(with_options(width=512, heads=4, **model))
    text = jitted(trainer.config, "cpu", **ALL_ON).lower(
        trainer.abstract_state(), trainer.abstract_batch(BATCH)
    ).compile().as_text()
    assert "is_scheduled=true" in text
    assert "deferrable = true" in text and "deferrable = false" not in text
    entry = text[text.index("\nENTRY"):]
    calls = re.findall(r'"(zpp\.wait|zpp\.start)"| (all-[a-z]+|reduce-scatter'
                       r'|collective-[a-z]+)(?:-start)?\(', entry)
    assert [call for _, call in calls if call] == ["all-reduce"]
    assert calls[-1] == ("", "all-reduce")
    assert "all-" not in text[:text.index("\nENTRY")]


def train_in_place(config, **options):
    """A step as it is, and one in which nothing is in flight beside what needs it, after
    a step. Gradients of gains and biases are sums of XLA's, which may be in another
    order."""
    moved = jitted(config, "cpu", **ALL_ON | options)
    left = jitted(config, "cpu", tuning={"prefetch_bytes": 0}, **ALL_ON | options)
    runs = [train(trainer_of(config), step, 1) for step in (moved, left)]
    assert runs[0].losses == runs[1].losses

    def check_leaf(path, *gradients):
        if path[-1].key in ("embed", "qkv", "proj", "up", "down"):
            assert same_bits(*gradients), path
        else:
            np.testing.assert_allclose(*gradients, atol=1e-8)

    jax.tree_util.tree_map_with_path(
        check_leaf, *(run.state["m"] for run in runs))
    return moved, left


@pytest.mark.parametrize("layers", [1, 3])
def test_short_loops_become_layers(layers):
    moved, _ = train_in_place(with_options(dtype="float32", scan=True, layers=layers))
    schedule = moved.report()["schedule"]
    assert all(entry["trips"] == 1 for entry in schedule)
    waits = [entry["function"] for entry in schedule
             if entry["event"] == "wait" and entry["role"] == "gradient"]
    assert max(map(waits.count, waits)) == layers


def test_a_bf16_loop_is_bit_equal_to_a_portable_one():
    """Of gradients that are too small to quantize, portable ones are sums in
    another order: bf16 rounds the difference away. Each travels alone: with
    others, they are quantized between nodes. Two steps: what XLA compiles of the
    two programs is not the same outside of the loops either, and in the third
    step a sum of the embedding's gradients is rounded the other way. The layers are too
    many to be written without a loop."""
    trainer = trainer_of(with_options(scan=True, layers=129, mesh=(("node", 2), ("gpu", 2))))
    ours, portable = (
        train(trainer, jitted(trainer.config, target,
                              tuning={"coalesce_bytes": 0},
                              **ALL_ON | {"mesh": None}), 2)
        for target in ("cpu", "portable"))
    assert same_bits((ours.losses, ours.state), (portable.losses, portable.state))


def test_two_runs_are_bit_equal():
    trainer = trainer_of(SMALL)
    first, second = (train(trainer, jitted(SMALL, "cpu", **ALL_ON))
                     for _ in range(2))
    assert same_bits((first.losses, first.state), (second.losses, second.state))


def test_steps_on_the_same_devices_share_a_world():
    trainer = trainer_of(SMALL)
    worlds = []
    for options in (ALL_ON, OFF | {"weights": "i8"}):
        jitted(SMALL, "cpu", **options)(
            trainer.init(), trainer.batch(tokens(TINY, 0)))
        worlds.append(len(zpp.jax._runtime._worlds))
    assert worlds[0] == worlds[1]


def test_schedule():
    """Both variants are bundles of one world."""
    trainer = trainer_of(SMALL)
    fast = jitted(SMALL, "cpu", **ALL_ON, schedule={2: {"gradients": "none"}})
    run = train(trainer, fast)
    expected = baseline(SMALL)
    np.testing.assert_allclose(run.losses, expected.losses, rtol=1e-2)
    variants = next(iter(fast._latest.loaded.values()))
    assert len({variant.rewritten.bundle.id for variant in variants}) == 2


def test_saved_from_python_and_from_the_command_line(tmp_path):
    trainer = trainer_of(SMALL)
    step = zpp.export(jax.jit(trainer.step), trainer.abstract_state(),
                      trainer.abstract_batch(BATCH))
    rewritten = zpp.rewrite(step, mesh=NODES, target="cpu", **ALL_ON)
    arguments = trainer.init(), trainer.batch(tokens(TINY, 0))
    expected = zpp.load(rewritten.step)(*arguments)
    zpp.save(rewritten, tmp_path / "step.zpp")
    assert same_bits(zpp.load(tmp_path / "step.zpp")(*arguments), expected)
    # The same without JAX's part.
    (tmp_path / "step.zpp" / "step.jax").unlink()
    (tmp_path / "step.zpp" / "jax.json").unlink()
    flat = zpp.load(tmp_path / "step.zpp")(*jax.tree.leaves(arguments))
    assert same_bits(flat, jax.tree.leaves(expected))


def test_traces_name_collectives_and_source_lines(tmp_path):
    trainer = trainer_of(SMALL)
    fast = jitted(SMALL, "cpu", **ALL_ON)
    with zpp.trace(tmp_path / "trace.json"):
        fast(trainer.init(), trainer.batch(tokens(TINY, 0)))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["name"] for event in events if event["ph"] == "X"}
    for kind in ("quantize", "all_gather_chunks", "all_to_all",
                 "dequantize_reduce"):
        assert any(name.startswith(kind) and "gpt.py:" in name
                   for name in names), (kind, names)


def test_a_missing_zpp_bundle_is_named(monkeypatch, tmp_path):
    compiler = pathlib.Path(zpp.find_compiler())
    (tmp_path / "zpp-opt").symlink_to(compiler)
    monkeypatch.setenv("ZPP_OPT", str(tmp_path / "zpp-opt"))
    step = zpp.export(lambda x: x, 1.0)
    with pytest.raises(FileNotFoundError, match="zpp-bundle beside zpp-opt"):
        zpp.rewrite(step, mesh="node:1", target="cpu")
