# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/lab/one_device.py: a program for four devices, on one of them, computes
what they compute."""

import sys

import jax
import numpy as np
import pytest
from conftest import ROOT
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from training import FUSED

sys.path.append(str(ROOT / "bench"))

import gpt
import zpp
from lab import one_device

AXES = ("node", "gpu")


def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:4]).reshape(2, 2), AXES)


def _everything(x, y):
    """Each collective over one axis and over both, along several dims."""
    found = []
    for axes in ("node", "gpu", AXES):
        whole = lax.all_gather(x, axes, axis=1, tiled=True)
        found += [
            whole.sum(1),
            lax.psum_scatter(whole * y[0, 0], axes, scatter_dimension=1,
                             tiled=True),
            lax.all_to_all(y, axes, 1, 0, tiled=True).sum(0),
            lax.all_to_all(y, axes, 1, 1, tiled=True)[0],
            lax.pmax(y, axes)[0]]
    found.append(x[0] + lax.axis_index("node") * 2 + lax.axis_index("gpu"))

    def body(carry):
        index, value = carry
        return index + 1, lax.psum(value, "gpu") * 0.5 + index

    found.append(lax.while_loop(lambda carry: carry[0] < 3, body, (0, x))[1][0])
    return tuple(part.reshape(-1) for part in found)


def test_collectives_are_those_of_four_devices():
    mesh = _mesh()
    specs = PartitionSpec(AXES), PartitionSpec("gpu", "node")
    function = jax.jit(jax.shard_map(
        _everything, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(AXES),
        check_vma=False))
    rng = np.random.default_rng(0)
    args = [rng.integers(-9, 9, shape).astype(np.float32)
            for shape in ((8, 4), (8, 16))]
    shapes = [jax.ShapeDtypeStruct(arg.shape, arg.dtype,
                                   sharding=NamedSharding(mesh, spec))
              for arg, spec in zip(args, specs)]
    step = zpp.export(function, *shapes, platforms=["cpu"])
    expected = function(*map(jax.device_put, args,
                             (shape.sharding for shape in shapes)))
    got = jax.jit(one_device.Program(step.text()))(*args)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.compiler
@pytest.mark.parametrize("options", [None, pytest.param(
    {"gradients": "i8:i4", "tuning": {"rotate": 32}}, marks=pytest.mark.slow)])
def test_step_is_that_of_four_devices(options):
    trainer = gpt.Trainer(gpt.Config(
        layers=1, mesh=(("node", 2), ("gpu", 2)), checkpoint="policy"))
    step = zpp.export(jax.jit(trainer.step), trainer.abstract_state(),
                      trainer.abstract_batch(8), platforms=["cpu"])
    if options is not None:
        step = zpp.rewrite(step, zpp.Options(
            mesh="node:2,gpu:2", target="portable", weights="i8",
            secondary="gpu", **options)).step
    four = zpp.load(step, FUSED)
    one = jax.jit(one_device.Program(step.text()), compiler_options=FUSED)
    state = trainer.init()
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    tokens = np.random.default_rng(0).integers(0, 256, (8, 33), np.int32)
    for _ in range(2):
        state, expected = four(state, trainer.batch(tokens))
        *leaves, loss = one(*leaves, tokens)
        # Nothing but the order of sums may differ.
        assert float(loss) == pytest.approx(float(expected), rel=1e-4)


def test_unknown_operations_are_named():
    step = zpp.export(jax.jit(lax.sort), jax.ShapeDtypeStruct((4,), np.float32),
                      platforms=["cpu"])
    with pytest.raises(NotImplementedError, match="stablehlo.sort"):
        jax.jit(one_device.Program(step.text()))(np.zeros(4, np.float32))
