# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How a step is to be rewritten.

The fields of the classes here say all about an option once: type, values,
default and meaning. Errors, `zpp rewrite --help` and the tables of the
documentation (scripts/option_tables.py) come from them.
include/zpp/Pipelines/ZeroPP.h is the same for C++; a test compares the two.
"""

import dataclasses
import os
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from zpp import _option_kinds as kinds
from zpp._option_kinds import FORMATS, Kind


@dataclasses.dataclass(frozen=True)
class Option:
    """The description of an option."""

    kind: Kind
    #: The compiler's default, as a word; None where it depends on the step.
    default: str | None
    #: The meaning, in sentences.
    help: str
    #: The default in words, where `default` does not say it well.
    default_text: str | None = None
    #: The page and heading of docs/ with more about it.
    more: str = ""
    #: Whether the pipeline of zpp-opt has an option of this name and these values.
    is_compilers: bool = True


def option(kind: Kind, default: str | None, text: str, **more: Any) -> Any:
    """A field of an options type: None means the compiler's default."""
    return dataclasses.field(default=None, metadata={
        "option": Option(kind, default, text, **more)})


def describe(kind: type) -> dict[str, Option]:
    """The options of an options type by name, without its tuning."""
    return {field.name: field.metadata["option"]
            for field in dataclasses.fields(kind) if "option" in field.metadata}


