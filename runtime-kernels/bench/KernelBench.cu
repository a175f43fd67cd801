//===- KernelBench.cu - Bytes per second of the kernels -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Prints one table. The reference is a device-to-device copy of 512 MiB in the
// same run: the faster one of cudaMemcpyAsync and a copy kernel. Bytes are
// those that an operation has to read and write, including scales.
//
// Each row is the median over replays of a CUDA graph. Its launches walk
// through several sets of buffers, which together are larger than the L2 cache.
// Elements are those of the tensor, or for sums those of one source.
//
//   zpp-kernels-bench [--check] [--only=TEXT]
//
// --check: the exit code is 1 if a row misses its target. --only: prints only
// rows of kernels whose name contains the text.
//
//===----------------------------------------------------------------------===//

#include "../test/Step.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

using namespace zpp;
using namespace zpp::kernels;

namespace {

void check(cudaError_t error) {
  if (error == cudaSuccess)
    return;
  std::printf("FAILED: %s\n", cudaGetErrorString(error));
  std::exit(2);
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

/// Pseudo-random values between -scale and scale.
template <typename T>
__global__ void fillKernel(T *data, int64_t count, uint32_t seed, float scale) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
       i < count; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 0x9e3779b1u + seed;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    x ^= x >> 16;
    data[i] = static_cast<T>(scale * (static_cast<float>(x) * 0x1p-31f - 1.0f));
  }
}

void fill(void *data, ElementType type, int64_t count, uint32_t seed) {
  constexpr float kScale = 1e-3f;
  switch (type) {
  case ElementType::F32:
    fillKernel<<<1024, 256>>>(static_cast<float *>(data), count, seed, kScale);
    break;
  case ElementType::BF16:
    fillKernel<<<1024, 256>>>(static_cast<__nv_bfloat16 *>(data), count, seed,
                              kScale);
    break;
  case ElementType::F16:
    fillKernel<<<1024, 256>>>(static_cast<__half *>(data), count, seed, kScale);
    break;
  }
  check(cudaGetLastError());
}

class Memory {
public:
  ~Memory() {
    for (void *block : blocks)
      cudaFree(block);
  }
  uint8_t *allocate(int64_t bytes) {
    void *block;
    check(cudaMalloc(&block, bytes));
    blocks.push_back(block);
    return static_cast<uint8_t *>(block);
  }

private:
  std::vector<void *> blocks;
};

//===----------------------------------------------------------------------===//
// Timing
//===----------------------------------------------------------------------===//

/// Queues the operation on the buffers of set `set`.
using Launch = std::function<void(int set, cudaStream_t stream)>;

/// The microseconds of one launch.
double measure(const Launch &launch, int sets, int64_t bytes) {
  constexpr int kReplays = 15;
  // Long enough for the resolution of events, in whole rounds over the sets.
  double estimate = static_cast<double>(bytes) / 3e6;
  int launches = std::max(1, static_cast<int>(3000.0 / estimate) / sets) * sets;
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < launches; ++i)
    launch(i % sets, stream);
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = -2; i < kReplays; ++i) {
    check(cudaEventRecord(start, stream));
    check(cudaGraphLaunch(executable, stream));
    check(cudaEventRecord(stop, stream));
    check(cudaEventSynchronize(stop));
    float milliseconds;
    check(cudaEventElapsedTime(&milliseconds, start, stop));
    if (i >= 0)
      times.push_back(milliseconds);
  }
  std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
  check(cudaEventDestroy(start));
  check(cudaEventDestroy(stop));
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  check(cudaStreamDestroy(stream));
  return times[kReplays / 2] * 1e3 / launches;
}

/// Sets of buffers that make the working set larger than any L2 cache.
int setsFor(int64_t bytes) {
  return static_cast<int>(std::max<int64_t>(2, (int64_t(1) << 29) / bytes + 1));
}

//===----------------------------------------------------------------------===//
// The reference
//===----------------------------------------------------------------------===//

template <int perThread>
__global__ void __launch_bounds__(256)
    copyKernel(const uint4 *source, uint4 *dest, int64_t count) {
  int64_t first =
      static_cast<int64_t>(blockIdx.x) * (256 * perThread) + threadIdx.x;
  uint4 values[perThread];
#pragma unroll
  for (int i = 0; i < perThread; ++i)
    if (first + i * 256 < count)
      values[i] = __ldg(source + first + i * 256);
#pragma unroll
  for (int i = 0; i < perThread; ++i)
    if (first + i * 256 < count)
      dest[first + i * 256] = values[i];
}

