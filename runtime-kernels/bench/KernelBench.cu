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

#include "zpp/kernels/Kernels.h"
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
  void *allocate(int64_t bytes) {
    void *block;
    check(cudaMalloc(&block, bytes));
    blocks.push_back(block);
    return block;
  }

private:
  std::vector<void *> blocks;
};

/// A set of chunks without data.
Chunks makeChunks(Memory &memory, int64_t count, int64_t elements,
                  WireFormat format, int64_t block, int64_t rotate = 0) {
  int64_t bytes = getChunkLayout(elements, format, block).chunkBytes;
  return {memory.allocate(count * bytes),
          count,
          bytes,
          format,
          block,
          ElementType::F32,
          rotate};
}
ConstChunks asConst(const Chunks &chunks) {
  return {chunks.data,  chunks.count, chunks.stride, chunks.format,
          chunks.block, chunks.type,  chunks.rotate};
}

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

const char *str(ElementType type) {
  return type == ElementType::F32    ? "f32"
         : type == ElementType::BF16 ? "bf16"
                                     : "f16";
}
const char *str(WireFormat format) { return nameOf(format); }

class Table {
public:
  Table(double copyRate, std::string only)
      : copyRate(copyRate), only(std::move(only)) {
    std::printf("\n%-26s %-12s %6s %9s %9s %8s %7s %7s\n", "kernel", "types",
                "block", "elements", "usec", "GB/s", "% copy", "target");
  }

  /// `target` in percent of the copy, 0 for none.
  void add(const char *kernel, const std::string &types, int64_t block,
           int64_t elements, int64_t bytes, int sets, double target,
           const Launch &launch) {
    if (std::string(kernel).find(only) == std::string::npos)
      return;
    double usec = measure(launch, sets, bytes);
    double rate = bytes / usec / 1e3;
    double percent = 100 * rate / copyRate;
    char targetText[32] = "";
    bool misses = target > 0 && percent < target;
    if (target > 0)
      std::snprintf(targetText, sizeof(targetText), "%.1f%s", target,
                    misses ? " MISSED" : "");
    numMissed += misses;
    std::printf("%-26s %-12s %6lld %7lldMi %9.1f %8.0f %7.1f %7s\n", kernel,
                types.c_str(), static_cast<long long>(block),
                static_cast<long long>(elements >> 20), usec, rate, percent,
                targetText);
    std::fflush(stdout);
  }

  int getNumMissed() const { return numMissed; }

private:
  double copyRate;
  std::string only;
  int numMissed = 0;
};

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
SliceMap makeIdentity(int64_t elements) {
  SliceMap map;
  map.unit = map.extent = elements;
  return map;
}

void benchQuantize(Table &table, ElementType type, WireFormat format,
                   int64_t block, int64_t elements, double target,
                   int64_t rotate = 0) {
  Memory memory;
  SliceMap map = makeOrder(elements);
  ChunkLayout layout = getChunkLayout(elements / 4, format, block);
  int64_t bytes = elements * elementBytes(type) + 4 * layout.chunkBytes;
  int sets = setsFor(bytes);
  std::vector<void *> tensors;
  std::vector<Chunks> chunks;
  for (int i = 0; i < sets; ++i) {
    tensors.push_back(memory.allocate(elements * elementBytes(type)));
    fill(tensors.back(), type, elements, i);
    chunks.push_back(
        makeChunks(memory, 4, elements / 4, format, block, rotate));
  }
  std::string types = std::string(str(type)) + " > " + str(format);
  table.add(rotate ? "rotate-quantize" : "quantize with order", types, block,
            elements, bytes, sets, target, [&](int set, cudaStream_t stream) {
              check(quantize({tensors[set], type}, map, chunks[set], stream));
            });
  types = std::string(str(format)) + " > " + str(type);
  table.add(rotate ? "dequantize-rotate" : "dequantize with order", types,
            block, elements, bytes, sets, target,
            [&](int set, cudaStream_t stream) {
              check(dequantize(asConst(chunks[set]), map, {tensors[set], type},
                               stream));
            });
}

