//===- FuzzLinks.cpp - Any text as the speeds of links --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Require.h"

#include "zpp/Support/LinkModel.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const zpp::Mesh mesh({{"node", 2}, {"gpu", 4}});
  std::string text(reinterpret_cast<const char *>(data), size);
  std::string error;
  std::optional<zpp::LinkModel> model =
      zpp::LinkModel::parse(text, mesh, error);
  require(model.has_value() == error.empty(), "speeds or an error");
  if (model) {
    double usec = model->getExchangeUsec({1 << 20, 1 << 24});
    require(usec >= zpp::LinkModel::kExchangeUsec, "a time, not NaN");
    zpp::chooseStages({usec, usec / 2}, 64);
  }
  return 0;
}
