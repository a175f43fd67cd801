//===- Kernels.cpp - The launchers of zpp::kernels, simulated -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Queues the host reference of the kernels' own tests, with the launchers'
// checks. Tasks read and write exactly the bytes that Kernels.h says.
//
//===----------------------------------------------------------------------===//

#include "HostReference.h"
#include "Simulator.h"
#include "zpp/kernels/Checks.h"

#include <algorithm>
#include <cstring>

using namespace zpp;
using namespace zpp::kernels;
using zpp::simulated::Access;
using zpp::simulated::at;
using zpp::simulated::Task;

//===----------------------------------------------------------------------===//
// What is read and written
//===----------------------------------------------------------------------===//

/// More pieces than this are declared as one.
static constexpr size_t kMaxPieces = 4096;

/// Adds an access, or extends the last one if it ends there.
static void add(std::vector<Access> &accesses, const void *base, int64_t begin,
                int64_t bytes, bool isWrite) {
  if (bytes == 0)
    return;
  auto *data =
      reinterpret_cast<const void *>(reinterpret_cast<uintptr_t>(base) + begin);
  if (!accesses.empty() && accesses.back().isWrite == isWrite &&
      reinterpret_cast<uintptr_t>(accesses.back().data) +
              accesses.back().bytes ==
          reinterpret_cast<uintptr_t>(data))
    accesses.back().bytes += bytes;
  else
    accesses.push_back({data, bytes, isWrite});
}

/// The elements of a tensor that the chunks of a map are made of.
static void addTensor(std::vector<Access> &accesses, const void *data,
                      int64_t elementBytes, const SliceMap &map, bool isWrite) {
  int64_t run = map.partSize() * map.inner;
  struct Piece {
    int64_t begin, end;
  };
  std::vector<Piece> pieces;
  for (int64_t chunk = 0; chunk < map.numChunks() && run > 0; ++chunk)
    for (int64_t e = 0; e < map.elementsPerChunk(); e += run) {
      int64_t index = map.tensorIndex(chunk, e);
      if (index < 0)
        continue;
      int64_t row = index / map.inner % map.extent;
      int64_t rows = std::min(map.partSize(), map.extent - row);
      pieces.push_back({index, index + rows * map.inner});
    }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece &a, const Piece &b) { return a.begin < b.begin; });
  if (pieces.size() > kMaxPieces)
    pieces = {{pieces.front().begin, pieces.back().end}};
  for (const Piece &piece : pieces)
    add(accesses, data, piece.begin * elementBytes,
        (piece.end - piece.begin) * elementBytes, isWrite);
}

static void addChunks(std::vector<Access> &accesses, const void *data,
                      int64_t count, int64_t stride, int64_t bytes,
                      bool isWrite) {
  for (int64_t chunk = 0; chunk < count; ++chunk)
    add(accesses, data, chunk * stride, bytes, isWrite);
}

