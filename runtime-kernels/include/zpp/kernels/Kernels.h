//===- Kernels.h - Launchers of the fused kernels ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The kernels that ZeRO++ (sections 3.3 and 4.2) puts around each hop, one
// launch each. Results follow zpp/Support/BlockQuant.h and SliceMap.h to the
// bit; sums start at +0 and add the sources in order, in f32; a NaN that is
// computed has the bits 0x7fc00000, 0x7fc0 (bf16) or 0x7e00 (f16).
//
// Every launcher queues one kernel on the stream that it is given, or adds it
// to Launches. Launchers allocate nothing and do not wait for the device, so
// everything can be captured in a CUDA graph. If a launcher returns an error,
// it has launched nothing:
//
//   cudaErrorInvalidValue          the (operation, source, destination) is not
//                                  in SupportMatrix.h, the block is not valid,
//                                  sizes or the map contradict each other
//   cudaErrorMisalignedAddress     see ChunkBuffer and TensorBuffer
//   cudaErrorInvalidConfiguration  larger than a grid can be
//   others                         what the launch returned
//
// Source and destination must not overlap, but where it is allowed. Tensors
// that are aligned to 16 bytes and whose slices are multiples of 16 bytes run
// at full speed. Others are slower.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_KERNELS_H
#define ZPP_KERNELS_KERNELS_H

#include "zpp/Support/BlockQuant.h"
#include "zpp/Support/SliceMap.h"

#include <cuda_runtime_api.h>
#include <memory>

namespace zpp::kernels {

/// A row-major tensor in device memory, aligned to its element type at least.
template <typename Void> struct TensorBuffer {
  Void *data;
  ElementType type;
};
using Tensor = TensorBuffer<void>;
using ConstTensor = TensorBuffer<const void>;

/// `count` chunks in device memory, chunk c at byte c * stride. Quantized ones
/// are laid out as ChunkLayout says and aligned to kChunkAlignment, address and
/// stride; with WireFormat::None a chunk is its elements, aligned to `type`.
/// Bytes between the end of a chunk and the next are not touched.
template <typename Void> struct ChunkBuffer {
  Void *data;
  int64_t count;
  int64_t stride;
  WireFormat format;
  /// For a quantized format: elements that share a scale.
  int64_t block;
  /// For WireFormat::None: the element type.
  ElementType type;
  /// For a quantized format: kRotation if the values of the chunks are rotated
  /// in such groups, and the tensor's are not. 0 if nothing is to be rotated,
  /// as between two hops.
  int64_t rotate = 0;
};
using Chunks = ChunkBuffer<void>;
using ConstChunks = ChunkBuffer<const void>;

/// The operations on a sum.
struct Reduction {
  /// The sum is divided by this; the number of ranks for a mean.
  float divisor = 1.0f;
  /// The sum is rounded to this type before it is requantized.
  ElementType partial = ElementType::F32;
};

/// Kernels on one stream that are launched together if possible, because a
/// launch costs the host more than a small tensor costs the device. Kernels
/// that follow each other, are the same and have the same number of chunks
/// become one launch of at most kMaxBatch tensors. They run in any order and
/// must not depend on each other.
class Launches {
public:
  Launches();
  /// Drops the kernels that wait.
  ~Launches();
  Launches(const Launches &) = delete;
  Launches &operator=(const Launches &) = delete;

  /// Sets the stream of the kernels that are added from now on. No kernel may
  /// be waiting.
  void setStream(cudaStream_t stream);
  /// Launches the kernels that wait.
  cudaError_t flush();

  /// Called by the launchers.
  struct State;
  State &getState() const { return *state; }

private:
  std::unique_ptr<State> state;
};
inline constexpr int kMaxBatch = 4;

/// The target of a launcher: a stream, or a list of launches.
struct LaunchTarget {
  LaunchTarget(cudaStream_t stream) : stream(stream) {}
  LaunchTarget(Launches &launches) : launches(&launches) {}

  cudaStream_t stream = nullptr;
  Launches *launches = nullptr;
};

/// Loads all kernels to the current device. Otherwise CUDA does so when a
/// kernel is first launched, and may wait for the device: forever, if an
/// exchange on it waits for something that this thread has yet to launch.
cudaError_t load();

/// Slice order + quantization (or slice order alone for WireFormat::None):
///   dest[c][e] = source[map.tensorIndex(c, e)]   for c < map.numChunks()
/// and zero where the map says padding.
cudaError_t quantize(const ConstTensor &source, const SliceMap &map,
                     const Chunks &dest, const LaunchTarget &target);

/// The inverse of `quantize`:
///   dest[map.tensorIndex(c, e)] = source[c][e]   for c < map.numChunks()
/// Elements of other stages are not touched, padding is dropped.
cudaError_t dequantize(const ConstChunks &source, const SliceMap &map,
                       const Tensor &dest, const LaunchTarget &target);

/// Quantization of how much `source` differs from `held`, a tensor of the same
/// shape and type, in one pass; nothing is rotated:
///   dest[c][e] = source[map.tensorIndex(c, e)] - held[map.tensorIndex(c, e)]
cudaError_t quantizeDifference(const ConstTensor &source,
                               const ConstTensor &held, const SliceMap &map,
                               const Chunks &dest, const LaunchTarget &target);

/// The inverse: adds such a difference to what is held. `dest` may be `held`.
///   dest[map.tensorIndex(c, e)] = held[map.tensorIndex(c, e)] + source[c][e]
cudaError_t dequantizeAdd(const ConstChunks &source, const ConstTensor &held,
                          const SliceMap &map, const Tensor &dest,
                          const LaunchTarget &target);

/// Slice order alone, for elements of any number of bytes: chunk c of the
/// elements of the tensor `source` goes to byte c * stride of `dest`.
cudaError_t pack(const void *source, int64_t elementBytes, const SliceMap &map,
                 void *dest, int64_t stride, const LaunchTarget &target);

/// The inverse of `pack`: from chunks, `stride` bytes apart, to a tensor.
cudaError_t unpack(const void *source, int64_t elementBytes,
                   const SliceMap &map, void *dest, int64_t stride,
                   const LaunchTarget &target);

/// The end of a reduce-scatter, where `map` has one chunk:
///   dest[map.tensorIndex(0, e)] = sum over s of sources[s][e] / divisor
/// Rotated sources have a rotated sum, which is rotated back. Rounded to the
/// type of `dest` only; `reduction.partial` is not used.
cudaError_t dequantizeReduce(const ConstChunks &sources, const SliceMap &map,
                             const Reduction &reduction, const Tensor &dest,
                             const LaunchTarget &target);

/// The step between two hops, which rotates nothing. Each source is a chunk of
/// the elements of the tensor [map.outer, map.extent, map.inner], in order:
///   dest[c][e] = sum over s of sources[s][map.tensorIndex(c, e)] / divisor
cudaError_t dequantizeReduceQuantize(const ConstChunks &sources,
                                     const SliceMap &map,
                                     const Reduction &reduction,
                                     const Chunks &dest,
                                     const LaunchTarget &target);

} // namespace zpp::kernels

#endif // ZPP_KERNELS_KERNELS_H
