# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs zpp-opt, and zpp-bundle if the runtime is to execute collectives."""

import dataclasses
import json
import logging
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from zpp._bundle import Bundle, read_bundle
from zpp._option_kinds import MEASURED, NO_LINKS
from zpp._options import NAMED, Options, values_of, with_words, write_words
from zpp._release import find_part, is_part
from zpp._text import drop_advice
from zpp._warn import warn

logger = logging.getLogger("zpp")


class CompileError(Exception):
    """zpp-opt or zpp-bundle did not accept its input or its options.

    The message has the compiler's errors; `output` has everything it wrote.
    """

    def __init__(self, message: str, output: str):
        super().__init__(message)
        self.output = output


@dataclasses.dataclass(frozen=True)
class Diagnostic:
    """One message of the compiler."""

    location: str
    severity: str
    message: str

    def __str__(self) -> str:
        return f"{self.location}: {self.severity}: {self.message}"


@dataclasses.dataclass(frozen=True)
class Rewritten:
    """The result of `rewrite`."""

    text: str
    #: The parsed report: {"mesh", "collectives", "total"}, as --zero-report
    #: writes it, and the "links" that were given or measured, or None. Bytes per
    #: device and step.
    report: dict
    #: Everything the compiler said, in order.
    remarks: tuple[Diagnostic, ...]
    #: The executor of the collectives: "portable", "cuda" or "cpu".
    target: str = "portable"
    #: The rewritten step as the front end has it; None for text.
    step: Any = None
    #: The host side of the text, unless the target is portable.
    bundle: Bundle | None = None

    @property
    def left_alone(self) -> list[dict]:
        """The report's entries of collectives that were not rewritten, each
        with its "reason"."""
        return [collective for collective in self.report["collectives"]
                if not collective["rewritten"]]


#: The module that was read from a file last, and the file.
_from_file: tuple[str, pathlib.Path] | None = None


def came_from(text: str, path: pathlib.Path) -> None:
    """Notes that a file consists of this module, for messages about it."""
    global _from_file
    _from_file = (text, path) if path.is_file() else None


def source_of(text: str) -> tuple[str, str]:
    """The file that zpp-opt reads for a module, and what is in its standard input."""
    if _from_file is not None and _from_file[0] is text:
        return str(_from_file[1]), ""
    return "-", text


def rewrite_text(text: str, options: Options, target: str, **more: Any) -> Rewritten:
    """`compile_text`, with the host side, which a program for XLA alone does not have."""
    result = compile_text(text, options, target, **more)
    if target == "portable":
        return result
    with tempfile.TemporaryDirectory(prefix="zpp-") as name:
        written, made = pathlib.Path(name, "rewritten.mlir"), pathlib.Path(name, "step.zpp")
        written.write_text(result.text)
        remarks = _run([find_bundler(), written, "-o", made],
                       options.tuning.compile_timeout)
        return dataclasses.replace(
            result, text=(made / "step.mlir").read_text(), bundle=read_bundle(made),
            remarks=(*result.remarks, *remarks))


def compile_text(text: str, options: Options, target: str, start: str = "none",
                 phases: Sequence[str] = ("zeropp",),
                 machine: Mapping[str, Any] | None = None, scale: float = 1.0
                 ) -> Rewritten:
    """Rewrites a module.

    Args:
      target: "portable", "cuda" or "cpu"; that of `options` is ignored.
      start: the part of the state that the step begins, rather than takes it:
        "all", "frozen" or "none".
      phases: the pipelines to run: all of zeropp, or some of its phases.
      machine: options of the pipeline by which it chooses what `options` leave
        open: the "device", on which the report then predicts time and memory, its
        "memory-limit", and "choose". `with_choices` returns what was chosen.
      scale: factor on the predicted time of compute.

    Raises:
      CompileError: with the compiler's message.
    """
    machine = {name: value for name, value in (machine or {}).items() if value}
    device, limit = machine.get("device"), machine.get("memory-limit")
    pipeline = _pipeline(options, target) | machine
    pipeline["start"] = None if start == "none" else start
    # The input and the output are verified in any case.
    rewritten, remarks, report = _run_with_report(
        text, ["--verify-each=false", "--mlir-print-debuginfo",
               *(_flag(phase, pipeline) for phase in phases)], options,
        {"device": device, "compute-scale": repr(scale) if device else None,
         "links": device and pipeline["links"]})
    report["links"] = pipeline["links"]
    if limit:
        report["memory_limit"] = limit
    result = Rewritten(rewritten, report, tuple(remarks), target)
    for collective in result.left_alone:
        logger.info("%s: %s left as it is: %s", collective["location"],
                    collective["kind"], collective["reason"])
    return result


