# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""kill.py PATH OTHER COMMAND...: kills a command that writes PATH.

COMMAND writes PATH, which it finds written by the command OTHER (one argument,
for the shell). It gets a signal at different moments. Whatever it was doing,
PATH is as one of the two commands leaves it. A JSON file, which may differ from
run to run, is complete. Only SIGKILL may leave something beside PATH.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time


def read(path: pathlib.Path):
    if path.is_dir():
        return {name: read(path / name) for name in sorted(os.listdir(path))}
    return path.read_bytes()


def list_beside() -> list[pathlib.Path]:
    """Files whose names contain that of PATH."""
    return [other for other in path.parent.glob("*")
            if path.name in other.name and other.name != path.name]


def remove(leftover: pathlib.Path):
    # A linker that was started may still write into it.
    while leftover.exists():
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink()


def is_whole(found) -> bool:
    if found in (old, new):
        return True
    return path.suffix == ".json" and bool(json.loads(found))


path, other, command = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
subprocess.run(other, shell=True, check=True)
old = read(path)
begin = time.monotonic()
subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
seconds = time.monotonic() - begin
new = read(path)
assert new != old
killed = 0
for part in (0.6, 0.75, 0.85, 0.9, 0.95):
    for end in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        subprocess.run(other, shell=True, check=True)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(part * seconds)
        process.send_signal(end)
        killed += process.wait() != 0
        found = read(path)
        assert is_whole(found), f"{path} after {end} at {part}"
        left = list_beside()
        assert end == signal.SIGKILL or not left, f"{left} after {end} at {part}"
        for leftover in left:
            remove(leftover)
print("killed" if killed else "never killed")
