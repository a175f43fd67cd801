# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The folder in which results are kept from run to run."""

import atexit
import functools
import os
import pathlib
import shutil
import tempfile

from zpp._warn import warn


def cache_folder() -> pathlib.Path:
    """The folder for what is compiled or measured: `zpp` in the user's cache folder,
    or with a warning, where that cannot be written to, one of this process."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _make_cache_folder(pathlib.Path(base).expanduser() / "zpp")


@functools.cache
def _make_cache_folder(folder: pathlib.Path) -> pathlib.Path:
    try:
        # Its files are loaded as code.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        return folder
    except OSError as error:
        warn(f"expected a cache folder '{folder}' to write to, but got: "
             f"{error.strerror}; compiling into a temporary folder, again in "
             f"each run; set XDG_CACHE_HOME to a folder that can be written to")
    private = tempfile.mkdtemp(prefix="zpp-")
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return pathlib.Path(private)