def with_choices(options: Options, result: Rewritten) -> Options:
    """The options with those that the compiler has chosen in place of some."""
    for choice in result.report["choices"]:
        options = with_words(options, choice["options"])
        # Less in flight is not what anybody wishes for.
        logger.log(logging.WARNING if "prefetch-bytes" in choice["options"]
                   else logging.INFO, "%s", choice["why"])
    return options


#: The scatters that XLA's partitioner has spelled out become scatters.
_IMPORT = "--zero-import-partitioned"


def import_partitioned(text: str) -> str:
    """The program of XLA's partitioner as one that jax.export can have: with
    scatters where it has sums and slices, and groups of the step's devices."""
    return _run_opt(text, [_IMPORT, "--mlir-print-debuginfo"])[0]


def _pipeline(options: Options, target: str) -> dict:
    """The options of the pass pipeline."""
    pipeline = {name.replace("_", "-"): value for name, value in values_of(options).items()
                if NAMED[name].is_compilers}
    pipeline["links"] = _speeds(options)
    pipeline["floors"] = options.floors or None
    for name in ("weights_of", "gradients_of"):
        # The front end has turned names into numbers of the module's arguments.
        if (named := getattr(options, name)) is not None:
            pipeline[name.replace("_", "-")] = (
                named if isinstance(named, str)
                else ",".join(map(str, named)) or None)
    if target != "portable":
        pipeline["target"] = "cuda"
    return pipeline


def _speeds(options: Options) -> Any:
    """The links as the compiler reads them."""
    if options.links == MEASURED:
        raise ValueError(
            f"links: expected speeds such as 'node=50gbit,gpu=400gbyte', but got "
            f"{MEASURED!r}, for which there must be devices; zpp.jit and "
            f"zpp.torch.compress take it")
    return None if options.links == NO_LINKS else options.links


def predict_plans(text: str, options: Options, target: str,
                  machine: dict[str, Any]) -> dict:
    """Returns the compiler's predictions of each set of techniques that the options
    allow, and the best one. Raises ValueError for a module without collectives.

    Args:
      machine: as in `compile_text`, with "choose".
    """
    with tempfile.TemporaryDirectory(prefix="zpp-") as name:
        plans = pathlib.Path(name, "plans.json")
        pipeline = _pipeline(options, target) | machine | {"plans": plans}
        # Remarks would be a tenth of the time, and nobody reads them.
        _run_opt(text, [_flag("zeropp", pipeline), "--verify-each=false",
                        "--remarks-filter=none"], options)
        if not plans.exists():
            # It raises, with the reason.
            report_entries(text, options)
        return json.loads(plans.read_text())


def print_text(text: str, is_generic: bool) -> str:
    """A module as text in the generic or the pretty form."""
    return _run_opt(text, ["--mlir-print-debuginfo",
                           *["--mlir-print-op-generic"] * is_generic])[0]


def report_table(text: str, options: Options) -> str:
    """Returns the report of a module, as a table for people."""
    with tempfile.TemporaryDirectory(prefix="zpp-") as name:
        table = pathlib.Path(name, "table")
        _report(text, options, {}, _flag("zero-report", {
            "mesh": options.mesh, "format": "table", "output": table}))
        return table.read_text()


def report_entries(text: str, options: Options, device: str | None = None) -> dict:
    """Returns the same, as in `Rewritten.report`, with a timeline of a device."""
    timeline = {"device": device, "links": _speeds(options), "timeline": True}
    return _report(text, options, timeline if device else {})


def _report(text: str, options: Options, more: Mapping[str, Any], *flags: str) -> dict:
    """Returns a report with these options. Raises ValueError where there is none."""
    *_, report = _run_with_report(text, [_IMPORT, *flags], options, more)
    if "no_collectives" in report:
        raise ValueError(report["no_collectives"])
    return report


