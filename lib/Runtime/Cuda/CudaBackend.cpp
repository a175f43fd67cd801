//===- CudaBackend.cpp - A GPU for each rank ------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Local operations are the fused kernels, exchanges are sends of NCCL. Each
// tier of the mesh has a stream for its exchanges and one for the kernels that
// need what they bring, unless they follow on the former; kernels that need
// neither have another. So a kernel waits for no slower tier than its data come
// from, and those of a stream can run in the order of their exchanges. A thread
// watches what is under way, so that no failure of another rank, of the network
// or of the device leaves anybody waiting.
//
//===----------------------------------------------------------------------===//

#include "Backend.h"
#include "Control/Control.h"
#include "CudaStreams.h"
#include "NcclCommunicators.h"
#include "NcclLibrary.h"
#include "zpp/kernels/Kernels.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <thread>
#include <utility>

using namespace zpp;
using namespace zpp::rt;

using Clock = std::chrono::steady_clock;

/// How often the watching thread looks.
static constexpr std::chrono::milliseconds kWatchPeriod{5};
/// How much longer than the time limit an exchange may take in which all ranks
/// take part: who has not come is found out first, which says more.
static constexpr std::chrono::seconds kGrace{2};
/// How synchronization waits: first without sleep, then looking this often.
static constexpr std::chrono::microseconds kSpinTime{500};
static constexpr std::chrono::microseconds kPollPeriod{50};
/// Gathers over several tiers are cut into as many parts as have this many
/// bytes, so that one tier works while the other does. Shorter messages fill a
/// slow link less than that saves.
static constexpr int64_t kGatherPartBytes = int64_t(8) << 20;
static constexpr int64_t kMaxGatherParts = 4;
/// Above, gathers are not cut: the bookkeeping would cost more.
static constexpr int64_t kMaxGatherChunks = 64;

/// Pieces that an operation reads or writes are told apart up to this number.
static constexpr int64_t kMaxPieces = 16;
/// Shorter rows are copied by the copy engine.
static constexpr int64_t kMinRowBytes = 256;

namespace {

//===----------------------------------------------------------------------===//
// What is under way
//===----------------------------------------------------------------------===//

/// Exchanges that may wait for other ranks, and the time limit on them. Every
/// function may be called from any thread.
class Watch {
public:
  Watch(const CudaStreams &streams, std::chrono::microseconds timeLimit)
      : streams(streams), timeLimit(timeLimit) {}

  void add(const CudaStreams::Position &position,
           std::shared_ptr<const OperationName> name) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!findOldest())
      lastProgress = Clock::now();
    pending[position.stream].push_back({position, std::move(name), ++numAdded});
  }

  void clear() {
    std::lock_guard<std::mutex> lock(mutex);
    for (std::deque<Exchange> &stream : pending)
      stream.clear();
  }

  /// Forgets what is done. An exchange that has not ended although nothing else
  /// has for the time limit, the caller's own work included, is a failure.
  Status check() {
    std::lock_guard<std::mutex> lock(mutex);
    Clock::time_point now = Clock::now();
    for (std::deque<Exchange> &stream : pending)
      while (!stream.empty()) {
        bool done;
        Status status = streams.isDone(stream.front().position, done);
        if (!status.ok()) {
          status.message = stream.front().name->title + ": " + status.message;
          return status;
        }
        if (!done)
          break;
        lastProgress = now;
        stream.pop_front();
      }
    const Exchange *oldest = findOldest();
    if (!oldest)
      return {};
    if (!streams.isEntered(oldest->position))
      lastProgress = now;
    if (now - lastProgress <= timeLimit + kGrace)
      return {};
    return {ZPP_RT_TIMEOUT, oldest->name->title + ": expected an end within " +
                                std::to_string(timeLimit.count()) +
                                " usec, but got none"};
  }

private:
  struct Exchange {
    CudaStreams::Position position;
    std::shared_ptr<const OperationName> name;
    /// Of all that were added.
    int64_t number;
  };

  /// Null where nothing is under way.
  const Exchange *findOldest() const {
    const Exchange *oldest = nullptr;
    for (const std::deque<Exchange> &stream : pending)
      if (!stream.empty() &&
          (!oldest || stream.front().number < oldest->number))
        oldest = &stream.front();
    return oldest;
  }

  const CudaStreams &streams;
  const std::chrono::microseconds timeLimit;
  std::mutex mutex;
  /// Those of each stream, which end in order: only the first is looked at.
  std::array<std::deque<Exchange>, Hazards::kMaxStreams> pending;
  int64_t numAdded = 0;
  Clock::time_point lastProgress;
};

//===----------------------------------------------------------------------===//
// Rank
//===----------------------------------------------------------------------===//

class CudaRank : public RankBackend {
public:
  static Status create(World &world, const std::string &endpoint, int64_t index,
                       int64_t device, std::unique_ptr<RankBackend> &result);
  ~CudaRank() override;

  Status allocate(int64_t bytes, void *&data) override;
  void free(void *data) override;
  Status getWorkspace(int64_t bytes, void *&data) override;
  Status copy(const Operation &operation, const void *input,
              void *output) override;

