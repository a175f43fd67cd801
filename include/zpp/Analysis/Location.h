//===- Location.h - Where an op comes from, as text -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_LOCATION_H
#define ZPP_ANALYSIS_LOCATION_H

#include "mlir/IR/Location.h"

#include <string>

namespace zpp {

/// Returns the first position in a file that `loc` names, or null.
mlir::FileLineColLoc findFileLocation(mlir::Location loc);

/// Returns the first position in a file that `loc` names, such as
/// "step.py:12:3", or empty. For reports.
std::string getFileLocation(mlir::Location loc);

/// The same with the name that the producer gave the op, such as
/// "jit(step)/dot_general at step.py:12:3". For traces and runtime errors.
std::string describeLocation(mlir::Location loc);

} // namespace zpp

#endif // ZPP_ANALYSIS_LOCATION_H
