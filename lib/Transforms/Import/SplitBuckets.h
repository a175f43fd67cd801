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

/// Collectives of StableHLO may move several tensors, but roles are those of
/// single tensors. This splits each gather, scatter and all-reduce of `module`
/// into one collective per tensor. Buckets of which no part is needed can be
/// restored.
class SplitBuckets {
public:
  struct Bucket {
    /// The original op, which is in no block while it is split.
    mlir::Operation *whole;
    llvm::SmallVector<mlir::Operation *> parts;
  };

  explicit SplitBuckets(mlir::ModuleOp module);
  /// Erases the buckets that were not restored.
  ~SplitBuckets();
  SplitBuckets(const SplitBuckets &) = delete;
  SplitBuckets &operator=(const SplitBuckets &) = delete;

  /// Restores the buckets of which no part `isNeeded`, and returns them. Their
  /// parts exist no longer.
  llvm::SmallVector<Bucket>
  restore(llvm::function_ref<bool(mlir::Operation *part)> isNeeded);

private:
  llvm::SmallVector<Bucket> buckets;
};

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_IMPORT_SPLITBUCKETS_H
