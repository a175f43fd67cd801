# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers about a step: bytes, times and rounding errors; and a guard over them."""

import json
import math
import pathlib
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from zpp._compiler import Rewritten
from zpp._guard import Guard
from zpp._measures import bytes_of, errors_of, relative
from zpp._option_kinds import LADDER
from zpp._options import ROLE_OF
from zpp._warn import warn
from zpp.jax import _runtime

#: The operations that exchange data.
_EXCHANGES = ("all_to_all", "all_gather_chunks")
#: "quantize gradient #12 at transpose(jvp())/dot_general at step.py:12:3"
_NAME = re.compile(r"\w+ (?P<name>(?P<role>\w+) #(?P<number>\d+)(?: .*)?)", re.DOTALL)


class Rounding(NamedTuple):
    """The rounding of the blocks that were sampled of a collective."""

    role: str
    #: The number of the collective in the report, and its name.
    number: int
    name: str
    format: str
    squared_error: float
    squared: float
    not_finite: int

    @property
    def error(self) -> float:
        """The relative error; infinite if the format has lost a value."""
        if self.not_finite:
            return math.inf
        return relative(self.squared_error, self.squared)


#: The floors of a step's collectives, by their numbers.
Floors = tuple[tuple[int, str], ...]


class Gauge:
    """Measures the calls that it is asked to, and those that a guard wants."""

    def __init__(self, guard: Guard | None):
        self.guard = guard
        #: The narrowest formats that the guard still allows, by number of the
        #: collective, for steps with the same collectives.
        self._floors: dict[tuple, dict[int, str]] = {}
        self._is_wanted = False
        self._is_first = True
        self._latest: dict[str, float] = {}
        self._has_warned = False

    def ask(self) -> dict[str, float]:
        """The metrics of the latest call that was measured. The next one is."""
        self._is_wanted = True
        return dict(self._latest)

    def run(self, number: int, rewritten: Rewritten, given: Rewritten,
            call: Callable[[], Any],
            find_mesh: Callable[[], jax.sharding.Mesh | None]) -> Any:
        """The results of `call`, which is call `number` of the rewritten step. `given` is
        the step without the floors of the guard."""
        is_due = self.guard is not None and (
            self._is_first or number % self.guard.every == 0)
        self._is_first = False
        if not (self._is_wanted or is_due):
            return call()
        if rewritten.bundle is None:
            if is_due and not self._has_warned and any(
                    entry["rewritten"] for entry in rewritten.report["collectives"]):
                self._has_warned = True
                warn(f"guard: nothing is guarded with target {rewritten.target}; the "
                     f"runtime measures, with target cuda")
            self._latest = _static(rewritten, number)
            self._is_wanted = False
            return call()
        mesh = find_mesh() if is_due else None
        results, numbers, roundings = measure(call)
        self._latest = _static(rewritten, number) | numbers
        self._is_wanted = False
        if is_due:
            self._check(roundings, given, mesh)
        return results

    def floors_of(self, given: Rewritten) -> Floors:
        """The floors of a step that has the formats of its options, by collective."""
        return tuple(sorted(self._floors.get(_collectives_of(given), {}).items()))

    def _check(self, roundings: Sequence[Rounding], given: Rewritten,
               mesh: jax.sharding.Mesh | None) -> None:
        """Widens what is above the bound, alike in all processes."""
        first = _first_gathers(given)
        roles = {entry["id"]: entry["role"] for entry in given.report["collectives"]}
        # Where i8 is not enough, i4 has nothing to add.
        bounds = [(number, form) for number in sorted(set(first.values()))
                  for form in LADDER[-2::-1]]
        worst: dict[tuple[int, str], Rounding] = {}
        for rounding in roundings:
            # Another step may have run meanwhile.
            if rounding.number in first:
                key = first[rounding.number], rounding.format
                worst[key] = max(rounding, worst.get(key, rounding),
                                 key=lambda each: each.error)
        errors = _largest_of_all([worst[each].error if each in worst else 0.0
                                  for each in bounds], mesh)
        floors = self._floors.setdefault(_collectives_of(given), {})
        for each, error in zip(bounds, errors, strict=True):
            number, form = each
            bound = self.guard.bound(roles[number])
            if error <= bound and not math.isinf(error):
                continue
            floor = LADDER[LADDER.index(form) + 1]
            if LADDER.index(floor) <= LADDER.index(floors.get(number, "i4")):
                continue
            floors[number] = floor
            cost = ("made values NaN or Inf that were finite" if math.isinf(error)
                    else f"has a relative rounding error of {error:.3g}, above the "
                         f"bound of {bound:.3g},")
            # Another process may have seen it, of the same collective.
            name = worst[each].name if each in worst else f"{roles[number]} #{number}"
            warn(f"guard: {form} {cost} in {name}; it travels "
                 f"{'unquantized' if floor == 'none' else f'as {floor}'} from the "
                 f"next call on, as with floors='{number}={floor}'")


