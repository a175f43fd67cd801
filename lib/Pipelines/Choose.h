//===- Choose.h - Choices between rewrites of a step ------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_PIPELINES_CHOOSE_H
#define ZPP_LIB_PIPELINES_CHOOSE_H

#include "zpp/Pipelines/ZeroPP.h"

namespace zpp {

/// A choice between sets of techniques, which begin to differ with the import;
/// between secondary partitions and whole weights, after it; or between
/// in-flight limits, in the schedule.
enum class Choice { Plans, Whole, Limits };

/// Appends a pass that chooses, and runs the pipeline from there on.
void addChoice(mlir::OpPassManager &pm, Choice choice,
               const ZeroPPOptions &options);

/// Appends the pipeline from there on, of one candidate.
void addCandidate(mlir::OpPassManager &pm, Choice choice,
                  const ZeroPPOptions &options);

void registerChoosePass();

} // namespace zpp

#endif // ZPP_LIB_PIPELINES_CHOOSE_H
