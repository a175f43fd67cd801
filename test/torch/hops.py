# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that the ranks run: trainings whose hops between nodes are watched."""

import contextlib
from unittest import mock

import torch

import zpp.torch
from zpp.torch import _ahead, _compress, _fsdp, _gathers, _pytorch, _secondary

from training import (Alternating, all_ranks, device, fully_shard, gathered_bytes,
                      gathered_digest, loss_of, make_batch, make_model,
                      make_shared_block, update, MIXED)


def order_of_hops(options, prefetch=0, **model_options) -> list[list[str]]:
    """The hops of each of two steps in the order in which they begin: "outer" or
    "inner", with the module.

    Args:
      prefetch: so many modules FSDP2 gathers ahead in a forward pass.
    """
    model = make_model(options, **model_options)
    set_prefetch(model, prefetch)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found: list[list[str]] = []
    names = {communication.gathers.secondary: name or "root"
             for name, _, communication in _compress.communications_of(model)}
    fill = _gathers.Gathers._fill
    gather = _secondary.SecondaryPartition.gather

    def watched_fill(self, *args):
        found[-1].append(f"outer {self.shared.name or 'root'}")
        return fill(self, *args)

    def watched_gather(self, *args):
        found[-1].append(f"inner {names[self]}")
        return gather(self, *args)

    with (mock.patch.object(_gathers.Gathers, "_fill", watched_fill),
          mock.patch.object(_secondary.SecondaryPartition, "gather",
                            watched_gather)):
        for _ in range(2):
            found.append([])
            update(model, optimizer)
    return found


def set_prefetch(model, count: int) -> None:
    modules = [model, *model[:2]]
    for place, module in enumerate(modules if count else ()):
        module.set_modules_to_forward_prefetch(modules[place + 1:place + 1 + count])


@contextlib.contextmanager
def hops_ahead():
    """The hops that begin ahead of their gathers, by the names of their modules."""
    began: list[str] = []
    run_ahead = _gathers.Gathers._run_ahead

    def watched(self, begin):
        before = self._ahead
        run_ahead(self, begin)
        if self._ahead is not before:
            began.append(self.shared.name)

    with mock.patch.object(_gathers.Gathers, "_run_ahead", watched):
        yield began


def train_both_ways(options, **more) -> bool:
    """Whether losses, weights and bytes are those of a training in which no hop begins
    before its gather; in the training hops do."""
    with hops_ahead() as began:
        ahead = train(options, **more)
    with mock.patch.object(_ahead.Order, "follow", lambda *_: None):
        after = train(options, **more)
    assert began, "no hop began ahead"
    return ahead == after


def train(options, micro_batches=1, evaluates=False, prefetch=0, shared=False,
          fails=False, keeps_unsharded=False, **model_options) -> dict:
    """Losses, a digest of the weights and the bytes of gathers between nodes.

    Args:
      fails: the second block raises an error in each other forward pass, after which
        the training goes on.
      keeps_unsharded: weights stay gathered from one micro-batch to the next.
    """
    model = (make_shared_block(options) if shared else
             make_model(options, **model_options))
    set_prefetch(model, prefetch)
    optimizer = torch.optim.Adam(
        [p for p in model.parameters() if p.requires_grad], 3e-3)
    losses = []
    for step in range(4):
        if evaluates:
            with torch.no_grad():
                losses.append(float(loss_of(model, make_batch(7))))
        if fails and step % 2:
            hook = model[1].register_forward_pre_hook(raise_error)
            try:
                loss_of(model, make_batch())
            except ArithmeticError:
                hook.remove()
            reset(model)
        for i in range(micro_batches):
            is_last = i == micro_batches - 1
            model.set_requires_gradient_sync(is_last)
            if keeps_unsharded:
                model.set_reshard_after_backward(is_last)
            loss = loss_of(model, make_batch(i))
            loss.backward()
            losses.append(float(loss))
        optimizer.step()
        optimizer.zero_grad()
    return {"losses": losses, "bytes": gathered_bytes(model),
            "digest": gathered_digest(model)}


def raise_error(*_):
    raise ArithmeticError("a bad batch")


def reset(model) -> None:
    """Brings FSDP2 out of a forward pass that has failed."""
    for module in [model, *model[:2]]:
        state = module._get_fsdp_state()
        state._training_state = type(state._training_state).IDLE
        state._state_ctx.iter_forward_root = None
        module.reshard()


def has_next_slice(**model_options) -> bool:
    """Whether the slice of a block can be read before FSDP2 does."""
    model = make_model(None, **model_options)
    with torch.no_grad():
        model(make_batch()[0])
    block = model[0]
    (parameters,) = _fsdp.parameter_groups(block)
    return _pytorch.next_slice(parameters) is not None


def bytes_in_vain() -> list[int]:
    """Bytes of gathers between nodes in each of three steps, of a model whose blocks
    take turns, and whose weights change after each step."""
    torch.manual_seed(0)
    model = Alternating().to(device())
    for block in model.blocks:
        fully_shard(block, mesh=all_ranks(), mp_policy=MIXED)
    fully_shard(model, mesh=all_ranks(), mp_policy=MIXED)
    zpp.torch.compress(model, mesh="node:2,gpu:2", weights="i8", secondary="gpu",
                       links="none")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    sent = [0]
    for _ in range(3):
        update(model, optimizer)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.5)
        sent.append(gathered_bytes(model))
    return [after - before for before, after in zip(sent, sent[1:])]
