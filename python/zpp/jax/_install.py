# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`install`: every module that XLA compiles for GPUs is rewritten, without a
changed line in the program.

What zpp expects of JAX and XLA for this is in `_hook`.
"""

import atexit
import collections
import dataclasses
import functools
import hashlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import jax

from zpp._compiler import Rewritten, rewrite_text
from zpp._files import write_file
from zpp._option_kinds import MEASURED, parse_mesh
from zpp._options import Options, values_of, write_words
from zpp._plan import Auto, split_auto
from zpp._release import find_version
from zpp._text import write_bytes
from zpp.jax import _hook, _processes, _runtime
from zpp.jax._rewrite import cuda_if_possible, find_machine, is_as_written

#: Why options are refused.
_NO_STATE = "as a compiled module has the arguments that it has"
_ONE_STEP = "as it counts arguments or collectives of one step"
#: Modules that `report` and the file of `install` have.
_MOST_REPORTS = 64
#: How long a process waits for the decisions of the others.
_AGREE_SECONDS = 600.0


@dataclasses.dataclass(frozen=True)
class ModuleReport:
    """A module with collectives that XLA has compiled since `zpp.install`."""

    #: The module's name, such as "jit_train_step".
    name: str
    #: Why it stayed as it was; None if it was rewritten.
    reason: str | None
    #: The report, as in `Rewritten`; None if zpp-opt did not get as far.
    report: dict | None = dataclasses.field(repr=False)
    #: Executes the collectives: "portable" or "cuda".
    target: str | None
    #: The time that the rewrite took, in seconds.
    seconds: float

    @property
    def rewritten(self) -> bool:
        """Whether XLA went on with another module."""
        return self.reason is None

    def __str__(self) -> str:
        if self.report is None or self.reason is not None:
            return f"{self.name} stays as it was: {self.reason}"
        entries = self.report["collectives"]
        left = [entry for entry in entries if not entry["rewritten"]]
        tiers = ", ".join(
            f"{write_bytes(before)} -> "
            f"{write_bytes(self.report['total']['after'].get(tier, 0))} over {tier}"
            for tier, before in self.report["total"]["before"].items() if before)
        text = (f"{self.name}: {tiers} per device and step; {len(entries) - len(left)} "
                f"of {len(entries)} collectives rewritten in {self.seconds:.1f} s "
                f"(target {self.target})")
        if left:
            text += f"; left alone: {_most_common(entry['reason'] for entry in left)}"
        return "; ".join([text, *(choice["why"] for choice in self.report["choices"])])


def _most_common(reasons: Iterable[str], most: int = 2) -> str:
    """Reasons with how often each was given, those of most modules first."""
    counts = collections.Counter(reasons).most_common()
    texts = [f"{count} x {reason}" for reason, count in counts[:most]]
    if len(counts) > most:
        texts.append(f"{len(counts) - most} other reasons")
    return ", ".join(texts)


class DisagreementError(RuntimeError):
    """Processes would run different programs; the message says who."""


@dataclasses.dataclass(frozen=True)
class _Decision:
    """The fate of a module."""

    #: The new module, serialized; None if it stays.
    content: bytes | None
    reason: str | None
    result: Rewritten | None = None

    def summary(self, words: str) -> dict[str, Any]:
        """The part that all processes must have in common, with the words of their
        options. Paths of files, which differ between hosts, are not among it."""
        if self.content is None or self.result is None:
            return {"text": f"left as it was ({self.reason})", "digest": "left"}
        entries = [{name: value for name, value in entry.items()
                    if name not in ("location", "locations")}
                   for entry in self.result.report["collectives"]]
        common = json.dumps([find_version(), self.result.target, words, entries,
                             self.result.report["choices"]], sort_keys=True)
        return {"text": f"zpp {find_version()} with {words} for target "
                        f"{self.result.target}",
                "digest": hashlib.sha256(common.encode()).hexdigest()}


class _Rewriter:
    """The callback, and what it has done so far."""

    def __init__(self, options: Options, report: str | os.PathLike | None,
                 auto: Auto | None = None):
        self.options = options
        self.auto = auto
        #: The options in words.
        self.words = " ".join([*write_words(values_of(options)),
                               *([repr(auto)] if auto else [])])
        self.reports: collections.deque[ModuleReport] = collections.deque(
            maxlen=_MOST_REPORTS)
        self._path = report
        self._lock = threading.Lock()
        self._num_offered = self._num_rewritten = 0
        self._reasons: collections.Counter[str] = collections.Counter()
        self._has_warned = False
        self._size = math.prod(parse_mesh(str(options.mesh)).values())

    @functools.cached_property
    def target(self) -> str:
        """The target, which executes the collectives."""
        return (cuda_if_possible() if self.options.target == "auto"
                else self.options.target)

    @property
    def uses_runtime(self) -> bool:
        return _hook.has_gpus() and self.target != "portable"

    def rewrite(self, content: bytes) -> bytes | None:
        """The new module, or None if it stays."""
        module = _hook.HloModule(content)
        has_collectives = module.has_collectives
        with self._lock:
            self._num_offered += 1
            if not has_collectives:
                self._reasons["no collectives"] += 1
        if not has_collectives:
            return None
        begin = time.monotonic()
        devices = self._find_devices(module)
        reason = self._reason_against(module, devices)
        if reason is not None:
            # All processes have this reason.
            decision = _Decision(None, reason)
        else:
            decision = self._decide(module, devices)
            self._agree(module, decision, devices)
            if decision.content is not None:
                decision = self._load(decision, devices)
        self._note(module, decision, time.monotonic() - begin)
        return decision.content

    @staticmethod
    def _find_devices(module: _hook.HloModule) -> list[jax.Device]:
        """The devices that run the module; empty if it does not say."""
        known = {device.id: device for device in jax.devices()}
        ids = module.devices
        if ids is None or not set(ids) <= known.keys():
            return []
        return [known[index] for index in ids]

    def _reason_against(self, module: _hook.HloModule,
                        devices: Sequence[jax.Device]) -> str | None:
        if not devices:
            return "it does not say which devices run it, or has replicas"
        if len(devices) != self._size:
            return (f"it runs on {len(devices)} devices, not on the {self._size} "
                    f"of mesh={self.options.mesh}")
        return module.why_not()

    def _decide(self, module: _hook.HloModule, devices: Sequence[jax.Device]
                ) -> _Decision:
        try:
            # The topic is as that of `_agree`.
            machine = find_machine(self.options, self.target, self.auto, devices,
                                   f"memory/{module.name}/{module.digest}")
            result = rewrite_text(module.to_stablehlo(), self.options, self.target,
                                  machine=machine)
            if is_as_written(result):
                report = result.report
                chosen = "; ".join(choice["why"] for choice in report["choices"])
                return _Decision(None, chosen or _most_common(
                    entry["reason"] for entry in report["collectives"])
                    or "no collectives", result)
            return _Decision(module.with_stablehlo(result.text), None, result)
        except Exception as error:
            self.warn(module.name, error)
            return _Decision(None, _first_line(error))

    def _agree(self, module: _hook.HloModule, decision: _Decision,
               devices: Sequence[jax.Device]) -> None:
        """Raises DisagreementError unless all processes have decided the same."""
        processes = sorted({device.process_index for device in devices})
        try:
            # Threads may compile several modules of a name at once, in another order in
            # each process.
            texts = _processes.exchange_between(
                devices, f"run/{module.name}/{module.digest}",
                json.dumps(decision.summary(self.words)), _AGREE_SECONDS)
        except RuntimeError as error:
            raise DisagreementError(str(error)) from error
        first, *others = map(json.loads, texts)
        for process, other in zip(processes[1:], others, strict=True):
            if other["digest"] != first["digest"]:
                raise DisagreementError(
                    f"expected all processes to rewrite {module.name} alike, but "
                    f"process {processes[0]} has {first['text']}, and process "
                    f"{process} has {other['text']}")

    def _load(self, decision: _Decision, devices: Sequence[jax.Device]
              ) -> _Decision:
        """Prepares the runtime. Where others have done so, failing is final."""
        assert decision.result is not None
        bundle = decision.result.bundle
        if bundle is None or not bundle.manifest["functions"]:
            return decision
        try:
            _runtime.load_bundle(bundle, devices)
        except Exception as error:
            if len({device.process_index for device in devices}) > 1:
                raise DisagreementError(
                    f"expected the runtime in all processes, but process "
                    f"{jax.process_index()} has none: {error}") from error
            self.warn("the runtime", error)
            return _Decision(None, _first_line(error), decision.result)
        return decision

    def _note(self, module: _hook.HloModule, decision: _Decision,
              seconds: float) -> None:
        result = decision.result
        report = ModuleReport(module.name, decision.reason,
                              result.report if result else None,
                              result.target if result else None, seconds)
        with self._lock:
            self.reports.append(report)
            if report.rewritten:
                self._num_rewritten += 1
            else:
                self._reasons[report.reason or ""] += 1
            self._write()
        if report.rewritten:
            _say(str(report))

    def _write(self) -> None:
        """Writes the report. A training does not end for it."""
        if self._path is None or _hook.process_index() != 0:
            return
        content = {
            "version": find_version(), "options": self.words,
            "modules": [{"rewritten": each.rewritten, **dataclasses.asdict(each)}
                        for each in self.reports]}
        try:
            write_file(self._path, json.dumps(content, indent=1).encode())
        except OSError as error:
            self._path = None
            _say(f"warning: no report is written: {error}")

    def warn(self, name: str, error: BaseException) -> None:
        """Tells of the first failure; later ones are in the reports."""
        with self._lock:
            if self._has_warned:
                return
            self._has_warned = True
        _say(f"warning: {name} stays as it was: {_first_line(error)}; more "
             f"modules may, see zpp.report()")

    def last_words(self) -> str | None:
        """Why nothing was rewritten, or None."""
        with self._lock:
            if self._num_rewritten:
                return None
            if not self._num_offered:
                why = ("XLA has compiled nothing for NVIDIA GPUs, or has found "
                       "everything in its cache; on other devices use zpp.jit")
            else:
                why = (f"of {self._num_offered} modules: "
                       f"{_most_common(self._reasons.elements(), 3)}")
        return f"nothing was rewritten: {why}"


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0][:300]


def _say(text: str) -> None:
    """A line on standard error, by one process."""
    if _hook.process_index() == 0:
        print(f"zpp: {text}", file=sys.stderr, flush=True)


#: The rewriter in use.
_current: _Rewriter | None = None
#: Whether this thread is in the callback.
_inside = threading.local()


def _cache_key() -> str:
    """The part of the keys of JAX's persistent cache that stands for zpp."""
    return f"zpp {find_version()} {_current.words}" if _current is not None else ""


