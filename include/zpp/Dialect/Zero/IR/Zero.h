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
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "zpp/Support/BlockQuant.h"
#include "zpp/Support/Mesh.h"
#include "zpp/Support/SliceMap.h"

#include "zpp/Dialect/Zero/IR/ZeroEnums.h.inc"

#include "zpp/Dialect/Zero/IR/ZeroDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "zpp/Dialect/Zero/IR/ZeroAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "zpp/Dialect/Zero/IR/ZeroTypes.h.inc"

namespace zpp::zero {
/// The axes of `along` (AxisRefAttr) with their sizes on `mesh`. All exist.
llvm::SmallVector<zpp::AxisRef> resolveAxes(mlir::ArrayAttr along,
                                            MeshAttr mesh);
/// `refs` as an array of AxisRefAttr; whole axes are written whole.
mlir::ArrayAttr getAxesAttr(mlir::MLIRContext *context, const zpp::Mesh &mesh,
                            llvm::ArrayRef<zpp::AxisRef> refs);
/// K1..K3 of CollectiveOpInterface.
llvm::LogicalResult verifyCollective(mlir::Operation *op);
} // namespace zpp::zero

#include "zpp/Dialect/Zero/IR/ZeroInterfaces.h.inc"

#define GET_OP_CLASSES
#include "zpp/Dialect/Zero/IR/ZeroOps.h.inc"

#endif // ZPP_DIALECT_ZERO_IR_ZERO_H
