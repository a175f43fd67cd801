#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks what README.md, CONTRIBUTING.md and docs/ say about the tree.

Relative links lead to a file and, with a fragment, to a heading. Each row of the
README's table names a pass that zpp-opt has, its file and its test; no pass is
missing.

    check_docs.py ZPP_OPT
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)")
ROW = re.compile(r"^\|[^|]*\| `([\w-]+)` \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
FLAG = re.compile(r"^ +--((?:zero|convert-zero)-[\w-]+) ", re.MULTILINE)


def anchor(heading):
    """The fragment that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def check_links(page):
    for target, fragment in LINK.findall(page.read_text()):
        path = page.parent / target if target else page
        if not path.exists():
            yield f"{page.name}: expected '{target}' to exist, but got nothing there"
        elif fragment:
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            if fragment not in map(anchor, headings):
                yield f"{page.name}: expected heading '{fragment}' in {path.name}"


def check_table(zpp_opt):
    text = subprocess.run(
        [zpp_opt, "--help"], check=True, text=True, stdout=subprocess.PIPE
    ).stdout
    flags = set(FLAG.findall(text))
    rows = ROW.findall((ROOT / "README.md").read_text())
    for flag, source, test in rows:
        if flag not in flags:
            yield f"README.md: expected pass '{flag}' in zpp-opt --help"
        for path in (f"lib/{source}", f"test/{test}"):
            if not (ROOT / path).exists():
                yield f"README.md: expected '{path}' to exist, but got nothing there"
    for flag in sorted(flags - {row[0] for row in rows}):
        yield f"README.md: expected pass '{flag}' in the table"


def main():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]
    errors = [error for page in pages for error in check_links(page)]
    errors += check_table(sys.argv[1])
    print(*errors, sep="\n", end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
