# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options of `zpp.torch`: what applies to models of fully_shard."""

import typing
from collections.abc import Mapping
from typing import Any

from zpp import _option_kinds as kinds
from zpp._options import (Options, SharedOptions, SharedTuning, describe,
                          option, options_type)
from zpp._warn import warn


@options_type
class TorchTuning(SharedTuning):
    """Options for experts; the defaults suit most models.

    Raises:
      ValueError: if a value is not valid.
    """


@options_type
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
        kinds.choice("none", *kinds.FORMATS,
                     *(f"{form}:delta" for form in kinds.FORMATS)), "i8",
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

    tuning_type: typing.ClassVar[type[SharedTuning]] = TorchTuning
    module: typing.ClassVar[str] = "zpp.torch"


def as_torch_options(options: Options) -> TorchOptions:
    """Those of `zpp.Options`, which an earlier release took, with a warning.

    Raises:
      ValueError: if one is given that has no meaning here.
    """
    warn("zpp.Options are of steps in JAX, and work here in this release only; "
         "write zpp.torch.Options", FutureWarning)
    kept, others = _split(options, TorchOptions)
    tuning, more = _split(options.tuning, TorchTuning)
    if others or more:
        raise ValueError(
            f"expected options among {', '.join(describe(TorchOptions))} and "
            f"tuning, but got {', '.join([*others, *more])}")
    return TorchOptions(**kept, tuning=TorchTuning(**tuning))


def _split(options: Any, kind: type) -> tuple[dict[str, Any], list[str]]:
    """The options that `kind` has, and the names of others that are given."""
    known = describe(kind)
    values = {name: getattr(options, name) for name in describe(type(options))}
    return ({name: value for name, value in values.items() if name in known},
            [name for name, value in values.items() if name not in known
             and value not in (None, "none", "auto", False)])
