#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks how comments of declarations begin: with a noun or a verb for what is
declared, not with Of, What, Where or Which.

Such comments are those with "///" in C++ and CUDA, those with "#:" in Python, and
docstrings, but those of tests, which are sentences about what holds.
"""

import argparse
import ast
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CXX = {".h", ".cpp", ".cu", ".cuh", ".c"}
OPENINGS = r"(Of|What|Where|Which)\b"
#: The first line of a run of such comments.
FIRST_CXX = re.compile(r"^(.*?)///<?\s*(?:\\brief\s+)?" + OPENINGS + ".*$")
FIRST_PYTHON = re.compile(r"^(.*?)#:\s*" + OPENINGS + ".*$")


def openings(text, mark, first):
    """(line, text) of the comments with this mark that begin so."""
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if mark in line and not before.strip().startswith(mark):
            match = first.match(line)
            if match and mark not in match[1]:
                yield number, line.strip()
        before = line


def docstrings(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef
                      | ast.AsyncFunctionDef):
            found = ast.get_docstring(node)
            if getattr(node, "name", "").startswith("test_"):
                continue
            if found and re.match(OPENINGS, found):
                yield node.body[0].lineno, found.splitlines()[0]


def check(path):
    text = path.read_text()
    if path.suffix in CXX:
        return openings(text, "///", FIRST_CXX)
    return [*openings(text, "#:", FIRST_PYTHON), *docstrings(text)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    root = parser.parse_args().root
    if (root / ".git").exists():
        names = subprocess.run(["git", "ls-files"], cwd=root, check=True, text=True,
                               stdout=subprocess.PIPE).stdout.splitlines()
        paths = [root / name for name in names]
    else:
        paths = sorted(root.rglob("*"))
    errors = 0
    for path in paths:
        if path.is_file() and path.suffix in CXX | {".py"}:
            for line, text in check(path):
                errors += 1
                print(f"{path.relative_to(root)}:{line}: expected a comment that "
                      f"begins with a noun or a verb, but got '{text}'")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
