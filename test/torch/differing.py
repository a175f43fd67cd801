# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that the ranks run: where ranks differ, or a part of them has its own."""

import contextlib
import datetime
import functools
import gc
import warnings
import weakref
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import register_fsdp_forward_method

import zpp.torch
from zpp.torch import _agreement, _groups

import training
from training import (CLASSES, WIDTH, all_ranks, compress, device, evaluate_around,
                      fully_shard, gathered_bytes, loss_of, make_batch,
                      make_model, update)


@contextlib.contextmanager
def votes_at_once():
    """As on GPUs: all modules vote when the first one is gathered in a pass."""
    init = _agreement.Ballots.__init__
    with mock.patch.object(_agreement.Ballots, "__init__",
                           lambda self, at_once: init(self, True)):
        yield


def evaluate_as_on_gpus(change: str, options, **more):
    with votes_at_once():
        return evaluate_around(change, options, **more)


def train_as_on_gpus(function, options, **more):
    with votes_at_once():
        return getattr(training, function)(options, **more)


class Heads(nn.Module):
    """A head of one row, of which one rank has all elements."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def train_with_average(options) -> list[float]:
    """Losses of a training whose weights become an average in each step, by code that
    skips empty shards."""
    torch.manual_seed(0)
    model = Heads().to(device())
    for part in (model.body, model.head, model):
        fully_shard(part, mesh=all_ranks())
    if options is not None:
        compress(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    average = {name: parameter.to_local().detach().clone()
               for name, parameter in model.named_parameters()}
    losses = []
    for step in range(4):
        inputs, _ = make_batch(step)
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                shard = parameter.to_local()
                if shard.numel():
                    shard.copy_(average[name].lerp_(shard, 0.5))
            losses += [float(loss), float(model(inputs).sum())]
        model.reshard()
    return losses


def merge_and_train(options, steps=4) -> tuple[list[float], list[str]]:
    """Losses of a training that adds something to its weights for an evaluation, past
    PyTorch's versions, and takes it away again; and warnings."""
    model = make_model(options, adapters=True)
    optimizer = torch.optim.SGD(
        [each for each in model.parameters() if each.requires_grad], 0.1)
    merged = [module.up.weight for module in model[:2]]
    losses = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(steps):
            losses.append(update(model, optimizer))
            for sign in (1, -1):
                for weight in merged:
                    weight.data += sign * torch.full_like(weight, 0.125)
                if sign > 0:
                    with torch.no_grad():
                        losses.append(float(loss_of(model, make_batch(step))))
                    for module in (*model[:2], model):
                        module.reshard()
    return losses, [str(each.message) for each in caught
                    if each.category is UserWarning and "zpp" not in str(each.filename)
                    and "weights" in str(each.message)]


def writes_within_a_pass(options, forgets: bool) -> str:
    """The error of passes in whose middle the last block is written to, where hosts
    vote once in a pass; "none" if there is none."""
    with votes_at_once():
        model = make_model(options, frozen=True)
        model.requires_grad_(False)

        def write(*_):
            with torch.no_grad():
                for parameter in model[1].parameters():
                    parameter.mul_(0.5)
            if forgets:
                zpp.torch.forget(model[1])

        model[0].register_forward_hook(write)
        try:
            with torch.no_grad():
                for _ in range(3):
                    model(make_batch()[0])
        except RuntimeError as error:
            return str(error)
    return "none"


