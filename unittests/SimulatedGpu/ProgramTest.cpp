//===- ProgramTest.cpp - Order of operations on a simulated GPU -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Random programs of many operations on few buffers, without waits on the host.
// Back end cuda must produce the same bytes as back end cpu and order what
// conflicts, also with work of the caller in between, and in graphs.
//
//===----------------------------------------------------------------------===//

#include "../Support/Random.h"
#include "Harness.h"
#include "Simulator.h"
#include "zpp/Support/BlockQuant.h"

using namespace zpp;

namespace {

constexpr const char *kMesh = "node:2,gpu:2";
constexpr int64_t kBuffers = 4;
constexpr int64_t kBufferBytes = 12 << 10;

/// The context in which a step runs.
struct Context {
  zpp_rt_rank *rank;
  std::vector<uint8_t *> buffers;
  /// The caller's; null on the CPU.
  cudaStream_t stream = nullptr;
};

using Step = std::function<void(const Context &)>;

/// Generates programs, the same on all ranks.
class Generator {
public:
  explicit Generator(uint64_t seed) : random(seed) {}

  std::vector<Step> makeProgram(int64_t steps, bool hasCaller) {
    std::vector<Step> program;
    while (static_cast<int64_t>(program.size()) < steps) {
      switch (pick(hasCaller ? 10 : 9)) {
      case 0:
        program.push_back(makeCopy());
        break;
      case 1:
        program.push_back(makeCopyRows());
        break;
      case 2:
        program.push_back(makePack());
        break;
      case 3:
        program.push_back(makeQuantize());
        break;
      case 4:
        program.push_back(makeReduce());
        break;
      case 5:
        program.push_back(makeReduceQuantize());
        break;
      case 9:
        program.push_back(makeCaller());
        break;
      default:
        program.push_back(makeExchange());
      }
    }
    return program;
  }

private:
  int64_t pick(int64_t count) { return random.bits() % count; }

  /// Bytes of a buffer.
  struct Place {
    int64_t buffer, offset;
    uint8_t *at(const Context &context) const {
      return context.buffers[buffer] + offset;
    }
  };
  Place pickPlace(int64_t bytes, int64_t alignment) {
    EXPECT_LE(bytes, kBufferBytes);
    int64_t offset = pick((kBufferBytes - bytes) / alignment + 1) * alignment;
    return {pick(kBuffers), offset};
  }
  /// Two that do not overlap.
  std::pair<Place, Place> pickPlaces(int64_t inputBytes, int64_t outputBytes,
                                     int64_t alignment) {
    while (true) {
      Place input = pickPlace(inputBytes, alignment);
      Place output = pickPlace(outputBytes, alignment);
      if (input.buffer != output.buffer ||
          input.offset + inputBytes <= output.offset ||
          output.offset + outputBytes <= input.offset)
        return {input, output};
    }
  }

  ElementType pickType() { return static_cast<ElementType>(pick(3)); }
  WireFormat pickFormat() { return pick(2) ? WireFormat::I8 : WireFormat::I4; }
  int64_t pickBlock() { return kMinBlock << pick(3); }
  /// 0, or more than dense.
  int64_t pickStride(int64_t bytes, int64_t alignment) {
    return pick(2) ? 0 : bytes + pick(4) * alignment;
  }
  static int64_t spanOf(int64_t count, int64_t stride, int64_t bytes) {
    return (count - 1) * (stride ? stride : bytes) + bytes;
  }

  SliceMap pickMap(bool mayHaveStages) {
    SliceMap map;
    map.outer = 1 + pick(3);
    map.factors = {2, 1 + pick(3)};
    map.chunkFactors = {pick(2)};
    map.unit = 1 + pick(9);
    map.extent = map.numSlices() * map.unit - pick(map.unit);
    map.inner = 1 + pick(9);
    if (mayHaveStages && pick(3) == 0) {
      map.stages = 2;
      map.stage = pick(2);
    }
    EXPECT_EQ(map.verify(), "");
    return map;
  }
  static int64_t numElements(const SliceMap &map) {
    return map.outer * map.extent * map.inner;
  }

  static void expectOk(const Context &context, zpp_rt_status status) {
    EXPECT_EQ(status, ZPP_RT_OK) << zpp_rt_rank_message(context.rank);
  }

  Step makeCopy() {
    int64_t bytes = 1 + pick(2000);
    auto [input, output] = pickPlaces(bytes, bytes, pick(2) ? 1 : 16);
    return [=, input = input, output = output](const Context &context) {
      expectOk(context, zpp_rt_copy(context.rank, output.at(context),
                                    input.at(context), bytes));
    };
  }

