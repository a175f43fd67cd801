#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the examples in the descriptions of passes, of which each has one at least.

An example in a Passes.td is a block of IR after "*Input*:", or after "*Input*, with
`OPTIONS`:", and one after "*Output*:". The pass makes the second of the first; both
may be laid out in any way and use any names of values.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PASS = re.compile(r'^def \w+Pass\s*:\s*\w+<"([\w-]+)"(.*?)(?=^def |\Z)', re.MULTILINE | re.DOTALL)
BLOCK = r"\s*```mlir\n(.*?)```"
EXAMPLE = re.compile(
    r"\*Input\*(?:, with `([^`]*)`)?:" + BLOCK + r"\s*\*Output\*:" + BLOCK, re.DOTALL)
INPUT = re.compile(r"\*Input\*")


def run(zpp_opt, text, *flags):
    """The output of zpp-opt for `text`, or its errors."""
    result = subprocess.run(
        [zpp_opt, "--remarks-filter=none", *flags, "-"], input=text, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return result.stdout if result.returncode == 0 else result.stderr


def joined(text):
    """`text` without white space outside of strings: zpp-opt prints what it knows in one
    layout, but the attributes of other dialects, such as Shardy's, as they are laid out."""
    return re.sub(r'("(?:[^"\\]|\\.)*")|\s+', lambda match: match[1] or "", text)


def check(zpp_opt, source):
    """The number of examples in `source`, and an error for each wrong one."""
    count, errors = 0, []
    for name, description in PASS.findall(source):
        examples = EXAMPLE.findall(description)
        if len(examples) != len(INPUT.findall(description)):
            errors.append(f"{name}: expected an output and both in blocks of mlir for each "
                          f"input, but got {len(examples)} of {len(INPUT.findall(description))}")
        elif not examples:
            errors.append(f"{name}: expected an example, but got none")
        for options, given, expected in examples:
            count += 1
            flag = f"--{name}={options}" if options else f"--{name}"
            got = run(zpp_opt, given, flag)
            if joined(got) != joined(run(zpp_opt, expected)):
                errors.append(f"{name}: expected the output of its example, but got\n{got}")
    return count, errors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("files", type=pathlib.Path, nargs="*",
                        default=sorted((ROOT / "include/zpp").glob("*/Passes.td")))
    args = parser.parse_args()
    total, failed = 0, []
    for path in args.files:
        count, errors = check(args.build / "bin" / "zpp-opt", path.read_text())
        total += count
        failed += errors
    for error in failed:
        print(error)
    if total == 0:
        failed.append("none")
        print("expected examples of passes, but got none")
    print(f"{total} examples, {len(failed)} of them wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
