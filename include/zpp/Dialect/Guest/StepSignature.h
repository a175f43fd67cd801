//===- StepSignature.h - Which result replaces which argument ---*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A training step returns new values of some of its arguments. Producers say of
// which ones: JAX by donation and by names, `state.params['w']` of an argument
// and `result[0].params['w']` of a result.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_STEPSIGNATURE_H
#define ZPP_DIALECT_GUEST_STEPSIGNATURE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <optional>
#include <string>

namespace zpp {

/// True if `function` is the program of one device, and XLA's partitioner notes
/// that all devices have all of `argument`.
bool isReplicatedArgument(mlir::func::FuncOp function, unsigned argument);

/// The arguments and results of a step, as far as its producer describes them.
class StepSignature {
public:
  explicit StepSignature(mlir::func::FuncOp function);

  /// False if the producer says otherwise: `argument` or `result` is paired
  /// with another one, or the name of `result` is that of another argument of
  /// this type. Their types must agree.
  bool mayReplace(unsigned result, unsigned argument) const;

  /// Returns the argument that is donated for `result`, or the only one that
  /// has its name, of those that `isCandidate` accepts; nullopt where there is
  /// none, or where names and donation disagree.
  std::optional<unsigned>
  getReplaced(unsigned result,
              llvm::function_ref<bool(unsigned)> isCandidate) const;

  /// "2 (params['w'])".
  std::string describeArgument(unsigned argument) const;

private:
  mlir::Type getType(unsigned argument) const;
  /// Returns the arguments whose names end as that of `result` does.
  llvm::SmallVector<unsigned> getNamesakes(unsigned result) const;

  mlir::func::FuncOp function;
  /// The names; empty if there are none.
  llvm::SmallVector<std::string> arguments, results;
  /// The arguments by the part of their names that results have too: `['w']` of
  /// `params['w']`.
  llvm::StringMap<llvm::SmallVector<unsigned>> tails;
  /// The result for which each argument is donated, and the other way round.
  llvm::DenseMap<unsigned, unsigned> donated, taken;
};

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_STEPSIGNATURE_H
