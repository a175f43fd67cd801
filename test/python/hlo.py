# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of modules that XLA has compiled."""

import re

COMPUTATION = re.compile(r"(?:ENTRY )?%?([\w.-]+) (?:\([^{]*)?\{?.*\{$")
CALL = re.compile(r'custom_call_target="zpp\.(start|wait)"')
FUNCTION = re.compile(r'function = "(\w+)"')


def computations(text: str) -> dict[str, list[str]]:
    """The lines of each computation of a module, by name."""
    found: dict[str, list[str]] = {}
    current = None
    for line in text.splitlines():
        if line and not line[0].isspace():
            match = COMPUTATION.match(line)
            current = match[1] if match and line.endswith("{") else None
            if current:
                found[current] = []
        elif current:
            found[current].append(line.strip())
    return found


def entry(text: str) -> str:
    """The name of the computation that a module begins with."""
    match = re.search(r"^ENTRY %?([\w.-]+)", text, re.MULTILINE)
    return match[1] if match else ""
