# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that the ranks run: small models under fully_shard, with and without zpp."""

import datetime
import functools
import hashlib
import os
import time
import warnings
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
from torch.distributed.fsdp._fully_shard import _fsdp_collectives
from torch.distributed.fsdp import (CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy,
                                    OffloadPolicy, fully_shard,
                                    register_fsdp_forward_method)
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)
from torch.utils.checkpoint import checkpoint as checkpointed_call

import zpp.torch
from zpp.torch import (_agreement, _compress, _fsdp, _groups, _plans, _pytorch,
                       _reductions, _runtime)
from zpp.torch._communication import Collective

WIDTH, CLASSES, BATCH = 32, 24, 16
#: Every hop and both formats.
ZEROPP = {"mesh": "node:2,gpu:2", "weights": "i8", "gradients": "i8:i4"}
MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                             reduce_dtype=torch.float32)


def compress(model: nn.Module, *args, **options) -> nn.Module:
    """`zpp.torch.compress`, which by default does not measure links: on those within a
    host nothing would be left to test."""
    return zpp.torch.compress(model, *args, **{"links": "none", **options})


def device() -> torch.device:
    """Returns the device of this rank."""
    return (torch.device("cuda", torch.cuda.current_device())
            if "ZPP_TEST_GPUS" in os.environ else torch.device("cpu"))


def all_ranks() -> DeviceMesh:
    return init_device_mesh(device().type, (dist.get_world_size(),))


class Block(nn.Module):
    #: 4 ranks do not divide this.
    HIDDEN = 3 * WIDTH + 5

    def __init__(self, checkpointed=False, hidden=HIDDEN):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, hidden)
        self.down = nn.Linear(hidden, WIDTH, bias=False)
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
               rows=None, reshard=True, checkpointed=False, frozen=False,
               adapters=False, compiled=False, offloaded=False) -> nn.Module:
    """Two blocks and a last layer, each under fully_shard; `options` are those
    of compress, None for FSDP2 as it is.

    Args:
      rows: HSDP; the ranks of each row shard the weights.
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
    mesh = mesh or (all_ranks() if rows is None else replicated_mesh(rows))
    for block in model[:2]:
        if compiled:
            block.compile(backend="eager")
        fully_shard(block, mesh=mesh, mp_policy=policy,
                    reshard_after_forward=reshard, offload_policy=offload)
    fully_shard(model, mesh=mesh, mp_policy=policy, offload_policy=offload)
    if options is not None:
        compress(model, **options)
    return model


def make_batch(seed: int = 0, rank: int | None = None):
    """Another one on each rank."""
    generator = torch.Generator().manual_seed(
        100 * seed + (dist.get_rank() if rank is None else rank))
    return (torch.randn(BATCH, WIDTH, generator=generator).to(device()),
            torch.randint(CLASSES, (BATCH,), generator=generator).to(device()))


def loss_of(model, batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs).float(), labels)


OFF = {"weights": "none", "gradients": "none"}


def train(options, steps=6, clip=None, report=False, switched_off=False,
          **model_options):
    """The mean losses over the ranks, and a digest of all weights as this rank
    gathers them; with the report if asked.

    Args:
      switched_off: compress, and no longer after the first gradients, which are
        dropped.
    """
    model = make_model(options, **model_options)
    if switched_off:
        loss_of(model, make_batch()).backward()
        model.zero_grad()
        compress(model, **{**options, **OFF})
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
    result: dict = {"losses": losses, "digest": gathered_digest(model)}
    if report:
        result["report"] = zpp.torch.report(model)
    return result


def train_on_links(options, links: str, **more) -> dict:
    """As `train`, where `links` are what a measurement would find."""
    with mock.patch.object(_compress, "find_links", lambda *_: links):
        return train({**options, "links": "measured"}, report=True, **more)


def gathered_digest(model) -> str:
    """Digests the weights that the next forward pass of this rank would use."""
    content = hashlib.sha256()
    for module in model.modules():
        if hasattr(module, "unshard"):
            module.unshard()
    for parameter in model.parameters():
        # FSDP2 frees what it gathered, which NumPy must not refer to.
        content.update(
            parameter.detach().float().cpu().clone().numpy().tobytes())
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()
    return content.hexdigest()


class Alternating(nn.Module):
    """Uses one of two blocks, in turn."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.last = nn.Linear(WIDTH, CLASSES)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.last(self.blocks[self.calls % 2](x))


