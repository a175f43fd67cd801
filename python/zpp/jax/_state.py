# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a rewritten step keeps from call to call (weights=i4:delta)."""

import dataclasses
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.mlir import ir
from jax.sharding import NamedSharding, PartitionSpec

#: What the compiler calls the types of weights.
_TYPES = {"f32": np.dtype(np.float32), "bf16": jax.numpy.bfloat16.dtype,
          "f16": np.dtype(np.float16)}


@dataclasses.dataclass(frozen=True)
class State:
    """The state of a rewritten step: by name, flat arrays, of which each device
    holds a part of its own."""

    shapes: Mapping[str, jax.ShapeDtypeStruct]
    #: Whether the step takes it, or begins it.
    is_taken: bool

    def bytes_per_device(self, devices: int) -> int:
        return sum(shape.size * shape.dtype.itemsize
                   for shape in self.shapes.values()) // devices

    def describe(self) -> dict[str, list]:
        """As JSON has it."""
        return {name: [str(shape.dtype), shape.size]
                for name, shape in self.shapes.items()}

    @staticmethod
    def of(description: Mapping[str, Sequence], is_taken: bool) -> "State":
        return State({name: jax.ShapeDtypeStruct((size,), np.dtype(dtype))
                      for name, (dtype, size) in description.items()}, is_taken)

    def on(self, mesh: jax.sharding.Mesh | None) -> "State":
        """The same, on the devices of a mesh if there is one."""
        sharding = mesh and NamedSharding(
            mesh, PartitionSpec(mesh.axis_names))
        return dataclasses.replace(self, shapes={
            name: jax.ShapeDtypeStruct(shape.shape, shape.dtype,
                                       sharding=sharding)
            for name, shape in self.shapes.items()})


def read_state(module: ir.Module, arguments: int) -> State | None:
    """The state that the compiler has given to a module.

    Args:
      arguments: how many arguments it had before.
    """
    if "zpp.state" not in module.operation.attributes:
        return None
    shapes, counts = {}, {}
    for entry in module.operation.attributes["zpp.state"]:
        kind = ir.StringAttr(entry["kind"]).value
        type_ = ir.RankedTensorType(ir.TypeAttr(entry["type"]).value)
        number = counts[kind] = counts.get(kind, -1) + 1
        shapes[f"{kind}.{number}"] = jax.ShapeDtypeStruct(
            tuple(type_.shape), _TYPES[str(type_.element_type)])
    main = next(op for op in module.body.operations
                if ir.StringAttr(op.attributes["sym_name"]).value == "main")
    taken = len(ir.FunctionType(ir.TypeAttr(
        main.attributes["function_type"]).value).inputs) > arguments
    return State(shapes, taken)


def extend(exported: jax.export.Exported, state: State | None
           ) -> jax.export.Exported:
    """`exported` with flat arguments and results, behind which stand those of
    the state that its module has."""
    shapes = list(state.shapes.values()) if state else []
    avals = tuple(jax.core.ShapedArray(shape.shape, shape.dtype)
                  for shape in shapes)
    taken = avals if state and state.is_taken else ()
    in_avals, out_avals = exported.in_avals + taken, exported.out_avals + avals
    changes = {
        "in_avals": in_avals, "out_avals": out_avals,
        "in_tree": jax.tree.structure((tuple(in_avals), {})),
        "out_tree": jax.tree.structure(list(out_avals)),
        "in_shardings_hlo": exported.in_shardings_hlo + (None,) * len(taken),
        "out_shardings_hlo": exported.out_shardings_hlo + (None,) * len(avals),
        "module_kept_var_idx": exported.module_kept_var_idx + tuple(
            range(len(exported.in_avals), len(in_avals)))}
    if getattr(exported, "_has_named_shardings", False):
        named = tuple(
            shape.sharding and NamedSharding(
                shape.sharding.mesh.abstract_mesh, shape.sharding.spec)
            for shape in shapes)
        changes["_in_named_shardings"] = (
            exported._in_named_shardings + named[:len(taken)])
        changes["_out_named_shardings"] = exported._out_named_shardings + named
    return dataclasses.replace(exported, **changes)


class Keeper:
    """Carries the state from one call to the next, and knows when it does not
    belong to the weights that a call is given."""

    def __init__(self):
        self._arrays: dict[str, jax.Array] | None = None
        self._owner: Any = None
        self._is_given = False
        self._results: list[weakref.ref] = []

    @property
    def arrays(self) -> dict[str, jax.Array] | None:
        return self._arrays

    def give(self, arrays: Mapping[str, jax.Array] | None) -> None:
        """Sets what the next call starts from."""
        self._arrays = None if arrays is None else dict(arrays)
        self._is_given = arrays is not None

    def take(self, owner: Any, state: State, leaves: Sequence[Any]
             ) -> list[jax.Array] | None:
        """The state for a call of what `owner` stands for; None where whole
        weights must be sent: nothing is kept, it is of another step, or no
        argument is a result of the latest call.

        Raises:
          ValueError: where the state that was given is of another step.
        """
        if self._arrays is None:
            return None
        if self._is_given:
            _check(self._arrays, state)
            return self._in_order(state)
        results = {id(array) for ref in self._results
                   if (array := ref()) is not None}
        if self._owner is not owner or not any(
                id(leaf) in results for leaf in leaves):
            return None
        return self._in_order(state)

    def _in_order(self, state: State) -> list[jax.Array]:
        # Whoever saves a dict may sort it.
        return [self._arrays[name] for name in state.shapes]

    def put(self, owner: Any, state: State, arrays: Sequence[jax.Array],
            results: Sequence[jax.Array]) -> None:
        self._arrays = dict(zip(state.shapes, arrays, strict=True))
        self._owner, self._is_given = owner, False
        self._results = [weakref.ref(result) for result in results]


def _check(arrays: Mapping[str, jax.Array], state: State) -> None:
    if set(arrays) != set(state.shapes):
        raise ValueError(
            f"state: expected {len(state.shapes)} arrays, "
            f"{', '.join(state.shapes)}, but got {', '.join(arrays) or 'none'}; "
            f"it is of another step. Set it to None to send whole weights once")
    for name, shape in state.shapes.items():
        got = arrays[name]
        if not isinstance(got, jax.Array):
            raise TypeError(
                f"state: expected '{name}' as an array of JAX, sharded over all "
                f"devices of the mesh, but got {type(got).__name__}")
        if (got.shape, got.dtype) != (shape.shape, shape.dtype):
            raise ValueError(
                f"state: expected '{name}' of {shape.dtype}{list(shape.shape)}, "
                f"but got {got.dtype}{list(got.shape)}; it is of another mesh "
                f"or format. Set it to None to send whole weights once")
        if shape.sharding is not None and not got.sharding.is_equivalent_to(
                shape.sharding, 1):
            raise ValueError(
                f"state: expected '{name}' sharded over all devices of the "
                f"mesh, {shape.sharding.spec}, but got {got.sharding}")
