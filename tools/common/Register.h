//===- Register.h - What zpp-opt can read and run ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_COMMON_REGISTER_H
#define ZPP_TOOLS_COMMON_REGISTER_H

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/Quant/IR/Quant.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Transforms/Passes.h"
#include "zpp/InitAll.h"

namespace zpp::tools {

/// Registers the upstream passes that zpp's own pipelines use, for reproducers
/// and hand-made pipelines.
inline void registerUpstreamPasses() {
  mlir::bufferization::registerBufferizationPasses();
  mlir::memref::registerExpandReallocPass();
  mlir::memref::registerExpandStridedMetadataPass();
  mlir::registerArithToLLVMConversionPass();
  mlir::registerCanonicalizerPass();
  mlir::registerConvertBufferizationToMemRefPass();
  mlir::registerConvertControlFlowToLLVMPass();
  mlir::registerConvertFuncToLLVMPass();
  mlir::registerConvertLinalgToLoopsPass();
  mlir::registerConvertMathToLLVMPass();
  mlir::registerCSEPass();
  mlir::registerFinalizeMemRefToLLVMConversionPass();
  mlir::registerLowerAffinePass();
  mlir::registerReconcileUnrealizedCastsPass();
  mlir::registerSCFToControlFlowPass();
  mlir::LLVM::registerLLVMRequestCWrappersPass();
}

#ifdef ZPP_STABLEHLO_DIALECTS
} // namespace zpp::tools
namespace zpp {
/// Registers dialects in place of guests. The target that CMake's
/// ZPP_STABLEHLO_DIALECTS names defines it.
void registerStablehloDialects(mlir::DialectRegistry &registry);
} // namespace zpp
namespace zpp::tools {
#endif

/// Registers all dialects and passes of zpp, guests for those of StableHLO and
/// Shardy that are not linked, and the upstream passes that zpp's own pipelines
/// use.
inline void registerEverything(mlir::DialectRegistry &registry) {
  registerAllDialects(registry);
  registerAllExtensions(registry);
#ifdef ZPP_STABLEHLO_DIALECTS
  registerStablehloDialects(registry);
#endif
  registerGuestDialects(registry);
  // Types of StableHLO's quantized tensors, and meshes of MLIR.
  registry.insert<mlir::quant::QuantDialect, mlir::shard::ShardDialect>();
  registerAllPasses();
  registerUpstreamPasses();
}

} // namespace zpp::tools

#endif // ZPP_TOOLS_COMMON_REGISTER_H