  Step makeCopyRows() {
    // Kernels copy rows of whole words into and out of dense ones.
    int64_t unit = pick(2) ? 16 : 1;
    int64_t bytes = unit == 1 ? 1 + pick(200) : 256 + 16 * pick(10);
    int64_t rows = 1 + pick(8);
    int64_t from = bytes + unit * pick(64 / unit);
    int64_t to = bytes + unit * pick(64 / unit);
    if (pick(2))
      (pick(2) ? from : to) = bytes;
    auto [input, output] =
        pickPlaces(spanOf(rows, from, bytes), spanOf(rows, to, bytes), unit);
    return [=, input = input, output = output](const Context &context) {
      auto desc = makeDesc<zpp_rt_copy_desc>();
      desc.rows = rows;
      desc.row_bytes = bytes;
      desc.source_stride = from;
      desc.dest_stride = to;
      expectOk(context, zpp_rt_copy_rows(context.rank, &desc, input.at(context),
                                         output.at(context)));
    };
  }

  Step makePack() {
    bool isPack = pick(2);
    SliceMap map = pickMap(isPack);
    int64_t elementBytes = 1 + pick(4);
    int64_t chunkBytes = map.elementsPerChunk() * elementBytes;
    int64_t stride = pickStride(chunkBytes, elementBytes);
    int64_t tensor = numElements(map) * elementBytes;
    int64_t chunks = spanOf(map.numChunks(), stride, chunkBytes);
    auto [input, output] =
        pickPlaces(isPack ? tensor : chunks, isPack ? chunks : tensor, 4);
    return [=, input = input, output = output](const Context &context) {
      auto desc = makeDesc<zpp_rt_pack_desc>();
      desc.element_bytes = elementBytes;
      desc.slices = getSlices(map);
      desc.chunk_stride = stride;
      auto *entrypoint = isPack ? zpp_rt_pack_slices : zpp_rt_unpack_slices;
      expectOk(context, entrypoint(context.rank, &desc, input.at(context),
                                   output.at(context)));
    };
  }

  Step makeQuantize() {
    bool isQuantize = pick(2);
    SliceMap map = pickMap(isQuantize);
    ElementType type = pickType();
    WireFormat format = pickFormat();
    int64_t block = pickBlock();
    int64_t chunkBytes =
        getChunkLayout(map.elementsPerChunk(), format, block).chunkBytes;
    int64_t stride = pickStride(chunkBytes, kChunkAlignment);
    int64_t tensor = numElements(map) * elementBytes(type);
    int64_t chunks = spanOf(map.numChunks(), stride, chunkBytes);
    auto [input, output] = pickPlaces(isQuantize ? tensor : chunks,
                                      isQuantize ? chunks : tensor, 16);
    return [=, input = input, output = output](const Context &context) {
      auto desc = makeDesc<zpp_rt_quantize_desc>();
      desc.element_type = static_cast<int64_t>(type);
      desc.format = static_cast<int64_t>(format);
      desc.block = block;
      desc.slices = getSlices(map);
      desc.chunk_stride = stride;
      auto *entrypoint = isQuantize ? zpp_rt_quantize : zpp_rt_dequantize;
      expectOk(context, entrypoint(context.rank, &desc, input.at(context),
                                   output.at(context)));
    };
  }

  Step makeReduce() {
    bool isQuantized = pick(2);
    int64_t sources = 1 + pick(4), elements = 1 + pick(500);
    ElementType sourceType = pickType(), type = pickType();
    WireFormat format = isQuantized ? pickFormat() : WireFormat::None;
    int64_t block = pickBlock();
    int64_t bytes = isQuantized
                        ? getChunkLayout(elements, format, block).chunkBytes
                        : elements * elementBytes(sourceType);
    int64_t stride = pickStride(bytes, isQuantized ? kChunkAlignment
                                                   : elementBytes(sourceType));
    auto [input, output] = pickPlaces(spanOf(sources, stride, bytes),
                                      elements * elementBytes(type), 16);
    bool isMean = pick(2);
    return [=, input = input, output = output](const Context &context) {
      auto desc = makeDesc<zpp_rt_reduce_desc>();
      desc.kind = isMean ? ZPP_RT_MEAN : ZPP_RT_SUM;
      desc.sources = sources;
      desc.elements = elements;
      desc.source_type = static_cast<int64_t>(sourceType);
      desc.format = static_cast<int64_t>(format);
      desc.block = block;
      desc.element_type = static_cast<int64_t>(type);
      desc.source_stride = stride;
      auto *entrypoint = isQuantized ? zpp_rt_dequantize_reduce : zpp_rt_reduce;
      expectOk(context, entrypoint(context.rank, &desc, input.at(context),
                                   output.at(context)));
    };
  }