def alternating_gradients(options, shards_blocks: bool) -> dict:
    """Gradients of three micro-batches, the last of which uses one block only, and one
    that the first does not use; of one group, or one for each block. Those that have
    none are None."""
    torch.manual_seed(0)
    model = Alternating().to(device())
    # Nobody uses it.
    model.other = nn.Linear(WIDTH, 1, bias=False, device=device())
    for block in model.blocks if shards_blocks else ():
        fully_shard(block, mesh=all_ranks(), mp_policy=MIXED)
    fully_shard(model, mesh=all_ranks(), mp_policy=MIXED)
    if options is not None:
        compress(model, **options)
    for i in range(3):
        model.set_requires_gradient_sync(i == 2)
        loss_of(model, make_batch(i)).backward()
    return {name: None if parameter.grad is None else
            parameter.grad.full_tensor().cpu()
            for name, parameter in model.named_parameters()}


def gradients_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """The whole gradients of all parameters, each of which has one."""
    return {name: parameter.grad.full_tensor().cpu()
            for name, parameter in model.named_parameters()}


def entries_of_changing_parameters() -> list[dict]:
    """Returns those of reductions of a module that may know one set of parameters and has
    two."""
    torch.manual_seed(0)
    model = Alternating().to(device())
    fully_shard(model, mesh=all_ranks(), mp_policy=MIXED)
    compress(model, **ZEROPP)
    with mock.patch.object(_reductions, "_MOST_SETS", 1):
        for _ in range(3):
            loss_of(model, make_batch()).backward()
    return [entry for entry in zpp.torch.report(model)["collectives"]
            if entry["kind"] == "reduce_scatter"]


def error_of_other_modules() -> str:
    """The error of a micro-batch in which one rank uses a block that the others do not,
    which needs no exchange of FSDP2 alone."""
    torch.manual_seed(0)
    model = Alternating().to(device())
    for block in model.blocks:
        fully_shard(block, mesh=all_ranks(), mp_policy=MIXED, reshard_after_forward=False)
    fully_shard(model, mesh=all_ranks(), mp_policy=MIXED)
    compress(model, **{**ZEROPP, "accumulate": "gpu"})
    inputs, _ = make_batch()
    hidden = model.blocks[0](inputs)
    both = model.blocks[1](hidden)
    model.set_requires_gradient_sync(False)
    try:
        (both if dist.get_rank() == 0 else hidden).sum().backward()
    except RuntimeError as error:
        return str(error)
    return "none"


def gradients_where_ranks_differ(options) -> dict[str, torch.Tensor] | None:
    """Gradients of two micro-batches in which each rank uses the same one of two blocks.
    None if PyTorch does not reduce what only some ranks use."""
    torch.manual_seed(0)
    model = Alternating().to(device())
    fully_shard(model, mesh=all_ranks(), mp_policy=MIXED)
    if not hasattr(model, "set_reduce_scatter_unused_params"):
        return None
    model.set_reduce_scatter_unused_params(True)
    if options is not None:
        compress(model, **options)
    for i in range(2):
        model.calls = dist.get_rank()
        model.set_requires_gradient_sync(i == 1)
        loss_of(model, make_batch(i)).backward()
    return gradients_of(model)


def updates(options, how: str, micro_batches: int, **model_options) -> dict:
    """Losses of two updates, the bytes of gradients between nodes in the latter, and
    the bytes that wait before its last micro-batch.

    Args:
      how: the way to say which micro-batch is the last: "sync", "last", "count", or
        "none" for reductions in each.
    """
    if how == "count":
        options = {**options, "micro_batches": micro_batches}
    model = make_model(options, **model_options)
    optimizer = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad], 0.5)
    losses, sent, waiting = [], [0], 0
    for _ in range(2):
        for i in range(micro_batches):
            is_last = i == micro_batches - 1
            if how == "sync":
                model.set_requires_gradient_sync(is_last)
            if how == "last":
                model.set_is_last_backward(is_last)
            if is_last and options is not None:
                waiting = zpp.torch.report(model)["total"]["state_bytes"]
            loss = loss_of(model, make_batch(i)) / micro_batches
            loss.backward()
            losses.append(loss.item())
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        losses.append(float(norm.full_tensor()))
        optimizer.step()
        optimizer.zero_grad()
        if options is not None:
            report = zpp.torch.report(model)
            assert report["total"]["state_bytes"] == 0
            sent.append(sum(
                entry["after"]["node"] * entry["calls"]
                for entry in report["collectives"]
                if entry["kind"] != "all_gather" and "node" in entry["after"]))
    return {"losses": losses, "sent": sent[-1] - sent[-2] if len(sent) > 1 else 0,
            "waiting": waiting, "digest": gathered_digest(model)}


