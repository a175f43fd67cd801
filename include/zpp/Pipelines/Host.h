//===- Host.h - From zero ops to host code ----------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_PIPELINES_HOST_H
#define ZPP_PIPELINES_HOST_H

#include "mlir/Pass/PassOptions.h"
#include "zpp/Transforms/Words.h"

namespace mlir {
class DialectRegistry;
class OpPassManager;
} // namespace mlir

namespace zpp {

/// The dialects that zero ops pass through on the way to host code: tensors,
/// buffers, loops and the LLVM dialect.
void registerHostDialects(mlir::DialectRegistry &registry);

/// The external models that the way to host code needs for ops of those
/// dialects: bufferization and the translation to LLVM IR.
void registerHostExtensions(mlir::DialectRegistry &registry);

/// Options of all pipelines to host code.
template <typename Options>
struct HostOptions : mlir::PassPipelineOptions<Options> {
  typename HostOptions::template Option<Reuse> reuse{
      *this, "reuse",
      llvm::cl::desc("Which temporary buffers may share memory"),
      llvm::cl::values(clEnumValN(Reuse::None, "none", "no two buffers"),
                       clEnumValN(Reuse::Dependent, "dependent",
                                  "whatever overlaps keeps its own"),
                       clEnumValN(Reuse::Any, "any",
                                  "all that are not needed at the same time")),
      llvm::cl::init(Reuse::Dependent)};
};

struct HostBufferizationOptions : HostOptions<HostBufferizationOptions> {};

struct RuntimePipelineOptions : HostOptions<RuntimePipelineOptions> {
  Option<bool> deviceMemory{
      *this, "device-memory",
      llvm::cl::desc("Buffers may be in memory that the host cannot reach: "
                     "functions must not compute"),
      llvm::cl::init(false)};
};

/// Appends the passes that lower decomposed zero ops on tensors, among ops of
/// upstream dialects, to the LLVM dialect with calls of libzpp_rt. Every
/// function gets its results as destinations after its arguments, and a C
/// wrapper. Public functions get temporary memory from the rank.
void buildRuntimePipeline(mlir::OpPassManager &pm,
                          const RuntimePipelineOptions &options = {});

/// Appends the passes from host functions on tensors to functions on buffers.
/// Public functions take their arguments, their results and, if they need one,
/// a workspace memref<Wxi8> as the last argument.
void buildHostBufferizationPipeline(
    mlir::OpPassManager &pm, const HostBufferizationOptions &options = {});

/// Appends the passes from host functions on buffers to the LLVM dialect.
/// Public functions become `void NAME(zpp_rt_rank *rank, void *const *buffers)`
/// and only call libzpp_rt; an op that would access a buffer itself is an
/// error.
void buildHostFunctionPipeline(mlir::OpPassManager &pm);

/// Registers `--zero-to-llvm`, `--zero-bufferize-host` and
/// `--zero-host-to-llvm`.
void registerHostPipelines();

} // namespace zpp

#endif // ZPP_PIPELINES_HOST_H
