# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Warnings of options that were given and have no effect on a step."""

import dataclasses
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from zpp._compiler import Rewritten
from zpp._options import NAMED, ROLE_OF, Options, values_of
from zpp._warn import warn

#: Options that not all collectives can have: the word in the report's "gets", the role
#: that it is for, the words in "lacks" that say why not, and two names for messages.
_PARTIAL = {
    "weights": ("differences", "weight", ("secondary", "differences"), "weights",
                "differences"),
    "secondary": ("secondary", "weight", ("secondary",), "weights",
                  "a secondary partition"),
    "accumulate": ("accumulate", "gradient", ("accumulate",), "gradients",
                   "sums within the group"),
}
#: The part of the bytes that may go without an option before it is a warning.
_MISSING = 0.5
#: Options of formats: what to say without their role, and words in "lacks" that say why.
_ROLES = {
    "updated": ("no update is sent; it is for steps in which each device updates "
                "a slice of replicated weights (ZeRO-1, ZeRO-2)", ("update",)),
    "moments": ("nothing is known to move a momentum that is orthogonalized; "
                "the report has the reason for each gather and exchange", ()),
    "exchanges": ("no all-to-all is known to exchange rows with experts; the "
                  "report has the reason for each", ()),
}
_NO_WEIGHTS = ("the step gathers no weights, as all devices hold them whole or XLA has split "
               "products instead")
#: Options for a role and a kind, and why they have no effect on a step without it.
_WITHOUT = (
    ("weights", "weight", None, _NO_WEIGHTS),
    ("secondary", "weight", None, _NO_WEIGHTS),
    ("gradients", "gradient", None, "the step sums no gradients over devices, as an "
     "evaluation, or the weights that they update are to be named with gradients_of"),
    ("reduced", "gradient", "all_reduce", "it is for all-reduces of gradients of replicated "
     "weights, and the step scatters its gradients"),
    ("accumulate", "gradient", None, "the step sums no gradients over devices"),
)
#: The page that says more of reasons.
WHY = "docs/why.md says of each reason what helps"
#: Rules of docs/rules.md: what the user has declared, and weights that are not returned.
_DECLARED, _LAYER = "R15", "R16"


def warn_of_no_effect(result: Rewritten, options: Options) -> None:
    """Warns where an option that was given has no effect on the step, or on most
    of the bytes that it is for. A value that is the default is no wish."""
    _warn_of_parts(result, options)
    entries = result.report["collectives"]
    step = _Step(entries, options)
    for name, (text, words) in _ROLES.items():
        if step.is_given(name) and not step.has(ROLE_OF[name]):
            _warn_with_reasons(f"{name}={getattr(options, name)}: {text}", entries, words)
    if options.frozen == "keep" and not any("frozen" in entry["gets"] for entry in entries):
        _warn_with_reasons(
            "frozen=keep: no weight is kept: the step changes all, or their group "
            "lies within the secondary group", entries, ("secondary", "frozen"))
    # Where nothing is rewritten at all, there is a warning of that.
    if any(entry["rewritten"] for entry in entries):
        for text in (*_find_without_collectives(step, result.report),
                     *_find_without_format(step), *_find_without_arguments(step)):
            warn(text)


@dataclasses.dataclass(frozen=True)
class _Step:
    """The collectives of a step, by the report, and its options."""

    entries: list[dict]
    options: Options

    def has(self, role: str, kind: str | None = None) -> bool:
        return any(entry["role"] == role and kind in (None, entry["kind"])
                   for entry in self.entries)

    def is_declared(self, role: str) -> bool:
        return any(entry["role"] == role and entry["rule"] == _DECLARED
                   for entry in self.entries)

    def is_given(self, name: str) -> bool:
        return str(values_of(self.options)[name]) not in (
            "None", "none", NAMED[name].default)

    def is_none(self, name: str) -> bool:
        """Whether an option of formats has none."""
        value = getattr(self.options, name) or NAMED[name].default
        return set(value.split(":")) == {"none"}

    def travels(self, name: str, kind: str | None = None) -> bool:
        """Whether collectives have the format of an option, or would without floors."""
        return not self.is_none(name) and any(
            entry["role"] == ROLE_OF.get(name, "gradient") and kind in (None, entry["kind"])
            and (entry["rewritten"] or entry["floor"] == "none")
            for entry in self.entries)


def _no_effect(name: str, value: Any, why: str) -> str:
    return f"{name}={value} has no effect: {why}; leave {name} out"


def _has_all_devices(group: str | int, report: dict) -> bool:
    """Whether a group, a tier with the faster ones or a number of devices, is the mesh."""
    tiers, mesh = report["tiers"], report["mesh"]
    size = (math.prod(mesh[tier] for tier in tiers[tiers.index(group):])
            if group in tiers else int(group))
    return size >= math.prod(mesh.values())


