# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewritten steps as folders: compile here, run there.

NAME.zpp holds what zpp-bundle makes of a step for target cuda or cpu, and what
JAX knows of it:

    bundle.json   version, id, mesh and functions; under "jax" the version, the
                  platforms, the number of devices and what is donated
    step.mlir     the step in StableHLO
    libstep.so    the rewritten collectives as host functions; not of a step
                  for target portable
    step.jax      the step as jax.export serializes it; not of a folder that
                  zpp-bundle alone has written
"""

import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
from typing import Any

import jax

from zpp._export import Bundle, Step, from_text

VERSION = 3


def save(step: Any, path: str | os.PathLike) -> None:
    """Writes a step for `zpp.load` on another machine.

    That machine needs this package and, for the targets cuda and cpu, the
    runtime library, but no compiler.

    Args:
      step: what `zpp.rewrite` returned, its `step`, or a step as exported.
      path: the folder to write, "step.zpp". An older one is replaced.
    """
    step = step if isinstance(step, Step) else step.step
    if step is None:
        raise TypeError("expected a rewritten zpp.Step, but got rewritten text")
    folder = pathlib.Path(path)
    if folder.exists() and not (folder / "bundle.json").exists():
        raise FileExistsError(
            f"expected a bundle or nothing at '{folder}', but got something "
            f"else")
    manifest: dict[str, Any] = {"version": VERSION}
    if step.bundle is not None:
        manifest |= step.bundle.manifest
    exported = step.exported
    manifest["jax"] = {
        "name": exported.fun_name, "version": jax.__version__,
        "platforms": list(exported.platforms),
        "devices": exported.nr_devices, "donated": list(step.donated)}
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Complete before it gets its name.
    with tempfile.TemporaryDirectory(
            dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        parts = pathlib.Path(temporary, folder.name)
        parts.mkdir()
        (parts / "step.mlir").write_text(step.text())
        (parts / "step.jax").write_bytes(exported.serialize())
        if step.bundle is not None:
            (parts / "libstep.so").write_bytes(step.bundle.library)
        (parts / "bundle.json").write_text(json.dumps(manifest, indent=1))
        if folder.exists():
            shutil.rmtree(folder)
        parts.rename(folder)


def read(path: str | os.PathLike) -> Step:
    """The step in a folder that `save` or zpp-bundle has written."""
    folder = pathlib.Path(path)
    manifest = _manifest(folder)
    bundle = read_bundle(folder) if "id" in manifest else None
    if "jax" not in manifest:
        step = from_text((folder / "step.mlir").read_text(), bundle.devices)
        return dataclasses.replace(step, bundle=bundle)
    exported = jax.export.deserialize(
        bytearray((folder / "step.jax").read_bytes()))
    return Step(exported, tuple(manifest["jax"]["donated"]), None, bundle)


def read_bundle(folder: pathlib.Path) -> Bundle:
    """Only the host side."""
    manifest = _manifest(folder)
    manifest.pop("jax", None)
    return Bundle(manifest, (folder / "libstep.so").read_bytes())


def _manifest(folder: pathlib.Path) -> dict:
    path = folder / "bundle.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"expected a bundle at '{folder}', but got no {path.name} there")
    manifest = json.loads(path.read_text())
    if manifest.get("version") != VERSION:
        raise ValueError(f"{path}: expected version {VERSION}, but got "
                         f"{manifest.get('version')}")
    return manifest