def errors_of_accumulation() -> list[str]:
    """A call of compress and a step of an optimizer while gradients wait."""
    model = make_model({**ZEROPP, "accumulate": "gpu"})
    model.set_requires_gradient_sync(False)
    loss_of(model, make_batch()).backward()
    optimizers = [torch.optim.SGD(part.parameters(), 0.1) for part in (
        nn.Linear(2, 2), model)]
    found = []
    for act in (lambda: compress(model, **ZEROPP), optimizers[0].step,
                optimizers[1].step):
        try:
            act()
            found.append("none")
        except RuntimeError as error:
            found.append(str(error))
    model.set_requires_gradient_sync(True)
    loss_of(model, make_batch()).backward()
    optimizers[1].step()
    return found


def error_of_other_parameters(rows) -> str:
    """The error of an update whose micro-batches train different parameters of one size."""
    model = make_model({**ZEROPP, "accumulate": "gpu"}, rows=rows)
    gain, bias = model[0].norm.parameters()
    try:
        for trained in gain, bias:
            model[0].requires_grad_(False)
            trained.requires_grad_(True)
            model.set_is_last_backward(trained is bias)
            loss_of(model, make_batch()).backward()
    except RuntimeError as error:
        return str(error)
    return "none"


def gradients_of_finalized(options) -> dict[str, torch.Tensor] | None:
    """Gradients of an update no backward pass of which is the last, before it is finalized.
    None if PyTorch has no such way."""
    model = make_model(options)
    if not hasattr(model, "set_manual_backward_finalization"):
        return None
    model.set_manual_backward_finalization(True)
    model.set_requires_gradient_sync(False)
    for i in range(2):
        loss_of(model, make_batch(i)).backward()
    model.set_requires_gradient_sync(True)
    model.finalize_backward()
    return gradients_of(model)


def gradients_after_one_given_up(options, how: str) -> list[torch.Tensor] | None:
    """Gradients of a weight after an update whose first micro-batch was dropped, and of
    one that had only the last; after one whose first was left without a last, and of
    both with FSDP2. None if PyTorch has no such way to drop it.

    Args:
      how: "forget", or "reset" as after an exception.
    """
    def gradient(options, drops=False, first=True):
        model = make_model(options)
        for i in range(2) if first else (1,):
            model.set_requires_gradient_sync(i == 1)
            loss_of(model, make_batch(i)).backward()
            if i == 0:
                model.zero_grad()
            if i == 0 and drops:
                zpp.torch.forget(model) if how == "forget" else model.reset_iter_state()
        return model[0].up.weight.grad.full_tensor()

    if how == "reset" and not hasattr(FSDPModule, "reset_iter_state"):
        return None
    return [gradient(options, drops=True), gradient(None, first=False),
            gradient(options), gradient(None)]


def hooks_see_gradients_of_each() -> tuple[list[str], int]:
    """Warnings, and calls of a hook of the user's that sees reduced gradients."""
    model = make_model({**ZEROPP, "accumulate": "gpu"})
    calls = []
    weight = model[0].up.weight
    weight.register_post_accumulate_grad_hook(
        lambda parameter: calls.append(bool(parameter.grad.to_local().any())))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for is_last in (False, True):
            model.set_is_last_backward(is_last)
            loss_of(model, make_batch()).backward()
    return [str(warning.message) for warning in caught
            if warning.category is UserWarning], sum(calls)


