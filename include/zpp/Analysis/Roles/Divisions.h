//===- Divisions.h - Values whose errors a step makes larger ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_ROLES_DIVISIONS_H
#define ZPP_ANALYSIS_ROLES_DIVISIONS_H

#include "zpp/Analysis/Roles/StepFlow.h"

namespace zpp {

/// True if the step divides by elements of `value`, moved or scaled by numbers,
/// or takes logarithms or roots of them: small ones matter most.
bool isDividedBy(const ValueGraph &graph, mlir::Value value);

/// True if the step subtracts gradients of `inputs` from each other which no
/// device sends: those of the parts that it has for itself.
bool subtractsOwnGradients(const ValueGraph &graph, const StepFlow &flow,
                           llvm::ArrayRef<mlir::Value> inputs);

} // namespace zpp

#endif // ZPP_ANALYSIS_ROLES_DIVISIONS_H
