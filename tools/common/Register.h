//===- Register.h - What zpp-opt can read and run ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_COMMON_REGISTER_H
#define ZPP_TOOLS_COMMON_REGISTER_H

#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Transforms/Passes.h"
#include "zpp/InitAll.h"

namespace zpp::tools {

/// Registers all dialects and passes of zpp, guests for those of StableHLO and
/// Shardy, and the upstream passes that zpp's own pipelines use, for hand-made
/// pipelines.
inline void registerEverything(mlir::DialectRegistry &registry) {
  registerAllDialects(registry);
  registerAllExtensions(registry);
  registerGuestDialects(registry);
  registry.insert<mlir::shard::ShardDialect>();
  registerAllPasses();
  mlir::bufferization::registerBufferizationPasses();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
}

} // namespace zpp::tools

#endif // ZPP_TOOLS_COMMON_REGISTER_H
