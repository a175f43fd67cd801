# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of MLIR, as JAX's bindings have them, and the ways from and to HLO."""

import io

import jax.numpy as jnp
import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo


#: Element types by MLIR's names.
_DTYPES = {
    "i1": np.dtype(bool), "f16": np.dtype(np.float16), "bf16": jnp.bfloat16.dtype,
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    **{f"{sign}i{bits}": np.dtype(f"{sign}int{bits}")
       for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "f8E4M3FN": jnp.float8_e4m3fn.dtype, "f8E5M2": jnp.float8_e5m2.dtype,
    "f8E4M3FNUZ": jnp.float8_e4m3fnuz.dtype, "f8E5M2FNUZ": jnp.float8_e5m2fnuz.dtype,
    "f8E4M3B11FNUZ": jnp.float8_e4m3b11fnuz.dtype}


def shape_of(type_: ir.Type) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and the element type of a tensor."""
    tensor = ir.RankedTensorType(type_)
    element = str(tensor.element_type)
    if element not in _DTYPES:
        raise TypeError(f"expected tensors of {', '.join(_DTYPES)}, but got {tensor}")
    return tuple(tensor.shape), _DTYPES[element]


def text_of(module: ir.Module, locations: bool = True) -> str:
    """A module in the generic form, which zpp-opt reads."""
    return module.operation.get_asm(print_generic_op_form=True, enable_debug_info=locations)


def bytecode_of(module: ir.Module) -> bytes:
    content = io.BytesIO()
    module.operation.write_bytecode(content)
    return content.getvalue()


def artifact_of(module: ir.Module) -> bytes:
    """A module as a portable artifact, which exports have."""
    return stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version(), True)


def to_hlo(module: ir.Module):
    """A module as a computation of XLA."""
    from jax._src.lib import _jax
    return _jax.mlir.mlir_module_to_xla_computation(
        bytecode_of(module), use_tuple_args=False, return_tuple=False)


def operations_in(module: ir.Module) -> list[ir.Operation]:
    """All operations, each before those in its regions; they may be erased meanwhile."""
    found: list[ir.Operation] = []

    def visit(operation):
        found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def main_of(module: ir.Module, name: str = "main") -> ir.Operation:
    symbols = ir.SymbolTable(module.operation)
    if name not in symbols:
        raise ValueError(f"expected a step in the function '{name}', but got none of this "
                         f"name")
    return symbols[name].operation


def type_of(function: ir.Operation) -> ir.FunctionType:
    return ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)


def entries_of(function: ir.Operation, attributes: str) -> list:
    """The attributes of each argument, "arg_attrs", or result, "res_attrs"."""
    if attributes in function.attributes:
        return list(function.attributes[attributes])
    types = type_of(function)
    return [{}] * len(types.results if attributes == "res_attrs" else types.inputs)


def string_in(attributes, name: str) -> str | None:
    """The value of an attribute that is a string; None where there is none."""
    return ir.StringAttr(attributes[name]).value if name in attributes else None


def symbol_of(operation) -> str:
    return ir.StringAttr(operation.attributes["sym_name"]).value
