# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether all ranks want the same.

Ranks that quantize in different ways train something else without an error, or
wait for each other for ever. So each rank leaves what it is about to do in the
store of the process groups; the first rank of each group compares.

Between steps, what one rank knows of a module may be news to the others: code that
skips empty shards writes to the weights of some ranks only. What all ranks do is
decided by votes (`Ballots`).
"""

import datetime
import functools
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist

from zpp._warn import warn
from zpp.torch import _groups, _pytorch

#: How long the first rank waits for the others, and they for it.
TIME_LIMIT = datetime.timedelta(seconds=300)

#: The errors of ranks that want different things, and of ranks that do not call, by
#: the names that they have in the store.
_ERRORS: dict[str, type[Exception]] = {"differs": ValueError, "absent": RuntimeError}
#: One of them, and its text; empty if all agree.
_Verdict = list[str]


def check(groups: Iterable[dist.ProcessGroup], facts: Mapping[str, Any],
          caller: str = "zpp.torch.compress", hint: str = "") -> None:
    """Raises ValueError, on all ranks of a group, if not all have the same facts, with
    the first difference, and RuntimeError if some ranks have not called it in time. All
    ranks of the groups call it, in turn with the same calls; messages name `caller`, and
    those of ranks that do not call end with `hint`."""
    members = {tuple(dist.get_process_group_ranks(group)) for group in groups
               if not _pytorch.is_fake(group)}
    if not members:
        return
    store = _groups.store_of_all()
    own = dist.get_rank()
    for ranks in sorted(members):
        call = (f"zpp/agreement/{_groups.key_of(ranks)}/"
                f"{_groups.count('agreements', ranks)}")
        store.set(f"{call}/{own}", json.dumps(facts))
        key = f"{call}/verdict"
        if own == ranks[0]:
            verdict = _compare(store, call, ranks, caller, hint)
            store.set(key, json.dumps(verdict))
        elif not _arrives(store, [key]):
            verdict = _absent(ranks[:1], caller, hint)
        else:
            verdict = json.loads(store.get(key))
        if verdict:
            error, text = verdict
            raise _ERRORS[error](text)


def _compare(store: dist.Store, call: str, ranks: tuple[int, ...], caller: str,
             hint: str) -> _Verdict:
    """Whether the ranks agree, with the first difference."""
    keys = [f"{call}/{rank}" for rank in ranks]
    if not _arrives(store, keys):
        return _absent((rank for rank, key in zip(ranks, keys)
                        if not store.check([key])), caller, hint)
    first, *others = map(json.loads, store.multi_get(keys))
    for rank, other in zip(ranks[1:], others):
        for name in {**first, **other}:
            if first.get(name) != other.get(name):
                return ["differs", (
                    f"{name}: expected the same on all ranks, but got "
                    f"{first.get(name)!r} on rank {ranks[0]} and "
                    f"{other.get(name)!r} on rank {rank}")]
    return []


def _arrives(store: dist.Store, keys: list[str]) -> bool:
    try:
        store.wait(keys, TIME_LIMIT)
    except RuntimeError:
        return False
    return True


def _absent(ranks: Iterable[int], caller: str, hint: str) -> _Verdict:
    return ["absent", (
        f"expected rank {', '.join(map(str, ranks))} to call "
        f"{caller} as this one does, but got no call within "
        f"{TIME_LIMIT.total_seconds():.0f} s{hint}")]


class Voter(Protocol):
    """A module that its ranks decide about."""

    #: The `Shared` that has its title.
    shared: Any

    def vote(self) -> int:
        """Returns what this rank knows; the largest vote of all ranks is the outcome."""

    def vote_on_device(self) -> torch.Tensor | None:
        """Returns the vote where the former is zero, which the device has to find out;
        None if it is zero all the same."""


class Ballots:
    """The votes of all modules of a call of `compress`.

    GPUs run behind their hosts, which must not wait for each module: the hosts exchange
    the votes of all of them at once, when the first one asks in a forward or backward
    pass. On the CPU, and between passes, each module votes when it asks."""

    def __init__(self, at_once: bool):
        self.at_once = at_once
        #: By the groups that vote: their modules, with the outcome of this pass that
        #: they have not asked for yet.
        self._outcomes: dict[tuple[dist.ProcessGroup, ...],
                             dict[Voter, int | None]] = {}
        self._latest_pass: tuple[int, int] | None = None
        self._has_warned = False

    def warn_once(self, text: str) -> None:
        """Warns of what all modules have in common, once."""
        if not self._has_warned:
            self._has_warned = True
            warn(text)

    def join(self, voter: Voter, *groups: dist.ProcessGroup) -> None:
        """Has a module vote with the others. All ranks of the groups call it."""
        self._outcomes.setdefault(groups, {}).setdefault(voter, None)

    def leave(self, voter: Voter) -> None:
        for outcomes in self._outcomes.values():
            outcomes.pop(voter, None)

    def ask_again(self, voter: Voter) -> None:
        """Has a module vote in the middle of a pass. All ranks call it."""
        for outcomes in self._outcomes.values():
            if voter in outcomes:
                outcomes[voter] = None

    def ask(self, voter: Voter, *groups: dist.ProcessGroup) -> int:
        """Returns the largest vote of the ranks of the groups, all of which call this."""
        if _pytorch.is_dry_run(groups[0]):
            return voter.vote()
        now = _pytorch.current_pass()
        if not self.at_once or now is None:
            return _exchange([voter], groups)[0]
        if now != self._latest_pass:
            self._latest_pass = now
            for outcomes in self._outcomes.values():
                outcomes.update(dict.fromkeys(outcomes))
        self.join(voter, *groups)
        outcomes = self._outcomes[groups]
        if outcomes[voter] is None:
            outcomes.update(zip(outcomes, _exchange(list(outcomes), groups)))
        outcome, outcomes[voter] = outcomes[voter], None
        assert outcome is not None
        return outcome


def _exchange(voters: list[Voter], groups: tuple[dist.ProcessGroup, ...]) -> list[int]:
    """Returns the largest votes of all ranks. Raises RuntimeError where ranks vote about
    other modules: what they send next would be taken for each other's."""
    modules = zlib.crc32(repr([(type(voter).__name__, voter.shared.title)
                               for voter in voters]).encode())
    # Scripts may make all tensors on another device.
    votes = torch.tensor([*(voter.vote() for voter in voters), modules, -modules],
                         device="cpu")
    places = {place: vote for place, voter in enumerate(voters)
              if not votes[place] and (vote := voter.vote_on_device()) is not None}
    if places:
        # The host waits once.
        votes[list(places)] = torch.stack(list(places.values())).cpu()
    for group in groups:
        if group.size() > 1:
            dist.all_reduce(votes, dist.ReduceOp.MAX, _host_group(group))
    *outcomes, largest, smallest = votes.tolist()
    if largest != -smallest:
        raise RuntimeError(
            f"{voters[0].shared.title}: expected all ranks to gather and to reduce the "
            f"same modules at the same time, but got another one on some ranks; with "
            f"accumulate, all use the same modules in each micro-batch")
    return outcomes


@functools.cache
def _host_group(group: dist.ProcessGroup) -> dist.ProcessGroup:
    return _groups.host_part_of(group)
