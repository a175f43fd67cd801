# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs zpp-opt, and zpp-bundle where the runtime is to execute collectives."""

import dataclasses
import json
import logging
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import warnings

from zpp.jax import _runtime
from zpp._bundle import read_bundle
from zpp.jax._export import Bundle, Step

logger = logging.getLogger("zpp")


class CompileError(Exception):
    """zpp-opt or zpp-bundle did not accept its input or its options.

    The message has the compiler's errors; `output` is all it wrote.
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
    """What `rewrite` made of a step."""

    text: str
    #: The parsed report: {"mesh", "collectives", "total"}, as --zero-report
    #: writes it. Bytes per device and step.
    report: dict
    #: Everything the compiler said, in order.
    remarks: tuple[Diagnostic, ...]
    #: What executes the collectives: "portable", "cuda" or "cpu".
    target: str = "portable"
    #: The rewritten step, where the input was one.
    step: Step | None = None
    #: The host side of the text, unless the target is portable.
    bundle: Bundle | None = None

    @property
    def left_alone(self) -> list[dict]:
        """The report's entries of collectives that were not rewritten; each
        says why as "reason"."""
        return [collective for collective in self.report["collectives"]
                if not collective["rewritten"]]


def rewrite(step: Step | str, *, mesh: str | None = None,
            weights: str | None = None, gradients: str | None = None,
            secondary: str | int | None = None, block: int | None = None,
            regather: bool | None = None, stages: int | None = None,
            links: str | None = None, prefetch_bytes: int | None = None,
            coalesce_bytes: int | None = None, target: str = "auto"
            ) -> Rewritten:
    """Rewrites the collectives of an exported step into ZeRO++.

    Whatever is None is left to the compiler's default.

    Args:
      step: a `Step`, or its text in the generic form.
      mesh: tiers from the slowest link to the fastest, as "node:2,gpu:4";
        needed where the step's own mesh does not say it.
      weights: wire format of weight gathers (qwZ): "none", "i8" or "i4".
      gradients: formats of the gradient scatter's hops from the innermost
        outwards (qgZ), as "i8:i4"; one format is one hop over all; "none".
      secondary: the group that keeps a second copy of the weights for the
        backward pass (hpZ): the name of a tier, a number of devices, "none".
      block: elements that share a scale.
      regather: drop gathered weights that a step keeps alive and gather them
        again in the backward pass (ZeRO-3).
      stages: parts that a gradient's hops are cut into.
      links: what a device sends per second over the links of each tier, as
        "node=50gbit,gpu=400gbyte", or a file with them (`zpp-perf
        --calibrate` measures and prints it); what would not make a collective
        faster there is left out.
      prefetch_bytes: memory for weights that are gathered before they are
        needed and for gradients that wait to be scattered, with target cuda.
      coalesce_bytes: what a device contributes at most to a buffer in which
        several tensors travel; 0: each travels alone.
      target: what executes the collectives. "portable": XLA, on any device.
        "cuda": the runtime on NVIDIA GPUs, with its kernels and NCCL. "cpu":
        the same on CPU devices of one process, which shows that it works, not
        how fast it is. "auto": "cuda" for a step exported for it where the
        runtime can, otherwise "portable"; the reason is logged.

    Raises:
      CompileError: with the compiler's message.
    """
    target = _resolve(target, step)
    options = {"mesh": mesh, "weights": weights, "gradients": gradients,
               "secondary": secondary, "block": block, "regather": regather,
               "stages": stages, "links": links,
               "prefetch-bytes": prefetch_bytes,
               "coalesce-bytes": coalesce_bytes,
               "target": None if target == "portable" else "xla-ffi"}
    text = step if isinstance(step, str) else step.text()
    with tempfile.TemporaryDirectory(prefix="zpp-") as folder:
        source, output, report = (
            pathlib.Path(folder, name)
            for name in ("step.mlir", "rewritten.mlir", "report.json"))
        source.write_text(text)
        remarks = _run([
            find_compiler(), source, f"--zeropp={_join(options)}",
            f"--zero-report={_join({'mesh': mesh})} format=json "
            f"output={report}", "--mlir-print-debuginfo", "-o", output])
        bundle = None
        if target != "portable":
            folder = pathlib.Path(folder, "step.zpp")
            remarks += _run([_find_bundler(), output, "-o", folder])
            output, bundle = folder / "step.mlir", read_bundle(folder)
        result = Rewritten(output.read_text(), json.loads(report.read_text()),
                           tuple(remarks), target, bundle=bundle)
    for collective in result.left_alone:
        logger.info("%s: %s left as it is: %s", collective["location"],
                    collective["kind"], collective["reason"])
    entries = result.report["collectives"]
    asked = {weights, gradients, secondary} != {"none"}
    if asked and not any(entry["rewritten"] for entry in entries):
        warnings.warn(
            f"zpp left all {len(entries)} collectives as they are; "
            f"Rewritten.left_alone says why" if entries else
            "expected a step with collectives (jax.shard_map), but got none; "
            "zpp does not see those that XLA makes of shardings", stacklevel=2)
    if isinstance(step, Step):
        result = dataclasses.replace(
            result, step=step.with_text(result.text, bundle))
    return result


def find_compiler() -> str:
    """The path of zpp-opt: $ZPP_OPT, beside this package, in $PATH, or in the
    build directory of a source tree."""
    package = pathlib.Path(__file__).resolve().parent
    chosen = os.environ.get("ZPP_OPT")
    places = [chosen] if chosen else [
        package / "bin" / "zpp-opt", shutil.which("zpp-opt"),
        package.parent.parent / "build" / "bin" / "zpp-opt"]
    for place in places:
        if place and _is_program(place):
            return str(place)
    raise FileNotFoundError(
        f"expected zpp-opt at $ZPP_OPT, but got no program at '{chosen}'"
        if chosen else
        "expected zpp-opt in PATH, but got none; build it (make build) or set "
        "ZPP_OPT to its path")


def _find_bundler() -> str:
    """The path of zpp-bundle, which comes with zpp-opt."""
    place = pathlib.Path(find_compiler()).with_name("zpp-bundle")
    if not _is_program(place):
        raise FileNotFoundError(f"expected zpp-bundle beside zpp-opt, but got "
                                f"no program at '{place}'")
    return str(place)


def _is_program(place: str | os.PathLike) -> bool:
    return os.access(place, os.X_OK) and os.path.isfile(place)


def _resolve(target: str, step: Step | str) -> str:
    """What "auto" means for a step."""
    if target in ("portable", "cuda", "cpu"):
        platforms = (target,) if isinstance(step, str) else (
            step.exported.platforms)
        if target != "portable" and platforms != (target,):
            raise ValueError(
                f"expected a step exported for {target}, but got one for "
                f"{', '.join(platforms)}")
        return target
    if target != "auto":
        raise ValueError(f"expected target auto, portable, cuda or cpu, but "
                         f"got '{target}'")
    if isinstance(step, str) or step.exported.platforms != ("cuda",):
        # The runtime's other back end is there to be tested.
        return "portable"
    reason = _runtime.obstacle("cuda")
    if reason is None:
        try:
            _find_bundler()
        except FileNotFoundError as error:
            reason = str(error)
    if reason is None:
        return "cuda"
    logger.warning("target portable instead of cuda: %s", reason)
    return "portable"


def _join(options: dict) -> str:
    """Pass options as "name=value name=value", without those that are None."""
    return " ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in options.items() if value is not None)


_DIAGNOSTIC = re.compile(
    r"^(?P<location>.+?): (?P<severity>error|warning|remark|note): "
    r"(?P<message>.*)$")


def _run(command: list) -> list[Diagnostic]:
    """Runs the compiler; raises its errors, passes its warnings on."""
    process = subprocess.run([str(word) for word in command],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, check=False)
    diagnostics = [Diagnostic(**match.groupdict()) for match in
                   map(_DIAGNOSTIC.match, process.stderr.splitlines()) if match]
    if process.returncode != 0:
        errors = [str(diagnostic) for diagnostic in diagnostics
                  if diagnostic.severity == "error"]
        raise CompileError(
            "\n".join(errors) or process.stderr.strip() or
            f"zpp-opt ended with status {process.returncode}", process.stderr)
    for diagnostic in diagnostics:
        if diagnostic.severity == "warning":
            warnings.warn(str(diagnostic), stacklevel=3)
        else:
            logger.debug("%s", diagnostic)
    return diagnostics
