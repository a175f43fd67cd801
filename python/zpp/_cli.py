# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `zpp`: steps in files of any form.

Text in the generic form needs no framework; all other forms need JAX.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import zpp
from zpp import _plan_command
from zpp._compiler import report_entries, report_table
from zpp._files import write_file
from zpp._rewrite import complete, is_pretty

#: As in `zpp.jax._forms`, which cannot be asked where JAX is missing.
FORMS = ("generic", "pretty", "bytecode", "artifact", "export", "hlo-text",
         "hlo-proto", "hlo-module-proto")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = _parser().parse_args(arguments)
    warnings.showwarning = lambda message, *_, **__: print(
        f"zpp: warning: {message}", file=sys.stderr)
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # Who reads has seen enough.
        _drop_output()
        return 1
    except (zpp.CompileError, ImportError, OSError, TypeError, ValueError
            ) as error:
        print(f"zpp: error: {error}", file=sys.stderr)
        _drop_output()
        return 1
    return 0


def _drop_output() -> None:
    """Where standard output takes no more, the rest goes nowhere. Python would
    try again at its end, and fail without telling why."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zpp", description="Rewrites the collectives of sharded training "
        "steps as ZeRO++. A step is a file in one of these forms: "
        f"{', '.join(FORMS)}.")
    parser.add_argument("--version", action="version", version=zpp.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name, run, text):
        result = commands.add_parser(name, help=text, description=text)
        result.set_defaults(run=run)
        result.add_argument("step", type=pathlib.Path, metavar="STEP")
        return result

    rewrite = command("rewrite", _rewrite, "Rewrite a step. The output is of "
                      "the form of the input; for the targets cuda and cpu it "
                      "is a folder for zpp.load.")
    rewrite.add_argument("-o", "--output", type=pathlib.Path, required=True)
    _add_options(rewrite)
    report = command("report", _report, "Print the bytes that a device sends "
                     "in a step over each tier.")
    report.add_argument("--mesh")
    report.add_argument("--format", choices=("table", "json"),
                        default="table")
    plan = command("plan", _plan, "Predict what a step takes as it is written "
                   "and with each technique. No device is needed.")
    _plan_command.add_arguments(plan)
    _add_options(plan)
    convert = command("convert", _convert, "Write a step in another form.")
    convert.add_argument("-o", "--output", type=pathlib.Path, required=True)
    convert.add_argument("--to", choices=FORMS, default="generic",
                         help="(default: generic, which zpp-opt reads)")
    return parser


def _add_options(parser: argparse.ArgumentParser) -> None:
    """The fields of zpp.Options."""
    kinds = {"block": int, "rotate": int, "stages": int, "prefetch_bytes": int,
             "coalesce_bytes": int, "compile_timeout": float,
             "regather": _boolean, "secondary": _group}
    for name in zpp.Options.__dataclass_fields__:
        parser.add_argument(f"--{name.replace('_', '-')}",
                            type=kinds.get(name, str),
                            default=argparse.SUPPRESS)


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(
            f"expected true or false, but got '{text}'")
    return text == "true"


def _group(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _chosen(options: argparse.Namespace) -> zpp.Options:
    return zpp.Options(**{
        name: value for name, value in vars(options).items()
        if name in zpp.Options.__dataclass_fields__})


def _rewrite(options: argparse.Namespace) -> None:
    chosen = _chosen(options)
    form, step = _read(options.step)
    result = zpp.rewrite(_provide_devices(step), chosen)
    if result.target != "portable":
        if result.step is not None:
            zpp.save(result, options.output)
        else:
            from zpp._bundle import MANIFEST, write_folder
            write_folder(options.output, result.bundle.files, (MANIFEST,))
    elif result.step is not None:
        write_file(options.output, bytes(result.step.exported.serialize()))
    else:
        write_file(options.output, _in_form(result.text, form))


def _report(options: argparse.Namespace) -> None:
    chosen = zpp.Options(mesh=options.mesh, weights="none", gradients="none",
                         secondary="none")
    if options.format == "table":
        print(report_table(_text(_read(options.step)[1]), chosen), end="")
    else:
        print(json.dumps(report_entries(_text(_read(options.step)[1]), chosen),
                         indent=1))


def _plan(options: argparse.Namespace) -> None:
    _plan_command.run(options, _chosen(options), _text(_read(options.step)[1]))


def _convert(options: argparse.Namespace) -> None:
    form, step = _read(options.step)
    if options.to == form:
        write_file(options.output, options.step.read_bytes())
    elif options.to == "export":
        raise ValueError(f"expected a form of a module to convert {form} to, "
                         f"but got export: zpp.export of the function makes it")
    else:
        text = step if isinstance(step, str) else step.text()
        write_file(options.output, _in_form(text, options.to))


def _read(path: pathlib.Path) -> tuple[str, Any]:
    """The form of a file, and what zpp.rewrite takes of it: an export or the
    text of a module."""
    content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text and not text.startswith("HloModule") and (
            not is_pretty(text)):
        return "generic", text
    from zpp.jax import _forms
    try:
        source = _forms.read(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return source.form, source.step or source.text


def _provide_devices(step: Any) -> Any:
    """The same step. It can be partitioned on any machine."""
    if isinstance(step, str):
        count = re.search(r"mhlo.num_partitions = (\d+)", step)
        if count is None or importlib.util.find_spec("jax") is None:
            return step
        count = int(count.group(1))
    else:
        count = step.exported.nr_devices
    from zpp.jax import provide_devices
    provide_devices(count)
    return step


def _text(step: Any) -> str:
    """The module of what `_read` returns, with the collectives that XLA makes
    of its shardings."""
    return (complete(_provide_devices(step)) if isinstance(step, str)
            else _provide_devices(step).complete_text)


def _in_form(text: str, form: str) -> bytes:
    if form == "generic":
        return text.encode()
    from zpp.jax import _forms
    return _forms.write(text, form)
