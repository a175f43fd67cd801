# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processes with a rank each, to which tests send functions: gloo on the CPU, or
NCCL where ZPP_TEST_GPUS says how many GPUs there are. Ranks may share a GPU."""

import datetime
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from lab import launch

#: Seconds that are enough for every function.
LIMIT = 120
#: Imported once: each process begins as a copy of one that has them.
PRELOADED: tuple[str, ...] = ("torch.distributed.checkpoint", "torch.distributed.tensor.parallel",
              "torch.utils.checkpoint", "zpp.torch")
#: The outcome of a rank that does not end.
NO_RESULT = "no result in time"


class Pool:
    """The ranks of one process group. After a failure they start anew, because
    those that wait for each other are of no more use.

    Args:
      limit: seconds after which a function has failed.
      exchange_limit: seconds after which an exchange in it has.
      debug: as TORCH_DISTRIBUTED_DEBUG.
    """

    def __init__(self, size: int, limit: float = LIMIT,
                 exchange_limit: float = LIMIT, debug: str = "OFF"):
        self._size = size
        self._limit = limit
        self._exchange_limit = exchange_limit
        self._debug = debug
        self._processes: list = []

    def __call__(self, function: Callable, *args: Any, **kwargs: Any) -> list:
        """Calls the function; returns its result on each rank.

        Raises:
          AssertionError: where it raises on a rank, or does not end.
        """
        results = []
        for rank, (result, error) in enumerate(
                self._collect(function, args, kwargs)):
            if error is not None:
                # The others may wait for it.
                self.close()
                raise AssertionError(f"rank {rank}: {error}")
            results.append(result)
        return results

    def outcomes(self, function: Callable, *args: Any, **kwargs: Any
                 ) -> list[tuple[Any, str | None]]:
        """The result of each rank, or how it failed. The ranks start anew."""
        outcomes = list(self._collect(function, args, kwargs))
        self.close()
        return outcomes

    def _collect(self, function: Callable, args: tuple, kwargs: dict
                 ) -> Iterator[tuple[Any, str | None]]:
        if not self._processes:
            self._start()
        for _, pipe in self._processes:
            pipe.send((function, args, kwargs))
        end = time.monotonic() + self._limit
        for process, pipe in self._processes:
            try:
                yield (pipe.recv() if pipe.poll(max(0, end - time.monotonic()))
                       else (None, NO_RESULT))
            except (EOFError, OSError):
                process.join(1)
                yield None, f"ended with {process.exitcode}"

    def close(self):
        for process, _ in self._processes:
            process.kill()
            process.join()
        if self._processes:
            self._folder.cleanup()
        self._processes = []

    def _start(self):
        context = _context()
        self._folder = tempfile.TemporaryDirectory(prefix="zpp-")
        store = str(pathlib.Path(self._folder.name, "store"))
        for rank in range(self._size):
            pipe, end = context.Pipe()
            process = context.Process(
                target=_serve, daemon=True,
                args=(rank, self._size, store, self._exchange_limit, self._debug,
                      end))
            process.start()
            # Who reads learns that it has ended.
            end.close()
            self._processes.append((process, pipe))


def run_code(code: str) -> str:
    """Runs a program in a process of its own, which has imported PyTorch. Returns its
    error, or an empty string."""
    pipe, end = multiprocessing.Pipe()
    process = _context().Process(target=_execute, args=(code, end))
    process.start()
    end.close()
    error = pipe.recv() if pipe.poll(LIMIT) else NO_RESULT
    process.kill()
    process.join()
    return error


def _execute(code: str, pipe) -> None:
    try:
        exec(code, {"__name__": "__main__"})
        pipe.send("")
    except BaseException:
        pipe.send(traceback.format_exc())


def _context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def _serve(rank: int, size: int, store: str, limit: float, debug: str, pipe) -> None:
    torch.set_num_threads(1)
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = debug
    dist.set_debug_level_from_env()
    backend = "gloo"
    if gpus := os.environ.get("ZPP_TEST_GPUS"):
        torch.cuda.set_device(rank % int(gpus))
        backend = "cpu:gloo,cuda:nccl"
        if size > int(gpus):
            # NCCL refuses ranks that share a GPU, unless their hosts differ or it is
            # told to (bench/lab/launch.py). Then they are two nodes.
            is_told = os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
            host = 2 * rank // size if is_told else rank // int(gpus)
            if is_told:
                os.environ["NCCL_MAX_CTAS"] = launch.max_ctas(int(gpus), size)
            os.environ |= {
                "NCCL_HOSTID": f"host{host}", "NCCL_NVLS_ENABLE": "0",
                "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=size,
        timeout=datetime.timedelta(seconds=limit))
    while True:
        function, args, kwargs = pipe.recv()
        try:
            pipe.send((function(*args, **kwargs), None))
        except Exception:
            pipe.send((None, traceback.format_exc()))
