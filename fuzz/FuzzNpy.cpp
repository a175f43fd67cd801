//===- FuzzNpy.cpp - Any bytes as an array --------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Require.h"

#include "Npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  llvm::Expected<zpp::NpyArray> array =
      zpp::parseNpy("file", {reinterpret_cast<const char *>(data), size});
  if (!array) {
    require(!llvm::toString(array.takeError()).empty(), "an error with a text");
    return 0;
  }
  require(array->data.size() <= size, "no more elements than the file has");
  return 0;
}
