# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps as functions to call."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.experimental.layout import Format

from zpp.jax import _runtime
from zpp.jax._export import Step
from zpp.jax._save import read
from zpp.jax._state import Keeper, StatefulStep, extend


@dataclasses.dataclass(frozen=True)
class Program:
    """A step that can be called with flat arguments."""

    step: Step
    #: The function for a mesh, on which its results have the layouts of the step.
    function_on: Callable[[jax.sharding.Mesh | None], jax.stages.Wrapped]
    #: The function, compiled; None where the first call may do it.
    compiled: jax.stages.Compiled | None = None
    #: See `Step`.
    start: "Program | None" = None
    resume: "Program | None" = None

    @staticmethod
    def of(step: Step, compiler_options: dict | None) -> "Program":
        return Program(
            step, functools.cache(functools.partial(
                load_flat, step, compiler_options)),
            start=step.start and Program.of(step.start, compiler_options),
            resume=step.resume and Program.of(step.resume, compiler_options))

    def lower(self, leaves: Sequence[Any]) -> jax.stages.Lowered:
        """The function for these arguments; those of the state are added."""
        taken = self.step.state.arguments if self.step.state else ()
        with _device_context(self.step, leaves):
            return self._function(leaves).lower(*leaves, *taken)

    def compile_ahead(self, leaves: Sequence[Any]) -> "Program":
        return dataclasses.replace(
            self, compiled=self.lower(leaves).compile(),
            start=self.start and self.start.compile_ahead(leaves),
            resume=self.resume and self.resume.compile_ahead(leaves))

    def prepare(self, leaves: Sequence[Any]) -> None:
        """Prepares the runtime for a call with these arguments, if the step needs it."""
        for step in (self.step, self.step.start, self.step.resume):
            if step is not None and step.uses_runtime:
                _runtime.load_bundle(step.bundle, _devices(step, leaves))

    def call(self, leaves: Sequence[Any], keeper: Keeper) -> Any:
        """Returns the results for these arguments. Begins the state that `keeper` lacks."""
        state, kept = self.step.state, {}
        mesh = find_mesh(self.step, leaves)
        if state is None:
            keeper.check_not_given()
        else:
            state = state.on(mesh)
            kept = keeper.take(self, state, leaves)
            if not kept.keys() >= set(state.taken):
                begins = self.resume if kept else self.start
                kept = kept | dict(zip(begins.step.state.kept,
                                       begins._run(leaves), strict=True))
        results = self._run(leaves, *(kept[name] for name in
                                      (state.taken if state else ())))
        _runtime.keep(self.step, results)
        if state is not None:
            count = len(results) - len(state.kept)
            results, arrays = results[:count], results[count:]
            keeper.put(self, state, arrays, leaves, results)
        return jax.tree.unflatten(self.step.exported.out_tree, results)

    def _run(self, leaves: Sequence[Any], *arrays: jax.Array) -> Sequence[jax.Array]:
        with _device_context(self.step, leaves):
            return (self.compiled or self._function(leaves))(*leaves, *arrays)

    def _function(self, leaves: Sequence[Any]) -> jax.stages.Wrapped:
        return self.function_on(
            find_mesh(self.step, leaves) if self.step.layouts else None)


class LoadedStep(StatefulStep):
    """The result of `load`, which is called like the original step."""

    def __init__(self, program: Program):
        self.__name__ = program.step.exported.fun_name
        self._program = program
        self._keeper = Keeper()

    def __call__(self, *args, **kwargs):
        leaves, tree = jax.tree.flatten((args, kwargs))
        expected = self._program.step.exported.in_tree
        if tree != expected:
            raise TypeError(f"expected arguments of the structure {expected}, "
                            f"but got {tree}")
        check_not_traced(leaves)
        self._program.prepare(leaves)
        return self._program.call(leaves, self._keeper)


def load(step: Step | str | os.PathLike, compiler_options: dict | None = None
         ) -> LoadedStep:
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
    return LoadedStep(Program.of(
        step if isinstance(step, Step) else read(step), compiler_options))


