# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that the ranks run: every way to shard a model, with micro-batches."""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)
from torch.utils._python_dispatch import return_and_correct_aliasing

import zpp.torch
from adapted import Adapted
from hops import hops_ahead

from training import (CLASSES, MIXED, WIDTH, Block, all_ranks, compress, device,
                      gathered_digest, loss_of, make_batch, mesh_of,
                      replicated_mesh)


class Float8Weight(torch.Tensor):
    """A weight that is gathered as float8 with a scale, as torchao does it."""

    @staticmethod
    def __new__(cls, tensor):
        return torch.Tensor._make_wrapper_subclass(
            cls, tensor.size(), strides=tensor.stride(), dtype=tensor.dtype,
            device=tensor.device, requires_grad=tensor.requires_grad,
            storage_offset=tensor.storage_offset())

    def __init__(self, tensor):
        self._tensor = tensor

    def __tensor_flatten__(self):
        return ["_tensor"], None

    @staticmethod
    def __tensor_unflatten__(parts, *_):
        return Float8Weight(parts["_tensor"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        def unwrap(value):
            return value._tensor if isinstance(value, cls) else value

        result = function(*torch.utils._pytree.tree_map(unwrap, args),
                          **torch.utils._pytree.tree_map(unwrap, kwargs or {}))
        if function not in cls.KEPT:
            return result
        result = torch.utils._pytree.tree_map(
            lambda value: cls(value) if isinstance(value, torch.Tensor) else value,
            result)
        return return_and_correct_aliasing(function, args, kwargs or {}, result)

    #: Functions whose results are weights, too.
    KEPT = frozenset((
        torch.ops.aten.empty_like.default, torch.ops.aten.new_zeros.default,
        torch.ops.aten.slice.Tensor, torch.ops.aten.copy_.default,
        torch.ops.aten.view.default, torch.ops.aten.as_strided.default,
        torch.ops.aten._to_copy.default, torch.ops.aten._pin_memory.default,
        torch.ops.aten.split.Tensor, torch.ops.aten.clone.default,
        torch.ops.aten.detach.default))

    def fsdp_pre_all_gather(self, mesh):
        scale = self._tensor.abs().max().clamp(min=1e-6) / 448
        torch.distributed.all_reduce(scale, torch.distributed.ReduceOp.MAX,
                                     group=mesh.get_group())
        return ((self._tensor / scale).to(torch.float8_e4m3fn),), (scale,)

    def fsdp_post_all_gather(self, outputs, metadata, param_dtype, *, out=None):
        (content,), (scale,) = outputs, metadata
        value = content.to(param_dtype) * scale.to(param_dtype)
        if out is None:
            return value, (content,)
        with (torch.no_grad(),
              torch.autograd._unsafe_preserve_version_counter(out)):
            out.copy_(value)
        return None


#: The ways to shard a model.
SETUPS = ("FSDP", "HSDP", "HSDP across", "TP", "adapters", "float8", "compiled")
_ROWS = {"HSDP": ((0, 1), (2, 3)), "HSDP across": ((0, 2), (1, 3))}


def make(setup: str, options) -> nn.Module:
    torch.manual_seed(0)
    block = Adapted if setup == "adapters" else lambda: Block(hidden=3 * WIDTH)
    model = nn.Sequential(block(), block(), nn.Linear(WIDTH, CLASSES)).to(device())
    mesh = (replicated_mesh(_ROWS[setup]) if setup in _ROWS else all_ranks())
    if setup == "TP":
        devices = mesh_of("dp", "tp")
        mesh = devices["dp"]
    for each in model[:2]:
        if setup == "TP":
            parallelize_module(each, devices["tp"], {
                "up": ColwiseParallel(), "down": RowwiseParallel()})
        if setup == "float8":
            for linear in (each.up, each.down):
                linear.weight = nn.Parameter(Float8Weight(linear.weight.detach()))
        if setup == "compiled":
            each.compile(backend="eager")
        policy = {} if setup == "adapters" else {"mp_policy": MIXED}
        fully_shard(each, mesh=mesh, **policy)
    fully_shard(model, mesh=mesh, **policy)
    if options is not None:
        compress(model, **options)
    return model


def train(setup: str, options, micro_batches=2, updates=5) -> dict:
    """Losses of each micro-batch, a digest of the weights, the report, and how many
    hops began ahead of their gathers."""
    model = make(setup, options)
    optimizer = torch.optim.Adam(
        [p for p in model.parameters() if p.requires_grad], 1e-2)
    # Ranks that share a batch have equal losses.
    rank = torch.distributed.get_rank()
    rank = rank // 2 if setup == "TP" else rank
    losses = []
    with hops_ahead() as began:
        for _ in range(updates):
            for i in range(micro_batches):
                model.set_requires_gradient_sync(i == micro_batches - 1)
                loss = loss_of(model, make_batch(i, rank)) / micro_batches
                loss.backward()
                losses.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
    result: dict = {"losses": losses}
    if setup not in ("TP", "float8"):
        result["digest"] = gathered_digest(model)
    if options is not None:
        result |= {"report": zpp.torch.report(model), "ahead": len(began)}
    return result
