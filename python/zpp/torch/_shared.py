# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""State that gathers and reductions of a group of parameters share: its options by
the step, and the plans of its collectives with their calls."""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from zpp._guard import Guard
from zpp._option_kinds import LADDER
from zpp._options import describe
from zpp._torch_options import TorchOptions as Options
from zpp._warn import warn
from zpp.torch import _fsdp, _pytorch
from zpp.torch._agreement import Ballots
from zpp.torch._ahead import Order
from zpp.torch._exact import Exact
from zpp.torch._functions import Function
from zpp.torch._guard import Gauge, Lost
from zpp.torch._layout import TYPES, Layout, Segment
from zpp.torch._plans import Plan, block_of

_LEFT_ALONE = {
    "all_gather": "gathers of weights are to stay as they are",
    "reduce_scatter": "scatters of gradients are to stay as they are",
    "all_reduce": "all-reduces of gradients are to stay as they are"}


_Self = TypeVar("_Self")
_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")


def once(method: Callable[Concatenate[_Self, Options, _Rest], _Result]
         ) -> Callable[Concatenate[_Self, Options, _Rest], _Result]:
    """Has a method of `Shared`, or of what has it, called once for equal arguments, until
    parameters travel otherwise: FSDP2 asks for the same in each step. The options are some
    of `Shared.variants`, so that their identity is enough, where their content would be
    hashed each time."""
    name = method.__qualname__

    @functools.wraps(method)
    def call(self, options, *args, **kwargs):
        key = name, id(options), *args, *kwargs.values()
        known = getattr(self, "shared", self).known
        if key not in known:
            known[key] = method(self, options, *args, **kwargs)
        return known[key]
    return call


def reason_of(kind: str, options: Options) -> str:
    """Why the options leave a collective to PyTorch, or an empty string."""
    format_ = options.weights if kind == "all_gather" else options.gradients
    return _LEFT_ALONE[kind] if format_ == "none" else ""


@dataclasses.dataclass
class Call:
    """Settings and state that the modules of a call of `compress` have in common."""

    #: The tiers of all ranks.
    mesh: str
    #: Options by the step from which on they hold, the latest first.
    variants: list[tuple[int, Options]]
    guard: Guard | None
    ballots: Ballots
    #: The most steps of any module.
    latest: int = 0
    #: That of the gathers.
    order: Order = dataclasses.field(default_factory=Order)


class Shared:
    """The state of a group of parameters with names. A module of fully_shard has one
    group, or one for each mesh of its parameters."""

    def __init__(self, name: str, parameters: Any, call: Call, names: Mapping[Any, str]):
        self.name = name
        self.exact = Exact(parameters, names)
        self.gauge = Gauge(parameters, call.guard)
        self._has_warned: set[tuple[str, Any]] = set()
        self._former: list[tuple[int, Options]] = []
        self.call = call
        self.mesh = call.mesh
        self.parameters = parameters
        #: Those of the call, until the guard widens formats.
        self.variants = call.variants
        #: Backward passes in which the gradients were reduced.
        self.steps = call.latest
        self.has_gradients = False
        self.calls: Counter[Plan] = Counter()
        self._functions: dict[Plan, Function] = {}
        #: The results of methods, see `once`.
        self.known: dict[tuple, Any] = {}
        #: Called where parameters travel otherwise from now on.
        self.on_change: list[Callable[[], None]] = [self.known.clear]

    @property
    def title(self) -> str:
        """The module, for messages."""
        return _fsdp.title_of(self.name, self.parameters)

    @property
    def options(self) -> list[Options]:
        """Those of all steps."""
        return [options for _, options in self.variants]

    @property
    def step(self) -> int:
        """The steps so far. A frozen module has none of its own."""
        return self.steps if self.has_gradients else self.call.latest

    def options_at(self, step: int) -> Options:
        for first, options in self.variants:
            if first <= step:
                return options
        raise AssertionError("expected options from step 0 on")

    def next_step(self) -> Options:
        """Begins a step, and returns its options."""
        options = self.options_at(self.steps)
        self.steps += 1
        self.call.latest = max(self.steps, self.call.latest)
        self.has_gradients = True
        return options

    def layout_of_gather(self, options: Options, dtype: torch.dtype, elements: int
                         ) -> Layout | None:
        """The layout of a slice of all weights; None if it is not known."""
        gathered = tuple(self.parameters.fsdp_params)
        if not all(map(_pytorch.is_sent_as_it_is, gathered)):
            return None
        return self.layout_of(options, dtype, elements, gathered)

    @once
    def layout_of(self, options: Options, dtype: torch.dtype, elements: int,
                  contents: tuple, pieces: int = 1) -> Layout | None:
        """The layout of a slice of some parameters, in their order; None if it is not
        known. The type is that of all elements, or uint8 if they have types of their
        own."""
        block = block_of(options)
        layout = Layout(tuple(
            Segment(of, _pytorch.elements_of(each),
                    of not in TYPES or self.exact.is_exact(each, options, block))
            for each in contents
            for of in (_pytorch.type_of(each) if dtype == torch.uint8 else dtype,)),
            block, pieces)
        return layout if layout.bytes == elements * dtype.itemsize else None

    def look(self) -> None:
        """Finds weights that must not be rounded; called before each gather that rounds."""
        self._change(self.exact.look(_fsdp.shard_group(self.parameters)))

    def _change(self, changes: bool) -> None:
        for call in self.on_change if changes else ():
            call()

    def follow(self, tensor: torch.Tensor) -> None:
        """Acts on what was measured; called before each gather and each reduction."""
        self.check_capture(tensor)
        lost = self.gauge.follow(self.step)
        if not lost:
            return
        frozen = [each.parameter for each in lost if each.role == "weights"
                  and not each.parameter.sharded_param.requires_grad]
        self._change(self.exact.add(
            frozen, "more than half of them is lost in rounding"))
        rest = [each for each in lost if each.parameter not in frozen]
        # One step down, however many parameters ask for it.
        wider = {role: self._widen(role) for role in dict.fromkeys(
            each.role for each in rest if self.gauge.steps_down(each))}
        for each in rest:
            self._warn(each, wider.get(each.role, ""))

    def _warn(self, lost: Lost, wider: str) -> None:
        """Says what is lost, and the wider format, if any, in which it travels from now on."""
        name = self.exact.names[lost.parameter]
        text = (f"guard: the {lost.role} of '{name}' have become NaN or Inf"
                if math.isinf(lost.error) else
                f"guard: the {lost.role} of '{name}' have a relative rounding error of "
                f"{lost.error:.3g}, above the bound of {lost.bound:.3g}")
        if not self.gauge.steps_down(lost):
            if (lost.role, lost.parameter) not in self._has_warned:
                self._has_warned.add((lost.role, lost.parameter))
                warn(f"{text}; with exact='{name}' they travel as they are")
        elif wider:
            warn(f"{text}; all {lost.role} of module '{self.name}' travel "
                 f"{'unquantized' if wider == 'none' else f'as {wider}'} from the "
                 f"next step on")

    def _widen(self, role: str) -> str:
        """Has a role travel in the next wider format, and returns it; empty without one."""
        def format_of(options: Options, name: str) -> str:
            return str(getattr(options, name) or describe(Options)[name].default)

        formats = [format_of(options, role) for _, options in self.variants]
        narrow = [place for place, form in enumerate(LADDER[:-1])
                  if any(form in each for each in formats)]
        if not narrow:
            return ""
        floor = LADDER[narrow[0] + 1]
        self.gauge.drop(role)
        # `known` has options by their identities, which must not be used again.
        self._former += self.variants
        roles = (role, "reduced") if role == "gradients" else (role,)
        self.variants = [
            (step, options.replace(**{
                each: "none" if floor == "none" else
                format_of(options, each).replace("i4", "i8") for each in roles}))
            for step, options in self.variants]
        return floor

    def function(self, plan: Plan) -> Function:
        """The one that runs a plan; the ranks of a group make it together."""
        if plan not in self._functions:
            # After set_separate_reduce_scatter_group, hops have groups of their own
            # too.
            is_separate = (
                plan.kind == "reduce_scatter" and
                plan.group is not _fsdp.shard_group(self.parameters))
            self._functions[plan] = Function(
                self.name, plan, self.parameters.device, is_separate,
                self.gauge if plan.kind in _LEFT_ALONE else None)
        return self._functions[plan]

    def check_capture(self, tensor: torch.Tensor) -> None:
        if _pytorch.is_captured(tensor):
            raise RuntimeError(
                f"{self.title}: expected collectives that run, but got some that a "
                f"CUDA graph records; what zpp counts and keeps from step to step "
                f"would stand still while it is replayed; leave CUDA graphs out "
                f"(torchtitan: training.disable_cuda_graphs)")
