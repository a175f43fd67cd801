# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/why.md: an entry for each reason in the sources, and advice that helps."""

import functools
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
#: Two of them, of which a condition chooses.
_EITHER = re.compile(
    r'\b(?:LeftAlone|leaveAlone)\([^;"]*?\?\s*((?:"(?:[^"\\]|\\.)*"\s*)+):'
    r'\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')

ROWS, WHOLE = PartitionSpec(AXES), PartitionSpec()


def entries():
    return re.findall(r"^\| `([^`]+)`", (ROOT / "docs" / "why.md").read_text(), re.M)


def reasons():
    # Why a momentum has no owner is in remarks alone: it is rewritten all the same.
    texts = [path.read_text() for path in (ROOT / "lib").rglob("*.cpp")
             if "Runtime" not in path.parts and "Owner" not in str(path)]
    return {"".join(_LITERAL.findall(reason)) for text in texts
            for pattern in (_REASON, _EITHER)
            for match in pattern.finditer(text) for reason in match.groups()}


def test_each_reason_has_an_entry():
    found = reasons()
    assert len(found) > 80
    missing = [reason for reason in sorted(found)
               if not any(reason.startswith(entry) for entry in entries())]
    assert missing == []


def test_each_entry_is_a_reason():
    sources = "".join(re.sub(r'"\s*"', "", path.read_text())
                      for folder, ext in (("lib", "cpp"), ("include", "h"))
                      for path in (ROOT / folder).rglob(f"*.{ext}"))
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


def of_slices(weights, other, x, adds=True):
    """Replicated weights, of which each device makes slices of updates."""
    slopes = jax.grad(lambda weights: layers(weights, x, lambda weight: weight))(weights)
    new = []
    for weight, slope in zip(weights, slopes, strict=True):
        update = -0.1 * jax.lax.psum_scatter(slope, AXES, tiled=True)
        own = jax.lax.dynamic_slice_in_dim(
            weight, len(update) * jax.lax.axis_index(AXES), len(update))
        new.append(weight + gather(update) if adds else gather(own + update))
    return new, other


def in_branches(weights, other, x, is_inside=True):
    @jax.checkpoint
    def layer(x, weight):
        def branch(x, gather=gather):
            return jnp.tanh(x @ gather(weight if is_inside else whole))

        whole = weight if is_inside else gather(weight)
        return jax.lax.cond(
            jax.lax.psum(jnp.sum(x), AXES) > 0, functools.partial(
                branch, gather=gather if is_inside else lambda whole: whole),
            lambda x: x, x)

    def loss(weights):
        return jnp.mean(layer(layer(x, weights[0]), weights[1]) ** 2)

    return descend(weights, jax.grad(loss)(weights)), other


def towards_input(weights, other, x, wrap=lambda layer: layer):
    """A gradient of the input alone."""
    @wrap
    def layer(x, weight):
        return jnp.tanh(x @ gather(weight))

    slope = jax.grad(lambda x: jnp.mean(layer(layer(x, weights[0]), weights[1]) ** 2))(x)
    return weights, other.at[:len(x)].add(slope)


def micro_batches(weights, other, x, scans=False):
    parts = x.reshape(2, -1, x.shape[1])

    def add(total, part):
        return jax.tree.map(jnp.add, total, jax.grad(
            lambda weights: layers(weights, part))(weights))

    total = jax.tree.map(jnp.zeros_like, weights)
    if scans:
        total, _ = jax.lax.scan(lambda total, part: (add(total, part), None), total,
                                parts)
    else:
        count = 2 + (jax.lax.psum(jnp.sum(x), AXES) > 1e9)
        _, total = jax.lax.while_loop(
            lambda carry: carry[0] < count,
            lambda carry: (carry[0] + 1, add(carry[1], parts[carry[0]])),
            (0, total))
    return descend(weights, total), other


def training(loss=layers, **options):
    def step(weights, other, x):
        return descend(weights, jax.grad(
            lambda weights: loss(weights, x, **options))(weights)), other

    return step


def in_node(weight):
    return gather(weight, "gpu")


def in_f64(weight):
    return gather(weight.astype(jnp.float64)).astype(jnp.float32)


def in_shard_map(step, specs=(ROWS, ROWS, ROWS)):
    return jax.shard_map(step, mesh=MESH, in_specs=specs, out_specs=specs[:2],
                         check_vma=False)


def twice(weights, other, x):
    for _ in range(2):
        weights, other = in_shard_map(training())(weights, other, x)
    return weights, other


@in_shard_map
def twice_in_one(weights, other, x):
    return training()(*training()(weights, other, x), x)


def constrained(weights, other, x):
    weights, other = in_shard_map(training())(weights, other, x)
    return jax.lax.with_sharding_constraint(weights, NamedSharding(MESH, WHOLE)), other


def gathered_inside(weights, other, x):
    def step(weights, other, x):
        return [gather(w) for w in training()(weights, other, x)[0]], other

    return jax.shard_map(step, mesh=MESH, in_specs=(ROWS,) * 3, check_vma=False,
                         out_specs=(WHOLE, ROWS))(weights, other, x)


