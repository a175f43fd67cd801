//===- ZeroPP.h - The zeropp pipeline ---------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_PIPELINES_ZEROPP_H
#define ZPP_PIPELINES_ZEROPP_H

#include "mlir/Pass/PassOptions.h"
#include "llvm/Support/LogicalResult.h"

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace zpp {

/// The pipeline chooses a value that suits the target.
constexpr int64_t kDefaultCoalesceBytes = -1;

/// The options of `--zeropp`.
struct ZeroPPOptions : public mlir::PassPipelineOptions<ZeroPPOptions> {
  Option<std::string> mesh{
      *this, "mesh",
      llvm::cl::desc("Tiers from slowest to fastest, such as node:2,gpu:4 "
                     "(default: the module's own mesh)")};
  Option<std::string> weightsOf{
      *this, "weights-of",
      llvm::cl::desc("Arguments of the step to treat as weights even if the "
                     "step does not show that they are: all, or numbers and "
                     "ranges, such as 0,3-7")};
  Option<std::string> weights{
      *this, "weights",
      llvm::cl::desc("Format in which weights are gathered: none, i8 or i4. "
                     "i8:delta and i4:delta send differences to the secondary "
                     "partitions, which are then kept from step to step"),
      llvm::cl::init("i8")};
  Option<std::string> frozen{
      *this, "frozen",
      llvm::cl::desc("keep: secondary partitions of weights that the step does "
                     "not change are kept from step to step; none"),
      llvm::cl::init("none")};
  Option<std::string> start{
      *this, "start",
      llvm::cl::desc("What of the state the step begins rather than takes, by "
                     "sending whole weights: all, frozen or none"),
      llvm::cl::init("none")};
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
  Option<std::string> secondary{
      *this, "secondary",
      llvm::cl::desc("none, or the slowest tier of a secondary partition, or "
                     "its number of devices (default: the fastest tier)")};
  Option<int64_t> block{
      *this, "block",
      llvm::cl::desc("Elements that share a scale: a power of two from 32 to "
                     "2048"),
      llvm::cl::init(128)};
  Option<int64_t> rotate{
      *this, "rotate",
      llvm::cl::desc("Elements of a gradient's group that is rotated before it "
                     "is quantized, which spreads outliers: 32, or 0 for none"),
      llvm::cl::init(32)};
  Option<std::string> feedback{
      *this, "feedback",
      llvm::cl::desc("What is added to the next step's gradients of what their "
                     "hops have rounded, and kept until then: last (that of "
                     "the last hop), all, or none"),
      llvm::cl::init("none")};
  Option<bool> regather{
      *this, "regather",
      llvm::cl::desc("Gather weights again for the backward pass instead of "
                     "keeping them"),
      llvm::cl::init(false)};
  Option<int64_t> stages{
      *this, "stages",
      llvm::cl::desc("Cut every gradient scatter into this many parts; 0 picks "
                     "the number that suits the links"),
      llvm::cl::init(0)};
  Option<std::string> links{
      *this, "links",
      llvm::cl::desc(
          "Speeds of the tiers' links, such as "
          "node=50gbit,gpu=400gbyte, or a file with them (zpp-perf "
          "--calibrate). Collectives that would not become faster "
          "are left alone (default: rewrite all that become smaller, in "
          "one stage)")};
  Option<std::string> target{
      *this, "target",
      llvm::cl::desc(
          "portable: plain StableHLO. xla-ffi: collectives run "
          "beside the compute, as custom calls of functions in the "
          "module @zpp_host, which zpp-bundle compiles to a library"),
      llvm::cl::init("portable")};
  Option<int64_t> coalesceBytes{
      *this, "coalesce-bytes",
      llvm::cl::desc("Bytes that a device contributes to a buffer shared by "
                     "several tensors; with 0 each travels alone (default: "
                     "4194304 for xla-ffi, 0 for portable)"),
      llvm::cl::init(kDefaultCoalesceBytes)};
  Option<int64_t> prefetchBytes{
      *this, "prefetch-bytes",
      llvm::cl::desc("xla-ffi: bytes of weights that may be gathered before "
                     "they are needed, and of gradients that may wait to be "
                     "scattered"),
      llvm::cl::init(268435456)};
};

/// Appends the passes that rewrite a step as ZeRO++ and lower it to StableHLO,
/// for the target portable or xla-ffi. Options are checked when the pipeline
/// runs.
void buildZeroPPPipeline(mlir::OpPassManager &pm, const ZeroPPOptions &options);

/// Registers `--zeropp`.
void registerZeroPPPipeline();

} // namespace zpp

#endif // ZPP_PIPELINES_ZEROPP_H