def weights_by_hand(options, *, at_once: bool, end: str) -> list[torch.Tensor]:
    """Weights that are gathered by hand between steps in which no checksums are made,
    before and after they are written to past PyTorch; and after another such write
    outputs of the model.

    Args:
      at_once: as on GPUs.
      end: that of the latest step: "forward", "backward", "method" for a forward pass
        that is another method of the model; with "raises", or "stops" for an exception of
        another kind, if one ends it, of "one" rank alone if so.
    """
    with votes_at_once() if at_once else contextlib.nullcontext():
        model = make_model(options)
    if "one" in end:
        # Otherwise FSDP2 keeps the root's weights on the rank that fails, alone.
        model.set_reshard_after_forward(True)
    modules = (*model[:2], model)

    def gather():
        for module in modules:
            module.unshard()
        found = [weight.detach().clone() for weight in model.parameters()]
        reshard()
        return found

    def reshard():
        for module in modules:
            module.reshard()

    def write():
        for weight in model.parameters():
            weight.data.mul_(0.5)

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(12):
        update(model, optimizer)
    def fail(*_):
        raise KeyboardInterrupt if "stops" in end else ZeroDivisionError

    if ("raises" in end or "stops" in end) and ("one" not in end or dist.get_rank() == 1):
        # Once all has been gathered.
        model[2].register_forward_pre_hook(fail)
    with contextlib.suppress(ZeroDivisionError, KeyboardInterrupt):
        if "method" in end:
            model.infer = functools.partial(type(model).forward, model)
            register_fsdp_forward_method(model, "infer")
            model.infer(make_batch()[0])
        else:
            loss = loss_of(model, make_batch())
            if end == "backward":
                loss.backward()
    model[2]._forward_pre_hooks.clear()
    reshard()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        weights = gather()
        write()
        weights += gather()
        write()
        for module in modules:
            # The next one may be gathered ahead.
            module.unshard()
            module.reshard()
            write()
        weights += gather()
    if options is not None and "secondary" in options:
        assert any("weights were written to" in str(each.message) for each in caught)
    with torch.no_grad():
        weights.append(model(make_batch()[0]))
        reshard()
        write()
        # FSDP2 may still have the root of the pass that has failed.
        call = model.infer if "method" in end else model
        for each in (model[0], call, call):
            weights.append(each(make_batch()[0]))
            reshard()
            write()
    return weights


