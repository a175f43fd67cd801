# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Timelines of the runtime's streams in real steps."""

import atexit
import contextlib
import os
import pathlib
from collections.abc import Iterator

import jax

from zpp._warn import warn
from zpp.jax import _runtime

@contextlib.contextmanager
def trace(path: str | os.PathLike) -> Iterator[None]:
    """Records what the runtime does in the steps that are called inside the
    context, and writes it for Perfetto (ui.perfetto.dev).

        with zpp.trace("trace.json"):
            for batch in batches[:3]:
                state, loss = step(state, batch)

    There is a row for each stream of each rank, and a slice for each operation,
    named after its collective and source line. Entering waits for earlier
    steps, leaving for those inside. Steps for target portable record nothing.
    If there are several processes, each writes its own ranks: process 1 writes
    trace.1.json. The environment variable ZPP_TRACE=trace.json records a whole
    process.
    """
    if _runtime.is_recording():
        raise RuntimeError("expected one trace at a time, but got another one "
                           "(ZPP_TRACE records all of a process)")
    _runtime.finish()
    _runtime.record(True)
    try:
        yield
        _runtime.finish()
        _write(path)
    finally:
        _runtime.record(False)


def _write(path: str | os.PathLike) -> None:
    path = pathlib.Path(path)
    if jax.process_count() > 1:
        path = path.with_suffix(f".{jax.process_index()}{path.suffix}")
    if not _runtime.write_traces(path):
        warn("expected a step for target cuda or cpu to trace, but got none")


def _record_process() -> None:
    path = os.environ.get("ZPP_TRACE")
    if not path:
        return
    _runtime.record(True)

    @atexit.register
    def write():
        _runtime.finish()
        _write(path)


_record_process()