def gradients(options, *, scale=1.0, last_scale=1.0, micro_batches=1,
              sync_each=False, reduce_each=True, factor=None, forced_sum=False,
              **model_options) -> dict[str, torch.Tensor]:
    """Whole gradients of one step, by the names of their parameters.

    Args:
      last_scale: on the last rank alone.
      forced_sum: FSDP2 takes no mean, but divides itself.
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
    if forced_sum:
        for module in model.modules():
            if hasattr(module, "set_force_sum_reduction_for_comms"):
                module.set_force_sum_reduction_for_comms(True)
    if dist.get_rank() == dist.get_world_size() - 1:
        scale *= last_scale
    for i in range(micro_batches):
        is_last = i == micro_batches - 1
        model.set_requires_gradient_sync(sync_each or is_last)
        model.set_requires_all_reduce(reduce_each or is_last)
        (loss_of(model, make_batch(i)) * scale).backward()
    return {name: parameter.grad.full_tensor().cpu()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None}


@functools.cache
def mesh_of(*names: str) -> DeviceMesh:
    """All ranks as two by two. Made once: each group has threads of gloo that wake up a
    hundred times a second as long as the process lives."""
    return init_device_mesh(device().type, (2, 2), mesh_dim_names=names)


@functools.cache
def replicated_mesh(ranks: tuple[tuple[int, ...], ...]) -> DeviceMesh:
    """Two groups that shard, each with the ranks of a row. Made once, like `mesh_of`."""
    return DeviceMesh(device().type, ranks, mesh_dim_names=("replicate", "shard"))


def train_like_torchtitan(options, steps=6) -> dict:
    """Losses and the report of a training with tensor parallelism within nodes,
    checkpointed and compiled blocks that are made on the meta device, and a group
    of two modules."""
    mesh = mesh_of("dp", "tp")
    with torch.device("meta"):
        model = nn.Sequential(*(Block(True, 3 * WIDTH) for _ in range(2)),
                              nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))
    for block in model[:2]:
        parallelize_module(block, mesh["tp"], {
            "up": ColwiseParallel(), "down": RowwiseParallel()})
        block.compile(backend="aot_eager")
        fully_shard(block, mesh=mesh["dp"], mp_policy=MIXED)
    fully_shard([model[2], model[3]], mesh=mesh["dp"], mp_policy=MIXED,
                reshard_after_forward=False)
    fully_shard(model, mesh=mesh["dp"], mp_policy=MIXED)
    if options is not None:
        compress(model, **options)
    model.to_empty(device=device())
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-2)
    losses = []
    for _ in range(steps):
        loss = loss_of(model, make_batch(rank=mesh["dp"].get_local_rank()))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"losses": losses,
            "report": zpp.torch.report(model) if options else None}


def train_with_expert_mesh(options) -> dict | None:
    """A report of a module whose parameters have several meshes: one is sharded
    over two ranks only. None where PyTorch has no such modules."""
    from torch.distributed.fsdp._fully_shard import _fsdp_common
    if not hasattr(_fsdp_common, "ShardPlacementResult"):
        return None
    torch.manual_seed(0)
    mesh = mesh_of("node", "gpu")
    infos = [_fsdp_common.FSDPMeshInfo(each, shard_mesh_dim=0)
             for each in (all_ranks(), mesh["gpu"])]
    model = Block().to(device())

    def place(parameter):
        return _fsdp_common.ShardPlacementResult(
            Shard(0), infos[parameter is model.down.weight])

    fully_shard(model, mesh=infos[0].mesh, mp_policy=MIXED,
                shard_placement_fn=place)
    compress(model, **options)
    inputs, _ = make_batch()
    for _ in range(2):
        model(inputs).sum().backward()
    return zpp.torch.report(model)


def measured(**options) -> tuple[list[dict[str, float]], list[int]]:
    """Metrics after each of some steps, which all but the second ask for, and the
    bytes between nodes of each step."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).to(device())
    for block in model:
        fully_shard(block, mesh=all_ranks(), mp_policy=MIXED)
    fully_shard(model, mesh=all_ranks(), mp_policy=MIXED)
    compress(model, **options)
    found, sent = [zpp.torch.metrics(model)], []
    inputs, _ = make_batch()
    for step in range(4):
        before = zpp.torch.report(model)["total"]["after"]["node"]
        model(inputs).square().sum().backward()
        sent.append(zpp.torch.report(model)["total"]["after"]["node"] - before)
        with torch.no_grad():
            model(inputs)
        if step != 1:
            found.append(zpp.torch.metrics(model))
    return found, sent


def measured_where_nobody_calls(is_method: bool) -> tuple[list[str], dict[str, float]]:
    """Warnings, and metrics, of a model that is not called itself: two models in a list,
    or one that trains by another method."""
    torch.manual_seed(0)
    models = [Block().to(device()) for _ in range(1 if is_method else 2)]
    for model in models:
        fully_shard(model, mesh=all_ranks(), mp_policy=MIXED)
        if is_method:
            register_fsdp_forward_method(model, "_compute")
    measured = models[0] if is_method else nn.ModuleList(models)
    compress(measured, **ZEROPP)
    inputs, _ = make_batch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            found = zpp.torch.metrics(measured)
            for model in models:
                (model._compute if is_method else model)(inputs).square().sum().backward()
    return [str(each.message) for each in caught], found


def states() -> tuple[dict, dict]:
    """The state dicts with and without zpp, after a step each."""
    def state(options) -> dict:
        model = make_model(options)
        loss_of(model, make_batch()).backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
        return {name: value.full_tensor().cpu()
                for name, value in model.state_dict().items()}

    return state(None), state({**ZEROPP, **OFF})


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


def _error_of_passes(model: nn.Module) -> str:
    """The error of three backward passes, or "none"."""
    try:
        for _ in range(3):
            loss_of(model, make_batch()).backward()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def stop_last(options: Mapping[str, Any] | None) -> str:
    """The error of a training in which the last rank waits too long."""
    model = make_model(options)
    loss_of(model, make_batch()).backward()
    if dist.get_rank() == dist.get_world_size() - 1:
        time.sleep(9)
    return _error_of_passes(model)


