# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forms of a step in files, and functions on text that need no framework."""

import re

#: The forms of a file that zpp-opt reads.
TEXTS = ("generic", "pretty")
#: All: a module of StableHLO as text, bytecode or portable artifact; what `jax.export`
#: serializes; and a module of HLO as text, or as protocol buffer, as XLA dumps it or alone.
FORMS = (*TEXTS, "bytecode", "artifact", "export", "hlo-text", "hlo-proto",
         "hlo-module-proto")
#: An operation of StableHLO or Shardy without quotes around its name.
_PRETTY = re.compile(
    r"^\s*(?:%[\w:]+(?:, %[\w:]+)* = )?(?:stablehlo|chlo|vhlo|sdy)\.\w",
    re.MULTILINE | re.ASCII)
#: A printed jaxpr, after functions that it calls.
_JAXPR = re.compile(r"\s*(?:let .*= )?\{ lambda")
#: The mark in place of values that were not printed.
_ELIDED = "dense_resource<__elided__>"
#: The place of an error in text that was parsed in this process.
_PLACE = re.compile(r'^error: "-":(\d+:\d+): ', re.MULTILINE)
#: The advice of MLIR's parser to its own tools.
_ADVICE = re.compile(r"\.? If this is intended, please [^\n]*")


def read_text(content: bytes) -> tuple[str, str] | None:
    """The form and the text of a module in a file that zpp-opt reads; None of other files.
    Raises ValueError as `check_text`."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    if "\0" in text or text.startswith("HloModule"):
        return None
    check_text(text)
    return "pretty" if _PRETTY.search(text) else "generic", text


def check_text(text: str) -> None:
    """Raises ValueError for a printed jaxpr, and for constants without their values."""
    if _JAXPR.match(text):
        raise ValueError(
            "expected a module of StableHLO, but got a jaxpr, which says nothing "
            "of devices; write what jax.jit(step).lower(...).as_text() returns, or "
            "zpp.export(step, ...).text()")
    if (place := text.find(_ELIDED)) >= 0:
        line = text.count("\n", 0, place) + 1
        raise ValueError(f"line {line}: expected the values of a constant, but got "
                         f"{_ELIDED}; print the module with all of them")


def read_message(error: Exception) -> str:
    """The message of MLIR's parser, without what only its own tools can do."""
    message = str(error).removeprefix("Unable to parse module assembly:\n")
    return _PLACE.sub(r"line \1: ", drop_advice(message))


def drop_advice(message: str) -> str:
    """The same without advice to pass a flag that zpp does not have."""
    return _ADVICE.sub("", message)


def write_bytes(count: float) -> str:
    """Writes a number of bytes: 1536 as "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
