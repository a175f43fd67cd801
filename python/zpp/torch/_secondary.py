# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Secondary partitions (hpZ, ZeRO++ section 3.2): what a node holds is kept.

The ranks of a secondary group hold all weights between them. A gather over the
whole group has two hops: each rank gathers the slices of the ranks at its own
place in the other secondary groups, and holds them; then the ranks of the
secondary group gather what they hold. As long as the weights do not change, the
second hop is enough.

With weights=i4:delta the first hop sends by how much the weights differ from what is
held, once that is there. All ranks that hold a slice, its owner among them, add the
same numbers to the same numbers, so what they hold stays equal to the bit. What is
rounded is part of the next difference. Whole weights are sent as they are: at first,
and where the weights change otherwise than by steps, so that differences stay small.

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
      size: ranks of a secondary group, of which `group` may have some only.

    Returns:
      None if the group lies within a secondary group, or has more ranks of one
      than of another.
    """
    ranks = dist.get_process_group_ranks(group)
    counts = set(collections.Counter(rank // size for rank in ranks).values())
    count = counts.pop()
    if counts or count == len(ranks):
        return None
    place = group.rank()
    first = place - place % count
    return Hops(
        get_part(group, tuple(ranks[place % count::count]), device),
        get_part(group, tuple(ranks[first:first + count]), device))


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
        #: The group and the place of this rank's slice whose differences may be
        #: added to `_tensor`; None if it does not hold the same bits on all ranks.
        self._base: dist.ProcessGroup | None = None
        #: The step at which it was filled; -1 for one before all steps.
        self._step = -1
        #: The end of its latest use.
        self._used: torch.cuda.Event | None = None

    def get_state(self, *also: Any) -> tuple | None:
        """Returns what the partition depends on: the weights, and `also`."""
        weights = _pytorch.state_of(self._parameters)
        return None if weights is None else (weights, *also)

    @property
    def bytes(self) -> int:
        """Bytes of the device that it takes."""
        return 0 if self._tensor is None else self._tensor.nbytes

    def is_of(self, state: tuple, step: int) -> bool:
        """Whether it was gathered of these weights, if PyTorch has seen all changes."""
        return state == self._state and step == self._step

    def holds(self, state: tuple | None, step: int, source: torch.Tensor
              ) -> bool:
        """True if what `source`, this rank's slice, is a part of has been
        gathered already.

        Args:
          step: so many have changed the weights.

        Raises:
          RuntimeError: if it has been, but the slice is another one. On GPUs
            that may come with a later call.
        """
        check_comparisons()
        # A module that is used twice may be gathered for its second use after
        # the gradients of the first are reduced.
        if state is None or state != self._state or (
                step != self._step and not _pytorch.is_backward()):
            return False
        # The checksum may come from another stream.
        self.wait()
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
        self.wait()
        buffer = self._tensor
        if (buffer is None or buffer.numel() != elements
                or buffer.dtype != like.dtype or buffer.device != like.device):
            self._tensor = like.new_empty(elements)
        return self._tensor

    def get_base(self, group: dist.ProcessGroup, step: int, source: torch.Tensor
                 ) -> torch.Tensor | None:
        """Returns what the ranks of `group` hold, if the difference of `source`, this
        rank's slice, is to be added to it: steps have changed the weights since."""
        held = self._tensor
        if (self._base is not group or step <= self._step or held is None
                or held.numel() != source.numel() * group.size()
                or held.dtype != source.dtype or held.device != source.device):
            return None
        # Until it is known that all have arrived.
        self.forget()
        self.wait()
        return held

    def keep(self, state: tuple | None, step: int, source: torch.Tensor,
             group: dist.ProcessGroup) -> None:
        """Says of what the buffer was gathered, over which group."""
        self._state = state
        self._step = step
        self._base = group
        self._storages = _pytorch.storages_of(self._parameters)
        self._checksum = _checksum(source)

    def own(self, group: dist.ProcessGroup) -> torch.Tensor | None:
        """Returns a copy of what all ranks hold of this rank's slice."""
        if self._base is not group:
            return None
        self.wait()
        own = self._tensor.chunk(group.size())[group.rank()].clone()
        self.record_use()
        return own

    def load(self, own: torch.Tensor, group: dist.ProcessGroup) -> None:
        """Gathers what `own` has returned on the ranks of the group earlier: the next
        difference is one to that."""
        held = self.get_buffer(own.numel() * group.size(), own)
        _pytorch.all_gather(held, own, group)
        self._base, self._step = group, -1
        self.record_use()

    def forget(self) -> None:
        self._state = self._base = None

    def gather(self, result: torch.Tensor, hops: Hops) -> None:
        """Gathers what the ranks of the secondary group hold."""
        self.wait()
        if hops.inner.size() == 1:
            result.copy_(self._tensor)
        else:
            # Slice by slice, so that each comes to its place.
            nodes = hops.outer.size()
            _pytorch.all_gathers(result.view(nodes, -1).unbind(),
                                 self._tensor.view(nodes, -1).unbind(),
                                 hops.inner)
        self.record_use()

    def record_use(self) -> None:
        """Has later uses wait for what is queued on the current stream."""
        if self._tensor.is_cuda:
            stream = torch.cuda.current_stream(self._tensor.device)
            self._used = stream.record_event()
            self._tensor.record_stream(stream)

    def wait(self) -> None:
        """Gathers may be called on different streams."""
        if self._used is not None:
            self._used.wait()


def _checksum(source: torch.Tensor) -> torch.Tensor:
    """Sums the bits of a slice, on its device."""
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64, 1: torch.uint8}
    return source.view(integers[source.element_size()]).sum(dtype=torch.int64)
