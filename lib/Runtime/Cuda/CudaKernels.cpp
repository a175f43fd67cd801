//===- CudaKernels.cpp - Local operations on a device ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaKernels.h"

using namespace zpp;
using namespace zpp::rt;

static int64_t getRotation(const Wire &wire) {
  return wire.isRotated ? kRotation : 0;
}

static kernels::Chunks getDest(const SliceMap &slices, const Pieces &pieces,
                               const Wire &wire, void *output) {
  return {output,     slices.numChunks(), pieces.stride,    wire.format,
          wire.block, ElementType::F32,   getRotation(wire)};
}

static kernels::ConstChunks getSources(const ReduceOperation &operation,
                                       const void *input) {
  return {input,
          operation.sources,
          operation.footprint.input.stride,
          operation.wire.format,
          operation.wire.block,
          operation.sourceType,
          getRotation(operation.wire)};
}

static kernels::Reduction getReduction(const ReduceOperation &operation) {
  return {operation.isMean ? static_cast<float>(operation.sources) : 1.0f,
          operation.type};
}

static cudaError_t compute(const PackOperation &operation, const void *input,
                           const void *, void *output,
                           const kernels::LaunchTarget &target) {
  if (operation.isUnpack)
    return kernels::unpack(input, operation.elementBytes, operation.slices,
                           output, operation.footprint.input.stride, target);
  return kernels::pack(input, operation.elementBytes, operation.slices, output,
                       operation.footprint.output.stride, target);
}

static cudaError_t quantize(const QuantizeOperation &operation,
                            const void *input, const void *held, void *output,
                            const kernels::LaunchTarget &target) {
  kernels::ConstTensor tensor{input, operation.type};
  kernels::Chunks chunks = getDest(operation.slices, operation.footprint.output,
                                   operation.wire, output);
  if (held)
    return kernels::quantizeDifference(tensor, {held, operation.type},
                                       operation.slices, chunks, target);
  return kernels::quantize(tensor, operation.slices, chunks, target);
}

static cudaError_t dequantize(const QuantizeOperation &operation,
                              const void *input, const void *held, void *output,
                              const kernels::LaunchTarget &target) {
  kernels::ConstChunks chunks{input,
                              operation.slices.numChunks(),
                              operation.footprint.input.stride,
                              operation.wire.format,
                              operation.wire.block,
                              ElementType::F32,
                              getRotation(operation.wire)};
  kernels::Tensor tensor{output, operation.type};
  if (held)
    return kernels::dequantizeAdd(chunks, {held, operation.type},
                                  operation.slices, tensor, target);
  return kernels::dequantize(chunks, operation.slices, tensor, target);
}

static cudaError_t compute(const QuantizeOperation &operation,
                           const void *input, const void *held, void *output,
                           const kernels::LaunchTarget &target) {
  return (operation.isDequantize ? dequantize : quantize)(operation, input,
                                                          held, output, target);
}

static cudaError_t compute(const ReduceOperation &operation, const void *input,
                           const void *, void *output,
                           const kernels::LaunchTarget &target) {
  // One chunk, which is the whole tensor.
  SliceMap map;
  map.unit = map.extent = operation.elements;
  return kernels::dequantizeReduce(getSources(operation, input), map,
                                   getReduction(operation),
                                   {output, operation.type}, target);
}

static cudaError_t compute(const ReduceQuantizeOperation &operation,
                           const void *input, const void *, void *output,
                           const kernels::LaunchTarget &target) {
  return kernels::dequantizeReduceQuantize(
      getSources(operation.reduce, input), operation.slices,
      getReduction(operation.reduce),
      getDest(operation.slices, operation.footprint.output, operation.to,
              output),
      target);
}

cudaError_t rt::computeOnDevice(LocalOperation operation, const void *input,
                                const void *held, void *output,
                                const kernels::LaunchTarget &target) {
  return std::visit(
      [&](auto *one) { return compute(*one, input, held, output, target); },
      operation);
}