def warn_if_nothing_was_rewritten(result: Rewritten, options: Options,
                                  hint: str | None = None) -> None:
    """Warns if nothing was rewritten.

    hint: why the step has no collectives, and what to do about it; by default
      what the compiler says.
    """
    entries = result.report["collectives"]
    if {options.weights, options.gradients, options.secondary} == {"none"} or (
            any(entry["rewritten"] for entry in entries)):
        return
    if entries:
        warn(f"zpp left all {len(entries)} collectives as they are; "
             f"Rewritten.left_alone says why")
    elif hint is not None:
        warn(f"expected a step with collectives, but got none: {hint}")
    else:
        warn(result.report["no_collectives"])


def find_compiler() -> str:
    """Finds zpp-opt, also at $ZPP_OPT."""
    return find_part("bin", "zpp-opt", "ZPP_OPT")


def find_bundler() -> str:
    """Finds zpp-bundle, which comes with zpp-opt."""
    place = pathlib.Path(find_compiler()).with_name("zpp-bundle")
    if not is_part("bin", place):
        raise FileNotFoundError(f"expected zpp-bundle beside zpp-opt, but got "
                                f"no program at '{place}'")
    return str(place)


def _flag(name: str, options: Mapping[str, Any]) -> str:
    return f"--{name}={' '.join(write_words(options))}"


_DIAGNOSTIC = re.compile(
    r"^(?P<location>.+?): (?P<severity>error|warning|remark|note): "
    r"(?P<message>.*)$")


def _run_with_report(text: str, flags: Sequence[str], options: Options,
                     more: Mapping[str, Any]) -> tuple[str, list[Diagnostic], dict]:
    """`_run_opt`, and a report with these options of what it makes."""
    with tempfile.TemporaryDirectory(prefix="zpp-") as name:
        place = pathlib.Path(name, "report.json")
        written, remarks = _run_opt(text, [*flags, _flag("zero-report", {
            "mesh": options.mesh, "format": "json", "output": place, **more})], options)
        return written, remarks, json.loads(place.read_text())


def _run_opt(text: str, flags: Sequence[str], options: Options | None = None
             ) -> tuple[str, list[Diagnostic]]:
    """Runs zpp-opt on a module. Returns the module that it writes, and what it says."""
    source, content = source_of(text)
    timeout = None
    if options is not None:
        timeout = options.tuning.compile_timeout
        if options.mesh is not None:
            # Of HLO from inside of XLA's compiler, which does not name its devices.
            flags = [f"--zero-import-compiled=mesh={options.mesh}", *flags]
    with tempfile.TemporaryDirectory(prefix="zpp-") as name:
        output = pathlib.Path(name, "out.mlir")
        remarks = _run([find_compiler(), source, *flags, "-o", output], timeout, content)
        return output.read_text(), remarks


def _run(command: list, timeout: float | None, content: str = ""
         ) -> list[Diagnostic]:
    """Runs the compiler. Raises its errors and passes on its warnings.

    content: its standard input.
    """
    program = pathlib.Path(command[0]).name
    try:
        process = subprocess.run(
            [str(word) for word in command], input=content,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            check=False, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        written = error.stderr or b""
        raise CompileError(
            f"{program}: expected an end within tuning.compile_timeout, "
            f"{timeout} s, but got none",
            written if isinstance(written, str)
            else written.decode(errors="replace")) from None
    diagnostics = [Diagnostic(**match.groupdict()) for match in
                   map(_DIAGNOSTIC.match, process.stderr.splitlines()) if match]
    if process.returncode != 0:
        errors = [str(diagnostic) for diagnostic in diagnostics
                  if diagnostic.severity == "error"]
        raise CompileError(
            drop_advice("\n".join(dict.fromkeys(errors)) or process.stderr.strip() or
                        f"{program} ended with status {process.returncode}"),
            process.stderr)
    for diagnostic in diagnostics:
        if diagnostic.severity == "warning":
            warn(str(diagnostic))
        else:
            logger.debug("%s", diagnostic)
    return diagnostics
