# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures what a device sends per second over each tier (links="measure")."""

import math
import time
from collections.abc import Mapping

import torch
import torch.distributed as dist

from zpp.torch._mesh import find_parts
from zpp.torch._runtime import get_part

#: The word in `Options.links`.
MEASURE = "measure"
#: Bytes that a device sends to each of its peers, enough that latency does not
#: matter, and at most to all of them.
_CHUNK_BYTES = {"cuda": 32 << 20, "cpu": 4 << 20}
_MOST_BYTES = 256 << 20
_WARM_UP, _TIMED = 2, 4


def measure(tiers: Mapping[str, int], device: torch.device) -> str:
    """Returns the links of the tiers, as `Options.links` has them: those of the slowest
    group of each tier, while all groups exchange. All ranks call it.

    They are rounded to two steps per doubling: most runs on the same machines then find
    the same, and with it what is compiled.
    """
    sizes = {name: size for name, size in tiers.items() if size > 1}
    parts = (find_parts(sizes, dist.get_rank()) if len(sizes) > 1 else
             [tuple(range(size)) for size in sizes.values()])
    found = []
    for (name, size), members in zip(sizes.items(), parts):
        chunk = min(_CHUNK_BYTES["cuda" if device.type == "cuda" else "cpu"],
                    _MOST_BYTES // size)
        group = get_part(dist.group.WORLD, members, device)
        source = torch.zeros(size * chunk, dtype=torch.uint8, device=device)
        result = torch.empty_like(source)
        seconds = torch.tensor(min(
            _exchange_seconds(source, result, group)
            for _ in range(_WARM_UP + _TIMED)), dtype=torch.float64,
            device=device)
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        gbit = chunk * (size - 1) * 8 / seconds.item() / 1e9
        found.append(f"{name}={_round(gbit):.3g}gbit")
    return ",".join(found)


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


def _round(number: float) -> float:
    return 2 ** (round(2 * math.log2(number)) / 2)
