# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""State that gathers and reductions of a group of parameters share: its options by
the step, and the plans of its collectives with their calls."""

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch

from zpp._torch_options import TorchOptions as Options
from zpp.torch import _pytorch
from zpp.torch._functions import Function
from zpp.torch._plans import Plan

_LEFT_ALONE = {
    "all_gather": "gathers of weights are to stay as they are",
    "reduce_scatter": "scatters of gradients are to stay as they are",
    "all_reduce": "all-reduces of gradients are to stay as they are"}


class _Knowing(Protocol):
    #: The results of methods, see `once`.
    _known: dict[tuple, Any]


_Self = TypeVar("_Self", bound=_Knowing)
_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")


def once(method: Callable[Concatenate[_Self, Options, _Rest], _Result]
         ) -> Callable[Concatenate[_Self, Options, _Rest], _Result]:
    """Has a method called once for equal arguments: FSDP2 asks for the same in each
    step. The options are some of `Shared.variants`, so that their identity is enough,
    where their content would be hashed each time."""
    name = method.__name__

    @functools.wraps(method)
    def call(self, options, *args, **kwargs):
        key = name, id(options), *args, *kwargs.values()
        known = self._known
        if key not in known:
            known[key] = method(self, options, *args, **kwargs)
        return known[key]
    return call


def reason_of(kind: str, options: Options) -> str:
    """Why the options leave a collective to PyTorch, or an empty string."""
    format_ = options.weights if kind == "all_gather" else options.gradients
    return _LEFT_ALONE[kind] if format_ == "none" else ""


class Steps:
    """The steps of all modules of a model.

    Args:
      latest: the most of any of them.
    """

    def __init__(self, latest: int):
        self.latest = latest


class Shared:
    """The state of a group of parameters. A module of fully_shard has one group, or one
    for each mesh of its parameters.

    Args:
      name: of the module.
      parameters: what fully_shard knows of the group.
      variants: options by the step from which on they hold, the latest first.
      steps: those of all modules of the same call of `compress`.
    """

    def __init__(self, name: str, parameters: Any, mesh: str,
                 variants: list[tuple[int, Options]], steps: Steps):
        self.name = name
        self.mesh = mesh
        self.parameters = parameters
        self.variants = variants
        #: Backward passes in which the gradients were reduced.
        self.steps = steps.latest
        self.has_gradients = False
        self.steps_of_all = steps
        self.calls: Counter[Plan] = Counter()
        self._functions: dict[Plan, Function] = {}

    def options_at(self, step: int) -> Options:
        for first, options in self.variants:
            if first <= step:
                return options
        raise AssertionError("expected options from step 0 on")

    def next_step(self) -> Options:
        """Begins a step, and returns its options."""
        options = self.options_at(self.steps)
        self.steps += 1
        self.steps_of_all.latest = max(self.steps, self.steps_of_all.latest)
        self.has_gradients = True
        return options

    def function(self, plan: Plan) -> Function:
        """The one that runs a plan; the ranks of a group make it together."""
        if plan not in self._functions:
            # After set_separate_reduce_scatter_group, hops have groups of their own
            # too.
            is_separate = (
                plan.kind == "reduce_scatter" and
                plan.group is not _pytorch.shard_group(self.parameters))
            self._functions[plan] = Function(
                self.name, plan, self.parameters.device, is_separate)
        return self._functions[plan]

    def check_capture(self, tensor: torch.Tensor) -> None:
        if _pytorch.is_captured(tensor):
            raise RuntimeError(
                f"'{self.name}': expected collectives that run, but got some that a "
                f"CUDA graph records; what zpp counts and keeps from step to step "
                f"would stand still while it is replayed; leave CUDA graphs out "
                f"(torchtitan: training.disable_cuda_graphs)")
