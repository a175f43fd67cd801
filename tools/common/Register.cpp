//===- Register.cpp - What zpp-opt can read and run -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Register.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/Quant/IR/Quant.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Transforms/Passes.h"
#include "zpp/InitAll.h"

/// Registers the upstream passes that zpp's own pipelines use, for reproducers
/// and hand-made pipelines.
static void registerUpstreamPasses() {
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

void zpp::tools::registerAll(mlir::DialectRegistry &registry) {
  registerAllDialects(registry);
  registerAllExtensions(registry);
  registerGuestDialects(registry);
  // Types of StableHLO's quantized tensors, and meshes of MLIR.
  registry.insert<mlir::quant::QuantDialect, mlir::shard::ShardDialect>();
  registerAllPasses();
  registerUpstreamPasses();
}