def _find_without_collectives(step: _Step, report: dict) -> Iterator[str]:
    """Texts about options whose collectives the step does not have."""
    options, tiers = step.options, report["tiers"]
    for name, role, kind, why in _WITHOUT:
        value = getattr(options, name)
        # A partition over the innermost tier is what every step gets.
        if (step.is_given(name) and not step.has(role, kind)
                and (name, value) != ("secondary", tiers[-1])):
            yield _no_effect(name, value, why)
    group = options.accumulate
    if (group is not None and step.is_given("accumulate") and step.has("gradient")
            and _has_all_devices(group, report)):
        yield _no_effect("accumulate", group, "its group has all devices, "
                         "and no slower tier is left that a sum could wait for")
    if options.regather and not any(
            entry["kind"] == "all_gather" and not any(entry["before"].values())
            and any(entry["after"].values()) for entry in step.entries):
        yield _no_effect("regather", True, "the step keeps no gathered weights for its "
                         "backward pass")


def _find_without_format(step: _Step) -> Iterator[str]:
    """Texts about tuning of formats in which nothing travels."""
    options = step.options
    has_gradients = step.travels("gradients") or step.travels("reduced", "all_reduce")
    # Where no option has a format, the compiler says so.
    if step.is_given("tuning.rotate") and options.gradients != "none" and not has_gradients:
        yield _no_effect("tuning.rotate", options.tuning.rotate, "it is for gradients that "
                         "travel in a format, and the step has none")
    if step.is_given("tuning.block") and not all(map(step.is_none, ROLE_OF)) and not (
            has_gradients or any(map(step.travels, ROLE_OF))):
        yield _no_effect("tuning.block", options.tuning.block, "it is for what travels in a "
                         "format, and nothing of the step does")


def _find_without_arguments(step: _Step) -> Iterator[str]:
    """Texts about options that name arguments which have no such collectives."""
    if step.options.weights_of not in (None, ()) and not step.is_declared("weight"):
        yield ("weights_of has no effect: of the arguments that it names, the step "
               "gathers none that is no weight without it, but what is computed from "
               "them and others, or state; the report has the reason for each")
    if step.options.gradients_of not in (None, ()) and not step.is_declared("gradient"):
        yield ("gradients_of has no effect: no sum that is not a gradient anyway "
               "updates the arguments that it names; the report has the reason "
               "for each")


def _warn_of_parts(result: Rewritten, options: Options) -> None:
    """Warns where most bytes do not get what an option is for."""
    entries = result.report["collectives"]
    for option, (gets, role, words, many, what) in _PARTIAL.items():
        value = getattr(options, option)
        if value in (None, "none") or (
                option == "weights" and not value.endswith(":delta")):
            continue
        # Sums within a group concern what leaves it.
        tiers = result.report["tiers"]
        if option == "accumulate" and _has_all_devices(value, result.report):
            continue
        if option == "accumulate" and value in tiers:
            tiers = tiers[:tiers.index(value)]
        missing = missing_part(result, role, gets, tiers)
        if missing > _MISSING:
            none = "none" if missing == 1 else f"only {1 - missing:.0%}"
            hints = []
            if role == "weight" and options.frozen in (None, "none") and any(
                    entry["rule"] == _LAYER for entry in entries):
                hints.append("frozen='keep' sends weights that the step takes and does "
                             "not return, such as a teacher's, in the first call only")
            _warn_with_reasons(f"{option}={value}: of the bytes of {many}, {none} "
                               f"have {what}", entries, words, hints)


def missing_part(result: Rewritten, role: str, gets: str, slower: Collection[str]
                 ) -> float:
    """The part of the bytes of weights, or of those that gradients sent before, that do
    not get something, among those that do and what still crosses all of its tiers, one
    of which is in `slower`, and is faster in zpp's ways; 0 without any."""
    sizes: dict[int, int] = {}
    have: set[int] = set()
    for number, entry in enumerate(result.report["collectives"]):
        if entry["role"] != role or entry["slower"]:
            continue
        before, after = entry["before"], entry["after"]
        key, size = entry["weight"], entry["weight_bytes"]
        if role == "gradient":
            key, size = number, sum(before.values())
        # What floors keep unquantized is meant to have none.
        if gets in entry["gets"] or entry["floor"] == "none":
            have.add(key)
        # What crosses a tier no more lacks nothing, such as frozen weights.
        elif (any(size and not after.get(tier) for tier, size in before.items())
                or not any(before.get(tier) for tier in slower)):
            continue
        sizes[key] = size
    total = sum(sizes.values())
    return sum(size for key, size in sizes.items()
               if key not in have) / total if total else 0


def _warn_with_reasons(text: str, entries: Sequence[dict], words: tuple[str, ...],
                       hints: Sequence[str] = ()) -> None:
    reasons = {entry["lacks"][word] for entry in entries for word in words
               if word in entry["lacks"]}
    more = [WHY] if reasons and not hints else []
    warn("; ".join([text, *sorted(reasons), *hints, *more]))
