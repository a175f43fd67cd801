//===- Sampler.h - Samples of what operations quantize ----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// While the world measures, a few blocks of each operation that quantizes are
// copied beside it, in order with the operations, and compared on the host
// later: nothing waits for the device meanwhile.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_SAMPLER_H
#define ZPP_LIB_RUNTIME_SAMPLER_H

#include "Backend.h"
#include "Measures.h"

#include <vector>

namespace zpp::rt {

/// The samples of one rank. Used by one thread at a time.
class Sampler {
public:
  /// Samples an operation that was called, if it quantizes and `measures` are
  /// taken.
  Status take(Measures &measures, RankBackend &backend, int64_t rank,
              LocalOperation operation, const void *input, const void *held,
              const void *output);

  /// Compares the samples of operations that are done, and adds the result to
  /// `measures`.
  Status collect(Measures &measures, RankBackend &backend);

private:
  /// The copies of one operation.
  struct Sample {
    std::shared_ptr<const OperationName> name;
    int64_t start;
    ElementType type;
    /// The format to which it quantizes, and the number of elements.
    Wire wire;
    int64_t elements = 0;
    /// Those that are not padding.
    std::vector<Run> runs = {};
    /// The sources of a sum that is quantized; 0 if there is none.
    int64_t sources = 0;
    bool isMean = false;
    Wire from{};
    /// Offsets of the copies. Those of sources are of each run: `sources` rows
    /// of codes, and as many of scales.
    int64_t input = 0, held = -1, codes = 0, scales = 0;
  };

  Status take(Measures &measures, RankBackend &backend, int64_t rank,
              const QuantizeOperation &operation, const void *input,
              const void *held, const void *output);
  Status take(Measures &measures, RankBackend &backend, int64_t rank,
              const ReduceQuantizeOperation &operation, const void *input,
              const void *output);

  /// Chooses the place of a sample. False if there is nothing to sample.
  bool choose(const SliceMap &map, int64_t rank, int64_t most, int64_t &chunk,
              int64_t &begin, Sample &sample);
  /// Copies `rows` rows of `bytes` bytes to the samples.
  Status copy(RankBackend &backend, const void *source, int64_t rows,
              int64_t bytes, int64_t stride, int64_t to);
  /// Copies what the operation has written, and keeps the sample.
  Status add(RankBackend &backend, const void *output, const Pieces &chunks,
             int64_t elementsPerChunk, int64_t chunk, int64_t begin,
             Sample sample);
  /// Finds places for the copies of `sample`, whose input takes `inputBytes`.
  /// False, and `measures` know it, if there is no room.
  bool place(Measures &measures, RankBackend &backend, Sample &sample,
             int64_t inputBytes);
  /// Makes room for `bytes`, or returns false.
  bool reserve(RankBackend &backend, int64_t bytes);
  /// Returns the values that were quantized.
  std::vector<float> readInput(const Sample &sample) const;
  std::vector<float> readSum(const Sample &sample) const;
  Measure compare(const Sample &sample) const;

  /// The memory of the rank that has the samples, and how much of it is used.
  void *memory = nullptr;
  int64_t used = 0;
  std::vector<Sample> samples;
  /// The same on the host.
  std::vector<uint8_t> bytes;
  uint64_t numTaken = 0;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_SAMPLER_H