def _collectives_of(given: Rewritten) -> tuple:
    """A key that steps share whose collectives have the same numbers."""
    return tuple((entry["id"], entry["kind"], entry["role"], entry["weight"])
                 for entry in given.report["collectives"])


def _first_gathers(given: Rewritten) -> dict[int, int]:
    """Returns for each collective the first that gathers the same weight, or itself."""
    weights: dict[int, int] = {}
    return {entry["id"]: entry["id"] if entry["weight"] is None
            else weights.setdefault(entry["weight"], entry["id"])
            for entry in given.report["collectives"]}


def _largest_of_all(values: Sequence[float], mesh: jax.sharding.Mesh | None
                    ) -> list[float]:
    """The largest of each value in all processes of the mesh."""
    if jax.process_count() == 1 or mesh is None:
        return list(values)
    own = np.asarray([values], np.float32)
    shape = (mesh.size, len(values))
    array = jax.make_array_from_callback(
        shape, NamedSharding(mesh, PartitionSpec(mesh.axis_names)),
        lambda index: own)
    largest = jax.jit(lambda all_values: all_values.max(0),
                      out_shardings=NamedSharding(mesh, PartitionSpec()))(array)
    return np.asarray(largest.addressable_data(0)).tolist()


def measure(call: Callable[[], Any]) -> tuple[Any, dict[str, float], list[Rounding]]:
    """The results of a call, for which it waits, the numbers that were measured, by name,
    and what was rounded. Others may record a trace, which has the times of links."""
    is_traced = not _runtime.is_recording()
    _runtime.finish()
    if is_traced:
        _runtime.record(True)
    try:
        _runtime.measure(True)
        begin = time.perf_counter()
        results = call()
        _runtime.finish()
        numbers = {"step_ms": (time.perf_counter() - begin) * 1e3}
        _runtime.measure(False)
        measures, stalled = _runtime.read_measures()
        if is_traced:
            links, stalls = _read_traces()
            numbers |= {f"link_ms/{tier}": seconds * 1e3
                        for tier, seconds in sorted(links.items())}
            numbers["exposed_ms"] = max(stalls, stalled) * 1e3
    finally:
        _runtime.measure(False)
        if is_traced:
            _runtime.record(False)
    roundings = list(filter(None, map(_rounding, measures)))
    return results, numbers | _errors_of(roundings), roundings


def _rounding(measure: Mapping[str, Any]) -> Rounding | None:
    match = _NAME.fullmatch(measure["name"])
    if match is None or match["role"] not in ROLE_OF.values():
        return None
    return Rounding(match["role"], int(match["number"]), match["name"].strip(),
                    f"i{measure['format']}", measure["squared_error"], measure["squared"],
                    measure["not_finite"])


def _read_traces() -> tuple[dict[str, float], float]:
    """The seconds in which the busiest rank of this process exchanged data, by the slowest
    tier of the exchange, and the longest that a rank stood still in waits."""
    links: dict[tuple[str, int], list[tuple[float, float]]] = {}
    stalls: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="zpp-") as folder:
        for path in _runtime.write_traces(pathlib.Path(folder) / "trace.json"):
            events = json.loads(path.read_text())["traceEvents"]
            ranks = {event["tid"]: int(event["args"]["name"].split()[1])
                     for event in events if event["ph"] == "M"}
            for event in events:
                rank = ranks[event["tid"]]
                if event.get("cat") == "stall":
                    stalls[rank] = stalls.get(rank, 0.0) + event["dur"]
                elif event.get("cat") in _EXCHANGES:
                    tier = event["args"]["along"].split(",")[0]
                    links.setdefault((tier, rank), []).append(
                        (event["ts"], event["ts"] + event["dur"]))
    busiest: dict[str, float] = {}
    for (tier, _), times in links.items():
        busiest[tier] = max(busiest.get(tier, 0.0), _covered(times) / 1e6)
    return busiest, max(stalls.values(), default=0.0) / 1e6


def _covered(times: list[tuple[float, float]]) -> float:
    """How long at least one of these lasts."""
    total, last = 0.0, -math.inf
    for begin, end in sorted(times):
        total += max(0.0, end - max(begin, last))
        last = max(last, end)
    return total


def _static(rewritten: Rewritten, number: int) -> dict[str, float]:
    """Numbers that are known of a step without running it."""
    return {"call": number, **bytes_of(rewritten.report),
            "state_bytes": rewritten.report["total"]["state_bytes"]}


def _errors_of(roundings: Sequence[Rounding]) -> dict[str, float]:
    errors: dict[str, float] = {}
    for role in ROLE_OF.values():
        of_role = [each for each in roundings if each.role == role]
        errors |= errors_of(f"{role}s", [
            (each.squared_error, each.squared, each.not_finite) for each in of_role])
        if of_role:
            errors[f"largest_error/{role}s"] = max(each.error for each in of_role)
    return errors
