# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps as folders: compile here, run there.

Beside the files of zpp-bundle, if the step has a host side (see
`zpp._bundle`), there are

    step.mlir    the step in StableHLO, to be read by people
    step.jax     the step as jax.export serializes it
    jax.json     version; donated arguments; the order of the devices that the
                 state depends on; the id of the host side; JAX's version, the
                 platforms and the number of devices; the digests of step.jax and
                 step.mlir
    start/       of a step with state: the program that begins it, as such a folder
    resume/      the same for the one that begins only what follows from the
                 arguments, if there is more
"""

import dataclasses
import os
import pathlib

import jax

from zpp._bundle import MANIFEST, Bundle, about, check_digest, check_entries
from zpp._bundle import read_bundle, read_file, seal, unseal, write_folder
from zpp._compiler import Rewritten
from zpp.jax._export import Step, from_text

NOTES = "jax.json"
#: The folders of the programs that begin state.
BEGINNINGS = ("start", "resume")
VERSION = 2


def save(step: Step | Rewritten, path: str | os.PathLike) -> None:
    """Writes a step for `zpp.load` on another machine.

    That machine needs this package and, for the targets cuda and cpu, the
    runtime library, but no compiler.

    Args:
      step: the result of `zpp.rewrite`, its `step`, or an exported step.
      path: the folder to write, "step.zpp". An older one is replaced.
    """
    step = step.step if isinstance(step, Rewritten) else step
    if not isinstance(step, Step):
        raise TypeError(
            "expected a rewritten zpp.Step, but got " +
            ("rewritten text" if step is None else type(step).__name__))
    write_folder(path, _files_of(step), (MANIFEST, NOTES))


def _files_of(step: Step) -> dict[str, bytes]:
    exported = step.exported
    if calls := step.calls:
        raise ValueError(
            f"expected a step that a folder can hold, but got one that calls Python "
            f"of this process: {', '.join(calls)}. Leave it out of the saved step, "
            f"or rewrite the step where it runs, with zpp.jit or zpp run")
    files = {} if step.bundle is None else dict(step.bundle.files)
    own = {"step.jax": bytes(exported.serialize())}
    if step.bundle is None:
        own["step.mlir"] = step.text().encode()
    files |= own
    for folder in BEGINNINGS:
        if (begins := getattr(step, folder)) is not None:
            parts = _files_of(begins)
            files |= {f"{folder}/{name}": content
                      for name, content in parts.items()}
            # It seals the others.
            own[f"{folder}/{NOTES}"] = parts[NOTES]
    files[NOTES] = seal({
        "version": VERSION, "name": exported.fun_name,
        "jax": jax.__version__, "platforms": list(exported.platforms),
        "devices": exported.nr_devices, "donated": list(step.donated),
        "state": {} if step.state is None else {"order": step.state.order},
        "bundle": "" if step.bundle is None else step.bundle.id}, own)
    return files


def read(path: str | os.PathLike) -> Step:
    """The step in a folder that `save` or zpp-bundle has written."""
    folder = pathlib.Path(path)
    has_notes = (folder / NOTES).exists() or (folder / "step.jax").exists()
    bundle = None
    if not has_notes or (folder / MANIFEST).exists():
        bundle = read_bundle(folder)
    with about(folder):
        if has_notes:
            return _read_saved(folder, bundle)
        # zpp-bundle alone has written it, so only the module is known.
        return dataclasses.replace(from_text(
            bundle.files["step.mlir"].decode(), bundle.devices), bundle=bundle)


def _read_saved(folder: pathlib.Path, bundle: Bundle | None) -> Step:
    notes = unseal(NOTES, read_file(folder, NOTES), VERSION)
    check_entries(NOTES, notes, {"donated": list, "state": dict, "bundle": str})
    found = "" if bundle is None else bundle.id
    if notes["bundle"] != found:
        raise ValueError(
            f"{NOTES}: expected {MANIFEST} of the bundle '{notes['bundle']}', "
            f"but got " + (f"that of '{found}'" if found else "none"))
    contents = {name: read_file(folder, name) for name in notes["sha256"]}
    for name, content in contents.items():
        check_digest(NOTES, notes, name, content)
    exported = jax.export.deserialize(bytearray(contents["step.jax"]))
    begins = [read(folder / name) if f"{name}/{NOTES}" in contents else None
              for name in BEGINNINGS]
    step = Step(exported, tuple(notes["donated"]), None, bundle, None, *begins)
    return step.with_state(notes["state"]["order"]) if notes["state"] else step
