# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kinds of values that options have: how they are read, and described."""

import contextlib
import dataclasses
import itertools
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any


#: The format of a value on the wire.
FORMATS = ("i8", "i4")
#: The same with none, the narrowest first.
LADDER = (*reversed(FORMATS), "none")


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of values."""

    #: As documentation and `--help` write it.
    values: str
    #: Returns a value, or a word of the command line, as options keep it; raises
    #: ValueError, "expected …, but got …", for another one.
    read: Callable[[Any], Any]
    #: The words, where they are few.
    words: tuple[str, ...] = ()


def _number_in(value: Any) -> Any:
    """The integer that a word is; other values as they are."""
    is_number = isinstance(value, str) and re.fullmatch(r"-?\d+", value, re.ASCII)
    return int(value) if is_number else value


def choice(*choices: Any) -> Kind:
    """One of several strings or numbers."""
    def read(value: Any) -> Any:
        for one in choices:
            if value is one or isinstance(value, str) and value == str(one):
                return one
        raise ValueError(f"expected {one_of(choices)}, but got {value!r}")

    words = tuple(map(str, choices))
    return Kind(",".join(words), read, words)


#: The formats of weights, whole or as differences.
WEIGHTS = choice("none", *FORMATS, *(f"{form}:delta" for form in FORMATS))


def _read_boolean(value: Any) -> bool:
    for one in (False, True):
        if value is one or isinstance(value, str) and value.lower() == str(one).lower():
            return one
    raise ValueError(f"expected True or False, but got {value!r}")


BOOLEAN = Kind("false,true", _read_boolean, ("false", "true"))


def integer(least: int, most: float = math.inf, *,
            is_power_of_two: bool = False) -> Kind:
    """A number in a range."""
    limits = f"{least} or more" if most == math.inf else f"{least} to {most}"

    def read(value: Any) -> int:
        value = _number_in(value)
        if isinstance(value, bool) or not isinstance(value, int) or not (
                least <= value <= most):
            raise ValueError(
                f"expected an integer, {limits}, but got {value!r}")
        if is_power_of_two and value & (value - 1):
            raise ValueError(f"expected a power of two, but got {value}")
        return value

    return Kind(("a power of two, " if is_power_of_two else "") + limits, read)


def _read_seconds(value: Any) -> float:
    with contextlib.suppress(ValueError):
        value = float(value) if isinstance(value, str) else value
    if isinstance(value, bool) or not (
            isinstance(value, int | float) and 0 < value < math.inf):
        raise ValueError(f"expected a positive number of seconds, but got "
                         f"{value!r}")
    return value


SECONDS = Kind("a positive number", _read_seconds)


def _read_group(value: Any) -> str | int:
    value = _number_in(value)
    return value if isinstance(value, str) else integer(1).read(value)


GROUP = Kind("none, a tier, a size", _read_group)


def _read_formats(value: Any) -> str:
    if value == "none":
        return value
    formats = (value.split(":") if isinstance(value, str)
               else value if isinstance(value, Sequence) else ())
    # A hop may also send unquantized sums.
    per_hop = (*FORMATS, "none")
    if not formats or any(part not in per_hop for part in formats):
        raise ValueError(
            f"expected 'none', or one of {one_of(per_hop)} per hop as ('i8', "
            f"'i4') or 'i8:i4', but got {value!r}")
    return ":".join(formats)


HOP_FORMATS = Kind("none, F, F:F...", _read_formats)


#: Numbers and ranges.
_RANGES = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*", re.ASCII)


def _read_arguments(value: Any) -> Any:
    if value == "all" or callable(value):
        return value
    numbers = value
    if isinstance(value, str) and _RANGES.fullmatch(value):
        ends = (part.partition("-") for part in value.split(","))
        ranges = [range(int(first), int(last or first) + 1) for first, _, last in ends]
        numbers = list(itertools.chain(*ranges)) if all(ranges) else value
    if isinstance(numbers, str) or not isinstance(numbers, Sequence) or any(
            not isinstance(number, int) or number < 0 for number in numbers):
        raise ValueError(f"expected 'all', numbers of arguments as (0, 3) or '0,3-7', or a "
                         f"function of their paths, but got {value!r}")
    return tuple(numbers)


ARGUMENTS = Kind("all, 0,3-7", _read_arguments)


def _read_floors(value: Any) -> str:
    floors = value
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            floors = parse_floors(value)
    if not isinstance(floors, Mapping) or any(
            isinstance(number, bool) or not isinstance(number, int) or number < 0
            or floor not in LADDER[1:] for number, floor in floors.items()):
        raise ValueError(f"expected {{3: 'i8', 7: 'none'}} or '3=i8,7=none', with the "
                         f"numbers of collectives, but got {value!r}")
    return join_floors(floors)


FLOORS = Kind("NUMBER=i8,NUMBER=none,...", _read_floors)


def parse_floors(text: str) -> dict[int, str]:
    """The floors of collectives by number, in "3=i8,7=none"."""
    pairs = [part.split("=") for part in text.split(",")] if text else []
    floors = {int(number): floor for number, floor in pairs}
    if len(floors) < len(pairs):
        raise ValueError(f"expected each collective once, but got {text!r}")
    return floors


def join_floors(*several: Mapping[int, str]) -> str:
    """The text of floors; of several for one collective, of the widest."""
    widest: dict[int, str] = {}
    for number, floor in (pair for floors in several for pair in floors.items()):
        widest[number] = max(floor, widest.get(number, floor), key=LADDER.index)
    return ",".join(f"{number}={floor}" for number, floor in sorted(widest.items()))


def _read_names(value: Any) -> str:
    patterns = value.split(",") if isinstance(value, str) else value
    if not isinstance(patterns, Sequence) or not patterns or not all(
            isinstance(pattern, str) and pattern for pattern in patterns):
        raise ValueError(f"expected 'lm_head.weight,*.router.*' or several such "
                         f"patterns, but got {value!r}")
    return ",".join(patterns)


NAMES = Kind("PATTERN,...", _read_names)


#: Words for links: to be measured, and not to be known.
MEASURED, NO_LINKS = "measured", "none"


def _read_links(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping) and value:
        return ",".join(f"{tier}={speed}" for tier, speed in value.items())
    raise ValueError(f"expected {{'node': '50gbit'}}, 'node=50gbit' or a file, "
                     f"but got {value!r}")


LINKS = Kind(f"{MEASURED}, {NO_LINKS}, TIER=NUMBERgbit,... or gbyte, a file",
             _read_links)


#: The name of a tier, its size and its stride.
_TIER = re.compile(r"([A-Za-z_]\w*):(\d{1,18})(?:@(\d{1,18}))?", re.ASCII)


def parse_mesh(text: str) -> dict[str, int]:
    """The tiers in "node:2,gpu:4", or with strides "node:2@1,gpu:4@2"."""
    tiers = {}
    for part in text.split(","):
        match = _TIER.fullmatch(part)
        if not match or int(match[2]) == 0 or match[3] and int(match[3]) == 0:
            raise ValueError(f"expected a mesh such as 'node:2,gpu:4', but got "
                             f"{part!a} in {text!a}")
        name = match[1]
        if name in tiers:
            raise ValueError(f"expected every name once in a mesh, but got "
                             f"{name!a} twice in {text!a}")
        tiers[name] = int(match[2])
    return tiers


def write_mesh(tiers: Mapping[str, int]) -> str:
    """The text of tiers, "node:2,gpu:4"."""
    return ",".join(f"{name}:{size}" for name, size in tiers.items())


def _read_mesh(value: Any) -> str:
    if isinstance(value, str):
        parse_mesh(value)
        return value
    tiers = value
    if hasattr(value, "axis_names"):
        tiers = {name: value.shape[name] for name in value.axis_names}
    if not isinstance(tiers, Mapping) or not tiers:
        raise ValueError(f"expected {{'node': 2, 'gpu': 4}}, 'node:2,gpu:4' or "
                         f"a mesh with named axes, but got {value!r}")
    text = write_mesh(tiers)
    parse_mesh(text)
    return text


MESH = Kind("NAME:SIZE,...", _read_mesh)


def one_of(choices: Sequence) -> str:
    """'a', 'b' or 'c'."""
    *first, last = map(repr, choices)
    return f"{', '.join(first)} or {last}" if first else last
