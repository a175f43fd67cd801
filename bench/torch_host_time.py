#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The time that a process spends in zpp.torch for a module, beside FSDP2.

    python bench/torch_host_time.py [--blocks N] [--steps N]

trains small blocks as one of four ranks, of two nodes, that are not there: PyTorch's
fake process group returns at once, and zpp takes it for one that sends. FSDP2 calls an
object for each gather and each scatter. The table has the least time of such calls in
all steps: what the host of a GPU takes until kernels and exchanges are queued. On the
CPU the quantization of a few hundred elements is a part of it.
"""

import argparse
import time

from lab.tables import Table

RANKS, MESH = 4, "node:2,gpu:2"
WIDTH = 48
#: Options of zpp; None for FSDP2 as it is.
VARIANTS = {
    "FSDP2": None,
    "left to PyTorch": {"links": "node=900gbyte,gpu=900gbyte"},
    "i8, i8:i4": {},
    "i8, i8:i4, kept": {"secondary": "gpu"},
    "i4:delta, i8:i4": {"weights": "i4:delta"},
    "i4:delta, i8:i4, once per update": {
        "weights": "i4:delta", "accumulate": "gpu"}}


def main():
    args = parse_arguments()
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore
    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    mesh = init_device_mesh("cpu", (RANKS,))
    print(f"PyTorch {torch.__version__}, {args.blocks} blocks, {args.steps} steps; "
          f"microseconds\n")
    table = Table(["options", "gather, forward", "gather, backward", "scatter",
                   "module and step"])
    for name, options in VARIANTS.items():
        times = measure(args, mesh, options)
        table.row([name, *(f"{value * 1e6:.0f}" for value in times),
                   f"{sum(times) * 1e6:.0f}"])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12, metavar="N")
    parser.add_argument("--steps", type=int, default=100, metavar="N")
    return parser.parse_args()


def measure(args, mesh, options) -> list[float]:
    """The least seconds of each kind of call."""
    from unittest import mock

    import torch
    from torch import nn
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    import zpp.torch
    from zpp.torch import _pytorch
    torch.manual_seed(0)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                  reduce_dtype=torch.float32)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(args.blocks)))
    for block in model:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    if options is not None:
        zpp.torch.compress(model, mesh=MESH, **{"links": "none", **options})
    times: list[list[float]] = [[], [], []]
    for block in model:
        watch_calls(block, times)
    with mock.patch.object(_pytorch, "is_dry_run", lambda _: False):
        for _ in range(args.steps):
            model(torch.ones(4, WIDTH)).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(0.99)
                    parameter.grad = None
    return [min(each) for each in times]


def watch_calls(block, times: list[list[float]]):
    """Notes the time of each call of FSDP2 for a block."""
    from zpp.torch import _fsdp, _pytorch
    (parameters,) = _fsdp.parameter_groups(block)
    gather, scatter = _fsdp.own_collectives(parameters)

    class Watched:
        def __init__(self, inner, place):
            self._inner, self._place = inner, place

        def allocate(self, *args, **kwargs):
            return self._inner.allocate(*args, **kwargs)

        def __call__(self, *args, **kwargs):
            start = time.thread_time()
            result = self._inner(*args, **kwargs)
            times[self._place()].append(time.thread_time() - start)
            return result

    parameters._all_gather_comm = Watched(
        gather, lambda: int(_pytorch.is_backward()))
    parameters._reduce_scatter_comm = Watched(scatter, lambda: 2)


if __name__ == "__main__":
    main()