def timeouts_of_hops(options) -> tuple[list[float], list[float]]:
    """In seconds, of the groups of hops: before and after that of all ranks is
    changed."""
    rank = dist.get_rank()
    hops = [(rank % 2, rank % 2 + 2), (rank - rank % 2, rank - rank % 2 + 1)]

    def seconds():
        return sorted({_groups.timeout_of(
            _runtime._known_parts[dist.group.WORLD, ranks], device()
        ).total_seconds() for ranks in hops})

    model = make_model(options)
    loss_of(model, make_batch()).backward()
    before = seconds()
    old = _groups.timeout_of(dist.group.WORLD, device())
    change = getattr(dist, "set_timeout", dist.distributed_c10d._set_pg_timeout)
    change(datetime.timedelta(seconds=77), dist.group.WORLD)
    loss_of(model, make_batch()).backward()
    after = seconds()
    change(old, dist.group.WORLD)
    return before, after


def error_of_disagreement(options: Mapping[str, Any], rank: int) -> str:
    """Returns the error of compress where one rank has other options."""
    return error_of({**ZEROPP, **(options if dist.get_rank() == rank else {})})


def error_of_absence(rank: int) -> str:
    """Returns the error of compress where one rank does not call it."""
    if dist.get_rank() == rank:
        return "none"
    with mock.patch.object(_agreement, "TIME_LIMIT",
                           datetime.timedelta(seconds=2)):
        return error_of(ZEROPP)


def compiles_early(options, **model_options) -> bool:
    """Whether the steps after compress need the compiler."""
    def fail(*args, **kwargs):
        raise AssertionError("compiled late")

    model = make_model(None, **model_options)
    compress(model, **options)
    with mock.patch.object(_plans, "compile_bucket", fail), \
            mock.patch.object(_runtime, "Runner", fail):
        for _ in range(2):
            loss_of(model, make_batch()).backward()
    return any(entry["rewritten"]
               for entry in zpp.torch.report(model)["collectives"])


def own_collectives_after_off(**model_options) -> list[str]:
    """The names of what FSDP2 communicates with."""
    model = make_model(ZEROPP, **model_options)
    loss_of(model, make_batch()).backward()
    compress(model, **{**ZEROPP, **OFF})
    found = []
    for _, module in _fsdp.modules_of(model):
        for parameters in _fsdp.parameter_groups(module):
            found += [type(each).__name__ for each in (
                *_fsdp.own_collectives(parameters),
                getattr(parameters.mesh_info, "replicate_process_group", None))]
    loss_of(model, make_batch()).backward()
    return found


def errors_of_own_collectives() -> list[str]:
    """Those of compress for a module with a gather of its user's: set before it, and
    between two calls, also in the place of zpp's, which it calls, and before zpp is
    turned off."""
    def foreign(gather):
        return Collective(lambda *args, **kwargs: gather(*args, **kwargs))

    errors: list[str] = []
    for options in (None, ZEROPP, ZEROPP):
        model = make_model(options)
        own, _ = _fsdp.own_collectives(*_fsdp.parameter_groups(model[0]))
        model[0].set_custom_all_gather(foreign(own))
        try:
            compress(model, **{**ZEROPP, **(OFF if errors[1:] else {})})
        except ValueError as error:
            errors.append(str(error))
        # It stays, and works.
        loss_of(model, make_batch()).backward()
    return errors


def train_with_own_gathers(options, again: bool = False) -> dict:
    """Losses of HSDP with gathers and scatters of the user's within nodes, their calls,
    and the report.

    Args:
      again: sets them once more, after compress, and calls it again.
    """
    model = make_model(None, rows=((0, 1), (2, 3)))
    calls = []

    def gather(*args, **kwargs):
        calls.append("all_gather")
        return dist.all_gather_into_tensor(*args, **kwargs)

    def scatter(*args, **kwargs):
        calls.append("reduce_scatter")
        return dist.reduce_scatter_tensor(*args, **kwargs)

    for _ in range(2 if again else 1):
        for _, module in _fsdp.modules_of(model):
            module.set_custom_all_gather(Collective(gather))
            module.set_custom_reduce_scatter(Collective(scatter))
        compress(model, **options)
    losses = mean_losses(model, 3)
    return {"losses": losses, "calls": len(calls), "report": zpp.torch.report(model)}