template <int perThread>
void copyWithKernel(void *dest, const void *source, int64_t bytes,
                    cudaStream_t stream) {
  int64_t count = bytes / 16;
  copyKernel<perThread>
      <<<(count + 256 * perThread - 1) / (256 * perThread), 256, 0, stream>>>(
          static_cast<const uint4 *>(source), static_cast<uint4 *>(dest),
          count);
  check(cudaGetLastError());
}

/// GB/s of the fastest device-to-device copy of `bytes`.
double measureCopy(int64_t bytes, bool print) {
  Memory memory;
  int sets = setsFor(2 * bytes);
  std::vector<void *> buffers;
  for (int i = 0; i < 2 * sets; ++i) {
    buffers.push_back(memory.allocate(bytes));
    fill(buffers.back(), ElementType::BF16, bytes / 2, i);
  }
  struct Way {
    const char *name;
    Launch launch;
  };
  Way ways[] = {
      {"cudaMemcpyAsync",
       [&](int set, cudaStream_t stream) {
         check(cudaMemcpyAsync(buffers[2 * set + 1], buffers[2 * set], bytes,
                               cudaMemcpyDeviceToDevice, stream));
       }},
      {"copy kernel, 16 bytes per thread",
       [&](int set, cudaStream_t stream) {
         copyWithKernel<1>(buffers[2 * set + 1], buffers[2 * set], bytes,
                           stream);
       }},
      {"copy kernel, 64 bytes per thread",
       [&](int set, cudaStream_t stream) {
         copyWithKernel<4>(buffers[2 * set + 1], buffers[2 * set], bytes,
                           stream);
       }},
  };
  double best = 0;
  for (const Way &way : ways) {
    double rate = 2.0 * bytes / measure(way.launch, sets, 2 * bytes) / 1e3;
    if (print)
      std::printf("copy of %lld MiB, %s: %.0f GB/s\n",
                  static_cast<long long>(bytes >> 20), way.name, rate);
    best = std::max(best, rate);
  }
  return best;
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

constexpr int64_t kMi = 1 << 20;

/// A row of the table: an operation on a tensor, or for sums on sources, of so
/// many elements.
struct Row {
  Operation operation;
  Kind source;
  Kind dest;
  int64_t block = 128;
  int64_t elements = 256 * kMi;
  /// In percent of the copy, 0 for none.
  double target = 0;
  int64_t sources = 1;
  int64_t rotate = 0;
  bool isInPlace = false;

  bool isReordering() const { return !isQuantized(source) && source == dest; }
  std::string getName() const;
  std::string getTypes() const {
    std::string types = std::string(str(source)) + " > " + str(dest);
    return isSum(operation) ? std::to_string(sources) + " " + types : types;
  }
};

std::string Row::getName() const {
  // Plain, with a rotation, and without codes.
  constexpr const char *kNames[][3] = {
      {"quantize with order", "rotate-quantize", "pack slices"},
      {"dequantize with order", "dequantize-rotate", "unpack slices"},
      {"quantize-difference"},
      {"dequantize-add"},
      {"dequantize-reduce", "dequantize-reduce-rotate"},
      {"dequantize-reduce-quantize"}};
  std::string name = kNames[static_cast<int>(operation)][isReordering() ? 2
                                                         : rotate       ? 1
                                                                        : 0];
  return name + (isInPlace ? " in place" : "");
}

SliceMap makeIdentity(int64_t elements) {
  SliceMap map;
  map.unit = map.extent = elements;
  return map;
}
/// Two tiers of 2 and 4, with chunks for the inner one: half of each chunk lies
/// in the other half of the tensor.
SliceMap makeOrder(int64_t elements) {
  SliceMap map;
  map.factors = {2, 4};
  map.chunkFactors = {1};
  map.unit = elements / 8 / 1024;
  map.inner = 1024;
  map.extent = map.paddedExtent();
  return map;
}

/// Makes steps of a row with memory of their own.
class StepMaker {
public:
  explicit StepMaker(const Row &row) : row(row) {}

  Step make(uint32_t seed) {
    bool isFrom = isFromTensor(row.operation), isTo = isToTensor(row.operation);
    int64_t part = row.elements / 4;
    Step step{row.operation, makeOrder(row.elements)};
    if (row.operation == Operation::Reduce) {
      step.map = makeIdentity(row.elements);
      step.reduction.divisor = static_cast<float>(row.sources);
    }
    step.source = isFrom ? makeTensor(row.source, seed)
                  : isSum(row.operation)
                      ? makeChunks(row.source, row.sources, row.elements, seed)
                      : makeChunks(row.source, 4, part, seed);
    if (isDifference(row.operation))
      step.held = makeTensor(isFrom ? row.source : row.dest, seed + 1);
    step.dest = row.isInPlace ? step.held
                : isTo        ? makeTensor(row.dest, seed)
                              : makeChunks(row.dest, 4, part, seed);
    return step;
  }

  /// The bytes that a step has to read and write.
  int64_t countBytes(const Step &step) const {
    int64_t bytes = countBytes(step.source) + countBytes(step.dest);
    return isDifference(row.operation) ? bytes + countBytes(step.held) : bytes;
  }

private:
  int64_t countBytes(const Side &side) const {
    return side.count > 0 ? side.count * side.stride
                          : row.elements * elementBytes(typeOf(side.kind));
  }
  Side makeTensor(Kind kind, uint32_t seed) {
    Side tensor{kind};
    tensor.data = memory.allocate(countBytes(tensor));
    fill(tensor.data, typeOf(kind), row.elements, seed);
    return tensor;
  }
  /// Each chunk has other values, which are quantized.
  Side makeChunks(Kind kind, int64_t count, int64_t elements, uint32_t seed) {
    Side chunks{kind, nullptr, count, elements * elementBytes(typeOf(kind))};
    if (isQuantized(kind)) {
      chunks.block = row.block;
      chunks.rotate = row.rotate;
      chunks.stride =
          getChunkLayout(elements, formatOf(kind), row.block).chunkBytes;
    }
    chunks.data = memory.allocate(countBytes(chunks));
    Memory temporary;
    Side values{isQuantized(kind) ? Kind::BF16 : kind};
    values.data = temporary.allocate(elements * elementBytes(typeOf(kind)));
    for (int64_t c = 0; c < count; ++c) {
      fill(values.data, typeOf(values.kind), elements, 100 * seed + c);
      Side chunk = chunks;
      chunk.data += c * chunks.stride;
      chunk.count = 1;
      check(Step{Operation::Quantize, makeIdentity(elements), values, chunk}
                .launch());
    }
    check(cudaDeviceSynchronize());
    return chunks;
  }

  const Row &row;
  Memory memory;
};

/// Prints a row. Returns whether it misses its target.
bool print(const Row &row, double copyRate) {
  StepMaker maker(row);
  std::vector<Step> steps = {maker.make(0)};
  int64_t bytes = maker.countBytes(steps.front());
  int sets = setsFor(bytes);
  for (int i = 1; i < sets; ++i)
    steps.push_back(maker.make(2 * i));
  double usec = measure(
      [&](int set, cudaStream_t stream) { check(steps[set].launch(stream)); },
      sets, bytes);
  double rate = bytes / usec / 1e3;
  double percent = 100 * rate / copyRate;
  bool misses = row.target > 0 && percent < row.target;
  char target[32] = "";
  if (row.target > 0)
    std::snprintf(target, sizeof(target), "%.1f%s", row.target,
                  misses ? " MISSED" : "");
  std::printf("%-26s %-12s %6lld %7lldMi %9.1f %8.0f %7.1f %7s\n",
              row.getName().c_str(), row.getTypes().c_str(),
              static_cast<long long>(row.isReordering() ? 0 : row.block),
              static_cast<long long>(row.elements >> 20), usec, rate, percent,
              target);
  std::fflush(stdout);
  return misses;
}

std::vector<Row> makeRows() {
  constexpr Kind kCodes[] = {Kind::I8, Kind::I4};
  std::vector<Row> rows;
  // A way and the way back.
  auto addBoth = [&](Kind type, Kind code, int64_t block = 128,
                     int64_t elements = 256 * kMi, double target = 0,
                     int64_t rotate = 0) {
    rows.push_back({Operation::Quantize, type, code, block, elements, target,
                    /*sources=*/1, rotate});
    rows.push_back({Operation::Dequantize, code, type, block, elements, target,
                    /*sources=*/1, rotate});
  };
  auto addSum = [&](int64_t sources, Kind from, Kind to, int64_t elements,
                    int64_t block = 128, double target = 0,
                    int64_t rotate = 0) {
    rows.push_back(
        {isQuantized(to) ? Operation::ReduceQuantize : Operation::Reduce, from,
         to, block, elements, target, sources, rotate});
  };
  for (int64_t elements : {256 * kMi, 4 * kMi}) {
    // Small tensors only have to reach half of the rate of large ones.
    double part = elements == 4 * kMi ? 0.5 : 1.0;
    for (int64_t block : {128, 256})
      for (Kind code : kCodes)
        addBoth(Kind::BF16, code, block, elements, 90 * part);
    for (int64_t block : {128, 256})
      addSum(8, Kind::I4, Kind::I4, elements, block, 85 * part);
  }
  // The ends of a gather that moves differences.
  for (auto [type, code] : {std::pair(Kind::BF16, Kind::I8),
                            {Kind::BF16, Kind::I4},
                            {Kind::F32, Kind::I4}}) {
    Row row{Operation::QuantizeDifference, type, code};
    row.target = 90;
    rows.push_back(row);
    row.operation = Operation::DequantizeAdd;
    std::swap(row.source, row.dest);
    rows.push_back(row);
    row.isInPlace = true;
    rows.push_back(row);
  }
  // Rows without targets: the sum over tensors of 256 Mi elements in total,
  // other formats, types and blocks, and other numbers of sources.
  addSum(8, Kind::I4, Kind::I4, 32 * kMi);
  for (Kind to : {Kind::I8, Kind::I4, Kind::BF16})
    addSum(8, Kind::I8, to, 256 * kMi);
  addSum(8, Kind::I4, Kind::BF16, 256 * kMi);
  for (int64_t count : {2, 4, 16})
    for (Kind from : {Kind::I4, Kind::I8})
      addSum(count, from, Kind::I4, 128 * kMi);
  addSum(2, Kind::I4, Kind::BF16, 256 * kMi);
  for (Kind type : {Kind::F32, Kind::F16})
    for (Kind code : kCodes)
      addBoth(type, code);
  for (int64_t block : {32, 2048})
    addBoth(Kind::BF16, Kind::I4, block);
  // The ends of a scatter whose hops send rotated values.
  for (Kind code : kCodes)
    addBoth(Kind::BF16, code, 128, 256 * kMi, 0, kRotation);
  for (int64_t count : {2, 8})
    for (Kind from : kCodes)
      addSum(count, from, Kind::BF16, 256 * kMi, 128, 0, kRotation);
  addBoth(Kind::BF16, Kind::BF16);
  return rows;
}

} // namespace

