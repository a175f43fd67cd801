# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers about a pass of a model: bytes and rounding errors."""

import collections
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from zpp._measures import bytes_of, errors_of
from zpp._warn import warn
from zpp.torch import _fsdp, _pytorch, _runtime
from zpp.torch._communication import Communication
from zpp.torch._compress import communications_of, report
from zpp.torch._moments import KIND

#: Kinds of collectives, and what moves in them.
_ROLES = {"all_gather": "weights", "reduce_scatter": "gradients",
          "all_reduce": "gradients", KIND: "moments"}


class Meter:
    """Measures modules, which have a report, from one forward pass to the next: that of
    the module that is called first."""

    def __init__(self, report: Callable[[], dict]):
        self._report = report
        self.latest: dict[str, float] = {}
        self._hooks: list[Any] = []
        #: Calls of reductions before there were hooks, and how often `measure` has found
        #: others since.
        self._reductions = self._in_vain = 0
        self._before: dict[str, int] | None = None
        #: The module whose next call ends the pass.
        self._first = 0

    def measure(self, modules: Sequence[nn.Module],
                communications: Iterable[Communication]) -> dict[str, float]:
        """The metrics of modules, with their communications. Measures the next pass, and
        ends the one that is being measured."""
        self._end()
        reductions = _reductions_of(self._report())
        if not self._hooks:
            self._hooks = [each.register_forward_pre_hook(self._on_forward)
                           for each in modules]
            self._in_vain = 0
        elif reductions > self._reductions:
            self._in_vain += 1
            # Once may be a backward pass of before.
            if self._in_vain == 2:
                warn(f"metrics: expected calls of "
                     f"{type(modules[0]).__name__.removeprefix('FSDP')}, from one to "
                     f"the next of which is measured, but got gradients of its other "
                     f"methods, or of parts of it, alone; call metrics for a part that is "
                     f"called")
        self._reductions = reductions
        return self.latest | {name: error for communication in communications
                              for name, error in communication.errors().items()}

    def stop(self) -> None:
        """Ends the pass that is being measured, and measures no other."""
        self._end()
        self._unhook()

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _on_forward(self, module: nn.Module, *_: Any) -> None:
        # A checkpoint calls modules in backward passes.
        if not torch.is_grad_enabled() or _pytorch.is_backward():
            return
        if self._before is not None:
            if id(module) == self._first:
                self._end()
            return
        self._first = id(module)
        self._before = bytes_of(self._report())
        _runtime.measure(True)

    def _end(self) -> None:
        if self._before is None:
            return
        before, self._before = self._before, None
        self._unhook()
        _runtime.measure(False)
        report = self._report()
        after = bytes_of(report)
        self.latest = {name: count - before.get(name, 0)
                       for name, count in after.items()}
        self.latest["state_bytes"] = report["total"]["state_bytes"]
        samples = collections.defaultdict(list)
        for kind, measure in _runtime.read_measures():
            samples[_ROLES[kind]].append(
                (measure["squared_error"], measure["squared"], measure["not_finite"]))
        for role, of_role in samples.items():
            self.latest |= errors_of(role, of_role)


_meters: weakref.WeakKeyDictionary[nn.Module, Meter] = weakref.WeakKeyDictionary()


def metrics(model: nn.Module) -> dict[str, float]:
    """Numbers about the latest pass of `model` that was measured, by name, for a log:
    of what this rank has sent and rounded in a forward pass and the backward pass
    after it. The next pass is measured; others cost nothing. Empty at first.

        if step % 100 == 0:
            wandb.log(zpp.torch.metrics(model), step=step)

    Each is of this rank:
      bytes/TIER, bytes_as_written/TIER: bytes that it has sent, and would have.
      state_bytes: what it holds between gathers.
      error/weights, error/gradients: the L2 norm of the rounding errors of sampled
        blocks by that of their values.
      not_finite/weights, not_finite/gradients: values of the sample that a format has
        made NaN or Inf.
      error/moments, not_finite/moments: likewise, with moments="i8".
    A pass ends with the next call of `model` (of several in a list, of the first that was
    called) for which gradients are computed, or of this function. Models in between are
    measured as well.

    Raises:
      ValueError: for a model that zpp.torch.compress was not called with.
    """
    report(model)  # An error where there is none.
    if model not in _meters:
        weak = weakref.ref(model)
        _meters[model] = Meter(lambda: report(weak()))
    return _meters[model].measure([model, *_roots_of(model)], (
        communication for _, _, communication in communications_of(model)))


def _roots_of(model: nn.Module) -> Iterator[nn.Module]:
    """The modules of fully_shard within others, such as a list, that are in no other one:
    of these the others may be called by nobody."""
    below: set[nn.Module] = set()
    for _, module in _fsdp.modules_of(model):
        if module not in below and module is not model:
            yield module
        below.update(module.modules())


def _reductions_of(report: dict) -> int:
    return sum(entry["calls"] for entry in report["collectives"]
               if _ROLES[entry["kind"]] == "gradients")