def passes_with_another(options) -> tuple[list[float], list[int]]:
    """Losses of three steps and two evaluations where hosts vote once in a pass, and the
    votes of each; in the middle of forward passes there are two of another model."""
    with votes_at_once():
        teacher, model = (make_model(options) for _ in range(2))
    teacher.requires_grad_(False)

    def teach(_, inputs):
        mean = torch.zeros(())
        with torch.no_grad():
            for _ in range(2):
                mean = mean + teacher(inputs[0]).mean()
                teacher.reshard()
                for weight in teacher.parameters():
                    weight.mul_(0.9)
        return inputs[0] + mean

    model[1].register_forward_pre_hook(teach, prepend=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses, votes = [], []
    for step in range(5):
        with mock.patch.object(_agreement, "_exchange", side_effect=_agreement._exchange
                               ) as exchange:
            if step < 3:
                losses.append(update(model, optimizer))
            else:
                with torch.no_grad():
                    losses.append(float(loss_of(model, make_batch())))
                model.reshard()
        votes.append(exchange.call_count)
    return losses, votes


def losses_around_nan(options, policy) -> list[float]:
    """Losses before and after a step whose weights are not finite, which are then what
    they were before."""
    model = make_model(options, policy=policy)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    losses = [update(model, optimizer) for _ in range(2)]
    saved = [weight.detach().clone() for weight in model.parameters()]
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(float("inf"))
    loss = loss_of(model, make_batch())
    assert not loss.isfinite()
    loss.backward()
    optimizer.zero_grad()
    with torch.no_grad():
        for weight, value in zip(model.parameters(), saved):
            weight.copy_(value)
    return losses + [update(model, optimizer) for _ in range(4)]


def bytes_of_switched(options) -> list[int]:
    """Bytes of gathers between nodes in each of some steps, of a model of which one
    block is frozen in turn."""
    model = make_model(options)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    sent = [0]
    for step in range(5):
        model[step % 2].requires_grad_(False)
        update(model, optimizer)
        model.requires_grad_(True)
        sent.append(gathered_bytes(model))
    return [after - before for before, after in zip(sent, sent[1:])]


def groups_after_a_part_compresses() -> bool:
    """Whether groups and meshes of all ranks work after two ranks have compressed a
    model of their own, and checkpoints of a model of all ranks."""
    rank = dist.get_rank()
    group = dist.new_group([0, 2])
    if rank in (0, 2):
        model = Heads().to(device())
        fully_shard(model, mesh=DeviceMesh.from_group(group, device().type))
        compress(model, mesh="node:2,gpu:2", weights="i8", secondary="gpu")
        model(make_batch()[0]).sum().backward()
    found = dist.new_group([0, 1])
    if rank in (0, 1):
        number = torch.ones((), device=device())
        dist.all_reduce(number, group=found)
        assert number == 2
    mesh = init_device_mesh(device().type, (2, 2), mesh_dim_names=("a", "b"))
    number = torch.ones((), device=device())
    dist.all_reduce(number, group=mesh.get_group("a"))
    local = dist.new_group([rank - rank % 2, rank - rank % 2 + 1],
                           use_local_synchronization=True)
    dist.all_reduce(number, group=local)
    return bool(number == 4)


def saves_after_a_part_compresses(folder: str) -> bool:
    """Whether a checkpoint of a model of all ranks has its weights then."""
    groups_after_a_part_compresses()
    model = make_model({**training.ZEROPP, "secondary": "gpu"})
    state = model.state_dict()
    checkpoint.save(state, checkpoint_id=folder)
    expected = {name: value.full_tensor().clone() for name, value in state.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    checkpoint.load(state, checkpoint_id=folder)
    return all(torch.equal(value.full_tensor(), expected[name])
               for name, value in state.items())


def resumes_parts(options, folder: str) -> dict:
    """Losses of four steps of two models, each of which half of the ranks have, as stages
    of a pipeline; those of the last two after a restart; and warnings of the latter."""
    number = dist.get_rank() % 2
    mesh = [DeviceMesh(device().type, ranks) for ranks in ([0, 2], [1, 3])][number]

    def make() -> nn.Module:
        torch.manual_seed(number)
        model = nn.ModuleDict({f"stage{number}": nn.Linear(WIDTH, CLASSES)})
        model.to(device())
        fully_shard(model[f"stage{number}"], mesh=mesh)
        return compress(model, **options)

    def train(model, steps: int) -> list[float]:
        (stage,) = model.values()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return [update(stage, optimizer) for _ in range(steps)]

    model = make()
    losses = train(model, 2)
    saved = {"model": model.state_dict(), "zpp": zpp.torch.state_dict(model)}
    checkpoint.save(saved, checkpoint_id=folder)
    losses += train(model, 2)
    model = make()
    train(model, 1)
    state = {"model": model.state_dict(), "zpp": zpp.torch.state_dict(model)}
    checkpoint.load(state, checkpoint_id=folder)
    model.load_state_dict(state["model"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        zpp.torch.load_state_dict(model, state["zpp"])
    return {"losses": losses, "resumed": train(model, 2),
            "warnings": [str(each.message) for each in caught]}


def error_of_a_part(options) -> str:
    """The error of compress where only two ranks have a model, and the others exchange
    something else."""
    mesh = DeviceMesh(device().type, [0, 2])
    if dist.get_rank() in (1, 3):
        return "none"
    with mock.patch.object(_agreement, "TIME_LIMIT", datetime.timedelta(seconds=2)):
        return training.error_of(options, mesh=mesh)


def losses_in_a_new_world(options) -> list[float]:
    """Losses of two ranks that were the first and the last one of four, between which
    others had compressed as well."""
    training.train(options, rows=((0, 1), (2, 3)), steps=1)
    rank, store = dist.get_rank(), _groups.store_of_all()
    dist.destroy_process_group()
    if rank in (1, 2):
        return []
    dist.init_process_group(
        "gloo", store=dist.PrefixStore("new", store), rank=rank // 3, world_size=2)
    return training.train({**options, "mesh": "node:2", "secondary": 1})["losses"]


def is_freed(options, **more) -> list[bool]:
    """Whether a model, and one of its shards, are there after the last reference to
    it."""
    model = make_model(options, **more)
    optimizer = torch.optim.SGD(
        [each for each in model.parameters() if each.requires_grad], 0.1)
    update(model, optimizer)
    zpp.torch.report(model)
    found = [weakref.ref(model), weakref.ref(model[0]),
             weakref.ref(next(model.parameters()).to_local().untyped_storage())]
    del model, optimizer
    gc.collect()
    return [each() is None for each in found]


def gradients_with_hooks_on_one_rank(options) -> dict[str, torch.Tensor]:
    """Gradients of two micro-batches, where rank 1 looks at those of one module."""
    model = make_model(options)
    if dist.get_rank() == 1:
        model[0].up.weight.register_post_accumulate_grad_hook(lambda _: None)
    for is_last in (False, True):
        model.set_is_last_backward(is_last)
        loss_of(model, make_batch(int(is_last))).backward()
    return {name: parameter.grad.full_tensor().cpu()
            for name, parameter in model.named_parameters()}


def warnings_of_parts(options) -> list[str]:
    """Warnings of weights that are written to unseen: those of the root, and those of a
    block for which compress is called alone."""
    model = make_model(options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for part in (model, model[0]):
            compress(part, **options)
            for _ in range(2):
                with torch.no_grad():
                    model(make_batch()[0])
                model.reshard()
                for parameter in part.parameters():
                    parameter.data.mul_(0.5)
    return [str(each.message) for each in caught if "written" in str(each.message)]
