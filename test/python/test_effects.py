# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options that have no effect on a step: a warning with what to do instead."""

import pytest
import zpp
from conftest import ROOT
from zpp._compiler import Rewritten
from zpp._effects import warn_of_no_effect


def entry(role, kind, rule="R4", **changes):
    return {"role": role, "kind": kind, "rule": rule, "reason": "", "rewritten": True,
            "before": {"node": 8, "gpu": 8}, "after": {"node": 4, "gpu": 8},
            "weight": 0, "weight_bytes": 8, "gets": ["secondary"], "floor": "",
            "lacks": {}, "slower": False,
            **changes}


WEIGHT = entry("weight", "all_gather")
GRADIENT = entry("gradient", "reduce_scatter", "R10")
SUM = entry("gradient", "all_reduce", "R10")
DECLARED = entry("weight", "all_gather", "R15")
#: A gather that zero-regather adds.
AGAIN = entry("weight", "all_gather", before={"node": 0, "gpu": 0},
              after={"node": 4, "gpu": 8})


def warnings_of(recwarn, entries, **options):
    recwarn.clear()
    warn_of_no_effect(Rewritten("", {"tiers": ["node", "gpu"],
                                     "mesh": {"node": 2, "gpu": 4},
                                     "collectives": entries}, ()),
                      zpp.Options(**options))
    return [str(each.message) for each in recwarn]


@pytest.mark.parametrize("options, without, text, help, having", [
    ({"weights": "i4"}, [GRADIENT], "weights=i4 has no effect: the step gathers no "
     "weights", "leave weights out", [WEIGHT]),
    ({"secondary": "node"}, [GRADIENT], "secondary=node has no effect: the step gathers "
     "no weights", "leave secondary out", [WEIGHT]),
    ({"gradients": "i4:i4"}, [WEIGHT], "gradients=i4:i4 has no effect: the step sums no "
     "gradients", "with gradients_of", [GRADIENT]),
    ({"reduced": "i4"}, [WEIGHT, GRADIENT], "reduced=i4 has no effect: it is for "
     "all-reduces", "leave reduced out", [SUM]),
    ({"accumulate": "gpu"}, [WEIGHT], "accumulate=gpu has no effect: the step sums no "
     "gradients", "leave accumulate out", [{**GRADIENT, "gets": ["accumulate"]}]),
    ({"regather": True}, [WEIGHT], "regather=True has no effect: the step keeps no "
     "gathered weights", "leave regather out", [WEIGHT, AGAIN]),
    ({"weights_of": (0,)}, [WEIGHT], "weights_of has no effect: of the arguments "
     "that it names", "the report has the reason", [DECLARED]),
    ({"gradients_of": (0,)}, [GRADIENT], "gradients_of has no effect: no sum that is not "
     "a gradient anyway", "the report has the reason", [{**GRADIENT, "rule": "R15"}]),
    ({"tuning": {"rotate": 0}}, [WEIGHT], "tuning.rotate=0 has no effect: it is for "
     "gradients that travel in a format", "leave tuning.rotate out", [GRADIENT]),
    ({"tuning": {"rotate": 0}, "gradients": "none:none"}, [WEIGHT, GRADIENT],
     "tuning.rotate=0 has no effect", "leave tuning.rotate out", [WEIGHT, SUM]),
    ({"tuning": {"block": 64}, "weights": "none"}, [WEIGHT], "tuning.block=64 has no "
     "effect: it is for what travels in a format, and nothing of the step does",
     "leave tuning.block out", [WEIGHT, GRADIENT])],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_an_option_without_effect(recwarn, options, without, text, help, having):
    (message,) = warnings_of(recwarn, without, **options)
    assert message.startswith(text) and help in message
    assert warnings_of(recwarn, having, **options) == []


@pytest.mark.parametrize("group", ["node", 8])
def test_gradients_of_all_devices_wait_for_nothing(recwarn, group):
    (message,) = warnings_of(recwarn, [GRADIENT], accumulate=group)
    assert message == (
        f"accumulate={group} has no effect: its group has all devices, and no slower tier "
        f"is left that a sum could wait for; leave accumulate out")


def test_a_default_is_no_wish(recwarn):
    """And where nothing is rewritten, another warning says so."""
    assert warnings_of(recwarn, [GRADIENT], weights="i8", secondary="gpu") == []
    assert warnings_of(recwarn, [WEIGHT], gradients="i8:i4", reduced="i8") == []
    assert warnings_of(recwarn, [{**GRADIENT, "rewritten": False}], weights="i4") == []
    assert warnings_of(recwarn, [WEIGHT], tuning={"rotate": 32, "block": 128}) == []
    widened = {**GRADIENT, "rewritten": False, "floor": "none"}
    assert warnings_of(recwarn, [WEIGHT, widened], tuning={"rotate": 0}) == []
    # The compiler has said so, without a step.
    assert warnings_of(recwarn, [WEIGHT], tuning={"rotate": 0, "block": 64},
                       weights="none", gradients="none") == []


def test_what_helps_where_weights_do_not_change(recwarn):
    """The weights of a teacher, which have no backward pass."""
    teacher = entry("weight", "all_gather", "R16", gets=[])
    (message,) = warnings_of(recwarn, [teacher, GRADIENT], secondary="gpu")
    assert "none have a secondary partition" in message
    assert "frozen='keep' sends weights that the step takes and does not return" in message
    assert warnings_of(recwarn, [WEIGHT, GRADIENT], secondary="gpu") == []


@pytest.mark.compiler
def test_of_text(recwarn):
    """As `zpp rewrite` reads it, without a framework."""
    path = ROOT / "test" / "Dialect" / "Guest" / "replicas.mlir"
    text = path.read_text().split("// -----")[0]
    zpp.rewrite(text, mesh="node:2,gpu:4", reduced="i4")
    assert [str(each.message)[:25] for each in recwarn] == ["reduced=i4 has no effect:"]
