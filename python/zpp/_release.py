# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The version of the package."""

import pathlib
import re


def find_version() -> str:
    """The version that CMakeLists.txt names; a wheel has it in a file."""
    try:
        from zpp._version import version
        return version
    except ImportError:
        root = pathlib.Path(__file__).resolve().parent.parent.parent
        found = re.search(r"^project\(zpp VERSION (\S+)",
                          (root / "CMakeLists.txt").read_text(), re.MULTILINE)
        assert found
        return found.group(1)
