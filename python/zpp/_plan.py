# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Predictions of a step's time and memory, as FSDP and with each technique."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from zpp._compiler import NoCollectivesError, Rewritten, logger, predict
from zpp._compiler import report_entries
from zpp._option_kinds import NO_LINKS
from zpp._options import Options

#: Options that are techniques, and "none" without.
_OFF = ("weights", "gradients", "secondary")
#: The rows of a plan: name -> the options that are on.
TECHNIQUES = {
    "FSDP": (),
    "qwZ": ("weights",),
    "hpZ": ("secondary",),
    "qgZ": ("gradients",),
    "qwZ + hpZ": ("weights", "secondary"),
    "ZeRO++": ("weights", "secondary", "gradients"),
    "differences": ("weights", "secondary", "gradients", "state"),
}
#: Rows of steps over micro-batches -> the row that crosses slower tiers in each
#: of them.
ONCE = {f"{name}, once per update": name for name in ("ZeRO++", "differences")}
TECHNIQUES |= {name: (*TECHNIQUES[base], "accumulate")
               for name, base in ONCE.items()}
#: Options that only mean something with a technique.
_NEEDS = {"frozen": "secondary", "reduced": "gradients"}
#: Options of tuning, and the techniques that one of them is for.
_TUNES = {"rotate": {"gradients"}, "block": {"weights", "gradients"}}
#: A plan with more techniques must be faster by this part to be chosen.
LEAST_GAIN = 0.02


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
#: The part of a step's time that whole weights must save where nobody asked for them,
#: and the part of the memory into which they must fit.
_WHOLE_SAVES, _WHOLE_FITS = 0.05, 0.9
#: Those that are tried in its place where it does not fit.
_SMALLER = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 0)


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


