# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites a step with libZppC, whose path is the argument."""

import ctypes
import sys

STEP = """
func.func @main(%w: tensor<4x64xf32>, %x: tensor<8x32xf32>) -> tensor<8x64xf32> {
  %g = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x64xf32>) -> tensor<32x64xf32>
  %y = "stablehlo.dot_general"(%x, %g) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<8x32xf32>, tensor<32x64xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}
"""


class Handle(ctypes.Structure):
    _fields_ = [("ptr", ctypes.c_void_p)]


class StringRef(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("length", ctypes.c_size_t)]


class Piece(ctypes.Structure):
    # Bytes without an end, which c_char_p would look for.
    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Result(ctypes.Structure):
    _fields_ = [("value", ctypes.c_int8)]


CALLBACK = ctypes.CFUNCTYPE(None, Piece, ctypes.c_void_p)
#: Function -> what it returns, what it takes.
FUNCTIONS = {
    "mlirContextCreateWithRegistry": (Handle, [Handle, ctypes.c_bool]),
    "mlirDialectRegistryCreate": (Handle, []),
    "mlirModuleCreateParse": (Handle, [Handle, StringRef]),
    "mlirModuleGetOperation": (Handle, [Handle]),
    "mlirOperationPrint": (None, [Handle, CALLBACK, ctypes.c_void_p]),
    "mlirParsePassPipeline": (Result, [Handle, StringRef, CALLBACK, ctypes.c_void_p]),
    "mlirPassManagerCreate": (Handle, [Handle]),
    "mlirPassManagerGetAsOpPassManager": (Handle, [Handle]),
    "mlirPassManagerRunOnOp": (Result, [Handle, Handle]),
    "zppModuleReport": (Result, [Handle, StringRef, CALLBACK, ctypes.c_void_p]),
    "zppRegisterAllDialects": (None, [Handle]),
    "zppRegisterAllPasses": (None, []),
    "zppRegisterGuestDialects": (None, [Handle]),
}


def text(value: str) -> StringRef:
    encoded = value.encode()
    return StringRef(encoded, len(encoded))


def main() -> None:
    library = ctypes.CDLL(sys.argv[1])
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    pieces: list[bytes] = []
    write = CALLBACK(lambda piece, _: pieces.append(ctypes.string_at(piece.data, piece.length)))
    registry = library.mlirDialectRegistryCreate()
    library.zppRegisterAllDialects(registry)
    library.zppRegisterGuestDialects(registry)
    library.zppRegisterAllPasses()
    context = library.mlirContextCreateWithRegistry(registry, False)
    module = library.mlirModuleCreateParse(context, text(STEP))
    passes = library.mlirPassManagerCreate(context)
    pipeline = text("builtin.module(zeropp{mesh=node:2,gpu:4 weights-of=0})")
    assert library.mlirParsePassPipeline(
        library.mlirPassManagerGetAsOpPassManager(passes), pipeline, write, None
    ).value
    operation = library.mlirModuleGetOperation(module)
    assert library.mlirPassManagerRunOnOp(passes, operation).value
    library.mlirOperationPrint(operation, write, None)
    assert library.zppModuleReport(module, text("format=json"), write, None).value
    print(b"".join(pieces).decode())


main()
