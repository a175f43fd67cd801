# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose parameters have very different sizes, or are no numbers, for the ranks of
test_values.py."""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import zpp.torch
from training import CLASSES, all_ranks, compress, device, loss_of, make_batch
from zpp.torch._compress import communications_of

WIDTH = 32


class ScaledBlock(nn.Module):
    """A residual block with a layer scale (CaiT, ConvNeXt)."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH + 3)
        self.down = nn.Linear(4 * WIDTH + 3, WIDTH)
        # Of one dim, but for the others that the model has.
        self.gamma = nn.Parameter(torch.full((1, WIDTH), 1e-5))

    def forward(self, x):
        return x + self.gamma * self.down(
            nn.functional.gelu(self.up(self.norm(x))))


def make_scaled(options: Mapping[str, Any] | None, policy: MixedPrecisionPolicy, mesh=None):
    torch.manual_seed(0)
    model = nn.Sequential(ScaledBlock(), ScaledBlock(), nn.Linear(WIDTH, CLASSES))
    model.to(device())
    for block in model[:2]:
        fully_shard(block, mesh=mesh or all_ranks(), mp_policy=policy)
    fully_shard(model, mesh=mesh or all_ranks(), mp_policy=policy)
    if options is not None:
        compress(model, **options)
    return model


def train_scaled(options, reduce_dtype=torch.float32, mesh=None, steps=4) -> dict:
    """Losses, the gradients of the first step and all weights at the end, by their
    names."""
    model = make_scaled(options, MixedPrecisionPolicy(
        param_dtype=torch.float32, reduce_dtype=reduce_dtype), mesh and mesh())
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    losses: list[float] = []
    gradients: dict[str, torch.Tensor] = {}
    for step in range(steps):
        loss = loss_of(model, make_batch(step))
        loss.backward()
        gradients = gradients or {name: each.grad.full_tensor().cpu()
                                  for name, each in model.named_parameters()}
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"losses": losses, "gradients": gradients, "weights": {
        name: each.detach().full_tensor().cpu()
        for name, each in model.named_parameters()}}


def gathered(options) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The weights of a block as its forward pass reads them, and what they are."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    model = make_scaled(options, policy)
    for _ in range(2):
        loss_of(model, make_batch()).backward()
    model[0].unshard()
    found = [each.detach().clone() for each in model[0].parameters()]
    model[0].reshard()
    return [(value, each.detach().full_tensor().bfloat16()) for value, each in zip(
        found, model[0].parameters(), strict=True)]


class Base(nn.Module):
    """Codes of int8 that are stored as bfloat16."""

    def __init__(self):
        super().__init__()
        codes = torch.randint(-127, 128, (64, WIDTH), dtype=torch.int8)
        self.bits = nn.Parameter(codes.view(torch.bfloat16), requires_grad=False)

    def forward(self, x):
        codes = self.bits.contiguous().view(torch.int8)
        return x @ (codes.to(x.dtype) / 127).T


class Packed(nn.Module):
    """A base that is quantized, with an adapter (QLoRA)."""

    def __init__(self):
        super().__init__()
        self.base = Base()
        self.bias = nn.Parameter(torch.zeros(64))
        self.a = nn.Parameter(0.1 * torch.randn(16, WIDTH))
        self.b = nn.Parameter(0.1 * torch.randn(64, 16))

    def forward(self, x):
        return torch.tanh(self.base(x) + self.bias + x @ self.a.T @ self.b.T)


def train_packed(options, steps=4, is_apart=False) -> dict:
    """Losses, the base at the end as it is gathered, warnings, and the bytes between
    nodes of each step that the base takes.

    Args:
      is_apart: it is a module of fully_shard of its own.
    """
    torch.manual_seed(0)
    model = nn.Sequential(Packed(), nn.Linear(64, CLASSES)).to(device())
    for module in (model[0].base, model[0], model)[not is_apart:]:
        fully_shard(module, mesh=all_ranks())
    losses, sent = [], []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if options is not None:
            compress(model, **options)
        optimizer = torch.optim.SGD(
            [each for each in model.parameters() if each.requires_grad], 0.1)
        for step in range(steps):
            before = _sent(model) if options else 0
            loss = loss_of(model, make_batch(step))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            sent.append(_sent(model) - before if options else 0)
    model[0].base.unshard() if is_apart else model[0].unshard()
    base = model[0].base.bits.detach().view(torch.int16).cpu().clone()
    return {"losses": losses, "base": base, "sent": sent,
            "warnings": _texts(caught)}


def _sent(model) -> int:
    return sum(entry["after"].get("node", 0) * entry["calls"]
               for entry in zpp.torch.report(model)["collectives"]
               if entry["kind"] == "all_gather" and entry["module"].endswith("base"))