  Status markStream(void *stream, std::unique_ptr<Mark> &mark) override {
    DeviceGuard guard(device);
    return streams->markStream(static_cast<cudaStream_t>(stream), mark);
  }
  Status enter(const Mark &mark) override {
    DeviceGuard guard(device);
    ZPP_RT_TRY(closeBatch());
    return streams->enter(mark);
  }
  Status markOperations(const std::vector<zpp_rt_buffer> &buffers,
                        std::unique_ptr<Mark> &mark) override {
    DeviceGuard guard(device);
    ZPP_RT_TRY(closeBatch());
    // What the caller does next with them may be a write.
    std::vector<Access> accesses;
    accesses.reserve(buffers.size());
    for (const zpp_rt_buffer &buffer : buffers)
      accesses.push_back({buffer.data, buffer.bytes, /*isWrite=*/true});
    mark = streams->markOperations(accesses);
    return {};
  }
  Status leave(void *stream, const Mark &mark) override {
    DeviceGuard guard(device);
    return streams->leave(static_cast<cudaStream_t>(stream), mark);
  }

  Status packSlices(const PackOperation &operation, const void *input,
                    void *output) override {
    return compute(operation, input, output, [&](kernels::Launches &launches) {
      return kernels::pack(input, operation.elementBytes, operation.slices,
                           output, operation.footprint.output.stride, launches);
    });
  }
  Status unpackSlices(const PackOperation &operation, const void *input,
                      void *output) override {
    return compute(operation, input, output, [&](kernels::Launches &launches) {
      return kernels::unpack(input, operation.elementBytes, operation.slices,
                             output, operation.footprint.input.stride,
                             launches);
    });
  }
  Status quantize(const QuantizeOperation &operation, const void *input,
                  void *output) override {
    kernels::Chunks chunks{output,
                           operation.slices.numChunks(),
                           operation.footprint.output.stride,
                           operation.wire.format,
                           operation.wire.block,
                           ElementType::F32};
    return compute(operation, input, output, [&](kernels::Launches &launches) {
      return kernels::quantize({input, operation.type}, operation.slices,
                               chunks, launches);
    });
  }
  Status dequantize(const QuantizeOperation &operation, const void *input,
                    void *output) override {
    kernels::ConstChunks chunks{input,
                                operation.slices.numChunks(),
                                operation.footprint.input.stride,
                                operation.wire.format,
                                operation.wire.block,
                                ElementType::F32};
    return compute(operation, input, output, [&](kernels::Launches &launches) {
      return kernels::dequantize(chunks, operation.slices,
                                 {output, operation.type}, launches);
    });
  }
  Status reduce(const ReduceOperation &operation, const void *input,
                void *output) override {
    // One chunk: the tensor as it is.
    SliceMap map;
    map.unit = map.extent = operation.elements;
    return compute(operation, input, output, [&](kernels::Launches &launches) {
      return kernels::dequantizeReduce(getSources(operation, input), map,
                                       getReduction(operation),
                                       {output, operation.type}, launches);
    });
  }
  Status reduceQuantize(const ReduceQuantizeOperation &operation,
                        const void *input, void *output) override {
    kernels::Chunks chunks{output,
                           operation.slices.numChunks(),
                           operation.footprint.output.stride,
                           operation.to.format,
                           operation.to.block,
                           ElementType::F32};
    return compute(operation, input, output, [&](kernels::Launches &launches) {
      return kernels::dequantizeReduceQuantize(
          getSources(operation.reduce, input), operation.slices,
          getReduction(operation.reduce), chunks, launches);
    });
  }

  Status allToAll(const ExchangeOperation &operation, const void *input,
                  void *output) override;
  Status allGatherChunks(const ExchangeOperation &operation, const void *input,
                         void *output) override;
  Status plainReduceScatter(const PlainOperation &operation, const void *input,
                            void *output) override;
  Status plainAllGather(const PlainOperation &operation, const void *input,
                        void *output) override;

  Status synchronize() override;
  Status getFailure() override;
  void fail(const Status &cause) override;

private:
  explicit CudaRank(World &world) : world(world) {}
  Status start(int64_t index, int64_t wanted);

  static kernels::ConstChunks getSources(const ReduceOperation &operation,
                                         const void *input) {
    return {input,
            operation.sources,
            operation.footprint.input.stride,
            operation.wire.format,
            operation.wire.block,
            operation.sourceType};
  }
  static kernels::Reduction getReduction(const ReduceOperation &operation) {
    return {operation.isMean ? static_cast<float>(operation.sources) : 1.0f,
            operation.type};
  }

  /// What an operation reads and writes, until the next call.
  Accesses getAccesses(const Operation &operation, const void *input,
                       void *output) {
    accessList.clear();
    addAccesses(operation.footprint.input, input, false);
    addAccesses(operation.footprint.output, output, true);
    return accessList;
  }
  /// What lies between a few pieces is left out: tensors that travel together
  /// lie between each other's, and are independent.
  void addAccesses(const Pieces &pieces, const void *data, bool isWrite) {
    if (pieces.count > kMaxPieces || pieces.stride == pieces.bytes) {
      accessList.push_back({data, pieces.span(), isWrite});
      return;
    }
    for (int64_t i = 0; i < pieces.count; ++i)
      accessList.push_back(
          {bytesAt(data, i * pieces.stride), pieces.bytes, isWrite});
  }

