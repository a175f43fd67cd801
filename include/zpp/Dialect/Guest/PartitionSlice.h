//===- PartitionSlice.h - What each device cuts out -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// XLA's partitioner writes a reduce-scatter as an all-reduce followed by
// slices: every device cuts out its part, at an offset that it computes from
// `partition_id`.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_PARTITIONSLICE_H
#define ZPP_DIALECT_GUEST_PARTITIONSLICE_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/PatternMatch.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"

#include <optional>
#include <string>
#include <vector>

namespace zpp {

/// A `stablehlo.dynamic_slice` of one dim whose offset depends on the device
/// alone.
struct PartitionSlice {
  mlir::Operation *op = nullptr;
  int64_t dim = 0;
  /// The offset of each device's slice, indexed by partition.
  std::vector<int64_t> offsets;

  /// True if the slices of each of `groups` are all of the dim, in the order of
  /// its devices.
  bool isInOrderOf(const ReplicaGroups &groups) const;
};

/// Evaluates integers that depend only on the device, in a module of
/// `numPartitions` partitions and one replica.
class PartitionTables {
public:
  explicit PartitionTables(int64_t numPartitions)
      : numPartitions(numPartitions) {}

  /// Reads `op`. Returns nullopt for other ops. For slices of several dims, or
  /// at offsets that depend on more than the device, also sets `error`.
  std::optional<PartitionSlice> getSlice(mlir::Operation *op,
                                         std::string &error);

  using Table = std::optional<std::vector<int64_t>>;
  /// The values of a scalar, or of a tensor of one element, on all devices.
  const Table &evaluate(mlir::Value value);

private:
  Table compute(mlir::Value value);

  int64_t numPartitions;
  llvm::DenseMap<mlir::Value, Table> known;
};

/// The one of `offsets` that each device of a module of one replica has.
mlir::Value buildPartitionOffset(mlir::RewriterBase &builder,
                                 mlir::Location loc,
                                 llvm::ArrayRef<int64_t> offsets);

/// Cuts `size` elements of dim `dim` out of `value`, at `offset`.
mlir::Value buildSliceAt(mlir::RewriterBase &builder, mlir::Location loc,
                         mlir::Value value, int64_t dim, mlir::Value offset,
                         int64_t size);

/// Builds a copy of `op`, a cast, a transpose or a reshape, on `operand`, which
/// is a part of its operand: `size` elements in dim `dim` of the result.
mlir::Value buildOnPart(mlir::OpBuilder &builder, mlir::Operation *op,
                        mlir::Value operand, int64_t dim, int64_t size);

/// `type`, of a tensor, with `size` in dim `dim`.
mlir::RankedTensorType resizeDim(mlir::Type type, int64_t dim, int64_t size);

/// True for a constant of elements that are all alike, and for a broadcast to
/// dim `dim`, or of one element.
bool isSplatAlong(mlir::Value value, int64_t dim);

/// Has `operand`, such a splat, be one with `size` in dim `dim`.
void resizeSplat(mlir::OpOperand &operand, int64_t dim, int64_t size);

/// Removes leftovers of XLA's partitioner that no pass should see: `mhlo.copy`,
/// which equals its operand, and attributes for layouts. Returns the number of
/// ops.
int64_t eraseXlaCopies(mlir::Operation *module);

/// Makes reshapes of sums over dims of size 1, as the derivatives of broadcasts
/// have them. They move elements, which the sums do not show.
void reshapeUnitSums(mlir::Operation *module);

/// True for a concatenation.
bool isConcatenation(mlir::Operation *op);

/// Returns the operand of a concatenation that `op`, a slice of its result,
/// cuts out whole; null if it is no such slice.
mlir::Value getSlicedOperand(mlir::Operation *op);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_PARTITIONSLICE_H