def _bypasses_cache() -> bool:
    return _current is not None and _current.uses_runtime


def _transform(content: bytes) -> bytes | None:
    """XLA's callback. Raises only if going on would be worse than an end."""
    rewriter = _current
    if rewriter is None or getattr(_inside, "is_inside", False):
        return None
    _inside.is_inside = True
    try:
        return rewriter.rewrite(bytes(content))
    except DisagreementError:
        raise
    except Exception as error:
        # Before the processes have agreed, so that all have it.
        rewriter.warn("a module", error)
        return None
    finally:
        _inside.is_inside = False


def install(mesh: Any = None, *,
            options: Options | Auto | Literal["auto"] | None = None,
            report: str | os.PathLike | None = None, **changes: Any) -> None:
    """Rewrites the collectives of all steps that this process compiles for
    NVIDIA GPUs from now on, as `zpp run` does.

        zpp.install(mesh="node:8,gpu:8", weights="i8", gradients="i8:i4")

    Steps are plain `jax.jit`s with shardings. Modules in which nothing is
    rewritten stay as they are, by the same bytes. A module cannot keep state. As with
    `zpp.jit`, less is in flight where the devices have too little memory.

    Args:
      mesh: the tiers of the devices, from the slowest link to the fastest.
      options: as in `zpp.jit`: a `zpp.Options`; or "auto" or a `zpp.Auto`, for the
        techniques that are predicted to be the fastest for each module.
      report: a file that says, as JSON, what was rewritten.
      **changes: fields of `zpp.Options`, which replace those in `options`.

    Raises:
      RuntimeError: if JAX has no hook here; the message says what to do.
      ValueError: if an option is not valid, or keeps state.
    """
    global _current
    given, auto = split_auto(options)
    if mesh is not None:
        changes = {"mesh": mesh, **changes}
    chosen = check_options(given.replace(**changes))
    if chosen.mesh is None:
        raise ValueError("expected mesh, the tiers of all devices such as "
                         "'node:8,gpu:8', but got none")
    if reason := _hook.obstacle():
        raise RuntimeError(reason)
    if _current is not None:
        raise RuntimeError("expected zpp.uninstall before another zpp.install, "
                           "but zpp is installed")
    _hook.probe()
    _current = _Rewriter(chosen, report, auto)
    _hook.extend_cache_keys(_cache_key, _bypasses_cache)
    _hook.register(_transform)


