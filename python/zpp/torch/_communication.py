# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The collectives that FSDP2 calls in place of its own."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule

from zpp.torch import _fsdp, _pytorch
from zpp.torch._gathers import Gathers
from zpp.torch._moments import Moments
from zpp.torch._plans import Plan
from zpp.torch._reductions import Reductions
from zpp.torch._shared import Call, Shared


class Collective:
    """The object in the place of FSDP2's collective, with buffers as that one has them."""

    def __init__(self, run: Callable[..., Any],
                 allocate: Callable[..., torch.Tensor] = torch.empty):
        self._run = run
        self.allocate = allocate

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 *rest: Any, **given: Any) -> Any:
        return self._run(output_tensor, input_tensor, *rest, **given)


class Communication:
    """The gathers and reductions of a group of parameters of a module, see `Shared`."""

    def __init__(self, name: str, module: FSDPModule, parameters: Any, call: Call,
                 names: Mapping[Any, str]):
        self.shared = Shared(name, parameters, call, names)
        self.gathers = Gathers(self.shared)
        self.reductions = Reductions(self.shared, module)
        self.moments = Moments(self.shared)

    def collectives(self) -> _fsdp.Collectives:
        """For FSDP2, with memory as those that they replace."""
        gather, scatter = _fsdp.others_collectives(self.shared.parameters)
        return (Collective(self.gathers.gather, gather.allocate),
                Collective(self.reductions.scatter, scatter.allocate))

    def attach(self) -> None:
        """Follows what is done with the parameters, until `detach`."""
        self.gathers.follow_loads()
        self.moments.attach()

    def detach(self) -> None:
        self.gathers.detach()
        self.moments.detach()

    def makers(self) -> list[Callable[[], Plan]]:
        """Functions that make the plans of the next steps, as far as they are known."""
        return (self.reductions.makers() + self.gathers.makers()
                + self.moments.makers())

    def facts(self) -> list:
        """Returns what the ranks of its groups must agree on, as JSON has it."""
        slices = _pytorch.slices_of(self.shared.parameters)
        return [*([str(part) for part in slice_] if slice_ else None
                  for slice_ in (slices.gathered, slices.reduced)),
                [[str(_pytorch.type_of(each)), _pytorch.elements_of(each)]
                 for each in self.shared.parameters.fsdp_params]]

    def errors(self) -> dict[str, float]:
        """The latest relative rounding errors, by what they are of."""
        return {f"error/{role}/{self.shared.exact.names[parameter]}": error for
                (role, parameter), error in self.shared.gauge.errors.items()}

    def forget(self) -> None:
        """Has the next gather send whole weights, and drops gradients that wait."""
        self.gathers.forget()
        self.reductions.accumulation.drop()

    def is_dry_run(self) -> bool:
        group = _fsdp.shard_group(self.shared.parameters)
        return group is not None and _pytorch.is_dry_run(group)

    def state_bytes(self) -> int:
        """Bytes of the device that hold weights, and gradients that wait."""
        return self.gathers.secondary.bytes + self.reductions.accumulation.bytes

    def entries(self, name: str) -> list[dict]:
        """The entries of the report."""
        calls = self.shared.calls.copy()
        if (unused := self.gathers.unused()) is not None:
            # Nobody has asked for it yet.
            calls[unused] += 1
        return [plan.entry(name, count) for plan, count in calls.items()]

    def make_runner(self, plan: Plan) -> None:
        """Makes the runner of a plan, as the ranks of its group do together."""
        # A dry run has no devices.
        if not _pytorch.is_dry_run(plan.group):
            _ = self.shared.function(plan).runner
