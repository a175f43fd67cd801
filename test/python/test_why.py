# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/why.md: an entry for each reason in the sources, and advice that helps."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
import zpp
from conftest import ROOT
from jax.sharding import NamedSharding, PartitionSpec
from training import AXES, MESH, NODES, array

#: A text that a decision or a rule gives as its reason, up to its first variable part.
_REASON = re.compile(
    r'(?:Rule::\w+,\s*|LeftAlone\(|leaveAlone\(\w+, getArgument\(\),)\s*\(*'
    r'(?:Twine\()?\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')

ROWS, WHOLE = PartitionSpec(AXES), PartitionSpec()


def entries():
    return re.findall(r"^\| `([^`]+)`", (ROOT / "docs" / "why.md").read_text(), re.M)


def reasons():
    return {"".join(_LITERAL.findall(match[1]))
            for path in (ROOT / "lib").rglob("*.cpp") if "Runtime" not in path.parts
            for match in _REASON.finditer(path.read_text())}


def test_each_reason_has_an_entry():
    found = reasons()
    assert len(found) > 80
    missing = [reason for reason in sorted(found)
               if not any(reason.startswith(entry) for entry in entries())]
    assert missing == []


def test_each_entry_is_a_reason():
    sources = "".join(re.sub(r'"\s*"', "", path.read_text())
                      for path in (ROOT / "lib").rglob("*.cpp"))
    assert [entry for entry in entries() if entry not in sources] == []


def forward(weights, batch):
    y = batch
    for weight in weights:
        y = jax.lax.with_sharding_constraint(
            jnp.tanh(y @ weight), NamedSharding(MESH, ROWS))
    return jnp.mean(y**2)


def zero1(weights, batch):
    """Replicated weights, of which each device updates a slice."""
    replicated = NamedSharding(MESH, WHOLE)
    gradients = jax.lax.with_sharding_constraint(
        jax.grad(forward)(weights, batch), NamedSharding(MESH, ROWS))
    return [jax.lax.with_sharding_constraint(
        jax.lax.with_sharding_constraint(w, NamedSharding(MESH, ROWS)) - 0.1 * g,
        replicated) for w, g in zip(weights, gradients, strict=True)]


@pytest.mark.compiler
@pytest.mark.parametrize("step, spec, reason, advice, advised", [
    (forward, ROWS, "no gradient is computed from it", {"weights_of": (0, 1)}, None),
    (zero1, WHOLE, "it gathers state", {"updated": "i8"}, "updated=i8"),
], ids=["evaluation", "zero1"])
def test_following_the_advice_helps(step, spec, reason, advice, advised, recwarn):
    exported = zpp.export(jax.jit(step, donate_argnums=() if step is forward else 0),
                          [array((64, 64), spec), array((64, 64), spec) + 0.01],
                          array((16, 64), ROWS))
    before = zpp.rewrite(exported, mesh=NODES)
    assert any(reason in entry["reason"] or "seems to be data" in entry["reason"]
               for entry in before.left_alone)
    if advised:
        assert any(advised in str(each.message) for each in recwarn)
    after = zpp.rewrite(exported, mesh=NODES, **advice)
    sent = [each.report["total"]["after"]["node"] for each in (before, after)]
    assert sent[1] < 0.7 * sent[0]


def gather(weight, axes=AXES):
    return jax.lax.all_gather(weight, axes, tiled=True)


def layers(weights, x, gather=gather):
    @jax.checkpoint
    def layer(x, weight):
        return jnp.tanh(x @ gather(weight))

    for weight in weights:
        x = layer(x, weight)
    return jnp.mean((x - jnp.sin(x + 1)) ** 2)


def descend(weights, gradients):
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]


def with_table(weights, table, x):
    """A table that the step returns as it came, and only adds."""
    slopes = jax.grad(lambda weights: layers(weights, x + gather(table)[:2]))(weights)
    return descend(weights, slopes), table


