//===- Register.h - What zpp-opt can read and run ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_COMMON_REGISTER_H
#define ZPP_TOOLS_COMMON_REGISTER_H

#include "mlir/IR/DialectRegistry.h"

namespace zpp {

#ifdef ZPP_STABLEHLO_DIALECTS
/// Registers dialects in place of guests. The target that CMake's
/// ZPP_STABLEHLO_DIALECTS names defines it.
void registerStablehloDialects(mlir::DialectRegistry &registry);
#endif

namespace tools {

/// Registers all dialects and passes of zpp, guests for those of StableHLO and
/// Shardy that `registry` does not have, and the upstream passes that zpp's own
/// pipelines use.
void registerAll(mlir::DialectRegistry &registry);

/// Registers what a tool can read and run.
inline void registerEverything(mlir::DialectRegistry &registry) {
#ifdef ZPP_STABLEHLO_DIALECTS
  registerStablehloDialects(registry);
#endif
  registerAll(registry);
}

} // namespace tools
} // namespace zpp

#endif // ZPP_TOOLS_COMMON_REGISTER_H