def load_flat(step: Step, compiler_options: dict | None = None,
              mesh: jax.sharding.Mesh | None = None) -> jax.stages.Wrapped:
    """A jitted function from flat arguments to flat results; on the devices of a mesh, if
    results have other layouts than XLA's."""
    exported = extend(step.exported, step.state)
    first = len(step.exported.in_avals)

    def call(*leaves):
        return exported.call(*step.callbacks.give(leaves))

    call.__name__ = exported.fun_name
    options = compiler_options or {}
    if step.uses_runtime and "cuda" in exported.platforms and _can_say(_FUSES_SLICES):
        options = {_FUSES_SLICES: False, **options}
    formats: list[Format | None] = [None] * len(exported.out_avals)
    if mesh is not None:
        for number, layout in step.layouts.items():
            sharding = _sharding_of(exported, number, mesh)
            formats[number] = sharding and Format(layout, sharding)
    # JAX does not take what it does not use.
    donated = set(step.donated) & set(exported.module_kept_var_idx)
    return jax.jit(call, donate_argnums=(
        *sorted(donated), *range(first, len(exported.in_avals))),
                   out_shardings=formats if any(formats) else None,
                   compiler_options=options or None)


def _sharding_of(exported: jax.export.Exported, number: int, mesh: jax.sharding.Mesh
                 ) -> jax.sharding.Sharding | None:
    """The sharding of flat result `number` on the devices of `mesh`; that of each result
    may name another mesh of them."""
    named = getattr(exported, "_out_named_shardings", ())
    if not named or named[number] is None:
        return exported.out_shardings_jax(mesh)[number]
    own = named[number].mesh
    return jax.sharding.NamedSharding(
        jax.sharding.Mesh(mesh.devices.reshape(own.axis_sizes), own.axis_names,
                          axis_types=own.axis_types),
        named[number].spec, memory_kind=named[number].memory_kind)


#: XLA:GPU fuses slices with the custom calls that read them. What such a call ties or
#: updates in place would be copied then.
_FUSES_SLICES = "xla_gpu_enable_dynamic_slice_fusion"


@functools.cache
def _can_say(option: str) -> bool:
    """Whether this version of XLA has a compiler option."""
    try:
        jax.jit(lambda: 0, compiler_options={option: False}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def check_not_traced(leaves: Sequence[Any]) -> None:
    """Raises TypeError if arguments, or the call, are traced: devices must be known."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) or _is_traced():
        raise TypeError(
            "expected arrays, but got values that jax.jit or another "
            "transformation traces; call a rewritten step outside of it")


def _is_traced() -> bool:
    """Whether a transformation of JAX traces this thread."""
    try:
        jax.sharding.get_mesh()
    except ValueError:
        return True
    return False


def _device_context(step: Step, leaves: Sequence[Any]):
    """The context in which to call a loaded step. An exported function knows its devices
    only from its arguments: if none is on the mesh, it must come from the context."""
    if step.mesh is None or any(
            isinstance(leaf, jax.Array) and leaf.committed for leaf in leaves):
        return contextlib.nullcontext()
    return jax.set_mesh(step.mesh)


def find_mesh(step: Step, leaves: Sequence[Any]) -> jax.sharding.Mesh | None:
    """Finds the mesh of a call, with devices in the order of XLA's numbers."""
    count = step.exported.nr_devices
    shardings = (getattr(leaf, "sharding", None) for leaf in leaves)
    meshes = [sharding.mesh for sharding in shardings
              if isinstance(sharding, jax.sharding.NamedSharding)]
    for mesh in (*meshes, step.mesh, jax.sharding.get_mesh()):
        if isinstance(mesh, jax.sharding.Mesh) and mesh.size == count:
            return mesh
    return None


def _devices(step: Step, leaves: Sequence[Any]) -> tuple[jax.Device, ...]:
    """The devices of a call."""
    mesh = find_mesh(step, leaves)
    if mesh is None:
        raise ValueError(
            f"expected an argument on a mesh of {step.exported.nr_devices} "
            f"devices, or such a mesh in jax.set_mesh, but got neither")
    return tuple(mesh.devices.flat)
