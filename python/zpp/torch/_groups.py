# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Process groups that zpp makes, with what it uses of PyTorch beyond its public
interface."""

import copy
import datetime
import hashlib
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d


def store_of_all() -> dist.Store:
    """Returns the store in which all ranks can leave each other notes."""
    return distributed_c10d._get_default_store()


def key_of(ranks: tuple[int, ...]) -> str:
    """Returns a short name for some ranks, for keys of the store."""
    return hashlib.sha256(repr(ranks).encode()).hexdigest()


def count(what: str, ranks: tuple[int, ...]) -> int:
    """Counts something that some ranks do together, and returns how often this one has
    done it: the same number on all of them, also if their processes are not equally
    old."""
    return store_of_all().add(f"zpp/{what}/{key_of(ranks)}/{dist.get_rank()}", 1)


def part_of(group: dist.ProcessGroup, ranks: tuple[int, ...],
            device: torch.device) -> dist.ProcessGroup:
    """A new group of some of the ranks of `group`, with its back end for
    `device`, its time limit and its options. All of `ranks` call this."""
    backend = _backend_of(group, device)
    return _new_group(
        ranks, timeout=timeout_of(group, device),
        backend=f"{device.type}:{backend.name()}",
        # NCCL's: priority of streams and configuration. Others have none.
        pg_options=(copy.copy(backend.options) if backend.name() == "nccl" else None))


def host_part_of(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """A group of the same ranks that exchanges what is in memory of hosts: the same
    one, if it can. All of its ranks call this."""
    if any(device.type == "cpu" for device in group._device_types):
        return group
    return _new_group(tuple(dist.get_process_group_ranks(group)), backend="cpu:gloo",
                      timeout=timeout_of(group, group._device_types[0]))


def _new_group(ranks: tuple[int, ...], **options: Any) -> dist.ProcessGroup:
    """Makes a group that only its ranks know of. PyTorch counts groups, and names the
    next ones by the number, which must stay the same on all ranks; and it may split
    the group of all ranks, which all of them would have to do."""
    name = f"zpp {'_'.join(map(str, ranks))} {count('groups', ranks)}"
    world = dist.group.WORLD
    bound, name_of = world.bound_device_id, distributed_c10d._process_group_name
    distributed_c10d._process_group_name = lambda *_, **__: name
    world.bound_device_id = None
    try:
        return dist.new_group(ranks, use_local_synchronization=True, group_desc="zpp",
                              **options)
    finally:
        distributed_c10d._process_group_name = name_of
        world.bound_device_id = bound


def _backend_of(group: dist.ProcessGroup, device: torch.device) -> Any:
    """The back end of a group, within what TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it in."""
    backend = group._get_backend(device)
    return getattr(backend, "wrapped_pg", backend)


def timeout_of(group: dist.ProcessGroup, device: torch.device
               ) -> datetime.timedelta | None:
    """The time limit of a group; None if it has none."""
    options = getattr(_backend_of(group, device), "options", None)
    return getattr(options, "_timeout", None)


def set_timeout(group: dist.ProcessGroup, device: torch.device,
                timeout: datetime.timedelta) -> None:
    _backend_of(group, device)._set_default_timeout(timeout)


class Replicas(dist.ProcessGroup):
    """The replicas of a module of HSDP, for dist.all_reduce.

    FSDP2 lets others reduce after it has reduced between replicas itself, but
    not in its place. So it gets a process group that does it.

    Args:
      all_reduce: a method. PyTorch's tables would keep its object for ever.
      parameters: the group is in PyTorch's tables as long as these.
    """

    def __init__(self, all_reduce: Callable[..., None],
                 group: dist.ProcessGroup, parameters: Any):
        super().__init__(group.rank(), group.size())
        self.group = group
        self._all_reduce = weakref.WeakMethod(all_reduce)
        # PyTorch looks it up when it logs an error and in profiles.
        world = distributed_c10d._world
        tables = world.pg_map, world.pg_backend_config, world.pg_group_ranks
        for known in tables:
            known[self] = known[group]
        weakref.finalize(parameters, self._leave, tables).atexit = False

    def _leave(self, tables: tuple[dict, ...]) -> None:
        for known in tables:
            known.pop(self, None)

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> None:
        (tensor,) = tensors
        self._all_reduce()(tensor, self.group, opts.reduceOp)
