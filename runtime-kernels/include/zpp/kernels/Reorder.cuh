//===- Reorder.cuh - Slice reordering alone ---------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_REORDER_CUH
#define ZPP_KERNELS_REORDER_CUH

#include "zpp/kernels/Kernels.h"
#include "zpp/kernels/SliceIndex.cuh"

namespace zpp::kernels {

struct ReorderParams {
  const void *source;
  void *dest;
  /// The distance between chunks in bytes.
  int64_t stride;
  int32_t elementBytes;
  SliceIndex map;
};

enum class ReorderDirection { ToChunks, ToTensor };

/// Copies between a tensor and its chunk form in the widest words that the
/// sizes and addresses allow.
cudaError_t reorder(ReorderDirection direction, const ReorderParams &params,
                    const LaunchTarget &target);

} // namespace zpp::kernels

#endif // ZPP_KERNELS_REORDER_CUH