def train_in_other_memory(options, reshard) -> dict:
    """Losses of a training whose gathers are in memory that GPUs share, the sizes of the
    groups in which such a gather is called, and how many buffers it makes."""
    class SymmMemAllGather(_fsdp_collectives.DefaultAllGather):
        def allocate(self, *args, **kwargs):
            buffers.append(args)
            return super().allocate(*args, **kwargs)

        def __call__(self, result, source, group, async_op=False):
            groups.append(group.size())
            return super().__call__(result, source, group, async_op)

    buffers: list[tuple] = []
    groups: list[int] = []
    model = make_model(None, reshard=reshard)
    for _, module in _fsdp.modules_of(model):
        module.set_custom_all_gather(SymmMemAllGather())
    compress(model, **options)
    return {"losses": mean_losses(model, 6), "gathers": groups, "buffers": len(buffers)}


def mean_losses(model, steps: int) -> list[float]:
    """Trains so many steps with Adam. Returns the losses, the means of all ranks."""
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for _ in range(steps):
        loss = loss_of(model, make_batch())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses


def train_with_separate_scatters() -> tuple[list[float], bool] | None:
    """Losses, and whether hops of scatters have groups of their own. None where
    PyTorch does not separate them."""
    model = make_model(None)
    if not hasattr(model, "set_separate_reduce_scatter_group"):
        return None
    model.set_separate_reduce_scatter_group(True)
    compress(model, **ZEROPP)
    losses = mean_losses(model, 6)
    owners = {owner for owner, _ in _runtime._known_parts}
    return losses, len(owners - {dist.group.WORLD}) > 0


def unshards_asynchronously(options, first: bool) -> bool:
    """Whether an asynchronous gather, the first one or the second, has the weights of
    one that is not."""
    model = make_model(options)
    block = model[0]
    weights = []
    for async_op in (first, not first):
        handle = block.unshard(async_op=async_op)
        if async_op:
            (parameters,) = _fsdp.parameter_groups(block)
            work = parameters._all_gather_result.all_gather_work
            assert isinstance(work, dist.Work)
            handle.wait()
            assert work.is_completed()
        weights.append([each.detach().clone() for each in block.parameters()])
        block.reshard()
    return all(map(torch.equal, *weights))


def names_in_profile(**model_options) -> set[str]:
    model = make_model(ZEROPP, **model_options)
    with torch.profiler.profile() as profile:
        loss_of(model, make_batch()).backward()
    return {event.key for event in profile.key_averages()}


def _change_by_optimizer(model):
    loss_of(model, make_batch()).backward()
    torch.optim.SGD(model.parameters(), 0.5).step()
    model.zero_grad()


def _change_by_load(model):
    model.load_state_dict({name: value * 0.5 for name, value in
                           model.state_dict().items()})


def _change_in_place(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)


def _change_data(model):
    for parameter in model.parameters():
        parameter.data.copy_(parameter.data * 0.5)


