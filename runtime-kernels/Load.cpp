//===- Load.cpp - Putting kernels on a device -----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/kernels/Launch.h"

#include <vector>

using namespace zpp::kernels;

/// Filled while the library is loaded.
static std::vector<const void *> &getKernels() {
  static std::vector<const void *> kernels;
  return kernels;
}

bool zpp::kernels::addKernel(const void *kernel) {
  getKernels().push_back(kernel);
  return true;
}

cudaError_t zpp::kernels::load() {
  for (const void *kernel : getKernels()) {
    cudaFuncAttributes attributes;
    if (cudaError_t error = cudaFuncGetAttributes(&attributes, kernel))
      return error;
  }
  return cudaSuccess;
}