def with_average(weights, average, x):
    """A matrix that the step updates with something else than gradients."""
    def loss(weights):
        return layers(weights, x @ gather(average))

    moments = jax.lax.psum_scatter(jnp.sin(x).T @ jnp.cos(2 * x), AXES, tiled=True)
    return descend(weights, jax.grad(loss)(weights)), 0.9 * average + 0.1 * moments


def by_hand(weights, other, x):
    """Sums that follow from signs of errors: no derivative does."""
    errors = [jnp.sign(jnp.tanh(x @ gather(weight)) - jnp.sin(x)) for weight in weights]
    return descend(weights, [jax.lax.psum_scatter(x.T @ error, AXES, tiled=True)
                             for error in errors]), other


def of_difference(weights, other, x):
    def slopes(weights):
        return jax.grad(lambda weights: layers(weights, x))(weights)

    here, there = slopes(weights), slopes([w + 1e-3 for w in weights])
    return descend(weights, [a + 0.1 * (b - a) for a, b in zip(
        here, there, strict=True)]), other


def training(loss=layers, **options):
    def step(weights, other, x):
        return descend(weights, jax.grad(
            lambda weights: loss(weights, x, **options))(weights)), other

    return step


def in_node(weight):
    return gather(weight, "gpu")


def in_f64(weight):
    return gather(weight.astype(jnp.float64)).astype(jnp.float32)


class Advice(NamedTuple):
    reason: str
    step: Callable
    #: The options that are advised, those before, and another step.
    options: Mapping[str, Any] = MappingProxyType({})
    given: Mapping[str, Any] = MappingProxyType({})
    advised: Callable | None = None
    spec: PartitionSpec = ROWS


ADVICE = {
    "buffer": Advice("it gathers a buffer", with_table, {"weights_of": (0, 1, 2)}),
    "statistic": Advice("it gathers a statistic", with_average,
                        {"weights_of": (0, 1, 2)}),
    "none": Advice("gathers of weights are to stay", training(), {"weights": "i8"},
                   {"weights": "none", "secondary": "none"}),
    "by hand": Advice("it sums no gradient: result ", by_hand,
                      {"gradients_of": (0, 1)}),
    "difference": Advice("it is subtracted from ", of_difference,
                         {"gradients_of": (0, 1)}),
    "links": Advice("on these links it takes ", training(), {"links": "none"},
                    {"links": "node=900gbyte,gpu=900gbyte"}),
    "in a node": Advice("within the secondary group", training(gather=in_node),
                        {"secondary": "2"}, spec=PartitionSpec("gpu")),
    "one device": Advice("within the secondary group", training(),
                         {"secondary": "1"}, {"mesh": "host:8,chip:1"}),
    "f64": Advice("it does not gather one f32, bf16 or f16", training(gather=in_f64),
                  advised=training()),
}


@pytest.mark.compiler
@pytest.mark.parametrize("name", ADVICE)
def test_advice_helps(name):
    """The bytes over some tier, before and after."""
    advice = ADVICE[name]

    def send(step, options):
        arguments = ([array((64, 64), advice.spec) + 0.01 * n
                      for n in range(2)],
                     array((64, 64), advice.spec), array(
                         (16, 64), ROWS))
        specs = (advice.spec, advice.spec, ROWS)
        with jax.enable_x64(name == "f64"):
            exported = zpp.export(jax.jit(jax.shard_map(
                step, mesh=MESH, in_specs=specs, out_specs=specs[:2],
                check_vma=False)), *arguments)
        return zpp.rewrite(exported, **{"mesh": NODES, **options})

    before = send(advice.step, advice.given)
    said = [*(entry["reason"] for entry in before.left_alone),
            *(remark.message for remark in before.remarks)]
    assert any(advice.reason in each for each in said)
    after = send(advice.advised or advice.step, {**advice.given, **advice.options})
    sent = [each.report["total"]["after"] for each in (before, after)]
    assert any(sent[1][tier] < 0.9 * sent[0][tier] for tier in sent[0])
