# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps as functions to call."""

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax

from zpp.jax import _runtime
from zpp.jax._export import Step
from zpp.jax._save import read
from zpp.jax._state import check_stateless


def load(step: Step | str | os.PathLike, compiler_options: dict | None = None
         ) -> Callable:
    """The exported function as one that is called like the original.

    Donated arguments stay donated: `jax.export` loses donation, so the function
    is jitted again with what `step` has recorded.

    A folder is code: its step runs in this process, and for the targets cuda
    and cpu its library is loaded. Load only folders that you trust. Digests
    detect files that have changed, but do not tell who wrote them.

    Args:
      step: a step, or the folder of one that `zpp.save` or zpp-bundle wrote. In
        the latter case the function takes the arguments of the module and
        returns a list.
      compiler_options: as in `jax.jit`; an export cannot keep them.
    """
    step = step if isinstance(step, Step) else read(step)
    check_stateless(step)
    exported = step.exported
    flat = load_flat(step, compiler_options)

    def call(*args, **kwargs):
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != exported.in_tree:
            raise TypeError(
                f"expected arguments of the structure {exported.in_tree}, but "
                f"got {tree}")
        check_not_traced(leaves)
        prepare(step, leaves)
        with device_context(step, leaves):
            results = flat(*leaves)
        _runtime.keep(step, results)
        return jax.tree.unflatten(exported.out_tree, results)

    call.__name__ = exported.fun_name
    return call


def load_flat(step: Step, compiler_options: dict | None = None
              ) -> jax.stages.Wrapped:
    """Like `load`, but a jitted function from flat arguments to flat results.
    The caller must call `prepare`."""
    exported = step.exported

    def call(*leaves):
        args, kwargs = jax.tree.unflatten(exported.in_tree, leaves)
        return jax.tree.leaves(exported.call(*args, **kwargs))

    call.__name__ = exported.fun_name
    return jax.jit(call, donate_argnums=step.donated,
                   compiler_options=compiler_options)


def check_not_traced(leaves: Sequence[Any]) -> None:
    """Raises TypeError if arguments are traced: the devices of a rewritten step
    must be known when it is called."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        raise TypeError(
            "expected arrays, but got values that jax.jit or another "
            "transformation traces; call a rewritten step outside of it")


def prepare(step: Step, leaves: Sequence[Any]) -> None:
    """Prepares the runtime for a call of the step with these arguments. Does
    nothing if it is ready or the step does not need it."""
    if step.uses_runtime:
        _runtime.load_bundle(step.bundle, _devices(step, leaves))


def device_context(step: Step, leaves: Sequence[Any]):
    """The context in which to call a loaded step.

    A function knows its devices from its `shard_map`, but an exported one only
    from its arguments. If none of them is on the mesh, the mesh must come from
    the context.
    """
    if step.mesh is None or any(
            isinstance(leaf, jax.Array) and leaf.committed for leaf in leaves):
        return contextlib.nullcontext()
    return jax.set_mesh(step.mesh)


def _devices(step: Step, leaves: Sequence[Any]) -> tuple[jax.Device, ...]:
    """The devices of a call, in the order in which XLA numbers them."""
    count = step.exported.nr_devices
    shardings = (getattr(leaf, "sharding", None) for leaf in leaves)
    meshes = [sharding.mesh for sharding in shardings
              if isinstance(sharding, jax.sharding.NamedSharding)]
    for mesh in (*meshes, step.mesh, jax.sharding.get_mesh()):
        if isinstance(mesh, jax.sharding.Mesh) and mesh.size == count:
            return tuple(mesh.devices.flat)
    raise ValueError(
        f"expected an argument on a mesh of {count} devices, or such a mesh in "
        f"jax.set_mesh, but got neither")
