#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the tables of options in docs/ from python/zpp/_options.py."""

import argparse
import pathlib
import re
import sys
from collections.abc import Mapping

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
from zpp._options import Option, Options, SharedTuning, Tuning, describe  # noqa: E402
from zpp._torch_options import TorchOptions  # noqa: E402

#: Words in texts that are code.
CODE = re.compile(r"`[^`]*`|\{[^}]*\}|\(\"[^)]*\)|\[0\]\['head'\]|"
                  r"\bDeviceMesh\b|jax[.]tree_util[.]keystr|\bi8:i4\b|:delta\b|\bi[48]\b")


def table(options: Mapping[str, Option], page: str, folder: str = "") -> str:
    """A Markdown table.

    page: the file that it is in.
    folder: the way from there to docs/.
    """
    lines = ["| option | values | default | meaning |",
             "| --- | --- | --- | --- |"]
    for name, option in options.items():
        values = (", ".join(map(code, option.kind.words)) or
                  values_of(option.kind.values))
        default = option.default_text or code(option.default)
        text = CODE.sub(lambda match: code(match[0].strip("`")), option.help)
        if option.more:
            target = folder + option.more.removeprefix(page)
            text += f" [More]({target})"
        lines.append(f"| {code(name)} | {values} | {default} | {text} |")
    return "\n".join(lines)


def code(word: str) -> str:
    return f"`{word}`"


def values_of(text: str) -> str:
    return re.sub(r"\bnone\b|\bmeasured\b|\ball\b|0,3-7|[A-Z][\w:=,.]*[A-Z.]\w*|\bF\b",
                  lambda match: code(match[0]), text)


def by_command(kind: type, prefix: str = "") -> dict[str, Option]:
    """Options as the command line has them."""
    return {prefix + name.replace("_", "-"): option
            for name, option in describe(kind).items()}


#: (page, name of the table) -> what is between its marks.
TABLES = {
    ("using.md", "options"): lambda: table(by_command(Options), "using.md"),
    ("using.md", "tuning"): lambda: table(by_command(Tuning, "tuning."),
                                          "using.md"),
    ("torch.md", "options"): lambda: table(describe(TorchOptions), "torch.md"),
    ("torch.md", "tuning"): lambda: table(describe(SharedTuning), "torch.md"),
}


def rewrite(text: str, name: str, content: str) -> str:
    """A page with one table replaced."""
    begin, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"expected '{begin.strip()}' and '{end.strip()}' once, "
                         f"but got {text.count(begin)} and {text.count(end)}")
    before, rest = text.split(begin)
    return before + begin + content + end + rest.split(end)[1]


def find_differences() -> list[str]:
    """The tables that are not what the options say."""
    different = []
    for (page, name), make in TABLES.items():
        text = (ROOT / "docs" / page).read_text()
        if rewrite(text, name, make()) != text:
            different.append(f"docs/{page}: {name}")
    return different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true",
                        help="write nothing; fail if a table differs")
    if parser.parse_args().check:
        different = find_differences()
        for name in different:
            print(f"{name}: expected the table that scripts/option_tables.py "
                  f"writes, but got another one")
        return 1 if different else 0
    for (page, name), make in TABLES.items():
        path = ROOT / "docs" / page
        path.write_text(rewrite(path.read_text(), name, make()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