def _change_local(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.to_local().mul_(0.5)


def _change_rows(model):
    """The same numbers in another order, unseen by PyTorch."""
    for parameter in model.parameters():
        rows = parameter.to_local().detach().numpy(force=True)
        parameter.to_local().data.copy_(torch.from_numpy(rows[::-1].copy()))


def _change_on_some_ranks(model):
    """As an average does that skips empty shards."""
    with torch.no_grad():
        for parameter in model.parameters():
            if dist.get_rank() in (1, 2):
                parameter.to_local().mul_(0.5)


def _change_unseen_on_some_ranks(model):
    if dist.get_rank() == 3:
        _change_data(model)


def _change_data_and_forget(model):
    _change_data(model)
    zpp.torch.forget(model)


#: The ways in which weights change.
CHANGES = {change.__name__: change for change in (
    _change_by_optimizer, _change_by_load, _change_in_place,
    _change_data, _change_data_and_forget, _change_local, _change_rows,
    _change_on_some_ranks, _change_unseen_on_some_ranks)}


def evaluate_around(change: str, options: Mapping[str, Any] | None, *,
                    frozen: bool = False) -> tuple[list[torch.Tensor], list[dict]]:
    """Results of a model: twice, and once more after its weights have
    changed; and the gathers of the report."""
    model = make_model(options)
    if frozen:
        model.requires_grad_(False)
    inputs, _ = make_batch()
    results = []
    with torch.no_grad():
        results += [model(inputs), model(inputs)]
    # The last module keeps its weights after a forward pass.
    model.reshard()
    CHANGES[change](model)
    with torch.no_grad():
        results.append(model(inputs))
    model.reshard()
    entries = [] if options is None else [
        entry for entry in zpp.torch.report(model)["collectives"]
        if entry["kind"] == "all_gather"]
    return [result.float() for result in results], entries


def train_shared_block(options, steps=6) -> dict:
    """Losses, and a digest of the weights, of a model that uses a block twice."""
    model = make_shared_block(options)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    return {"losses": [update(model, optimizer) for _ in range(steps)],
            "digest": gathered_digest(model)}


def gradients_of_shared_block(options) -> dict[str, torch.Tensor]:
    """Gradients of three micro-batches."""
    model = make_shared_block(options)
    for i in range(3):
        model.set_requires_gradient_sync(i == 2)
        loss_of(model, make_batch(i)).backward()
    return gradients_of(model)


def make_shared_block(options) -> nn.Module:
    torch.manual_seed(0)
    block = Block().to(device())
    model = nn.Sequential(block, block, nn.Linear(WIDTH, CLASSES).to(device()))
    fully_shard(block, mesh=all_ranks(), mp_policy=MIXED)
    fully_shard(model, mesh=all_ranks(), mp_policy=MIXED)
    if options is not None:
        compress(model, **options)
    return model


def update(model, optimizer) -> float:
    """Takes a step; returns the mean loss over the ranks."""
    loss = loss_of(model, make_batch())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def train_and_evaluate(options, evaluations: int) -> list[float]:
    """Losses of a training that is evaluated before each step."""
    model = make_model(options)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for _ in range(6):
        with torch.no_grad():
            for _ in range(evaluations):
                model(make_batch(7)[0])
        losses.append(update(model, optimizer))
    return losses


def resume(options, folder: str, with_state: bool, **model_options) -> dict:
    """Losses of six steps without a break, and of the last three after a restart from
    a checkpoint; with the bytes of weights between nodes after it."""
    def restart():
        model = make_model(options, **model_options)
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        return model, optimizer

    def state_of(model, optimizer):
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments}
        return {**state, "zpp": zpp.torch.state_dict(model)} if with_state else state

    model, optimizer = restart()
    losses = []
    for i in range(6):
        if i == 3:
            checkpoint.save(state_of(model, optimizer), checkpoint_id=folder)
        losses.append(update(model, optimizer))
    model, optimizer = restart()
    # Moments exist after a step.
    update(model, optimizer)
    state = state_of(model, optimizer)
    checkpoint.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"],
                   optim_state_dict=state["optimizer"])
    if with_state:
        zpp.torch.load_state_dict(model, state["zpp"])
    before = gathered_bytes(model)
    resumed = [update(model, optimizer) for _ in range(3)]
    return {"losses": losses, "resumed": resumed,
            "keys": [key for key in model.state_dict() if "zpp" in key],
            "bytes": gathered_bytes(model) - before}


def gathered_bytes(model) -> int:
    """Bytes of all gathers between nodes so far."""
    return sum(entry["after"].get("node", 0) * entry["calls"]
               for entry in zpp.torch.report(model)["collectives"]
               if entry["kind"] == "all_gather")


