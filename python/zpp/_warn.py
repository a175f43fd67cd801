# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Warnings that point at the user's line."""

import contextlib
import dataclasses
import pathlib
import sys
import warnings

_OWN = (str(pathlib.Path(__file__).resolve().parent), contextlib.__file__,
        dataclasses.__file__)


def warn(message: str) -> None:
    """Issues a warning at the innermost line outside of this package."""
    # As skip_file_prefixes does from Python 3.12 on. Level 1 is this function.
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_OWN):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
