# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Between a JAX function and the StableHLO text that the compiler reads."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters.mlir import make_ir_context


@dataclasses.dataclass(frozen=True)
class Step:
    """An exported function, with what `jax.export` does not keep of it."""

    exported: jax.export.Exported
    #: Flat indices of the donated arguments.
    donated: tuple[int, ...]
    #: The devices that the function names itself (`shard_map`), if it does.
    mesh: jax.sharding.Mesh | None

    def text(self, locations: bool = True) -> str:
        """The module as generic StableHLO, which is what zpp-opt reads.

        With `locations`, every operation carries the user's source line, so
        that the compiler's remarks point there.
        """
        with make_ir_context() as context:
            module = stablehlo.deserialize_portable_artifact(
                context, self.exported.mlir_module_serialized)
            return module.operation.get_asm(
                print_generic_op_form=True, enable_debug_info=locations)

    def with_text(self, text: str) -> "Step":
        """The same step with another module of the same signature."""
        with make_ir_context() as context:
            module = ir.Module.parse(text, context)
            serialized = stablehlo.serialize_portable_artifact(
                module, stablehlo.get_current_version(), True)
        exported = dataclasses.replace(self.exported,
                                       mlir_module_serialized=serialized)
        return dataclasses.replace(self, exported=exported)


def export(step: Callable, *args: Any, platforms: Sequence[str] | None = None,
           disabled_checks: Sequence[jax.export.DisabledSafetyCheck] = (),
           **kwargs: Any) -> Step:
    """Exports `step` as called with these arguments.

    Args:
      step: a function; `jax.jit` of one keeps its donation, shardings and
        static arguments.
      *args, **kwargs: arrays or `jax.ShapeDtypeStruct`s. Their shardings
        become those of the exported function.
      platforms, disabled_checks: as in `jax.export.export`.
    """
    jitted = step if isinstance(step, jax.stages.Wrapped) else jax.jit(step)
    traced = jitted.trace(*args, **kwargs)
    exported = jax.export.export(
        jitted, platforms=platforms,
        disabled_checks=disabled_checks)(*args, **kwargs)
    donated = tuple(index for index, info in enumerate(
        jax.tree.leaves(traced.args_info)) if info.donated)
    return Step(exported, donated, _find_mesh(traced.jaxpr))


def load(step: Step, compiler_options: dict | None = None) -> Callable:
    """The exported function as one that is called like the original.

    Donated arguments stay donated: a function called through `jax.export` has
    lost that, so that it is jitted again with what `step` remembers.
    `compiler_options` are those of `jax.jit`, which an export cannot keep.
    """
    exported = step.exported
    flat = load_flat(step, compiler_options)

    def call(*args, **kwargs):
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != exported.in_tree:
            raise TypeError(
                f"expected arguments of the structure {exported.in_tree}, but "
                f"got {tree}")
        with device_context(step, leaves):
            return jax.tree.unflatten(exported.out_tree, flat(*leaves))

    call.__name__ = exported.fun_name
    return call


def load_flat(step: Step, compiler_options: dict | None = None
              ) -> jax.stages.Wrapped:
    """`load`, as a jitted function of the flat arguments to flat results."""
    exported = step.exported

    def call(*leaves):
        args, kwargs = jax.tree.unflatten(exported.in_tree, leaves)
        return jax.tree.leaves(exported.call(*args, **kwargs))

    call.__name__ = exported.fun_name
    return jax.jit(call, donate_argnums=step.donated,
                   compiler_options=compiler_options)


def device_context(step: Step, leaves: Sequence[Any]):
    """What to call a loaded step under.

    A function knows its devices from its `shard_map`; an exported one only
    from its arguments. Where none of them lies on the mesh, the mesh has to
    come from the context.
    """
    if step.mesh is None or any(
            isinstance(leaf, jax.Array) and leaf.committed for leaf in leaves):
        return contextlib.nullcontext()
    return jax.set_mesh(step.mesh)


def _find_mesh(jaxpr: Any) -> jax.sharding.Mesh | None:
    """The device mesh of the first `shard_map` in a (closed) jaxpr."""
    return next(_meshes(jaxpr), None)


def _meshes(jaxpr: Any) -> Iterator[jax.sharding.Mesh]:
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        for value in equation.params.values():
            if isinstance(value, jax.sharding.Mesh):
                yield value
            elif hasattr(value, "eqns") or hasattr(value, "jaxpr"):
                yield from _meshes(value)
