# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewritten steps as folders: compile here, run there.

NAME.zpp holds what zpp-bundle makes of a step for target cuda or cpu, and what
JAX knows of it:

    bundle.json   version, id, mesh and functions; under "sha256" the digests of
                  the other files; under "jax" the version, the platforms, the
                  number of devices and what is donated
    step.mlir     the step in StableHLO
    libstep.so    the rewritten collectives as host functions; not of a step
                  for target portable
    step.jax      the step as jax.export serializes it; not of a folder that
                  zpp-bundle alone has written
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
from typing import Any

import jax

from zpp.jax._export import Bundle, Step, from_text

VERSION = 4


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
    manifest: dict[str, Any] = {} if step.bundle is None else dict(
        step.bundle.manifest)
    manifest["version"] = VERSION
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
        files = {"step.mlir": step.text().encode(),
                 "step.jax": bytes(exported.serialize())}
        if step.bundle is not None:
            files["libstep.so"] = step.bundle.library
        for name, content in files.items():
            (parts / name).write_bytes(content)
        manifest["sha256"] = {name: hashlib.sha256(content).hexdigest()
                              for name, content in files.items()}
        (parts / "bundle.json").write_text(json.dumps(manifest, indent=1))
        if folder.exists():
            shutil.rmtree(folder)
        parts.rename(folder)


def read(path: str | os.PathLike) -> Step:
    """The step in a folder that `save` or zpp-bundle has written.

    Raises:
      ValueError: where it is not as it was written.
    """
    folder = pathlib.Path(path)
    manifest = _manifest(folder)
    bundle = read_bundle(folder) if "id" in manifest else None
    if "jax" not in manifest:
        step = from_text(_content(folder, "step.mlir", manifest).decode(),
                         bundle.devices)
        return dataclasses.replace(step, bundle=bundle)
    exported = jax.export.deserialize(
        bytearray(_content(folder, "step.jax", manifest)))
    return Step(exported, tuple(manifest["jax"]["donated"]), None, bundle)


def read_bundle(folder: pathlib.Path) -> Bundle:
    """Only the host side."""
    manifest = _manifest(folder)
    library = _content(folder, "libstep.so", manifest)
    for key in ("jax", "sha256"):
        manifest.pop(key, None)
    return Bundle(manifest, library)


def _content(folder: pathlib.Path, name: str, manifest: dict) -> bytes:
    """A file of a bundle, which is as it was when the manifest was written."""
    content = (folder / name).read_bytes()
    wanted = manifest["sha256"].get(name)
    digest = hashlib.sha256(content).hexdigest()
    if digest != wanted:
        raise ValueError(f"{folder / name}: expected the file that was written "
                         f"(sha256 {wanted}), but got another one ({digest})")
    return content


def _manifest(folder: pathlib.Path) -> dict:
    path = folder / "bundle.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"expected a bundle at '{folder}', but got no {path.name} there")
    try:
        manifest = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, but got something else: "
                         f"{error}") from None
    _check(path, manifest, {"version": int})
    if manifest["version"] != VERSION:
        raise ValueError(f"{path}: expected version {VERSION}, but got "
                         f"{manifest['version']}")
    _check(path, manifest, {"sha256": dict})
    if "id" in manifest or "jax" not in manifest:
        _check(path, manifest, {"id": str, "mesh": str, "functions": list})
    if "jax" in manifest:
        _check(path, manifest["jax"], {"donated": list})
    return manifest


def _check(path: pathlib.Path, entries: Any, wanted: dict[str, type]) -> None:
    """Raises ValueError where entries of a manifest are missing."""
    for key, kind in wanted.items():
        found = entries.get(key) if isinstance(entries, dict) else None
        if not isinstance(found, kind):
            raise ValueError(f"{path}: expected '{key}' of type "
                             f"{kind.__name__}, but got {found!r}")
