//===- FuzzFormats.cpp - Any text as formats of gradients or weights ------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formats.h"
#include "Require.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

#include <cstring>

using namespace mlir;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<zpp::zero::ZeroDialect>();
  static OwningOpRef<ModuleOp> module =
      ModuleOp::create(UnknownLoc::get(&context));
  size_t errors = 0;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    require(!diagnostic.str().empty(), "an error with a text");
    ++errors;
    return success();
  });
  // The first bytes are the block.
  int64_t block = 0;
  size_t blockBytes = std::min(size, size_t(4));
  std::memcpy(&block, data, blockBytes);
  StringRef text(reinterpret_cast<const char *>(data) + blockBytes,
                 size - blockBytes);
  FailureOr<SmallVector<zpp::zero::QuantAttr>> formats =
      zpp::parseFormats(*module, text, block);
  require(succeeded(formats) == (errors == 0), "formats or an error");
  if (succeeded(formats))
    require(formats->size() == 1 + text.count(':'), "a format per name");
  return 0;
}
