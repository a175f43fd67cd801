//===- Zero.h - The zero dialect --------------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_ZERO_IR_ZERO_H
#define ZPP_DIALECT_ZERO_IR_ZERO_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "zpp/Support/BlockQuant.h"
#include "zpp/Support/Mesh.h"
#include "zpp/Support/SliceMap.h"

namespace mlir {
class PatternRewriter;
} // namespace mlir

#include "zpp/Dialect/Zero/IR/ZeroEnums.h.inc"

#include "zpp/Dialect/Zero/IR/ZeroDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "zpp/Dialect/Zero/IR/ZeroAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "zpp/Dialect/Zero/IR/ZeroTypes.h.inc"

namespace zpp::zero {
/// The axes of `along` (AxisRefAttr) with their sizes on `mesh`. All exist.
std::vector<zpp::AxisRef> resolveAxes(mlir::ArrayAttr along, MeshAttr mesh);
/// Verifies that all of `axes` are axes of `mesh` or parts of them, and that
/// none appears twice.
llvm::LogicalResult
verifyAxes(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
           const zpp::Mesh &mesh, llvm::ArrayRef<AxisRefAttr> axes);
/// `refs` as an array of AxisRefAttr; whole axes are written without a part.
mlir::ArrayAttr getAxesAttr(mlir::MLIRContext *context, const zpp::Mesh &mesh,
                            llvm::ArrayRef<zpp::AxisRef> refs);
/// The syntax of an axis: "gpu" or "gpu":(2)2
mlir::ParseResult parseAxisRef(mlir::AsmParser &parser, AxisRefAttr &axis);
void printAxisRef(mlir::AsmPrinter &printer, AxisRefAttr axis);
/// Whether tensors of this element type can be quantized: f32, bf16 and f16.
bool isQuantizable(mlir::Type element);
/// K1..K3 of CollectiveOpInterface.
llvm::LogicalResult verifyCollective(mlir::Operation *op);

/// The limit of DecomposedOpInterface.
llvm::LogicalResult verifySizes(mlir::Operation *op);
} // namespace zpp::zero

#include "zpp/Dialect/Zero/IR/ZeroInterfaces.h.inc"

#define GET_OP_CLASSES
#include "zpp/Dialect/Zero/IR/ZeroOps.h.inc"

namespace zpp::zero {
/// Replaces `op`, a start or a wait, by one that also ties `value` and returns
/// it as its last result. The caller decides which uses read that result.
mlir::Operation *addTie(mlir::Operation *op, mlir::Value value);
/// Returns the function that `callee`, as seen from `op`, names or is an
/// instance of. Null if there is none.
mlir::FunctionOpInterface lookUpFunction(mlir::SymbolTableCollection &symbols,
                                         mlir::Operation *op,
                                         mlir::SymbolRefAttr callee);
} // namespace zpp::zero

#endif // ZPP_DIALECT_ZERO_IR_ZERO_H
