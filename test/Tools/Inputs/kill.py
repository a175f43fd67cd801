# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""kill.py PATH OTHER COMMAND...: kills a command that writes PATH.

COMMAND writes PATH, which it finds written by the command OTHER (one argument,
for the shell). It gets a signal at different moments. Whatever it was doing,
PATH is as one of the two commands leaves it. A JSON file, which may differ from
run to run, is complete.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time


def read(path: pathlib.Path):
    if path.is_dir():
        return {name: read(path / name) for name in sorted(os.listdir(path))}
    return path.read_bytes()


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
for part in (0.6, 0.85, 0.95):
    for end in (signal.SIGKILL, signal.SIGTERM):
        subprocess.run(other, shell=True, check=True)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(part * seconds)
        process.send_signal(end)
        killed += process.wait() != 0
        found = read(path)
        assert is_whole(found), f"{path} after {end} at {part}"
print("killed" if killed else "never killed")
