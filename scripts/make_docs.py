#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the reference of the dialect and the passes into BUILD/docs.

Text comes from the .td files. Each pass also shows what it does to a program: the
first part of its lit test (or the part with a line "// DOC"), before, and after
running the test's own RUN line. So an example in the docs cannot be out of date.
"""

import argparse
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SPLIT = re.compile(r"^// -----.*\n", re.MULTILINE)
RUN = re.compile(r"^// RUN: (.*zpp-opt .*)$", re.MULTILINE)
CONTINUED = re.compile(r"\\\n// RUN:")
# Options that concern the test, not the program.
HARNESS = re.compile(r"--?(split-input-file|verify-diagnostics)")
COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)
MAX_LINES = 60


def fail(message):
    sys.exit(f"make_docs.py: error: {message}")


def mlir_prefix(build):
    """The LLVM installation that `build` was configured with."""
    cache = build / "CMakeCache.txt"
    if not cache.exists():
        fail(f"expected a configured build tree, but got '{build}'")
    found = re.search(r"^MLIR_DIR:\w+=(.*)$", cache.read_text(), re.MULTILINE)
    return pathlib.Path(found[1]).parents[2]


def tblgen(prefix, generator, source):
    command = [prefix / "bin" / "mlir-tblgen", *generator, ROOT / "include" / source]
    for folder in (ROOT / "include", prefix / "include"):
        command += ["-I", folder]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def find_test(flag):
    """The lit test of the pass with this flag: the same stem, less the dialect."""
    return next((ROOT / "test").rglob(f"{flag.removeprefix('zero-')}.mlir"), None)


def pick_example(text):
    parts = SPLIT.split(text)
    return next((part for part in parts if re.search(r"^// DOC\b", part, re.M)), parts[0])


def listing(program):
    """Markdown: the program, or as much of it as a page bears."""
    lines = program.strip().splitlines()
    if len(lines) > MAX_LINES:
        more = len(lines) - MAX_LINES
        lines[MAX_LINES:] = [f"// ... and {more} more lines"]
    return "\n".join(["```mlir", *lines, "```"])


def example(test, build):
    """Markdown: a part of `test` before and after its own zpp-opt command."""
    text = test.read_text()
    run = RUN.search(CONTINUED.sub("", text))
    if not run:
        fail(f"expected a RUN line with zpp-opt in {test}, but got none")
    stage = run[1].split("|")[0]
    options = [
        word
        for word in shlex.split(stage)
        if word.startswith("-") and not HARNESS.match(word)
    ]
    before = COMMENT.sub("", pick_example(text)).strip()
    after = subprocess.run(
        [build / "bin" / "zpp-opt", *options, "-"],
        input=before,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    if after.returncode:
        fail(f"{test}: zpp-opt {shlex.join(options)}: {after.stderr}")
    return (
        f"\n**Example** (from `{test.relative_to(ROOT)}`)\n\n{listing(before)}\n\n"
        f"`zpp-opt {shlex.join(options)}`:\n\n{listing(after.stdout)}\n\n"
    )


def pass_docs(prefix, source, build):
    """mlir-tblgen's text, an example after each pass that has a test."""
    text = tblgen(prefix, ["-gen-pass-doc"], source)
    sections = re.split(r"^(?=### `-)", text, flags=re.MULTILINE)
    for section in sections:
        yield section
        flag = re.match(r"### `-([\w-]+)`", section)
        test = find_test(flag[1]) if flag else None
        if test:
            yield example(test, build)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    build = parser.parse_args().build.resolve()
    prefix = mlir_prefix(build)
    output = build / "docs"
    output.mkdir(exist_ok=True)

    pages = {
        "ZeroDialect.md": tblgen(
            prefix, ["-gen-dialect-doc", "-dialect=zero"], "zpp/Dialect/Zero/IR/ZeroOps.td"
        ),
        "Transforms.md": "".join(pass_docs(prefix, "zpp/Transforms/Passes.td", build)),
        "Conversion.md": "".join(pass_docs(prefix, "zpp/Conversion/Passes.td", build)),
    }
    for name, text in pages.items():
        (output / name).write_text(text)
        print(output / name)


if __name__ == "__main__":
    main()
