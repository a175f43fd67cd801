# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The objects that FSDP2 calls in the place of its own, and what they return."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


class _Allocating:
    """FSDP2 asks its collectives for their buffers.

    Args:
      run: the collective.
      allocate: the method of the object that it takes the place of.
    """

    def __init__(self, run: Callable[..., Any],
                 allocate: Callable[..., torch.Tensor] = torch.empty):
        self._run = run
        self.allocate = allocate


class AllGather(_Allocating):
    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: dist.ProcessGroup, async_op: bool = False) -> Any:
        return self._run(output_tensor, input_tensor, group, async_op)


class ReduceScatter(_Allocating):
    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: dist.ProcessGroup, op: Any, async_op: bool = False
                 ) -> Any:
        return self._run(output_tensor, input_tensor, group, op, async_op)


class Work(dist.Work):
    """A collective under way on a stream of its own, or one that is complete.

    Args:
      event: what its end records; None if it is complete.
    """

    def __init__(self, event: torch.cuda.Event | None = None):
        super().__init__()
        self._event = event

    def wait(self, timeout=None) -> bool:
        """Makes the current stream wait. Time limits are those of the process
        groups, whose watchdog sees the exchanges."""
        if self._event is not None:
            self._event.wait()
        return True

    def is_completed(self) -> bool:
        return self._event is None or self._event.query()
