# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Predictions of a step's time and memory, as FSDP and with each technique."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from zpp._compiler import compile_text, predict_plans
from zpp._option_kinds import NO_LINKS, write_mesh
from zpp._options import Options, with_words
from zpp._plan_picture import Step, draw
from zpp._text import write_bytes

@dataclasses.dataclass(frozen=True)
class Prediction:
    """One way to run a step. Times are seconds, bytes those of one device."""

    name: str
    #: The options that differ from the step as it is written.
    options: Options
    seconds: float
    #: The device computes, and it stands still for communication.
    compute: float
    exposed: float
    #: No schedule is shorter, whatever starts when; by resource, what makes it so long.
    bound: float
    bound_by: Mapping[str, float]
    #: By tier: what it sends, and how long the links are busy.
    sent: Mapping[str, int]
    busy: Mapping[str, float]
    #: Arguments of the step, with what is kept from step to step; secondary
    #: partitions; and an estimate of the most
    #: that is alive at one time, with both of these.
    state_bytes: int
    secondary_bytes: int
    peak_bytes: int
    #: The in-flight limit; None where the compiler orders nothing.
    prefetch_bytes: int | None
    #: (stream, begin, end, label) of what runs.
    tasks: tuple[tuple[str, float, float, str], ...] = dataclasses.field(
        repr=False)

    @property
    def binding(self) -> str:
        """The resource that makes the bound so long, with its part of it."""
        name = max(self.bound_by, key=lambda name: self.bound_by[name], default="-")
        return f"{name} {self.bound_by[name] / self.bound:.0%}" if self.bound_by else name

    @property
    def above(self) -> float:
        """The part by which the step is longer than its bound."""
        return max(0.0, self.seconds / self.bound - 1) if self.bound else 0.0


#: The in-flight limits that `plan` compares with the chosen one, as parts of it.
_LIMITS = {"half": 0.5, "double": 2.0, "unlimited": 2.0**20}
#: The device where one is needed and nobody names one.
ANY_DEVICE = "h100"


@dataclasses.dataclass(frozen=True)
class Auto:
    """In place of options: the best plan that fits.

    Which techniques may be used, and with which formats, is said by the options
    beside it.
    """

    #: As in `plan`; None: that of the devices of JAX.
    device: str | None = None
    compute: float | None = None
    #: Bytes that a device may need at the peak; None: all that it has, where
    #: JAX knows it.
    memory_limit: int | None = None

    def machine(self) -> dict[str, Any]:
        """The same as `compile_text` takes it."""
        for name, what in (("compute", "seconds"), ("memory_limit", "bytes")):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ValueError(f"{name}: expected a positive number of {what}, but "
                                 f"got {value!r}")
        return {"choose": True, "device": self.device or ANY_DEVICE,
                "compute-usec": self.compute and float(self.compute) * 1e6,
                "memory-limit": self.memory_limit and int(self.memory_limit)}


@dataclasses.dataclass(frozen=True)
class Plan:
    """Predictions for a step, the first of them as it is written."""

    mesh: Mapping[str, int]
    device: str
    links: str | None
    predictions: tuple[Prediction, ...]
    #: The fastest of them that fits into the memory. A plan with more techniques must be
    #: 2 % faster than one with fewer. Where nothing fits, the one that needs the least.
    best: Prediction
    #: Why it is.
    why: str
    #: Floating-point operations of products on one device.
    flops: float
    #: Loops whose number of iterations is not known, which count once.
    unknown_loops: int
    #: The fastest prediction that has an in-flight limit, with "half", "double" and
    #: "unlimited" ones; empty if nobody asked for it.
    limits: tuple[Prediction, ...] = ()

    def __getitem__(self, name: str) -> Prediction:
        for prediction in self.predictions:
            if prediction.name == name:
                return prediction
        raise KeyError(name)

    def table(self) -> str:
        """The predictions as a table to be read."""
        header = ["plan", "step", "speed-up", "above bound", "which is", "compute",
                  "exposed"]
        for tier in self.mesh:
            header += [f"{tier} sent", "busy"]
        header += ["state", "secondary", "peak"]
        rows = [header]
        first = self.predictions[0]
        for prediction in self.predictions:
            row = [prediction.name, _milliseconds(prediction.seconds),
                   f"{first.seconds / prediction.seconds:.2f}x",
                   f"{prediction.above:.1%}",
                   prediction.binding,
                   _milliseconds(prediction.compute),
                   _milliseconds(prediction.exposed)]
            for tier in self.mesh:
                row += [write_bytes(prediction.sent[tier]),
                        f"{prediction.busy[tier] / prediction.seconds:.0%}"]
            row += [write_bytes(prediction.state_bytes),
                    write_bytes(prediction.secondary_bytes),
                    write_bytes(prediction.peak_bytes)]
            rows.append(row)
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(cell.ljust(width) if index == 0
                           else cell.rjust(width) for index, (cell, width)
                           in enumerate(zip(row, widths))) for row in rows]
        lines.insert(1, "-" * len(lines[0]))
        notes = [f"one step on {write_mesh(self.mesh)}, {self.device}, links "
                 f"{self.links or 'of the default model'}; per device "
                 f"{self.flops / 1e12:.3g} TFLOP in products", ""]
        if self.limits:
            lines += ["", *self._limit_lines()]
        if self.unknown_loops:
            lines += ["", f"{self.unknown_loops} loops have an unknown number "
                      f"of iterations and count once"]
        return "\n".join(notes + lines) + "\n"

    def _limit_lines(self) -> list[str]:
        """The in-flight limits in words, one a line."""
        chosen = _with_limit(self.predictions)
        assert chosen is not None and chosen.prefetch_bytes is not None
        return [f"in-flight limit of {chosen.name}: {write_bytes(chosen.prefetch_bytes)}, "
                f"{_milliseconds(chosen.seconds)}, {write_bytes(chosen.peak_bytes)} at the "
                f"peak"] + [
            f"  {other.name}: {_milliseconds(other.seconds)} "
            f"({other.seconds / chosen.seconds - 1:+.1%}), {write_bytes(other.peak_bytes)}"
            for other in self.limits]

    def to_json(self) -> dict:
        """All numbers, without the tasks."""
        def numbers(predictions: tuple[Prediction, ...]) -> list[dict]:
            return [{field.name: getattr(prediction, field.name)
                     for field in dataclasses.fields(prediction)
                     if field.name not in ("options", "tasks")}
                    for prediction in predictions]

        return {
            "mesh": dict(self.mesh), "device": self.device, "links": self.links,
            "flops": self.flops, "unknown_loops": self.unknown_loops,
            "best": self.best.name, "why": self.why,
            "plans": numbers(self.predictions), "limits": numbers(self.limits)}

    def svg(self) -> str:
        """A picture of what runs when, on one scale of time."""
        return draw(f"One predicted step on {write_mesh(self.mesh)}, {self.device}",
                    f"links: {self.links or 'the default model'}", ("compute", *self.mesh),
                    [Step(each.name, each.seconds, each.tasks) for each in self.predictions])


