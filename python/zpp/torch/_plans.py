# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How one collective of FSDP2 is to be executed."""

import concurrent.futures
import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import torch
import torch.distributed as dist

from zpp._option_kinds import parse_mesh, write_mesh
from zpp._options import SharedTuning, describe
from zpp._torch_options import TorchOptions as Options
from zpp.torch import _mesh
from zpp.torch._bucket import Bucket, Compiled, compile_bucket, format_of, sent_bytes
from zpp.torch._layout import TYPES, Layout

_DEFAULT_BLOCK = int(describe(SharedTuning)["block"].default)


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The plan for one collective."""

    kind: str
    type: str
    #: Elements of one rank's slice; its bytes, if it has several types.
    elements: int
    group: dist.ProcessGroup
    #: The tiers in which the group's ranks differ; empty if nothing is sent.
    tiers: dict[str, int]
    #: Bytes that a rank sends over each tier if PyTorch does it, and as it is.
    before: dict[str, int]
    after: dict[str, int]
    #: None where PyTorch does it, for a reason.
    compiled: Compiled | None
    reason: str
    #: The parameters in a slice, if they are known.
    layout: Layout | None = None
    #: Those that are run one after the other in its place.
    hops: tuple["Plan", ...] = ()

    def entry(self, name: str, calls: int) -> dict:
        """The entry of the report."""
        return {
            "module": name, "kind": self.kind, "type": self.type,
            "elements": (self.elements if self.layout is None else
                         sum(each.elements for each in self.layout.segments)),
            **self._outcome(), "calls": calls, "before": dict(self.before),
            "hops": [hop._outcome() for hop in self.hops]}

    def _outcome(self) -> dict:
        return {"group": write_mesh(self.tiers), "after": dict(self.after),
                "rewritten": not self.reason, "reason": self.reason}


#: Why nothing of a slice is quantized.
_UNKNOWN = ("its parameters are gathered in a format of their own, of which zpp does not "
            "know the order")
_EXACT = ("all of its parameters travel as they are: those of one dim, those of which a "
          "rank has less than a block, those of other types than float32, bfloat16 and "
          "float16, and those that are bits or among exact")
_PADDED = "its parameters are so small that their blocks would not shrink"


@functools.cache
def make_plan(kind: str, dtype: torch.dtype, elements: int, is_mean: bool,
              mesh: str, group: dist.ProcessGroup, options: Options,
              reason: str, layout: Layout | None, is_difference: bool = False,
              along: tuple[str, ...] = (), role: str = "") -> Plan:
    """Args:
      elements: of one rank's slice; of an all_reduce all.
      mesh: the tiers of all ranks.
      reason: why it is left to PyTorch, if this is known already.
      layout: the parameters in the slice; None if that is not known.
      is_difference: of a gather, whether it sends differences to what is held.
      along: of a scatter, the tiers of the hop, as `Bucket` has it.
      role: what the report has in the place of the kind.
    """
    shown = role or kind
    tiers = _mesh.tiers_of_group(mesh, group)
    name = "+".join(map(_name_of, layout and layout.types or (dtype,)))
    if not elements or not tiers:
        return Plan(shown, name, elements, group, {}, {}, {}, None,
                    reason or "nothing is sent")
    before = sent_bytes(kind, [elements * dtype.itemsize], tiers, along)
    reason = reason or _reason_of(dtype, layout)
    compiled, sent = None, before
    if not reason:
        assert layout
        (first, count), *also = ((TYPES[each], count) for each, count in layout.parts)
        exact = layout.exact_part
        bucket = Bucket(kind, first, count, tuple(tiers.items()), is_mean, along,
                        also=tuple(also),
                        exact=(TYPES[exact[0]], exact[1]) if exact else ())
        if is_difference:
            bucket = dataclasses.replace(
                bucket, difference=format_of(options.weights), block=layout.block)
        formats = _mesh.gradient_formats(options.gradients, parse_mesh(mesh),
                                         tiers)
        compiled = compile_bucket(
            bucket, bucket.options(options.replace(gradients=formats)))
        reason = compiled.reason
        sent = {tier: compiled.sent.get(tier, 0) for tier in tiers}
        slowest = next(iter(tiers))
        if not reason and before[slowest] <= sent[slowest] < bucket.sent[slowest]:
            reason = _PADDED
    if reason:
        compiled, sent = None, before
    return Plan(shown, name, elements, group, tiers, before, sent, compiled, reason, layout)


def _name_of(dtype: torch.dtype) -> str:
    return TYPES.get(dtype) or str(dtype).removeprefix("torch.")


def _reason_of(dtype: torch.dtype, layout: Layout | None) -> str:
    """Why nothing of a slice is quantized, or an empty string."""
    if dtype not in TYPES and dtype != torch.uint8:
        return (f"expected elements of float32, bfloat16 or float16, but got "
                f"{_name_of(dtype)}")
    if layout is None:
        return _UNKNOWN
    return "" if layout.parts else _EXACT


def block_of(options: Options) -> int:
    """The elements that share a scale."""
    return options.tuning.block or _DEFAULT_BLOCK


#: Why the gather within a secondary group is PyTorch's.
_WITHIN = "within the secondary group weights travel as they are"


@functools.cache
def plan_hops(outer: Plan, mesh: str, group: dist.ProcessGroup,
              inner: dist.ProcessGroup, dtype: torch.dtype, is_held: bool
              ) -> Plan:
    """A gather over `group`, for the report: by the hop `outer` and one over
    `inner` of what the ranks hold, or where they hold it already, by the latter
    alone."""
    elements = outer.elements * dist.get_world_size(outer.group)
    inner_tiers = _mesh.tiers_of_group(mesh, inner)
    within = sent_bytes("all_gather", [elements * dtype.itemsize], inner_tiers)
    hops = [] if is_held else [outer]
    if within:
        hops.append(Plan("all_gather", outer.type, elements, inner, inner_tiers,
                         within, within, None, _WITHIN))
    tiers = _mesh.tiers_of_group(mesh, group)
    # What is held is not sent again.
    before = sent_bytes("all_gather", [outer.elements * dtype.itemsize], tiers)
    return _by_hops(outer, group, tiers, before, hops, "" if is_held else outer.reason)


@functools.cache
def plan_in_vain(outer: Plan, mesh: str, group: dist.ProcessGroup) -> Plan:
    """A hop that was run ahead of a gather over `group` and whose result was not used,
    for the report: nobody would have sent it otherwise."""
    tiers = _mesh.tiers_of_group(mesh, group)
    return _by_hops(outer, group, tiers, dict.fromkeys(tiers, 0), [outer],
                    outer.reason)


@functools.cache
def plan_sum(outer: Plan, dtype: torch.dtype, hops: tuple[Plan, ...],
             is_reduced: bool) -> Plan:
    """A scatter by the hops that were run, for the report; the hop `outer` waits for the
    last micro-batch. `is_reduced` says whether FSDP2 would reduce this one."""
    before = sent_bytes("reduce_scatter", [outer.elements * dtype.itemsize],
                        outer.tiers)
    # Less is sent where a hop waits.
    is_rewritten = outer not in hops or any(hop.compiled for hop in hops)
    return _by_hops(
        dataclasses.replace(outer, type=_name_of(dtype)),
        outer.group, outer.tiers,
        before if is_reduced else dict.fromkeys(before, 0), hops,
        "" if is_rewritten else outer.reason)


def _by_hops(outer: Plan, group: dist.ProcessGroup, tiers: dict[str, int],
             before: dict[str, int], hops: Sequence[Plan], reason: str) -> Plan:
    """A collective over `group` by some hops."""
    after = Counter(dict.fromkeys(tiers, 0))
    for hop in hops:
        after.update(hop.after)
    return Plan(outer.kind, outer.type, outer.elements, group, tiers, before,
                dict(after), None, reason, outer.layout, tuple(hops))


def make_all(makers: Iterable[Callable[[], Plan]]) -> list[Plan]:
    """Makes plans side by side: most of the time goes to processes of the compiler."""
    with concurrent.futures.ThreadPoolExecutor(
            len(os.sched_getaffinity(0))) as pool:
        return [future.result() for future in
                [pool.submit(maker) for maker in makers]]
