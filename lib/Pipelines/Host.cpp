//===- Host.cpp - From zero ops to host code ------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Pipelines/Host.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Pipelines/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/FuncBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/Transforms/RequestCWrappers.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Linalg/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/AllocationOpInterfaceImpl.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Transforms/Passes.h"
#include "zpp/Conversion/Passes.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Dialect/Zero/Transforms/BufferizableOpInterfaceImpl.h"
#include "zpp/Transforms/Passes.h"

using namespace mlir;
using namespace zpp;

void zpp::registerHostDialects(DialectRegistry &registry) {
  registry
      .insert<arith::ArithDialect, bufferization::BufferizationDialect,
              cf::ControlFlowDialect, func::FuncDialect, linalg::LinalgDialect,
              LLVM::LLVMDialect, math::MathDialect, memref::MemRefDialect,
              scf::SCFDialect, tensor::TensorDialect>();
}

void zpp::registerHostExtensions(DialectRegistry &registry) {
  arith::registerBufferizableOpInterfaceExternalModels(registry);
  bufferization::func_ext::registerBufferizableOpInterfaceExternalModels(
      registry);
  linalg::registerBufferizableOpInterfaceExternalModels(registry);
  // Lets results be written where the caller wants them, without a copy.
  memref::registerAllocationOpInterfaceExternalModels(registry);
  scf::registerBufferizableOpInterfaceExternalModels(registry);
  tensor::registerBufferizableOpInterfaceExternalModels(registry);
  zero::registerBufferizableOpInterfaceExternalModels(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

namespace {
/// Copies with strides become loops: upstream would call a function of MLIR's
/// own runtime library, which a program should not need.
struct LowerStridedCopies
    : public PassWrapper<LowerStridedCopies, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerStridedCopies)

  StringRef getName() const override { return "LowerStridedCopies"; }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<linalg::LinalgDialect>();
  }
  void runOnOperation() override {
    auto isDense = [](Value buffer) {
      auto type = dyn_cast<MemRefType>(buffer.getType());
      return type && type.getLayout().isIdentity();
    };
    SmallVector<memref::CopyOp> copies;
    getOperation()->walk([&](memref::CopyOp copy) {
      if (!isDense(copy.getSource()) || !isDense(copy.getTarget()))
        copies.push_back(copy);
    });
    for (memref::CopyOp copy : copies) {
      OpBuilder builder(copy);
      linalg::makeMemRefCopyOp(builder, copy.getLoc(), copy.getSource(),
                               copy.getTarget());
      copy.erase();
    }
  }
};
} // namespace

/// From tensors to buffers, results behind the arguments.
static void addBufferization(OpPassManager &pm) {
  // What is not decomposed has no buffers, and bufferization could only say
  // that much.
  VerifyDecomposedPassOptions verify;
  verify.inPlace = true;
  pm.addPass(createVerifyDecomposedPass(verify));
  // Destinations of zero ops become the buffers that their results are wanted
  // in, where possible: parts of a whole are made in their place.
  pm.addPass(createConcatInPlacePass());
  pm.addPass(bufferization::createEmptyTensorEliminationPass());
  // The runtime takes dense buffers: arguments and results have no strides.
  bufferization::OneShotBufferizePassOptions bufferize;
  bufferize.bufferizeFunctionBoundaries = true;
  bufferize.functionBoundaryTypeConversion =
      bufferization::LayoutMapOption::IdentityLayoutMap;
  // A loop that cannot update what it carries in place gets a new buffer in
  // each iteration.
  bufferize.allowReturnAllocsFromLoops = true;
  pm.addPass(bufferization::createOneShotBufferizePass(bufferize));
  // The caller provides the memory of results.
  pm.addPass(createResultsToArgumentsPass());
  // What was inserted where it already lies is a copy to itself, which shows
  // when equal views have become one.
  pm.addPass(createCSEPass());
  pm.addPass(createCanonicalizerPass());
  // Copies that are needed anyhow, before their buffers are planned.
  pm.addPass(createDenseOperandsPass());
}

/// Upstream's way to the LLVM dialect, from buffers and calls of the runtime.
static void addLowering(OpPassManager &pm) {
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createFinalizeMemRefToLLVMConversionPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createConvertFuncToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createCanonicalizerPass());
}

void zpp::buildRuntimePipeline(OpPassManager &pm,
                               const RuntimePipelineOptions &options) {
  addBufferization(pm);
  PlanWorkspacePassOptions plan;
  plan.reuse = options.reuse;
  plan.allFunctions = options.deviceMemory;
  pm.addPass(createPlanWorkspacePass(plan));
  // Functions without zero ops keep memory of their own.
  bufferization::BufferDeallocationPipelineOptions dealloc;
  bufferization::buildBufferDeallocationPipeline(pm, dealloc);
  pm.addPass(createConvertBufferizationToMemRefPass());

  // While buffers still have shapes.
  ConvertZeroToRuntimePassOptions convert;
  convert.deviceMemory = options.deviceMemory;
  convert.allocateWorkspaces = true;
  pm.addPass(createConvertZeroToRuntimePass(convert));

  // What the host computes.
  pm.addPass(std::make_unique<LowerStridedCopies>());
  pm.addNestedPass<func::FuncOp>(createConvertLinalgToLoopsPass());
  pm.addNestedPass<func::FuncOp>(LLVM::createLLVMRequestCWrappersPass());
  addLowering(pm);
}

void zpp::buildHostBufferizationPipeline(
    OpPassManager &pm, const HostBufferizationOptions &options) {
  addBufferization(pm);
  PlanWorkspacePassOptions plan;
  plan.reuse = options.reuse;
  plan.allFunctions = true;
  pm.addPass(createPlanWorkspacePass(plan));
  pm.addPass(createCanonicalizerPass());
}

void zpp::buildHostFunctionPipeline(OpPassManager &pm) {
  ConvertZeroToRuntimePassOptions convert;
  convert.deviceMemory = true;
  pm.addPass(createConvertZeroToRuntimePass(convert));
  pm.addPass(createPackArgumentsPass());
  addLowering(pm);
}

void zpp::registerHostPipelines() {
  PassPipelineRegistration<RuntimePipelineOptions>(
      "zero-to-llvm",
      "Lower decomposed zero ops on tensors to the LLVM dialect with calls of "
      "libzpp_rt",
      buildRuntimePipeline);
  PassPipelineRegistration<HostBufferizationOptions>(
      "zero-bufferize-host",
      "Lower host functions from tensors to buffers: results and a planned "
      "workspace become arguments",
      buildHostBufferizationPipeline);
  PassPipelineRegistration<>(
      "zero-host-to-llvm",
      "Lower host functions on buffers to the LLVM dialect as C functions that "
      "only call libzpp_rt",
      buildHostFunctionPipeline);
}
