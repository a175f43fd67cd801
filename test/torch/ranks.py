# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processes with a rank of gloo each, to which tests send functions."""

import datetime
import multiprocessing
import pathlib
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

#: Seconds after which a function, or an exchange in it, has failed.
LIMIT = 120


class Pool:
    """The ranks of one process group. After a failure they start anew, because
    those that wait for each other are of no more use."""

    def __init__(self, size: int):
        self._size = size
        self._processes: list = []

    def __call__(self, function: Callable, *args: Any, **kwargs: Any) -> list:
        """What the function returns on each rank.

        Raises:
          AssertionError: where it raises on a rank, or does not end.
        """
        if not self._processes:
            self._start()
        for _, pipe in self._processes:
            pipe.send((function, args, kwargs))
        results, errors = [], []
        for rank, (_, pipe) in enumerate(self._processes):
            try:
                if not pipe.poll(LIMIT):
                    raise EOFError("no result in time")
                result, error = pipe.recv()
            except EOFError as failure:
                result, error = None, repr(failure)
            results.append(result)
            if error is not None:
                errors.append(f"rank {rank}: {error}")
                # The others may wait for it.
                break
        if errors:
            self.close()
            raise AssertionError("\n".join(errors))
        return results

    def close(self):
        for process, _ in self._processes:
            process.kill()
            process.join()
        if self._processes:
            self._folder.cleanup()
        self._processes = []

    def _start(self):
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="zpp-")
        store = str(pathlib.Path(self._folder.name, "store"))
        for rank in range(self._size):
            pipe, end = context.Pipe()
            process = context.Process(
                target=_serve, args=(rank, self._size, store, end), daemon=True)
            process.start()
            self._processes.append((process, pipe))


def _serve(rank: int, size: int, store: str, pipe) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size,
        timeout=datetime.timedelta(seconds=LIMIT))
    while True:
        function, args, kwargs = pipe.recv()
        try:
            pipe.send((function(*args, **kwargs), None))
        except Exception:
            pipe.send((None, traceback.format_exc()))
