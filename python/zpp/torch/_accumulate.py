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

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule

from zpp.torch import _pytorch


class Passes:
    """Counts backward passes, for trainers that do not say which is the last.

    Args:
      count: micro-batches of an update.
    """

    def __init__(self, count: int):
        self.count = count
        self._done = 0
        self._states: set[Any] = set()

    def follow(self, modules: Sequence[FSDPModule]) -> None:
        if self.count > 1:
            self._states = _pytorch.on_backward_end(modules, self._end)

    def _end(self) -> None:
        self._done += 1

    def is_last(self, module: FSDPModule) -> bool:
        if self.count == 1:
            return True
        if not _pytorch.all_states(module) <= self._states:
            raise RuntimeError(
                f"micro_batches={self.count}: expected compress to be called for "
                f"the whole model, whose backward passes are counted, but got a "
                f"part of it")
        return self._done % self.count == self.count - 1


class Accumulation:
    """The sum of a group of parameters' gradients that waits for the last micro-batch.

    Args:
      name: of their module.
      parameters: what fully_shard knows of the group.
      applies: whether sums wait, at the step of the call.
    """

    def __init__(self, name: str, module: FSDPModule, parameters: Any,
                 passes: Passes, applies: Callable[[], bool]):
        self._name = name
        self._module = module
        self._parameters = parameters
        self._passes = passes
        self._applies = applies
        #: Whether the backward pass that runs is not the last of its update.
        self.is_partial = False
        #: Whether its gradients would be reduced without this.
        self.is_reduced = True
        self._sum: torch.Tensor | None = None
        #: The parameters that the sum has gradients of.
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
        if not self._applies():
            original(*args)
            return
        self.is_reduced = _pytorch.reduces(parameters)
        is_last = (_pytorch.reduces_fully(self._module, parameters)
                   and self._passes.is_last(self._module))
        trained = _pytorch.gathered_parameters(parameters)
        seen = {each for each in trained if _pytorch.has_gradient(each)}
        if is_last and not self.is_pending or not is_last and not seen:
            original(*args)
            return
        # The sum has all parameters in each micro-batch, also those that are
        # used in some only.
        self._seen |= seen
        for each in trained:
            if each not in seen:
                _pytorch.give_zero_gradient(each)
        without = [each for each in trained
                   if not _pytorch.has_reduced_gradient(each)]
        self.is_partial = not is_last
        _pytorch.set_reduces(parameters, True)
        try:
            original(*args)
        finally:
            _pytorch.set_reduces(parameters, self.is_reduced)
            self.is_partial = False
        for each in without:
            if not is_last or each not in self._seen:
                _pytorch.drop_reduced_gradient(each)
        if is_last:
            self._seen = set()

    def add(self, part: torch.Tensor) -> None:
        """Adds the gradients of a micro-batch."""
        if self._sum is None:
            self._sum = part.to(torch.float32, copy=True)
            return
        if self._sum.numel() != part.numel():
            raise RuntimeError(
                f"'{self._name}': expected the same trained parameters in all "
                f"micro-batches of an update, but got gradients of "
                f"{part.numel()} elements after {self._sum.numel()}")
        self._sum += part

    def drop(self) -> None:
        """Begins a new sum."""
        self._sum = None
        self._seen = set()

    def take(self) -> torch.Tensor:
        """Returns the sum, and begins a new one."""
        total, self._sum = self._sum, None
        assert total is not None
        return total
