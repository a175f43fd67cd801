# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that the ranks run: models whose parameters have several types in one
module, as adapters in float32 have them beside a frozen base in bfloat16."""

from collections.abc import Callable
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

import zpp.torch
from training import (BATCH, CLASSES, WIDTH, all_ranks, compress, device,
                      fully_shard, gathered_bytes, gathered_digest, replicated_mesh,
                      update)


class Adapted(nn.Module):
    """A frozen matrix in one type, its adapter and its norm in float32."""

    RANK, HIDDEN = 4, 3 * WIDTH + 1

    def __init__(self, frozen: torch.dtype = torch.bfloat16):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Parameter(
            (torch.randn(self.HIDDEN, WIDTH) / WIDTH ** 0.5).to(frozen),
            requires_grad=False)
        # 4 ranks divide neither this nor the rows of `up`.
        self.first = nn.Parameter(torch.randn(self.RANK + 1, WIDTH) / WIDTH ** 0.5)
        self.second = nn.Parameter(torch.zeros(self.HIDDEN, self.RANK + 1))
        self.down = nn.Parameter(
            (torch.randn(WIDTH, self.HIDDEN) / self.HIDDEN ** 0.5).to(frozen),
            requires_grad=False)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        y = self.norm(x)
        y = y @ self.up.float().T + y @ self.first.T @ self.second.T
        return x + self.scale * (nn.functional.gelu(y) @ self.down.float().T)


def make_adapted(options, rows=None, frozen=torch.bfloat16, compiled=False
                 ) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(Adapted(frozen), Adapted(frozen),
                          nn.Linear(WIDTH, CLASSES)).to(device())
    mesh = all_ranks() if rows is None else replicated_mesh(rows)
    for block in model[:2]:
        if compiled:
            block.compile(backend="eager")
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if options is not None:
        compress(model, **options)
    return model


def train_adapted(options, steps=6, **more) -> dict:
    """Losses, a digest of the weights, and the report."""
    model = make_adapted(options, **more)
    optimizer = torch.optim.Adam(
        [p for p in model.parameters() if p.requires_grad], 1e-2)
    losses = [update(model, optimizer) for _ in range(steps)]
    result: dict = {"losses": losses, "digest": gathered_digest(model)}
    if options is not None:
        result |= {"report": zpp.torch.report(model),
                   "bytes": gathered_bytes(model)}
    return result


def messages(options) -> tuple[int, int]:
    """Exchanges that a gather of an adapted module takes, and one of a module with a
    single type."""
    def count(model) -> int:
        sent: list[Callable] = []
        with (mock.patch.object(dist, "all_gather_into_tensor", note(
                dist.all_gather_into_tensor, sent)),
              mock.patch.object(dist, "all_to_all_single", note(
                  dist.all_to_all_single, sent))):
            model[0].unshard()
        return len(sent)

    def note(function, sent):
        def noted(*args, **kwargs):
            sent.append(function)
            return function(*args, **kwargs)
        return noted

    return (count(make_adapted(options, frozen=torch.bfloat16)),
            count(make_adapted(options, frozen=torch.float32)))


def compiles_adapted_early(options) -> bool:
    """Whether steps after compress need the compiler."""
    from zpp.torch import _plans, _runtime

    def fail(*args, **kwargs):
        raise AssertionError("compiled late")

    model = make_adapted(options)
    with (mock.patch.object(_plans, "compile_bucket", fail),
          mock.patch.object(_runtime, "Runner", fail)):
        for _ in range(2):
            model(torch.ones(BATCH, WIDTH, device=device())).sum().backward()
    return any(entry["rewritten"] and entry["type"] == "f32+bf16"
               for entry in zpp.torch.report(model)["collectives"])


def gathered_once(options) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Parameters of a module as they are gathered, and as they are."""
    model = make_adapted(options)
    plain = make_adapted(None)
    for each in (model[0], plain[0]):
        each.unshard()

    def copies(module) -> list[torch.Tensor]:
        return [parameter.detach().clone() for parameter in module.parameters()]

    return copies(model[0]), copies(plain[0])
