//===- DescriptorTest.cpp - What the interface refuses --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

using namespace zpp;

namespace {

//===----------------------------------------------------------------------===//
// Worlds and ranks
//===----------------------------------------------------------------------===//

std::string createWorld(zpp_rt_world_desc desc, zpp_rt_status expected) {
  char message[256] = "";
  zpp_rt_world *world;
  EXPECT_EQ(zpp_rt_world_create(&desc, &world, message, sizeof(message)),
            expected);
  EXPECT_EQ(world, nullptr);
  return message;
}

zpp_rt_world_desc makeWorld() {
  auto desc = makeDesc<zpp_rt_world_desc>();
  desc.backend = "cpu";
  desc.mesh = "node:2,gpu:4";
  return desc;
}

TEST(Descriptor, World) {
  zpp_rt_world_desc desc = makeWorld();
  for (int64_t size : {int64_t(8), int64_t(-1)}) {
    desc.struct_size = size;
    EXPECT_EQ(createWorld(desc, ZPP_RT_INVALID_ARGUMENT),
              "expected a struct_size of at least " +
                  std::to_string(sizeof(desc)) + ", but got " +
                  std::to_string(size));
  }
  desc = makeWorld();
  desc.backend = "tpu";
  // The other names depend on how the library was built.
  std::string names = createWorld(desc, ZPP_RT_UNSUPPORTED);
  EXPECT_EQ(names.rfind("expected one of the back ends 'cpu'", 0), 0u) << names;
  EXPECT_NE(names.find(", but got 'tpu'"), std::string::npos) << names;
  desc.backend = nullptr;
  EXPECT_EQ(createWorld(desc, ZPP_RT_INVALID_ARGUMENT),
            "expected the name of a back end, but got NULL");
  desc = makeWorld();
  desc.mesh = "node";
  EXPECT_EQ(createWorld(desc, ZPP_RT_INVALID_ARGUMENT),
            "mesh: expected NAME:SIZE, but got 'node'");
  for (const char *mesh : {"gpu:1048577", "gpu:9223372036854775807"}) {
    desc.mesh = mesh;
    EXPECT_EQ(createWorld(desc, ZPP_RT_INVALID_ARGUMENT),
              "mesh: expected at most 1048576 ranks, but got " +
                  std::string(mesh).substr(4));
  }
  desc = makeWorld();
  desc.time_limit_usec = -5;
  EXPECT_EQ(createWorld(desc, ZPP_RT_INVALID_ARGUMENT),
            "expected a time limit that is not negative, but got -5");

  zpp_rt_world *world;
  char message[256] = "";
  EXPECT_EQ(zpp_rt_world_create(nullptr, &world, message, sizeof(message)),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "expected a descriptor, but got NULL");
  // The message is truncated, and may be omitted.
  desc = makeWorld();
  EXPECT_EQ(zpp_rt_world_create(&desc, nullptr, message, 9),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "expected");
  EXPECT_EQ(zpp_rt_world_create(&desc, nullptr, nullptr, 0),
            ZPP_RT_INVALID_ARGUMENT);
}

/// A newer header has fields that this library does not know.
TEST(Descriptor, LargerStruct) {
  struct {
    zpp_rt_world_desc desc;
    int64_t added;
  } newer = {makeWorld(), 1};
  newer.desc.struct_size = sizeof(newer);
  newer.desc.time_limit_usec = INT64_MAX;
  zpp_rt_world *world;
  EXPECT_EQ(zpp_rt_world_create(&newer.desc, &world, nullptr, 0), ZPP_RT_OK);
  int64_t numRanks = 0;
  EXPECT_EQ(zpp_rt_world_size(world, &numRanks), ZPP_RT_OK);
  EXPECT_EQ(numRanks, 8);
  zpp_rt_world_destroy(world);
}

TEST(Descriptor, Rank) {
  TestWorld world("cpu", "node:2,gpu:4");
  zpp_rt_rank *rank;
  char message[256] = "";
  auto create = [&](int64_t index) {
    EXPECT_EQ(createRank(world.get(), index, &rank, message, sizeof(message)),
              ZPP_RT_INVALID_ARGUMENT);
    EXPECT_EQ(rank, nullptr);
    return std::string(message);
  };
  EXPECT_EQ(create(8), "expected a rank in [0, 8), but got 8");
  EXPECT_EQ(create(-1), "expected a rank in [0, 8), but got -1");
  zpp_rt_rank *first = world.join(3);
  EXPECT_EQ(create(3), "expected a rank that has not joined yet, but got 3");
  zpp_rt_rank_destroy(first);
  EXPECT_EQ(create(3), "expected a rank that has not joined yet, but got 3");
  auto desc = makeDesc<zpp_rt_rank_desc>();
  desc.struct_size = 8;
  EXPECT_EQ(
      zpp_rt_rank_create(world.get(), &desc, &rank, message, sizeof(message)),
      ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "expected a struct_size of at least 24, but got 8");
}

/// NULL is an error everywhere, never dereferenced.
TEST(Descriptor, Null) {
  zpp_rt_rank_destroy(nullptr);
  zpp_rt_world_destroy(nullptr);
  zpp_rt_mark_destroy(nullptr);
  EXPECT_STREQ(zpp_rt_rank_message(nullptr), "expected a rank, but got NULL");
  EXPECT_EQ(zpp_rt_rank_synchronize(nullptr), ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_rank_abort(nullptr, "x"), ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_free(nullptr, nullptr), ZPP_RT_INVALID_ARGUMENT);
  void *data;
  EXPECT_EQ(zpp_rt_alloc(nullptr, 8, &data), ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_workspace(nullptr, 8, &data), ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_copy(nullptr, &data, &data, 0), ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_enter(nullptr, nullptr), ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_leave(nullptr, nullptr, nullptr, 0),
            ZPP_RT_INVALID_ARGUMENT);
  zpp_rt_mark *mark;
  EXPECT_EQ(zpp_rt_mark_stream(nullptr, nullptr, &mark),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_mark_operations(nullptr, nullptr, 0, &mark),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_enter_mark(nullptr, nullptr), ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_leave_mark(nullptr, nullptr, nullptr),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_copy_on_stream(nullptr, nullptr, &data, &data, 0),
            ZPP_RT_INVALID_ARGUMENT);

  int64_t size = 1;
  EXPECT_EQ(zpp_rt_world_size(nullptr, &size), ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(size, 0);
  EXPECT_EQ(zpp_rt_world_record(nullptr, 1, nullptr, 0),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_world_write_trace(nullptr, "x", nullptr, 0),
            ZPP_RT_INVALID_ARGUMENT);
  char text[8];
  EXPECT_EQ(zpp_rt_world_listen(nullptr, text, 8, nullptr, 0),
            ZPP_RT_INVALID_ARGUMENT);
  zpp_rt_rank *rank;
  EXPECT_EQ(createRank(nullptr, 0, &rank), ZPP_RT_INVALID_ARGUMENT);
  TestWorld world("cpu", "gpu:1", 0, /*isTraced=*/true);
  EXPECT_EQ(zpp_rt_world_size(world.get(), nullptr), ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(createRank(world.get(), 0, nullptr), ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_rank_create(world.get(), nullptr, &rank, nullptr, 0),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_world_write_trace(world.get(), nullptr, nullptr, 0),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(zpp_rt_world_listen(world.get(), text, 8, nullptr, 0),
            ZPP_RT_INVALID_ARGUMENT);
}

TEST(Descriptor, Version) {
  EXPECT_EQ(zpp_rt_version(), ZPP_RT_VERSION);
  EXPECT_EQ(ZPP_RT_VERSION / 1000, ZPP_RT_VERSION_MAJOR);
}

TEST(Descriptor, StatusNames) {
  EXPECT_STREQ(zpp_rt_status_name(ZPP_RT_OK), "ZPP_RT_OK");
  EXPECT_STREQ(zpp_rt_status_name(ZPP_RT_SYSTEM_ERROR), "ZPP_RT_SYSTEM_ERROR");
  EXPECT_STREQ(zpp_rt_status_name(99), "unknown status");
  for (zpp_rt_status a = ZPP_RT_OK; a <= ZPP_RT_SYSTEM_ERROR; ++a)
    for (zpp_rt_status b = ZPP_RT_OK; b < a; ++b)
      EXPECT_STRNE(zpp_rt_status_name(a), zpp_rt_status_name(b));
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// Every entry point refuses these before it reads anything else.
template <typename Desc, typename... Buffers>
void testCommonErrors(const char *name,
                      zpp_rt_status (*entrypoint)(zpp_rt_rank *, const Desc *,
                                                  Buffers...)) {
  auto call = [&](zpp_rt_rank *rank, const Desc *desc) {
    return entrypoint(rank, desc, Buffers(nullptr)...);
  };
  Desc desc = makeDesc<Desc>();
  EXPECT_EQ(call(nullptr, &desc), ZPP_RT_INVALID_ARGUMENT);
  {
    TestWorld world("cpu", "gpu:1");
    zpp_rt_rank *rank = world.join(0);
    EXPECT_EQ(call(rank, nullptr), ZPP_RT_INVALID_ARGUMENT);
    EXPECT_EQ(zpp_rt_rank_message(rank),
              std::string(name) + ": expected a descriptor, but got NULL");
    zpp_rt_rank_destroy(rank);
  }
  for (int64_t size : {int64_t(16), int64_t(-1), INT64_MIN}) {
    TestWorld world("cpu", "gpu:1");
    zpp_rt_rank *rank = world.join(0);
    desc.struct_size = size;
    desc.name = "not read";
    EXPECT_EQ(call(rank, &desc), ZPP_RT_INVALID_ARGUMENT);
    EXPECT_EQ(zpp_rt_rank_message(rank),
              std::string(name) + ": expected a struct_size of at least " +
                  std::to_string(sizeof(Desc)) + ", but got " +
                  std::to_string(size));
    zpp_rt_rank_destroy(rank);
  }
}

TEST(Descriptor, CommonErrors) {
#define ZPP_RT_ENTRYPOINT(NAME, DESC, OP)                                      \
  testCommonErrors(#NAME, &zpp_rt_##NAME);
#include "zpp/Runtime/Entrypoints.def"
}

/// Runs an operation that is refused, and returns the message.
template <typename Desc>
std::string refuse(zpp_rt_status (*entrypoint)(zpp_rt_rank *, const Desc *,
                                               const void *, void *),
                   const Desc &desc, zpp_rt_status expected,
                   bool hasBuffers = true) {
  TestWorld world("cpu", "node:2,gpu:4");
  zpp_rt_rank *rank = world.join(0);
  uint8_t bytes[1024];
  EXPECT_EQ(entrypoint(rank, &desc, hasBuffers ? bytes : nullptr,
                       hasBuffers ? bytes : nullptr),
            expected);
  std::string message = zpp_rt_rank_message(rank);
  zpp_rt_rank_destroy(rank);
  return message;
}

SliceMap makeMap() {
  SliceMap map;
  map.factors = {4};
  map.chunkFactors = {0};
  map.unit = 2;
  map.extent = 8;
  return map;
}

TEST(Descriptor, Slices) {
  auto refusePack = [](const SliceMap &map, auto change) {
    auto desc = makeDesc<zpp_rt_pack_desc>();
    desc.name = "p";
    desc.element_bytes = 2;
    desc.slices = getSlices(map);
    change(desc);
    return refuse(zpp_rt_pack_slices, desc, ZPP_RT_INVALID_ARGUMENT);
  };
  SliceMap map = makeMap();
  EXPECT_EQ(
      refusePack(map, [](auto &desc) { desc.element_bytes = 0; }),
      "pack_slices 'p': expected positive bytes of an element, but got 0");
  EXPECT_EQ(refusePack(map, [](auto &desc) { desc.slices.extent = 9; }),
            "pack_slices 'p': expected an extent in [0, 8], but got 9");
  EXPECT_EQ(refusePack(map, [](auto &desc) { desc.slices.factors = nullptr; }),
            "pack_slices 'p': expected 1 factors, but got NULL");
  EXPECT_EQ(
      refusePack(map, [](auto &desc) { desc.slices.num_chunk_factors = -1; }),
      "pack_slices 'p': expected a number of chunk factors, but got -1");
  EXPECT_EQ(refusePack(map,
                       [](auto &desc) {
                         desc.slices.inner = INT64_C(1) << 58;
                         desc.element_bytes = 4;
                       }),
            "pack_slices 'p': expected fewer than 2^63 bytes, but got "
            "2305843009213693952 x 4");

  auto unpack = makeDesc<zpp_rt_pack_desc>();
  map.stages = 2;
  unpack.element_bytes = 2;
  unpack.slices = getSlices(map);
  EXPECT_EQ(refuse(zpp_rt_unpack_slices, unpack, ZPP_RT_INVALID_ARGUMENT),
            "unpack_slices: expected 1 stage, but got 2");
}

/// A descriptor is read at each call, whatever was at its address before.
TEST(Descriptor, ReadAtEachCall) {
  TestWorld world("cpu", "gpu:1");
  zpp_rt_rank *rank = world.join(0);
  char name[] = "a";
  int64_t factors[] = {2, 2}, chunkFactors[] = {0};
  auto desc = makeDesc<zpp_rt_pack_desc>();
  desc.name = name;
  desc.element_bytes = 1;
  desc.slices = {1, 2, 1, 8, factors, 2, chunkFactors, 1, 0, 1};
  const std::vector<uint8_t> input = {0, 1, 2, 3, 4, 5, 6, 7};
  auto pack = [&] {
    std::vector<uint8_t> output(8);
    EXPECT_EQ(zpp_rt_pack_slices(rank, &desc, input.data(), output.data()),
              ZPP_RT_OK);
    return output;
  };
  const std::vector<uint8_t> transposed = {0, 1, 4, 5, 2, 3, 6, 7};
  for (int i = 0; i < 2; ++i) {
    chunkFactors[0] = 0;
    EXPECT_EQ(pack(), input);
    chunkFactors[0] = 1;
    EXPECT_EQ(pack(), transposed);
  }
  // In errors, too. No name is different from an empty name.
  desc.name = nullptr;
  EXPECT_EQ(pack(), transposed);
  desc.name = name;
  name[0] = 'b';
  EXPECT_EQ(zpp_rt_pack_slices(rank, &desc, nullptr, nullptr),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(zpp_rt_rank_message(rank),
               "pack_slices 'b': expected an input, but got NULL");
  zpp_rt_rank_destroy(rank);
}

TEST(Descriptor, Formats) {
  SliceMap map = makeMap();
  auto desc = makeDesc<zpp_rt_quantize_desc>();
  desc.name = "q";
  desc.format = ZPP_RT_FORMAT_I8;
  desc.block = 128;
  desc.slices = getSlices(map);
  auto bad = desc;
  bad.element_type = 3;
  EXPECT_EQ(refuse(zpp_rt_quantize, bad, ZPP_RT_UNSUPPORTED),
            "quantize 'q': expected element type F32, BF16 or F16, but got 3");
  bad = desc;
  bad.format = 2;
  EXPECT_EQ(refuse(zpp_rt_quantize, bad, ZPP_RT_UNSUPPORTED),
            "quantize 'q': expected wire format I8 or I4, but got 2");
  bad = desc;
  bad.block = 48;
  EXPECT_EQ(refuse(zpp_rt_dequantize, bad, ZPP_RT_UNSUPPORTED),
            "dequantize 'q': expected a block that is a power of two from 32 "
            "to 2048, but got 48");
  bad = desc;
  bad.rotate = 64;
  EXPECT_EQ(refuse(zpp_rt_quantize, bad, ZPP_RT_UNSUPPORTED),
            "quantize 'q': expected groups of 0 or 32 elements to rotate, but "
            "got 64");
  EXPECT_EQ(refuse(zpp_rt_quantize, desc, ZPP_RT_INVALID_ARGUMENT, false),
            "quantize 'q': expected an input, but got NULL");
}

TEST(Descriptor, Differences) {
  SliceMap map = makeMap();
  auto refuseWith = [&](auto entrypoint, int64_t rotate, zpp_rt_status expected,
                        bool hasHeld) {
    auto desc = makeDesc<zpp_rt_quantize_desc>();
    desc.name = "d";
    desc.format = ZPP_RT_FORMAT_I4;
    desc.block = 128;
    desc.rotate = rotate;
    desc.slices = getSlices(map);
    TestWorld world("cpu", "node:2,gpu:4");
    zpp_rt_rank *rank = world.join(0);
    alignas(16) uint8_t bytes[2][1024];
    EXPECT_EQ(entrypoint(rank, &desc, bytes[0], hasHeld ? bytes[1] : nullptr,
                         bytes[1]),
              expected);
    std::string message = zpp_rt_rank_message(rank);
    zpp_rt_rank_destroy(rank);
    return message;
  };
  EXPECT_EQ(
      refuseWith(zpp_rt_quantize_difference, 32, ZPP_RT_UNSUPPORTED, true),
      "quantize_difference 'd': expected nothing to rotate, but got 32");
  EXPECT_EQ(refuseWith(zpp_rt_dequantize_add, 32, ZPP_RT_UNSUPPORTED, true),
            "dequantize_add 'd': expected nothing to rotate, but got 32");
  EXPECT_EQ(
      refuseWith(zpp_rt_quantize_difference, 0, ZPP_RT_INVALID_ARGUMENT, false),
      "quantize_difference 'd': expected a tensor that is held, but got "
      "NULL");
  EXPECT_EQ(
      refuseWith(zpp_rt_dequantize_add, 0, ZPP_RT_INVALID_ARGUMENT, false),
      "dequantize_add 'd': expected a tensor that is held, but got NULL");
}

TEST(Descriptor, Reductions) {
  auto desc = makeDesc<zpp_rt_reduce_desc>();
  desc.name = "r";
  desc.sources = 2;
  desc.elements = 4;
  auto bad = desc;
  bad.kind = 2;
  EXPECT_EQ(refuse(zpp_rt_reduce, bad, ZPP_RT_INVALID_ARGUMENT),
            "reduce 'r': expected reduction SUM or MEAN, but got 2");
  bad = desc;
  bad.elements = -1;
  EXPECT_EQ(refuse(zpp_rt_reduce, bad, ZPP_RT_INVALID_ARGUMENT),
            "reduce 'r': expected a number of elements below 2^60, but got -1");
  bad = desc;
  bad.format = ZPP_RT_FORMAT_I8;
  EXPECT_EQ(refuse(zpp_rt_reduce, bad, ZPP_RT_UNSUPPORTED),
            "reduce 'r': expected wire format NONE, but got 8");
  bad = desc;
  bad.rotate = 32;
  EXPECT_EQ(refuse(zpp_rt_reduce, bad, ZPP_RT_UNSUPPORTED),
            "reduce 'r': expected nothing to rotate, but got 32");
  EXPECT_EQ(refuse(zpp_rt_dequantize_reduce, desc, ZPP_RT_UNSUPPORTED),
            "dequantize_reduce 'r': expected wire format I8 or I4, but got 0");

  SliceMap map = makeMap();
  auto requantize = makeDesc<zpp_rt_reduce_quantize_desc>();
  requantize.sources = 2;
  requantize.format = ZPP_RT_FORMAT_I8;
  requantize.block = 32;
  requantize.to_format = ZPP_RT_FORMAT_I4;
  requantize.to_block = 16;
  requantize.slices = getSlices(map);
  EXPECT_EQ(
      refuse(zpp_rt_dequantize_reduce_quantize, requantize, ZPP_RT_UNSUPPORTED),
      "dequantize_reduce_quantize: expected a block that is a power of "
      "two from 32 to 2048, but got 16");
  requantize.to_block = 32;
  requantize.sources = 0;
  EXPECT_EQ(
      refuse(zpp_rt_dequantize_reduce_quantize, requantize,
             ZPP_RT_INVALID_ARGUMENT),
      "dequantize_reduce_quantize: expected at least 1 source, but got 0");
}

TEST(Descriptor, Exchanges) {
  zpp_rt_axis axes[] = {{"node", 1, 2}, {"gpu", 1, 4}};
  auto desc = makeDesc<zpp_rt_exchange_desc>();
  desc.name = "x";
  desc.axes = axes;
  desc.num_axes = 2;
  desc.chunk_bytes = 16;
  auto bad = desc;
  bad.num_axes = 0;
  EXPECT_EQ(refuse(zpp_rt_all_to_all, bad, ZPP_RT_INVALID_ARGUMENT),
            "all_to_all 'x': expected at least 1 axis, but got 0");
  bad = desc;
  bad.axes = nullptr;
  EXPECT_EQ(refuse(zpp_rt_all_to_all, bad, ZPP_RT_INVALID_ARGUMENT),
            "all_to_all 'x': expected 2 axes, but got NULL");
  bad = desc;
  bad.chunk_bytes = -1;
  EXPECT_EQ(refuse(zpp_rt_all_gather_chunks, bad, ZPP_RT_INVALID_ARGUMENT),
            "all_gather_chunks 'x': expected bytes of a chunk, but got -1");
  // "node" of 2 could be a part of "node" of 4.
  bad = desc;
  bad.mesh = "node:4,gpu:4";
  EXPECT_EQ(refuse(zpp_rt_all_to_all, bad, ZPP_RT_INVALID_ARGUMENT),
            "all_to_all 'x': expected a world of mesh 'node:4,gpu:4', but got "
            "'node:2,gpu:4'");
  axes[1] = {"tpu", 1, 4};
  EXPECT_EQ(refuse(zpp_rt_all_to_all, desc, ZPP_RT_INVALID_ARGUMENT),
            "all_to_all 'x': expected an axis of mesh 'node:2,gpu:4', but got "
            "'tpu'");
  axes[1] = {"gpu", 1, 8};
  EXPECT_EQ(refuse(zpp_rt_all_to_all, desc, ZPP_RT_INVALID_ARGUMENT),
            "all_to_all 'x': expected a part of axis 'gpu:4', but got "
            "\"gpu\":(1)8");
  axes[1] = {nullptr, 1, 4};
  EXPECT_EQ(refuse(zpp_rt_all_to_all, desc, ZPP_RT_INVALID_ARGUMENT),
            "all_to_all 'x': expected the name of an axis, but got NULL");
}

TEST(Descriptor, Memory) {
  auto refuseMemory = [](auto call) {
    TestWorld world("cpu", "gpu:1");
    zpp_rt_rank *rank = world.join(0);
    EXPECT_EQ(call(rank), ZPP_RT_INVALID_ARGUMENT);
    std::string message = zpp_rt_rank_message(rank);
    zpp_rt_rank_destroy(rank);
    return message;
  };
  uint8_t byte;
  void *data;
  EXPECT_EQ(
      refuseMemory([&](auto *rank) { return zpp_rt_alloc(rank, -1, &data); }),
      "alloc: expected a number of bytes, but got -1");
  EXPECT_EQ(
      refuseMemory([&](auto *rank) { return zpp_rt_alloc(rank, 1, nullptr); }),
      "alloc: expected where to write the memory, but got NULL");
  EXPECT_EQ(refuseMemory([&](auto *rank) {
              return zpp_rt_copy(rank, &byte, nullptr, 1);
            }),
            "copy: expected a source, but got NULL");
  EXPECT_EQ(refuseMemory([&](auto *rank) {
              return zpp_rt_copy(rank, &byte, &byte, -1);
            }),
            "copy: expected a number of bytes, but got -1");
  EXPECT_EQ(refuseMemory([&](auto *rank) {
              return zpp_rt_copy_on_stream(rank, nullptr, &byte, &byte, -1);
            }),
            "copy_on_stream: expected a number of bytes, but got -1");
  EXPECT_EQ(refuseMemory([&](auto *rank) {
              return zpp_rt_copy_on_stream(rank, nullptr, &byte, nullptr, 1);
            }),
            "copy_on_stream: expected memory of 1 bytes, but got NULL");
  EXPECT_EQ(refuseMemory([&](auto *rank) { return zpp_rt_free(rank, &byte); }),
            "free: expected memory of alloc, but got other memory");
}

TEST(Descriptor, CopiesOnStreams) {
  TestWorld world("cpu", "gpu:1");
  zpp_rt_rank *rank = world.join(0);
  int32_t from = 7, to = 0;
  EXPECT_EQ(zpp_rt_copy_on_stream(rank, nullptr, &to, &from, sizeof(to)),
            ZPP_RT_OK);
  EXPECT_EQ(to, 7);
  EXPECT_EQ(zpp_rt_copy_on_stream(rank, nullptr, nullptr, nullptr, 0),
            ZPP_RT_OK);
  zpp_rt_rank_destroy(rank);
}

TEST(Descriptor, Marks) {
  TestWorld world("cpu", "gpu:1");
  zpp_rt_rank *rank = world.join(0);
  zpp_rt_mark *inputs, *outputs;
  zpp_rt_buffer buffer = {&buffer, sizeof(buffer)};
  EXPECT_EQ(zpp_rt_mark_stream(rank, nullptr, &inputs), ZPP_RT_OK);
  EXPECT_EQ(zpp_rt_enter_mark(rank, inputs), ZPP_RT_OK);
  EXPECT_EQ(zpp_rt_mark_operations(rank, &buffer, 1, &outputs), ZPP_RT_OK);
  EXPECT_EQ(zpp_rt_leave_mark(rank, nullptr, outputs), ZPP_RT_OK);

  auto refuseMark = [](auto call) {
    TestWorld world("cpu", "gpu:1");
    zpp_rt_rank *rank = world.join(0);
    EXPECT_EQ(call(rank), ZPP_RT_INVALID_ARGUMENT);
    std::string message = zpp_rt_rank_message(rank);
    zpp_rt_rank_destroy(rank);
    return message;
  };
  EXPECT_EQ(refuseMark([](auto *rank) {
              return zpp_rt_mark_stream(rank, nullptr, nullptr);
            }),
            "mark_stream: expected where to write the mark, but got NULL");
  zpp_rt_mark *mark = inputs;
  EXPECT_EQ(refuseMark([&](auto *rank) {
              return zpp_rt_mark_operations(rank, nullptr, 2, &mark);
            }),
            "mark_operations: expected 2 buffers, but got NULL");
  EXPECT_EQ(mark, nullptr);
  EXPECT_EQ(
      refuseMark([](auto *rank) { return zpp_rt_enter_mark(rank, nullptr); }),
      "enter_mark: expected a mark of a stream, but got NULL");
  EXPECT_EQ(
      refuseMark([&](auto *rank) { return zpp_rt_enter_mark(rank, outputs); }),
      "enter_mark: expected a mark of a stream, but got a mark of operations");
  EXPECT_EQ(refuseMark([&](auto *rank) {
              return zpp_rt_leave_mark(rank, nullptr, inputs);
            }),
            "leave_mark: expected a mark of operations, but got a mark of a "
            "stream");

  zpp_rt_rank_destroy(rank);
  zpp_rt_mark_destroy(inputs);
  zpp_rt_mark_destroy(outputs);
  zpp_rt_mark_destroy(nullptr);
}

} // namespace
