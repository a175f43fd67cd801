# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/why.md: an entry for each reason in the sources, and advice that helps."""

import re

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
    (zero1, WHOLE, "it gathers state", {"updated": "i8"}, "updated='i8'"),
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