  /// Queues a kernel that `launch` adds to launches; with the one before, where
  /// that is of the same kind and independent: tensors that travel together are
  /// quantized together.
  template <typename Launch>
  Status compute(const Operation &operation, const void *input, void *output,
                 const Launch &launch) {
    DeviceGuard guard(device);
    ZPP_RT_TRY(addToBatch(operation, getAccesses(operation, input, output)));
    return getStatus(launch(batch.launches), "launch of a kernel");
  }
  /// Opens a batch, or makes room in it.
  Status addToBatch(const Operation &operation, Accesses accesses);
  /// Launches what waits.
  Status closeBatch();
  /// Queues a copy that is no kernel of a batch.
  template <typename Launch>
  Status copyOnStream(const CudaStreams::Slice &slice, Accesses accesses,
                      const Launch &launch) {
    ZPP_RT_TRY(closeBatch());
    Hazards::Conflicts conflicts = streams->find(accesses);
    return streams->run(getKernelStream(conflicts), slice, accesses, conflicts,
                        launch);
  }

  /// Queues functions of NCCL as one operation of the tier's stream.
  Status communicate(const ExchangeOperation &operation,
                     const Footprint &footprint, size_t stream,
                     Accesses accesses,
                     const std::function<ncclResult_t(cudaStream_t)> &calls);
  /// Queues a collective of NCCL on the elements of the group.
  using LibraryCall =
      std::function<ncclResult_t(size_t count, ncclDataType_t type,
                                 ncclComm_t handle, cudaStream_t stream)>;
  Status communicateAsLibrary(const PlainOperation &operation,
                              const void *input, void *output,
                              const LibraryCall &call);
  /// All members of the group learn that this one takes part, in what needs
  /// connections for sends or not.
  Status meet(const ExchangeOperation &operation, bool forSends,
              Communicator &group);
  /// Whether `axes` are whole axes in the order of the mesh.
  bool areTiers(const std::vector<AxisRef> &axes) const;
  /// Tiers with streams of their own; faster ones share the last one's.
  size_t numTiers() const {
    return std::min(world.mesh.getAxes().size(), kMaxTiers);
  }
  /// The stream for exchanges of the slowest of the axes.
  size_t getStream(const std::vector<AxisRef> &axes) const;
  /// The stream for a kernel, by the slowest tier that its data come from: that
  /// of kernels after this tier, or that of the tier itself right behind the
  /// exchange, where the tier is so fast that going to another stream takes
  /// longer than the next exchange may wait. Of streams in the order of
  /// creation: kernels after each tier, other kernels, each tier.
  size_t getKernelStream(const Hazards::Conflicts &conflicts) const;
  static constexpr size_t kMaxTiers = (Hazards::kMaxStreams - 1) / 2;
  /// Members pass chunks on tier by tier, the slowest first. `tiers` are whole
  /// axes in the order of the mesh.
  Status gatherByTiers(const ExchangeOperation &operation,
                       const std::vector<const Communicator *> &tiers,
                       const void *input, void *output);
  void watch();
  void stop(const Status &cause);

  /// Kernels that are one operation of a stream and are not launched yet.
  static constexpr int64_t kMaxBatched = 64;
  struct Batch {
    kernels::Launches launches;
    int64_t count = 0;
    size_t stream = 0;
    /// Of the first.
    std::shared_ptr<const OperationName> name;
    /// Of all.
    Footprint footprint;
  };

  World &world;
  int device = 0;
  Batch batch;
  const NcclLibrary *nccl = nullptr;
  std::unique_ptr<CudaStreams> streams;
  std::unique_ptr<Watch> exchanges;
  std::unique_ptr<ControlClient> control;
  std::unique_ptr<NcclCommunicators> communicators;
  /// Of getAccesses().
  std::vector<Access> accessList;
  /// Of tiers with streams of their own: whether their groups are each on one
  /// host.
  std::vector<bool> isFast;
  std::map<void *, int64_t> allocations;
  void *workspace = nullptr;
  int64_t workspaceBytes = 0;

  std::mutex mutex;
  std::condition_variable changed;
  Status failure;
  /// Whether it is one, for who does not have the lock.
  std::atomic<bool> hasFailed{false};
  bool isEnding = false;
  std::thread watcher;
};

} // namespace

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

/// Of all ranks: what they must agree on.
static std::string getGreeting(const Mesh &mesh) {
  std::string text = "libzpp_rt 1 cuda mesh";
  for (size_t i = 0; i < mesh.getAxes().size(); ++i)
    text += " " + mesh.getAxes()[i].name + ":" +
            std::to_string(mesh.getAxes()[i].size);
  return text;
}

