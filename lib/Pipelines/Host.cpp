//===- Host.cpp - From zero ops to host code ------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Pipelines/Host.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
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
  // Sizes that are computed on buffers are affine maps.
  registry.insert<affine::AffineDialect, arith::ArithDialect,
                  bufferization::BufferizationDialect, cf::ControlFlowDialect,
                  func::FuncDialect, linalg::LinalgDialect, LLVM::LLVMDialect,
                  math::MathDialect, memref::MemRefDialect, scf::SCFDialect,
                  tensor::TensorDialect>();
}

void zpp::registerHostExtensions(DialectRegistry &registry) {
  arith::registerBufferizableOpInterfaceExternalModels(registry);
  bufferization::func_ext::registerBufferizableOpInterfaceExternalModels(
      registry);
  linalg::registerBufferizableOpInterfaceExternalModels(registry);
  // Lets results be written directly to the memory of the caller.
  memref::registerAllocationOpInterfaceExternalModels(registry);
  scf::registerBufferizableOpInterfaceExternalModels(registry);
  tensor::registerBufferizableOpInterfaceExternalModels(registry);
  zero::registerBufferizableOpInterfaceExternalModels(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

namespace {
/// Turns copies with strides into loops. Upstream would call a function of
/// MLIR's own runtime library, which a program should not need.
struct LowerStridedCopies
    : public PassWrapper<LowerStridedCopies, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerStridedCopies)

  StringRef getArgument() const override { return "zero-lower-strided-copies"; }
  StringRef getDescription() const override {
    return "Turn copies of buffers with strides into loops";
  }
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

/// From tensors to buffers, results after the arguments.
static void addBufferization(OpPassManager &pm) {
  // Ops that are not decomposed cannot be bufferized, and the error of
  // bufferization would not name the missing pass.
  VerifyDecomposedPassOptions verify;
  verify.inPlace = true;
  pm.addPass(createVerifyDecomposedPass(verify));
  // Parts of what arrives are read where they are, without an analysis.
  pm.addPass(createViewPartsPass());
  // Where possible, the destination of a zero op becomes the buffer in which
  // its result is inserted.
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
  // Chunks of several tensors are computed in the buffer of their exchange.
  pm.addPass(createForwardPartsPass());
  // The caller provides the memory of results.
  pm.addPass(createResultsToArgumentsPass());
  // An insertion of a part that is already in its place is a copy of a buffer
  // to itself, which is visible once equal views are merged.
  pm.addPass(createCSEPass());
  pm.addPass(createCanonicalizerPass());
  // Adds the copies that the runtime needs before the buffers are planned.
  pm.addPass(createDenseOperandsPass());
}

/// Lowers buffers and calls of the runtime to the LLVM dialect, with upstream's
/// passes.
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

  // This needs the shapes of buffers, which the LLVM dialect does not have.
  ConvertZeroToRuntimePassOptions convert;
  convert.deviceMemory = options.deviceMemory;
  convert.allocateWorkspaces = true;
  pm.addPass(createConvertZeroToRuntimePass(convert));

  // What remains is computed on the host.
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
  PassRegistration<LowerStridedCopies>();
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
