//===- SymbolicInterpreter.h - Programs on symbolic elements ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs a function of zero ops on all ranks at once, with formal sums of source
// elements instead of numbers (SymbolicPlacement.h). Logical ops are read
// from their types alone: row by row, from the digits of the slice that a row
// is in. Decomposed ops move elements as zpp/Support/SliceMap.h says. That both
// agree shows that a pass did not misplace, drop or double an element.
//
// Quantization keeps values as they are: a wire chunk stands for its elements.
// Or it takes something from each of them, which is a symbol too.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_UNITTESTS_TRANSFORMS_SYMBOLICINTERPRETER_H
#define ZPP_UNITTESTS_TRANSFORMS_SYMBOLICINTERPRETER_H

#include "SymbolicPlacement.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>
#include <vector>

namespace zpp {

/// Elements of an argument have numbers below.
inline constexpr int64_t kElementsPerArgument = 1 << 20;

/// A value on every rank.
using PerRank = std::vector<SymbolicTensor>;

/// The results of `function` for `arguments`. An argument that is not given is,
/// on rank r, makeSymbolicSource(r, its number of elements), with the elements
/// of argument i numbered from 2^20 * i. Quantization is exact. Sets `error`
/// where an op is not known.
std::vector<PerRank> interpret(mlir::func::FuncOp function, const Mesh &mesh,
                               std::string &error,
                               llvm::ArrayRef<PerRank> arguments = {});

/// The first difference between the results, or an empty string.
std::string compare(const std::vector<PerRank> &expected,
                    const std::vector<PerRank> &got);

} // namespace zpp

#endif // ZPP_UNITTESTS_TRANSFORMS_SYMBOLICINTERPRETER_H