def _with_limit(predictions: tuple[Prediction, ...]) -> Prediction | None:
    """The fastest one that has an in-flight limit."""
    return min((prediction for prediction in predictions if prediction.prefetch_bytes),
               key=lambda prediction: prediction.seconds, default=None)


def plan_text(text: str, options: Options, auto: Auto, limits: bool = False) -> Plan:
    """`plan` of a module."""
    machine = auto.machine()
    target = "portable" if options.target == "portable" else "cuda"
    found = predict_plans(text, options, target, machine)
    rows = {}
    for row in found["plans"]:
        # With what it has chosen itself.
        words = [row["options"], *(choice["options"]
                                   for choice in row["report"]["choices"])]
        rows[row["name"]] = _read(row["name"], with_words(options, " ".join(words)),
                                  row["report"])
    predictions = tuple(rows.values())
    first = found["plans"][0]["report"]
    fastest = _with_limit(predictions) if limits else None
    return Plan(
        {tier: first["mesh"][tier] for tier in first["tiers"]}, machine["device"],
        None if options.links in (None, NO_LINKS) else str(options.links),
        predictions, rows[found["best"]], found["why"], first["time"]["flops"],
        first["time"]["unknown_loops"],
        _other_limits(text, fastest, target, machine["device"], found["scale"])
        if fastest else ())


def _other_limits(text: str, best: Prediction, target: str, device: str, scale: float
                  ) -> tuple[Prediction, ...]:
    """A prediction with other in-flight limits than it has, by `_LIMITS`."""
    assert best.prefetch_bytes is not None
    others = {name: best.options.replace(tuning=best.options.tuning.replace(
        prefetch_bytes=int(best.prefetch_bytes * part)))
        for name, part in _LIMITS.items()}
    return tuple(_read(name, other, compile_text(
        text, other, target, machine={"device": device}, scale=scale).report)
        for name, other in others.items())


def _read(name: str, options: Options, report: dict) -> Prediction:
    time, total = report["time"], report["total"]
    return Prediction(
        name, options, time["usec"] / 1e6, time["compute_usec"] / 1e6,
        time["exposed_usec"] / 1e6, time["bound_usec"] / 1e6,
        {name: usec / 1e6 for name, usec in time["bound_by"].items()}, total["after"],
        {tier: usec / 1e6 for tier, usec in time["busy_usec"].items()},
        time["state_bytes"], total["secondary_bytes"], time["peak_bytes"],
        report.get("prefetch_bytes"), tuple(map(tuple, time.get("tasks", ()))))


def split_auto(options: Any) -> tuple[Options, Auto | None]:
    """Options, and what is to choose among them."""
    if isinstance(options, Auto):
        return Options(), options
    if options == "auto":
        return Options(), Auto()
    if not isinstance(options, Options | None):
        raise TypeError(f"expected zpp.Options, zpp.Auto or 'auto', but got "
                        f"{options!r}")
    return options or Options(), None


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
