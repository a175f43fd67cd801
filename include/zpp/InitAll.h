//===- InitAll.h - Registration of everything in zpp ------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_INITALL_H
#define ZPP_INITALL_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "zpp/Conversion/Passes.h"
#include "zpp/Dialect/Guest/GuestDialects.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Pipelines/Host.h"
#include "zpp/Pipelines/ZeroPP.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {

/// The zero dialect and those it builds on. A compiler that does not register
/// StableHLO and Shardy itself adds `registerGuestDialects`.
inline void registerAllDialects(mlir::DialectRegistry &registry) {
  registry.insert<zero::ZeroDialect, mlir::func::FuncDialect,
                  mlir::tensor::TensorDialect>();
  registerRuntimeDialects(registry);
}

inline void registerAllPasses() {
  registerZppTransformsPasses();
  registerZppConversionPasses();
  registerZeroPPPipeline();
  registerRuntimePipeline();
}

} // namespace zpp

#endif // ZPP_INITALL_H
