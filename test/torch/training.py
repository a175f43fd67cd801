# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the ranks run: small models under fully_shard, with and without zpp."""

import hashlib
import os
from collections.abc import Mapping
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import (get_state_dict,
                                                     set_state_dict)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (CPUOffloadPolicy, MixedPrecisionPolicy,
                                    OffloadPolicy, fully_shard)
from torch.utils.checkpoint import checkpoint as checkpointed_call

import zpp.torch

WIDTH, CLASSES, BATCH = 32, 24, 16
#: Every hop and both formats.
ZEROPP = {"mesh": "node:2,gpu:2", "weights": "i8", "gradients": "i8:i4"}
MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                             reduce_dtype=torch.float32)


def device() -> torch.device:
    """Of this rank."""
    return (torch.device("cuda", torch.cuda.current_device())
            if "ZPP_TEST_GPUS" in os.environ else torch.device("cpu"))


def all_ranks() -> DeviceMesh:
    return init_device_mesh(device().type, (dist.get_world_size(),))


class Block(nn.Module):
    def __init__(self, checkpointed=False):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        # 4 ranks do not divide this.
        self.up = nn.Linear(WIDTH, 3 * WIDTH + 5)
        self.down = nn.Linear(3 * WIDTH + 5, WIDTH, bias=False)
        self.scale = nn.Parameter(torch.ones(1))
        self.checkpointed = checkpointed

    def _compute(self, x):
        return x + self.scale * self.down(
            nn.functional.gelu(self.up(self.norm(x))))

    def forward(self, x):
        if self.checkpointed:
            return checkpointed_call(self._compute, x, use_reentrant=False)
        return self._compute(x)


def make_model(options: Mapping[str, Any] | None, *, policy=MIXED, mesh=None,
               reshard=True, checkpointed=False, frozen=False, adapters=False,
               compiled=False, offloaded=False) -> nn.Module:
    """Two blocks and a last layer, each under fully_shard; `options` are those
    of compress, None for FSDP2 as it is.

    Args:
      frozen: the first block is not trained.
      adapters: of each block only one matrix is (PEFT).
    """
    torch.manual_seed(0)
    model = nn.Sequential(Block(checkpointed), Block(checkpointed),
                          nn.Linear(WIDTH, CLASSES))
    if not offloaded:
        model.to(device())
    if frozen:
        model[0].requires_grad_(False)
    if adapters:
        for block in model[:2]:
            block.requires_grad_(False)
            block.down.requires_grad_(True)
    offload = OffloadPolicy()
    if offloaded:
        offload = CPUOffloadPolicy(pin_memory=device().type == "cuda")
    mesh = mesh or all_ranks()
    for block in model[:2]:
        if compiled:
            block.compile(backend="eager")
        fully_shard(block, mesh=mesh, mp_policy=policy,
                    reshard_after_forward=reshard, offload_policy=offload)
    fully_shard(model, mesh=mesh, mp_policy=policy, offload_policy=offload)
    if options is not None:
        zpp.torch.compress(model, **options)
    return model


def make_batch(seed: int = 0):
    """Another one on each rank."""
    generator = torch.Generator().manual_seed(100 * seed + dist.get_rank())
    return (torch.randn(BATCH, WIDTH, generator=generator).to(device()),
            torch.randint(CLASSES, (BATCH,), generator=generator).to(device()))


def loss_of(model, batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs).float(), labels)


def train(options, steps=6, clip=None, report=False, **model_options):
    """The mean losses over the ranks, and a digest of all weights as this rank
    gathers them; with the report if asked."""
    model = make_model(options, **model_options)
    optimizer = torch.optim.Adam(
        [p for p in model.parameters() if p.requires_grad], 3e-3)
    losses = []
    for _ in range(steps):
        loss = loss_of(model, make_batch())
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    result = {"losses": losses, "digest": gathered_digest(model)}
    if report:
        result["report"] = zpp.torch.report(model)
    return result


def gathered_digest(model) -> str:
    """Of the weights that the next forward pass of this rank would use."""
    content = hashlib.sha256()
    for module in model.modules():
        if hasattr(module, "unshard"):
            module.unshard()
    for parameter in model.parameters():
        content.update(parameter.detach().float().cpu().numpy().tobytes())
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()
    return content.hexdigest()


def gradients(options, *, scale=1.0, micro_batches=1, sync_each=False,
              reduce_each=True, factor=None, **model_options
              ) -> dict[str, torch.Tensor]:
    """Whole gradients of one step, by the names of their parameters.

    Args:
      sync_each: reduce gradients after each micro-batch, not only the last.
      reduce_each: of HSDP, with sync_each: between replicas too.
    """
    model = make_model(options, **model_options)
    if factor is not None:
        for module in model.modules():
            if hasattr(module, "set_gradient_divide_factor"):
                module.set_gradient_divide_factor(factor)
            elif hasattr(module, "set_reduce_scatter_divide_factor"):
                module.set_reduce_scatter_divide_factor(factor)
    for i in range(micro_batches):
        is_last = i == micro_batches - 1
        model.set_requires_gradient_sync(sync_each or is_last)
        model.set_requires_all_reduce(reduce_each or is_last)
        (loss_of(model, make_batch(i)) * scale).backward()
    return {name: parameter.grad.full_tensor().cpu()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None}


