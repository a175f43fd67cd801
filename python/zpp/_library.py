# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The shared libraries of the runtime, which front ends load with ctypes."""

import ctypes
import os
import pathlib


def find_library(name: str) -> str:
    """The path of a library: $ZPP_RT for "zpp_rt", beside this package, or in
    the build directory of a source tree."""
    package = pathlib.Path(__file__).resolve().parent
    file, variable = f"lib{name}.so", name.upper()
    chosen = os.environ.get(variable)
    places = [chosen] if chosen else [
        *sorted((package / "lib").glob(f"{file}*")),
        package.parent.parent / "build" / "lib" / file]
    for place in places:
        if os.path.isfile(place):
            return str(place)
    raise FileNotFoundError(
        f"expected {file} at ${variable}, but got no file at '{chosen}'"
        if chosen else
        f"expected {file} beside the package, but got none; install the wheel "
        f"(make wheel), or set {variable} to the library's path")


def call(library: ctypes.CDLL, function: str, *args) -> None:
    """Calls a function of the library whose last parameters are a buffer for a
    message and its size.

    Raises:
      RuntimeError: with this message and the status, if it fails.
    """
    message = ctypes.create_string_buffer(2048)
    status = getattr(library, function)(*args, message, len(message))
    if status != 0:
        library.zpp_rt_status_name.restype = ctypes.c_char_p
        name = library.zpp_rt_status_name(status).decode()
        raise RuntimeError(f"{message.value.decode(errors='replace')} ({name})")