template <typename Void>
static void addChunks(std::vector<Access> &accesses,
                      const ChunkBuffer<Void> &chunks, int64_t elements,
                      bool isWrite) {
  addChunks(
      accesses, chunks.data, chunks.count, chunks.stride,
      reference::chunkBytes(elements, chunks.format, chunks.block, chunks.type),
      isWrite);
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

/// The tensors of the launch that is not made yet, in the order of their
/// launchers.
struct Launches::State {
  cudaStream_t stream = nullptr;
  std::string name;
  std::vector<Task> tasks;

  cudaError_t flush();
};

static bool overlap(const Access &a, const Access &b) {
  auto end = [](const Access &access) {
    return static_cast<const char *>(access.data) + access.bytes;
  };
  return a.data < end(b) && b.data < end(a);
}

/// The thread blocks of a launch run in any order, so memory that is written
/// for one tensor must not be accessed for another.
static void checkIndependence(const std::string &name, const Task &a,
                              const Task &b) {
  for (const Access &first : a.accesses)
    for (const Access &second : b.accesses)
      if ((first.isWrite || second.isWrite) && overlap(first, second))
        return simulated::reportError("a launch of " + name +
                                      " has two tensors that depend on each "
                                      "other");
}

cudaError_t Launches::State::flush() {
  std::vector<Task> batch;
  std::swap(batch, tasks);
  if (batch.empty())
    return cudaSuccess;
  if (int error = simulated::countCall("cudaLaunchKernel"))
    return static_cast<cudaError_t>(error);
  Task all;
  all.name = name;
  all.kind = Task::Kernel;
  for (size_t i = 0; i < batch.size(); ++i) {
    for (size_t k = 0; k < i; ++k)
      checkIndependence(name, batch[k], batch[i]);
    all.accesses.insert(all.accesses.end(), batch[i].accesses.begin(),
                        batch[i].accesses.end());
  }
  if (all.accesses.empty())
    return cudaSuccess;
  all.run = [batch = std::move(batch)] {
    for (const Task &task : batch)
      task.run();
  };
  simulated::loadKernels();
  return simulated::submit(stream, std::move(all));
}

Launches::Launches() : state(std::make_unique<State>()) {}
Launches::~Launches() {
  if (!state->tasks.empty())
    simulated::reportError("launches were dropped");
}
void Launches::setStream(cudaStream_t stream) {
  if (!state->tasks.empty())
    simulated::reportError("another stream while launches wait");
  state->stream = stream;
}
cudaError_t Launches::flush() { return state->flush(); }

/// Queues a kernel; source and destination must not overlap.
static cudaError_t queue(const char *name, std::vector<Access> accesses,
                         std::function<void()> run,
                         const LaunchTarget &target) {
  for (const Access &read : accesses)
    for (const Access &write : accesses)
      if (!read.isWrite && write.isWrite && overlap(read, write)) {
        simulated::reportError(std::string(name) +
                               " writes what it reads: its source and "
                               "destination overlap");
        return cudaErrorInvalidValue;
      }
  Launches::State alone;
  alone.stream = target.stream;
  Launches::State &state =
      target.launches ? target.launches->getState() : alone;
  if (state.name != name || state.tasks.size() == kMaxBatch)
    if (cudaError_t error = state.flush())
      return error;
  state.name = name;
  state.tasks.push_back(
      {name, std::move(accesses), std::move(run), Task::Kernel});
  return target.launches ? cudaSuccess : state.flush();
}

template <typename Void>
static ChunkBuffer<Void> translated(ChunkBuffer<Void> buffer) {
  buffer.data = at(buffer.data);
  return buffer;
}

static const uint8_t *atHeld(const ConstTensor *held) {
  return held ? at(held->data) : nullptr;
}

/// With `held`, of what `source` differs from it.
static cudaError_t queueQuantize(const char *name, Operation operation,
                                 const ConstTensor &source,
                                 const ConstTensor *held, const SliceMap &map,
                                 const Chunks &dest,
                                 const LaunchTarget &target) {
  if (!isSupported(operation, kindOf(source.type), kindOf(dest)) ||
      !map.verify().empty())
    return cudaErrorInvalidValue;
  if (cudaError_t error =
          checkChunks(dest, map.numChunks(), map.elementsPerChunk()))
    return error;
  if (cudaError_t error = checkTensor(source))
    return error;
  std::vector<Access> accesses;
  addTensor(accesses, source.data, elementBytes(source.type), map, false);
  if (held)
    addTensor(accesses, held->data, elementBytes(held->type), map, false);
  addChunks(accesses, dest, map.elementsPerChunk(), true);
  return queue(
      name, std::move(accesses),
      [=, heldData = atHeld(held)] {
        reference::quantize({at(source.data), source.type}, map,
                            translated(dest), heldData);
      },
      target);
}

cudaError_t kernels::quantize(const ConstTensor &source, const SliceMap &map,
                              const Chunks &dest, const LaunchTarget &target) {
  return queueQuantize("quantize", Operation::Quantize, source, nullptr, map,
                       dest, target);
}

cudaError_t kernels::quantizeDifference(const ConstTensor &source,
                                        const ConstTensor &held,
                                        const SliceMap &map, const Chunks &dest,
                                        const LaunchTarget &target) {
  if (held.type != source.type || dest.rotate != 0)
    return cudaErrorInvalidValue;
  if (cudaError_t error = checkTensor(held))
    return error;
  return queueQuantize("quantizeDifference", Operation::QuantizeDifference,
                       source, &held, map, dest, target);
}

/// With `held`, which may be `dest`, the values are added to it.
static cudaError_t queueDequantize(const char *name, Operation operation,
                                   const ConstChunks &source,
                                   const ConstTensor *held, const SliceMap &map,
                                   const Tensor &dest,
                                   const LaunchTarget &target) {
  if (!isSupported(operation, kindOf(source), kindOf(dest.type)) ||
      !map.verify().empty())
    return cudaErrorInvalidValue;
  if (cudaError_t error =
          checkChunks(source, map.numChunks(), map.elementsPerChunk()))
    return error;
  if (cudaError_t error = checkTensor(dest))
    return error;
  std::vector<Access> accesses;
  addChunks(accesses, source, map.elementsPerChunk(), false);
  if (held && held->data != dest.data)
    addTensor(accesses, held->data, elementBytes(held->type), map, false);
  addTensor(accesses, dest.data, elementBytes(dest.type), map, true);
  return queue(
      name, std::move(accesses),
      [=, heldData = atHeld(held)] {
        reference::dequantize(translated(source), map,
                              {at(dest.data), dest.type}, heldData);
      },
      target);
}

cudaError_t kernels::dequantize(const ConstChunks &source, const SliceMap &map,
                                const Tensor &dest,
                                const LaunchTarget &target) {
  return queueDequantize("dequantize", Operation::Dequantize, source, nullptr,
                         map, dest, target);
}

cudaError_t kernels::dequantizeAdd(const ConstChunks &source,
                                   const ConstTensor &held, const SliceMap &map,
                                   const Tensor &dest,
                                   const LaunchTarget &target) {
  if (held.type != dest.type || source.rotate != 0)
    return cudaErrorInvalidValue;
  if (cudaError_t error = checkTensor(held))
    return error;
  return queueDequantize("dequantizeAdd", Operation::DequantizeAdd, source,
                         &held, map, dest, target);
}

cudaError_t kernels::dequantizeReduce(const ConstChunks &sources,
                                      const SliceMap &map,
                                      const Reduction &reduction,
                                      const Tensor &dest,
                                      const LaunchTarget &target) {
  if (!isSupported(Operation::Reduce, kindOf(sources), kindOf(dest.type)) ||
      !map.verify().empty() || map.numChunks() != 1)
    return cudaErrorInvalidValue;
  if (cudaError_t error =
          checkChunks(sources, sources.count, map.elementsPerChunk()))
    return error;
  if (cudaError_t error = checkTensor(dest))
    return error;
  std::vector<Access> accesses;
  addChunks(accesses, sources, map.elementsPerChunk(), false);
  addTensor(accesses, dest.data, elementBytes(dest.type), map, true);
  return queue(
      "dequantizeReduce", std::move(accesses),
      [=] {
        reference::dequantizeReduce(translated(sources), map, reduction,
                                    {at(dest.data), dest.type});
      },
      target);
}

cudaError_t kernels::dequantizeReduceQuantize(const ConstChunks &sources,
                                              const SliceMap &map,
                                              const Reduction &reduction,
                                              const Chunks &dest,
                                              const LaunchTarget &target) {
  if (!isSupported(Operation::ReduceQuantize, kindOf(sources), kindOf(dest)) ||
      sources.rotate != 0 || dest.rotate != 0 || !map.verify().empty())
    return cudaErrorInvalidValue;
  int64_t elements = map.outer * map.extent * map.inner;
  if (cudaError_t error = checkChunks(sources, sources.count, elements))
    return error;
  if (cudaError_t error =
          checkChunks(dest, map.numChunks(), map.elementsPerChunk()))
    return error;
  std::vector<Access> accesses;
  addChunks(accesses, sources, elements, false);
  addChunks(accesses, dest, map.elementsPerChunk(), true);
  return queue(
      "dequantizeReduceQuantize", std::move(accesses),
      [=] {
        reference::dequantizeReduceQuantize(translated(sources), map, reduction,
                                            translated(dest));
      },
      target);
}

//===----------------------------------------------------------------------===//
// Slice order alone
//===----------------------------------------------------------------------===//

static cudaError_t reorder(bool isPack, const void *source,
                           int64_t elementBytes, const SliceMap &map,
                           void *dest, int64_t stride,
                           const LaunchTarget &target) {
  int64_t elements = map.elementsPerChunk();
  if (elementBytes < 1 || !map.verify().empty() ||
      (map.numChunks() > 1 && stride < elements * elementBytes))
    return cudaErrorInvalidValue;
  std::vector<Access> accesses;
  const void *tensor = isPack ? source : dest;
  const void *chunks = isPack ? dest : source;
  addTensor(accesses, tensor, elementBytes, map, !isPack);
  addChunks(accesses, chunks, map.numChunks(), stride, elements * elementBytes,
            isPack);
  return queue(
      isPack ? "pack" : "unpack", std::move(accesses),
      [=] {
        const uint8_t *from = at(source);
        uint8_t *to = at(dest);
        for (int64_t chunk = 0; chunk < map.numChunks(); ++chunk)
          for (int64_t e = 0; e < elements; ++e) {
            int64_t index = map.tensorIndex(chunk, e);
            int64_t inChunk = chunk * stride + e * elementBytes;
            if (index >= 0)
              std::memcpy(to + (isPack ? inChunk : index * elementBytes),
                          from + (isPack ? index * elementBytes : inChunk),
                          elementBytes);
            else if (isPack)
              std::memset(to + inChunk, 0, elementBytes);
          }
      },
      target);
}

cudaError_t kernels::pack(const void *source, int64_t elementBytes,
                          const SliceMap &map, void *dest, int64_t stride,
                          const LaunchTarget &target) {
  return reorder(true, source, elementBytes, map, dest, stride, target);
}

cudaError_t kernels::unpack(const void *source, int64_t elementBytes,
                            const SliceMap &map, void *dest, int64_t stride,
                            const LaunchTarget &target) {
  return reorder(false, source, elementBytes, map, dest, stride, target);
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

cudaError_t kernels::load() {
  int error = simulated::countCall("zpp::kernels::load");
  if (error == 0)
    simulated::loadKernels();
  return static_cast<cudaError_t>(error);
}
