# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`zpp opt`."""

import os
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from zpp._compiler import find_compiler, source_of
from zpp._text import TEXTS

DESCRIPTION = ("Run zpp-opt, with its flags, on a step of any form. The output is of "
               "the form of the input. Shardings stay as they are: zpp rewrite lets "
               "XLA make collectives of them first.")


def run(form: str, step: Any, flags: Sequence[str],
        in_form: Callable[[str, str, Any], bytes],
        write: Callable[[pathlib.Path, bytes], None]) -> int:
    """Runs zpp-opt on a step, text or an export of a form; returns its exit status.
    `in_form` makes a form of a module, and `write` writes it to a file, or to standard
    output, "-"."""
    text = step if isinstance(step, str) else step.text()
    output, flags = _take_output(flags)
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
                   else in_form(place.read_text(), form, step))
    write(pathlib.Path(output), written)
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
