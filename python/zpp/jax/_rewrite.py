# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`zpp.rewrite` of what JAX exports."""

import dataclasses

from zpp._compiler import Rewritten, find_bundler, logger, rewrite_text
from zpp._options import Options
from zpp._rewrite import warn_if_nothing_was_rewritten
from zpp.jax import _runtime
from zpp.jax._export import Step


def rewrite_step(step: Step, options: Options) -> Rewritten:
    """`zpp.rewrite` of a step. The result has the rewritten one."""
    result = rewrite_text(step.text(), options, _target_of(step, options))
    warn_if_nothing_was_rewritten(result, options)
    return dataclasses.replace(
        result, step=step.with_text(result.text, result.bundle))


def _target_of(step: Step, options: Options) -> str:
    """What executes the collectives of this step."""
    target, platforms = options.target, step.exported.platforms
    if target == "auto":
        # The runtime's other back end is there to be tested.
        return _cuda_if_possible() if platforms == ("cuda",) else "portable"
    if target != "portable" and platforms != (target,):
        raise ValueError(f"expected a step exported for {target}, but got one "
                         f"for {', '.join(platforms)}")
    return target


def _cuda_if_possible() -> str:
    reason = _runtime.obstacle("cuda")
    if reason is None:
        try:
            find_bundler()
            return "cuda"
        except FileNotFoundError as error:
            reason = str(error)
    logger.warning("target portable instead of cuda: %s", reason)
    return "portable"
