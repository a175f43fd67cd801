# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bounds on rounding errors."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Guard:
    """A bound on what formats may cost, for `zpp.jit(guard=)` and
    `zpp.torch.compress(guard=)`.

        zpp.jit(step, gradients="i8:i4", guard=zpp.Guard(gradients=0.3))

    Every so many calls a step is measured. If the relative rounding error of a
    collective, the L2 norm of the errors of a sample of its blocks by that of
    their values, is above the bound, or the format has made values that were
    finite NaN or Inf, then from the next call on this collective travels in the
    next wider format: i4 becomes i8, and i8 none. All others keep theirs, but for
    those that gather the same weight. A warning names the collective. Nothing goes
    back to a narrower format.

    In PyTorch the errors are those of single parameters, and the warning names the
    parameter; the collective is that of its module.
    """

    #: Bounds for weights, for gradients, and for rows that experts exchange.
    weights: float = math.inf
    gradients: float = math.inf
    exchanges: float = math.inf
    #: The step of each so many calls that is measured.
    every: int = 100

    def __post_init__(self):
        for name in ("weights", "gradients", "exchanges"):
            bound = getattr(self, name)
            if isinstance(bound, bool) or not isinstance(
                    bound, (int, float)) or not bound > 0:
                raise ValueError(f"guard: expected a positive bound for {name}, "
                                 f"but got {bound!r}")
        if not isinstance(self.every, int) or self.every < 1:
            raise ValueError(f"guard: expected a positive number of calls, but "
                             f"got every={self.every!r}")

    @staticmethod
    def of(given: "Guard | float | None") -> "Guard | None":
        """The guard that a user means: a number is a bound for all."""
        if given is None or isinstance(given, Guard):
            return given
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            return Guard(weights=given, gradients=given, exchanges=given)
        raise ValueError(f"guard: expected a number or a zpp.Guard, but got "
                         f"{given!r}")

    def bound(self, role: str) -> float:
        # The error of a momentum says nothing of that of its update.
        return {"weight": self.weights, "exchange": self.exchanges,
                "moment": math.inf}.get(role, self.gradients)
