# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that the ranks run: optimizers that orthogonalize momenta."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import Shard

import zpp.torch
from training import (all_ranks, compress, device, fully_shard, gathered_digest, loss_of,
                      make_batch, make_model)


class Recipe(torch.optim.Optimizer):
    """Muon as trainers write it for DTensor: each rank orthogonalizes all."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.02})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                momentum = state.setdefault("momentum", torch.zeros_like(weight))
                momentum.lerp_(weight.grad, 0.05)
                whole = zpp.torch.gather_moment(
                    weight.grad.lerp(momentum, 0.95), weight)
                whole = torch.optim._muon._zeropower_via_newtonschulz(
                    whole, (3.4445, -4.775, 2.0315), 5, 1e-7)
                begin = weight.__create_chunk_list__()[0].offsets[0]
                local = weight.to_local()
                local.sub_(whole[begin:begin + local.size(0)], alpha=group["lr"])


def train(options: Mapping[str, Any] | None, kind: str = "Muon", steps: int = 6,
          order: int = 0, **model_options) -> dict:
    """Losses of a training with Muon for matrices, and a digest of the weights; with zpp
    also the bytes of momenta between nodes, and metrics."""
    model = make_model(options, **model_options)
    matrices = [each for each in model.parameters() if each.ndim == 2]
    rest = [each for each in model.parameters() if each.ndim != 2]
    muon = (Recipe(matrices) if kind == "Recipe" else torch.optim.Muon(
        matrices, 0.02, weight_decay=0.0))
    adam = torch.optim.AdamW(rest, 1e-3)
    losses, found = [], {}
    for step in range(steps):
        if options is not None:
            found = zpp.torch.metrics(model)
        loss = loss_of(model, make_batch(7 * order + step % 4))
        loss.backward()
        for optimizer in (muon, adam):
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    result: dict = {"losses": losses, "digest": gathered_digest(model)}
    if options is not None:
        entries = [entry for entry in zpp.torch.report(model)["collectives"]
                   if entry["kind"] == "moment"]
        result |= {"entries": entries, "metrics": found}
    return result


def errors(options: Mapping[str, Any], **model_options) -> dict[str, float]:
    """The relative error of each gathered gradient."""
    model = make_model(options, **model_options)
    loss_of(model, make_batch()).backward()
    found = {}
    for name, weight in model.named_parameters():
        whole = weight.grad.full_tensor()
        rounded = zpp.torch.gather_moment(weight.grad, weight)
        assert rounded.shape == whole.shape and rounded.device == weight.device
        found[name] = float((rounded - whole).norm() / whole.norm())
    return found


def errors_of_columns(options: Mapping[str, Any]) -> dict[str, float]:
    """Likewise, of slices of columns."""
    torch.manual_seed(0)
    model = nn.Linear(64, 48, bias=False, device=device())
    fully_shard(model, mesh=all_ranks(), shard_placement_fn=lambda _: Shard(1))
    compress(model, **options)
    model(torch.randn(4, 64, device=device())).square().sum().backward()
    whole = model.weight.grad.full_tensor()
    rounded = zpp.torch.gather_moment(model.weight.grad, model.weight)
    return {"weight": float((rounded - whole).norm() / whole.norm())}
