# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rewrite` and `plan`, for what front ends export and for text.

The roof of the package: front ends do not import it.
"""

import importlib.util
from typing import Any, Literal

from zpp._compiler import Rewritten, rewrite_text
from zpp._compiler import warn_if_nothing_was_rewritten, with_choices
from zpp._effects import warn_of_no_effect
from zpp._options import Options
from zpp._plan import Auto, Plan, plan_text, split_auto
from zpp._text import check_text


def rewrite(step: Any,
            options: "Options | Auto | Literal['auto'] | None" = None, /,
            **changes: Any) -> Rewritten:
    """Rewrites the collectives of a step into ZeRO++.

        zpp.rewrite(step, mesh="node:2,gpu:4", weights="i8")

    Args:
      step: the result of `zpp.export` or of `jax.jit(...).lower()`; a
        `jax.export.Exported` or its serialized bytes; or a module of StableHLO
        as text, bytecode or portable artifact. All forms except text need
        JAX.
      options: a `zpp.Options`; or "auto" or a `zpp.Auto`, for the techniques
        that `zpp.plan` predicts to be the fastest.
      **changes: fields of `zpp.Options` that replace those in `options`.

    Raises:
      CompileError: with the compiler's message.
      TypeError, ValueError: if the step or an option is not valid.
    """
    options, auto = split_auto(options)
    options = options.replace(**changes)
    step = _read(step)
    if not isinstance(step, str):
        from zpp import jax
        return jax.rewrite_step(step, options, auto)
    target = "portable" if options.target == "auto" else options.target
    result = rewrite_text(step, options, target, machine=auto.machine() if auto else None)
    options = with_choices(options, result)
    warn_if_nothing_was_rewritten(result, options)
    warn_of_no_effect(result, options)
    return result


def plan(step: Any, options: Options | None = None, /, *,
         device: str | None = None, compute: float | None = None,
         memory_limit: int | None = None, limits: bool = False,
         **changes: Any) -> Plan:
    """Predicts what a step takes, as it is written and with each technique.

        print(zpp.plan(step, mesh="node:64,gpu:16", device="h100",
                       links="node=50gbit,gpu=400gbyte").table())

    Nothing runs and no device is needed; `step` may be for any number of them.

    Args:
      step: as for `zpp.rewrite`.
      options: a `zpp.Options`, of which `links` says how fast the tiers are.
      device: "h100" or another name that `zpp-opt --zero-report` knows, or the
        peak in 16 bits and the memory of one: "989tflops,4800gbyte".
      compute: seconds that a device computes in one step as it is written, if
        that was measured. Otherwise it follows from `device`.
      memory_limit: bytes that a device may need at the peak, for `Plan.best`.
      limits: predicts the fastest plan also with half, twice and all of its in-flight
        limit.
      **changes: fields of `zpp.Options` in place of those in `options`.

    Raises:
      CompileError: with the compiler's message.
      TypeError, ValueError: where the step or an option is something else.
    """
    options = (options or Options()).replace(**changes)
    step = _read(step)
    if not isinstance(step, str):
        from zpp import jax
        step, options = jax.module_of_step(step, options)
    return plan_text(step, options, Auto(device, compute, memory_limit), limits)


#: The shardings of a module, by Shardy and by other partitioners.
_SHARDINGS = ("sdy.sharding", "mhlo.sharding")


def complete(text: str) -> str:
    """A module with the collectives that XLA makes of its shardings, if it has any and
    JAX is there. Raises ValueError for what is no module."""
    check_text(text)
    if not any(name in text for name in _SHARDINGS) or (
            importlib.util.find_spec("jax") is None):
        return text
    from zpp import jax
    return jax.complete_module(text)


def _read(step: Any) -> Any:
    """Returns the text of a module with all collectives, or a step for JAX's front end."""
    if not isinstance(step, str):
        from zpp import jax
        step = jax.read_step(step)
    return complete(step) if isinstance(step, str) else step
