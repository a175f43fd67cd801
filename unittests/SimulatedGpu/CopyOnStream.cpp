//===- CopyOnStream.cpp - Copies of the suites' own exchanges -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Apart from BackendMain.cpp, which programs without the harness use too.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include <cuda_runtime_api.h>

[[maybe_unused]] static const bool kIsSet = [] {
  zpp::copyOnStream = [](void *dest, const void *source, size_t bytes,
                         void *stream) {
    auto handle = static_cast<cudaStream_t>(stream);
    EXPECT_EQ(cudaMemcpyAsync(dest, source, bytes, cudaMemcpyDefault, handle),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(handle), cudaSuccess);
  };
  return true;
}();
