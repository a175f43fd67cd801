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
/// Reports an invalid option when the pipeline runs: nothing can be reported
/// while it is built.
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
  auto [weightFormat, weightKind] = StringRef(options.weights).split(':');
  bool sendsDifferences = weightKind == "delta";
  bool hasWeights = options.weights != "none";
  bool hasGradients = options.gradients != "none";
  bool hasSecondary = options.secondary != "none";
  bool sendsUpdates = options.updated != "none";

  bool isXlaFfi = options.target == "xla-ffi";
  if (!isXlaFfi && options.target != "portable")
    return pm.addPass(std::make_unique<RefuseOption>(
        "expected a target portable or xla-ffi, but got '" + options.target +
        "'"));

  if (!weightKind.empty() && !sendsDifferences)
    return pm.addPass(std::make_unique<RefuseOption>(
        "expected weights as none, i8, i4, i8:delta or i4:delta, but got '" +
        options.weights + "'"));
  if (sendsDifferences && !hasSecondary)
    return pm.addPass(std::make_unique<RefuseOption>(
        "expected a secondary partition with weights=" + options.weights +
        ", which is what differences are taken to, but got secondary=none"));

  bool keepsFrozen = options.frozen == "keep";
  if (!keepsFrozen && options.frozen != "none")
    return pm.addPass(std::make_unique<RefuseOption>(
        "expected frozen as none or keep, but got '" + options.frozen + "'"));
  if (keepsFrozen && !hasSecondary)
    return pm.addPass(
        std::make_unique<RefuseOption>("expected a secondary partition with "
                                       "frozen=keep, which is what is kept, "
                                       "but got secondary=none"));
  bool feedsBack = options.feedback != "none";
  if (!llvm::is_contained({"none", "last", "all"}, StringRef(options.feedback)))
    return pm.addPass(std::make_unique<RefuseOption>(
        "expected feedback as none, last or all, but got '" + options.feedback +
        "'"));
  if (feedsBack && !hasGradients)
    return pm.addPass(std::make_unique<RefuseOption>(
        "expected formats of gradients with feedback=" + options.feedback +
        ", which is of what they round, but got gradients=none"));
  if (!llvm::is_contained({"none", "frozen", "all"}, StringRef(options.start)))
    return pm.addPass(std::make_unique<RefuseOption>(
        "expected start as none, frozen or all, but got '" + options.start +
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

  // XLA's partitioner spells scatters out; the passes below look for scatters.
  pm.addPass(createImportPartitionedPass());

  // Everything below works on zero ops, so import comes first. Collectives that
  // are not to be rewritten are not imported, and stay as they are.
  ImportCollectivesPassOptions import;
  import.mesh = options.mesh;
  import.weightsOf = options.weightsOf;
  import.weights = hasWeights || hasSecondary || options.regather;
  import.gradients = hasGradients;
  import.updated = sendsUpdates;
  pm.addPass(createImportCollectivesPass(import));

  // The later gathers that hpZ shortens must exist before it looks for them.
  if (options.regather)
    pm.addPass(createRegatherPass());

  // qwZ comes before hpZ: the secondary partition of a quantized gather is then
  // kept as it was received, and the forward and the backward pass read the
  // same bits.
  QuantizeAllGatherPassOptions quantize;
  quantize.format = weightFormat.str();
  quantize.block = options.block;
  quantize.links = options.links;
  if (hasWeights && !sendsDifferences)
    pm.addPass(createQuantizeAllGatherPass(quantize));
  if (hasSecondary) {
    PartitionWithinNodePassOptions partition;
    partition.secondary = options.secondary;
    partition.links = options.links;
    // Small gathers can travel with those that are split into hops.
    partition.splitSmall = coalesceBytes > 0;
    partition.betweenSteps = sendsDifferences ? "all"
                             : keepsFrozen    ? "frozen"
                                              : "none";
    pm.addPass(createPartitionWithinNodePass(partition));
  }
  if (sendsDifferences) {
    // Weights without a secondary partition, such as those that are gathered
    // within a node only, have no difference to send.
    quantize.format = "i8";
    quantize.singleOnly = true;
    pm.addPass(createQuantizeAllGatherPass(quantize));
  }
  if (keepsFrozen) {
    // What does not change has no differences to send. qwZ, which must know
    // what reads secondary partitions, is behind us.
    KeepFrozenPassOptions keep;
    keep.start = options.start != "none";
    pm.addPass(createKeepFrozenPass(keep));
  }
  if (sendsDifferences) {
    SendDifferencesPassOptions differences;
    differences.format = weightFormat.str();
    differences.block = options.block;
    differences.start = options.start == "all";
    pm.addPass(createSendDifferencesPass(differences));
  }

  if (sendsUpdates) {
    // The gathers that it makes are of state, not of weights to compute with:
    // the passes for those are behind us.
    SendUpdatesPassOptions updates;
    updates.format = options.updated;
    updates.block = options.block;
    updates.links = options.links;
    pm.addPass(createSendUpdatesPass(updates));
  }

  // qgZ starts on the logical level, where types rule out misplaced slices.
  if (hasGradients) {
    // An all-reduce is a scatter and a gather. It takes in the scatter before
    // it, while that is one op. Its gathers are not those of weights: the
    // passes for these are behind us.
    SplitAllReducePassOptions allReduce;
    allReduce.formats = options.gradients;
    allReduce.reduced = options.reduced;
    allReduce.block = options.block;
    allReduce.rotate = options.rotate;
    allReduce.stages = options.stages;
    allReduce.links = options.links;
    allReduce.splitSmall = coalesceBytes > 0;
    pm.addPass(createSplitAllReducePass(allReduce));
    SplitHierarchyPassOptions split;
    split.formats = options.gradients;
    split.block = options.block;
    split.rotate = options.rotate;
    split.links = options.links;
    // Scatters that travel with others are split even if they do not shrink.
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
    if (feedsBack) {
      // What a hop quantizes is one value until it is fused with the sum or the
      // order before it.
      FeedErrorsBackPassOptions feed;
      feed.hops = options.feedback;
      feed.start = options.start == "all";
      pm.addPass(createFeedErrorsBackPass(feed));
    }
  }
  pm.addPass(createDecomposeAllGatherPass());
  // Reordering, quantization and sums are separate ops until here.
  pm.addPass(createFuseQuantizationPass());
  // Only fused ops can read and write rows of a shared buffer without copies.
  if (coalesceBytes > 0) {
    CoalesceCollectivesPassOptions coalesce;
    coalesce.bytes = coalesceBytes;
    pm.addPass(createCoalesceCollectivesPass(coalesce));
  }

  // With target xla-ffi, the step only contains the points where collectives
  // start and where their results are needed.
  if (isXlaFfi) {
    pm.addPass(createOutlineCollectivesPass());
    // First the order within each function is decided, then the order of
    // functions among the compute.
    PipelineChunksPassOptions pipeline;
    pipeline.links = options.links;
    pm.addPass(createPipelineChunksPass(pipeline));
    // Iterations of a loop overlap if one gathers what the next one needs.
    RotateLoopsPassOptions rotate;
    rotate.prefetchBytes = options.prefetchBytes;
    pm.addPass(createRotateLoopsPass(rotate));
    OverlapCollectivesPassOptions overlap;
    overlap.prefetchBytes = options.prefetchBytes;
    pm.addPass(createOverlapCollectivesPass(overlap));
    pm.addPass(createDeferStartsPass());
    // The memory that a function needs is known once it works on buffers. The
    // caller provides it.
    buildHostBufferizationPipeline(pm.nest<ModuleOp>());
    pm.addPass(createConvertZeroToXlaFfiPass());
  }
  // The collectives that were not outlined. Layers are alike, so they share
  // their arithmetic.
  ConvertZeroToStablehloPassOptions convert;
  convert.outline = true;
  pm.addPass(createConvertZeroToStablehloPass(convert));
}

void zpp::registerZeroPPPipeline() {
  PassPipelineRegistration<ZeroPPOptions>(
      "zeropp",
      "Rewrite the collectives of a ZeRO-3/FSDP step as ZeRO++ and lower the "
      "step to StableHLO, with custom calls for target=xla-ffi",
      buildZeroPPPipeline);
}
