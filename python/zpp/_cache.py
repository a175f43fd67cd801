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


@functools.cache
def cache_folder() -> pathlib.Path:
    """The folder for what is compiled or measured: `zpp` in the user's cache folder,
    or with a warning, where that cannot be written to, one of this process."""
    try:
        return open_cache_folder()
    except OSError as error:
        warn(f"{error}; compiling into a temporary folder, again in each run; set "
             f"XDG_CACHE_HOME to a folder that can be written to")
    private = tempfile.mkdtemp(prefix="zpp-")
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return pathlib.Path(private)


def open_cache_folder() -> pathlib.Path:
    """The folder `zpp` in the user's cache folder, which is made if need be. Raises OSError
    if it cannot be written to."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # As for users without an entry in /etc/passwd.
    if base.startswith("~"):
        raise OSError("expected a cache folder, but got no home directory: HOME is "
                      "not set")
    folder = pathlib.Path(base) / "zpp"
    try:
        # Its files are loaded as code.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(f"expected a cache folder '{folder}' to write to, but got: "
                      f"{error.strerror}") from None
    return folder
