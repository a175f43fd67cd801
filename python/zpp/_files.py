# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that are written whole or not at all, as OutputFile does in C++."""

import contextlib
import os
import pathlib
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator


def write_file(path: str | os.PathLike, content: bytes) -> None:
    """Writes a file beside `path`, which then gets its name; if anything fails,
    nothing has changed. A symbolic link stays a link, a file keeps its mode,
    and what is no file, such as /dev/stdout, is written to."""
    with named(path), undisturbed():
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            mode = None
        is_device = os.fspath(path).startswith(("/dev/", "/proc/"))
        if mode is not None and (is_device or not stat.S_ISREG(mode)):
            # Standard output may be a file that others have begun.
            with open(path, "ab", buffering=0) as file:
                _write_all(file, content)
            return
        target = pathlib.Path(path).resolve()
        # Only who may write the file may replace it.
        if mode is not None:
            os.close(os.open(target, os.O_WRONLY))
        else:
            umask = os.umask(0)
            os.umask(umask)
            mode = 0o666 & ~umask
        descriptor, name = tempfile.mkstemp(dir=target.parent,
                                            prefix=f".{target.name}-")
        try:
            with open(descriptor, "wb", buffering=0) as file:
                _write_all(file, content)
                os.fchmod(descriptor, stat.S_IMODE(mode))
                # Some file systems only now notice that they are full.
                os.fsync(descriptor)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise


def _write_all(file, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[file.write(left):]


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Delays a signal that would end the process at once until after the context."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread may handle signals.
        return
    came = []
    handled = [number for number in (signal.SIGHUP, signal.SIGTERM)
               if signal.getsignal(number) == signal.SIG_DFL]
    for number in handled:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
        if came:
            os.kill(os.getpid(), came[0])


@contextlib.contextmanager
def named(path: str | os.PathLike) -> Iterator[None]:
    """Adds the path to errors that do not name it, or name a temporary file."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None
