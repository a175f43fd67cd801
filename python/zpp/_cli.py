# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `zpp`: steps in files of any form, and programs.

Text needs no framework; all other forms need JAX.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zpp
from zpp import _doctor, _run_command
from zpp._compiler import came_from, find_compiler, print_text, report_entries
from zpp._compiler import report_table, source_of
from zpp._files import write_file
from zpp._html import render
from zpp._options import NAMED, read_words
from zpp._rewrite import complete
from zpp._text import FORMS, TEXTS, read_text
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
    report.add_argument("--mesh", help=NAMED["mesh"].help)
    report.add_argument("--format", choices=("table", "json"),
                        default="table")
    report.add_argument("--html", type=pathlib.Path, metavar="FILE",
                        help="write a page for a browser instead: tables that "
                        "sort, what was left alone and why")
    report.add_argument("--device", help="draw the predicted timeline of such a "
                        "device into the page: h100, or as zpp plan takes it")
    report.add_argument("--links", help=NAMED["links"].help)
    plan = command("plan", _plan, "Predict what a step takes as it is written "
                   "and with each technique. No device is needed.")
    plan.add_argument(
        "--device", metavar="NAME", help="a name such as h100, or the peak in 16 "
        "bits and the memory, such as 989tflops,4800gbyte (default: h100)")
    plan.add_argument(
        "--compute", type=read_seconds, metavar="TIME",
        help="measured compute of the step as it is written, such as 54ms")
    plan.add_argument(
        "--memory-limit", type=read_bytes, metavar="BYTES",
        help="memory of a device, such as 70GiB, for the best plan that fits")
    plan.add_argument(
        "--limits", action="store_true", help="also predict half, twice and all of "
        "what the fastest plan has in flight")
    plan.add_argument("--plot", type=pathlib.Path, metavar="FILE.svg",
                      help="draw what runs when")
    plan.add_argument("--format", choices=("table", "json"), default="table")
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
    opt = command("opt", _opt, "Run zpp-opt, with its flags, on a step of any form. The "
                  "output is of the form of the input. Shardings stay as they are: zpp "
                  "rewrite lets XLA make collectives of them first.")
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
    common = parser.add_argument_group("options")
    experts = parser.add_argument_group("options for experts",
                                        "The defaults suit most steps.")
    for name, option in NAMED.items():
        group, _, field = name.rpartition(".")
        default = option.default_text or option.default
        values = ("" if option.kind.words
                  else f" Values: {option.kind.values}")
        (experts if group else common).add_argument(
            f"--{name.replace('_', '-')}", dest=name, default=argparse.SUPPRESS,
            metavar=(option.kind.values if option.kind.words
                     else field.upper().replace("_", "-")),
            help=f"{option.help}{values} (default: {default})".replace(
                "%", "%%"))


def _chosen(options: argparse.Namespace) -> zpp.Options:
    return zpp.Options(**read_words(
        f"{name}={value}" for name, value in vars(options).items()
        if name in NAMED and value is not None))


def _quantity(kind: Callable, wanted: str, units: Mapping[str, float]) -> Callable[[str], Any]:
    """A type of arguments: numbers of a kind, with units."""
    def read(text: str) -> Any:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(\w*)", text.strip())
        if not match or match[2] not in units:
            raise argparse.ArgumentTypeError(f"expected {wanted}, but got '{text}'")
        return kind(float(match[1]) * units[match[2]])

    return read


read_seconds = _quantity(float, "a time as 54ms", {"s": 1, "ms": 1e-3, "us": 1e-6})
read_bytes = _quantity(int, "a number of bytes as 70GiB", {"": 1, "B": 1, **{
    f"{prefix}{unit}": base ** (power + 1) for power, prefix in enumerate("KMGT")
    for unit, base in (("B", 1000), ("iB", 1024))}})


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
    found = zpp.plan(_text(_read(options.step)[1]), _chosen(options),
                     device=options.device, compute=options.compute,
                     memory_limit=options.memory_limit, limits=options.limits)
    if options.plot:
        write_file(options.plot, found.svg().encode())
    if options.format == "json":
        print(json.dumps(found.to_json(), indent=1))
    else:
        print(f"{found.table()}\nbest: {found.why}")


def _convert(options: argparse.Namespace) -> None:
    form, step = _read(options.step)
    if options.to == "export" != form:
        raise ValueError(f"expected a form of a module to convert {form} to, "
                         f"but got export: zpp.export of the function makes it")
    text = step if isinstance(step, str) else step.text()
    _write(options.output, text.encode() if form == options.to in TEXTS
           else _in_form(text, options.to, step))


def _opt(options: argparse.Namespace) -> int:
    form, step = _read(options.step)
    text = step if isinstance(step, str) else step.text()
    output, flags = _take_output(options.flags)
    source, content = source_of(text)
    if form not in TEXTS or "loc(" in text:
        flags = ["--mlir-print-debuginfo", *flags]
    if form == "generic":
        flags = ["--mlir-print-op-generic", *flags]
    with tempfile.TemporaryDirectory(prefix="zpp-") as folder:
        place = pathlib.Path(folder, "out.mlir")
        done = subprocess.run([find_compiler(), source, *flags, "-o", place],
                              input=content, text=True, check=False)
        # Help and versions have no output.
        if done.returncode or not place.exists():
            return done.returncode
        if output == os.devnull:
            return 0
        written = (place.read_bytes() if form in TEXTS
                   else _in_form(place.read_text(), form, step))
    _write(pathlib.Path(output), written)
    return 0


def _take_output(flags: Sequence[str]) -> tuple[str, list[str]]:
    """The value of -o, and the other flags."""
    output, others, words = "-", [], iter(flags)
    for word in words:
        name, equals, value = word.partition("=")
        if name in ("-o", "--o"):
            output = value if equals else next(words, "")
            if not output:
                raise ValueError("-o: expected a file, but got none")
        else:
            others.append(word)
    return output, others


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
    """Returns the form of a file, and what zpp.rewrite takes of it."""
    is_file = path != _STANDARD
    content = path.read_bytes() if is_file else sys.stdin.buffer.read()
    name = str(path) if is_file else "stdin"
    try:
        if found := read_text(content):
            came_from(found[1], path)
            return found
        from zpp.jax import _forms
        return _forms.read(content)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _text(step: Any) -> str:
    """Returns the module of such a step, with the collectives that XLA makes."""
    return complete(step) if isinstance(step, str) else step.complete_text


def _in_form(text: str, form: str, step: Any = None) -> bytes:
    """A module in another form; a file of the form export needs the export, too."""
    if form in TEXTS:
        return print_text(text, form == "generic").encode()
    from zpp.jax import _forms
    return _forms.write(text, form, step)
