# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a step that was exported for many devices on a single one.

Each device of the mesh becomes an index of two or more leading dims, one for
each axis, with `jax.vmap`. Collectives become reshapes, transposes and sums over
these dims. What is equal on all devices, such as gathered weights, is kept and
computed once. So a training as ZeRO++ with so many devices takes about as long
as one of the same batch on a single device, and computes what they compute, up
to the order in which products and sums are evaluated.

It reads StableHLO with `sdy.manual_computation`, as JAX exports a
`jax.shard_map` and as zpp rewrites it for the target portable.
"""

import itertools
import math

import jax
import numpy as np
from jax import lax
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy, stablehlo
from jax.interpreters.mlir import make_ir_context

_TYPES = {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32,
          "i64": np.int64, "ui8": np.uint8, "ui16": np.uint16,
          "ui32": np.uint32, "ui64": np.uint64, "f16": np.float16,
          "f32": np.float32, "f64": np.float64,
          "bf16": jax.numpy.bfloat16.dtype}

_ELEMENTWISE = {
    "abs": lax.abs, "add": lax.add, "and": lax.bitwise_and, "ceil": lax.ceil,
    "cosine": lax.cos, "divide": lax.div, "exponential": lax.exp,
    "exponential_minus_one": lax.expm1, "floor": lax.floor,
    "is_finite": lax.is_finite, "log": lax.log, "log_plus_one": lax.log1p,
    "logistic": lax.logistic, "maximum": lax.max, "minimum": lax.min,
    "multiply": lax.mul, "negate": lax.neg, "not": lax.bitwise_not,
    "or": lax.bitwise_or, "power": lax.pow, "remainder": lax.rem,
    "round_nearest_even": lambda x: lax.round(
        x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "rsqrt": lax.rsqrt, "select": lax.select, "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical, "sign": lax.sign,
    "sine": lax.sin, "sqrt": lax.sqrt, "subtract": lax.sub, "tanh": lax.tanh,
    "xor": lax.bitwise_xor, "clamp": lax.clamp,
    "optimization_barrier": lambda *xs: lax.optimization_barrier(xs),
}
_COMPARE = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le,
            "GT": lax.gt, "GE": lax.ge}


class Program:
    """A module whose `main` is called with whole arrays, and returns a list of
    them."""

    def __init__(self, text: str):
        with make_ir_context() as context:
            context.allow_unregistered_dialects = True
            self._module = ir.Module.parse(text, context)
        self._functions, self._axes = {}, {}
        for op in self._module.body.operations:
            name = ir.StringAttr(op.attributes["sym_name"]).value
            if op.operation.name == "func.func":
                self._functions[name] = op.operation
            elif op.operation.name == "sdy.mesh":
                axes = sdy.MeshAttr(op.attributes["mesh"]).axes
                self._axes = {axis.name: axis.size
                              for axis in map(sdy.MeshAxisAttr, axes)}

    def __call__(self, *args):
        # Scales are computed in f64.
        with jax.enable_x64(True):
            return self._call("main", args)

    def _call(self, name, args):
        return self._block(self._functions[name].regions[0].blocks[0], args, {})

    def _block(self, block, args, outer: dict) -> list:
        """The operands of the block's terminator."""
        values = dict(outer) | dict(zip(block.arguments, args, strict=True))
        for op in block.operations:
            op = op.operation
            operands = [values[operand] for operand in op.operands]
            kind = op.name.split(".")[-1]
            if kind == "return":
                return operands
            results = self._run(kind, op, operands, values)
            if not isinstance(results, list | tuple):
                results = [results]
            for value, result in zip(op.results, results, strict=True):
                expected = tuple(ir.RankedTensorType(value.type).shape)
                if np.shape(result) != expected:
                    raise ValueError(f"expected {expected}, but got "
                                     f"{np.shape(result)} of {op.name}")
                values[value] = result
        raise ValueError("expected a terminator")

    def _run(self, kind: str, op, operands: list, values: dict):
        if kind in _ELEMENTWISE:
            return _ELEMENTWISE[kind](*operands)
        run = getattr(self, f"_run_{kind}", None)
        if run is None:
            raise NotImplementedError(f"{op.name} is not known here")
        return run(op, operands, values)

    # Control flow ---------------------------------------------------------

    def _run_call(self, op, operands, values):
        return self._call(
            ir.FlatSymbolRefAttr(op.attributes["callee"]).value, operands)

    def _run_while(self, op, operands, values):
        condition, body = (region.blocks[0] for region in op.regions)
        return lax.while_loop(
            lambda state: self._block(condition, state, values)[0],
            lambda state: tuple(self._block(body, state, values)),
            tuple(operands))

    def _run_manual_computation(self, op, operands, values):
        inputs, outputs = (
            [_axes_of_dims(sdy.TensorShardingAttr(sharding)) for sharding in
             sdy.TensorShardingPerValueAttr(op.attributes[name]).shardings]
            for name in ("in_shardings", "out_shardings"))
        block = op.regions[0].blocks[0]
        parts = [_split(x, dims, self._axes)
                 for x, dims in zip(operands, inputs, strict=True)]

        def function(*args):
            return tuple(self._block(block, args, values))

        for name in reversed(self._axes):
            function = jax.vmap(
                function, axis_name=name, axis_size=self._axes[name],
                in_axes=tuple(0 if any(name in axes for axes in dims) else None
                              for dims in inputs), out_axes=0)
        return [_join(x, dims, self._axes)
                for x, dims in zip(function(*parts), outputs, strict=True)]

    # Collectives ----------------------------------------------------------

    def _groups(self, op) -> list[str]:
        """The axes that the operation communicates over."""
        attribute = op.attributes["replica_groups"]
        if "mesh_axes" in str(attribute):
            axes = stablehlo.ReplicaGroupMeshAxesAttr(attribute).axes
            named = [stablehlo.AxisRefAttr(axis).name for axis in axes]
            if named != [axis for axis in self._axes if axis in named]:
                raise NotImplementedError(
                    f"expected axes as in the mesh, but got {named}")
            return named
        groups = np.array(ir.DenseElementsAttr(attribute)).tolist()
        ids = np.arange(math.prod(self._axes.values())).reshape(
            list(self._axes.values()))
        for count in range(len(self._axes) + 1):
            for chosen in itertools.combinations(range(len(self._axes)), count):
                rest = [axis for axis in range(ids.ndim) if axis not in chosen]
                size = math.prod(ids.shape[axis] for axis in chosen)
                rows = ids.transpose(*rest, *chosen).reshape(-1, size).tolist()
                if sorted(rows) == sorted(groups):
                    return [list(self._axes)[axis] for axis in chosen]
        raise NotImplementedError(
            f"expected groups along axes of the mesh, but got {groups}")

    def _run_all_gather(self, op, operands, values):
        dim = _integer(op, "all_gather_dim")
        for axis in reversed(self._groups(op)):
            operands = [lax.all_gather(x, axis, axis=dim, tiled=True)
                        for x in operands]
        return operands

    def _run_reduce_scatter(self, op, operands, values):
        if _reducer(op) != "add":
            raise NotImplementedError("expected a scatter of a sum")
        dim = _integer(op, "scatter_dimension")
        x, = operands
        for axis in self._groups(op):
            x = lax.psum_scatter(x, axis, scatter_dimension=dim, tiled=True)
        return x

    def _run_all_reduce(self, op, operands, values):
        function = {"add": lax.psum, "maximum": lax.pmax,
                    "minimum": lax.pmin}[_reducer(op)]
        axes = tuple(self._groups(op))
        return [function(x, axes) for x in operands]

    def _run_all_to_all(self, op, operands, values):
        split, concat = (_integer(op, f"{name}_dimension")
                         for name in ("split", "concat"))
        axes = self._groups(op)
        sizes = [self._axes[axis] for axis in axes]
        count = math.prod(sizes)
        results = []
        for x in operands:
            shape = x.shape
            x = lax.reshape(x, (*shape[:split], *sizes, shape[split] // count,
                                *shape[split + 1:]))
            for number, axis in enumerate(axes):
                x = lax.all_to_all(x, axis, split + number, split + number,
                                   tiled=True)
            parts = list(shape)
            parts[split] //= count
            x = lax.reshape(x, (*parts[:split], count, *parts[split:]))
            x = jax.numpy.moveaxis(x, split, concat)
            parts[concat] *= count
            results.append(lax.reshape(x, parts))
        return results

    def _run_partition_id(self, op, operands, values):
        number = np.uint32(0)
        for axis, size in self._axes.items():
            number = number * np.uint32(size) + lax.axis_index(axis).astype(
                np.uint32)
        return number

    # Everything else ------------------------------------------------------

    def _run_constant(self, op, operands, values):
        attribute = ir.DenseElementsAttr(op.attributes["value"])
        shape, dtype = _shape(op.results[0])
        if attribute.is_splat:
            return np.full(shape, attribute.get_splat_value().value, dtype)
        if dtype == _TYPES["bf16"]:
            raise NotImplementedError("constants of several bf16 values")
        return np.array(attribute).astype(dtype).reshape(shape)

    def _run_iota(self, op, operands, values):
        shape, dtype = _shape(op.results[0])
        return lax.broadcasted_iota(dtype, shape,
                                    _integer(op, "iota_dimension"))

    def _run_convert(self, op, operands, values):
        return lax.convert_element_type(operands[0], _shape(op.results[0])[1])

    def _run_bitcast_convert(self, op, operands, values):
        return lax.bitcast_convert_type(operands[0], _shape(op.results[0])[1])

    def _run_reduce_precision(self, op, operands, values):
        return lax.reduce_precision(
            operands[0], _integer(op, "exponent_bits"),
            _integer(op, "mantissa_bits"))

    def _run_compare(self, op, operands, values):
        if "compare_type" in op.attributes and (
                "TOTALORDER" in str(op.attributes["compare_type"])):
            raise NotImplementedError("comparisons in the total order")
        direction = stablehlo.ComparisonDirectionAttr(
            op.attributes["comparison_direction"]).value
        return _COMPARE[direction](*operands)

    def _run_broadcast_in_dim(self, op, operands, values):
        return lax.broadcast_in_dim(
            operands[0], _shape(op.results[0])[0],
            _integers(op, "broadcast_dimensions"))

    def _run_reshape(self, op, operands, values):
        return lax.reshape(operands[0], _shape(op.results[0])[0])

    def _run_transpose(self, op, operands, values):
        return lax.transpose(operands[0], _integers(op, "permutation"))

    def _run_reverse(self, op, operands, values):
        return lax.rev(operands[0], _integers(op, "dimensions"))

    def _run_slice(self, op, operands, values):
        return lax.slice(operands[0], *(
            _integers(op, name)
            for name in ("start_indices", "limit_indices", "strides")))

    def _run_dynamic_slice(self, op, operands, values):
        return lax.dynamic_slice(operands[0], operands[1:],
                                 _integers(op, "slice_sizes"))

    def _run_dynamic_update_slice(self, op, operands, values):
        return lax.dynamic_update_slice(operands[0], operands[1], operands[2:])

    def _run_pad(self, op, operands, values):
        return lax.pad(*operands, list(zip(*(
            _integers(op, name) for name in
            ("edge_padding_low", "edge_padding_high", "interior_padding")))))

    def _run_concatenate(self, op, operands, values):
        return lax.concatenate(operands, _integer(op, "dimension"))

    def _run_reduce(self, op, operands, values):
        x, start = operands
        return lax.reduce(x, start, _ELEMENTWISE[_reducer(op)],
                          _integers(op, "dimensions"))

    def _run_reduce_window(self, op, operands, values):
        x, start = operands
        rank = len(x.shape)
        return lax.reduce_window(
            x, start, _ELEMENTWISE[_reducer(op)], _integers(op, "window_dimensions"),
            _integers(op, "window_strides") if "window_strides" in op.attributes
            else (1,) * rank, tuple(map(tuple, np.array(ir.DenseElementsAttr(
                op.attributes["padding"])).tolist())))

    def _run_composite(self, op, operands, values):
        name = ir.StringAttr(op.attributes["name"]).value
        if name != "chlo.top_k":
            raise NotImplementedError(f"{name} is not known here")
        return lax.top_k(*operands, ir.IntegerAttr(ir.DictAttr(
            op.attributes["composite_attributes"])["k"]).value)

    def _run_dot_general(self, op, operands, values):
        dims = stablehlo.DotDimensionNumbers(
            op.attributes["dot_dimension_numbers"])
        return lax.dot_general(
            *operands,
            ((dims.lhs_contracting_dimensions, dims.rhs_contracting_dimensions),
             (dims.lhs_batching_dimensions, dims.rhs_batching_dimensions)),
            preferred_element_type=_shape(op.results[0])[1])

    def _run_gather(self, op, operands, values):
        dims = stablehlo.GatherDimensionNumbers(
            op.attributes["dimension_numbers"])
        x, indices = operands
        # Both clamp indices that are out of bounds.
        return lax.gather(
            x, _with_vector(indices, dims.index_vector_dim),
            lax.GatherDimensionNumbers(
                *map(tuple, (dims.offset_dims, dims.collapsed_slice_dims,
                             dims.start_index_map, dims.operand_batching_dims,
                             dims.start_indices_batching_dims))),
            _integers(op, "slice_sizes"),
            mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)

    def _run_scatter(self, op, operands, values):
        # A region that returns its second argument sets elements.
        is_set = len(op.regions[0].blocks[0].operations) == 1
        if not is_set and _reducer(op) != "add":
            raise NotImplementedError("expected a scatter that adds or sets")
        scatter = lax.scatter if is_set else lax.scatter_add
        dims = stablehlo.ScatterDimensionNumbers(
            op.attributes["scatter_dimension_numbers"])
        x, indices, updates = operands
        return scatter(
            x, _with_vector(indices, dims.index_vector_dim), updates,
            lax.ScatterDimensionNumbers(
                *map(tuple, (dims.update_window_dims, dims.inserted_window_dims,
                             dims.scattered_dims_to_operand_dims,
                             dims.input_batching_dims,
                             dims.scatter_indices_batching_dims))),
            mode=lax.GatherScatterMode.FILL_OR_DROP)