class Advice(NamedTuple):
    #: Text of what is left alone until one follows the advice.
    reason: str
    #: Function for a `jax.shard_map`, or a jitted step.
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
    "by hand": Advice("nothing proves that it sums a gradient: no product ", by_hand,
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
    "updates": Advice("no result of the step is what it gathers", of_slices,
                      given={"updated": "i8"}, spec=WHOLE,
                      advised=functools.partial(of_slices, adds=False)),
}

CUDA = MappingProxyType({"target": "cuda"})
#: Those after which the reason is gone: they save time, or bytes that are not counted.
EASING = {
    "regather": Advice(
        "tells its forward from its backward reads; use jax.checkpoint", towards_input,
        given={"regather": True},
        advised=functools.partial(towards_input, wrap=jax.checkpoint)),
    "branch": Advice("are not loops over one stack of weights", in_branches,
                     advised=functools.partial(in_branches, is_inside=False)),
    "branch-cuda": Advice("it is in a region of ", in_branches, given=CUDA,
                          advised=functools.partial(in_branches, is_inside=False)),
    "loop": Advice("it is not known how often the loop runs", micro_batches,
                   given=CUDA, advised=functools.partial(micro_batches, scans=True)),
    "two": Advice("they are not all in one sdy.manual_computation", jax.jit(twice),
                  given=CUDA, advised=jax.jit(twice_in_one)),
    "constraint": Advice("a sharding_constraint may have to shard anew",
                         jax.jit(constrained), given=CUDA,
                         advised=jax.jit(gathered_inside)),
    "results": Advice("results may have to be sharded anew", jax.jit(
        in_shard_map(training()), out_shardings=NamedSharding(MESH, WHOLE)),
        given=CUDA, advised=training()),
}


def follow(advice: Advice, is_wide: bool = False):
    """The step as it is, what is said of it, and the step that is advised."""
    arguments = ([array((64, 64), advice.spec) + 0.01 * n for n in range(2)],
                 array((64, 64), advice.spec), array((16, 64), ROWS))
    results = []
    for step, options in ((advice.step, advice.given), (
            advice.advised or advice.step, {**advice.given, **advice.options})):
        if not isinstance(step, jax.stages.Wrapped):
            step = jax.jit(in_shard_map(step, (advice.spec, advice.spec, ROWS)))
        with jax.enable_x64(is_wide):
            exported = zpp.export(
                step, *arguments,
                platforms=["cuda"] if options.get("target") == "cuda" else None)
        results.append(zpp.rewrite(exported, **{"mesh": NODES, **options}))
    return results


def said_of(result) -> str:
    return "; ".join([*(entry["reason"] for entry in result.left_alone),
                      *(remark.message for remark in result.remarks)])


@pytest.mark.compiler
@pytest.mark.parametrize("name", ADVICE)
def test_advice_helps(name):
    """The bytes over some tier, before and after."""
    before, after = follow(ADVICE[name], is_wide=name == "f64")
    assert ADVICE[name].reason in said_of(before)
    sent = [each.report["total"]["after"] for each in (before, after)]
    assert any(sent[1][tier] < 0.9 * sent[0][tier] for tier in sent[0])


@pytest.mark.compiler
@pytest.mark.parametrize("name", EASING)
def test_advice_removes_the_reason(name):
    before, after = follow(EASING[name])
    assert [EASING[name].reason in said_of(each) for each in (before, after)] == [
        True, False]


def evaluation(weights, other, x):
    return jax.lax.pmean(layers(weights, x), AXES)


def gradients_by_hand(weights, other, x):
    """By signs of errors, without an update: nothing proves what they are."""
    return [jax.lax.psum_scatter(
        x.T @ jnp.sign(jnp.tanh(x @ gather(weight)) - jnp.sin(x)), AXES, tiled=True)
            for weight in weights]


@pytest.mark.compiler
@pytest.mark.parametrize("step, option, kind, bound", [
    (evaluation, "weights_of", "all_gather", 0.02),
    (gradients_by_hand, "gradients_of", "reduce_scatter", 0.2)])
def test_all_may_be_declared(step, option, kind, bound):
    """The step runs with all of them in the formats, and is as close as these are."""
    arguments = ([array((64, 64), ROWS) + 0.01 * n for n in range(2)],
                 array((64, 64), ROWS), array((16, 64), ROWS))
    step = jax.shard_map(step, mesh=MESH, in_specs=(ROWS,) * 3, check_vma=False,
                         out_specs=WHOLE if step is evaluation else ROWS)
    fast = zpp.jit(step, mesh=NODES, **{option: "all"})
    exact, rounded = (jax.tree.leaves(each(*arguments)) for each in (
        jax.jit(step), fast))
    assert {entry["rewritten"] and entry["rule"] == "R15"
            for entry in fast.report()["collectives"] if entry["kind"] == kind} == {True}
    for left, right in zip(exact, rounded, strict=True):
        assert 0 < jnp.linalg.norm(left - right) <= bound * jnp.linalg.norm(left)
