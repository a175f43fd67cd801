# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `zpp`: steps in files of any form, and programs.

Text needs no framework; all other forms need JAX.
"""

import argparse
import json
import os
import pathlib
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import zpp
from zpp import _doctor, _opt_command, _plan_command, _run_command
from zpp._compiler import came_from, print_text, report_entries
from zpp._compiler import report_table
from zpp._files import write_file
from zpp._html import render
from zpp._options import TUNING, describe, read_words
from zpp._rewrite import complete
from zpp._text import FORMS, TEXTS, check_text, is_pretty
from zpp._warn import warn

#: The attribute of a module that zpp has rewritten.
REWRITTEN = "zpp.machine"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    # XLA says on standard error what is no concern of who reads a report.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    options = _parser().parse_args(arguments)
    warnings.showwarning = lambda message, *_, **__: print(
        f"zpp: warning: {message}", file=sys.stderr)
    try:
        status = options.run(options) or 0
        sys.stdout.flush()
    except BrokenPipeError:  # Who reads has seen enough.
        _drop_output()
        return 1
    except (zpp.CompileError, ImportError, OSError, TypeError, ValueError
            ) as error:
        print(f"zpp: error: {error}", file=sys.stderr)
        _drop_output()
        return 1
    return status


def _drop_output() -> None:
    """Sends the rest nowhere once standard output takes no more. Python would
    try again at its end, and fail without telling why."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zpp", description="Rewrites the collectives of sharded training "
        "steps as ZeRO++. A step is a file in one of these forms: "
        f"{', '.join(FORMS)}; - is standard input.")
    parser.add_argument("--version", action="version", version=zpp.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name, run, text):
        result = commands.add_parser(name, help=text, description=text)
        result.set_defaults(run=run)
        result.add_argument("step", type=pathlib.Path, metavar="STEP|-")
        return result

    def add_output(result):
        result.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE",
                            default=_STANDARD, help="(default: standard output)")

    rewrite = command("rewrite", _rewrite, "Rewrite a step. The output is of "
                      "the form of the input; for the targets cuda and cpu it "
                      "is a folder for zpp.load.")
    add_output(rewrite)
    _add_options(rewrite)
    report = command("report", _report, "Print the bytes that a device sends "
                     "in a step over each tier.")
    report.add_argument("--mesh", help=describe(zpp.Options)["mesh"].help)
    report.add_argument("--format", choices=("table", "json"),
                        default="table")
    report.add_argument("--html", type=pathlib.Path, metavar="FILE",
                        help="write a page for a browser instead: tables that "
                        "sort, what was left alone and why")
    report.add_argument("--device", help="draw the predicted timeline of such a "
                        "device into the page: h100, or as zpp plan takes it")
    report.add_argument("--links", help=describe(zpp.Options)["links"].help)
    plan = command("plan", _plan, "Predict what a step takes as it is written "
                   "and with each technique. No device is needed.")
    _plan_command.add_arguments(plan)
    _add_options(plan)
    run = commands.add_parser(
        "run", description=_run_command.DESCRIPTION,
        help="Run a JAX program on NVIDIA GPUs whose steps are rewritten while "
        "XLA compiles them. The program stays as it is.")
    run.set_defaults(run=lambda options: _run_command.run(
        options, _chosen(options)))
    _run_command.add_arguments(run)
    _add_options(run)
    convert = command("convert", _convert, "Write a step in another form.")
    add_output(convert)
    convert.add_argument("--to", choices=FORMS, default="generic",
                         help="(default: generic)")
    opt = command("opt", lambda options: _opt_command.run(
        *_read(options.step), options.flags, _in_form, _write), _opt_command.DESCRIPTION)
    opt.add_argument("flags", nargs=argparse.REMAINDER, metavar="FLAG",
                     help="flags of zpp-opt, such as --zeropp=mesh=node:2,gpu:4; -o "
                     "FILE writes there instead of to standard output")
    text = ("Show what is installed, what works with it, and how to mend the "
            "rest. The exit status is 1 if something is broken.")
    doctor = commands.add_parser("doctor", help=text, description=text)
    doctor.set_defaults(run=lambda _: _doctor.run())
    return parser


def _add_options(parser: argparse.ArgumentParser) -> None:
    """The fields of zpp.Options and zpp.Tuning."""
    titles = ("options",), ("options for experts", "The defaults suit most steps.")
    for title, (prefix, kind) in zip(titles, _GROUPS.items()):
        _add_group(parser.add_argument_group(*title), kind, prefix)


