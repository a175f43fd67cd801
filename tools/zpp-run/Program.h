//===- Program.h - A compiled program and its ranks -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_ZPP_RUN_PROGRAM_H
#define ZPP_TOOLS_ZPP_RUN_PROGRAM_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/ExecutionEngine/ExecutionEngine.h"
#include "mlir/IR/BuiltinOps.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Runtime/zpp_rt.h"

#include <memory>
#include <vector>

namespace zpp {

/// The elements of a tensor, in row-major order.
using TensorData = std::vector<uint8_t>;

/// The arguments and results of a function, all of them tensors of static
/// shape.
struct Signature {
  llvm::SmallVector<mlir::RankedTensorType> arguments;
  llvm::SmallVector<mlir::RankedTensorType> results;

  /// Fails, with an error at the function, if zpp-run cannot make or read such
  /// tensors.
  static llvm::FailureOr<Signature> get(mlir::func::FuncOp function);
};

/// Returns the bytes of an element in MLIR's memory; 0 for a type whose values
/// zpp-run does not know.
int64_t getElementBytes(mlir::Type element);

/// A module that is compiled for this host.
class Program {
public:
  /// Compiles `functions` of `module` and what they call; works on a copy. With
  /// `deviceMemory` they must leave all work on tensors to the runtime.
  static llvm::Expected<Program> compile(mlir::ModuleOp module,
                                         llvm::ArrayRef<std::string> functions,
                                         bool deviceMemory);

  /// Calls `function` as `rank` and waits for it. If the runtime reports an
  /// error, the results are empty; zpp_rt_rank_message says why.
  llvm::Expected<std::vector<TensorData>>
  call(zpp_rt_rank *rank, llvm::StringRef function, const Signature &signature,
       llvm::ArrayRef<TensorData> arguments) const;

private:
  std::unique_ptr<mlir::ExecutionEngine> engine;
  /// Whether a function takes the rank as its first argument.
  llvm::StringMap<bool> takesRank;
};

} // namespace zpp

#endif // ZPP_TOOLS_ZPP_RUN_PROGRAM_H
