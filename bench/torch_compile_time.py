#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The time of zpp.torch.compress, which compiles what the steps need.

    python bench/torch_compile_time.py [--blocks N]

shards models of so many blocks, all different or all equal, over 16 ranks that are
not there (PyTorch's fake process group), as two nodes. Each is compressed with an
empty cache, and in another process once more. The table has seconds, and those of
all cores together, which other work on the machine disturbs less.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from lab import launch
from lab.tables import Table

RANKS, MESH = 16, "node:2,gpu:8"


def main():
    args = parse_arguments()
    if args.step is not None:
        measure(args)
        return
    launch.prepare()
    print(f"{args.blocks} blocks and a last layer, a rank of {RANKS}, {MESH}, on "
          f"{len(os.sched_getaffinity(0))} cores\n")
    table = Table(["blocks", "cache", "compress", "all cores"])
    for step in ("different", "equal"):
        with tempfile.TemporaryDirectory(prefix="zpp-") as cache:
            for state in ("empty", "filled"):
                found = subprocess.run(
                    [sys.executable, __file__, "--blocks", str(args.blocks),
                     "--step", step], check=True, stdout=subprocess.PIPE, text=True,
                    env={**os.environ, **launch.environment(), "XDG_CACHE_HOME": cache})
                seconds, of_cores = json.loads(found.stdout.splitlines()[-1])
                table.row([step, state, f"{seconds:.2f} s", f"{of_cores:.2f} s"])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--blocks", type=int, default=24, metavar="N")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(args):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    import zpp.torch
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    mesh = init_device_mesh("cpu", (RANKS,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                  reduce_dtype=torch.float32)
    with torch.device("meta"):
        model = nn.Sequential(*(
            nn.Linear(1024, 1024 + (16 * i if args.step == "different" else 0))
            for i in range(args.blocks)), nn.Linear(1024, 512))
    for block in model:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    before, start = os.times(), time.perf_counter()
    zpp.torch.compress(model, mesh=MESH, weights="i8", gradients="i8:i4")
    seconds, after = time.perf_counter() - start, os.times()
    print(json.dumps([seconds, sum(after[:4]) - sum(before[:4])]))


if __name__ == "__main__":
    main()
