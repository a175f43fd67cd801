#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs mypy over all Python: first what pyproject.toml names, then the programs
and shared modules of the tests, each folder by itself, because some have modules of
equal names. Test functions are left out: pytest passes them what mypy cannot know."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = ("test/python/*.py", "test/torch/*.py", "test/deepspeed/*.py", "test/gpu/*.py",
         "test/**/Inputs/*.py")


def main() -> int:
    shared = [[path for path in sorted(ROOT.glob(files))
               if not path.name.startswith("test_")] for files in FILES]
    codes = [subprocess.run([sys.executable, "-m", "mypy", *paths], cwd=ROOT,
                            check=False).returncode for paths in ([], *shared)]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