/// The ends of a gather that moves differences.
void benchDifference(Table &table, ElementType type, WireFormat format,
                     int64_t block, int64_t elements, double target) {
  Memory memory;
  SliceMap map = makeOrder(elements);
  ChunkLayout layout = getChunkLayout(elements / 4, format, block);
  int64_t tensorBytes = elements * elementBytes(type);
  int64_t bytes = 2 * tensorBytes + 4 * layout.chunkBytes;
  int sets = setsFor(bytes);
  std::vector<Tensor> tensors, held;
  std::vector<Chunks> chunks;
  for (int i = 0; i < sets; ++i) {
    for (auto *list : {&tensors, &held}) {
      list->push_back({memory.allocate(tensorBytes), type});
      fill(list->back().data, type, elements, 2 * i + (list == &held));
    }
    chunks.push_back(makeChunks(memory, 4, elements / 4, format, block));
  }
  auto asConst = [](const Tensor &tensor) {
    return ConstTensor{tensor.data, tensor.type};
  };
  std::string types = std::string(str(type)) + " > " + str(format);
  table.add("quantize-difference", types, block, elements, bytes, sets, target,
            [&](int set, cudaStream_t stream) {
              check(quantizeDifference(asConst(tensors[set]),
                                       asConst(held[set]), map, chunks[set],
                                       stream));
            });
  types = std::string(str(format)) + " > " + str(type);
  table.add("dequantize-add", types, block, elements, bytes, sets, target,
            [&](int set, cudaStream_t stream) {
              check(dequantizeAdd(::asConst(chunks[set]), asConst(held[set]),
                                  map, tensors[set], stream));
            });
  table.add("dequantize-add in place", types, block, elements, bytes, sets,
            target, [&](int set, cudaStream_t stream) {
              check(dequantizeAdd(::asConst(chunks[set]), asConst(held[set]),
                                  map, held[set], stream));
            });
}

void benchReorder(Table &table, ElementType type, int64_t elements) {
  Memory memory;
  SliceMap map = makeOrder(elements);
  int64_t bytes = 2 * elements * elementBytes(type);
  int sets = setsFor(bytes);
  std::vector<void *> tensors;
  std::vector<Chunks> chunks;
  for (int i = 0; i < sets; ++i) {
    for (int k = 0; k < 2; ++k) {
      tensors.push_back(memory.allocate(bytes / 2));
      fill(tensors.back(), type, elements, i);
    }
    chunks.push_back({tensors.back(), 4, bytes / 8, WireFormat::None, 0, type});
  }
  std::string types = std::string(str(type)) + " > " + str(type);
  table.add("pack slices", types, 0, elements, bytes, sets, 0,
            [&](int set, cudaStream_t stream) {
              check(
                  quantize({tensors[2 * set], type}, map, chunks[set], stream));
            });
  table.add("unpack slices", types, 0, elements, bytes, sets, 0,
            [&](int set, cudaStream_t stream) {
              check(dequantize(asConst(chunks[set]), map,
                               {tensors[2 * set], type}, stream));
            });
}

