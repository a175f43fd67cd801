# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Imports among the files of the package."""

import ast
import graphlib
import pathlib

import pytest
from conftest import ROOT


def modules(folder: pathlib.Path) -> dict[str, str]:
    """The source of each module below a folder, by its name."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path.read_text()
    return found


def imported(source: str, known: set[str]) -> set[str]:
    """Those of the known modules that a source imports, anywhere in it; what is
    there for type checkers alone does not count."""
    found = set()

    def visit(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(source))
    return found & known


def order(sources: dict[str, str]) -> list[str]:
    """The modules, each after those that it imports."""
    return list(graphlib.TopologicalSorter({
        name: imported(source, set(sources)) - {name}
        for name, source in sources.items()}).static_order())


def test_no_module_imports_itself_through_others():
    found = order(modules(ROOT / "python"))
    assert found.index("zpp._compiler") < found.index("zpp.jax._export")
    # The roof, which no front end imports.
    assert found.index("zpp.jax") < found.index("zpp._rewrite")


def test_a_circle_is_found():
    sources = {"a": "import b", "b": "def f():\n    from a import f",
               "c": "from typing import TYPE_CHECKING\n"
                    "if TYPE_CHECKING:\n    import d", "d": "import c"}
    with pytest.raises(graphlib.CycleError):
        order(sources)
    assert order({name: sources[name] for name in "cd"}) == ["c", "d"]
