# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DeepSpeed's config: what zpp takes out of it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from zpp._guard import Guard
from zpp._torch_options import TorchOptions as Options

#: The section of the config that DeepSpeed does not know.
SECTION = "zpp"
_ZERO = "zero_optimization"
#: DeepSpeed's settings of ZeRO++ that zpp takes over, with their defaults.
_SETTINGS: dict[str, Any] = {"zero_quantized_weights": False, "zero_quantized_gradients": False,
             "zero_hpz_partition_size": 1}
_UNKNOWN = {
    "accumulate": "DeepSpeed reduces the gradients of each micro-batch",
    "reduced": "DeepSpeed replicates no weights with ZeRO-3",
    "moments": "DeepSpeed's Muon gathers gradients itself"}
#: Options of `zpp.torch` that there are here, and those beside them.
_NAMES = [field.name for field in dataclasses.fields(Options)
          if field.name not in _UNKNOWN]
_GUARD = "guard"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Instructions of a config to zpp."""

    options: Options
    guard: Guard | None


def read(config: Mapping[str, Any]) -> tuple[dict[str, Any], Settings | None]:
    """Takes the settings of ZeRO++ out of a config. Returns a copy for DeepSpeed without
    them, and the settings; None if there are none."""
    rest = dict(config)
    own = rest.pop(SECTION, {})
    if not isinstance(own, Mapping):
        raise ValueError(f"{SECTION}: expected options by name, such as "
                         f"{{'weights': 'i8'}}, but got {own!r}")
    has_zero = isinstance(rest.get(_ZERO), Mapping)
    zero = dict(rest[_ZERO]) if has_zero else {}
    given = {name: _read_setting(name, zero.pop(name, default))
             for name, default in _SETTINGS.items()}
    if has_zero:
        rest[_ZERO] = zero
    options = _read_options(own, given)
    if (options.weights == "none" and options.gradients == "none"
            and options.secondary in (None, "none")):
        return rest, None
    _check_rest(rest, zero, options)
    try:
        return rest, Settings(options, _read_guard(own.get(_GUARD)))
    except ValueError as error:
        raise ValueError(f"{SECTION}: {error}") from None


def _read_setting(name: str, value: Any) -> Any:
    wanted = type(_SETTINGS[name])
    if type(value) is not wanted or wanted is int and value < 0:
        raise ValueError(
            f"{_ZERO}.{name}: expected "
            f"{'true or false' if wanted is bool else 'a number of ranks'}, but got "
            f"{value!r}")
    return value


def _read_options(own: Mapping[str, Any], given: Mapping[str, Any]) -> Options:
    """The options; what DeepSpeed's settings turn on has zpp's default format."""
    for name in own:
        if name in _UNKNOWN:
            raise ValueError(f"{SECTION}.{name}: {_UNKNOWN[name]}, so it has no "
                             f"effect; leave it out")
        if name not in (*_NAMES, _GUARD):
            raise ValueError(f"{SECTION}: expected options among "
                             f"{', '.join((*_NAMES, _GUARD))}, but got '{name}'")
    values = {name: value for name, value in own.items() if name != _GUARD}
    for name, setting, default in (("weights", "zero_quantized_weights", "i8"),
                                   ("gradients", "zero_quantized_gradients", "i8:i4")):
        values.setdefault(name, default if given[setting] else "none")
    if given["zero_hpz_partition_size"] > 1:
        values.setdefault("secondary", given["zero_hpz_partition_size"])
    try:
        return Options(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{SECTION}.{error}") from None


def _read_guard(given: Any) -> Guard | None:
    if not isinstance(given, Mapping):
        return Guard.of(given)
    names = [field.name for field in dataclasses.fields(Guard)]
    if not {*given} <= {*names}:
        raise ValueError(f"guard: expected a number, or {', '.join(names)} by name, but "
                         f"got {given!r}")
    return Guard(**given)


def _check_rest(config: Mapping[str, Any], zero: Mapping[str, Any], options: Options
                ) -> None:
    """Checks that DeepSpeed is to shard in a way that zpp knows."""
    compiled = config.get("compile") or {}
    wanted: list[tuple[str, Any, Any, str]] = [
        (f"{_ZERO}.stage", 3, zero.get("stage", 0),
         "whose weights and gradients zpp sends"),
        (f"{_ZERO}.mics_shard_size", -1, zero.get("mics_shard_size", -1),
         "because MiCS has collectives of its own"),
        ("compile.deepcompile", False, compiled.get("deepcompile", False),
         "because its collectives are in the compiled graph"),
        (f"{_ZERO}.zenflow", None, zero.get("zenflow"),
         "because ZenFlow selects gradients before it sends them"),
    ]
    if options.gradients != "none":
        wanted.append((f"{_ZERO}.reduce_scatter", True, zero.get("reduce_scatter", True),
                       "because otherwise DeepSpeed sums all gradients on all ranks"))
    for name, expected, got, why in wanted:
        if got != expected:
            raise ValueError(f"{name}: expected {_text(expected)} with the settings of "
                             f"ZeRO++, {why}, but got {_text(got)}")


def _text(value: Any) -> str:
    """As JSON has it."""
    return ("none" if value is None else str(value).lower() if isinstance(value, bool)
            else str(value))