Status CudaRank::create(World &world, const std::string &endpoint,
                        int64_t index, int64_t device,
                        std::unique_ptr<RankBackend> &result) {
  std::unique_ptr<CudaRank> self(new CudaRank(world));
  // The others first: they learn of all that goes wrong from here on.
  ControlClient::Options options;
  options.endpoint = endpoint;
  options.rank = index;
  options.numRanks = world.mesh.numDevices();
  options.greeting = getGreeting(world.mesh);
  options.timeLimit = world.timeLimit;
  options.onFailure = [rank = self.get()](const Failure &failure) {
    rank->stop(failure.getStatus());
  };
  ZPP_RT_TRY(ControlClient::connect(std::move(options), self->control));
  Status status = self->start(index, device);
  if (!status.ok()) {
    self->control->fail(status.message);
    return status;
  }
  result = std::move(self);
  return {};
}

Status CudaRank::start(int64_t index, int64_t wanted) {
  int count = 0;
  ZPP_RT_CUDA(cudaGetDeviceCount, &count);
  if (count == 0)
    return {ZPP_RT_SYSTEM_ERROR, expected("a GPU", "none")};
  if (wanted < -1 || wanted >= count)
    return invalid(
        expected("a device in [-1, " + std::to_string(count) + ")", wanted));
  device = static_cast<int>(wanted < 0 ? index % count : wanted);
  // It stays: a thread that went back to the device of a new thread, 0, would
  // make a context there.
  ZPP_RT_CUDA(cudaSetDevice, device);
  ZPP_RT_TRY(loadNccl("", nccl));
  ZPP_RT_TRY(getStatus(kernels::load(), "loading the kernels"));

  std::vector<std::string> names;
  const std::vector<MeshAxis> &axes = world.mesh.getAxes();
  for (size_t tier = 0; tier < numTiers(); ++tier)
    names.push_back("kernels after " + axes[tier].name);
  names.push_back("kernels");
  for (size_t tier = 0; tier < numTiers(); ++tier)
    names.push_back(axes[tier].name);
  ZPP_RT_TRY(
      CudaStreams::create(index, std::move(names), world.trace.get(), streams));
  exchanges = std::make_unique<Watch>(*streams, world.timeLimit);
  Status status = NcclCommunicators::create(*nccl, world.mesh, index, *control,
                                            world.timeLimit, communicators);
  // NCCL may be told to allow this; unless it is, it fails and says less.
  if (status.code == ZPP_RT_SYSTEM_ERROR && world.rendezvous.empty() &&
      world.mesh.numDevices() > count)
    status.message +=
        "; " + expected("a GPU for each of " +
                            std::to_string(world.mesh.numDevices()) + " ranks",
                        count);
  ZPP_RT_TRY(status);
  for (size_t tier = 0; tier < numTiers(); ++tier) {
    Communicator *group;
    ZPP_RT_TRY(communicators->find({world.mesh.getAxis(tier)}, group));
    isFast.push_back(group->isLocal);
  }
  watcher = std::thread([this] { watch(); });
  return {};
}

