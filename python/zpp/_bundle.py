# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders that hold a rewritten step, NAME.zpp.

zpp-bundle writes the host side of a step for target cuda or cpu:

    bundle.json   version, id, mesh and functions, and the digests of the files
    step.mlir     the step in StableHLO
    libstep.so    the rewritten collectives as host functions

A front end may add its own files. This module has the code that all front ends
share, and everything that reads bundle.json. Only zpp-bundle writes it.

Each JSON file in the folder is *sealed*: "sha256" has the digests of other
files, and "digest" that of the JSON file itself, with 64 zeros in its place.
"""

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import json
import math
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from zpp._files import named, undisturbed
from zpp._option_kinds import parse_mesh

MANIFEST = "bundle.json"
VERSION = 5
_NO_DIGEST = b"0" * 64


@dataclasses.dataclass(frozen=True)
class Bundle:
    """The host side of a step whose collectives the runtime executes.

    Raises:
      ValueError: if the files have changed since zpp-bundle wrote them.
    """

    #: bundle.json, step.mlir and libstep.so.
    files: Mapping[str, bytes] = dataclasses.field(repr=False)

    def __post_init__(self):
        entries = self.manifest
        check_entries(MANIFEST, entries, {"id": str, "mesh": str, "functions": list})
        if self.mesh or self.manifest["functions"]:
            try:
                parse_mesh(self.mesh)
            except ValueError as error:
                raise ValueError(f"{MANIFEST}: {error}") from None
        for name in ("step.mlir", "libstep.so"):
            check_digest(MANIFEST, entries, name, self.files.get(name))
        expected = make_id(self.files["step.mlir"], self.id, self.library)
        if self.id != expected:
            raise ValueError(f"{MANIFEST}: expected the id of these files, "
                             f"{expected}, but got {self.id!a}")

    @functools.cached_property
    def manifest(self) -> dict:
        """bundle.json: {"version", "id", "mesh", "functions", ...}."""
        return unseal(MANIFEST, self.files.get(MANIFEST), VERSION)

    @property
    def library(self) -> bytes:
        """The shared library with the functions. Loading it runs its code."""
        return self.files["libstep.so"]

    @property
    def id(self) -> str:
        """The name of the bundle in the step's custom calls."""
        return self.manifest["id"]

    @property
    def mesh(self) -> str:
        """Tiers, "node:2,gpu:4"; rank r is device r of the step's mesh."""
        return self.manifest["mesh"]

    @property
    def devices(self) -> int:
        """The number of devices of the mesh."""
        return math.prod(parse_mesh(self.mesh).values()) if self.mesh else 1


def read_bundle(folder: pathlib.Path) -> Bundle:
    """The host side in a folder that zpp-bundle or a front end has written."""
    names = (MANIFEST, "step.mlir", "libstep.so")
    with about(folder):
        return Bundle({name: read_file(folder, name) for name in names})


def read_file(folder: pathlib.Path, name: str) -> bytes:
    """The content of a file that a bundle must have."""
    path = folder / name
    # A pipe or a device may have no end.
    if path.exists() and not path.is_file():
        raise ValueError(f"{name}: expected a file, but got something else")
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"expected a bundle at '{folder}', but got no "
                                f"{name} there") from None


def make_id(step: bytes, own: str, library: bytes) -> str:
    """Computes the id of a step, whose calls have the id `own`, and of its library."""
    content = hashlib.sha256()
    for part in (step.replace(b'bundle = "%b"' % own.encode(errors="replace"),
                              b'bundle = ""'), library):
        content.update(b"%d:" % len(part) + part)
    return content.hexdigest()[:32]


