# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forms in which people write a step, and what zpp makes of each.

The table "Forms of steps" in docs/using.md names each of them.
"""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

import collectives
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from conftest import ROOT
from jax._src.lib import xla_client
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from training import ALL_ON, AXES, MESH, OFF, same_bits

pytestmark = [pytest.mark.compiler,
              pytest.mark.filterwarnings("ignore:expected a step with")]

WIDTH = 64
STEPS = 3

#: Shardings of a weight, a stack of weights, and a stack of stacks.
WEIGHT, STACK, STACKS = P(AXES), P(None, AXES), P(None, None, AXES)
BATCH = P(AXES)


@dataclasses.dataclass(frozen=True)
class Form:
    #: (state, batch) -> (state, loss)
    step: Callable
    #: Shapes of the weights and how they are sharded; a pytree of pairs.
    state: Any
    #: Options of zpp that the form needs.
    options: dict = dataclasses.field(default_factory=dict)
    #: Matrices that the step gathers in the forward pass.
    matrices: int = 2
    #: How often it gathers each of them there.
    times: int = 1
    #: Bytes of a weight's element as it is gathered. What the step has quantized
    #: to one is not quantized again.
    element_bytes: int = 2
    #: Why hpZ leaves the gathers alone, or empty.
    left: str = ""
    #: Whether it gathers weights to compute with them.
    gathers: bool = True


def array(shape, spec):
    rng = np.random.default_rng(len(shape))
    values = rng.standard_normal(shape) / np.sqrt(WIDTH)
    return jax.device_put(values.astype(np.float32), NamedSharding(MESH, spec))


# How a layer gathers its weight.

def gather(weight, axis=0):
    return jax.lax.all_gather(weight.astype(jnp.bfloat16), AXES, axis=axis,
                              tiled=True).astype(jnp.float32)


def layer(weight, x):
    return jnp.tanh(x @ gather(weight))


def scaled_layer(weight, x):
    return jnp.tanh(x @ gather(weight * 0.5))


def layer_with_scale(weights, x):
    weight, scale = weights
    return jnp.tanh(x @ gather(weight * scale))


def merged_layer(weights, x):
    base, left, right = weights
    return jnp.tanh(x @ gather(base + left @ right))


def scale_of_all(weight):
    return jax.lax.pmax(jnp.max(jnp.abs(weight)), AXES) / 448


@jax.custom_vjp
def gather_as_fp8(weight):
    """A gather of a step that quantizes its weights itself, with one scale."""
    scale = scale_of_all(weight)
    quantized = (weight / scale).astype(jnp.float8_e4m3fn)
    return scale * jax.lax.all_gather(quantized, AXES, tiled=True).astype(
        jnp.float32)


gather_as_fp8.defvjp(
    lambda weight: (gather_as_fp8(weight), None),
    lambda _, gradient: (jax.lax.psum_scatter(
        gradient.astype(jnp.bfloat16), AXES, tiled=True).astype(jnp.float32),))


def layer_in_fp8(weight, x):
    return jnp.tanh(x @ gather_as_fp8(weight))


def layer_of_size_one(weight, x):
    return jnp.tanh(x @ gather(weight, axis=1)[0, :, :, 0])


# How the loss goes through the layers.

def mean(y):
    return jax.lax.pmean(jnp.mean(jnp.square(y - 0.25)), AXES)


def chain(layer, weights, x):
    """A list of layers, each with a checkpoint."""
    for weight in weights:
        x = jax.checkpoint(layer)(weight, x)
    return mean(x)


def scan(weights, x, layer=layer, checkpoint=jax.checkpoint, **options):
    """A loop over a stack of layers."""
    body = checkpoint(layer)
    x, _ = jax.lax.scan(lambda x, weight: (body(weight, x), None), x, weights,
                        **options)
    return mean(x)


def nested_scan(weights, x):
    """A loop over groups of layers, with a checkpoint around each group."""
    @jax.checkpoint
    def group(weights, x):
        return jax.lax.scan(lambda x, weight: (layer(weight, x), None), x,
                            weights)[0]

    x, _ = jax.lax.scan(lambda x, weights: (group(weights, x), None), x,
                        weights)
    return mean(x)


def gathered_at_the_top(weights, x):
    for weight in [gather(weight) for weight in weights]:
        x = jnp.tanh(x @ weight)
    return mean(x)


# How the step takes the gradient.

def update(weights, gradients):
    return jax.tree.map(lambda weight, gradient: weight - gradient, weights,
                        gradients)


def shard(function, in_specs, out_specs):
    return jax.shard_map(function, mesh=MESH, in_specs=in_specs,
                         out_specs=out_specs, check_vma=False)


def inside(loss, spec):
    """`jax.grad` inside of `shard_map`."""
    def local(weights, x):
        value, gradients = jax.value_and_grad(loss)(weights, x)
        return update(weights, gradients), value

    return shard(local, (spec, BATCH), (spec, P()))


def outside(loss, spec):
    """`jax.grad` of a `shard_map`."""
    def step(weights, x):
        value, gradients = jax.value_and_grad(
            shard(loss, (spec, BATCH), P()))(weights, x)
        return update(weights, gradients), value

    return step


def several(loss, spec):
    """Several steps of the optimizer in one loop."""
    def local(weights, x):
        def one(weights, x):
            value, gradients = jax.value_and_grad(loss)(weights, x)
            return update(weights, gradients), value

        weights, values = jax.lax.scan(one, weights,
                                       jnp.stack([x, 2 * x, -x]))
        return weights, values.mean()

    return shard(local, (spec, BATCH), (spec, P()))


def own_part(whole):
    rows = whole.shape[0] // 8
    return jax.lax.dynamic_slice_in_dim(
        whole, jax.lax.axis_index(AXES) * rows, rows)


def replicated(scatter):
    """ZeRO-1 and 2: every device has all weights, and a part of the optimizer's
    state. `scatter` gives each its part of a gradient."""
    def loss(weights, x):
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return mean(x)

    def local(state, x):
        weights, momentum = state
        value, gradients = jax.value_and_grad(loss)(weights, x)
        momentum = jax.tree.map(lambda m, gradient: 0.9 * m + scatter(gradient),
                                momentum, gradients)
        weights = jax.tree.map(
            lambda weight, m: jax.lax.all_gather(
                own_part(weight) - m, AXES, tiled=True), weights, momentum)
        return (weights, momentum), value

    spec = ([P()] * 2, SPECS)
    return shard(local, (spec, BATCH), (spec, P()))


def sum_and_slice(gradient):
    return own_part(jax.lax.psum(gradient, AXES) / 8)


def sum_in_parts(gradient):
    return jax.lax.psum_scatter(gradient, AXES, tiled=True) / 8


MATRIX = (WIDTH, WIDTH)
PAIR = [(MATRIX, WEIGHT)] * 2
SPECS = [WEIGHT] * 2
PLAIN = functools.partial(chain, layer)

FORMS = {
    "chain": Form(inside(PLAIN, SPECS), PAIR),
    "grad-outside": Form(outside(PLAIN, SPECS), PAIR),
    "grad-outside-scan": Form(outside(scan, STACK), ((3, *MATRIX), STACK),
                              matrices=3),
    "scan": Form(inside(scan, STACK), ((3, *MATRIX), STACK), matrices=3),
    "scan-one-layer": Form(inside(scan, STACK), ((1, *MATRIX), STACK),
                           matrices=1),
    "scan-unrolled": Form(
        inside(functools.partial(scan, unroll=2), STACK),
        ((4, *MATRIX), STACK), matrices=4),
    "scan-unrolled-with-a-rest": Form(
        inside(functools.partial(scan, unroll=2), STACK),
        ((5, *MATRIX), STACK), matrices=5),
    "scan-nested": Form(inside(nested_scan, STACKS),
                        ((2, 3, *MATRIX), STACKS), matrices=6),
    "scan-without-checkpoint": Form(
        inside(functools.partial(scan, checkpoint=lambda body: body), STACK),
        ((3, *MATRIX), STACK), options={"regather": True}, matrices=3),
    "scan-kept-whole": Form(
        inside(functools.partial(scan, checkpoint=lambda body: body), STACK),
        ((3, *MATRIX), STACK), matrices=3,
        left="it is gathered once; zero-regather can gather it again"),
    "scan-scaled": Form(
        inside(functools.partial(scan, layer=layer_with_scale), (STACK, P())),
        (((3, *MATRIX), STACK), ((3,), P())), matrices=3),
    "scan-merged": Form(
        inside(functools.partial(scan, layer=merged_layer),
               (STACK, STACK, P())),
        (((3, *MATRIX), STACK), ((3, WIDTH, 4), STACK), ((3, 4, WIDTH), P())),
        matrices=3),
    "several-steps": Form(several(PLAIN, SPECS), PAIR, times=3),
    "scaled": Form(inside(functools.partial(chain, scaled_layer), SPECS),
                   PAIR),
    "merged": Form(
        inside(functools.partial(chain, merged_layer),
               [(WEIGHT, WEIGHT, P())] * 2),
        [((MATRIX, WEIGHT), ((WIDTH, 4), WEIGHT), ((4, WIDTH), P()))] * 2),
    "fp8": Form(inside(functools.partial(chain, layer_in_fp8), SPECS), PAIR,
                element_bytes=1),
    "scan-fp8": Form(
        inside(functools.partial(scan, layer=layer_in_fp8), STACK),
        ((3, *MATRIX), STACK), matrices=3, element_bytes=1),
    "gathered-at-the-top": Form(inside(gathered_at_the_top, SPECS), PAIR,
                                options={"regather": True}),
    "size-one-dims": Form(
        inside(functools.partial(chain, layer_of_size_one),
               [P(None, AXES)] * 2),
        [((1, *MATRIX, 1), P(None, AXES))] * 2),
    "zero-1": Form(replicated(sum_and_slice), ([(MATRIX, P())] * 2, PAIR),
                   gathers=False),
    "zero-2": Form(replicated(sum_in_parts), ([(MATRIX, P())] * 2, PAIR),
                   gathers=False),
}


def is_leaf(node):
    return isinstance(node, tuple) and isinstance(node[-1], P)


def run(form: Form, step, steps: int = STEPS):
    state = jax.tree.map(lambda leaf: array(*leaf), form.state,
                         is_leaf=is_leaf)
    batch = array((16, WIDTH), BATCH)
    losses = []
    for _ in range(steps):
        state, loss = step(state, batch)
        losses.append(np.asarray(loss))
    return jax.tree.map(np.asarray, state), np.array(losses)


@functools.cache
def unmodified(name: str):
    return run(FORMS[name], jax.jit(FORMS[name].step))


def rewritten(name: str, **options):
    form = FORMS[name]
    return zpp.jit(form.step, target="portable", **{**options, **form.options})


def sent(report: dict, when: str, tier: str = "node", **wanted) -> int:
    """Bytes that collectives of the wanted role and phase send."""
    return sum(entry[when][tier] for entry in report["collectives"]
               if all(entry[key] == value for key, value in wanted.items()))


@pytest.mark.parametrize("name", ["chain", "scan", "scan-scaled", "grad-outside"])
def test_whole_weights_on_each_device_change_no_bit(name):
    """And no weight is sent in the backward pass, on any link."""
    fast = rewritten(name, **{**OFF, "secondary": 1})
    assert same_bits(run(FORMS[name], fast), unmodified(name))
    report = fast.report()
    assert sent(report, "after", role="weight", phase="backward") == 0
    assert sent(report, "after", "gpu", role="weight", phase="backward") == 0
    assert sent(report, "before", role="weight", phase="backward") > 0


@pytest.mark.parametrize("name", FORMS)
def test_a_secondary_partition_changes_no_bit(name):
    """hpZ alone: the same training, and nothing between nodes that was sent
    there before."""
    fast = rewritten(name, **{**OFF, "secondary": "gpu"})
    result = run(FORMS[name], fast)
    assert same_bits(result, unmodified(name))
    report = fast.report()
    form = FORMS[name]
    if not form.gathers:
        assert any("it gathers state, which is not rounded" in entry["reason"]
                   for entry in report["collectives"])
        assert report["total"]["model_bytes"] == 0
        return
    model_bytes = form.matrices * form.element_bytes * WIDTH * WIDTH
    assert report["total"]["model_bytes"] == model_bytes
    if form.left:
        assert any(form.left in entry["reason"]
                   for entry in report["collectives"])
        assert report["total"]["after"] == report["total"]["before"]
        return
    for when in "before", "after":
        assert sent(report, when, role="weight",
                    phase="forward") == form.times * model_bytes // 8
    assert sent(report, "after", role="weight", phase="backward") == 0
    assert any(entry["role"] == "weight" and entry["phase"] == "backward"
               for entry in report["collectives"])


@pytest.mark.parametrize("name", FORMS)
def test_all_of_zeropp_keeps_the_losses(name):
    fast = rewritten(name, **ALL_ON)
    _, losses = run(FORMS[name], fast)
    np.testing.assert_allclose(losses, unmodified(name)[1], rtol=0.05)
    report = fast.report()
    left = [entry for entry in report["collectives"]
            if entry["role"] != "other" and not entry["rewritten"]]
    assert not left
    most = 0.54 if FORMS[name].element_bytes > 1 else 1
    gradients = sent(report, "before", role="gradient")
    assert gradients > 0
    assert sent(report, "after", role="gradient") <= 0.29 * gradients
    if not FORMS[name].gathers:
        return
    # int8 weights, once with hpZ, and int4 gradients.
    wanted = {} if FORMS[name].left else {"phase": "forward"}
    plain = sent(report, "before", role="weight", **wanted)
    assert sent(report, "after", role="weight") <= most * plain


def run_replicas(text: str, *arguments) -> np.ndarray:
    """Runs a module of eight replicas; each argument holds those of all, one
    after the other, and so does the result."""
    module, context = collectives.parse(text)
    options = xla_client.CompileOptions()
    options.num_replicas = options.executable_build_options.num_replicas = 8
    devices = xla_client.DeviceList(tuple(jax.devices()))
    with context:
        executable = jax.devices()[0].client.compile_and_load(
            module, devices, options)
    results = executable.execute_sharded(
        [array(*argument) for argument in arguments])
    return np.concatenate([
        np.asarray(part)
        for part in results.disassemble_into_single_device_arrays()[0]])


def test_modules_of_replicas_run_as_replicas():
    """As jax.pmap of old releases and PyTorch/XLA make them."""
    path = ROOT / "test" / "Dialect" / "Guest" / "replicas.mlir"
    text = path.read_text().split("// -----")[0]
    arguments = ((256, 64), BATCH), ((32, 256), BATCH)

    def result(**options):
        return run_replicas(
            zpp.rewrite(text, mesh="node:2,gpu:4", target="portable",
                        **{**OFF, **options}).text, *arguments)

    plain = result()
    assert same_bits(result(secondary="gpu"), plain)
    quantized = result(weights="i8", gradients="i8:i4")
    assert not same_bits(quantized, plain)
    # Single elements of rotated groups may be off by more.
    assert (np.linalg.norm(quantized - plain)
            <= 0.15 * np.linalg.norm(plain))


def test_three_tiers_send_no_more_over_the_slowest():
    """Eight devices as three tiers: each carries less than the plain scatter."""
    report = zpp.jit(FORMS["chain"].step, target="portable",
                     mesh="pod:2,host:2,device:2", **{**OFF, "gradients": "i8:i4"}).report(
        [array(*leaf) for leaf in PAIR], array((16, WIDTH), BATCH))
    for tier, most in ("pod", 0.27), ("host", 0.52), ("device", 0.52):
        plain = sent(report, "before", tier, role="gradient")
        assert 0 < sent(report, "after", tier, role="gradient") <= most * plain


def test_every_form_is_in_a_row_of_the_docs():
    text = (ROOT / "docs" / "using.md").read_text()
    section = text.split("## Forms of steps")[1].split("\n## ")[0]
    cells = re.findall(r"^\|.*\| (`[^|]*`) \|$", section, re.MULTILINE)
    assert sorted(re.findall(r"`([a-z0-9-]+)`", " ".join(cells))) == sorted(FORMS)