@dataclasses.dataclass(frozen=True)
class Plan:
    """Predictions for a step, the first of them as it is written."""

    mesh: Mapping[str, int]
    device: str
    links: str | None
    predictions: tuple[Prediction, ...]
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

    def best(self, memory_limit: int | None = None) -> Prediction:
        """The fastest one that needs no more memory than this. One with more
        techniques is taken only where it is faster by 2 %. Where nothing fits,
        the one that needs the least."""
        fitting = [prediction for prediction in self.predictions
                   if memory_limit is None or
                   prediction.peak_bytes <= memory_limit]
        if not fitting:
            return min(self.predictions,
                       key=lambda prediction: prediction.peak_bytes)
        fastest = min(prediction.seconds for prediction in fitting)
        return min((prediction for prediction in fitting
                    if prediction.seconds <= fastest * (1 + LEAST_GAIN)),
                   key=lambda prediction: (
                       len(TECHNIQUES[prediction.name]), prediction.seconds))

    def explain(self, chosen: Prediction, memory_limit: int | None) -> str:
        """Why `best` returned `chosen`."""
        first = self.predictions[0]
        text = (f"{chosen.name}: predicted {_milliseconds(chosen.seconds)} per "
                f"step, of which {_milliseconds(chosen.exposed)} are exposed "
                f"communication")
        if chosen is not first:
            text += (f"; as written {_milliseconds(first.seconds)}, "
                     f"{first.seconds / chosen.seconds:.2f}x")
        text += f"; {_gib(chosen.peak_bytes)} at the peak"
        if memory_limit is None:
            return text
        if chosen.peak_bytes > memory_limit:
            return (f"{text}; nothing fits into {_gib(memory_limit)}, and this "
                    f"needs the least")
        faster = [other for other in self.predictions
                  if other.peak_bytes > memory_limit
                  and other.seconds < chosen.seconds]
        for other in faster:
            text += (f"; {other.name} would take "
                     f"{_milliseconds(other.seconds)}, but "
                     f"{_gib(other.peak_bytes)} of {_gib(memory_limit)}")
        return text

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
                row += [_bytes(prediction.sent[tier]),
                        f"{prediction.busy[tier] / prediction.seconds:.0%}"]
            row += [_bytes(prediction.state_bytes),
                    _bytes(prediction.secondary_bytes),
                    _bytes(prediction.peak_bytes)]
            rows.append(row)
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(cell.ljust(width) if index == 0
                           else cell.rjust(width) for index, (cell, width)
                           in enumerate(zip(row, widths))) for row in rows]
        lines.insert(1, "-" * len(lines[0]))
        mesh = ",".join(f"{name}:{size}" for name, size in self.mesh.items())
        notes = [f"one step on {mesh}, {self.device}, links "
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
        return [f"in-flight limit of {chosen.name}: {_bytes(chosen.prefetch_bytes)}, "
                f"{_milliseconds(chosen.seconds)}, {_gib(chosen.peak_bytes)} at the "
                f"peak"] + [
            f"  {other.name}: {_milliseconds(other.seconds)} "
            f"({other.seconds / chosen.seconds - 1:+.1%}), {_gib(other.peak_bytes)}"
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
            "plans": numbers(self.predictions), "limits": numbers(self.limits)}

    def svg(self) -> str:
        """A picture of what runs when, on one scale of time."""
        from zpp._plan_picture import draw
        return draw(self)


def _with_limit(predictions: tuple[Prediction, ...]) -> Prediction | None:
    """The fastest one that has an in-flight limit."""
    return min((prediction for prediction in predictions if prediction.prefetch_bytes),
               key=lambda prediction: prediction.seconds, default=None)


def plan_text(text: str, options: Options, *, device: str | None,
              compute: float | None = None, limits: bool = False) -> Plan:
    """`plan` of a module."""
    device = device or "h100"
    if compute is not None and not compute > 0:
        raise ValueError(f"compute: expected a positive number of seconds, but "
                         f"got {compute!r}")
    variants = _variants(options)
    target = "portable" if options.target == "portable" else "cuda"
    chosen = {name: (variant, target if TECHNIQUES[name] else None)
              for name, variant in variants.items()}
    scale = 1.0
    if compute is not None:
        fsdp = {"FSDP": chosen["FSDP"]}
        found = predict(text, fsdp, device, 1.0)["FSDP"]["time"]["compute_usec"]
        scale = compute / (found / 1e6)
    reports = predict(text, chosen, device, scale)
    for name, base in ONCE.items():
        # A step without micro-batches.
        if name in reports and (reports[name]["total"]["after"]
                                == reports[base]["total"]["after"]):
            del reports[name]
    first = reports["FSDP"]
    if not first["collectives"]:
        # It raises, with the reason.
        report_entries(text, options)
    predictions = tuple(_read(name, variants[name], report)
                        for name, report in reports.items())
    best = _with_limit(predictions) if limits else None
    return Plan(
        {tier: first["mesh"][tier] for tier in first["tiers"]}, device,
        None if options.links in (None, NO_LINKS) else str(options.links),
        predictions, first["time"]["flops"], first["time"]["unknown_loops"],
        _other_limits(text, best, target, device, scale) if best else ())


def _variants(options: Options) -> dict[str, Options]:
    """The options of each row that has no other techniques than they allow."""
    tiers = [tier.split(":")[0] for tier in (options.mesh or "").split(",")]
    # The group that sums up: where none is named, that of secondary partitions.
    within = next((group for group in (options.accumulate, options.secondary)
                   if group is not None), tiers[-1] if len(tiers) > 1 else "none")
    allowed = {technique: getattr(options, technique) != "none" for technique in _OFF}
    allowed |= {"state": _has_state(options), "accumulate": within != "none"}
    return {name: _with_only(options, on, within) for name, on in TECHNIQUES.items()
            if all(allowed[technique] for technique in on)}


def _has_state(options: Options) -> bool:
    return (options.weights or "").endswith(":delta")


def _with_only(options: Options, on: tuple[str, ...], within: str | int) -> Options:
    """The options with these techniques alone, of which gradients are summed within
    a group."""
    changes = {technique: "none" for technique in _OFF if technique not in on}
    changes |= {option: "none" for option, technique in _NEEDS.items()
                if technique not in on}
    if "weights" in on and "state" not in on and _has_state(options):
        # What the rows without state would do.
        changes["weights"] = "i8"
    return options.replace(
        accumulate=within if "accumulate" in on else "none",
        tuning=options.tuning.replace(**{
            name: None for name, techniques in _TUNES.items()
            if not techniques & set(on)}),
        **changes)


def _other_limits(text: str, best: Prediction, target: str, device: str, scale: float
                   ) -> tuple[Prediction, ...]:
    """A prediction with other in-flight limits than it has, by `_LIMITS`."""
    assert best.prefetch_bytes is not None
    others = {name: best.options.replace(tuning=best.options.tuning.replace(
        prefetch_bytes=int(best.prefetch_bytes * part)))
        for name, part in _LIMITS.items()}
    reports = predict(text, {name: (other, target) for name, other in others.items()},
                      device, scale)
    return tuple(_read(name, other, reports[name]) for name, other in others.items())


def _read(name: str, options: Options, report: dict) -> Prediction:
    time, total = report["time"], report["total"]
    return Prediction(
        name, options, time["usec"] / 1e6, time["compute_usec"] / 1e6,
        time["exposed_usec"] / 1e6, time["bound_usec"] / 1e6,
        {name: usec / 1e6 for name, usec in time["bound_by"].items()}, total["after"],
        {tier: usec / 1e6 for tier, usec in time["busy_usec"].items()},
        time["state_bytes"], total["secondary_bytes"], time["peak_bytes"],
        report.get("prefetch_bytes"), tuple(map(tuple, time["tasks"])))


def choose(text: str, options: Options, auto: Auto) -> tuple[Options, str]:
    """The options of the best plan, and why it is the best."""
    found = plan_text(text, options, device=auto.device, compute=auto.compute)
    best = found.best(auto.memory_limit)
    return best.options, found.explain(best, auto.memory_limit)


def choose_if(auto: Auto | None, text: str, options: Options
              ) -> tuple[Options, str | None]:
    """The options to rewrite this module with, and why if they are chosen."""
    if auto is None:
        return options, None
    try:
        chosen, why = choose(text, options, auto)
    except NoCollectivesError:
        return options, None
    logger.info("%s", why)
    return chosen, why


def fit_in_flight(text: str, options: Options, result: Rewritten, device: str,
               memory_limit: int) -> tuple[Options, str | None]:
    """The options with an in-flight limit that fits, and why it is another one than `result`
    has, the module rewritten with these options for this device; None where it fits.
    The largest that fits is taken, or else the one that needs the least.
    """
    limit = result.report.get("prefetch_bytes")
    peak = result.report["time"]["peak_bytes"]
    if not limit or peak <= memory_limit:
        return options, None
    smaller = {size: options.replace(
        tuning=options.tuning.replace(prefetch_bytes=size))
        for size in (int(limit * part) for part in _SMALLER)}
    reports = predict(text, {str(size): (other, result.target)
                             for size, other in smaller.items()}, device, 1.0)
    peaks = {size: reports[str(size)]["time"]["peak_bytes"] for size in smaller}
    size = next((size for size in smaller if peaks[size] <= memory_limit),
                min(peaks, key=lambda size: peaks[size]))
    why = (f"in-flight limit: {_bytes(size)} rather than {_bytes(limit)}, with which "
           f"the predicted peak is {_gib(peak)} of the {_gib(memory_limit)} that "
           f"a device has; now it is {_gib(peaks[size])}")
    if peaks[size] > memory_limit:
        why += "; none fits, and this needs the least"
    return smaller[size], why


def keep_whole(text: str, options: Options, result: Rewritten, device: str,
               memory_limit: int) -> tuple[Options, str | None]:
    """The options with secondary=1, which keeps whole weights for the backward pass,
    and why; None where that does not pay. It is for nodes of one device, where nothing
    smaller can keep a partition, where links are so slow that weights are quantized,
    and nobody has said what `secondary` is.

    Args:
      result: the module rewritten with `options` for this device.
    """
    within = result.report["tiers"][1:]
    if (options.secondary is not None or options.links is None
            or options.frozen == "keep" or not any(
                entry["role"] == "weight" and entry["rewritten"]
                for entry in result.report["collectives"])
            or result.report["total"]["state_bytes"]
            or any(result.report["mesh"][tier] > 1 for tier in within)):
        return options, None
    whole = options.replace(secondary=1)
    report = predict(text, {"whole": (whole, result.target)}, device, 1.0)["whole"]
    usec, peak = report["time"]["usec"], report["time"]["peak_bytes"]
    if (usec > (1 - _WHOLE_SAVES) * result.report["time"]["usec"]
            or peak > _WHOLE_FITS * memory_limit):
        return options, None
    return whole, (
        f"secondary=1: nodes have one device, so each keeps whole weights for the "
        f"backward pass, with which a step is predicted to take "
        f"{_milliseconds(usec / 1e6)} rather than "
        f"{_milliseconds(result.report['time']['usec'] / 1e6)}, and "
        f"{_gib(peak)} of {_gib(memory_limit)} at the peak")


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


def parse_bytes(text: str) -> int:
    """"70GiB" -> 75161927680.

    Raises:
      ValueError: where it is something else.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)?", text.strip())
    if not match:
        raise ValueError(f"expected a number of bytes as 70GiB, but got "
                         f"'{text}'")
    unit = match[2] or "B"
    base = 1024 if "i" in unit else 1000
    return int(float(match[1]) * base ** "BKMGT".index(unit[0]))


def parse_seconds(text: str) -> float:
    """"54ms" -> 0.054.

    Raises:
      ValueError: where it is something else.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|ms|us)", text.strip())
    if not match:
        raise ValueError(f"expected a time as 54ms, but got '{text}'")
    return float(match[1]) * {"s": 1, "ms": 1e-3, "us": 1e-6}[match[2]]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