  Step makeReduceQuantize() {
    SliceMap map = pickMap(/*mayHaveStages=*/true);
    int64_t sources = 1 + pick(4);
    WireFormat format = pickFormat(), toFormat = pickFormat();
    int64_t block = pickBlock(), toBlock = pickBlock();
    int64_t bytes = getChunkLayout(numElements(map), format, block).chunkBytes;
    int64_t toBytes =
        getChunkLayout(map.elementsPerChunk(), toFormat, toBlock).chunkBytes;
    int64_t stride = pickStride(bytes, kChunkAlignment);
    int64_t toStride = pickStride(toBytes, kChunkAlignment);
    ElementType partial = pickType();
    auto [input, output] =
        pickPlaces(spanOf(sources, stride, bytes),
                   spanOf(map.numChunks(), toStride, toBytes), 16);
    return [=, input = input, output = output](const Context &context) {
      auto desc = makeDesc<zpp_rt_reduce_quantize_desc>();
      desc.kind = ZPP_RT_MEAN;
      desc.sources = sources;
      desc.format = static_cast<int64_t>(format);
      desc.block = block;
      desc.element_type = static_cast<int64_t>(partial);
      desc.to_format = static_cast<int64_t>(toFormat);
      desc.to_block = toBlock;
      desc.slices = getSlices(map);
      desc.source_stride = stride;
      desc.chunk_stride = toStride;
      expectOk(context, zpp_rt_dequantize_reduce_quantize(context.rank, &desc,
                                                          input.at(context),
                                                          output.at(context)));
    };
  }

  Step makeExchange() {
    static const zpp_rt_axis node = {"node", 1, 2}, gpu = {"gpu", 1, 2};
    std::vector<zpp_rt_axis> axes;
    switch (pick(4)) {
    case 0:
      axes = {node};
      break;
    case 1:
      axes = {gpu};
      break;
    case 2:
      axes = {node, gpu};
      break;
    default:
      axes = {gpu, node};
    }
    int64_t size = axes.size() * 2;
    int64_t bytes = 1 + pick(1500);
    bool isGather = pick(2);
    auto [input, output] =
        pickPlaces(isGather ? bytes : size * bytes, size * bytes, 1);
    return [=, input = input, output = output](const Context &context) {
      auto desc = makeDesc<zpp_rt_exchange_desc>();
      desc.axes = axes.data();
      desc.num_axes = axes.size();
      desc.chunk_bytes = bytes;
      auto *entrypoint =
          isGather ? zpp_rt_all_gather_chunks : zpp_rt_all_to_all;
      expectOk(context, entrypoint(context.rank, &desc, input.at(context),
                                   output.at(context)));
    };
  }

  /// Returns the caller's own work, which reads and writes.
  Step makeCaller() {
    int64_t bytes = 1 + pick(2000);
    Place place = pickPlace(bytes, 1);
    bool isMarked = pick(2) == 0;
    return [=](const Context &context) {
      uint8_t *data = place.at(context);
      zpp_rt_buffer buffer = {data, bytes};
      if (isMarked)
        leaveByMark(context, buffer);
      else
        expectOk(context,
                 zpp_rt_leave(context.rank, context.stream, &buffer, 1));
      auto work = [=] {
        for (int64_t i = 0; i < bytes; ++i)
          simulated::at(data)[i] += 1 + i % 3;
      };
      if (context.stream)
        EXPECT_EQ(simulated::submit(context.stream, {"the caller's work",
                                                     {{data, bytes, true}},
                                                     work,
                                                     simulated::Task::Kernel}),
                  cudaSuccess);
      else
        work();
      if (isMarked)
        enterByMark(context);
      else
        expectOk(context, zpp_rt_enter(context.rank, context.stream));
    };
  }

  static void leaveByMark(const Context &context, const zpp_rt_buffer &buffer) {
    zpp_rt_mark *mark = nullptr;
    expectOk(context, zpp_rt_mark_operations(context.rank, &buffer, 1, &mark));
    expectOk(context, zpp_rt_leave_mark(context.rank, context.stream, mark));
    zpp_rt_mark_destroy(mark);
  }
  static void enterByMark(const Context &context) {
    zpp_rt_mark *mark = nullptr;
    expectOk(context, zpp_rt_mark_stream(context.rank, context.stream, &mark));
    expectOk(context, zpp_rt_enter_mark(context.rank, mark));
    zpp_rt_mark_destroy(mark);
  }