class _Described:
    """The base of options types."""

    def __post_init__(self):
        for name, described in describe(type(self)).items():
            value = getattr(self, name)
            if value is None:
                continue
            try:
                value = described.kind.read(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            object.__setattr__(self, name, value)

    def replace(self, **changes: Any) -> Self:
        """These options with some of them changed. Raises TypeError if an option does not
        exist."""
        names = [field.name for field in dataclasses.fields(self)]
        if unknown := sorted(set(changes) - set(names)):
            raise TypeError(f"expected options among {', '.join(names)}, but "
                            f"got {', '.join(unknown)}")
        given = {name: getattr(self, name) for name in names}
        return type(self)(**given | changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedTuning(_Described):
    """The part of `Tuning` that all front ends have."""

    block: int | None = option(
        kinds.integer(32, 2048, is_power_of_two=True), "128",
        "Elements that share a scale.")
    rotate: int | None = option(
        kinds.choice(0, 32), "32",
        "Elements of a gradient's group that is multiplied by a Hadamard matrix "
        "before it is quantized, so that outliers cost less accuracy at the "
        "same bytes; 0 for none.", default_text="32; 0 with `i4:i4`",
        more="rationale.md#rotated-blocks")
    compile_timeout: float | None = option(
        kinds.SECONDS, None,
        "Seconds after which each run of the compiler is stopped with an error.",
        default_text="never", is_compilers=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning(SharedTuning):
    """Options for experts; the defaults suit most steps.

    Raises:
      ValueError: if a value is not valid.
    """

    coalesce_bytes: int | None = option(
        kinds.integer(0), "-1",
        "Bytes that a device contributes to a buffer shared by tensors that "
        "travel at the same time. This includes small weights that are gathered "
        "only once. With 0 each tensor travels alone.",
        default_text="4 MiB, with target=portable 0")
    prefetch_bytes: int | None = option(
        kinds.integer(0), "-1",
        "With the targets cuda and cpu: bytes of weights that may be gathered "
        "before they are needed, bytes of gradients that may wait to be "
        "scattered, and bytes of both that a loop may carry.",
        default_text="one layer, at least 256 MiB",
        more="rationale.md#across-the-iterations-of-a-loop")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedOptions(_Described):
    """The part of `Options` that all front ends have."""

    mesh: str | Mapping[str, int] | Any | None = option(
        kinds.MESH, None,
        "The tiers, from the slowest link to the fastest. A tier with the name "
        "of an axis of the step is that axis. In Python also "
        "{\"node\": 2, \"gpu\": 4}, or a mesh of the framework with its axes in "
        "this order.", default_text="the step's own mesh",
        more="using.md#which-option-for-which-machine")
    weights: str | None = option(
        kinds.WEIGHTS, "i8",
        "The format in which weight gathers send (qwZ). With :delta they send "
        "differences to what the others hold, which is kept between steps.",
        more="using.md#weights-by-difference")
    gradients: str | Sequence[str] | None = option(
        kinds.HOP_FORMATS, "i8:i4",
        "A format per hop of a gradient's scatter, from the innermost tier "
        "outwards (qgZ): none, i8 or i4. The last format is that of the "
        "outermost tier, the one before it that of all tiers in between: i8:i4 "
        "means int8 on every inner hop. One format alone means one hop over the "
        "whole group. A tier has the same format in all groups; the only tier of "
        "a mesh has the last one. In Python also "
        "(\"i8\", \"i4\").")
    reduced: str | None = option(
        kinds.choice("none", *FORMATS), "i8",
        "Where weights are replicated, over a tier or over all (HSDP, plain data "
        "parallelism): the format in which the sum of a gradient's all-reduce is "
        "gathered, after a scatter with the formats of gradients.",
        more="using.md#replicated-weights")
    secondary: str | int | None = option(
        kinds.GROUP, None,
        "The group that keeps a second copy of the weights for the backward pass "
        "(hpZ).",
        default_text="the innermost tier; 1 where nodes have one GPU and that pays")
    links: str | os.PathLike | Mapping[str, str] | None = option(
        kinds.LINKS, None,
        "What a device sends per second over each tier. With measured, zpp.jit and "
        "zpp.torch.compress find out over the step's own groups, in about a second, "
        "and keep it; `zpp-perf --calibrate > FILE` measures it too. Collectives that "
        "quantization or hops would not make faster are left alone, except small "
        "weights that can travel with others. In Python also {\"node\": \"50gbit\"}.",
        default_text="measured where the runtime communicates between GPUs, otherwise none",
        more="using.md#links")
    #: Options for experts: a `Tuning`, or a dict of which one is made.
    tuning: Any = None

    #: The type of `tuning`.
    tuning_type: typing.ClassVar[type[SharedTuning]] = SharedTuning
    #: The module that has these types, for messages.
    module: typing.ClassVar[str] = "zpp"

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "tuning", self._read_tuning(self.tuning))

    @classmethod
    def _read_tuning(cls, value: Any) -> SharedTuning:
        kind = cls.tuning_type
        if value is None:
            return kind()
        if isinstance(value, Mapping):
            try:
                return kind().replace(**value)
            except (TypeError, ValueError) as error:
                raise type(error)(f"tuning: {error}") from None
        if not isinstance(value, kind):
            raise ValueError(f"tuning: expected options by name or {cls.module}.Tuning, "
                             f"but got {value!r}")
        return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(SharedOptions):
    """How a step is to be rewritten.

    None means the compiler's default. Structures are kept as the text that the
    compiler reads: mesh={"node": 2, "gpu": 4} becomes "node:2,gpu:4".

    Raises:
      ValueError: if a value is not valid.
    """

    accumulate: str | int | None = option(
        kinds.GROUP, "none",
        "The group within which gradients of micro-batches are added up, in f32, "
        "before they cross slower tiers, once per update: a tier with the faster "
        "ones, or their number of devices.", more="using.md#micro-batches")
    updated: str | None = option(
        kinds.choice("none", *FORMATS), "none",
        "Where each device updates a slice of replicated weights (ZeRO-1, "
        "ZeRO-2): the format in which it sends by how much they have changed.",
        more="using.md#updates-of-replicated-weights")
    moments: str | None = option(
        kinds.choice("none", "i8"), "none",
        "Where an optimizer orthogonalizes momenta (Muon): the format in which they "
        "are gathered.", more="using.md#momenta-of-muon")
    exchanges: str | None = option(
        kinds.choice("none", "i8"), "none",
        "Where devices exchange rows of activations with experts (all-to-all): the "
        "format in which they are sent.", more="using.md#experts")
    floors: str | Mapping[int, str] | None = option(
        kinds.FLOORS, None,
        "The narrowest formats of single collectives, by their numbers in reports, "
        "traces and warnings: i8, or none to leave one unquantized. All others keep "
        "the formats above. All gathers of a weight have the widest of theirs. In "
        "Python also {3: \"i8\", 7: \"none\"}.", default_text="none",
        more="using.md#a-guard")
    frozen: str | None = option(
        kinds.choice("none", "keep"), "none",
        "keep: weights that the step returns as they came, or takes and does not "
        "return, are sent in the first step only. What a device has received of "
        "them, the secondary partition, is kept between steps.", more="using.md#frozen-weights")
    weights_of: str | Sequence[int] | Callable[[str], bool] | None = option(
        kinds.ARGUMENTS, None,
        "Arguments of the step to treat as weights even if the step does not "
        "show that they are, for instance in an evaluation. In Python the "
        "numbers of leaves of the arguments, or a function that returns for each "
        "leaf's path, as jax.tree_util.keystr writes it ([0]['head']), whether "
        "it is a weight.", default_text="none",
        more="using.md#what-is-a-weight")
    gradients_of: str | Sequence[int] | Callable[[str], bool] | None = option(
        kinds.ARGUMENTS, None,
        "Arguments of the step whose updates are sums of gradients even if "
        "nothing proves it. Written as weights_of. All is for sums of all "
        "arguments, and of steps that return gradients alone.",
        default_text="none", more="rules.md#what-the-user-declares")
    regather: bool | None = option(
        kinds.BOOLEAN, "false",
        "Drop gathered weights that the step keeps alive, and gather them again "
        "in the backward pass (ZeRO-3).")
    target: str = dataclasses.field(default="auto", metadata={"option": Option(
        kinds.choice("auto", "portable", "cuda", "cpu"), "portable",
        "Who executes the collectives: XLA (portable), or the runtime on NVIDIA "
        "GPUs, beside XLA's compute (cuda). Only in Python: cpu, the same on CPU "
        "devices of one process, for tests; auto, which is cuda if the step was "
        "exported for it and the runtime is available.",
        default_text="portable; in Python auto",
        more="using.md#target-who-executes-the-collectives",
        is_compilers=False)})

    tuning_type: typing.ClassVar[type[SharedTuning]] = Tuning


#: The options that are formats, and the compiler's role of what travels in each.
ROLE_OF = {"weights": "weight", "gradients": "gradient", "updated": "update",
           "moments": "moment", "exchanges": "exchange"}

#: The options by their names in words: those of `Tuning` are "tuning.block" and so on.
_TUNING = "tuning."
NAMED = {**describe(Options),
         **{_TUNING + name: each for name, each in describe(Tuning).items()}}


def values_of(options: Options) -> dict[str, Any]:
    """The values of options, by these names."""
    return {name: getattr(options.tuning if name.startswith(_TUNING) else options,
                          name.removeprefix(_TUNING)) for name in NAMED}


def write_words(values: Mapping[str, Any]) -> list[str]:
    """Writes values that are given, as ZPP_RUN has them: "mesh=node:2"."""
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}"
            for name, value in values.items() if value is not None]


