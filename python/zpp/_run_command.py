# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`zpp run`: a program whose steps are rewritten while XLA compiles them."""

import argparse
import contextlib
import os
import pathlib
import shlex
import shutil
import sys
from collections.abc import Sequence

import zpp
from zpp._options import Options, values_of, write_words
from zpp._start import VARIABLE

DESCRIPTION = """\
Run a JAX program on NVIDIA GPUs, with the collectives of its training steps
rewritten. The program stays as it is: plain jax.jit with shardings (FSDP, ZeRO-3).
XLA hands each module that it compiles to zpp, so nothing is compiled twice."""

EPILOG = f"""\
examples:
  zpp run --mesh node:8,gpu:8 -- python train.py --batch 64
  zpp run --mesh node:2,gpu:4 --weights i8 --gradients i8:i4 --secondary gpu \\
      --report rewritten.json -- python -m my_trainer config.yml

Start it in every process, as the program itself: srun zpp run ... -- python ...
Processes that Python programs start in turn are covered, too.

Without the command, for example in a job script: {VARIABLE} in the environment has
the same words, where zpp is installed from a wheel:
  export {VARIABLE}="mesh=node:8,gpu:8 weights=i8 report=rewritten.json"

On stderr there is a line per module that was rewritten, with its bytes before and
after, and what was left alone. If nothing was rewritten, the last line says why.

Devices are counted as the program's own mesh orders them: the last tier has the
devices next to each other. Nothing can be kept between steps (weights=i4:delta,
frozen); zpp.jit does that, and runs on CPUs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.usage = "zpp run --mesh MESH [options] [--report FILE] -- COMMAND..."
    parser.add_argument("--report", type=pathlib.Path, metavar="FILE",
                        help="Write what was rewritten, and what was not and why, "
                        "to a file of JSON.")
    parser.add_argument("--options", choices=("auto",), help="auto: take, for each "
                        "step, the techniques that are predicted to be the fastest "
                        "within the memory of the devices. The options below say "
                        "which may be used, and with which formats.")
    parser.add_argument("program", nargs="+", metavar="COMMAND",
                        help="The program and its arguments: python train.py ...")


def run(options: argparse.Namespace, chosen: Options) -> int:
    """Replaces this process by the program."""
    if chosen.mesh is None:
        raise ValueError("expected --mesh, the tiers of all devices such as "
                         "node:8,gpu:8, but got none")
    # Where JAX is missing here, the program has its own, and checks the options.
    with contextlib.suppress(ImportError):
        from zpp.jax._install import check_options
        check_options(chosen)
    program = find_program(options.program)
    startup = str(pathlib.Path(zpp.__file__).resolve().parent / "startup")
    others = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ, VARIABLE: make_words(chosen, options.report, options.options),
        "PYTHONPATH": startup + (os.pathsep + others if others else "")}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program, options.program, environment)


def find_program(command: Sequence[str]) -> str:
    """The path of a program."""
    found = shutil.which(command[0])
    if found is None:
        hint = ("; write: python " + shlex.join(command)
                if command[0].endswith(".py") else "")
        raise FileNotFoundError(f"expected a program to run, but got "
                                f"'{command[0]}'{hint}")
    return found


def make_words(chosen: Options, report: pathlib.Path | None, auto: str | None = None
               ) -> str:
    """The text that `zpp._start.parse_words` reads."""
    words = [*write_words(values_of(chosen)), *([f"options={auto}"] if auto else [])]
    if report is not None:
        # The program may change the directory.
        words.append(f"report={report.absolute()}")
    return shlex.join(words)
