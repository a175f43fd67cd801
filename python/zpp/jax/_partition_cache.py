# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Partitioned programs, kept beside what JAX keeps of compiled ones."""

import hashlib
import os
import pathlib
from collections.abc import Iterable

import jax
import jaxlib
from jax.extend.mlir import ir

from zpp._compiler import logger
from zpp._files import write_file
from zpp.jax._modules import bytecode_of

#: The folder in that of JAX's persistent compilation cache.
FOLDER = "zpp-partitioned"


def place_of(module: ir.Module, sources: Iterable[str]) -> pathlib.Path | None:
    """The file for the partitioned program of a module, which also depends on some files
    of Python. None where JAX keeps nothing, or not in a folder."""
    folder = jax.config.jax_compilation_cache_dir
    if not folder or not jax.config.jax_enable_compilation_cache or "://" in folder:
        return None
    digest = hashlib.sha256(bytecode_of(module))
    for part in (jax.__version__, jaxlib.__version__, os.environ.get("XLA_FLAGS")):
        digest.update(repr(part).encode() + b"\0")
    for source in sources:
        digest.update(pathlib.Path(source).read_bytes())
    return pathlib.Path(folder) / FOLDER / f"{digest.hexdigest()}.mlir"


def read(place: pathlib.Path) -> str | None:
    try:
        return place.read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.info("the partitioned program in %s cannot be read: %s", place, error)
        return None


def write(place: pathlib.Path, text: str) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_file(place, text.encode())
    except OSError as error:
        logger.info("the partitioned program is not kept: %s", error)
