# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that other libraries have jitted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from training import NODES, recorded_compilations

pytestmark = pytest.mark.compiler

WIDTH = 64
X = np.linspace(-2, 2, 16 * WIDTH, dtype=np.float32).reshape(16, WIDTH)


@pytest.fixture
def place():
    """Puts arrays on the mesh: matrices in parts, others whole."""
    mesh = jax.make_mesh((2, 4), ("node", "gpu"),
                         axis_types=(jax.sharding.AxisType.Auto,) * 2)

    def put(leaf):
        spec = (("node", "gpu"),) if leaf.ndim > 1 else ()
        return jax.device_put(np.asarray(leaf), jax.sharding.NamedSharding(
            mesh, jax.sharding.PartitionSpec(*spec)))

    return put


def check_report(step):
    entries = step.report()["collectives"]
    assert any(entry["role"] == "weight" and entry["rewritten"]
               for entry in entries)


@pytest.mark.slow
def test_equinox(place):
    equinox = pytest.importorskip("equinox")

    def train(wrap):
        model = equinox.nn.MLP(WIDTH, WIDTH, 4 * WIDTH, 1,
                               key=jax.random.key(0))
        model = jax.tree.map(
            lambda leaf: place(leaf) if equinox.is_array(leaf) else leaf, model)

        @equinox.filter_jit(donate="all-except-first")
        def step(x, model, rate, name):
            def loss_of(model):
                return jnp.mean((jax.vmap(model)(x) - x) ** 2)

            loss, gradients = equinox.filter_value_and_grad(loss_of)(model)
            updates = jax.tree.map(lambda g: -rate * g, gradients)
            # A model is arrays and functions; so are the results.
            return equinox.apply_updates(model, updates), loss, name

        step, x, losses = wrap(step), place(X), []
        for _ in range(4):
            before = model
            model, loss, name = step(x, model, 0.1, "loss")
            assert name == "loss" and model.activation is jax.nn.relu
            assert before.layers[0].weight.is_deleted()
            losses.append(float(loss))
        return step, model, x, losses

    _, _, _, expected = train(lambda step: step)
    fast, model, x, losses = train(lambda step: zpp.jit(step, mesh=NODES))
    np.testing.assert_allclose(losses, expected, rtol=1e-2)
    assert losses != expected and fast.calls == 4
    check_report(fast)
    with jax.log_compiles(), recorded_compilations() as names:
        model, _, _ = fast(x, model, 0.1, "loss")
    assert names == []
    # Static arguments are a new step; to ask for it does not run it.
    assert fast.rewritten(x, model, 0.2, "loss") is not fast.rewritten(
        x, model, 0.1, "loss")
    assert not model.layers[0].weight.is_deleted()
    assert "stablehlo" in fast.lower(x, model, 0.1, "loss").as_text()


def test_flax(place):
    nnx = pytest.importorskip("flax.nnx")
    optax = pytest.importorskip("optax")

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, rngs=rngs)
            self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

        def __call__(self, x):
            return self.down(self.dropout(nnx.relu(self.up(x))))

    def train(wrap):
        model = Model(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
        for part in (model, optimizer):
            nnx.update(part, jax.tree.map(place, nnx.state(
                part, nnx.Not(nnx.RngKey))))

        @nnx.jit(static_argnames="power")
        def step(model, optimizer, x, power):
            def loss_of(model):
                return jnp.mean((model(x) - x) ** power)

            loss, gradients = nnx.value_and_grad(loss_of)(model)
            optimizer.update(model, gradients)
            return loss

        step, x = wrap(step), place(X)
        losses = [float(step(model, optimizer, x, power=2)) for _ in range(4)]
        # The model is updated in place, with the state of its dropout.
        assert model.dropout.rngs.count.get_value() == 4
        return step, losses

    _, expected = train(lambda step: step)
    fast, losses = train(lambda step: zpp.jit(step, mesh=NODES))
    np.testing.assert_allclose(losses, expected, rtol=2e-2)
    assert losses != expected
    check_report(fast)
