# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A C header as a page of the reference.

The page follows the header: its first comment is the introduction, boxed comments
are headings, and a declaration comes with the comment above it. tree-sitter finds
these.
"""

import pathlib
import re

import tree_sitter
import tree_sitter_c

ENTRYPOINT = re.compile(r"^ZPP_RT_(HELD_)?ENTRYPOINT\((\w+),\s*(\w+),",
                        re.MULTILINE)
#: Preprocessor lines that are no part of the interface.
GUARDS = re.compile(
    r"^#ifdef __cplusplus\n.*?^#endif\n|^#if defined\(__GNUC__\)\n.*?^#endif\n"
    r"|^#(?:ifndef|define|endif)\b[^\n]*_H\b[^\n]*\n|^#include <[^\n]*\n"
    r"|^#define ZPP_RT_EXPORT[^\n]*\n", re.MULTILINE | re.DOTALL)


def page(header: pathlib.Path, title: str, entrypoints: pathlib.Path) -> str:
    """Markdown for `header`; operations come from the list `entrypoints`."""
    text = GUARDS.sub("", header.read_text())
    text = text.replace("ZPP_RT_EXPORT ", "").replace("ZPP_RT_EXPORT\n", "")
    parser = tree_sitter.Parser(
        tree_sitter.Language(tree_sitter_c.language()))
    root = parser.parse(text.encode()).root_node
    if root.has_error:
        raise ValueError(f"expected C in {header}, but tree-sitter found errors")
    parts = [f"# {title}\n"]
    comment, is_first = None, True
    for node in root.children:
        source = node.text.decode()
        if node.type == "comment":
            if source.startswith("/*==="):
                parts.append(box(source, is_first))
                comment, is_first = None, False
            else:
                comment = node
            continue
        if source == ";":
            continue
        if node.type == "preproc_include":
            if entrypoints.name in source:
                parts.append(operations(entrypoints))
            continue
        if node.type.startswith("preproc_") and node.type != "preproc_def":
            comment = None
            continue
        # A comment belongs to what follows it directly.
        about = comment if comment is not None and (
            node.start_point.row - comment.end_point.row <= 1) else None
        parts.append(declaration(node, source, about))
        comment = None
    return "\n".join(parts)


def words(comment: str) -> str:
    """The text of a comment, as Markdown."""
    lines = [re.sub(r"^\s*(/\*+|\*\\?|\|\*)?[ ]?", "", line) for line in
             comment.removesuffix("*/").splitlines()]
    lines = [re.sub(r"\s*(\*\||\*/)\s*$", "", line) for line in lines]
    text = "\n".join(lines).strip()
    text = re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](../\1)", text)
    text = re.sub(r"(?<![`\w*])(\*\w+)", r"`\1`", text)
    # Names of the interface are code.
    return re.sub(r"(?<![`\w/])(zpp_\w+|ZPP_\w+|zpp\.\w+)(?![\w/])(?!\.h|`)",
                  r"`\1`", text)


def box(comment: str, is_first: bool) -> str:
    """A heading and what stands below it in the same box."""
    lines = [line for line in comment.splitlines() if "===" not in line]
    text = words("\n".join(lines))
    if is_first:
        # Past the license.
        return text.partition("LLVM-exception")[2].strip() + "\n"
    heading, _, rest = text.partition("\n")
    return f"## {heading.strip()}\n\n{rest.strip()}\n"


def name_of(node) -> str:
    """The name that a declaration declares, or the first one of an enum."""
    if node.type == "enum_specifier" or node.type == "declaration" and any(
            child.type == "enum_specifier" for child in node.children):
        enumerators = re.findall(r"^\s*(?:\{ )?(ZPP_\w+) =", node.text.decode(),
                                 re.MULTILINE)
        enumerators = enumerators or re.findall(r"(ZPP_\w+)", node.text.decode())
        return f"{enumerators[0]}, …" if len(enumerators) > 1 else enumerators[0]
    if node.type == "preproc_def":
        return node.child_by_field_name("name").text.decode()
    node = node.child_by_field_name("declarator") or node
    while inner := node.child_by_field_name("declarator"):
        node = inner
    return node.text.decode()


def declaration(node, source: str, about) -> str:
    text = words(about.text.decode()) if about is not None else ""
    if node.type == "declaration" and "(" in source:
        source = function(source)
    elif node.type != "preproc_def" and not source.endswith(";"):
        source += ";"
    return f"### `{name_of(node)}`\n\n```c\n{source.strip()}\n```\n\n{text}\n"


def function(source: str) -> str:
    """A function's declaration, with a line for each parameter if it is long."""
    source = " ".join(source.split())
    if len(source) <= 80:
        return source
    start, _, parameters = source.partition("(")
    lines = parameters.removesuffix(");").split(", ")
    return f"{start}(\n    " + ",\n    ".join(lines) + ");"


def operations(entrypoints: pathlib.Path) -> str:
    """The functions that the list declares, which differ in names only."""
    rows = [f"| `zpp_rt_{name}`{' (also reads `held`)' if held else ''} | "
            f"`zpp_rt_{descriptor}` | [`zero.{name}`](dialect.md#zero{name}) |"
            for held, name, descriptor in ENTRYPOINT.findall(
                entrypoints.read_text())]
    return "\n".join([
        "### Functions of the operations\n", "```c",
        "zpp_rt_status zpp_rt_NAME(zpp_rt_rank *rank, const DESCRIPTOR *desc,",
        "                          const void *input, [const void *held,]",
        "                          void *output);", "```\n",
        "| function | descriptor | op of the dialect |", "| --- | --- | --- |",
        *rows, ""])

