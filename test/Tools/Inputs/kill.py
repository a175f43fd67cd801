# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""kill.py PATH OTHER COMMAND...: kills a command that writes PATH.

COMMAND writes PATH, which it finds written by the command OTHER (one argument,
for the shell). It gets a signal at different moments. Whatever it was doing,
PATH is as one of the two commands leaves it. A JSON file, which may differ from
run to run, is complete. Only SIGKILL may leave something beside PATH.
"""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

#: The option of Linux's prctl that makes this process the parent of orphans.
PR_SET_CHILD_SUBREAPER = 36

path, other, command = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]


def run_other():
    subprocess.run(other, shell=True, check=True)


def run_and_time() -> float:
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def kill_after(seconds: float, end: signal.Signals) -> bool:
    """Runs the command; true if it had not ended after `seconds`."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    time.sleep(seconds)
    process.send_signal(end)
    return process.wait() != 0


def wait_for_orphans():
    """A linker that was started may still write."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def read(path: pathlib.Path):
    if path.is_dir():
        return {name: read(path / name) for name in sorted(os.listdir(path))}
    return path.read_bytes()


def list_beside() -> list[pathlib.Path]:
    """Files whose names contain that of PATH."""
    return [other for other in path.parent.glob("*")
            if path.name in other.name and other.name != path.name]


def remove(leftover: pathlib.Path):
    if leftover.is_dir():
        shutil.rmtree(leftover)
    else:
        leftover.unlink()


def is_whole(found) -> bool:
    if found in (old, new):
        return True
    return path.suffix == ".json" and bool(json.loads(found))


assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
run_other()
old = read(path)
# The first run may read the command from a disk, which takes longer.
seconds = min(run_and_time(), run_and_time())
new = read(path)
assert new != old
killed = 0
# On a machine that does other work, a run may take less time than those before.
# The moments come earlier until one of them is before the command's end.
while not killed:
    for part in (0.6, 0.75, 0.85, 0.9, 0.95):
        for end in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            run_other()
            killed += kill_after(part * seconds, end)
            if end == signal.SIGKILL:
                wait_for_orphans()
            found = read(path)
            assert is_whole(found), f"{path} after {end} at {part}"
            left = list_beside()
            assert end == signal.SIGKILL or not left, f"{left} after {end} at {part}"
            for leftover in left:
                remove(leftover)
    seconds /= 2
print(f"killed {killed} times")
