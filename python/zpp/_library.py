# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The shared libraries of the runtime, which front ends load with ctypes, and what
these take."""

import ctypes

from zpp._release import find_part


class Described(ctypes.Structure):
    """A structure that begins with its size."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class WorldDesc(Described):
    """zpp_rt_world_desc."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("backend", ctypes.c_char_p),
        ("mesh", ctypes.c_char_p), ("time_limit_usec", ctypes.c_int64),
        ("trace", ctypes.c_int64), ("rendezvous", ctypes.c_char_p),
        ("on_failure", ctypes.c_void_p),
        ("on_failure_context", ctypes.c_void_p), ("exchanges", ctypes.c_void_p),
        ("token", ctypes.c_char_p)]


class RankDesc(Described):
    """zpp_rt_rank_desc."""

    _fields_ = [("struct_size", ctypes.c_size_t), ("index", ctypes.c_int64),
                ("device", ctypes.c_int64)]


def find_library(name: str) -> str:
    """Finds a library: "zpp_rt" also at $ZPP_RT."""
    return find_part("lib", f"lib{name}.so", name.upper())


def call(library: ctypes.CDLL, function: str, *args) -> None:
    """Calls a function of the library whose last parameters are a buffer for a message
    and its size, and whose numbers are of 64 bits. Raises RuntimeError, with this message
    and the status, if it fails."""
    message = ctypes.create_string_buffer(2048)
    status = getattr(library, function)(
        *(ctypes.c_int64(each) if isinstance(each, int) else each
          for each in (*args, message, len(message))))
    if status != 0:
        library.zpp_rt_status_name.restype = ctypes.c_char_p
        name = library.zpp_rt_status_name(status).decode()
        raise RuntimeError(f"{message.value.decode(errors='replace')} ({name})")
