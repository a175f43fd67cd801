# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rewrite`, for what front ends export and for text."""

import re
from typing import Any

from zpp._compiler import Rewritten, rewrite_text
from zpp._options import Options
from zpp._warn import warn


def rewrite(step: Any, options: Options | None = None, /, **changes: Any
            ) -> Rewritten:
    """Rewrites the collectives of a step into ZeRO++.

        zpp.rewrite(step, mesh="node:2,gpu:4", weights="i8")

    Args:
      step: the result of `zpp.export` or of `jax.jit(...).lower()`; a
        `jax.export.Exported` or its serialized bytes; or a module of StableHLO
        as text, bytecode or portable artifact. All forms except text in the
        generic form need JAX.
      options: a `zpp.Options`.
      **changes: fields of `zpp.Options` that replace those in `options`.

    Raises:
      CompileError: with the compiler's message.
      TypeError, ValueError: if the step or an option is not valid.
    """
    options = (options or Options()).replace(**changes)
    if not isinstance(step, str) or is_pretty(step):
        # The front end for JAX reads all other forms.
        from zpp import jax
        if not isinstance(step, str) and not jax.is_bytecode(step):
            return jax.rewrite_step(jax.as_step(step), options)
        step = jax.to_generic(step)
    target = "portable" if options.target == "auto" else options.target
    result = rewrite_text(step, options, target)
    warn_if_nothing_was_rewritten(
        result, options, "a module has only those that the step names itself "
        "(jax.shard_map); pass the result of jax.export or "
        "jax.jit(...).lower(), for which XLA first makes collectives from "
        "shardings")
    return result


#: An operation of StableHLO or Shardy without quotes around its name.
_PRETTY = re.compile(
    r"^\s*(?:%[\w:]+(?:, %[\w:]+)* = )?(?:stablehlo|chlo|vhlo|sdy)\.\w",
    re.MULTILINE | re.ASCII)


def is_pretty(text: str) -> bool:
    """Whether this module is in the pretty form of StableHLO, which zpp-opt
    cannot read."""
    return _PRETTY.search(text) is not None


def warn_if_nothing_was_rewritten(result: Rewritten, options: Options,
                                  hint: str) -> None:
    """Warns if nothing was rewritten.

    hint: why a step may have no collectives, and what to do about it.
    """
    entries = result.report["collectives"]
    if {options.weights, options.gradients, options.secondary} == {"none"} or (
            any(entry["rewritten"] for entry in entries)):
        return
    warn(f"zpp left all {len(entries)} collectives as they are; "
         f"Rewritten.left_alone says why" if entries else
         f"expected a step with collectives, but got none: {hint}")