CudaRank::~CudaRank() {
  DeviceGuard guard(device);
  // What is queued ends, or fails, before its memory goes.
  if (watcher.joinable()) {
    Status status = synchronize();
    if (status.ok())
      control->leave();
    else
      fail(status);
    {
      std::lock_guard<std::mutex> lock(mutex);
      isEnding = true;
    }
    changed.notify_all();
    watcher.join();
  }
  communicators.reset();
  // The server may be in this process, and wait for us.
  control.reset();
  for (const auto &[data, bytes] : allocations)
    cudaFree(data);
  cudaGetLastError();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Status CudaRank::allocate(int64_t bytes, void *&data) {
  DeviceGuard guard(device);
  // Something to point to.
  cudaError_t error =
      cudaMalloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (error != cudaSuccess) {
    data = nullptr;
    Status status = getStatus(error, "cudaMalloc");
    status.message = "expected " + std::to_string(bytes) + " bytes, but got " +
                     status.message;
    return status;
  }
  allocations.emplace(data, bytes);
  return {};
}

void CudaRank::free(void *data) {
  DeviceGuard guard(device);
  if (Status status = closeBatch(); !status.ok())
    fail(status);
  // Waits for the device, thus for the operations.
  if (allocations.erase(data) > 0 && cudaFree(data) != cudaSuccess)
    cudaGetLastError();
}

Status CudaRank::getWorkspace(int64_t bytes, void *&data) {
  if (bytes > workspaceBytes) {
    if (workspace)
      free(workspace);
    workspace = nullptr;
    workspaceBytes = 0;
    ZPP_RT_TRY(allocate(bytes, workspace));
    workspaceBytes = bytes;
  }
  data = workspace;
  return {};
}

static bool isAligned(const void *data, int64_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

/// Whether copyByKernel() can copy it.
static bool fitsKernel(const void *input, const void *output, int64_t bytes) {
  return isAligned(input, 16) && isAligned(output, 16) && bytes % 16 == 0;
}
/// Within the device our kernel is faster than the copy engine.
static cudaError_t copyByKernel(const void *input, void *output, int64_t bytes,
                                const kernels::LaunchTarget &target) {
  SliceMap map;
  map.unit = map.extent = bytes;
  return kernels::pack(input, 1, map, output, bytes, target);
}

/// Memory that is the device's in any case.
static cudaError_t copyOnDevice(const void *input, void *output, int64_t bytes,
                                cudaStream_t stream) {
  if (fitsKernel(input, output, bytes))
    return copyByKernel(input, output, bytes, stream);
  return cudaMemcpyAsync(output, input, bytes, cudaMemcpyDeviceToDevice,
                         stream);
}

Status CudaRank::addToBatch(const Operation &operation, Accesses accesses) {
  Hazards::Conflicts conflicts = streams->find(accesses);
  size_t stream = getKernelStream(conflicts);
  if (batch.count > 0 &&
      (std::strcmp(batch.name->kind, operation.name->kind) != 0 ||
       stream != batch.stream || streams->includeLast(conflicts, stream) ||
       batch.count == kMaxBatched))
    ZPP_RT_TRY(closeBatch());
  if (batch.count > 0) {
    ZPP_RT_TRY(streams->extend(stream, accesses, conflicts));
    batch.footprint = {
        batch.footprint.input.span() + operation.footprint.input.span(),
        batch.footprint.output.span() + operation.footprint.output.span()};
  } else {
    ZPP_RT_TRY(streams->begin(stream, accesses, conflicts));
    batch.launches.setStream(streams->getHandle(stream));
    batch.stream = stream;
    batch.name = operation.name;
    batch.footprint = operation.footprint;
  }
  ++batch.count;
  return {};
}

Status CudaRank::closeBatch() {
  if (batch.count == 0)
    return {};
  int64_t others = std::exchange(batch.count, 0) - 1;
  Status status = getStatus(batch.launches.flush(), "launch of a kernel");
  if (status.ok())
    status =
        streams->end(batch.stream, {*batch.name, batch.footprint, "", others});
  if (!status.ok())
    status.message = batch.name->title + ": " + status.message;
  return status;
}

Status CudaRank::copy(const Operation &operation, const void *input,
                      void *output) {
  DeviceGuard guard(device);
  const auto &[from, to] = operation.footprint;
  int64_t rows = from.count, rowBytes = from.bytes, bytes = rows * rowBytes;
  if (bytes == 0)
    return {};
  bool isSourceDense = rows == 1 || from.stride == rowBytes;
  bool isDestDense = rows == 1 || to.stride == rowBytes;
  bool isDense = isSourceDense && isDestDense;
  bool fits = isDense ? fitsKernel(input, output, bytes)
                      : (isSourceDense || isDestDense) &&
                            rowBytes >= kMinRowBytes &&
                            fitsKernel(input, output, rowBytes) &&
                            from.stride % 16 == 0 && to.stride % 16 == 0;
  if (fits) {
    cudaPointerAttributes source{}, dest{};
    ZPP_RT_CUDA(cudaPointerGetAttributes, &source, input);
    ZPP_RT_CUDA(cudaPointerGetAttributes, &dest, output);
    if (source.type == cudaMemoryTypeDevice &&
        dest.type == cudaMemoryTypeDevice && source.device == dest.device)
      return compute(operation, input, output,
                     [&, to = to, from = from](kernels::Launches &launches) {
                       if (isDense)
                         return copyByKernel(input, output, bytes, launches);
                       // Rows are the chunks of the tensor on the dense side.
                       SliceMap map;
                       map.factors = {rows};
                       map.chunkFactors = {0};
                       map.unit = rowBytes;
                       map.extent = bytes;
                       return isSourceDense
                                  ? kernels::pack(input, 1, map, output,
                                                  to.stride, launches)
                                  : kernels::unpack(input, 1, map, output,
                                                    from.stride, launches);
                     });
  }
  return copyOnStream(
      {*operation.name, operation.footprint},
      getAccesses(operation, input, output),
      [&, to = to, from = from](cudaStream_t stream) {
        if (!isDense)
          return getStatus(cudaMemcpy2DAsync(output, to.stride, input,
                                             from.stride, rowBytes, rows,
                                             cudaMemcpyDefault, stream),
                           "cudaMemcpy2DAsync");
        return getStatus(
            cudaMemcpyAsync(output, input, bytes, cudaMemcpyDefault, stream),
            "cudaMemcpyAsync");
      });
}

//===----------------------------------------------------------------------===//
// Exchanges
//===----------------------------------------------------------------------===//

size_t CudaRank::getStream(const std::vector<AxisRef> &axes) const {
  return numTiers() + 1 +
         std::min<size_t>(world.mesh.findSlowest(axes), numTiers() - 1);
}

size_t CudaRank::getKernelStream(const Hazards::Conflicts &conflicts) const {
  auto comeFrom = [&](const Hazards::Numbers &numbers, size_t stream) {
    return streams->isSinceEntry(stream, numbers[stream]);
  };
  // On a stream of exchanges it would hold up the next one, if it came after
  // more than the last.
  bool isFree = true;
  for (size_t tier = 0; tier < numTiers(); ++tier) {
    size_t exchanges = numTiers() + 1 + tier;
    bool isBehind = comeFrom(conflicts.producers, exchanges);
    if (isBehind || comeFrom(conflicts.producers, tier)) {
      // A batch that waits there is no reason not to join it.
      int64_t last = streams->getLast(exchanges);
      if (batch.count > 0 && batch.stream == exchanges)
        --last;
      isFree &= isFast[tier] && conflicts.producers[exchanges] >= last;
      return isBehind && isFree ? exchanges : tier;
    }
    isFree &= !comeFrom(conflicts.operations, exchanges) &&
              !comeFrom(conflicts.operations, tier);
  }
  return numTiers();
}

Status CudaRank::meet(const ExchangeOperation &operation, bool forSends,
                      Communicator &group) {
  const char *kind = operation.name->kind;
  control->announce(group.controlGroup, kind, operation.chunkBytes,
                    operation.name->title);
  // What is new is made when all members are known to mean the same: NCCL would
  // mix up what they send each other. What is not is checked meanwhile.
  bool isReady = group.isReady(forSends);
  if (isReady && group.known.count({kind, operation.chunkBytes}))
    return {};
  if (!isReady && streams->isCapturing())
    return {ZPP_RT_UNSUPPORTED,
            "expected a first use of this group of ranks outside of a graph, "
            "but got it in one"};
  ZPP_RT_TRY(control->confirm());
  ZPP_RT_TRY(communicators->prepare(group, forSends));
  group.known.emplace(kind, operation.chunkBytes);
  return {};
}

Status
CudaRank::communicate(const ExchangeOperation &operation,
                      const Footprint &footprint, size_t stream,
                      Accesses accesses,
                      const std::function<ncclResult_t(cudaStream_t)> &calls) {
  ZPP_RT_TRY(closeBatch());
  ZPP_RT_TRY(streams->run(stream, {*operation.name, footprint}, accesses,
                          streams->find(accesses), [&](cudaStream_t handle) {
                            return communicators->queue(
                                [&] { return calls(handle); });
                          }));
  // A captured exchange waits for nobody yet.
  if (!streams->isCapturing())
    exchanges->add(streams->getPosition(stream), operation.name);
  return {};
}

Status CudaRank::allToAll(const ExchangeOperation &operation, const void *input,
                          void *output) {
  DeviceGuard guard(device);
  Communicator *group;
  ZPP_RT_TRY(communicators->find(operation.axes, group));
  ZPP_RT_TRY(meet(operation, /*forSends=*/true, *group));
  int64_t bytes = operation.chunkBytes;
  int64_t self = group->self, size = group->size();
  if (bytes == 0)
    return {};

  auto exchange = [&](Accesses accesses, bool isOwnSent) {
    return communicate(
        operation, operation.footprint, getStream(operation.axes), accesses,
        [&](cudaStream_t stream) -> ncclResult_t {
          ncclResult_t result = ncclSuccess;
          for (int64_t i = 0; i < size && result == ncclSuccess; ++i) {
            if (i == self && !isOwnSent)
              continue;
            result = nccl->ncclSend(bytesAt(input, i * bytes), bytes, ncclUint8,
                                    group->peers[i], group->sends, stream);
            if (result == ncclSuccess)
              result =
                  nccl->ncclRecv(bytesAt(output, i * bytes), bytes, ncclUint8,
                                 group->peers[i], group->sends, stream);
          }
          return result;
        });
  };
  if (group->sendsOwn())
    return exchange(getAccesses(operation, input, output), true);

  // The own chunk is copied while others travel.
  const void *ownInput = bytesAt(input, self * bytes);
  void *ownOutput = bytesAt(output, self * bytes);
  ZPP_RT_TRY(copyOnStream({*operation.name, {bytes, bytes}, " (own chunk)"},
                          {{ownInput, bytes, false}, {ownOutput, bytes, true}},
                          [&](cudaStream_t stream) {
                            return getStatus(copyOnDevice(ownInput, ownOutput,
                                                          bytes, stream),
                                             "copy of the own chunk");
                          }));
  if (size == 1)
    return {};
  int64_t before = self * bytes, after = (size - self - 1) * bytes;
  return exchange({{input, before, false},
                   {output, before, true},
                   {bytesAt(ownInput, bytes), after, false},
                   {bytesAt(ownOutput, bytes), after, true}},
                  false);
}

bool CudaRank::areTiers(const std::vector<AxisRef> &axes) const {
  int64_t last = -1;
  for (const AxisRef &axis : axes) {
    int64_t tier = world.mesh.findAxis(axis.name);
    if (tier <= last || axis.size != world.mesh.getAxes()[tier].size)
      return false;
    last = tier;
  }
  return true;
}

Status CudaRank::allGatherChunks(const ExchangeOperation &operation,
                                 const void *input, void *output) {
  DeviceGuard guard(device);
  Communicator *group;
  ZPP_RT_TRY(communicators->find(operation.axes, group));
  // On one host NCCL knows best. Else chunks cross the slow links once, and
  // spread on the fast ones.
  bool isPlain =
      group->isMade && group->isLocal && group->isOrdered && group->size() > 1;
  bool isByTiers = !isPlain && areTiers(operation.axes);
  ZPP_RT_TRY(meet(operation, /*forSends=*/!isPlain && !isByTiers, *group));
  if (operation.chunkBytes == 0)
    return {};
  if (isPlain)
    return communicate(
        operation, operation.footprint, getStream(operation.axes),
        getAccesses(operation, input, output), [&](cudaStream_t stream) {
          return nccl->ncclAllGather(input, output, operation.chunkBytes,
                                     ncclUint8, group->handle, stream);
        });
  std::vector<const Communicator *> tiers = {group};
  if (isByTiers) {
    tiers.clear();
    for (const AxisRef &axis : operation.axes) {
      Communicator *tier;
      ZPP_RT_TRY(communicators->find({axis}, tier));
      tiers.push_back(tier);
    }
  }
  return gatherByTiers(operation, tiers, input, output);
}

Status CudaRank::gatherByTiers(const ExchangeOperation &operation,
                               const std::vector<const Communicator *> &tiers,
                               const void *input, void *output) {
  int64_t bytes = operation.chunkBytes;
  int64_t numChunks = 1;
  for (const Communicator *tier : tiers)
    numChunks *= tier->size();
  int64_t own = 0;
  for (const Communicator *tier : tiers)
    own = own * tier->size() + tier->self;
  int64_t parts = 1;
  if (tiers.size() > 1 && numChunks <= kMaxGatherChunks)
    parts = std::clamp<int64_t>(bytes / kGatherPartBytes, 1, kMaxGatherParts);
  // Chunks are aligned to what NCCL likes.
  int64_t partBytes = (bytes / parts + 511) / 512 * 512;

  struct Transfer {
    int peer;
    int64_t offset;
    bool isSend;
  };
  for (int64_t begin = 0; begin < bytes; begin += partBytes) {
    int64_t size = std::min(partBytes, bytes - begin);
    if (bytes - begin - size < 512)
      size = bytes - begin;
    // What has arrived: the chunks of the ranks that differ in the tiers so
    // far. `stride` is how far neighbours of a tier are apart.
    std::vector<int64_t> held = {own};
    int64_t stride = numChunks;
    for (size_t t = 0; t < tiers.size(); ++t) {
      const Communicator &tier = *tiers[t];
      stride /= tier.size();
      std::vector<Transfer> transfers;
      std::vector<Access> accesses;
      std::vector<int64_t> next;
      bool isFirst = t == 0;
      if (isFirst) {
        accesses.push_back({bytesAt(input, begin), size, false});
        accesses.push_back({bytesAt(output, own * bytes + begin), size, true});
      }
      for (int64_t chunk : held) {
        if (!isFirst && tier.size() > 1)
          accesses.push_back(
              {bytesAt(output, chunk * bytes + begin), size, false});
        for (int64_t i = 0; i < tier.size(); ++i) {
          int64_t theirs = chunk + (i - tier.self) * stride;
          next.push_back(theirs);
          if (i == tier.self)
            continue;
          transfers.push_back(
              {tier.peers[i], chunk * bytes + begin, /*isSend=*/true});
          transfers.push_back(
              {tier.peers[i], theirs * bytes + begin, /*isSend=*/false});
          accesses.push_back(
              {bytesAt(output, theirs * bytes + begin), size, true});
        }
      }
      held = std::move(next);
      if (!isFirst && transfers.empty())
        continue;
      Footprint footprint = {isFirst ? size : 0,
                             static_cast<int64_t>(transfers.size() / 2) * size};
      size_t stream = tiers.size() == 1 ? getStream(operation.axes)
                                        : getStream({operation.axes[t]});
      ZPP_RT_TRY(communicate(
          operation, footprint, stream, accesses,
          [&](cudaStream_t handle) -> ncclResult_t {
            if (isFirst && copyOnDevice(bytesAt(input, begin),
                                        bytesAt(output, own * bytes + begin),
                                        size, handle) != cudaSuccess)
              return ncclUnhandledCudaError;
            ncclResult_t result = ncclSuccess;
            for (const Transfer &transfer : transfers) {
              if (result != ncclSuccess)
                break;
              // The own chunk comes from the input: its copy may be under way.
              const void *source =
                  isFirst ? bytesAt(input, begin)
                          : bytesAt(static_cast<const void *>(output),
                                    transfer.offset);
              result = transfer.isSend
                           ? nccl->ncclSend(source, size, ncclUint8,
                                            transfer.peer, tier.sends, handle)
                           : nccl->ncclRecv(bytesAt(output, transfer.offset),
                                            size, ncclUint8, transfer.peer,
                                            tier.sends, handle);
            }
            return result;
          }));
    }
    if (size != partBytes)
      break;
  }
  return {};
}

/// The type of NCCL.
static ncclDataType_t getType(ElementType type) {
  switch (type) {
  case ElementType::F32:
    return ncclFloat32;
  case ElementType::BF16:
    return ncclBfloat16;
  case ElementType::F16:
    return ncclFloat16;
  }
  return ncclFloat32;
}

Status CudaRank::communicateAsLibrary(const PlainOperation &operation,
                                      const void *input, void *output,
                                      const LibraryCall &call) {
  DeviceGuard guard(device);
  Communicator *group;
  ZPP_RT_TRY(communicators->find(operation.axes, group));
  ZPP_RT_TRY(meet(operation, /*forSends=*/false, *group));
  if (!group->isOrdered)
    return {ZPP_RT_UNSUPPORTED,
            "expected axes in the order of the mesh, but got another one"};
  if (operation.chunkBytes == 0)
    return {};
  return communicate(
      operation, operation.footprint, getStream(operation.axes),
      getAccesses(operation, input, output),
      [&](cudaStream_t stream) -> ncclResult_t {
        if (group->size() == 1)
          return cudaMemcpyAsync(output, input, operation.chunkBytes,
                                 cudaMemcpyDefault, stream) == cudaSuccess
                     ? ncclSuccess
                     : ncclUnhandledCudaError;
        return call(operation.chunkBytes / elementBytes(operation.type),
                    getType(operation.type), group->handle, stream);
      });
}

Status CudaRank::plainReduceScatter(const PlainOperation &operation,
                                    const void *input, void *output) {
  return communicateAsLibrary(operation, input, output,
                              [&](size_t count, ncclDataType_t type,
                                  ncclComm_t handle, cudaStream_t stream) {
                                return nccl->ncclReduceScatter(
                                    input, output, count, type, ncclSum, handle,
                                    stream);
                              });
}

Status CudaRank::plainAllGather(const PlainOperation &operation,
                                const void *input, void *output) {
  return communicateAsLibrary(operation, input, output,
                              [&](size_t count, ncclDataType_t type,
                                  ncclComm_t handle, cudaStream_t stream) {
                                return nccl->ncclAllGather(
                                    input, output, count, type, handle, stream);
                              });
}

//===----------------------------------------------------------------------===//
// Completion and failure
//===----------------------------------------------------------------------===//

Status CudaRank::synchronize() {
  DeviceGuard guard(device);
  ZPP_RT_TRY(closeBatch());
  if (streams->isCapturing())
    return {ZPP_RT_UNSUPPORTED,
            "expected no graph that is being captured, but got one"};
  // Short waits without sleep: a sleep takes 50 usec or more.
  Clock::time_point patience = Clock::now() + kSpinTime;
  while (true) {
    ZPP_RT_TRY(getFailure());
    bool idle;
    ZPP_RT_TRY(streams->isIdle(idle));
    if (idle)
      break;
    if (Clock::now() < patience)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kPollPeriod);
  }
  ZPP_RT_TRY(control->confirm());
  // An abort also ends what is under way.
  ZPP_RT_TRY(getFailure());
  exchanges->clear();
  return streams->settle();
}

Status CudaRank::getFailure() {
  if (!hasFailed)
    return {};
  std::lock_guard<std::mutex> lock(mutex);
  return failure;
}

void CudaRank::stop(const Status &cause) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (failure.ok())
      failure = cause;
    hasFailed = true;
  }
  changed.notify_all();
  world.announceFailure(cause.message);
}

