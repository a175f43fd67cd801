//===- SplitBuckets.h - One collective per tensor ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_IMPORT_SPLITBUCKETS_H
#define ZPP_LIB_TRANSFORMS_IMPORT_SPLITBUCKETS_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace zpp {

/// Collectives of StableHLO may move several tensors. Roles are those of
/// tensors: this makes one collective per tensor of each gather, scatter and
/// all-reduce of `module`, until the buckets are put together again that are
/// not needed in parts.
class SplitBuckets {
public:
  explicit SplitBuckets(mlir::ModuleOp module);
  /// Erases the buckets of which parts are left.
  ~SplitBuckets();
  SplitBuckets(const SplitBuckets &) = delete;
  SplitBuckets &operator=(const SplitBuckets &) = delete;

  /// Puts those together again none of whose parts `isNeeded`. True if there
  /// were any.
  bool restore(llvm::function_ref<bool(mlir::Operation *part)> isNeeded);

private:
  struct Bucket {
    /// In no block.
    mlir::Operation *whole;
    llvm::SmallVector<mlir::Operation *> parts;
  };
  llvm::SmallVector<Bucket> buckets;
};

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_IMPORT_SPLITBUCKETS_H
