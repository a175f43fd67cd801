//===- RuntimePipeline.h - From zero ops to host code -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_CONVERSION_RUNTIMEPIPELINE_H
#define ZPP_CONVERSION_RUNTIMEPIPELINE_H

namespace mlir {
class DialectRegistry;
class OpPassManager;
} // namespace mlir

namespace zpp {

/// Dialects and interfaces on the way from zero ops to host code: tensors,
/// buffers, loops, the LLVM dialect and its translation.
void registerRuntimeDialects(mlir::DialectRegistry &registry);

/// Appends the passes from decomposed zero ops on tensors, among ops of
/// upstream dialects, to the LLVM dialect with calls of libzpp_rt. Every
/// function gets its results as destinations behind its arguments, and a C
/// wrapper.
void buildRuntimePipeline(mlir::OpPassManager &pm);

/// Registers `--zero-to-llvm`, and the upstream passes that it is made of.
void registerRuntimePipeline();

} // namespace zpp

#endif // ZPP_CONVERSION_RUNTIMEPIPELINE_H
