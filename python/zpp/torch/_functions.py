# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled plans that a module runs in each step."""

import functools
from collections.abc import Callable

import torch
import torch.distributed as dist

from zpp.torch._guard import Exchange, Gauge
from zpp.torch._plans import Plan
from zpp.torch._runtime import Runner, get_runner, run_as_op


class Work(dist.Work):
    """A collective on a stream of its own, until an event passes; None if complete."""

    def __init__(self, event: torch.cuda.Event | None = None):
        super().__init__()
        self._event = event

    def wait(self, timeout=None) -> bool:
        """Makes the current stream wait. Time limits are those of the process
        groups, whose watchdog sees the exchanges."""
        if self._event is not None:
            self._event.wait()
        return True

    def is_completed(self) -> bool:
        return self._event is None or self._event.query()


class Function:
    """A compiled plan of a module, which has a name. It has at hand what does not change
    from step to step, because FSDP2 waits for it. The gauge is None if it does not
    measure this."""

    def __init__(self, name: str, plan: Plan, device: torch.device,
                 is_separate: bool, gauge: Gauge | None):
        assert plan.compiled
        self._gauge = gauge
        self._plan = plan
        self._compiled = plan.compiled
        self._device = device
        self._is_separate = is_separate
        self._label = (f"zpp::{plan.kind} {name or 'the root module'} "
                       f"{sum(plan.compiled.sent.values())} B")

    @functools.cached_property
    def runner(self) -> Runner:
        """All ranks of the group make it together."""
        return get_runner(self._plan.group, self._plan.tiers, self._device,
                          self._plan.kind, self._is_separate)

    def __call__(self, sources: list[torch.Tensor], result: torch.Tensor,
                 exchange: Exchange | None = None, async_op: bool = False,
                 factor: float | None = None) -> dist.Work | None:
        """Args:
          sources: what this rank sends, and for differences what the others hold of it,
            and all that is held, which is also the result.
          exchange: of gradients, does the same without rounding.
          factor: the number by which the result is multiplied.
        """
        def run():
            self._run(sources, result, exchange)
            if factor is not None:
                result.mul_(factor)

        if not async_op:
            run()
            return None
        return run_apart(run, self.runner.stream if result.is_cuda else None, *sources,
                         result)

    def _run(self, sources: list[torch.Tensor], result: torch.Tensor,
             exchange: Exchange | None) -> None:
        layout = self._plan.layout
        assert layout
        slices = result.nbytes // layout.bytes
        end = self._gauge.begin(self._plan.kind, layout, sources[0], slices, exchange
                                ) if self._gauge else None
        first, *held = sources
        # FSDP2 gathers and reduces in place, but a function's buffers must not overlap,
        # but for what is held.
        if layout.is_in_place and (self._plan.kind == "all_gather"
                                   or _share_memory(first, result)):
            first = first.clone()
        exact = layout.pack_exact(first)
        packed = [layout.pack(source) for source in (first, *held)]
        if held:
            parts = packed[-1]
        elif layout.is_in_place:
            parts = [result]
        else:
            parts = [result.new_empty(count * slices, dtype=dtype)
                     for dtype, count in layout.parts]
        arrived = [each.new_empty(layout.exact_part[1] * slices) for each in exact]
        # A dry run makes no runner.
        run_as_op(lambda: self.runner, self._compiled,
                  [part for of_type in zip(*packed) for part in of_type] + exact,
                  parts + arrived, self._label)
        layout.unpack(parts, result)
        layout.unpack_exact(arrived, result)
        if end is not None:
            end(result, self._plan.group.rank())


def run_apart(run: Callable[[], None], stream: torch.cuda.Stream | None,
              *tensors: torch.Tensor) -> Work:
    """Calls `run`, which uses the tensors, on a stream apart; None on the CPU."""
    if stream is None:
        run()
        return Work()
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        run()
    for tensor in tensors:
        tensor.record_stream(stream)
    return Work(stream.record_event())


def _share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata
