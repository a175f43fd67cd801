//===- ZeroPP.cpp - The zeropp pipeline -----------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Pipelines/ZeroPP.h"

#include "Choose.h"
#include "Options.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "zpp/Conversion/Passes.h"
#include "zpp/Pipelines/Host.h"
#include "zpp/Transforms/Passes.h"

using namespace mlir;
using namespace zpp;

namespace {
/// Says what is wrong with options when the pipeline runs: nothing can be
/// reported while it is built.
struct ReportOptions : public PassWrapper<ReportOptions, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ReportOptions)

  ReportOptions() = default;
  ReportOptions(const ReportOptions &other) : PassWrapper(other) {}
  ReportOptions(ArrayRef<std::string> errors, ArrayRef<std::string> warnings) {
    this->errors = errors;
    this->warnings = warnings;
  }
  StringRef getArgument() const override { return "zero-report-options"; }
  StringRef getDescription() const override {
    return "Say what is wrong with the options of a pipeline";
  }
  void runOnOperation() override {
    for (const std::string &warning : warnings)
      emitWarning(getOperation()->getLoc(), warning);
    for (const std::string &error : errors)
      emitError(getOperation()->getLoc(), error);
    if (!errors.empty())
      return signalPassFailure();
    markAllAnalysesPreserved();
  }

  ListOption<std::string> errors{*this, "errors",
                                 llvm::cl::desc("what stops the pipeline")};
  ListOption<std::string> warnings{*this, "warnings",
                                   llvm::cl::desc("what does not")};
};
} // namespace

/// Has the pipeline say all that is wrong with `options`, before anything else
/// is built. Returns false if it can do nothing else.
static bool checkOptions(OpPassManager &pm, const ZeroPPOptions &options) {
  SmallVector<std::string> errors = findErrors(options);
  SmallVector<std::string> warnings = findWarnings(options);
  if (!errors.empty() || !warnings.empty())
    pm.addPass(std::make_unique<ReportOptions>(errors, warnings));
  return errors.empty();
}

//===----------------------------------------------------------------------===//
// Requests of the options
//===----------------------------------------------------------------------===//

static bool isOn(StringRef option) { return option != "none"; }

/// Returns the format of weights, without what follows the colon.
static std::string getWeightFormat(const ZeroPPOptions &options) {
  return StringRef(options.weights).split(':').first.str();
}

static bool keepsFrozen(const ZeroPPOptions &options) {
  return options.frozen == Frozen::Keep;
}

static bool beginsFrozen(const ZeroPPOptions &options) {
  return options.start == KeptWeights::Frozen && keepsFrozen(options);
}

/// Whether the result is a program that begins what the step keeps.
static bool begins(const ZeroPPOptions &options) {
  return options.start == KeptWeights::All || beginsFrozen(options);
}

/// As many stages as suit the links.
static constexpr int64_t kStagesByLinks = 0;

//===----------------------------------------------------------------------===//
// Phases
//===----------------------------------------------------------------------===//

/// Ends a phase: what the next one needs is verified.
static void verifyPhase(OpPassManager &pm, PipelinePhase phase) {
  VerifyPhasePassOptions verify;
  verify.after = phase;
  pm.addPass(createVerifyPhasePass(verify));
}

/// Returns the options of a pass that reads a step as it was written, with what
/// is said of the step.
template <typename PassOptions>
static PassOptions getReadingOptions(const ZeroPPOptions &options) {
  PassOptions reading;
  reading.mesh = options.mesh;
  reading.links = options.links;
  reading.device = options.device;
  reading.weightsOf = options.weightsOf;
  reading.gradientsOf = options.gradientsOf;
  return reading;
}

/// From collectives of StableHLO to those of the zero dialect.
static void addImportPhase(OpPassManager &pm, const ZeroPPOptions &options) {
  // XLA's partitioner spells scatters out (X14); the passes below look for
  // scatters.
  pm.addPass(createImportPartitionedPass());

  // It also splits the products of momenta; whole ones need one gather, which
  // then has a role.
  if (isOn(options.moments)) {
    pm.addPass(createJoinProductsPass(
        getReadingOptions<JoinProductsPassOptions>(options)));
  }

  // Everything below works on zero ops, so import comes first. Collectives that
  // are not to be rewritten are not imported, and stay as they are.
  auto import = getReadingOptions<ImportCollectivesPassOptions>(options);
  import.weights =
      isOn(options.weights) || isOn(options.secondary) || options.regather;
  import.gradients = isOn(options.gradients);
  import.moments = isOn(options.moments);
  import.exchanges = isOn(options.exchanges);
  import.updated = isOn(options.updated);
  pm.addPass(createImportCollectivesPass(import));

  // The later gathers that hpZ shortens must exist before it looks for them.
  if (options.regather)
    pm.addPass(createRegatherPass());
  // Formats are decided in the next phases. By now all collectives have their
  // numbers, and those that gather one weight are known.
  if (!options.floors.empty()) {
    SetFloorsPassOptions floors;
    floors.floors = options.floors;
    pm.addPass(createSetFloorsPass(floors));
  }
  verifyPhase(pm, PipelinePhase::Import);
}

/// Decides how updates of weights and an optimizer's momenta travel.
static void addOptimizerPasses(OpPassManager &pm, const ZeroPPOptions &options,
                               const Settings &settings) {
  if (isOn(options.updated)) {
    // The gathers that it makes are of state, not of weights to compute with:
    // the passes for those have run.
    SendUpdatesPassOptions updates;
    updates.format = options.updated;
    updates.block = settings.block;
    pm.addPass(createSendUpdatesPass(updates));
  }
  if (isOn(options.moments)) {
    // What an owner computes needs no gather.
    pm.addPass(createAssignOwnersPass());
    // What is kept of weights, and differences, are not for them.
    QuantizeAllGatherPassOptions ofMoments;
    ofMoments.format = options.moments;
    ofMoments.block = settings.block;
    ofMoments.moments = true;
    pm.addPass(createQuantizeAllGatherPass(ofMoments));
  }
}

/// Decides how weights travel, and what is kept of them.
static void addWeightsPhase(OpPassManager &pm, const ZeroPPOptions &options) {
  Settings settings = getSettings(options);
  // qwZ comes before hpZ: the secondary partition of a quantized gather is then
  // kept as it was received, and the forward and the backward pass read the
  // same bits.
  QuantizeAllGatherPassOptions quantize;
  quantize.format = getWeightFormat(options);
  quantize.block = settings.block;
  if (isOn(options.weights) && !sendsDifferences(options))
    pm.addPass(createQuantizeAllGatherPass(quantize));
  PartitionWithinNodePassOptions partition;
  partition.secondary = options.secondary;
  // Small gathers can travel with those that are split into hops.
  partition.splitSmall = settings.coalesceBytes > 0;
  partition.betweenSteps = sendsDifferences(options) ? KeptWeights::All
                           : keepsFrozen(options)    ? KeptWeights::Frozen
                                                     : KeptWeights::None;
  if (settings.isCuda) {
    // The passes below see what becomes of loops. XLA, which has the schedule
    // otherwise, leaves them as they are. What a loop over micro-batches does
    // not change is gathered in front of it, unless the first one stands there,
    // so that is written now.
    PlanLoopsPassOptions plan;
    plan.secondary = partition.secondary;
    plan.splitSmall = partition.splitSmall;
    plan.betweenSteps = partition.betweenSteps;
    pm.addPass(createPlanLoopsPass(plan));
    pm.addPass(createWriteLoopsPass());
  }
  if (isOn(options.secondary))
    pm.addPass(createPartitionWithinNodePass(partition));
  if (sendsDifferences(options)) {
    // Weights without a secondary partition, such as those that are gathered
    // within a node only, have no difference to send.
    quantize.format = "i8";
    quantize.singleOnly = true;
    pm.addPass(createQuantizeAllGatherPass(quantize));
  }
  if (keepsFrozen(options)) {
    // What does not change has no differences to send. qwZ, which must know
    // what reads secondary partitions, has run.
    KeepFrozenPassOptions keep;
    keep.start = begins(options);
    pm.addPass(createKeepFrozenPass(keep));
  }
  if (sendsDifferences(options) && !beginsFrozen(options)) {
    SendDifferencesPassOptions differences;
    differences.format = getWeightFormat(options);
    differences.block = settings.block;
    differences.start = begins(options);
    pm.addPass(createSendDifferencesPass(differences));
  }
  if (begins(options))
    pm.addPass(createReturnStatePass());
  addOptimizerPasses(pm, options, settings);
  verifyPhase(pm, PipelinePhase::Weights);
}

/// Decides over which hops gradients travel, and in which formats.
static void addGradientsPhase(OpPassManager &pm, const ZeroPPOptions &options) {
  Settings settings = getSettings(options);
  // qgZ starts on the logical level, where types rule out misplaced slices.
  if (!isOn(options.gradients))
    return verifyPhase(pm, PipelinePhase::Gradients);
  // An all-reduce is a scatter and a gather. It takes in the scatter before
  // it, while that is one op. Its gathers are not those of weights: the
  // passes for these have run.
  SplitAllReducePassOptions allReduce;
  allReduce.formats = options.gradients;
  allReduce.reduced = options.reduced;
  allReduce.block = settings.block;
  allReduce.rotate = settings.rotate;
  allReduce.stages = kStagesByLinks;
  allReduce.splitSmall = settings.coalesceBytes > 0;
  // Without hops nothing could be added up before the slower ones.
  allReduce.splitExact = accumulates(options);
  pm.addPass(createSplitAllReducePass(allReduce));
  SplitHierarchyPassOptions split;
  split.formats = options.gradients;
  split.block = settings.block;
  split.rotate = settings.rotate;
  // Scatters that travel with others are split even if they do not shrink.
  split.splitSmall = settings.coalesceBytes > 0;
  split.splitExact = accumulates(options);
  pm.addPass(createSplitHierarchyPass(split));
  // Hops exist now, and nothing stands between them and the sums yet. With the
  // last micro-batch after the loop, they run under its compute.
  if (settings.isCuda) {
    PlanLoopsPassOptions plan;
    plan.gradients = true;
    if (accumulates(options))
      plan.group = options.accumulate;
    pm.addPass(createPlanLoopsPass(plan));
    pm.addPass(createWriteLoopsPass());
  }
  if (accumulates(options)) {
    AccumulateGradientsPassOptions accumulate;
    accumulate.group = options.accumulate;
    pm.addPass(createAccumulateGradientsPass(accumulate));
  }
  verifyPhase(pm, PipelinePhase::Gradients);
}

/// From partitioned tensors to local tensors and chunks of bytes.
static void addDecomposePhase(OpPassManager &pm, const ZeroPPOptions &options) {
  Settings settings = getSettings(options);
  if (isOn(options.gradients)) {
    DecomposeReduceScatterPassOptions decompose;
    decompose.stages = kStagesByLinks;
    pm.addPass(createDecomposeReduceScatterPass(decompose));
  }
  if (isOn(options.exchanges)) {
    QuantizeExchangesPassOptions exchanges;
    exchanges.format = options.exchanges;
    exchanges.block = settings.block;
    pm.addPass(createQuantizeExchangesPass(exchanges));
  }
  if (isOn(options.moments)) {
    // Those of owners.
    QuantizeExchangesPassOptions ofMoments;
    ofMoments.format = options.moments;
    ofMoments.block = settings.block;
    ofMoments.moments = true;
    pm.addPass(createQuantizeExchangesPass(ofMoments));
  }
  if (isOn(options.gradients) || isOn(options.exchanges) ||
      isOn(options.moments)) {
    // The order of slices becomes explicit before anything is quantized: a
    // wire chunk must hold what one device is to get.
    pm.addPass(createReorderSlicesPass());
    pm.addPass(createQuantizeAllToAllPass());
  }
  pm.addPass(createDecomposeAllGatherPass());
  // Reordering, quantization and sums are separate ops until here.
  pm.addPass(createFuseQuantizationPass());
  // Only fused ops can read and write rows of a shared buffer without copies.
  if (settings.coalesceBytes > 0) {
    CoalesceCollectivesPassOptions coalesce;
    coalesce.bytes = settings.coalesceBytes;
    pm.addPass(createCoalesceCollectivesPass(coalesce));
  }
  verifyPhase(pm, PipelinePhase::Decompose);
}

/// Decides when collectives start, and when they must have ended. With target
/// portable, XLA does.
static void addSchedulePhase(OpPassManager &pm, const ZeroPPOptions &options) {
  Settings settings = getSettings(options);
  if (!settings.isCuda)
    return verifyPhase(pm, PipelinePhase::Schedule);
  // The step only contains the points where collectives start and where their
  // results are needed.
  pm.addPass(createOutlineCollectivesPass());
  // First the order within each function is decided, then the order of
  // functions among the compute.
  pm.addPass(createPipelineChunksPass());
  // The iterations of a loop do not overlap, but those that are layers need no
  // loop. Starts exist now.
  WriteLoopsPassOptions write;
  write.layers = true;
  pm.addPass(createWriteLoopsPass(write));
  OverlapCollectivesPassOptions overlap;
  overlap.prefetchBytes = settings.prefetchBytes;
  pm.addPass(createOverlapCollectivesPass(overlap));
  pm.addPass(createDeferStartsPass());
  verifyPhase(pm, PipelinePhase::Schedule);
}

/// From the zero dialect to what the target runs.
static void addLeavePhase(OpPassManager &pm, const ZeroPPOptions &options) {
  Settings settings = getSettings(options);
  if (settings.isCuda) {
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
  verifyPhase(pm, PipelinePhase::Leave);
}

namespace {
using AddPhase = void (*)(OpPassManager &, const ZeroPPOptions &);

/// A part of the pipeline that can be run alone.
struct ZeroPPPhase {
  StringLiteral flag, description;
  AddPhase add;
};
} // namespace

static constexpr ZeroPPPhase kPhases[] = {
    {"zeropp-import",
     "Phase 1 of zeropp: import the collectives of weights and gradients",
     addImportPhase},
    {"zeropp-weights",
     "Phase 2 of zeropp: decide how weights travel and what is kept of them",
     addWeightsPhase},
    {"zeropp-gradients",
     "Phase 3 of zeropp: split sums of gradients into hops with formats",
     addGradientsPhase},
    {"zeropp-decompose",
     "Phase 4 of zeropp: decompose collectives into exchanges of chunks",
     addDecomposePhase},
    {"zeropp-schedule",
     "Phase 5 of zeropp: for target=cuda, place starts and waits",
     addSchedulePhase},
    {"zeropp-leave", "Phase 6 of zeropp: leave the dialect for the target",
     addLeavePhase},
};

/// Whether the in-flight limit has to fit into a memory.
static bool fitsMemory(const ZeroPPOptions &options) {
  return options.memoryLimit > 0 && getSettings(options).isCuda &&
         options.tuning.prefetchBytes == kDefaultPrefetchBytes &&
         options.start == KeptWeights::None;
}

/// Whether each device may keep whole weights, which nobody asked for.
static bool mayKeepWhole(const ZeroPPOptions &options) {
  return fitsMemory(options) && options.secondary.empty() &&
         !keepsFrozen(options) && !sendsDifferences(options);
}

void zpp::addCandidate(OpPassManager &pm, Choice choice,
                       const ZeroPPOptions &options) {
  switch (choice) {
  case Choice::Plans:
    addImportPhase(pm, options);
    if (mayKeepWhole(options))
      return addChoice(pm, Choice::Whole, options);
    [[fallthrough]];
  case Choice::Whole:
    addWeightsPhase(pm, options);
    addGradientsPhase(pm, options);
    addDecomposePhase(pm, options);
    if (fitsMemory(options))
      return addChoice(pm, Choice::Limits, options);
    [[fallthrough]];
  case Choice::Limits:
    addSchedulePhase(pm, options);
    addLeavePhase(pm, options);
  }
}

void zpp::buildZeroPPPipeline(OpPassManager &pm, const ZeroPPOptions &options) {
  if (!checkOptions(pm, options))
    return;
  if (options.choose)
    addChoice(pm, Choice::Plans, options);
  else
    addCandidate(pm, Choice::Plans, options);
}

void zpp::registerZeroPPPipeline() {
  PassRegistration<ReportOptions>();
  registerChoosePass();
  PassPipelineRegistration<ZeroPPOptions>(
      "zeropp",
      "Rewrite the collectives of a ZeRO-3/FSDP step as ZeRO++ and lower the "
      "step to StableHLO, with custom calls for target=cuda",
      buildZeroPPPipeline);
  for (const ZeroPPPhase &phase : kPhases)
    PassPipelineRegistration<ZeroPPOptions>(
        phase.flag, phase.description,
        [add = phase.add](OpPassManager &pm, const ZeroPPOptions &options) {
          if (checkOptions(pm, options))
            add(pm, options);
        });
}
