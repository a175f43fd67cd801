# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures what a device sends per second over each tier (links="measured")."""

import time
from collections.abc import Mapping

import torch
import torch.distributed as dist

from zpp._links import agree_on_links, describe_host
from zpp._option_kinds import write_mesh
from zpp.torch._mesh import find_parts
from zpp.torch._runtime import get_part

#: Bytes that a device sends to each of its peers, enough that latency does not
#: matter, and at most to all of them.
_CHUNK_BYTES = {"cuda": 32 << 20, "cpu": 4 << 20}
_MOST_BYTES = 256 << 20
_WARM_UP, _TIMED = 2, 4


def find_links(tiers: Mapping[str, int], device: torch.device) -> str | None:
    """Returns the links of the tiers, as `Options.links` has them: those of the slowest
    group of each tier, while all groups exchange. None without any. All ranks call
    it."""
    if all(size == 1 for size in tiers.values()):
        return None

    def exchange(text: str) -> list[str]:
        texts = [""] * dist.get_world_size()
        dist.all_gather_object(texts, text)
        return texts

    name = (f"{torch.cuda.get_device_name(device)} {device.index}"
            if device.type == "cuda" else device.type)
    return agree_on_links(describe_host([name]), write_mesh(tiers), exchange,
                          lambda: _measure(tiers, device))


def _measure(tiers: Mapping[str, int], device: torch.device) -> dict[str, float]:
    """The speed at which this rank sends over each tier, in Gbit/s."""
    sizes = {name: size for name, size in tiers.items() if size > 1}
    parts = (find_parts(sizes, dist.get_rank()) if len(sizes) > 1 else
             [tuple(range(size)) for size in sizes.values()])
    found = {}
    for (name, size), members in zip(sizes.items(), parts):
        chunk = min(_CHUNK_BYTES["cuda" if device.type == "cuda" else "cpu"],
                    _MOST_BYTES // size)
        group = get_part(dist.group.WORLD, members, device)
        source = torch.zeros(size * chunk, dtype=torch.uint8, device=device)
        result = torch.empty_like(source)
        seconds = min(_exchange_seconds(source, result, group)
                      for _ in range(_WARM_UP + _TIMED))
        found[name] = chunk * (size - 1) * 8 / seconds / 1e9
    return found


def _exchange_seconds(source: torch.Tensor, result: torch.Tensor,
                      group: dist.ProcessGroup) -> float:
    def synchronize():
        if source.is_cuda:
            torch.cuda.synchronize(source.device)

    synchronize()
    dist.barrier(group)
    synchronize()
    start = time.perf_counter()
    dist.all_to_all_single(result, source, group=group)
    synchronize()
    return time.perf_counter() - start
