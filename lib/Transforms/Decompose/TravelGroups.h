//===- TravelGroups.h - Exchanges that are to travel together ---*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_DECOMPOSE_TRAVELGROUPS_H
#define ZPP_LIB_TRANSFORMS_DECOMPOSE_TRAVELGROUPS_H

#include "Chains.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/Schedule.h"

namespace zpp {

/// One tensor's part of an exchange.
struct TravelPart {
  zero::CollectiveOpInterface exchange;
  /// The number of rows that a device sends, and the bytes of each.
  int64_t rows = 0;
  int64_t rowBytes = 0;
  /// Bytes of an element if the tensor travels unquantized; 0 for wire chunks.
  int64_t elementBytes = 0;
  /// For a gather, the op that puts the received rows in order; otherwise null.
  zero::UnpackSlicesOp order;

  bool isGather() {
    return llvm::isa<zero::AllGatherChunksOp>(exchange.getOperation());
  }
};

/// A chain and its exchanges, which may join others.
struct TravelChain {
  Chain chain;
  llvm::SmallVector<TravelPart> parts;
  /// Candidates join only if these are equal.
  llvm::SmallVector<mlir::Attribute> key;
  /// The place among the heavy ops of the block.
  int64_t gap = 0;

  /// Returns the bytes that a device contributes. For a gather this is its own
  /// share, even if it also sends what it has kept of the others' shares. The
  /// tensors that were kept in one buffer then fill one buffer again.
  int64_t getBytes() const {
    TravelPart part = parts.front();
    return (part.isGather() ? 1 : part.rows) * part.rowBytes;
  }

  bool isGather() const { return TravelPart(parts.front()).isGather(); }

  /// Sending takes less than a transfer's fixed cost.
  bool isSmall = false;
  /// Returns the cost of a transfer of such a chain besides the time of its
  /// bytes.
  double getLatencyUsec() const;
};

/// Returns the groups of chains of `block` that are to travel together, each in
/// order. A buffer that a device contributes `bytes` bytes to is full; if the
/// last one of a group does not become full, its tensors join the one before
/// it.
llvm::SmallVector<llvm::SmallVector<TravelChain>>
getTravelGroups(mlir::Block &block, HeavyOps &compute, const Machine &machine,
                int64_t bytes);

/// True for rows of bytes.
bool isWire(mlir::RankedTensorType type);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_DECOMPOSE_TRAVELGROUPS_H
