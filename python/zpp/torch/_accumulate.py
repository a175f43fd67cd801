# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients that cross nodes once per update (accumulate="gpu").

Of all micro-batches but the last, gradients are summed within a group of devices, by
the inner hops of their scatter, and added up in float32. The outer hops run with the
last one. FSDP2 knows two ways to say that a backward pass is not the last:
`set_requires_gradient_sync(False)`, after which it reduces nothing, and
`set_is_last_backward(False)`.

FSDP2 adds what a scatter returns to the gradients of the shards. Until the last
micro-batch that is zero, and taken away again.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.optim.optimizer import register_optimizer_step_pre_hook

from zpp.torch import _fsdp, _pytorch
from zpp.torch._shared import Shared


#: Those with gradients that wait.
_waiting: "weakref.WeakSet[Accumulation]" = weakref.WeakSet()


@functools.cache
def _follow_optimizers() -> None:
    """Checks before each optimizer's step that it comes at the end of an update."""
    def check(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for each in list(_waiting):
            each.check_step(optimizer)

    register_optimizer_step_pre_hook(check)


class Accumulation:
    """The sum of a group's gradients that waits for the last micro-batch of an update."""

    def __init__(self, shared: Shared, module: FSDPModule,
                 applies: Callable[[], bool]):
        self._shared = shared
        self._module = module
        self._parameters = shared.parameters
        self._applies = applies
        #: Whether the backward pass that runs is not the last of its update.
        self.is_partial = False
        #: Whether its gradients would be reduced without this.
        self.is_reduced = True
        self._sum: torch.Tensor | None = None
        #: The parameters in it, in their order.
        self._summed: tuple[Any, ...] = ()
        #: The parameters of whose gradients the sum is to become the shards'.
        self._seen: set[Any] = set()

    @property
    def bytes(self) -> int:
        """Bytes of the device that it takes."""
        return 0 if self._sum is None else self._sum.nbytes

    @property
    def is_pending(self) -> bool:
        return self._sum is not None

    def post_backward(self, original: Callable[..., None], *args: Any) -> None:
        """In the place of FSDP2's function that reduces gradients, the original."""
        parameters = self._parameters
        self.is_reduced = parameters.reduce_grads
        is_last = _fsdp.reduces_fully(self._module, parameters)
        if is_last and not self.is_pending or not self._applies():
            original(*args)
            return
        trained = _fsdp.gathered_parameters(parameters)
        seen = {each for each in trained if _fsdp.has_gradient(each)}
        reduces_unused = _fsdp.reduces_unused(parameters)
        if not is_last and not seen and not reduces_unused:
            original(*args)
            return
        # The sum has all parameters in each micro-batch, also those that are
        # used in some only.
        self._seen |= {*trained} if reduces_unused else seen
        for each in trained:
            if each not in seen:
                _fsdp.give_zero_gradient(each)
        without = [each for each in trained if each.sharded_param.grad is None]
        self.is_partial = not is_last
        parameters.reduce_grads = True
        try:
            original(*args)
        finally:
            parameters.reduce_grads = self.is_reduced
            self.is_partial = False
        if not self.is_reduced:
            _fsdp.leave_pending(parameters)
        for each in without:
            if not is_last or each not in self._seen:
                each.sharded_param.grad = None
        if is_last:
            self._seen = set()

    def add(self, part: torch.Tensor) -> None:
        """Adds the gradients of a micro-batch."""
        _follow_optimizers()
        _waiting.add(self)
        summed, reduced = self._summed, _pytorch.reduced_parameters()
        if self._sum is None:
            self._sum = part.to(torch.float32, copy=True)
            self._summed = reduced
            return
        if summed != reduced:
            names = self._shared.exact.names
            other = next(each for each in (*reduced, *summed)
                         if each not in summed or each not in reduced)
            raise RuntimeError(
                f"{self._shared.title}: expected the same trained parameters in all "
                f"micro-batches of an update, but got '{names[other]}' in some")
        self._sum += part

    def check_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Raises RuntimeError if an optimizer that updates the weights does not wait."""
        updated = {id(each) for group in optimizer.param_groups
                   for each in group["params"]}
        if not updated.isdisjoint(
                id(each.sharded_param) for each in self._parameters.fsdp_params):
            raise RuntimeError(
                f"{self._shared.title}: expected the last micro-batch of an update before the "
                f"optimizer's step, but got gradients that wait for it; call "
                f"model.set_requires_gradient_sync(True), or set_is_last_backward(True), "
                f"before the last backward pass of each update, also of a shorter one, "
                f"or zpp.torch.forget(model) to drop them")

    def drop(self) -> None:
        """Begins a new sum."""
        _waiting.discard(self)
        self._sum = None
        self._seen = set()

    def reset(self, original: Callable[[], None]) -> None:
        """In the place of FSDP2's function that gives an update up on this rank. Others may
        keep theirs, so the sum still is one."""
        _waiting.discard(self)
        self._seen = set()
        if self._sum is not None:
            self._sum.zero_()
        original()

    def take(self) -> torch.Tensor:
        """Returns the sum, and begins a new one."""
        _waiting.discard(self)
        total, self._sum = self._sum, None
        assert total is not None
        return total
