//===- FuzzMesh.cpp - Any text as a mesh ----------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Require.h"

#include "zpp/Support/Mesh.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  std::string error;
  std::optional<zpp::Mesh> mesh = zpp::Mesh::parse(text, error);
  require(mesh.has_value() == error.empty(), "a mesh or an error");
  if (mesh) {
    require(mesh->numDevices() >= 1, "at least one device");
    std::optional<zpp::Mesh> again = zpp::Mesh::parse(mesh->str(), error);
    require(again && *again == *mesh, "what is printed is what was parsed");
  }
  return 0;
}
