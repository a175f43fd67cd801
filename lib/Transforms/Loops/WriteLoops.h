//===- WriteLoops.h - Ways to write loops -----------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_LOOPS_WRITELOOPS_H
#define ZPP_LIB_TRANSFORMS_LOOPS_WRITELOOPS_H

#include "zpp/Dialect/Guest/While.h"

namespace zpp {

/// Replaces `loops` by their iterations, whose number is known, one after the
/// other. Stacks that are then only read and written layer by layer become
/// layers, too.
void writeLayers(mlir::ModuleOp module, llvm::ArrayRef<WhileView> loops);

/// On a read or a write of a layer that an iteration has become: the number of
/// the layer. The index itself is hidden from XLA (X10).
inline constexpr llvm::StringLiteral kLayerNumberAttr = "zpp.layer_number";

/// Replaces stacks in `root` by their layers: those that are joined from layers
/// or begin as zeros, if each read and write is of one layer whose number is
/// known. A layer that is written takes the place of the one before, and
/// nothing is copied. Barriers and loops that stacks pass through have the
/// layers.
void splitStacks(mlir::Operation *root);

/// Erases kLayerNumberAttr from all ops in `root`.
void eraseLayerNumbers(mlir::Operation *root);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_LOOPS_WRITELOOPS_H
