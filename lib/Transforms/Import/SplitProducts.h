//===- SplitProducts.h - Products that devices have split -------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// XLA's partitioner splits the product of a matrix with itself, of which each
// device has a slice, and all products that follow: it gathers one operand of
// each, or adds up what devices make of their slices. What a device has of a
// tensor is then all of it, a slice, or a summand. If that is known of each op,
// the same ops on whole tensors compute the same, and need one gather.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_IMPORT_SPLITPRODUCTS_H
#define ZPP_LIB_TRANSFORMS_IMPORT_SPLITPRODUCTS_H

#include "zpp/Analysis/SameValues.h"
#include "zpp/Dialect/Guest/PartitionSlice.h"
#include "llvm/ADT/MapVector.h"

namespace zpp {

/// The part of a tensor that a device has.
struct Share {
  enum class Kind {
    /// All of it.
    Whole,
    /// The slice of dim `dim` that has the device's place in its group.
    Slice,
    /// One of the tensors that the group adds up to it.
    Summand,
    /// A tensor of any shape, whose elements are all alike, and alike on all
    /// devices of the group.
    Splat
  };
  Kind kind;
  int64_t dim = -1;

  bool operator==(const Share &other) const {
    return kind == other.kind && dim == other.dim;
  }
  bool operator!=(const Share &other) const { return !(*this == other); }
};

/// A matrix of which each device of a group has a slice, and what the group
/// computes of it.
struct SplitProducts {
  /// The first product, of the matrix with itself.
  mlir::Operation *gram;
  /// The slice of a device, in dim `dim`.
  mlir::Value slice;
  int64_t dim;
  /// The devices, in the order of their slices.
  ReplicaGroups groups;
  /// All that follows, with `slice`, in order.
  llvm::MapVector<mlir::Value, Share> shares;
  /// The ops that make it, each after those in its regions.
  llvm::SetVector<mlir::Operation *> ops;

  /// Returns the collectives among them.
  llvm::SmallVector<mlir::Operation *> getCollectives() const;
  /// True if `op` is one of `ops`, or ends an iteration of one.
  bool contains(mlir::Operation *op) const;
  /// Returns `type`, of a value with this share, of the whole tensor.
  mlir::RankedTensorType getWholeType(mlir::Type type,
                                      const Share &share) const;
};

/// Finds what follows from the slice of `split`, but for `excluded`, for what
/// nobody can tell, and for summands that something else reads than their sum.
void followShares(SplitProducts &split, PartitionTables &tables,
                  SameValues &sameValues,
                  llvm::DenseSet<mlir::Operation *> excluded = {});

/// Has `op`, one of the ops of `split` whose result is to become `size` large
/// in the dim of its share, read splats as large. Nothing if it is not
/// elementwise.
void resizeSplats(mlir::Operation *op, const SplitProducts &split,
                  int64_t size);

/// Finds all such products of `module`, of one replica, in order.
std::vector<SplitProducts> findSplitProducts(mlir::ModuleOp module);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_IMPORT_SPLITPRODUCTS_H