int main(int argc, char **argv) {
  bool checkTargets = false;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--check") {
      checkTargets = true;
    } else if (argument.rfind("--only=", 0) == 0) {
      only = argument.substr(7);
    } else {
      std::printf("usage: zpp-kernels-bench [--check] [--only=TEXT]\n");
      return 2;
    }
  }
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0));
  int driver = 0;
  check(cudaDriverGetVersion(&driver));
  std::printf("%s, %d multiprocessors, CUDA driver %d.%d\n", properties.name,
              properties.multiProcessorCount, driver / 1000,
              driver % 1000 / 10);

  double copyRate = measureCopy(512 * kMi, /*print=*/true);
  measureCopy(8 * kMi, /*print=*/true);
  std::printf("\n%-26s %-12s %6s %9s %9s %8s %7s %7s\n", "kernel", "types",
              "block", "elements", "usec", "GB/s", "% copy", "target");
  int numMissed = 0;
  for (const Row &row : makeRows())
    if (row.getName().find(only) != std::string::npos)
      numMissed += print(row, copyRate);
  double again = measureCopy(512 * kMi, /*print=*/false);
  std::printf("copy of 512 MiB after all: %.0f GB/s\n", again);
  if (numMissed > 0)
    std::printf("%d rows missed their target\n", numMissed);
  return checkTargets && numMissed > 0 ? 1 : 0;
}
