# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options of `zpp.torch`: what applies to models of fully_shard."""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from zpp import _option_kinds as kinds
from zpp._options import SharedOptions, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TorchOptions(SharedOptions):
    """How the collectives of a model are to be replaced.

    None means the default.

    Raises:
      ValueError: if a value is not valid.
    """

    mesh: str | Mapping[str, int] | Any | None = option(
        kinds.MESH, None,
        "The tiers of all ranks, from the slowest link to the fastest, or a "
        "DeviceMesh of all ranks whose dims have names, whose process groups zpp "
        "then uses.", default_text="the mesh of fully_shard if it has several dims with names "
        "and all ranks, otherwise the hosts, and the ranks on each")
    weights: str | None = option(
        kinds.WEIGHTS, "i8",
        "The format in which weights are gathered (qwZ). With :delta they are "
        "sent as differences to what the secondary group holds.",
        more="torch.md#weights-by-difference")
    secondary: str | int | None = option(
        kinds.GROUP, None,
        "The group that keeps a second copy of the weights, as long as they do "
        "not change (hpZ). Backward passes, further micro-batches, evaluation "
        "and frozen weights gather within it.",
        default_text="none; with :delta the innermost tier")
    accumulate: str | int | None = option(
        kinds.GROUP, "none",
        "The group within which the gradients of micro-batches are summed, in "
        "float32, until the last one of an update: a tier with the faster ones, or "
        "their number of devices. Only then they are sent to other groups.",
        more="torch.md#once-per-update", is_compilers=False)

    exact: str | Sequence[str] | None = option(
        kinds.NAMES, None,
        "Parameters whose weights and gradients travel as they are, by their names: "
        "patterns in which * stands for anything. Those of one dim do in any case.",
        more="torch.md#what-is-not-rounded", default_text="none", is_compilers=False)
    moments: str | None = option(
        kinds.choice("none", "i8"), "none",
        "Where an optimizer orthogonalizes momenta (Muon): the format in which they "
        "are gathered between nodes.", more="torch.md#momenta-of-muon", is_compilers=False)

    module: typing.ClassVar[str] = "zpp.torch"
