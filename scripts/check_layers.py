#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that no #include goes up in the layers of docs/architecture.md, and that no
other layer than Guest writes down names of other people's ops and attributes.

The tables with the columns "layer", "folders" and "may include" are the rules. A
folder `X` stands for lib/X and include/zpp/X, unless its path exists from the
root. A layer may include itself and what its row names, which must be rows above
it; so the layers have no cycle. Headers of other projects belong to the layers
in EXTERNAL if they have one, and may be included anywhere if not.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: Layers of other projects' headers, by how an include begins.
EXTERNAL = {"MLIR": ("mlir/", "llvm/", "llvm-c/", "mlir-c/"),
            "CUDA": ("cuda", "nccl"), "XLA": ("xla/",)}
SOURCES = {".h", ".c", ".cpp", ".cu", ".cuh", ".def"}
#: Names that the layer Guest alone knows; its Names.h gives them to others.
GUEST_NAME = re.compile(r'"(?:chlo|jax|mhlo|sdy|shard|stablehlo)\.\w+"')
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)', re.MULTILINE)


class Layers:
    def __init__(self, root: pathlib.Path):
        self.root = root
        self.errors = []
        #: Layer -> layers that it may include, in the order of the page.
        self.allowed = {name: {name} for name in EXTERNAL}
        #: Folder or file, relative to the root -> layer.
        self.places: dict[str, str] = {}
        page = root / "docs" / "architecture.md"
        for row in rows(page.read_text()):
            self.add(*row)
        if len(self.allowed) == len(EXTERNAL):
            self.errors.append(f"{page.name}: expected a table of layers")
        self.files = sorted(
            path.relative_to(root).as_posix()
            for top in {place.split("/")[0] for place in self.places}
            for path in (root / top).rglob("*") if path.suffix in SOURCES)

    def add(self, name: str, folders: str, includes: str):
        names = [] if includes == "nothing" else includes.split(", ")
        for other in names:
            if other not in self.allowed:
                self.errors.append(f"{name}: expected '{other}' to be a layer "
                                   f"above it in the table")
        self.allowed[name] = {name, *names}
        for folder in re.findall(r"`([^`]+)`", folders):
            found = [place for place in
                     (folder, f"lib/{folder}", f"include/zpp/{folder}")
                     if (self.root / place).exists()]
            if folder in found:
                found = [folder]
            if not found:
                self.errors.append(
                    f"{name}: expected '{folder}' to exist, but got nothing "
                    f"there")
            self.places |= dict.fromkeys(found, name)

    def layer_of(self, path: str) -> str | None:
        """Returns the layer of a file: that of the innermost folder that has one."""
        while path:
            if path in self.places:
                return self.places[path]
            path = path.rpartition("/")[0]
        return None

    def resolve(self, includer: str, name: str) -> str | None:
        """The path of an included file of zpp, from the root."""
        beside = pathlib.PurePosixPath(includer).parent / name
        parts: list[str] = []
        for part in beside.parts:
            parts = parts[:-1] if part == ".." else [*parts, part]
        places = ["/".join(parts), f"include/{name}",
                  f"runtime-kernels/include/{name}", f"lib/Runtime/{name}"]
        for place in places:
            if (self.root / place).is_file():
                return place
        # Made by the build, beside the .td file.
        if name.endswith(".inc") and name.startswith("zpp/"):
            return f"include/{name}"
        ends = [path for path in self.files if path.endswith(f"/{name}")]
        return ends[0] if len(ends) == 1 else None

    def check(self):
        for path in self.files:
            layer = self.layer_of(path)
            if layer is None:
                self.errors.append(f"{path}: expected a layer for its folder")
                continue
            text = (self.root / path).read_text()
            for match in [] if layer == "Guest" else GUEST_NAME.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                self.errors.append(
                    f"{path}:{line}: expected a name of Dialect/Guest/Names.h, but got "
                    f"{match[0]}")
            for match in INCLUDE.finditer(text):
                other = self.included(path, *match.groups())
                if other and other not in self.allowed[layer]:
                    line = text.count("\n", 0, match.start(1)) + 1
                    self.errors.append(
                        f"{path}:{line}: expected {layer} to include "
                        f"{', '.join(sorted(self.allowed[layer]))} only, but "
                        f"got '{match[2]}' of {other}")

    def included(self, path: str, mark: str, name: str) -> str | None:
        for layer, beginnings in EXTERNAL.items():
            if name.startswith(beginnings):
                return layer
        if mark == "<" and not name.startswith("zpp/"):
            return None
        target = self.resolve(path, name)
        if target is None:
            self.errors.append(f"{path}: expected to find '{name}', but got no "
                               f"such file, or several")
            return None
        return self.layer_of(target)


def rows(text: str):
    """The first three columns of the tables of layers."""
    is_inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells[:3] == ["layer", "folders", "may include"]:
            is_inside = True
        elif not line.startswith("|"):
            is_inside = False
        elif is_inside and not cells[0].startswith("---"):
            yield cells[:3]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    layers = Layers(parser.parse_args().root)
    if not layers.errors:
        layers.check()
    print(*layers.errors, sep="\n", end="\n" if layers.errors else "")
    return 1 if layers.errors else 0


if __name__ == "__main__":
    sys.exit(main())