def _integer(op, name: str) -> int:
    return ir.IntegerAttr(op.attributes[name]).value


def _integers(op, name: str) -> tuple[int, ...]:
    return tuple(ir.DenseI64ArrayAttr(op.attributes[name]))


def _shape(value) -> tuple[tuple[int, ...], np.dtype]:
    type_ = ir.RankedTensorType(value.type)
    return tuple(type_.shape), _TYPES[str(type_.element_type)]


def _reducer(op) -> str:
    """The one operation in the region of a reduction."""
    first, _ = op.regions[0].blocks[0].operations
    return first.operation.name.split(".")[-1]


def _with_vector(indices, dim: int):
    """Indices with their vectors in a last dim, as JAX has them."""
    if dim == indices.ndim:
        return jax.numpy.expand_dims(indices, -1)
    return jax.numpy.moveaxis(indices, dim, -1)


def _axes_of_dims(sharding) -> list[list[str]]:
    """The mesh axes of each dim."""
    return [[sdy.AxisRefAttr(axis).name
             for axis in sdy.DimensionShardingAttr(dim).axes]
            for dim in sharding.dimension_shardings]


def _split(x, dims: list[list[str]], sizes: dict[str, int]):
    """Turns a whole array into its parts, with the axes that it is sharded over
    in front, in the order of the mesh."""
    shape, names = [], []
    for size, axes in zip(x.shape, dims, strict=True):
        parts = [sizes[axis] for axis in axes]
        shape += [*parts, size // math.prod(parts)]
        names += [*axes, None]
    order = ([names.index(axis) for axis in sizes if axis in names] +
             [index for index, name in enumerate(names) if name is None])
    return lax.transpose(lax.reshape(x, shape), order)


def _join(x, dims: list[list[str]], sizes: dict[str, int]):
    """The inverse of `_split` of an array that has all axes in front. Where an
    array is replicated, it is that of the first device."""
    used = [axis for axes in dims for axis in axes]
    x = x[tuple(slice(None) if axis in used else 0 for axis in sizes)]
    fronts = [axis for axis in sizes if axis in used]
    order, shape = [], []
    for number, axes in enumerate(dims):
        order += [fronts.index(axis) for axis in axes] + [len(fronts) + number]
        shape.append(math.prod(sizes[axis] for axis in axes) *
                     x.shape[len(fronts) + number])
    return lax.reshape(lax.transpose(x, order), shape)