#: The types that have the options, by the prefix of their names.
_GROUPS = {"": zpp.Options, f"{TUNING}.": zpp.Tuning}


def _add_group(group: Any, kind: type, prefix: str) -> None:
    for name, option in describe(kind).items():
        default = option.default_text or option.default
        values = ("" if option.kind.words
                  else f" Values: {option.kind.values}")
        group.add_argument(
            f"--{prefix}{name.replace('_', '-')}", dest=prefix + name,
            default=argparse.SUPPRESS,
            metavar=(option.kind.values if option.kind.words
                     else name.upper().replace("_", "-")),
            help=f"{option.help}{values} (default: {default})".replace(
                "%", "%%"))


def _chosen(options: argparse.Namespace) -> zpp.Options:
    return zpp.Options(**read_words(
        f"{name}={value}" for prefix, kind in _GROUPS.items() for name in (
            prefix + field for field in describe(kind))
        if (value := vars(options).get(name)) is not None))


def _rewrite(options: argparse.Namespace) -> None:
    chosen = _chosen(options)
    form, step = _read(options.step)
    result = zpp.rewrite(step, chosen)
    if result.target != "portable":
        if options.output == _STANDARD:
            raise ValueError(f"expected a folder for target {result.target}, but got "
                             f"no --output")
        if result.step is not None:
            zpp.save(result, options.output)
        else:
            from zpp._bundle import MANIFEST, write_folder
            write_folder(options.output, result.bundle.files, (MANIFEST,))
    elif result.step is not None:
        _write(options.output, bytes(result.step.exported.serialize()))
    else:
        _write(options.output, _in_form(result.text, form))


def _report(options: argparse.Namespace) -> None:
    chosen = zpp.Options(mesh=options.mesh, weights="none", gradients="none",
                         secondary="none", links=options.links)
    if options.html is None and (options.device or options.links):
        raise ValueError("expected --html with --device or --links, which are for "
                         "its timeline; zpp plan prints times")
    form, step = _read(options.step)
    text = _text(step)
    if form.startswith("hlo") and REWRITTEN in text:
        warn("HLO does not keep what a step was before zpp rewrote it: before is as "
             "after, and both are of the rewritten step")
    if options.html is not None:
        entries = report_entries(text, chosen, options.device)
        write_file(options.html, render(entries, _name_of(options.step)).encode())
    elif options.format == "table":
        print(report_table(text, chosen), end="")
    else:
        print(json.dumps(report_entries(text, chosen), indent=1))


def _plan(options: argparse.Namespace) -> None:
    _plan_command.run(options, _chosen(options), _text(_read(options.step)[1]))


def _convert(options: argparse.Namespace) -> None:
    form, step = _read(options.step)
    if options.to == "export" != form:
        raise ValueError(f"expected a form of a module to convert {form} to, "
                         f"but got export: zpp.export of the function makes it")
    text = step if isinstance(step, str) else step.text()
    _write(options.output, text.encode() if form == options.to in TEXTS
           else _in_form(text, options.to, step))


#: Standard input or output.
_STANDARD = pathlib.Path("-")


def _name_of(path: pathlib.Path) -> str:
    return "stdin" if path == _STANDARD else path.name


def _write(path: pathlib.Path, content: bytes) -> None:
    if path == _STANDARD:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        write_file(path, content)


def _read(path: pathlib.Path) -> tuple[str, Any]:
    """The form of a file, and what zpp.rewrite takes of it: an export or the
    text of a module."""
    is_file = path != _STANDARD
    content = path.read_bytes() if is_file else sys.stdin.buffer.read()
    name = str(path) if is_file else "stdin"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    try:
        if "\0" not in text:
            check_text(text)
            if not text.startswith("HloModule"):
                came_from(text, path)
                return "pretty" if is_pretty(text) else "generic", text
        from zpp.jax import _forms
        return _forms.read(content)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _text(step: Any) -> str:
    """The module of what `_read` returns, with the collectives that XLA makes
    of its shardings."""
    return complete(step) if isinstance(step, str) else step.complete_text


def _in_form(text: str, form: str, step: Any = None) -> bytes:
    """A module in another form; a file of the form export needs the export, too."""
    if form in TEXTS:
        return print_text(text, form == "generic").encode()
    from zpp.jax import _forms
    return _forms.write(text, form, step)
