# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether all ranks want the same.

Ranks that quantize in different ways train something else without an error, or
wait for each other for ever. So each rank leaves what it is about to do in the
store of the process groups; the first rank of each group compares.
"""

import datetime
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch.distributed as dist

from zpp.torch import _pytorch

#: How long the first rank waits for the others, and they for it.
TIME_LIMIT = datetime.timedelta(seconds=300)

#: The calls so far of each group, by its ranks.
_calls: Counter[tuple[int, ...]] = Counter()
#: The errors of ranks that want different things, and of ranks that do not call, by
#: the names that they have in the store.
_ERRORS: dict[str, type[Exception]] = {"differs": ValueError, "absent": RuntimeError}


class _Verdict(NamedTuple):
    """The error, as a key of `_ERRORS` and in words; empty if there is none."""

    error: str = ""
    text: str = ""


def check(groups: Iterable[dist.ProcessGroup], facts: Mapping[str, Any]
          ) -> None:
    """All ranks of the groups call this together, in turn with the same calls.

    Args:
      facts: what must be equal, by its name; as JSON has it.

    Raises:
      ValueError: on all ranks of a group that does not agree, with the first
        difference.
      RuntimeError: if some of the ranks have not called it in time.
    """
    members = {tuple(dist.get_process_group_ranks(group)) for group in groups
               if not _pytorch.is_fake(group)}
    if not members:
        return
    store = _pytorch.store_of_all()
    own = dist.get_rank()
    for ranks in sorted(members):
        name = hashlib.sha256(repr(ranks).encode()).hexdigest()
        call = f"zpp/agreement/{name}/{_calls[ranks]}"
        _calls[ranks] += 1
        store.set(f"{call}/{own}", json.dumps(facts))
        key = f"{call}/verdict"
        if own == ranks[0]:
            verdict = _compare(store, call, ranks)
            store.set(key, json.dumps(verdict))
        elif not _arrives(store, [key]):
            verdict = _absent(ranks[:1])
        else:
            verdict = _Verdict(*json.loads(store.get(key)))
        if verdict.error:
            raise _ERRORS[verdict.error](verdict.text)


def _compare(store: dist.Store, call: str, ranks: tuple[int, ...]) -> _Verdict:
    """Whether the ranks agree, with the first difference."""
    keys = [f"{call}/{rank}" for rank in ranks]
    if not _arrives(store, keys):
        return _absent(rank for rank, key in zip(ranks, keys)
                       if not store.check([key]))
    first, *others = map(json.loads, store.multi_get(keys))
    for rank, other in zip(ranks[1:], others):
        for name in {**first, **other}:
            if first.get(name) != other.get(name):
                return _Verdict("differs", (
                    f"{name}: expected the same on all ranks, but got "
                    f"{first.get(name)!r} on rank {ranks[0]} and "
                    f"{other.get(name)!r} on rank {rank}"))
    return _Verdict()


def _arrives(store: dist.Store, keys: list[str]) -> bool:
    try:
        store.wait(keys, TIME_LIMIT)
    except RuntimeError:
        return False
    return True


def _absent(ranks: Iterable[int]) -> _Verdict:
    return _Verdict("absent", (
        f"expected rank {', '.join(map(str, ranks))} to call "
        f"zpp.torch.compress as this one does, but got no call within "
        f"{TIME_LIMIT.total_seconds():.0f} s"))
