# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The version of the package, and its parts that are not written in Python."""

import os
import pathlib
import re
import shutil


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


def find_part(folder: str, name: str, variable: str) -> str:
    """Finds a program ("bin") or a library ("lib"): at $VARIABLE, in this package, in
    $PATH, or in the build directory of a source tree."""
    package = pathlib.Path(__file__).resolve().parent
    chosen = os.environ.get(variable)
    places = [chosen] if chosen else [
        *sorted((package / folder).glob(f"{name}*")), shutil.which(name),
        package.parent.parent / "build" / folder / name]
    for place in places:
        if place and is_part(folder, place):
            return str(place)
    raise FileNotFoundError(
        f"expected {name} at ${variable}, but got none at '{chosen}'" if chosen else
        f"expected {name} in the package or in PATH, but got none; install the wheel "
        f"(make wheel), build it (make build), or set {variable} to its path")


def is_part(folder: str, place: str | os.PathLike) -> bool:
    """Whether a file is there that may be one of these."""
    return os.path.isfile(place) and os.access(
        place, os.X_OK if folder == "bin" else os.R_OK)
