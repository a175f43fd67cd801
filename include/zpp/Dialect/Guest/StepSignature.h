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

#include <optional>
#include <string>

namespace zpp {

/// The arguments and results of a step, as far as its producer describes them.
class StepSignature {
public:
  explicit StepSignature(mlir::func::FuncOp function);

  /// False if the producer says otherwise: `argument` or `result` is paired
  /// with another one, or the name of `result` is that of another argument of
  /// this type. Their types must agree.
  bool mayReplace(unsigned result, unsigned argument) const;

  /// The one of `candidates`, arguments of its type, that is donated for
  /// `result`, or the only one that has its name; nullopt where there is none,
  /// or where names and donation disagree.
  std::optional<unsigned>
  getReplaced(unsigned result, llvm::ArrayRef<unsigned> candidates) const;

  /// "2 (params['w'])".
  std::string describeArgument(unsigned argument) const;

private:
  mlir::Type getType(unsigned argument) const;
  /// True if both have names, and the same but for what is in front.
  bool haveOneName(unsigned result, unsigned argument) const;

  mlir::func::FuncOp function;
  /// The names, and the part of those of arguments that results have too:
  /// `['w']` of `params['w']`. Empty if there are none.
  llvm::SmallVector<std::string> arguments, tails, results;
  /// The result for which each argument is donated.
  llvm::DenseMap<unsigned, unsigned> donated;
};

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_STEPSIGNATURE_H
