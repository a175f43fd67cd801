# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains the example as written and as ZeRO++, side by side."""

import math

import collectives
import jax
import numpy as np
import pytest
import zpp
from selection import others_slow
from startwait import needs_library
from training import ALL_ON, BATCH, NODES, OFF, assert_rewritten
from training import baseline, same_bits, tokens, train, trainer_of
from training import with_options

pytestmark = pytest.mark.compiler

SMALL = with_options(layers=1)

TECHNIQUES = {
    "nothing": OFF,
    "qwZ": {**OFF, "weights": "i8"},
    "hpZ": {**OFF, "secondary": "gpu"},
    "qwZ and hpZ": {**ALL_ON, "gradients": "none"},
    "qgZ": {**OFF, "gradients": "i8:i4"},
    "qgZ in one hop": {**OFF, "gradients": "i8"},
    "two hops": {**OFF, "gradients": "none:none"},
    "all": ALL_ON,
}

#: Relative difference of the loss after STEPS steps. Where the wire carries
#: what it carried before, only sums may run in another order.
LOSS_TOLERANCE = {
    "nothing": 0, "hpZ": 0, "two hops": 1e-3, "qwZ": 1e-3, "qwZ and hpZ": 1e-3}

#: Ways to write a step, all with everything on.
MODELS = {
    "no checkpoint": {"checkpoint": "none"},
    "policy checkpoint": {"checkpoint": "policy"},
    "scan": {"scan": True},
    "scan without barrier": {"scan": True, "prevent_cse": False},
    "scan without checkpoint": {"scan": True, "checkpoint": "none"},
    "jitted layers": {"jit_layer": True},
    "weights cast early": {"cast_early": True, "layers": 1},
    "gathered along dim 1": {"gather_dim": 1, "layers": 1},
    "micro-batches": {"accumulate": 2, "layers": 1},
    "micro-batches, scan": {"accumulate": 2, "scan": True},
    "f16": {"dtype": "float16", "layers": 1},
    "f32": {"dtype": "float32", "layers": 1},
    "momentum": {"optimizer": "sgd", "learning_rate": 0.05, "layers": 1},
}

#: (axes of the step's mesh, the compiler's mesh, other options)
MESHES = {
    "1-D": ((("data", 8),), "node:2,gpu:4", {}),
    "1-D as 4x2": ((("data", 8),), "node:4,gpu:2", {}),
    "1-D as three tiers": ((("data", 8),), "rack:2,node:2,gpu:2",
                           {"secondary": 4}),
    "4x2": ((("node", 4), ("gpu", 2)), None, {}),
    "three tiers": ((("rack", 2), ("node", 2), ("gpu", 2)), None,
                    {"gradients": "i8:i8:i4"}),
    "three tiers, wide secondary": (
        (("rack", 2), ("node", 2), ("gpu", 2)), None, {"secondary": "node"}),
    "tensor": ((("node", 2), ("gpu", 2), ("tensor", 2)),
               "node:2,gpu:2,tensor:2", {}),
    "tensor in the middle": ((("node", 2), ("tensor", 2), ("gpu", 2)),
                             "node:2,tensor:2,gpu:2", {}),
    "one node": ((("node", 1), ("gpu", 8)), None, {}),
    "two devices": ((("node", 2), ("gpu", 1)), None, {"secondary": "none"}),
}


def check(config, options, tolerance=1e-2, target="portable"):
    """Trains with `options`; returns the jitted step."""
    trainer = trainer_of(config)
    fast = zpp.jit(trainer.step, donate_argnums=0, target=target, **options)
    run, expected = train(trainer, fast), baseline(config)
    np.testing.assert_allclose(run.losses, expected.losses, rtol=tolerance)
    assert run.losses[-1] < run.losses[0]
    assert run.dtypes == expected.dtypes
    assert run.ranks_agree
    assert jax.tree.all(jax.tree.map(
        lambda array, a, b: a.is_equivalent_to(b, array.ndim), run.state,
        run.shardings, expected.shardings))
    return fast, run


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_technique(technique):
    fast, run = check(SMALL, {"mesh": NODES, **TECHNIQUES[technique]},
                      LOSS_TOLERANCE.get(technique, 1e-2))
    if technique in ("nothing", "hpZ"):
        assert same_bits(run.state, baseline(SMALL).state)
    options = TECHNIQUES[technique]
    if options["gradients"] != "none":
        assert_rewritten(fast.report(), "gradient")
    if options["weights"] != "none":
        assert_rewritten(fast.report(), "weight")
    wanted = {"gradient"} if options["gradients"] != "none" else set()
    if options["weights"] != "none" or options["secondary"] != "none":
        wanted.add("weight")
    assert wanted == {entry["role"] for entry in
                      fast.report()["collectives"] if entry["rewritten"]}


# What is rewritten does not depend on the target, but XLA compiles portable steps, with
# all their arithmetic, for several times as long.
@needs_library
@pytest.mark.parametrize("model", others_slow(
    MODELS, "scan", "micro-batches", "f16"))