  Random random;
};

/// Runs a program `times` times on all ranks, from the second time on as a
/// graph if asked for. Returns all bytes of all buffers.
std::vector<Bytes> runProgram(const std::string &backend,
                              const std::vector<Step> &program, int64_t times,
                              bool isGraph) {
  TestWorld world(backend, kMesh);
  std::vector<Bytes> results(world.size());
  bool isCuda = backend == "cuda";
  world.runAll([&](zpp_rt_rank *rank, int64_t index) {
    Context context;
    context.rank = rank;
    if (isCuda) {
      EXPECT_EQ(cudaSetDevice(static_cast<int>(index)), cudaSuccess);
      EXPECT_EQ(
          cudaStreamCreateWithFlags(&context.stream, cudaStreamNonBlocking),
          cudaSuccess);
    }
    Random random(100 + index);
    for (int64_t i = 0; i < kBuffers; ++i) {
      void *data;
      EXPECT_EQ(zpp_rt_alloc(rank, kBufferBytes, &data), ZPP_RT_OK);
      context.buffers.push_back(static_cast<uint8_t *>(data));
      Bytes bytes(kBufferBytes);
      for (uint8_t &byte : bytes)
        byte = static_cast<uint8_t>(random.bits());
      EXPECT_EQ(zpp_rt_copy(rank, data, bytes.data(), kBufferBytes), ZPP_RT_OK);
    }

    auto leaveAll = [&] {
      std::vector<zpp_rt_buffer> all;
      for (uint8_t *data : context.buffers)
        all.push_back({data, kBufferBytes});
      EXPECT_EQ(zpp_rt_leave(rank, context.stream, all.data(), all.size()),
                ZPP_RT_OK)
          << zpp_rt_rank_message(rank);
    };
    auto runOnce = [&] {
      for (const Step &step : program)
        step(context);
    };
    runOnce();
    if (isGraph && isCuda) {
      // Work that was queued before comes first.
      leaveAll();
      EXPECT_EQ(cudaStreamBeginCapture(context.stream,
                                       cudaStreamCaptureModeThreadLocal),
                cudaSuccess);
      EXPECT_EQ(zpp_rt_enter(rank, context.stream), ZPP_RT_OK)
          << zpp_rt_rank_message(rank);
      runOnce();
      leaveAll();
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      EXPECT_EQ(cudaStreamEndCapture(context.stream, &graph), cudaSuccess);
      EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
      for (int64_t i = 1; i < times; ++i)
        EXPECT_EQ(cudaGraphLaunch(exec, context.stream), cudaSuccess);
      EXPECT_EQ(zpp_rt_enter(rank, context.stream), ZPP_RT_OK);
      EXPECT_EQ(cudaStreamSynchronize(context.stream), cudaSuccess);
      EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    } else {
      for (int64_t i = 1; i < times; ++i)
        runOnce();
    }

    for (uint8_t *data : context.buffers) {
      Bytes bytes(kBufferBytes);
      EXPECT_EQ(zpp_rt_copy(rank, bytes.data(), data, kBufferBytes), ZPP_RT_OK);
      EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK)
          << zpp_rt_rank_message(rank);
      results[index].insert(results[index].end(), bytes.begin(), bytes.end());
    }
    if (context.stream) {
      EXPECT_EQ(cudaStreamSynchronize(context.stream), cudaSuccess);
      EXPECT_EQ(cudaStreamDestroy(context.stream), cudaSuccess);
    }
  });
  return results;
}

void testPrograms(int64_t programs, int64_t steps, bool hasCaller,
                  bool isGraph) {
  for (int64_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    // The default order of things in every other program.
    simulated::setDelay(seed % 2 ? 60 : 0, seed);
    std::vector<Step> program = Generator(seed).makeProgram(steps, hasCaller);
    int64_t times = isGraph ? 3 : 1;
    std::vector<Bytes> expected = runProgram("cpu", program, times, isGraph);
    std::vector<Bytes> results = runProgram("cuda", program, times, isGraph);
    for (size_t rank = 0; rank < results.size(); ++rank)
      for (size_t i = 0; i < results[rank].size(); ++i)
        if (results[rank][i] != expected[rank][i]) {
          ADD_FAILURE() << "rank " << rank << ", buffer " << i / kBufferBytes
                        << ", byte " << i % kBufferBytes;
          return;
        }
    if (testing::Test::HasFailure())
      return;
  }
}

TEST(Programs, Operations) {
  testPrograms(20, 120, /*hasCaller=*/false, /*isGraph=*/false);
}

TEST(Programs, LongerThanAllEvents) {
  testPrograms(1, 3000, /*hasCaller=*/true, /*isGraph=*/false);
}

TEST(Programs, CallersStream) {
  testPrograms(20, 120, /*hasCaller=*/true, /*isGraph=*/false);
}

TEST(Programs, Graphs) {
  testPrograms(20, 80, /*hasCaller=*/true, /*isGraph=*/true);
}

} // namespace
