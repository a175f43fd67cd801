//===- InitAll.h - Registration of everything in zpp ------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_INITALL_H
#define ZPP_INITALL_H

#include "zpp/Conversion/Passes.h"
#include "zpp/Dialect/Guest/GuestDialects.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Pipelines/Host.h"
#include "zpp/Pipelines/ZeroPP.h"
#include "zpp/Transforms/Passes.h"
#include "zpp/Transforms/Report.h"

namespace zpp {

/// The zero dialect and the upstream dialects that programs with zero ops use.
/// A compiler that does not register StableHLO and Shardy itself adds
/// `registerGuestDialects`.
inline void registerAllDialects(mlir::DialectRegistry &registry) {
  registry.insert<zero::ZeroDialect>();
  registerHostDialects(registry);
}

/// The interfaces that the passes need on ops of these dialects, among them
/// those of upstream: bufferization and the translation to LLVM IR. Registering
/// an interface that the compiler has registered already does nothing.
inline void registerAllExtensions(mlir::DialectRegistry &registry) {
  registerHostExtensions(registry);
}

/// The flags of zpp's passes and pipelines. No pass of upstream is registered:
/// that is for the compiler to do, and allowed only once.
inline void registerAllPasses() {
  registerZppTransformsPasses();
  registerZppConversionPasses();
  registerZeroPPPipeline();
  registerHostPipelines();
}

} // namespace zpp

#endif // ZPP_INITALL_H
