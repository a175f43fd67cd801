# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rewrite`, for what front ends export and for text."""

import dataclasses
import importlib.util
import re
from typing import Any, Literal

from zpp._compiler import Diagnostic, Rewritten, logger, rewrite_text
from zpp._compiler import warn_of_no_collectives
from zpp._options import Options
from zpp._plan import Auto, choose
from zpp._warn import warn


def rewrite(step: Any,
            options: "Options | Auto | Literal['auto'] | None" = None, /,
            **changes: Any) -> Rewritten:
    """Rewrites the collectives of a step into ZeRO++.

        zpp.rewrite(step, mesh="node:2,gpu:4", weights="i8")

    Args:
      step: the result of `zpp.export` or of `jax.jit(...).lower()`; a
        `jax.export.Exported` or its serialized bytes; or a module of StableHLO
        as text, bytecode or portable artifact. All forms except text in the
        generic form need JAX.
      options: a `zpp.Options`; or "auto" or a `zpp.Auto`, for the techniques
        that `zpp.plan` predicts to be the fastest.
      **changes: fields of `zpp.Options` that replace those in `options`.

    Raises:
      CompileError: with the compiler's message.
      TypeError, ValueError: if the step or an option is not valid.
    """
    options, auto = split_auto(options)
    options = options.replace(**changes)
    if not isinstance(step, str) or is_pretty(step):
        # The front end for JAX reads all other forms.
        from zpp import jax
        if not isinstance(step, str) and not jax.is_bytecode(step):
            return jax.rewrite_step(jax.as_step(step), options, auto)
        step = jax.to_generic(step)
    step = complete(step)
    target = "portable" if options.target == "auto" else options.target
    options, why = choose_if(auto, step, options.replace(target=target))
    result = with_reason(rewrite_text(step, options, target), why)
    warn_if_nothing_was_rewritten(result, options)
    return result


def complete(text: str) -> str:
    """A module in the generic form with the collectives that XLA makes of its
    shardings, if it has any and JAX is there."""
    if "sdy.sharding" not in text or importlib.util.find_spec("jax") is None:
        return text
    from zpp import jax
    return jax.complete_module(text)


def split_auto(options: Any) -> tuple[Options, Auto | None]:
    """Options, and what is to choose among them."""
    if isinstance(options, Auto):
        return Options(), options
    if options == "auto":
        return Options(), Auto()
    if not isinstance(options, Options | None):
        raise TypeError(f"expected zpp.Options, zpp.Auto or 'auto', but got "
                        f"{options!r}")
    return options or Options(), None


def choose_if(auto: Auto | None, text: str, options: Options
              ) -> tuple[Options, str | None]:
    """The options to rewrite this module with, and why if they are chosen."""
    if auto is None:
        return options, None
    chosen, why = choose(text, options, auto)
    logger.info("%s", why)
    return chosen, why


def with_reason(result: Rewritten, why: str | None) -> Rewritten:
    """The result with one more remark, if there is a reason."""
    if why is None:
        return result
    remark = Diagnostic("plan", "remark", why)
    return dataclasses.replace(result, remarks=(*result.remarks, remark))


def module_of(step: Any, options: Options) -> tuple[str, Options]:
    """The module of a step in the generic form, with all collectives, and the
    options for it."""
    if isinstance(step, str) and not is_pretty(step):
        return complete(step), options
    from zpp import jax
    if isinstance(step, str) or jax.is_bytecode(step):
        return complete(jax.to_generic(step)), options
    return jax.module_of_step(jax.as_step(step), options)


#: An operation of StableHLO or Shardy without quotes around its name.
_PRETTY = re.compile(
    r"^\s*(?:%[\w:]+(?:, %[\w:]+)* = )?(?:stablehlo|chlo|vhlo|sdy)\.\w",
    re.MULTILINE | re.ASCII)


def is_pretty(text: str) -> bool:
    """Whether this module is in the pretty form of StableHLO, which zpp-opt
    cannot read."""
    return _PRETTY.search(text) is not None


def warn_if_nothing_was_rewritten(result: Rewritten, options: Options,
                                  hint: str | None = None) -> None:
    """Warns if nothing was rewritten.

    hint: why the step has no collectives, and what to do about it; by default
      what the compiler says.
    """
    entries = result.report["collectives"]
    if {options.weights, options.gradients, options.secondary} == {"none"} or (
            any(entry["rewritten"] for entry in entries)):
        return
    if entries:
        warn(f"zpp left all {len(entries)} collectives as they are; "
             f"Rewritten.left_alone says why")
    elif hint is None:
        warn_of_no_collectives(result.remarks)
    else:
        warn(f"expected a step with collectives, but got none: {hint}")
