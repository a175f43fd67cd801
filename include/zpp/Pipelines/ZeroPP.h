//===- ZeroPP.h - The zeropp pipeline ---------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_PIPELINES_ZEROPP_H
#define ZPP_PIPELINES_ZEROPP_H

#include "mlir/Pass/PassOptions.h"
#include "zpp/Transforms/Words.h"
#include "llvm/Support/LogicalResult.h"

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace zpp {

/// The pipeline chooses a value that suits the target.
constexpr int64_t kDefaultCoalesceBytes = -1;
/// 32, or 0 with i4 on each of several hops.
constexpr int64_t kDefaultRotate = -1;
/// Each loop and each function has one layer in flight.
constexpr int64_t kDefaultPrefetchBytes = -1;

/// The options of `--zeropp`. This is where their names, defaults and meanings
/// are written down for C++; python/zpp/_options.py is the same for Python, and
/// a test compares the two.
struct ZeroPPOptions : public mlir::PassPipelineOptions<ZeroPPOptions> {
  /// Options for experts, as tuning.block=64. The defaults suit most steps.
  struct Tuning {
    explicit Tuning(ZeroPPOptions &options);

    Option<int64_t> block;
    Option<int64_t> rotate;
    Option<int64_t> coalesceBytes;
    Option<int64_t> prefetchBytes;
  };

  Option<std::string> mesh{
      *this, "mesh",
      llvm::cl::desc("Tiers from slowest to fastest, such as node:2,gpu:4 "
                     "(default: the module's own mesh)")};
  Option<std::string> weightsOf{
      *this, "weights-of",
      llvm::cl::desc("Arguments of the step to treat as weights even if the "
                     "step does not show that they are: all, or numbers and "
                     "ranges, such as 0,3-7")};
  Option<std::string> gradientsOf{
      *this, "gradients-of",
      llvm::cl::desc(
          "Arguments of the step whose updates are sums of gradients "
          "even if nothing proves it: all, or numbers and ranges, "
          "such as 0,3-7")};
  Option<std::string> weights{
      *this, "weights",
      llvm::cl::desc("Format in which weights are gathered: none, i8 or i4. "
                     "i8:delta and i4:delta send differences to the secondary "
                     "partitions, which are then kept from step to step"),
      llvm::cl::init("i8")};
  Option<Frozen> frozen{
      *this, "frozen",
      llvm::cl::desc("Whether secondary partitions of weights that the step "
                     "does not change are kept from step to step"),
      llvm::cl::values(clEnumValN(Frozen::None, "none", "send them each time"),
                       clEnumValN(Frozen::Keep, "keep", "keep them")),
      llvm::cl::init(Frozen::None)};
  Option<KeptWeights> start{
      *this, "start",
      llvm::cl::desc("What of the state to begin: instead of the step, a "
                     "program that takes its arguments, sends whole weights, "
                     "and returns this"),
      llvm::cl::values(
          clEnumValN(KeptWeights::None, "none", "nothing"),
          clEnumValN(KeptWeights::Frozen, "frozen", "what frozen=keep keeps"),
          clEnumValN(KeptWeights::All, "all", "all of it")),
      llvm::cl::init(KeptWeights::None)};
  Option<std::string> gradients{
      *this, "gradients",
      llvm::cl::desc("none, or the format of each hop of a gradient scatter "
                     "from the innermost tier outwards: none, i8 or i4, "
                     "separated by ':'; the last is that of the outermost "
                     "tier, the one before it that of all tiers in between"),
      llvm::cl::init("i8:i4")};
  Option<std::string> reduced{
      *this, "reduced",
      llvm::cl::desc("Format in which the sum of a gradient's all-reduce is "
                     "gathered: none, i8 or i4"),
      llvm::cl::init("i8")};
  Option<std::string> updated{
      *this, "updated",
      llvm::cl::desc("Where each device updates a slice of replicated weights "
                     "(ZeRO-1, ZeRO-2): the format in which it sends by how "
                     "much they have changed: none, i8 or i4"),
      llvm::cl::init("none")};
  Option<std::string> moments{
      *this, "moments",
      llvm::cl::desc("Where an optimizer orthogonalizes momenta (Muon): the "
                     "format in which they are gathered: none or i8"),
      llvm::cl::init("none")};
  Option<std::string> exchanges{
      *this, "exchanges",
      llvm::cl::desc("Where devices exchange rows of activations with experts: "
                     "the format in which they are sent: none or i8"),
      llvm::cl::init("none")};
  Option<std::string> floors{
      *this, "floors",
      llvm::cl::desc("The narrowest formats of single collectives, by their "
                     "numbers in reports, traces and warnings: i8, or none to "
                     "leave one unquantized, such as 3=i8,7=none. All gathers "
                     "of a weight have the widest of theirs")};
  Option<std::string> secondary{
      *this, "secondary",
      llvm::cl::desc("none, or the slowest tier of a secondary partition, or "
                     "its number of devices (default: the fastest tier)")};
  Option<std::string> accumulate{
      *this, "accumulate",
      llvm::cl::desc("none, or the slowest tier, or the number of devices, of "
                     "the group within which gradients of micro-batches are "
                     "added up before they cross slower tiers (default: "
                     "none)"),
      llvm::cl::init("")};
  Option<bool> regather{
      *this, "regather",
      llvm::cl::desc("Gather weights again for the backward pass instead of "
                     "keeping them"),
      llvm::cl::init(false)};
  Option<std::string> links{
      *this, "links",
      llvm::cl::desc(
          "Speeds of the tiers' links, such as "
          "node=50gbit,gpu=400gbyte, or a file with them (zpp-perf "
          "--calibrate). Collectives that would not become faster "
          "are left alone (default: rewrite all that become smaller, in "
          "one stage)")};
  Option<std::string> device{
      *this, "device",
      llvm::cl::desc("The device, such as h100, or its dense peak in 16 bits "
                     "and the speed of its memory, such as "
                     "989tflops,4800gbyte (default: one as fast as many)")};
  Option<Target> target{
      *this, "target", llvm::cl::desc("Who executes the collectives"),
      llvm::cl::values(
          clEnumValN(Target::Portable, "portable", "XLA: plain StableHLO"),
          clEnumValN(Target::Cuda, "cuda",
                     "the runtime, beside the compute: custom calls of "
                     "functions in the module @zpp_host, which zpp-bundle "
                     "compiles to a library")),
      llvm::cl::init(Target::Portable)};
  Option<bool> choose{
      *this, "choose",
      llvm::cl::desc("Use those of the allowed techniques with which the step "
                     "is predicted to be the fastest"),
      llvm::cl::init(false)};
  Option<std::string> plans{
      *this, "plans",
      llvm::cl::desc("With choose, a file for what is predicted of each "
                     "set of techniques"),
      llvm::cl::init("")};
  Option<double> computeUsec{
      *this, "compute-usec",
      llvm::cl::desc("With choose: what a device computes in a step as it "
                     "is written, if that was measured"),
      llvm::cl::init(0)};
  Option<int64_t> memoryLimit{
      *this, "memory-limit",
      llvm::cl::desc("Bytes that a device has. With target=cuda, the in-flight "
                     "limit follows it where tuning.prefetch-bytes is not "
                     "given, and so does secondary where nodes have one device "
                     "(default: not known)"),
      llvm::cl::init(0)};
  Tuning tuning{*this};
};

inline ZeroPPOptions::Tuning::Tuning(ZeroPPOptions &options)
    : block{options, "tuning.block",
            llvm::cl::desc("Elements that share a scale: a power of two from "
                           "32 to 2048"),
            llvm::cl::init(128)},
      rotate{options, "tuning.rotate",
             llvm::cl::desc("Elements of a gradient's group that is rotated "
                            "before it is quantized, which spreads outliers: "
                            "32, or 0 for none (default: 0 with i4 on each "
                            "of several hops, otherwise 32)"),
             llvm::cl::init(kDefaultRotate)},
      coalesceBytes{
          options, "tuning.coalesce-bytes",
          llvm::cl::desc("Bytes that a device contributes to a buffer shared "
                         "by several tensors; with 0 each travels alone "
                         "(default: 4194304 with target=cuda, otherwise 0)"),
          llvm::cl::init(kDefaultCoalesceBytes)},
      prefetchBytes{
          options, "tuning.prefetch-bytes",
          llvm::cl::desc("With target=cuda: bytes of weights that may be "
                         "gathered before they are needed, and of gradients "
                         "that may wait to be scattered (default: one layer "
                         "of the step, at least 268435456)"),
          llvm::cl::init(kDefaultPrefetchBytes)} {}

/// Appends the passes that rewrite a step as ZeRO++ and lower it to StableHLO,
/// for the target portable or cuda. Options are checked when the pipeline
/// runs.
void buildZeroPPPipeline(mlir::OpPassManager &pm, const ZeroPPOptions &options);

/// Registers `--zeropp` and a pipeline for each of its phases, which run in
/// this order with the same options: `--zeropp-import`, `--zeropp-weights`,
/// `--zeropp-gradients`, `--zeropp-decompose`, `--zeropp-schedule` and
/// `--zeropp-leave`. Each ends with `zero-verify-phase`.
void registerZeroPPPipeline();

} // namespace zpp

#endif // ZPP_PIPELINES_ZEROPP_H
