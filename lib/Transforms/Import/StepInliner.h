//===- StepInliner.h - One region for the whole step ------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_IMPORT_STEPINLINER_H
#define ZPP_LIB_TRANSFORMS_IMPORT_STEPINLINER_H

#include "mlir/IR/BuiltinOps.h"

namespace zpp {

/// Inlines calls until every collective of the step, and every op between a
/// step input and a gather, is in the step's own regions, and what its loops
/// call once. A function that serves several layers gives its collectives no
/// unique meaning. If the step would become too large, emits an error and
/// changes nothing.
mlir::LogicalResult inlineStep(mlir::ModuleOp module);

/// True if inlineStep may do something that changes what a report counts.
bool needsInlining(mlir::ModuleOp module);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_IMPORT_STEPINLINER_H