def bytes_after_state_of_another_mesh(options) -> tuple[list[str], int, int]:
    """Warnings, and bytes of a pass after a state was dropped and before."""
    model = make_model(options)
    with torch.no_grad():
        model(make_batch()[0])
    first = gathered_bytes(model)
    state = zpp.torch.state_dict(model)
    model.reshard()
    zpp.torch.forget(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rank, own = next(iter(state.items()))
        zpp.torch.load_state_dict(model, {rank: {**own, "mesh": "node:4"}})
        name, slice_ = next(iter(own.items()))
        zpp.torch.load_state_dict(model, {rank: {**own, name: slice_[1:]}})
    with torch.no_grad():
        model(make_batch()[0])
    return ([str(warning.message) for warning in caught], first,
            gathered_bytes(model) - first)


def load_after_backward(options) -> torch.Tensor:
    """Results of a model after weights were loaded beside gradients."""
    model = make_model(options)
    loss_of(model, make_batch()).backward()
    model.zero_grad()
    torch.manual_seed(1)
    with torch.no_grad():
        state = model.state_dict()
        for name, value in state.items():
            state[name] = value + 0.01 * (1 + len(name))
        model.load_state_dict(state)
        return model(make_batch()[0])


def warnings_of(options, **model_options) -> list[str]:
    """The warnings of compress."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_model(options, **model_options)
    return [str(warning.message) for warning in caught
            if warning.category is UserWarning]


def warnings_before_the_root() -> list[str]:
    """The warnings of compress where fully_shard is called for the root after it, and
    for a part of a model."""
    model = nn.Sequential(Block(), nn.Linear(WIDTH, CLASSES)).to(device())
    fully_shard(model[0], mesh=all_ranks(), mp_policy=MIXED)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compress(model, **ZEROPP)
        compress(model[0], **ZEROPP)
    return [str(warning.message) for warning in caught
            if warning.category is UserWarning]


def evaluate_after_compress(first: Mapping, second: Mapping) -> list[torch.Tensor]:
    """Results of a model before and after another call of compress."""
    model = make_model(first)
    inputs, _ = make_batch()
    results = []
    with torch.no_grad():
        results.append(model(inputs))
        model.reshard()
        compress(model, **second)
        results.append(model(inputs))
    return [result.float() for result in results]


def bytes_between_nodes(options: Mapping[str, Any], micro_batches: int = 1,
                        forget_after: int | None = None, **model_options
                        ) -> list[int]:
    """Bytes of gathers, in each of three steps.

    Args:
      forget_after: number of a step.
    """
    model = make_model(options, **model_options)
    optimizer = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad], 0.1)
    sent = [0]
    for number in range(3):
        for i in range(micro_batches):
            model.set_requires_gradient_sync(i == micro_batches - 1)
            loss_of(model, make_batch(i)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if number == forget_after:
            zpp.torch.forget(model)
        sent.append(gathered_bytes(model))
    return [after - before for before, after in zip(sent, sent[1:])]


def lose_last(options: Mapping[str, Any] | None) -> str:
    """The error of a training in which the last rank is lost."""
    model = make_model(options)
    loss_of(model, make_batch()).backward()
    if dist.get_rank() == dist.get_world_size() - 1:
        os._exit(1)
    return _error_of_passes(model)


def overridden(mesh: str) -> dict:
    """A report where one block has options of its own."""
    model = make_model(ZEROPP)
    compress(model[0], mesh=mesh, weights="none", gradients="i8")
    loss_of(model, make_batch()).backward()
    return zpp.torch.report(model)


def error_of(options, **model_options) -> str:
    """The error that compress, or the step after it, raises."""
    try:
        model = make_model(options, **model_options)
        loss_of(model, make_batch()).backward()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def error_of_exchange() -> str:
    """An exchange that fails on all ranks."""
    def fail(*args, **kwargs):
        raise dist.DistBackendError("connection closed by peer")

    with mock.patch.object(dist, "all_to_all_single", fail):
        return error_of({**ZEROPP, "mesh": "node:4"})


def error_of_capture() -> str:
    """Steps that a CUDA graph would record."""
    with mock.patch.object(_pytorch, "is_captured", lambda _: True):
        return error_of(ZEROPP)


def error_of_fsdp1() -> str:
    from torch.distributed.fsdp import FullyShardedDataParallel
    model = nn.Sequential(FullyShardedDataParallel(
        nn.Linear(4, 4), device_id=device()))
    try:
        compress(model, mesh="gpu:4")
    except TypeError as error:
        return str(error)
    return "none"


def error_of_f64() -> dict:
    """A report of a model in a type that the compiler does not know."""
    torch.manual_seed(0)
    model = nn.Linear(8, 8, dtype=torch.float64, device=device())
    fully_shard(model, mesh=all_ranks())
    compress(model, **ZEROPP)
    model(torch.ones(2, 8, dtype=torch.float64, device=device())
          ).sum().backward()
    return zpp.torch.report(model)


def report_without_parameters() -> dict:
    """Returns that of a model without parameters, as a stage of a pipeline may be."""
    model = nn.Sequential(nn.ReLU())
    fully_shard(model, mesh=all_ranks())
    compress(model, **ZEROPP, exact="*")
    model(make_batch()[0])
    return zpp.torch.report(model)


def report_of_quantized_base() -> dict:
    """Gathers a module with an adapter in f32 beside a frozen weight in bytes."""
    model = nn.Linear(8, 8, device=device())
    model.weight = nn.Parameter(torch.ones(8, 8, dtype=torch.uint8, device=device()),
                                requires_grad=False)
    fully_shard(model, mesh=all_ranks())
    compress(model, **ZEROPP)
    model.unshard()
    return zpp.torch.report(model)


def report_on_device_mesh() -> dict:
    """Trains a model whose mesh for compress is a DeviceMesh."""
    tiers = init_device_mesh(device().type, (2, 2), mesh_dim_names=("node", "gpu"))
    sharded = tiers._flatten("all")
    # Its process groups are enough.
    with mock.patch.object(dist, "new_group", None):
        model = make_model({**ZEROPP, "mesh": tiers}, mesh=sharded)
        loss_of(model, make_batch()).backward()
    return zpp.torch.report(model)


def errors_of_device_meshes() -> tuple[str, str]:
    """One without names, and one that is not in the order of the ranks."""
    nameless = init_device_mesh(device().type, (2, 2))
    turned = DeviceMesh(device().type, [[0, 2], [1, 3]],
                        mesh_dim_names=("node", "gpu"))
    return (error_of({**ZEROPP, "mesh": nameless}),
            error_of({**ZEROPP, "mesh": turned}))
