#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks what README.md, CONTRIBUTING.md, SECURITY.md and docs/ say about the tree.

- Relative links lead to a file and, if they have a fragment, to a heading.
- The table of passes in docs/architecture.md has every pass of zpp-opt, with its file and
  its test.
- The table of attributes in docs/architecture.md has every zpp.* attribute that a
  header names, and no other.
- The facts of docs/xla.md (X1 and so on) are those that the sources name.
- The numbers in README.md and docs/*.md are those of docs/data/measured.json,
  as scripts/write_numbers.py writes them.
- Quoted messages are in a test, or word for word in the source. A quote is a line
  of a fenced block with the info string "message", or code in a table's column
  whose header begins with "message". Numbers in it stand for any number, and "…"
  stands for any text.
"""

import argparse
import functools
import pathlib
import re
import subprocess
import sys

import write_numbers

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)")
ROW = re.compile(r"^\|[^|]*\| `([\w-]+)` \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
ATTRIBUTE_ROW = re.compile(r"^\| `(zpp\.\w+)`", re.MULTILINE)
ATTRIBUTE = re.compile(r'StringLiteral k\w+Attr = "(zpp\.\w+)"')
FACT = re.compile(r"\(((?:X\d+(?:, )?)+)\)")
FACT_ROW = re.compile(r"^\| (X\d+) \|", re.MULTILINE)
FLAG = re.compile(r"^ +--((?:zero|convert-zero)-[\w-]+) ", re.MULTILINE)
MESSAGES = re.compile(r"^```message\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Folders that messages come from, and in which tests expect them.
SOURCES = ("lib", "tools", "python", "scripts", "test", "unittests",
           "runtime-kernels")
#: Between two string literals that make one.
JOINT = re.compile(r'"\s*\n\s*[fr]*"')


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


def check_passes(zpp_opt, root):
    text = subprocess.run(
        [zpp_opt, "--help"], check=True, text=True, stdout=subprocess.PIPE
    ).stdout
    flags = set(FLAG.findall(text))
    found = set()
    page = root / "docs" / "architecture.md"
    for flag, source, test in ROW.findall(page.read_text()):
        found.add(flag)
        if flag not in flags:
            yield f"{page.name}: expected pass '{flag}' in zpp-opt --help"
        for path in (f"lib/{source}", f"test/{test}"):
            if not (root / path).exists():
                yield f"{page.name}: expected '{path}' to exist, but got nothing there"
    for flag in sorted(flags - found):
        yield f"expected pass '{flag}' in the table of architecture.md"


def check_attributes(root):
    named = {name for path in (root / "include").rglob("*.h")
             for name in ATTRIBUTE.findall(path.read_text())}
    described = set(ATTRIBUTE_ROW.findall(
        (root / "docs" / "architecture.md").read_text()))
    for name in sorted(named - described):
        yield f"architecture.md: expected attribute '{name}' in its table"
    for name in sorted(described - named):
        yield f"architecture.md: expected a header to name attribute '{name}'"


def check_facts(root):
    named = {fact for folder in ("lib", "include") for path in (root / folder).rglob("*")
             if path.suffix in (".h", ".cpp")
             for facts in FACT.findall(path.read_text()) for fact in facts.split(", ")}
    page = root / "docs" / "xla.md"
    described = set(FACT_ROW.findall(page.read_text())) if page.exists() else set()
    for fact in sorted(named - described):
        yield f"xla.md: expected a row of {fact}, which the sources name"
    for fact in sorted(described - named):
        yield f"xla.md: expected the sources to name {fact}"


def check_numbers(root):
    data = root / "docs" / "data" / "measured.json"
    if not data.exists():
        return
    measured = write_numbers.Measured(data)
    for path in write_numbers.pages(root):
        text = path.read_text()
        try:
            expected = write_numbers.updated(text, measured)
        except ValueError as error:
            yield f"{path.name}: {error}"
            continue
        if text == expected:
            continue
        for line, right in zip(text.splitlines(), expected.splitlines()):
            if line != right:
                yield (f"{path.name}: expected the numbers of {data.name}, "
                       f"'{right}', but got '{line}'; scripts/write_numbers.py "
                       f"writes them")
                break
        else:
            yield (f"{path.name}: expected as many lines with numbers as "
                   f"scripts/write_numbers.py writes; run it")


def quotes(text):
    """The messages that a page quotes."""
    for block in MESSAGES.findall(text):
        yield from filter(None, map(str.strip, block.splitlines()))
    columns = None
    for line in text.splitlines():
        if not line.startswith("|"):
            columns = None
            continue
        cells = line.strip().strip("|").split("|")
        if columns is None:
            columns = [place for place, cell in enumerate(cells)
                       if cell.strip().lower().startswith("message")]
        else:
            for place in columns:
                yield from re.findall(r"`([^`]+)`", cells[place])


@functools.cache
def sources(root):
    """The text of all sources and tests, literals joined."""
    return [
        JOINT.sub("", path.read_text(errors="replace"))
        for folder in SOURCES for path in sorted((root / folder).rglob("*"))
        if path.is_file() and path.suffix in (
            ".cpp", ".h", ".py", ".sh", ".mlir", ".test", ".td")]


def check_quotes(page, root):
    for quote in quotes(page.read_text()):
        pattern = "".join(
            r"\d+" if part.isdigit() else ".*" if part in ("…", "...")
            else re.escape(part)
            for part in re.split(r"(\d+|…|\.\.\.)", quote))
        if not any(re.search(pattern, text) for text in sources(root)):
            yield (f"{page.name}: expected the message '{quote}' in a test or "
                   f"the source, but got nothing like it")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    arguments = parser.parse_args()
    root = arguments.root
    pages = [page for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")
             if (page := root / name).exists()]
    pages += sorted(root.glob("docs/*.md"))
    errors = [error for page in pages for error in check_links(page)]
    errors += [error for page in pages for error in check_quotes(page, root)]
    errors += check_attributes(root)
    errors += check_facts(root)
    errors += check_numbers(root)
    errors += check_passes(arguments.build / "bin" / "zpp-opt", root)
    print(*errors, sep="\n", end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
