# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NVIDIA's Multi-Process Service for ranks that share a GPU.

Without it, the kernels of one process wait for the end of the others' time slices, also
while these wait for a link. With it, two ranks on one GPU take the times of two GPUs,
as long as what they compute together fits into the time that the links take.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

_CONTROL = "nvidia-cuda-mps-control"
#: How long the daemon may take to answer its first command, and to end.
_START_SECONDS, _END_SECONDS = 20, 20


def program() -> str | None:
    """Returns the path of the control program: in PATH, or beside the driver's
    nvidia-smi; None if it is not installed."""
    beside = {os.path.dirname(os.path.realpath(path))
              for name in ("nvidia-smi", "nvidia-debugdump")
              if (path := shutil.which(name))}
    places = os.pathsep.join([os.environ.get("PATH", ""), *sorted(beside),
                              "/usr/local/nvidia/bin"])
    return shutil.which(_CONTROL, path=places)


@contextlib.contextmanager
def service() -> Iterator[dict[str, str]]:
    """Runs a private daemon. Gives the variables with which processes use it; none, and
    a warning, if the program is not installed or does not start."""
    control = program()
    if control is None:
        print(f"warning: expected {_CONTROL}, but it is not installed: ranks take turns "
              "on their GPU, so that times are not those of several GPUs",
              file=sys.stderr, flush=True)
        yield {}
        return
    # Paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="mps-", dir="/tmp",
                                     ignore_cleanup_errors=True) as folder:
        variables = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe",
                     "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        for path in variables.values():
            os.mkdir(path)
        daemon = subprocess.Popen(
            [control, "-f"], env=_without_devices() | variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            if _answers(control, variables, daemon):
                yield variables
            else:
                log = pathlib.Path(folder, "log", "control.log")
                last = log.read_text()[-500:] if log.exists() else "no log"
                print(f"warning: {control} does not start: ranks take turns on their GPU, "
                      f"so that times are not those of several GPUs; {last}",
                      file=sys.stderr, flush=True)
                yield {}
        finally:
            _end(control, variables, daemon)


def _without_devices() -> dict[str, str]:
    """Returns this process's variables. The daemon serves all GPUs: numbers of devices
    would mean something else to it than to the ranks."""
    return {name: value for name, value in os.environ.items()
            if name != "CUDA_VISIBLE_DEVICES"}


def _ask(control: str, variables: dict[str, str], words: str, seconds: float) -> bool:
    try:
        return subprocess.run(
            [control], input=words + "\n", text=True, env=os.environ | variables,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=seconds,
            check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _answers(control: str, variables: dict[str, str], daemon: subprocess.Popen) -> bool:
    """Waits until the daemon takes commands. Returns whether it does."""
    end = time.monotonic() + _START_SECONDS
    while daemon.poll() is None and time.monotonic() < end:
        if _ask(control, variables, "get_server_list", 5):
            return True
        time.sleep(0.1)
    return False


def _end(control: str, variables: dict[str, str], daemon: subprocess.Popen):
    """Ends the daemon and its server, also if ranks hang in it."""
    if daemon.poll() is None:
        _ask(control, variables, "quit -t 5", _END_SECONDS)
    with contextlib.suppress(subprocess.TimeoutExpired):
        daemon.wait(_END_SECONDS)
    # The group also has the server, which the daemon started.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(daemon.pid, signal.SIGKILL)
    daemon.wait()
