//===- PartitionSlice.h - What each device cuts out -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// XLA's partitioner writes a reduce-scatter as an all-reduce of which every
// device cuts out a slice, at an offset that it computes from `partition_id`.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_PARTITIONSLICE_H
#define ZPP_DIALECT_GUEST_PARTITIONSLICE_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/Operation.h"

#include <optional>
#include <string>
#include <vector>

namespace zpp {

/// A `stablehlo.dynamic_slice` of one dim whose place depends on the device
/// alone.
struct PartitionSlice {
  mlir::Operation *op = nullptr;
  int64_t dim = 0;
  /// Where each device's slice begins, by the number of its partition.
  std::vector<int64_t> offsets;
};

/// Evaluates integers that depend on nothing but the device, in a module of
/// `numPartitions` partitions of one replica.
class PartitionTables {
public:
  explicit PartitionTables(int64_t numPartitions)
      : numPartitions(numPartitions) {}

  /// Reads `op`. nullopt for other ops, and with `error` for slices of several
  /// dims or at offsets that depend on more than the device.
  std::optional<PartitionSlice> getSlice(mlir::Operation *op,
                                         std::string &error);

private:
  using Table = std::optional<std::vector<int64_t>>;
  /// The values of a scalar, or of a tensor of one element, on all devices.
  const Table &evaluate(mlir::Value value);
  Table compute(mlir::Value value);

  int64_t numPartitions;
  llvm::DenseMap<mlir::Value, Table> known;
};

/// Where dim `dim` of the result of `op` is in its operand, if `op` is a cast,
/// a transpose, or a reshape that only adds or drops dims of size 1; nullopt
/// for other ops.
std::optional<int64_t> getOperandDim(mlir::Operation *op, int64_t dim);
/// Where dim `dim` of the operand is in the result; the reverse.
std::optional<int64_t> getResultDim(mlir::Operation *op, int64_t dim);

/// Builds `op`, one of those ops, on `operand`: a part of what it had, of
/// `size` elements in dim `dim` of the result.
mlir::Value buildOnPart(mlir::OpBuilder &builder, mlir::Operation *op,
                        mlir::Value operand, int64_t dim, int64_t size);

/// Removes what XLA's partitioner leaves in a module that no pass should see:
/// `mhlo.copy`, which is its operand, and notes on layouts. Returns how many
/// ops there were.
int64_t eraseXlaCopies(mlir::Operation *module);

/// Erases `op` if nothing reads it and it has no effect, and then what it alone
/// has read.
void eraseUnread(mlir::Operation *op);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_PARTITIONSLICE_H
