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

Whether they have changed, PyTorch says by the versions of tensors. What is written past
them (through `.data`, or by a kernel of the user's) changes a checksum. Each rank sees
that of its own slice only, so the ranks vote (`Ballots`).
"""

import collections
import dataclasses
import enum
import functools
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from zpp.torch import _pytorch
from zpp.torch._layout import Layout
from zpp.torch._runtime import get_part


class Vote(enum.IntEnum):
    """Knowledge of a rank about its slice of the weights. The largest one counts."""

    #: It is that of which the others hold something.
    SAME = 0
    #: PyTorch has seen that it was written to.
    WRITTEN = 1
    #: It has other values, and PyTorch has not seen why.
    UNSEEN = 2
    #: Whole weights are to be sent, whatever is held.
    WHOLE = 3
    #: It was written to in a pass, after the vote, where others have used older weights.
    LATE = 4


@dataclasses.dataclass(frozen=True)
class Hops:
    """The groups of the two hops, as this rank sees them."""

    outer: dist.ProcessGroup
    inner: dist.ProcessGroup


@functools.cache
def make_hops(group: dist.ProcessGroup, size: int, device: torch.device
              ) -> Hops | None:
    """The hops by secondary groups of `size` ranks, some of which may be outside of `group`;
    None if it lies within one, or has more ranks of one than of another. All ranks of the
    group call this together."""
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


class SecondaryPartition:
    """The part of a group of parameters that this rank holds."""

    def __init__(self, parameters: Any):
        self._parameters = parameters
        #: The gather that `_tensor` is a result of, as all ranks know it; None if it
        #: holds nothing that one would return.
        self._key: tuple | None = None
        #: The versions of this rank's slice, the memory that has them, its checksum.
        self._versions: tuple | None = None
        self._storages: list[torch.UntypedStorage] = []
        self._checksum: torch.Tensor | None = None
        self._tensor: torch.Tensor | None = None
        #: The group and the place of this rank's slice whose differences may be
        #: added to `_tensor`; None if it does not hold the same bits on all ranks.
        self._base: dist.ProcessGroup | None = None
        #: The step at which it was filled; -1 for one before all steps.
        self._step = -1
        #: Whether this rank wants whole weights to be sent.
        self._is_dropped = False
        #: A number that is not finite if what is held of this rank's slice is not, in
        #: memory of the host, on GPUs once the event has passed.
        self._extremes: tuple[torch.Tensor, torch.cuda.Event | None] | None = None
        #: The end of its latest use.
        self._used: torch.cuda.Event | None = None
        #: Whether slices were other ones when what is held was used; in memory of the
        #: host, on GPUs once the events have passed.
        self._comparisons: collections.deque[
            tuple[torch.Tensor, torch.cuda.Event | None]] = collections.deque()

    @property
    def bytes(self) -> int:
        """Bytes of the device that it takes."""
        return 0 if self._tensor is None else self._tensor.nbytes

    @property
    def has_checksum(self) -> bool:
        """Whether `differs` can be asked."""
        return self._checksum is not None

    def is_for(self, key: tuple, step: int) -> bool:
        """Whether it holds what a gather returns, which depends on the key and on how
        many steps have changed the weights, if no rank has written to them otherwise."""
        # A module that is used twice may be gathered for its second use after
        # the gradients of the first are reduced.
        return key == self._key and (step == self._step or _pytorch.is_backward())

    def has_base(self, group: dist.ProcessGroup, step: int) -> bool:
        """Whether differences may be added to it: steps have changed the weights."""
        return self._base is group and step > self._step

    def is_lost(self, step: int) -> bool:
        """Whether a difference would be one to what is not finite, and so it would stay,
        also when the weights are restored."""
        if self._extremes is None or step <= self._step:
            return False
        extremes, end = self._extremes
        if end is not None:
            end.synchronize()
        return not extremes.isfinite()

    def vote(self) -> Vote:
        """Returns what this rank knows without its device."""
        if self._is_dropped:
            return Vote.WHOLE
        versions = _pytorch.state_of(self._parameters)
        return (Vote.WRITTEN if versions is None or versions != self._versions else
                Vote.SAME)

    def differs(self, source: torch.Tensor) -> torch.Tensor:
        """Whether this rank's slice has other bits than when it was gathered."""
        # It may come from another stream.
        self.wait()
        return _checksum(source) != self._checksum

    def note_use(self, source: torch.Tensor) -> None:
        """Has the device find out whether it is right to use what is held."""
        self._comparisons.append(_pytorch.to_host(self.differs(source)))

    def was_wrong(self, wait: bool = False) -> bool:
        """Whether uses of it were wrong, as far as known, or with `wait` for certain."""
        while self._comparisons:
            differs, end = self._comparisons[0]
            if end is not None:
                if not wait and not end.query():
                    return False
                end.synchronize()
            self._comparisons.popleft()
            if differs:
                return True
        return False

    def get_buffer(self, elements: int, like: torch.Tensor) -> torch.Tensor:
        """Returns a buffer to gather to. What it held is lost."""
        self._key = self._base = None
        self.wait()
        buffer = self._tensor
        if (buffer is None or buffer.numel() != elements
                or buffer.dtype != like.dtype or buffer.device != like.device):
            self._tensor = like.new_empty(elements)
        return self._tensor

    def get_base(self, source: torch.Tensor, group: dist.ProcessGroup
                 ) -> torch.Tensor | None:
        """Returns what `group` holds, if the difference of this rank's slice fits it."""
        held = self._tensor
        if (held is None or held.numel() != source.numel() * group.size()
                or held.dtype != source.dtype or held.device != source.device):
            return None
        # Until it is known that all have arrived.
        self._key = self._base = None
        self.wait()
        return held

    def keep(self, key: tuple, step: int, source: torch.Tensor,
             group: dist.ProcessGroup, layout: Layout | None, checks: bool) -> None:
        """Says of what the buffer was gathered, over which group; with the layout of the
        slice, if differences to it may follow, and whether later uses are to check that
        PyTorch has seen all changes of the slice."""
        self._key = key
        self._step = step
        self._base = group
        self._is_dropped = False
        self._versions = _pytorch.state_of(self._parameters)
        self._storages = _pytorch.storages_of(self._parameters)
        self._checksum = _checksum(source) if checks else None
        self._look(group, layout)

    def _look(self, group: dist.ProcessGroup, layout: Layout | None) -> None:
        """Looks whether what is held of this rank's slice is finite."""
        extremes = layout and layout.extremes(self._own(group))
        self._extremes = None if extremes is None else _pytorch.to_host(extremes)

    def _own(self, group: dist.ProcessGroup) -> torch.Tensor:
        assert self._tensor is not None
        return self._tensor.chunk(group.size())[group.rank()]

    def own(self, group: dist.ProcessGroup) -> torch.Tensor | None:
        """Returns a copy of what all ranks hold of this rank's slice."""
        if self._base is not group or self._is_dropped:
            return None
        self.wait()
        own = self._own(group).clone()
        self.record_use()
        return own

    def load(self, own: torch.Tensor, group: dist.ProcessGroup, layout: Layout | None
             ) -> None:
        """Gathers what `own` has returned earlier: the next difference is one to that."""
        held = self.get_buffer(own.numel() * group.size(), own)
        dist.all_gather_into_tensor(held, own, group)
        self._base, self._step = group, -1
        self._look(group, layout)
        self._is_dropped = False
        self.record_use()

    def drop(self) -> None:
        """Has this rank vote for whole weights."""
        self._is_dropped = True

    def gather(self, result: torch.Tensor, hops: Hops) -> None:
        """Gathers what the ranks of the secondary group hold."""
        self.wait()
        gather_within(result, self._tensor, hops)
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


def gather_within(result: torch.Tensor, held: torch.Tensor, hops: Hops) -> None:
    """The inner hop, of what the outer one has gathered."""
    if hops.inner.size() == 1:
        result.copy_(held)
        return
    # Slice by slice, so that each comes to its place.
    nodes = hops.outer.size()
    _pytorch.all_gathers(result.view(nodes, -1).unbind(), held.view(nodes, -1).unbind(),
                         hops.inner)


#: Words in a row of a checksum.
_ROW = 1024


def _checksum(source: torch.Tensor) -> torch.Tensor:
    """Sums the words of a slice on its device, each times a number of its place."""
    content = source.view(torch.uint8)
    if content.numel() % 8 or content.storage_offset() % 8:
        content = nn.functional.pad(content, (0, -content.numel() % 8))
    words = content.view(torch.int64)
    factors = _factors(source.device)
    rows = words.numel() // _ROW
    sums = [(_fold(part) * factors[:part.size(1)]).sum(1)
            for part in (words[:rows * _ROW].view(rows, _ROW),
                         words[rows * _ROW:].view(1, -1))]
    total = _fold(torch.cat(sums))
    return (total * _scatter(torch.arange(1, rows + 2, device=source.device))).sum()


def _fold(words: torch.Tensor) -> torch.Tensor:
    """Mixes the upper bits into the lower ones: factors leave little of the former."""
    return words ^ (words >> 32)


def _scatter(places: torch.Tensor) -> torch.Tensor:
    """A factor for each place."""
    for _ in range(2):
        places = _fold(places * -7046029254386353131)
    return places


@functools.cache
def _factors(device: torch.device) -> torch.Tensor:
    return _scatter(torch.arange(1, _ROW + 1, device=device))