def read_words(words: Iterable[str]) -> dict[str, Any]:
    """Reads such words, with - or _ in their names. Returns arguments of `Options`.
    Raises ValueError for a word that is no option."""
    given: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.replace("-", "_")
        if not equals or name not in NAMED:
            raise ValueError(f"expected options such as mesh=node:8,gpu:8, but got {word!r}")
        of = given.setdefault("tuning", {}) if name.startswith(_TUNING) else given
        of[name.removeprefix(_TUNING)] = value
    return given


def with_words(options: Options, words: str) -> Options:
    """The options with others in place of some: "weights=none tuning.block=64"."""
    given = read_words(words.split())
    tuning = options.tuning.replace(**given.pop("tuning", {}))
    return options.replace(**given, tuning=tuning)


#: The names of all options.
OPTION_NAMES = tuple(field.name for field in dataclasses.fields(Options))


def read_schedule(schedule: Mapping[int, Mapping[str, Any]],
                  options: SharedOptions, unit: str
                  ) -> list[tuple[int, Any]]:
    """The entries of a schedule with all their options, the latest first. An entry
    replaces some of `options` from a number of calls or steps, the unit, on."""
    entries = [(0, options)]
    for first, changed in schedule.items():
        if not isinstance(first, int) or first < 1:
            raise ValueError(f"schedule: expected {unit}s counted from 1, but "
                             f"got {first!r}")
        if not isinstance(changed, Mapping):
            raise ValueError(f"schedule: expected a dict of options from "
                             f"{unit} {first} on, but got {changed!r}")
        try:
            entries.append((first, options.replace(**changed)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"schedule: {error}") from None
    return sorted(entries, key=lambda entry: -entry[0])
