# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forms of StableHLO as text."""

import re

#: An operation of StableHLO or Shardy without quotes around its name.
_PRETTY = re.compile(
    r"^\s*(?:%[\w:]+(?:, %[\w:]+)* = )?(?:stablehlo|chlo|vhlo|sdy)\.\w",
    re.MULTILINE | re.ASCII)


def is_pretty(text: str) -> bool:
    """Whether this module is in the pretty form of StableHLO, which zpp-opt
    cannot read."""
    return _PRETTY.search(text) is not None


def check_no_jaxpr(text: str) -> None:
    """Raises ValueError if this is a printed jaxpr."""
    if text.lstrip().startswith("{ lambda"):
        raise ValueError(
            "expected a module of StableHLO, but got a jaxpr, which says nothing "
            "of devices; write what jax.jit(step).lower(...).as_text() returns, or "
            "zpp.export(step, ...).serialize()")