def test_model(model):
    fast, _ = check(with_options(**MODELS[model]), {"mesh": NODES, **ALL_ON},
                    target="cpu")
    assert_rewritten(fast.report(), "weight")
    assert_rewritten(fast.report(), "gradient")


# Over "tensor", gains and embeddings are replicated: devices have to agree about them.
@needs_library
@pytest.mark.parametrize("mesh", others_slow(
    MESHES, "1-D as three tiers", "tensor", "one node", "two devices"))
def test_mesh(mesh):
    axes, tiers, options = MESHES[mesh]
    check(with_options(mesh=axes, layers=1), {"mesh": tiers, **ALL_ON, **options},
          target="cpu")


def test_regather_makes_zero3_of_a_step_without_checkpoint():
    config = with_options(checkpoint="none")
    fast, run = check(config, {"mesh": NODES, **OFF, "regather": True},
                      tolerance=0)
    assert same_bits(run.state, baseline(config).state)

    def gathers(text):
        return collectives.count(text)["all_gather"]

    written = jax.jit(trainer_of(config).step).lower(
        trainer_of(config).abstract_state(),
        trainer_of(config).abstract_batch(BATCH)).as_text()
    assert gathers(fast.rewritten().text) > gathers(written)


def test_what_is_left_alone_computes_the_same_bits():
    fast, run = check(SMALL, {"mesh": NODES, **ALL_ON,
                              "links": "node=400gbyte,gpu=400gbyte"},
                      tolerance=0)
    assert same_bits(run.state, baseline(SMALL).state)
    assert not any(entry["rewritten"]
                   for entry in fast.report()["collectives"])


def test_two_runs_are_bit_equal():
    options = {"mesh": NODES, **ALL_ON}
    first, second = (check(SMALL, options)[1] for _ in range(2))
    assert same_bits(first.losses, second.losses)
    assert same_bits(first.state, second.state)


@pytest.mark.matrix
@pytest.mark.parametrize("rotate", [0, 32])
@pytest.mark.parametrize("mesh", ["1-D", "three tiers"])
def test_gradients_are_within_the_derived_bound(mesh, rotate):
    """With momentum the state after one step holds the gradient itself.

    Element by element, a hop errs by at most half a step of the scale per
    contribution: amax / (2 qmax) * (1 + 2^-7), and its sum carries on what the
    hop before it erred. The bound takes amax over whole tensors, from what
    every rank contributed. Rotation keeps norms, so that there it is the one of
    getReduceErrorBound.
    """
    axes, tiers, _ = MESHES[mesh]
    config = with_options(mesh=axes, layers=1, optimizer="sgd",
                          dtype="float32")
    trainer = trainer_of(config)
    batch = tokens(config, 0)
    options = {**OFF, "gradients": "i8:i4", "mesh": tiers,
               "tuning": {"rotate": rotate}}
    step = jax.jit(trainer.step)
    fast, _ = zpp.jit(trainer.step, **options)(
        trainer.init(), trainer.batch(batch))
    exact, _ = step(trainer.init(), trainer.batch(batch))

    # One rank contributes only the gradient of its part of the batch. A batch
    # that repeats this part eight times has it as its mean.
    parts = []
    for part in np.split(batch, 8):
        alone, _ = step(trainer.init(),
                        trainer.batch(np.tile(part, (8, 1))))
        parts.append(jax.tree.map(lambda leaf: np.asarray(leaf) / 8,
                                  alone["m"]))
    slack = 1 + 2**-7 + 2**-13
    sizes = [int(tier.split(":")[1]) for tier in
             (tiers or "rack:2,node:2,gpu:2").split(",")]

    def bound(*contributions):
        held = np.stack(contributions).reshape(*sizes, -1)
        error = 0.0
        for hop, size in enumerate(reversed(sizes)):
            qmax = 127 if hop + 1 < len(sizes) else 7
            amax = np.abs(held).max() + error
            error = size * (error + amax / (2 * qmax) * slack)
            held = held.sum(axis=len(sizes) - 1 - hop)
        return error

    def norm_bound(*contributions):
        growth = 1.0
        for hop in range(len(sizes)):
            half = (1 + 2**-7) / (2 * (127 if hop + 1 < len(sizes) else 7))
            growth *= 1 + half * math.sqrt(128 / (1 + 127 * half**2))
        return (growth - 1) * sum(map(np.linalg.norm, contributions))

    def check_leaf(fast, exact, *contributions):
        if rotate:
            error = np.linalg.norm(np.asarray(fast) - np.asarray(exact))
            limit = norm_bound(*contributions)
            assert error <= 1.001 * limit, (error, limit)
            return
        limit = bound(*contributions)
        # The f32 sums of two programs differ in their last bits.
        rounding = 1e-5 * np.abs(np.asarray(exact)).max()
        worst = np.abs(np.asarray(fast) - np.asarray(exact)).max()
        assert worst <= limit + rounding, (worst, limit)

    jax.tree.map(check_leaf, fast["m"], exact["m"], *parts)
