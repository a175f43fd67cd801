# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The processes of the ranks of one experiment."""

import contextlib
import dataclasses
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence

import lab
from lab import mps

#: Blocks of NCCL's kernels that a GPU runs for all its ranks at once, for sure. Kernels that
#: wait for each other, but do not fit, hang.
_MAX_CTAS = 8


def prepare():
    """Lets this process and its children open as many files as the system
    permits, because NCCL's channels between nodes have many sockets. Turns
    SIGTERM into an exception, so that ranks are ended and shaping is removed
    then as well."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def free_port() -> int:
    """A port of this host at which the ranks can meet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


#: The variables with which a process has no GPU.
_ON_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


def environment(on_cpu: bool = False) -> dict[str, str]:
    """The variables that every process of a rank gets: it finds this package."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (
                str(lab.ROOT / "bench"), os.environ.get("PYTHONPATH")))),
            "PYTHONUNBUFFERED": "1", **(_ON_CPU if on_cpu else {})}


def show(line: str):
    """Prints what a worker says of a link, and no messages of libraries."""
    if re.match(r"\[\d\d:\d\d:\d\d\] ", line):
        print(line, end="", flush=True)


def gpu_count() -> int:
    """The GPUs of this machine; 0 if it has no driver."""
    if not shutil.which("nvidia-smi"):
        return 0
    return len(subprocess.run(
        ["nvidia-smi", "--list-gpus"], stdout=subprocess.PIPE, text=True,
        check=True).stdout.splitlines())


def sharing(rank: int, ranks: int, per_host: int) -> dict[str, str]:
    """Returns the variables with which the process of `rank` shares a GPU of this machine
    with others; none if each of the `ranks` has its own. NCCL takes two ranks on one GPU
    for a mistake unless they are on different hosts: where more of them are on one than
    there are GPUs (`per_host`), each gets a host of its own. Since 2.30.3, NCCL permits it
    where NCCL_MULTI_RANK_GPU_ENABLE=1, if their kernels fit beside each other."""
    gpus = gpu_count()
    if not 0 < gpus < ranks:
        return {}
    own: dict[str, str] = {}
    if gpus < per_host:
        own = ({"NCCL_MAX_CTAS": max_ctas(gpus, ranks)}
               if os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1" else
               {"NCCL_HOSTID": f"rank{rank}"})
    # They divide the part of its memory that XLA takes.
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * gpus / ranks:.2f}"} | own


def max_ctas(gpus: int, ranks: int) -> str:
    """NCCL_MAX_CTAS with which the kernels of all `ranks` fit beside each other."""
    return str(max(1, _MAX_CTAS * gpus // ranks))


def service(ranks: int, variables: Mapping[str, str] = os.environ
            ) -> contextlib.AbstractContextManager[dict[str, str]]:
    """Runs the Multi-Process Service where `ranks` with these variables share GPUs.
    Gives the variables with which they use it, if any."""
    is_shared = (0 < gpu_count() < ranks
                 and variables.get("CUDA_VISIBLE_DEVICES") != "")
    return mps.service() if is_shared else contextlib.nullcontext({})


def device_of(rank: int) -> int:
    """The GPU of a rank; several ranks may have the same."""
    return rank % max(1, gpu_count())


def uuid_of(rank: int) -> str:
    """The name by which CUDA_VISIBLE_DEVICES knows the GPU of a rank everywhere."""
    uuids = subprocess.run(
        ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"],
        stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return uuids[device_of(rank)]


def describe_gpu(ranks: int) -> str:
    """Describes the GPUs of this machine, how `ranks` share them, and their driver."""
    if not shutil.which("nvidia-smi"):
        return "GPU"
    lines = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version",
         "--format=csv,noheader"],
        stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    name, driver = lines[0].split(", ")
    shared = ""
    if len(lines) < ranks:
        how = "MPS" if mps.program() else "taking turns"
        shared = f"{ranks} ranks on "
        name += f", {how}"
    return f"{shared}{len(lines)}x {name}, driver {driver}"


@dataclasses.dataclass
class Process:
    """One process to start."""

    command: Sequence
    #: Variables that it gets in addition to those of this process.
    environment: dict[str, str]
    #: The file for its output and errors.
    log: pathlib.Path


def run_rank(main: Callable[[], None]):
    """Runs what a rank does. An exception ends its process at once: Python's usual end
    waits for the other ranks, which wait for this one."""
    try:
        main()
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            raise
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def run(processes: Sequence[Process], limit_seconds: float,
        on_line: Callable[[str], None] = lambda line: None):
    """Starts a process for each rank and waits for all of them. Ranks that share a GPU
    do so by the Multi-Process Service.

    Args:
      limit_seconds: the time that all of them have together.
      on_line: is called with each line that the first one writes, as it comes.

    Raises:
      RuntimeError: not all ended with 0 in time. The others are killed.
    """
    started: list[subprocess.Popen] = []
    with service(len(processes), processes[0].environment) as shared:
        try:
            for process in processes:
                with open(process.log, "w") as output:
                    started.append(subprocess.Popen(
                        list(map(str, process.command)),
                        env=os.environ | process.environment | shared, stdout=output,
                        stderr=subprocess.STDOUT, start_new_session=True))
            _wait(started, [process.log for process in processes],
                  time.monotonic() + limit_seconds, on_line)
        finally:
            for child in started:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()


def _wait(started: list[subprocess.Popen], logs: list[pathlib.Path], end: float,
          on_line: Callable[[str], None]):
    with open(logs[0]) as lines:
        while True:
            codes = [process.poll() for process in started]
            for line in lines:
                on_line(line)
            if all(code == 0 for code in codes):
                return
            if any(codes) or time.monotonic() > end:
                ends = "".join(
                    f"\n{log} ends with\n{log.read_text()[-3000:]}"
                    for log, code in zip(logs, codes) if code != 0)
                raise RuntimeError(f"expected all ranks to end with 0, but got "
                                   f"{codes}{ends}")
            time.sleep(0.2)