def replicated_mesh(ranks) -> DeviceMesh:
    """Two groups that shard, each with the ranks of a row."""
    return DeviceMesh(device().type, ranks, mesh_dim_names=("replicate", "shard"))


def hybrid_gradients(options, ranks=((0, 1), (2, 3)), **more):
    """Of HSDP: sharded within the rows, replicated between them."""
    return gradients(options, mesh=replicated_mesh(ranks), **more)


def hybrid_train(options, ranks=((0, 1), (2, 3)), **more):
    return train(options, mesh=replicated_mesh(ranks), **more)


def states() -> tuple[dict, dict]:
    """The state dicts with and without zpp, after a step each."""
    result = []
    for options in (None, {**ZEROPP, "weights": "none", "gradients": "none"}):
        model = make_model(options)
        loss_of(model, make_batch()).backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
        result.append({name: value.full_tensor().cpu()
                       for name, value in model.state_dict().items()})
    return tuple(result)


def loads_states() -> bool:
    """Whether a state dict of FSDP2 fits a compressed model, and back."""
    plain, compressed = make_model(None), make_model(ZEROPP)
    loss_of(compressed, make_batch()).backward()
    torch.optim.SGD(compressed.parameters(), 0.1).step()
    plain.load_state_dict(compressed.state_dict())
    compressed.load_state_dict(plain.state_dict())
    return all(
        torch.equal(a.full_tensor(), b.full_tensor()) for a, b in
        zip(plain.state_dict().values(), compressed.state_dict().values()))


def resumes_from_checkpoint(folder: str, saved: Mapping | None,
                            loaded: Mapping | None) -> bool:
    """Whether a DCP checkpoint of a model with some options, after a step, is
    what a model with others loads, and its optimizer goes on from there."""
    def train_one(options):
        model = make_model(options)
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        loss_of(model, make_batch()).backward()
        optimizer.step()
        optimizer.zero_grad()
        return model, optimizer

    def state_of(model, optimizer):
        return dict(zip(("model", "optimizer"),
                        get_state_dict(model, optimizer)))

    checkpoint.save(state_of(*train_one(saved)), checkpoint_id=folder)
    model, optimizer = train_one(loaded)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    state = state_of(model, optimizer)
    checkpoint.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"],
                   optim_state_dict=state["optimizer"])
    other, _ = train_one(saved)
    is_equal = all(
        torch.equal(a.full_tensor(), b.full_tensor())
        for a, b in zip(model.parameters(), other.parameters()))
    loss_of(model, make_batch()).backward()
    optimizer.step()
    return is_equal


def lose_last(options: Mapping[str, Any] | None) -> str:
    """The error of a training in which the last rank is lost."""
    model = make_model(options)
    loss_of(model, make_batch()).backward()
    if dist.get_rank() == dist.get_world_size() - 1:
        os._exit(1)
    try:
        for _ in range(3):
            loss_of(model, make_batch()).backward()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def overridden() -> dict:
    """A report where one block has options of its own."""
    model = make_model(ZEROPP)
    zpp.torch.compress(model[0], mesh=ZEROPP["mesh"], weights="none",
                       gradients="i8")
    loss_of(model, make_batch()).backward()
    return zpp.torch.report(model)


def error_of(options, **model_options) -> str:
    """What compress, or the step after it, raises."""
    try:
        model = make_model(options, **model_options)
        loss_of(model, make_batch()).backward()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def error_of_hybrid(ranks) -> str:
    return error_of(ZEROPP, mesh=replicated_mesh(ranks))


def error_of_exchange() -> str:
    """An exchange that fails on all ranks."""
    def fail(*args, **kwargs):
        raise dist.DistBackendError("connection closed by peer")

    with mock.patch.object(dist, "all_to_all_single", fail):
        return error_of({**ZEROPP, "mesh": "node:4"})


def error_of_fsdp1() -> str:
    from torch.distributed.fsdp import FullyShardedDataParallel
    model = nn.Sequential(FullyShardedDataParallel(
        nn.Linear(4, 4), device_id=device()))
    try:
        zpp.torch.compress(model, mesh="gpu:4")
    except TypeError as error:
        return str(error)
    return "none"


def error_of_f64() -> dict:
    """A report of a model in a type that the compiler does not know."""
    torch.manual_seed(0)
    model = nn.Linear(8, 8, dtype=torch.float64, device=device())
    fully_shard(model, mesh=all_ranks())
    zpp.torch.compress(model, **ZEROPP)
    model(torch.ones(2, 8, dtype=torch.float64, device=device())
          ).sum().backward()
    return zpp.torch.report(model)


def report_on_device_mesh() -> dict:
    """Of a model whose mesh for compress is a DeviceMesh."""
    tiers = init_device_mesh(device().type, (2, 2), mesh_dim_names=("node", "gpu"))
    model = make_model({**ZEROPP, "mesh": tiers}, mesh=tiers._flatten("all"))
    # Its process groups are enough.
    with mock.patch.object(dist, "new_group", None):
        loss_of(model, make_batch()).backward()
    return zpp.torch.report(model)


def errors_of_device_meshes() -> tuple[str, str]:
    """One without names, and one that is not in the order of the ranks."""
    return tuple(error_of({**ZEROPP, "mesh": mesh}) for mesh in (
        init_device_mesh(device().type, (2, 2)),
        DeviceMesh(device().type, [[0, 2], [1, 3]],
                   mesh_dim_names=("node", "gpu"))))
