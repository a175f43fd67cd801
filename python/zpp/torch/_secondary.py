# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Secondary partitions (hpZ, ZeRO++ section 3.2): what a node holds is kept.

The ranks of a secondary group hold all weights between them. A gather over the
whole group has two hops: each rank gathers the slices of the ranks at its own
place in the other secondary groups, and holds them; then the ranks of the
secondary group gather what they hold. As long as the weights do not change, the
second hop is enough.

Whether they have changed, PyTorch says by the versions of tensors, which the
ranks count alike. What is written past them (through `.data`, or by a kernel of
the user's) is not missed either: with each use of what is held, the device
compares a checksum of the weights. It ends the training, since the other ranks
have not waited for it.
"""

import collections
import dataclasses
import functools
from typing import Any

import torch
import torch.distributed as dist

from zpp.torch import _pytorch
from zpp.torch._runtime import get_part


@dataclasses.dataclass(frozen=True)
class Hops:
    """The groups of the two hops, as this rank sees them."""

    outer: dist.ProcessGroup
    inner: dist.ProcessGroup


@functools.cache
def make_hops(group: dist.ProcessGroup, size: int, device: torch.device
              ) -> Hops | None:
    """All ranks of the group call this together.

    Args:
      size: ranks of a secondary group.

    Returns:
      None if the group is not larger than a secondary group, or is no multiple
      of it.
    """
    ranks = dist.get_process_group_ranks(group)
    if len(ranks) <= size or len(ranks) % size:
        return None
    place = group.rank()
    first = place - place % size
    return Hops(
        get_part(group, tuple(ranks[place % size::size]), device),
        get_part(group, tuple(ranks[first:first + size]), device))


@dataclasses.dataclass(frozen=True)
class _Comparison:
    """A comparison of checksums that a GPU makes: of the module `name`."""

    name: str
    #: In memory of the host, once `end` has passed.
    differs: torch.Tensor
    end: torch.cuda.Event


#: Those that nobody has looked at, in the order of their calls.
_comparisons: collections.deque[_Comparison] = collections.deque()


def check_comparisons(wait: bool = False) -> None:
    """Raises RuntimeError if weights have changed unseen.

    Args:
      wait: for the GPU; otherwise it looks at those that are complete.
    """
    while _comparisons and (wait or _comparisons[0].end.query()):
        comparison = _comparisons.popleft()
        comparison.end.synchronize()
        _check(comparison.name, bool(comparison.differs))


def _check(name: str, differs: bool) -> None:
    if differs:
        raise RuntimeError(
            f"'{name}': expected the weights that the secondary group holds, but "
            f"got others with the same versions: they were written to through "
            f".data, or by a kernel that PyTorch does not know; call "
            f"zpp.torch.forget(model) after that")


class SecondaryPartition:
    """The part of a group of parameters that this rank holds.

    Args:
      name: of their module.
      parameters: what fully_shard knows of the group.
    """

    def __init__(self, name: str, parameters: Any):
        self._name = name
        self._parameters = parameters
        #: The state that `_tensor` was gathered of; None if it holds nothing.
        self._state: tuple | None = None
        self._storages: list[torch.UntypedStorage] = []
        self._checksum: torch.Tensor | None = None
        self._tensor: torch.Tensor | None = None
        #: The end of its latest use.
        self._used: torch.cuda.Event | None = None

    def get_state(self, *also: Any) -> tuple | None:
        """Returns what the partition depends on: the weights, and `also`."""
        weights = _pytorch.state_of(self._parameters)
        return None if weights is None else (weights, *also)

    def holds(self, state: tuple | None, source: torch.Tensor) -> bool:
        """True if what `source`, this rank's slice, is a part of has been
        gathered already.

        Raises:
          RuntimeError: if it has been, but the slice is another one. On GPUs
            that may come with a later call.
        """
        check_comparisons()
        if state is None or state != self._state:
            return False
        differs = _checksum(source) != self._checksum
        if not source.is_cuda:
            _check(self._name, bool(differs))
            return True
        host = torch.empty((), dtype=torch.bool, pin_memory=True)
        host.copy_(differs, non_blocking=True)
        _comparisons.append(_Comparison(
            self._name, host,
            torch.cuda.current_stream(source.device).record_event()))
        return True

    def get_buffer(self, elements: int, like: torch.Tensor) -> torch.Tensor:
        """Returns a buffer to gather to. What it held is lost."""
        self.forget()
        self._wait()
        buffer = self._tensor
        if (buffer is None or buffer.numel() != elements
                or buffer.dtype != like.dtype or buffer.device != like.device):
            self._tensor = like.new_empty(elements)
        return self._tensor

    def keep(self, state: tuple | None, source: torch.Tensor) -> None:
        """Says of what the buffer was gathered."""
        self._state = state
        self._storages = _pytorch.storages_of(self._parameters)
        self._checksum = _checksum(source)

    def forget(self) -> None:
        self._state = None

    def gather(self, result: torch.Tensor, hops: Hops) -> None:
        """Gathers what the ranks of the secondary group hold."""
        self._wait()
        # Slice by slice, so that each comes to its place.
        count = self._tensor.numel() // hops.outer.size()
        for held, part in zip(self._tensor.split(count),
                              result.split(count * hops.inner.size())):
            dist.all_gather_into_tensor(part, held, group=hops.inner)
        if result.is_cuda:
            self._used = torch.cuda.current_stream(result.device).record_event()

    def _wait(self) -> None:
        """Gathers may be called on different streams."""
        if self._used is not None:
            self._used.wait()


def _checksum(source: torch.Tensor) -> torch.Tensor:
    """Sums the bits of a slice, on its device."""
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64, 1: torch.uint8}
    return source.view(integers[source.element_size()]).sum(dtype=torch.int64)