/// `count` sources of `elements` each.
void benchReduce(Table &table, int64_t count, WireFormat from, WireFormat to,
                 int64_t block, int64_t elements, double target,
                 int64_t rotate = 0) {
  Memory memory;
  ChunkLayout layout = getChunkLayout(elements, from, block);
  SliceMap identity = makeIdentity(elements);
  SliceMap order = makeOrder(elements);
  int64_t sourceBytes = count * layout.chunkBytes;
  int sets = setsFor(sourceBytes);
  void *values = memory.allocate(elements * 2);
  std::vector<Chunks> sources, dests;
  std::vector<void *> tensors;
  for (int i = 0; i < sets; ++i) {
    sources.push_back(makeChunks(memory, count, elements, from, block, rotate));
    for (int64_t s = 0; s < count; ++s) {
      fill(values, ElementType::BF16, elements, 100 * i + s);
      Chunks one = sources[i];
      one.data = static_cast<char *>(one.data) + s * one.stride;
      one.count = 1;
      check(quantize({values, ElementType::BF16}, identity, one, nullptr));
    }
    if (to == WireFormat::None)
      tensors.push_back(memory.allocate(elements * 2));
    else
      dests.push_back(makeChunks(memory, 4, elements / 4, to, block));
  }
  std::string types = std::to_string(count) + " " + str(from) + " > " +
                      (to == WireFormat::None ? "bf16" : str(to));
  if (to == WireFormat::None) {
    table.add(rotate ? "dequantize-reduce-rotate" : "dequantize-reduce", types,
              block, elements, sourceBytes + elements * 2, sets, target,
              [&](int set, cudaStream_t stream) {
                check(dequantizeReduce(asConst(sources[set]), identity,
                                       {static_cast<float>(count)},
                                       {tensors[set], ElementType::BF16},
                                       stream));
              });
    return;
  }
  table.add("dequantize-reduce-quantize", types, block, elements,
            sourceBytes + 4 * dests[0].stride, sets, target,
            [&](int set, cudaStream_t stream) {
              check(dequantizeReduceQuantize(asConst(sources[set]), order, {},
                                             dests[set], stream));
            });
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

  constexpr int64_t kMi = 1 << 20;
  double copyRate = measureCopy(512 * kMi, /*print=*/true);
  measureCopy(8 * kMi, /*print=*/true);
  Table table(copyRate, only);
  for (int64_t elements : {256 * kMi, 4 * kMi}) {
    // Small tensors only have to reach half of the rate of large ones.
    double part = elements == 4 * kMi ? 0.5 : 1.0;
    for (int64_t block : {128, 256})
      for (WireFormat format : {WireFormat::I8, WireFormat::I4})
        benchQuantize(table, ElementType::BF16, format, block, elements,
                      90 * part);
    for (int64_t block : {128, 256})
      benchReduce(table, 8, WireFormat::I4, WireFormat::I4, block, elements,
                  85 * part);
  }
  for (WireFormat format : {WireFormat::I8, WireFormat::I4})
    benchDifference(table, ElementType::BF16, format, 128, 256 * kMi, 90);
  benchDifference(table, ElementType::F32, WireFormat::I4, 128, 256 * kMi, 90);
  // Rows without targets: the sum over tensors of 256 Mi elements in total,
  // other formats, types and blocks, and other numbers of sources.
  benchReduce(table, 8, WireFormat::I4, WireFormat::I4, 128, 32 * kMi, 0);
  for (WireFormat to : {WireFormat::I8, WireFormat::I4, WireFormat::None})
    benchReduce(table, 8, WireFormat::I8, to, 128, 256 * kMi, 0);
  benchReduce(table, 8, WireFormat::I4, WireFormat::None, 128, 256 * kMi, 0);
  for (int64_t count : {2, 4, 16})
    for (WireFormat from : {WireFormat::I4, WireFormat::I8})
      benchReduce(table, count, from, WireFormat::I4, 128, 128 * kMi, 0);
  benchReduce(table, 2, WireFormat::I4, WireFormat::None, 128, 256 * kMi, 0);
  for (ElementType type : {ElementType::F32, ElementType::F16})
    for (WireFormat format : {WireFormat::I8, WireFormat::I4})
      benchQuantize(table, type, format, 128, 256 * kMi, 0);
  for (int64_t block : {32, 2048})
    benchQuantize(table, ElementType::BF16, WireFormat::I4, block, 256 * kMi,
                  0);
  // The ends of a scatter whose hops send rotated values.
  for (WireFormat format : {WireFormat::I8, WireFormat::I4})
    benchQuantize(table, ElementType::BF16, format, 128, 256 * kMi, 0,
                  kRotation);
  for (int64_t count : {2, 8})
    for (WireFormat from : {WireFormat::I8, WireFormat::I4})
      benchReduce(table, count, from, WireFormat::None, 128, 256 * kMi, 0,
                  kRotation);
  benchReorder(table, ElementType::BF16, 256 * kMi);
  double again = measureCopy(512 * kMi, /*print=*/false);
  std::printf("copy of 512 MiB after all: %.0f GB/s\n", again);
  if (table.getNumMissed() > 0)
    std::printf("%d rows missed their target\n", table.getNumMissed());
  return checkTargets && table.getNumMissed() > 0 ? 1 : 0;
}
