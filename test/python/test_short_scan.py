# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A loop over few layers communicates as the same layers without a loop."""

import collections
import dataclasses

import gpt
import jax
import pytest
import zpp
from training import ALL_ON, BATCH, NODES, trainer_of

pytestmark = pytest.mark.compiler

LAYERS = 3
LARGE = gpt.Config(layers=LAYERS, width=1024, heads=4, vocab=512, context=8)


def transfers(config: gpt.Config, **options) -> collections.Counter:
    """How many transfers there are by phase, role, and number of tensors."""
    trainer = trainer_of(config)
    step = zpp.export(jax.jit(trainer.step, donate_argnums=0),
                      trainer.abstract_state(), trainer.abstract_batch(BATCH),
                      platforms=["cuda"])
    rewritten = zpp.rewrite(step, mesh=NODES, target="cuda", **ALL_ON | options)
    return collections.Counter(
        (entry["phase"], entry["role"], entry["collectives"])
        for entry in rewritten.report["schedule"] if entry["event"] == "start")


@pytest.mark.parametrize("weights", ["i8", "i4:delta"])
def test_a_layer_travels_as_without_a_loop(weights):
    loop = transfers(dataclasses.replace(LARGE, scan=True), weights=weights)
    written = transfers(LARGE, weights=weights)
    # Without a loop the embedding joins the first layer. With differences, a loop
    # gathers the bias of the second product for all layers at once.
    own = 8 if weights == "i8" else 7
    assert loop["forward", "weight", own] == LAYERS, loop
    assert written["forward", "weight", 8] == LAYERS - 1, written

    def count_gradients(found):
        return sum(count for (_, role, _), count in found.items()
                   if role == "gradient")

    assert count_gradients(loop) == count_gradients(written), (loop, written)


def test_small_weights_travel_with_differences():
    """Where the links are known, they would be faster alone without hops."""
    found = transfers(LARGE, weights="i4:delta", links="node=25gbit,gpu=400gbyte")
    # The first layer travels with the embedding, the last one with the last gain.
    assert found["forward", "weight", 8] == LAYERS - 2, found
    assert found["forward", "weight", 9] == 1, found
