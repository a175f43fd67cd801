# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops that become layers, and those around them: what the runtime gathers before
a layer needs it changes no bit. Neither do calls in branches."""

import functools

import jax
import jax.numpy as jnp
import pytest
import test_forms as forms
import zpp
from startwait import needs_library
from training import ALL_ON, same_bits

pytestmark = [pytest.mark.compiler, needs_library,
              pytest.mark.filterwarnings("ignore:expected a step with")]

LAYERS = 5
MATRIX = forms.MATRIX


def deep_scan(weights, x):
    """Micro-batches around the loop over layers."""
    def micro_batch(total, part):
        return total + forms.scan(weights, part), None

    return jax.lax.scan(micro_batch, 0.0,
                        x.reshape(2, -1, *x.shape[1:]))[0] / 2


def around(loss, spec):
    """Micro-batches around `jax.grad` of a `shard_map`."""
    local = forms.shard(loss, (spec, forms.BATCH), forms.P())

    def step(weights, x):
        def one(total, factor):
            return jax.tree.map(jnp.add, total, jax.value_and_grad(local)(
                weights, factor * x)), None

        total = 0.0, jnp.zeros_like(weights)
        value, gradients = jax.lax.scan(one, total, jnp.array([1.0, 2.0, -1.0]))[0]
        return forms.update(weights, gradients), value

    return step


def stored(parts: int):
    """Micro-batches that store the gradients of weights that are gathered once."""
    def local(weights, x):
        whole = [forms.gather(weight) for weight in weights]

        def loss(whole, part):
            for weight in whole:
                part = jnp.tanh(part @ weight)
            return forms.mean(part)

        def one(total, part):
            value, gradients = jax.value_and_grad(loss)(whole, part)
            return total + value, [
                jax.lax.psum_scatter(gradient, forms.AXES, tiled=True)
                for gradient in gradients]

        value, gradients = jax.lax.scan(
            one, 0.0, x.reshape(parts, -1, *x.shape[1:]))
        return forms.update(weights, [each.mean(0) for each in gradients]), value

    return forms.Form(forms.shard(local, (forms.SPECS, forms.BATCH),
                                  (forms.SPECS, forms.P())), forms.PAIR)


def policy(name: str):
    return functools.partial(jax.checkpoint,
                             policy=getattr(jax.checkpoint_policies, name))


def form(scan, layers, spec=forms.STACK, wrap=forms.inside, **options):
    scan = functools.partial(scan, **options) if options else scan
    return forms.Form(wrap(scan, spec), ((layers, *MATRIX), spec),
                      matrices=layers)


FORMS = {
    "scan": form(forms.scan, LAYERS),
    "unrolled": form(forms.scan, 2 * LAYERS, unroll=2),
    "unrolled-with-a-rest": form(forms.scan, 2 * LAYERS + 1, unroll=2),
    "outside": form(forms.scan, LAYERS, wrap=forms.outside),
    # Calls that read nothing of the iteration stay in it.
    "around": form(forms.scan, LAYERS, wrap=around),
    "policy-dots": form(forms.scan, LAYERS, checkpoint=policy("dots_saveable")),
    "policy-everything-again":
        form(forms.scan, LAYERS, checkpoint=policy("nothing_saveable")),
    "micro-batches": form(deep_scan, LAYERS),
    "nested": forms.Form(forms.inside(forms.nested_scan, forms.STACKS),
                         ((2, LAYERS, *MATRIX), forms.STACKS)),
}


#: Forms in which each layer has differences of its own, rather than all together
#: before the loop.
AS_LAYERS = {"scan", "unrolled", "policy-dots", "policy-everything-again",
             "micro-batches"}
#: In a loop that is not in the shard_map, weights are sent whole.
WHOLE = {"around"}


@pytest.mark.filterwarnings("ignore:weights=i4.delta. of the bytes of weights, none")
@pytest.mark.parametrize("name, weights", [
    *((name, "i4:delta") for name in FORMS),
    *(pytest.param(name, "i8", marks=pytest.mark.slow)
      for name in ("scan", "outside", "nested"))])
def test_gathers_of_a_loop_change_no_bit(name, weights):
    """Against XLA's collectives, with all layers gathered before the loop."""
    form = FORMS[name]
    options = {"mesh": forms.MESH, **ALL_ON,
               "weights": weights}
    fast = zpp.jit(form.step, target="cpu", **options)
    assert same_bits(forms.run(form, fast), forms.run(
        form, zpp.jit(form.step, target="portable", **options)))
    # The backward loop sends nothing between the nodes.
    report = fast.report()
    assert forms.sent(report, "before", role="weight", phase="backward") > 0
    assert forms.sent(report, "after", role="weight", phase="backward") == 0
    if weights == "i4:delta" and name not in WHOLE:
        # Single layers, or layers in the dim of the weight.
        layouts = fast.rewritten().step.state.layouts.values()
        assert (MATRIX in {layout.shape for layout in layouts}) == (
            name in AS_LAYERS)


@pytest.mark.parametrize("wrap", [forms.inside, forms.outside])
def test_branches_change_no_bit(wrap):
    """Which layer is next follows from the batch, and is known on all devices."""
    def loss(weights, x):
        first, left, right, *rest = weights
        layer = jax.checkpoint(forms.layer)
        x = layer(first, x)
        is_positive = jax.lax.pmean(jnp.mean(x), forms.AXES) > 0
        x = jax.lax.cond(is_positive, lambda x: layer(left, x),
                         lambda x: layer(right, x), x)
        for weight in rest:
            x = layer(weight, x)
        return forms.mean(x)

    spec = [forms.P(forms.AXES)] * 6
    form = forms.Form(wrap(loss, spec), [(forms.MATRIX, part) for part in spec],
                      matrices=6)
    fast, portable = (
        zpp.jit(form.step, target=target, mesh=forms.MESH,
                **ALL_ON) for target in ("cpu", "portable"))
    assert same_bits(forms.run(form, fast), forms.run(form, portable))
    assert fast.report()["schedule"]


def test_micro_batches_that_store_gradients_change_no_bit():
    form = stored(2)
    options = {"mesh": forms.MESH, **ALL_ON,
               "secondary": "none"}
    fast, portable = (zpp.jit(form.step, target=target, **options)
                      for target in ("cpu", "portable"))
    assert same_bits(forms.run(form, fast), forms.run(form, portable))
    gradients = [entry for entry in fast.report()["collectives"]
                 if entry["role"] == "gradient"]
    assert len(gradients) == 2 and all(entry["rewritten"] for entry in gradients)


def test_micro_batches_that_store_gradients_are_compiled_once():
    def text(parts):
        form = stored(parts)
        weights = [jax.ShapeDtypeStruct(shape, jnp.float32)
                   for shape, _ in form.state]
        batch = jax.ShapeDtypeStruct((16 * parts, forms.WIDTH), jnp.float32)
        step = zpp.export(jax.jit(form.step), weights, batch, platforms=["cuda"])
        return zpp.rewrite(step, mesh=forms.MESH, target="cuda").text

    assert len(text(100)) < 1.1 * len(text(10))
