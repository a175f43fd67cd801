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

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_LOOPS_WRITELOOPS_H