def check_options(options: Options) -> Options:
    """The same options, if a module with a fixed signature can have them."""
    for name, is_refused, wanted in (
            ("weights", ":" in (options.weights or ""), f"a format without state, {_NO_STATE}"),
            ("frozen", options.frozen == "keep", f"none, {_NO_STATE}"),
            ("links", options.links == MEASURED, "speeds such as 'node=50gbit,gpu=400gbyte', "
             "as nothing can run while XLA compiles"),
            ("weights_of", options.weights_of is not None, f"none, {_ONE_STEP}"),
            ("gradients_of", options.gradients_of not in (None, "all"), f"'all', {_ONE_STEP}"),
            ("floors", bool(options.floors), f"none, {_ONE_STEP}")):
        if is_refused:
            raise ValueError(f"{name}: expected {wanted}, but got "
                             f"{getattr(options, name)!r}; zpp.jit takes it")
    return options


def uninstall() -> None:
    """Stops rewriting. Steps that are compiled already stay as they are; nothing
    happens if zpp is not installed."""
    global _current
    _current = None


def report() -> list[ModuleReport]:
    """The last modules with collectives that were compiled since
    `zpp.install`, rewritten or not."""
    return list(_current.reports) if _current is not None else []


@atexit.register
def _say_last_words() -> None:
    if _current is not None and (text := _current.last_words()):
        _say(text)
