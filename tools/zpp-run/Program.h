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
#include "zpp/Runtime/zpp_rt.h"

#include <memory>
#include <vector>

namespace zpp {

/// Elements of a tensor, row-major.
using TensorData = std::vector<uint8_t>;

/// Arguments and results of a function, all tensors of static shape.
struct Signature {
  llvm::SmallVector<mlir::RankedTensorType> arguments;
  llvm::SmallVector<mlir::RankedTensorType> results;

  /// Fails, with an error at the function, where zpp-run cannot make or read
  /// such tensors.
  static llvm::FailureOr<Signature> get(mlir::func::FuncOp function);
};

/// The bytes that MLIR gives an element in memory; 0 for a type of which
/// zpp-run does not know the values.
int64_t getElementBytes(mlir::Type element);
int64_t getBytes(mlir::RankedTensorType type);

/// A module, compiled for this host.
class Program {
public:
  /// Lowers `functions` of `module`, of which a copy is made, and what they
  /// call. With `deviceMemory` they must leave all work on tensors to the
  /// runtime.
  static llvm::Expected<Program> compile(mlir::ModuleOp module,
                                         llvm::ArrayRef<std::string> functions,
                                         bool deviceMemory);

  /// Calls `function` as `rank` and waits for it. On an error of the runtime
  /// the results are empty; the rank knows why.
  llvm::Expected<std::vector<TensorData>>
  call(zpp_rt_rank *rank, llvm::StringRef function, const Signature &signature,
       llvm::ArrayRef<TensorData> arguments) const;

private:
  std::unique_ptr<mlir::ExecutionEngine> engine;
  /// Functions that take the rank.
  llvm::StringMap<bool> takesRank;
};

} // namespace zpp

#endif // ZPP_TOOLS_ZPP_RUN_PROGRAM_H
