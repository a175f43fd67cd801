//===- ExternalStreamsTest.cpp - The caller's streams and exchanges -------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The streams on which operations and exchanges of the caller are queued. The
// simulator reports work that nothing orders.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"
#include "gtest/gtest.h"

#include <cuda_runtime_api.h>

using namespace zpp;

namespace {
/// A lone rank of two, whose exchanges copy on the stream that they are given.
class ExternalStreams : public testing::Test {
protected:
  void SetUp() override {
    exchanges.context = this;
    exchanges.all_to_all = exchanges.all_gather =
        [](void *self, const zpp_rt_exchange *exchange, const void *input,
           void *output, char *, size_t) -> zpp_rt_status {
      auto &test = *static_cast<ExternalStreams *>(self);
      auto stream = static_cast<cudaStream_t>(exchange->stream);
      test.used.push_back(stream);
      int device;
      EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
      EXPECT_EQ(device, 3);
      EXPECT_EQ(cudaMemcpyAsync(output, input, 2 * exchange->chunk_bytes,
                                cudaMemcpyDeviceToDevice, stream),
                cudaSuccess);
      return ZPP_RT_OK;
    };
    auto desc = makeDesc<zpp_rt_world_desc>();
    desc.backend = "cuda";
    desc.mesh = "gpu:2";
    desc.exchanges = &exchanges;
    ASSERT_EQ(zpp_rt_world_create(&desc, &world, nullptr, 0), ZPP_RT_OK);
    auto rankDesc = makeDesc<zpp_rt_rank_desc>();
    rankDesc.device = 3;
    ASSERT_EQ(zpp_rt_rank_create(world, &rankDesc, &rank, nullptr, 0),
              ZPP_RT_OK);
    for (cudaStream_t &stream : streams)
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                cudaSuccess);
    for (void **data : {&a, &b, &c})
      ASSERT_EQ(zpp_rt_alloc(rank, kBytes, data), ZPP_RT_OK);
  }
  void TearDown() override {
    zpp_rt_rank_destroy(rank);
    zpp_rt_world_destroy(world);
    for (cudaStream_t stream : streams)
      cudaStreamDestroy(stream);
  }

  void exchange(const void *input, void *output) {
    auto desc = makeDesc<zpp_rt_exchange_desc>();
    zpp_rt_axis axis{"gpu", 1, 2};
    desc.axes = &axis;
    desc.num_axes = 1;
    desc.chunk_bytes = kBytes / 2;
    EXPECT_EQ(zpp_rt_all_to_all(rank, &desc, input, output), ZPP_RT_OK)
        << zpp_rt_rank_message(rank);
  }
  void copy(const void *input, void *output) {
    auto desc = makeDesc<zpp_rt_copy_desc>();
    desc.rows = 1;
    desc.row_bytes = kBytes;
    EXPECT_EQ(zpp_rt_copy_rows(rank, &desc, input, output), ZPP_RT_OK);
  }
  void fill(void *data, int value, cudaStream_t stream) {
    EXPECT_EQ(cudaMemsetAsync(data, value, kBytes, stream), cudaSuccess);
  }
  Bytes read(const void *data, cudaStream_t stream) {
    Bytes result(kBytes);
    EXPECT_EQ(cudaMemcpyAsync(result.data(), data, kBytes,
                              cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return result;
  }

  static constexpr int64_t kBytes = 256;
  zpp_rt_exchanges exchanges = makeDesc<zpp_rt_exchanges>();
  zpp_rt_world *world = nullptr;
  zpp_rt_rank *rank = nullptr;
  cudaStream_t streams[2];
  void *a, *b, *c;
  /// By the exchanges.
  std::vector<cudaStream_t> used;
};

/// Work of the caller on the same stream needs only enter().
TEST_F(ExternalStreams, OneStream) {
  fill(a, 5, streams[0]);
  ASSERT_EQ(zpp_rt_enter(rank, streams[0]), ZPP_RT_OK);
  copy(a, b);
  exchange(b, c);
  EXPECT_EQ(read(c, streams[0]), Bytes(kBytes, 5));
  EXPECT_EQ(used, std::vector<cudaStream_t>{streams[0]});
}

/// Operations stay in order when another stream is entered.
TEST_F(ExternalStreams, AnotherStream) {
  ASSERT_EQ(zpp_rt_enter(rank, streams[0]), ZPP_RT_OK);
  fill(a, 6, streams[0]);
  exchange(a, b);
  ASSERT_EQ(zpp_rt_enter(rank, streams[1]), ZPP_RT_OK);
  exchange(b, c);
  EXPECT_EQ(read(c, streams[1]), Bytes(kBytes, 6));
  EXPECT_EQ(used, (std::vector<cudaStream_t>{streams[0], streams[1]}));
}

/// Another stream of the caller waits for operations.
TEST_F(ExternalStreams, Leave) {
  ASSERT_EQ(zpp_rt_enter(rank, streams[0]), ZPP_RT_OK);
  fill(a, 7, streams[0]);
  exchange(a, b);
  zpp_rt_buffer buffer{b, kBytes};
  ASSERT_EQ(zpp_rt_leave(rank, streams[1], &buffer, 1), ZPP_RT_OK);
  ASSERT_EQ(zpp_rt_leave(rank, streams[0], &buffer, 1), ZPP_RT_OK);
  EXPECT_EQ(read(b, streams[1]), Bytes(kBytes, 7));
}

} // namespace
