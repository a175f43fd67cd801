# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Export and load, without the compiler between them."""

import jax
import numpy as np
import pytest
import zpp
from selection import others_slow
from training import BATCH, TINY, baseline, same_bits
from training import tokens, train, trainer_of, with_options
from zpp.jax._load import load_flat

MODELS = {
    "layers": TINY,
    "scan": with_options(scan=True, checkpoint="none"),
    "jitted layers": with_options(jit_layer=True, dtype="float16"),
    "tensor parallel": with_options(
        layers=1, mesh=(("node", 2), ("gpu", 2), ("tensor", 2)), optimizer="sgd"),
}

SMALL = with_options(layers=1)


def exported(trainer, **jit_options) -> zpp.Step:
    return zpp.export(jax.jit(trainer.step, **jit_options),
                      trainer.abstract_state(), trainer.abstract_batch(BATCH))


@pytest.mark.parametrize("model", others_slow(
    MODELS, "layers", "scan", "jitted layers"))
def test_round_trip_through_text_is_bit_identical(model):
    trainer = trainer_of(MODELS[model])
    step = exported(trainer, donate_argnums=0)
    reloaded = zpp.load(step.with_text(step.text()))
    run, expected = train(trainer, reloaded), baseline(MODELS[model])
    assert same_bits(run.losses, expected.losses)
    assert same_bits(run.state, expected.state)
    assert run.dtypes == expected.dtypes
    assert jax.tree.all(jax.tree.map(
        lambda array, a, b: a.is_equivalent_to(b, array.ndim), run.state,
        run.shardings, expected.shardings))


def test_text_is_generic_and_knows_source_lines():
    step = exported(trainer_of(TINY))
    text = step.text()
    assert '= "stablehlo.all_gather"(' in text
    assert "gpt.py" in text
    assert "gpt.py" not in step.text(locations=False)


def test_donated_arguments_are_consumed_and_aliased():
    trainer = trainer_of(SMALL)
    step = exported(trainer, donate_argnums=0)
    state, batch = trainer.init(), trainer.batch(tokens(TINY, 0))
    zpp.load(step)(state, batch)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    assert not batch.is_deleted()

    arguments = trainer.abstract_state(), trainer.abstract_batch(BATCH)
    original = jax.jit(trainer.step, donate_argnums=0).lower(*arguments)
    loaded = load_flat(step).lower(*jax.tree.leaves(arguments))
    expected, aliased = (
        lowered.compile().memory_analysis().alias_size_in_bytes
        for lowered in (original, loaded))
    assert aliased == expected > 0


def test_nothing_is_donated_unless_asked_for():
    trainer = trainer_of(SMALL)
    state, batch = trainer.init(), trainer.batch(tokens(TINY, 0))
    zpp.load(exported(trainer))(state, batch)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(state))


def test_devices_come_from_the_step_where_arguments_have_none():
    trainer = trainer_of(SMALL)
    state = jax.tree.map(np.asarray, trainer.init())
    batch = tokens(TINY, 0).astype(np.int32)
    step = zpp.export(trainer.step, state, batch)
    assert step.mesh == trainer.mesh
    expected = jax.jit(trainer.step)(state, batch)
    assert same_bits(zpp.load(step)(state, batch), expected)


def test_arguments_of_another_structure_are_an_error():
    step = zpp.export(lambda a, b: a + b["x"], 1.0, {"x": 2.0})
    assert zpp.load(step)(1.0, {"x": 2.0}) == 3.0
    with pytest.raises(TypeError, match="expected arguments of the structure"):
        zpp.load(step)(1.0, {"y": 2.0})


def test_shardings_asked_for_survive():
    trainer = trainer_of(TINY)
    data = jax.sharding.NamedSharding(trainer.mesh,
                                      jax.sharding.PartitionSpec("gpu"))
    whole = jax.sharding.NamedSharding(trainer.mesh,
                                       jax.sharding.PartitionSpec())
    function = jax.jit(lambda x: (x + 1, x.astype("bfloat16")),
                       in_shardings=data, out_shardings=(whole, data))
    argument = np.arange(8, dtype=np.float32)
    results = zpp.load(zpp.export(function, argument))(
        jax.device_put(argument, data))
    assert [result.sharding for result in results] == [whole, data]
    assert results[1].dtype == "bfloat16"