void CudaRank::fail(const Status &cause) {
  control->fail(cause.message);
  stop(cause);
}

void CudaRank::watch() {
  cudaSetDevice(device);
  // Looks at events while other threads may capture graphs.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  std::unique_lock<std::mutex> lock(mutex);
  while (failure.ok() && !isEnding) {
    changed.wait_for(lock, kWatchPeriod);
    if (!failure.ok() || isEnding)
      break;
    lock.unlock();
    Status status = communicators->getAsyncError();
    if (status.ok())
      status = exchanges->check();
    else if (std::string place = control->getPlace(); !place.empty())
      status.message = place + ": " + status.message;
    if (!status.ok()) {
      control->fail(status.message);
      stop(status);
    }
    lock.lock();
  }
  lock.unlock();
  if (hasFailed)
    communicators->abort();
}

//===----------------------------------------------------------------------===//
// World
//===----------------------------------------------------------------------===//

namespace {
class CudaWorld : public WorldBackend {
public:
  explicit CudaWorld(World &world) : world(world) {}

  /// All ranks of a world of one process meet at a port of this host.
  Status createServer(const std::string &endpoint) {
    return ControlServer::create(endpoint, world.mesh.numDevices(),
                                 world.timeLimit, getGreeting(world.mesh),
                                 server);
  }

  Status createRank(int64_t rank, int64_t device,
                    std::unique_ptr<RankBackend> &backend) override {
    if (!world.rendezvous.empty() && rank == 0)
      ZPP_RT_TRY(createServer(world.rendezvous));
    return CudaRank::create(world,
                            world.rendezvous.empty() ? server->getEndpoint()
                                                     : world.rendezvous,
                            rank, device, backend);
  }

private:
  World &world;
  std::unique_ptr<ControlServer> server;
};
} // namespace

Status rt::createCudaBackend(World &world,
                             std::unique_ptr<WorldBackend> &backend) {
  auto self = std::make_unique<CudaWorld>(world);
  if (world.rendezvous.empty())
    ZPP_RT_TRY(self->createServer("127.0.0.1:0"));
  backend = std::move(self);
  return {};
}
