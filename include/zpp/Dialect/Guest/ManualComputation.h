//===- ManualComputation.h - Shardy's manual computations -------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `shard_map` becomes an `sdy.manual_computation`: an op with a region that
// works on each device's parts of the operands. `jax.grad` of a `shard_map`
// gives two of them, forward and backward.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_MANUALCOMPUTATION_H
#define ZPP_DIALECT_GUEST_MANUALCOMPUTATION_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/DenseMap.h"

#include <optional>
#include <string>

namespace zpp {

/// True if `op` is a manual computation whose region and attributes can be
/// read.
bool isManualComputation(mlir::Operation *op);

/// A manual computation with names for its parts. Operand i is argument i of
/// its body; operand i of the terminator there is result i.
class ManualView {
public:
  /// `manual` must be an `sdy.manual_computation` with a region of one block.
  explicit ManualView(mlir::Operation *manual) : manual(manual) {}

  mlir::Operation *getOperation() const { return manual; }
  mlir::Operation *operator->() const { return manual; }

  mlir::Block &getBody() const { return manual->getRegion(0).front(); }
  /// True if `value` is defined in the body, also in a region there.
  bool contains(mlir::Value value) const {
    return manual->getRegion(0).isAncestor(value.getParentRegion());
  }
  mlir::BlockArgument getArgument(unsigned number) const {
    return getBody().getArgument(number);
  }
  /// Returns the terminator of the body.
  mlir::Operation *getYield() const { return &getBody().back(); }
  /// Returns the value, in the body, that becomes result `number`.
  mlir::Value getYielded(unsigned number) const {
    return getYield()->getOperand(number);
  }

private:
  mlir::Operation *manual;
};

/// Returns the sharding of each operand of `manual`, a manual computation, as
/// text: `<@mesh, [{"node", "gpu"}, {}]>`.
llvm::SmallVector<std::string> getOperandShardings(mlir::Operation *manual);

/// Answers the same many times, and reads each list of shardings once: a manual
/// computation may have thousands of operands.
class ManualComputations {
public:
  /// isManualComputation.
  bool contains(mlir::Operation *op);

  /// Returns the shardings of a manual computation's operands and of its
  /// results.
  llvm::ArrayRef<std::string> getOperandShardings(mlir::Operation *manual);
  llvm::ArrayRef<std::string> getResultShardings(mlir::Operation *manual);

  /// Whether getSharedNothingSharding finds a mesh.
  bool namesMesh(mlir::Operation *manual);

private:
  using Shardings = std::optional<llvm::SmallVector<std::string>>;
  const Shardings &get(mlir::Operation *manual, llvm::StringRef name);

  llvm::DenseMap<mlir::Attribute, Shardings> lists;
  /// By all attributes of the computation.
  llvm::DenseMap<mlir::Attribute, bool> meshes;
};

/// Returns the dims of the shardings in an attribute of Shardy, as text. The
/// names of the meshes are dropped: a step has only one mesh, possibly under
/// several names.
llvm::SmallVector<std::string> getShardingDims(mlir::Attribute attribute);

/// Returns the sharding of a tensor of rank 1 of which every device has its own
/// part: over all axes of the computation `manual`. Empty if the computation
/// names no mesh.
std::string getSharedNothingSharding(mlir::Operation *manual);

/// Returns the attributes of an argument or a result of a function with this
/// sharding.
mlir::DictionaryAttr getSharedNothingAttributes(mlir::Operation *manual);

/// Rebuilds `manual` with more operands and results, all of rank 1 and with the
/// sharding of getSharedNothingSharding. `operands` are tensors outside,
/// `results` are local tensors in the region. `devices` is the number of parts.
/// The last results and the last arguments of the region are the new ones.
ManualView extendManualComputation(mlir::Operation *manual,
                                   mlir::ValueRange operands,
                                   mlir::ValueRange results, int64_t devices);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_MANUALCOMPUTATION_H