def _texts(caught: Iterable[warnings.WarningMessage]) -> list[str]:
    return [str(each.message) for each in caught if each.category is UserWarning]


class Spiked(nn.Module):
    """Blocks of the last matrix have one weight of 1 and others of 0.07, which i4 makes
    zeros of."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, 128)
        self.spiked = nn.Parameter(torch.full((CLASSES, 128), 0.07))
        with torch.no_grad():
            self.spiked[:, 0] = 1

    def forward(self, x):
        return self.first(x) @ self.spiked.T


def guarded(options, steps: int, frozen=False, policy=MixedPrecisionPolicy(), scale=1
            ) -> dict:
    """Warnings of a training, the formats at its end as the report has them, and
    metrics. Steps with gradients that are not finite are left out.

    Args:
      scale: that of the loss.
    """
    torch.manual_seed(0)
    model = Spiked().to(device())
    model.spiked.requires_grad_(not frozen)
    fully_shard(model, mesh=all_ranks(), mp_policy=policy)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compress(model, **options)
        for step in range(steps):
            (scale * loss_of(model, make_batch(step))).backward()
            norm = nn.utils.get_total_norm(
                each.grad for each in model.parameters() if each.grad is not None)
            if norm.full_tensor().isfinite():
                optimizer.step()
            optimizer.zero_grad()
    return {"warnings": _texts(caught), "metrics": zpp.torch.metrics(model),
            "report": zpp.torch.report(model)["collectives"]}


def names_of_exact(options) -> dict[str, torch.Tensor]:
    """How far the weights of a forward pass are from what they are, by name."""
    model = make_scaled(options, MixedPrecisionPolicy())
    loss_of(model, make_batch()).backward()
    found = {}
    for module in model.modules():
        if hasattr(module, "unshard"):
            module.unshard()
    found = {name: each.detach().clone() for name, each in model.named_parameters()}
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()
    return {name: float((found[name] - each.detach().full_tensor()).abs().max())
            for name, each in model.named_parameters()}


def calls_of_step(options, has_vectors: bool, mesh=None, steps=4) -> tuple[Counter, dict]:
    """How often a step of a training calls PyTorch's collectives, and waits for a number
    of a tensor; and the bytes between nodes by kind."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(
        nn.LayerNorm(WIDTH, elementwise_affine=has_vectors),
        nn.Linear(WIDTH, 128, bias=has_vectors), nn.GELU(),
        nn.Linear(128, WIDTH, bias=has_vectors)) for _ in range(2))).to(device())
    mesh = mesh() if mesh else all_ranks()
    for module in (*model, model):
        fully_shard(module, mesh=mesh)
    compress(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step():
        model(make_batch()[0]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    # The guard has measured, and read what it has.
    for _ in range(steps):
        step()
    before = zpp.torch.report(model)["collectives"]
    with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    sent: Counter = Counter()
    for sign, entries in ((-1, before), (1, zpp.torch.report(model)["collectives"])):
        for entry in entries:
            sent[entry["kind"]] += sign * entry["calls"] * entry["after"].get("node", 0)
    return Counter(event.name for event in profile.events()
                   if event.name.startswith("c10d::")
                   or event.name == "aten::_local_scalar_dense"), sent


def bytes_of_block(options, width: int) -> tuple[float, float]:
    """Volumes of a block of a GPT between nodes, for a gather of weights and a scatter of
    gradients, by the bytes of its weights: as they are and with zpp."""
    with torch.device("meta"):
        block = nn.TransformerEncoderLayer(width, 8, 4 * width)
    fully_shard(block, mesh=all_ranks(), mp_policy=MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16))
    compress(block, **options)
    ((_, _, communication),) = communications_of(block)
    plans = [maker() for maker in communication.makers()]
    assert {plan.kind for plan in plans} == {"all_gather", "reduce_scatter"}
    # A rank sends its slice, a quarter, to the other one of two nodes.
    weights = sum(each.numel() for each in block.parameters()) * 2 / 4
    return (sum(plan.before["node"] for plan in plans) / weights,
            sum(plan.after["node"] for plan in plans) / weights)


class Flat(nn.Module):
    """A matrix that is kept in a flat parameter, beside another one."""

    def __init__(self):
        super().__init__()
        self.flat = nn.Parameter(torch.randn(WIDTH * WIDTH) / WIDTH**0.5)
        self.last = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.last(x @ self.flat.view(WIDTH, WIDTH))


def compress_flat(options, *, frozen: bool = False) -> tuple[list[str], bool]:
    """Warnings, and whether the flat parameter is gathered as it is."""
    torch.manual_seed(0)
    model = Flat().to(device())
    model.flat.requires_grad_(not frozen)
    fully_shard(model, mesh=all_ranks())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compress(model, **options)
    expected = model.flat.full_tensor()
    model.unshard()
    return [str(each.message) for each in caught], torch.equal(model.flat, expected)
