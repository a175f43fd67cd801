# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Samples of what the runtime quantizes."""

import ctypes
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any


class Measure(ctypes.Structure):
    """zpp_rt_measure."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p),
        ("format", ctypes.c_int64), ("samples", ctypes.c_int64),
        ("elements", ctypes.c_int64), ("squared_error", ctypes.c_double),
        ("squared", ctypes.c_double), ("not_finite", ctypes.c_int64),
        ("left_out", ctypes.c_int64)]


#: zpp_rt_measure_function
OnMeasure = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Measure))


def collect(visit: Callable[[Callable], None]) -> list[dict]:
    """Returns the fields of all measures that `visit` passes to its function."""
    found: list[dict] = []

    def add(_, measure):
        of_name = measure.contents
        found.append({field: getattr(of_name, field)
                      for field, *_ in Measure._fields_[2:]}
                     | {"name": of_name.name.decode(errors="replace")})

    visit(OnMeasure(add))
    return found


def bytes_of(report: Mapping[str, Any]) -> dict[str, int]:
    """Returns the metrics of the bytes over each tier in a report."""
    total = report["total"]
    return ({f"bytes/{tier}": count for tier, count in total["after"].items()}
            | {f"bytes_as_written/{tier}": count
               for tier, count in total["before"].items()})


def errors_of(role: str, samples: Iterable[tuple[float, float, int]]) -> dict[str, float]:
    """Returns the metrics of a role from sums of squares of errors and of values, and how
    many values are not finite any more; none without samples."""
    sums = [sum(column) for column in zip(*samples)]
    if not sums:
        return {}
    return {f"error/{role}": relative(sums[0], sums[1]), f"not_finite/{role}": sums[2]}


def relative(squared_error: float, squared: float) -> float:
    """The relative error that follows from sums of squares."""
    if squared_error == 0:
        return 0.0
    return math.sqrt(squared_error / squared) if squared > 0 else math.inf
