# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The module that is gathered next, so that its hop between nodes may begin.

FSDP2 gathers a module after the one before it, and a gather has a hop between nodes
and one within them. So the link between nodes would be idle while weights travel
within. Where a node keeps what it holds, there is a place for what arrives early:
with the gather of one module, the hop between nodes of the next begins.

Next is what came next in the last pass. All ranks of a process group have the same
gathers in the same order there, as they would wait for each other otherwise, so they
agree without a word.
"""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist


class Order:
    """The order of gathers in forward passes, for each process group alone."""

    def __init__(self) -> None:
        self._last: dict[dist.ProcessGroup, Any] = {}
        self._next: dict[Any, Any] = {}

    def follow(self, gathered: Any, group: dist.ProcessGroup) -> Any:
        """Notes a gather; returns what came after the last such one, if that is known."""
        if group in self._last:
            self._next[self._last[group]] = gathered
        self._last[group] = gathered
        return self._next.get(gathered)

    def leave(self, gathered: Any) -> None:
        """Forgets what is not gathered any more."""
        self._last = {group: last for group, last in self._last.items()
                      if last is not gathered}
        self._next = {before: after for before, after in self._next.items()
                      if gathered not in (before, after)}


@functools.cache
def streams_of_hops(device: torch.device) -> Iterator[torch.cuda.Stream]:
    """The streams of hops that begin early, with FSDP2's priority for gathers: two in
    turn, so that one hop is quantized while the link is busy with the one before it."""
    return itertools.cycle([torch.cuda.Stream(device, priority=-1) for _ in range(2)])


@functools.cache
def stream_of_gathers(device: torch.device) -> torch.cuda.Stream | None:
    """The stream of gathers that FSDP2 does not wait for at once; None on the CPU."""
    return torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None