def seal(entries: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """A JSON file with these entries and the digests of `files`."""
    text = json.dumps(
        {"digest": _NO_DIGEST.decode(), **entries,
         "sha256": {name: hashlib.sha256(content).hexdigest()
                    for name, content in files.items()}}, indent=1).encode()
    digest = hashlib.sha256(text).hexdigest().encode()
    return text.replace(_NO_DIGEST, digest, 1)


def unseal(name: str, content: bytes | None, version: int) -> dict:
    """The entries of a sealed JSON file."""
    if content is None:
        raise ValueError(f"expected {name}, but got none")
    try:
        entries = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: expected JSON, but got something else: "
                         f"{error}") from None
    check_entries(name, entries, {"version": int})
    if entries["version"] != version:
        raise ValueError(f"{name}: expected version {version}, but got "
                         f"{entries['version']}")
    check_entries(name, entries, {"digest": str, "sha256": dict})
    written = entries["digest"].encode(errors="replace")
    digest = hashlib.sha256(
        content.replace(written, _NO_DIGEST, 1)).hexdigest()
    if digest.encode() != written:
        raise ValueError(f"{name}: expected the file that was written (digest "
                         f"{entries['digest']!a}), but got another one "
                         f"({digest})")
    return entries


def check_digest(manifest: str, entries: Mapping[str, Any], name: str,
                 content: bytes | None) -> None:
    """Raises ValueError if a file is not the one that `manifest` names."""
    if content is None:
        raise ValueError(f"expected {name} beside {manifest}, but got none")
    written = entries["sha256"].get(name)
    digest = hashlib.sha256(content).hexdigest()
    if digest != written:
        raise ValueError(f"{name}: expected the file that was written (sha256 "
                         f"{written!a}), but got another one ({digest})")


def write_folder(path: str | os.PathLike, files: Mapping[str, bytes],
                 markers: tuple[str, ...]) -> None:
    """Writes a folder with these files. It gets its name when it is complete; if anything
    fails, nothing has changed. An older folder with one of the files `markers` is
    replaced, and a symbolic link to it stays a link."""
    folder = pathlib.Path(path)
    with named(folder), undisturbed():
        _write_folder(folder, files, markers)


def _write_folder(folder: pathlib.Path, files: Mapping[str, bytes],
                  markers: tuple[str, ...]) -> None:
    exists = os.path.lexists(folder)
    if exists and not any((folder / name).exists() for name in markers):
        raise FileExistsError(
            f"expected a bundle or nothing at '{folder}', but got something "
            f"else")
    if exists:
        folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
            dir=folder.parent, prefix=f".{folder.name}-",
            ignore_cleanup_errors=True) as temporary:
        # A new folder, because other users cannot read the temporary one.
        parts, old = pathlib.Path(temporary, "new"), pathlib.Path(
            temporary, "old")
        parts.mkdir()
        for name, content in files.items():
            (parts / name).parent.mkdir(exist_ok=True)
            (parts / name).write_bytes(content)
        if exists and _exchange_names(parts, folder):
            return  # What has the name of the new folder now is removed.
        # Where the system cannot exchange names, there is a moment without the
        # folder. What ends the process there should leave the older one.
        if exists:
            folder.rename(old)
        try:
            parts.rename(folder)
        except BaseException:
            if exists:
                old.rename(folder)
            raise


def _exchange_names(a: pathlib.Path, b: pathlib.Path) -> bool:
    """Exchanges the names of two folders at one moment; False where that cannot be."""
    at_cwd, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    if not sys.platform.startswith("linux"):
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    rename.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int,
                       ctypes.c_char_p, ctypes.c_uint]
    return rename(at_cwd, os.fsencode(a), at_cwd, os.fsencode(b),
                  exchange) == 0


@contextlib.contextmanager
def about(folder: pathlib.Path) -> Iterator[None]:
    """Adds the name of the folder to errors."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"'{folder}': {error}") from None


def check_entries(name: str, entries: Any, wanted: Mapping[str, type]) -> None:
    """Raises ValueError if entries of a JSON file are missing."""
    for key, kind in wanted.items():
        found = entries.get(key) if isinstance(entries, dict) else None
        if not isinstance(found, kind) or isinstance(found, bool):
            raise ValueError(f"{name}: expected '{key}' of type "
                             f"{kind.__name__}, but got {found!a}")
