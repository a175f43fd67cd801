//===- Backends.cpp - The back ends of this library -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Handles.h"

#include <algorithm>
#include <cstring>
#include <iterator>

using namespace zpp::rt;

static constexpr BackendEntry kBackends[] = {
    {"cpu", createCpuBackend, createExternalCpuBackend},
#ifdef ZPP_RT_HAS_CUDA
    {"cuda", createCudaBackend, createExternalCudaBackend},
#endif
};

Status zpp::rt::findBackend(const char *name, const BackendEntry *&backend) {
  backend = std::find_if(std::begin(kBackends), std::end(kBackends),
                         [&](const BackendEntry &entry) {
                           return std::strcmp(entry.name, name) == 0;
                         });
  if (backend != std::end(kBackends))
    return {};
  std::string names;
  for (const BackendEntry &entry : kBackends)
    names += (names.empty() ? "" : ", ") + quote(entry.name);
  return {ZPP_RT_UNSUPPORTED,
          expected("one of the back ends " + names, quote(name))};
}
