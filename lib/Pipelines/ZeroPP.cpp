//===- ZeroPP.cpp - The zeropp pipeline -----------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Pipelines/ZeroPP.h"

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "zpp/Conversion/Passes.h"
#include "zpp/Pipelines/Host.h"
#include "zpp/Transforms/Passes.h"

using namespace mlir;
using namespace zpp;

namespace {
/// Fails for an option that is none: a pipeline is built without a place to say
/// so.
struct RefuseOption : public PassWrapper<RefuseOption, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RefuseOption)

  explicit RefuseOption(const Twine &message) : message(message.str()) {}
  StringRef getName() const override { return "RefuseOption"; }
  void runOnOperation() override {
    emitError(getOperation()->getLoc(), message);
    signalPassFailure();
  }
  std::string message;
};
} // namespace

void zpp::buildZeroPPPipeline(OpPassManager &pm, const ZeroPPOptions &options) {
  bool hasWeights = options.weights != "none";
  bool hasGradients = options.gradients != "none";
  bool hasSecondary = options.secondary != "none";

  bool isXlaFfi = options.target == "xla-ffi";
  if (!isXlaFfi && options.target != "portable")
    return pm.addPass(std::make_unique<RefuseOption>(
        "expected a target portable or xla-ffi, but got '" + options.target +
        "'"));

  int64_t coalesceBytes = options.coalesceBytes;
  for (auto [bytes, least, what] :
       {std::tuple{coalesceBytes, kDefaultCoalesceBytes, "coalesce"},
        std::tuple{int64_t(options.prefetchBytes), int64_t(0), "prefetch"}})
    if (bytes < least)
      return pm.addPass(std::make_unique<RefuseOption>(
          "expected a number of bytes to " + Twine(what) + ", but got " +
          Twine(bytes)));
  if (coalesceBytes == kDefaultCoalesceBytes)
    coalesceBytes = isXlaFfi ? 4 << 20 : 0;

  // Scatters that XLA's partitioner has spelled out are scatters to all others.
  pm.addPass(createImportPartitionedPass());

  // Everything below works on zero ops alone: import comes first, and what is
  // not to be rewritten is not imported, so that it stays as it was.
  ImportCollectivesPassOptions import;
  import.mesh = options.mesh;
  import.weightsOf = options.weightsOf;
  import.weights = hasWeights || hasSecondary || options.regather;
  import.gradients = hasGradients;
  pm.addPass(createImportCollectivesPass(import));

  // The later gathers that hpZ shortens must exist before it looks for them.
  if (options.regather)
    pm.addPass(createRegatherPass());

  // qwZ before hpZ: a secondary partition of a quantized gather is then kept
  // as it came over the wire, and both passes read the same bits.
  if (hasWeights) {
    QuantizeAllGatherPassOptions quantize;
    quantize.format = options.weights;
    quantize.block = options.block;
    quantize.links = options.links;
    pm.addPass(createQuantizeAllGatherPass(quantize));
  }
  if (hasSecondary) {
    PartitionWithinNodePassOptions partition;
    partition.secondary = options.secondary;
    partition.links = options.links;
    // Those in hops take along what would else travel alone.
    partition.splitSmall = coalesceBytes > 0;
    pm.addPass(createPartitionWithinNodePass(partition));
  }

  // qgZ on the logical level: a hop that would misplace a slice has no type.
  if (hasGradients) {
    SplitHierarchyPassOptions split;
    split.formats = options.gradients;
    split.block = options.block;
    split.links = options.links;
    // What travels with others need not shrink.
    split.splitSmall = coalesceBytes > 0;
    pm.addPass(createSplitHierarchyPass(split));
    DecomposeReduceScatterPassOptions decompose;
    decompose.stages = options.stages;
    decompose.links = options.links;
    pm.addPass(createDecomposeReduceScatterPass(decompose));
    // The order of slices becomes explicit before anything is quantized: a
    // wire chunk must hold what one device is to get.
    pm.addPass(createReorderSlicesPass());
    pm.addPass(createQuantizeAllToAllPass());
  }
  pm.addPass(createDecomposeAllGatherPass());
  // Reordering, quantization and sums are separate ops until here.
  pm.addPass(createFuseQuantizationPass());
  // Fused ops read and write rows of a shared buffer; parts of them would copy.
  if (coalesceBytes > 0) {
    CoalesceCollectivesPassOptions coalesce;
    coalesce.bytes = coalesceBytes;
    pm.addPass(createCoalesceCollectivesPass(coalesce));
  }

  // Back end (b): what is left of the collectives in the step is when they
  // start and when their results are needed.
  if (isXlaFfi) {
    pm.addPass(createOutlineCollectivesPass());
    // Within a function, and then among them and the compute.
    PipelineChunksPassOptions pipeline;
    pipeline.links = options.links;
    pm.addPass(createPipelineChunksPass(pipeline));
    // Iterations of a loop overlap where one carries what the next one needs.
    RotateLoopsPassOptions rotate;
    rotate.prefetchBytes = options.prefetchBytes;
    pm.addPass(createRotateLoopsPass(rotate));
    OverlapCollectivesPassOptions overlap;
    overlap.prefetchBytes = options.prefetchBytes;
    pm.addPass(createOverlapCollectivesPass(overlap));
    pm.addPass(createDeferStartsPass());
    // How much memory a function needs is known on buffers; the caller gives
    // it.
    buildHostBufferizationPipeline(pm.nest<ModuleOp>());
    pm.addPass(createConvertZeroToXlaFfiPass());
  }
  // What is not outlined. Layers are alike: their arithmetic is shared.
  ConvertZeroToStablehloPassOptions convert;
  convert.outline = true;
  pm.addPass(createConvertZeroToStablehloPass(convert));
}

void zpp::registerZeroPPPipeline() {
  PassPipelineRegistration<ZeroPPOptions>(
      "zeropp",
      "Rewrite the collectives of a ZeRO-3/FSDP step as ZeRO++ and lower them "
      "to portable StableHLO",
      buildZeroPPPipeline);
}
