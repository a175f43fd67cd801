# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Partitioned programs, kept beside what JAX keeps of compiled ones."""

import hashlib
import os
import pathlib

import jax
import jaxlib

from zpp._compiler import logger
from zpp._files import write_file

#: The folder in that of JAX's persistent compilation cache.
FOLDER = "zpp-partitioned"


def place_of(exported: jax.export.Exported, mesh: jax.sharding.Mesh,
             source: str) -> pathlib.Path | None:
    """The file for the partitioned program of a step. None where JAX keeps nothing, or
    not in a folder.

    Args:
      exported: the step.
      mesh: the devices that it is partitioned for.
      source: the file of Python on which the program depends, too.
    """
    folder = jax.config.jax_compilation_cache_dir
    if not folder or not jax.config.jax_enable_compilation_cache or "://" in folder:
        return None
    device = mesh.devices.flat[0]
    context = jax.sharding.get_mesh()
    digest = hashlib.sha256(exported.mlir_module_serialized)
    for part in (
            jax.__version__, jaxlib.__version__, device.client.platform_version,
            device.platform, device.device_kind, mesh.axis_names, mesh.devices.shape,
            [each.id for each in mesh.devices.flat],
            context if isinstance(context, jax.sharding.Mesh) else None,
            jax.config.jax_use_shardy_partitioner, os.environ.get("XLA_FLAGS"),
            exported.nr_devices, exported.module_kept_var_idx, exported.in_avals,
            exported.out_avals, exported.in_shardings_hlo, exported.out_shardings_hlo,
            exported._in_named_shardings, exported._out_named_shardings):
        digest.update(repr(part).encode() + b"\0")
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
