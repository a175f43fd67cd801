//===- SimulatorTest.cpp - The simulated GPU itself -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The simulator finds errors in wrong programs, and none in correct ones.
//
//===----------------------------------------------------------------------===//

#include "Simulator.h"
#include "zpp/kernels/Kernels.h"
#include "gtest/gtest.h"

#include <atomic>
#include <cstring>
#include <thread>

using namespace zpp;
using namespace zpp::simulated;

namespace {

#define EXPECT_CUDA(...) EXPECT_EQ(__VA_ARGS__, cudaSuccess)

class Simulator : public testing::Test {
protected:
  Simulator() {
    resetFaults();
    cudaGetLastError();
    EXPECT_CUDA(cudaSetDevice(0));
    for (cudaStream_t *stream : {&first, &second})
      EXPECT_CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    EXPECT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    EXPECT_CUDA(cudaMalloc(reinterpret_cast<void **>(&data), kBytes));
    EXPECT_CUDA(cudaHostAlloc(reinterpret_cast<void **>(&host), kBytes, 0));
  }
  ~Simulator() override {
    resetFaults();
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_CUDA(cudaFree(data));
    EXPECT_CUDA(cudaFreeHost(host));
    EXPECT_CUDA(cudaEventDestroy(event));
    EXPECT_CUDA(cudaStreamDestroy(first));
    EXPECT_CUDA(cudaStreamDestroy(second));
    EXPECT_EQ(takeErrors(), std::vector<std::string>());
  }

  /// One error that mentions all of `parts`.
  static void expectError(std::initializer_list<const char *> parts) {
    std::vector<std::string> errors = takeErrors();
    ASSERT_EQ(errors.size(), 1u);
    for (const char *part : parts)
      EXPECT_NE(errors[0].find(part), std::string::npos)
          << "expected " << part << " in: " << errors[0];
  }

  static cudaError_t touch(cudaStream_t stream, const char *name,
                           const uint8_t *memory, int64_t bytes, bool isWrite) {
    return submit(stream,
                  {name, {{memory, bytes, isWrite}}, [] {}, Task::Kernel});
  }

  static constexpr int64_t kBytes = 1024;
  cudaStream_t first, second;
  cudaEvent_t event;
  uint8_t *data, *host;
};

TEST_F(Simulator, StreamsKeepTheirOrder) {
  setDelay(200, 1);
  for (int i = 0; i < 20; ++i)
    EXPECT_CUDA(cudaMemsetAsync(data, i, kBytes, first));
  EXPECT_CUDA(
      cudaMemcpyAsync(host, data, kBytes, cudaMemcpyDeviceToHost, first));
  EXPECT_EQ(cudaStreamQuery(first), cudaErrorNotReady);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_CUDA(cudaGetLastError());
  EXPECT_CUDA(cudaStreamSynchronize(first));
  EXPECT_CUDA(cudaStreamQuery(first));
  EXPECT_EQ(host[kBytes - 1], 19);
}

TEST_F(Simulator, EventsOrderStreams) {
  for (int i = 0; i < 20; ++i) {
    setDelay(100, i);
    EXPECT_CUDA(cudaMemsetAsync(data, i, kBytes, first));
    EXPECT_CUDA(cudaEventRecord(event, first));
    EXPECT_CUDA(cudaStreamWaitEvent(second, event, 0));
    EXPECT_CUDA(cudaMemcpyAsync(host, data, kBytes, cudaMemcpyDefault, second));
    // Later records do not matter.
    EXPECT_CUDA(cudaEventRecord(event, second));
    EXPECT_CUDA(cudaEventSynchronize(event));
    EXPECT_CUDA(cudaEventQuery(event));
    EXPECT_EQ(host[5], i);
  }
}

TEST_F(Simulator, FindsRaces) {
  // The program is wrong, no matter in which order they run.
  EXPECT_CUDA(touch(first, "writer", data, 64, true));
  EXPECT_CUDA(touch(second, "reader", data + 63, 1, false));
  expectError({"race: reader on stream",
               "reads bytes [63, 64) of 1024 on "
               "device 0",
               "nothing orders it after writer on stream",
               "writes bytes [0, 64)"});
  // An event that is recorded too early.
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA(touch(first, "writer", data, 64, true));
  EXPECT_CUDA(cudaStreamWaitEvent(second, event, 0));
  EXPECT_CUDA(touch(second, "other writer", data, 64, true));
  expectError({"other writer", "nothing orders it after writer"});
  // A write after two reads, of which it waits for only one.
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_CUDA(touch(first, "reader 1", data, 64, false));
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA(touch(first, "reader 2", data, 64, false));
  EXPECT_CUDA(cudaStreamWaitEvent(second, event, 0));
  EXPECT_CUDA(touch(second, "writer", data, 64, true));
  expectError({"writer", "reader 2", "reads bytes [0, 64)"});
}

TEST_F(Simulator, KnowsWhatIsOrdered) {
  // Different bytes; the same for reading; one after the other.
  EXPECT_CUDA(touch(first, "left", data, 64, true));
  EXPECT_CUDA(touch(second, "right", data + 64, 64, true));
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_CUDA(touch(first, "reader", data, 128, false));
  EXPECT_CUDA(touch(second, "reader", data, 128, false));
  EXPECT_CUDA(touch(second, "writer of other bytes", data + 128, 1, true));
  // Through a third stream.
  cudaStream_t third;
  EXPECT_CUDA(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA(cudaStreamWaitEvent(third, event, 0));
  EXPECT_CUDA(cudaEventRecord(event, third));
  EXPECT_CUDA(cudaStreamWaitEvent(second, event, 0));
  EXPECT_CUDA(touch(second, "writer", data, 128, true));
  EXPECT_CUDA(cudaStreamDestroy(third));
  // By the host, also if another thread waits.
  std::thread([&] { EXPECT_CUDA(cudaStreamSynchronize(second)); }).join();
  EXPECT_CUDA(touch(first, "writer", data, 128, true));
  // The default stream waits for streams that do not opt out, and they for it.
  cudaStream_t blocking;
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_CUDA(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
  EXPECT_CUDA(touch(blocking, "before", data, 1, true));
  EXPECT_CUDA(touch(nullptr, "default", data, 1, true));
  EXPECT_CUDA(touch(blocking, "after", data, 1, true));
  EXPECT_CUDA(cudaStreamDestroy(blocking));
}

TEST_F(Simulator, FindsWrongMemory) {
  uint8_t *freed;
  EXPECT_CUDA(cudaMalloc(reinterpret_cast<void **>(&freed), 16));
  EXPECT_CUDA(cudaFree(freed));
  EXPECT_EQ(cudaMemcpyAsync(host, freed, 16, cudaMemcpyDefault, first),
            cudaErrorInvalidValue);
  expectError({"a copy reads bytes [0, 16) of 16 on device 0", "is freed"});
  EXPECT_EQ(cudaFree(freed), cudaErrorInvalidValue);
  expectError({"freed twice"});
  EXPECT_EQ(cudaFree(data + 1), cudaErrorInvalidValue);
  expectError({"nobody allocated"});
  EXPECT_EQ(cudaMemcpyAsync(data, host, kBytes, cudaMemcpyDeviceToHost, first),
            cudaErrorInvalidValue);

  auto expectFatal = [&](const uint8_t *memory, int64_t bytes, int device,
                         const char *part) {
    EXPECT_CUDA(cudaSetDevice(device));
    EXPECT_CUDA(
        touch(device ? nullptr : first, "a kernel", memory, bytes, true));
    expectError({"a kernel writes", part});
    EXPECT_EQ(cudaStreamSynchronize(device ? nullptr : first),
              cudaErrorIllegalAddress);
    resetFaults();
    EXPECT_CUDA(cudaSetDevice(0));
  };
  uint8_t byte = 0;
  expectFatal(data, kBytes + 1, 0, "past the end");
  expectFatal(&byte, 1, 0, "memory of the host");
  expectFatal(freed, 1, 0, "which is freed");
  expectFatal(data, 1, 1, "but runs on device 1");
  // A kernel of another device than the current one.
  EXPECT_CUDA(cudaSetDevice(1));
  EXPECT_EQ(touch(first, "a kernel", data, 1, true),
            cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaSetDevice(0));
}

TEST_F(Simulator, FreshMemoryIsPoisoned) {
  EXPECT_CUDA(cudaMemcpy(host, data, kBytes, cudaMemcpyDeviceToHost));
  EXPECT_EQ(host[0], 0xff);
  EXPECT_EQ(host[kBytes - 1], 0xff);
}

TEST_F(Simulator, HostCannotReadTheDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(std::memcpy(host, data, 1), "");
}

TEST_F(Simulator, StreamOrderedMemory) {
  uint8_t *memory;
  EXPECT_CUDA(cudaMallocAsync(reinterpret_cast<void **>(&memory), 64, first));
  EXPECT_CUDA(touch(first, "writer", memory, 64, true));
  EXPECT_CUDA(touch(second, "reader", memory, 64, false));
  expectError({"reader", "writer"});
  EXPECT_CUDA(cudaFreeAsync(memory, first));
  // The reader does not come before.
  expectError({"race: cudaFreeAsync", "reader"});
  EXPECT_EQ(cudaMemcpyAsync(host, memory, 1, cudaMemcpyDefault, first),
            cudaErrorInvalidValue);
  expectError({"freed"});
}

TEST_F(Simulator, PageableMemory) {
  setDelay(300, 1);
  {
    // Read before the call returns.
    std::vector<uint8_t> source(kBytes, 7);
    EXPECT_CUDA(
        cudaMemcpyAsync(data, source.data(), kBytes, cudaMemcpyDefault, first));
    std::fill(source.begin(), source.end(), 8);
  }
  // Written before the call returns.
  std::vector<uint8_t> dest(kBytes);
  EXPECT_CUDA(cudaMemcpy2DAsync(dest.data(), 32, data, 16, 16, 32,
                                cudaMemcpyDeviceToHost, first));
  EXPECT_EQ(dest[15], 7);
  EXPECT_EQ(dest[16], 0);
  EXPECT_EQ(dest[32], 7);
  cudaPointerAttributes attributes;
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes, data + 3));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes, host));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes, dest.data()));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST_F(Simulator, Faults) {
  void *memory;
  setMemoryLimit(getAllocatedBytes(0) + 100);
  EXPECT_EQ(cudaMalloc(&memory, 101), cudaErrorMemoryAllocation);
  EXPECT_EQ(memory, nullptr);
  EXPECT_CUDA(cudaMalloc(&memory, 100));
  EXPECT_CUDA(cudaFree(memory));

  int64_t calls = getCallCount("cudaEventRecord");
  failCall("cudaEventRecord", 2, cudaErrorLaunchFailure);
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_EQ(cudaEventRecord(event, first), cudaErrorLaunchFailure);
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_EQ(getCallCount("cudaEventRecord"), calls + 3);

  failDevice(0, cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaMemsetAsync(data, 0, 1, first), cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaStreamSynchronize(first), cudaErrorECCUncorrectable);
  resetFaults();
  EXPECT_CUDA(cudaStreamSynchronize(first));
  EXPECT_EQ(getAllocatedBytes(0), 0);
  EXPECT_CUDA(cudaMalloc(reinterpret_cast<void **>(&data), kBytes));
  EXPECT_CUDA(cudaSetDevice(1));
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_STREQ(cudaGetErrorName(cudaErrorECCUncorrectable),
               "cudaErrorECCUncorrectable");
  EXPECT_EQ(cudaSetDevice(8), cudaErrorInvalidDevice);
  EXPECT_CUDA(cudaSetDevice(1));
}

TEST_F(Simulator, DestroyedHandles) {
  cudaStream_t stream;
  EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_CUDA(cudaStreamDestroy(stream));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  expectError({"stream that is destroyed"});
}

TEST_F(Simulator, Times) {
  cudaEvent_t begin, end;
  EXPECT_CUDA(cudaEventCreateWithFlags(&begin, cudaEventDefault));
  EXPECT_CUDA(cudaEventCreateWithFlags(&end, cudaEventDefault));
  float ms;
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end),
            cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaEventRecord(begin, first));
  EXPECT_CUDA(submit(first, {"sleep", {}, [] {
                               std::this_thread::sleep_for(
                                   std::chrono::milliseconds(2));
                             }}));
  EXPECT_CUDA(cudaEventRecord(end, first));
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
  EXPECT_CUDA(cudaEventSynchronize(end));
  EXPECT_CUDA(cudaEventElapsedTime(&ms, begin, end));
  EXPECT_GE(ms, 2);
  EXPECT_CUDA(cudaEventDestroy(begin));
  EXPECT_CUDA(cudaEventDestroy(end));
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

class Graphs : public Simulator {
protected:
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    EXPECT_CUDA(cudaStreamBeginCapture(first, mode));
  }
  cudaError_t end() {
    cudaGraph_t graph;
    cudaError_t error = cudaStreamEndCapture(first, &graph);
    EXPECT_EQ(error == cudaSuccess, graph != nullptr);
    if (graph) {
      EXPECT_CUDA(cudaGraphDestroy(graph));
    }
    return error;
  }
  cudaStreamCaptureStatus getStatus(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    EXPECT_CUDA(cudaStreamIsCapturing(stream, &status));
    return status;
  }
};

TEST_F(Graphs, Replay) {
  EXPECT_CUDA(cudaMemsetAsync(data, 0, kBytes, second));
  EXPECT_CUDA(cudaStreamSynchronize(second));
  auto add = [&](cudaStream_t stream, uint8_t *at) {
    return submit(stream,
                  {"add", {{at, 1, true}}, [=] { ++*zpp::simulated::at(at); }});
  };
  begin();
  EXPECT_CUDA(add(first, data));
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA(cudaStreamWaitEvent(second, event, 0));
  EXPECT_EQ(getStatus(second), cudaStreamCaptureStatusActive);
  EXPECT_CUDA(add(second, data + 1));
  EXPECT_CUDA(add(first, data + 2));
  EXPECT_CUDA(cudaEventRecord(event, second));
  EXPECT_CUDA(cudaStreamWaitEvent(first, event, 0));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  EXPECT_CUDA(cudaStreamEndCapture(first, &graph));
  EXPECT_EQ(getStatus(second), cudaStreamCaptureStatusNone);
  EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; ++i)
    EXPECT_CUDA(cudaGraphLaunch(exec, second));
  EXPECT_CUDA(
      cudaMemcpyAsync(host, data, kBytes, cudaMemcpyDeviceToHost, second));
  EXPECT_CUDA(cudaStreamSynchronize(second));
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_EQ(host[0] + host[1] + host[2], 9);
  // The event is of no use outside.
  EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(first, event, 0), cudaErrorCapturedEvent);
}

TEST_F(Graphs, Races) {
  begin();
  EXPECT_CUDA(touch(first, "writer", data, 1, true));
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA(cudaStreamWaitEvent(second, event, 0));
  EXPECT_CUDA(touch(second, "reader", data, 1, false));
  EXPECT_CUDA(touch(first, "other reader", data, 1, false));
  EXPECT_CUDA(touch(first, "other writer", data, 1, true));
  expectError({"race: other writer", "reader"});
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
}

TEST_F(Graphs, Isolation) {
  EXPECT_CUDA(cudaEventRecord(event, second));
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(first, event, 0),
            cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(getStatus(first), cudaStreamCaptureStatusInvalidated);
  EXPECT_EQ(touch(first, "a kernel", data, 1, true),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(getStatus(first), cudaStreamCaptureStatusNone);
}

TEST_F(Graphs, UnsafeCalls) {
  EXPECT_CUDA(cudaEventRecord(event, second));
  EXPECT_CUDA(cudaEventSynchronize(event));
  begin();
  // In any thread, unless it has relaxed its capture mode.
  std::thread([&] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
    EXPECT_CUDA(cudaEventQuery(event));
  }).join();
  EXPECT_EQ(getStatus(first), cudaStreamCaptureStatusActive);
  std::thread([&] {
    EXPECT_EQ(cudaEventQuery(event), cudaErrorStreamCaptureUnsupported);
  }).join();
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);

  begin(cudaStreamCaptureModeThreadLocal);
  std::thread([&] { EXPECT_CUDA(cudaEventQuery(event)); }).join();
  void *memory;
  EXPECT_EQ(cudaMalloc(&memory, 1), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);

  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaStreamSynchronize(first), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

TEST_F(Simulator, Kernels) {
  SliceMap map;
  map.factors = {2};
  map.chunkFactors = {0};
  map.unit = 40;
  map.extent = 80;
  int64_t stride = 64 + 16;
  ASSERT_EQ(getChunkLayout(40, WireFormat::I8, 32).chunkBytes, 64);
  float values[80];
  for (int i = 0; i < 80; ++i)
    values[i] = static_cast<float>(i % 40);
  EXPECT_CUDA(
      cudaMemcpyAsync(data, values, sizeof(values), cudaMemcpyDefault, first));
  kernels::Chunks chunks{data + 512,     2,  stride,
                         WireFormat::I8, 32, ElementType::F32};
  EXPECT_CUDA(kernels::quantize({data, ElementType::F32}, map, chunks, first));
  EXPECT_EQ(kernels::quantize({data + 2, ElementType::F32}, map, chunks, first),
            cudaErrorMisalignedAddress);
  chunks.block = 48;
  EXPECT_EQ(kernels::quantize({data, ElementType::F32}, map, chunks, first),
            cudaErrorInvalidValue);
  // Slice order does not change types.
  chunks.format = WireFormat::None;
  chunks.type = ElementType::BF16;
  EXPECT_EQ(kernels::quantize({data, ElementType::F32}, map, chunks, first),
            cudaErrorInvalidValue);
  // Between the chunks nothing is written: others may write there.
  EXPECT_CUDA(touch(second, "neighbor", data + 512 + 64, 16, true));
  // The input is read.
  EXPECT_CUDA(touch(second, "input", data + 316, 4, true));
  expectError({"input", "quantize"});
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_CUDA(cudaMemcpy(host, data + 512, 144, cudaMemcpyDefault));
  EXPECT_EQ(std::memcmp(host, host + stride, 64), 0);
  EXPECT_EQ(host[39], 126);
  EXPECT_EQ(host[64], 0xff);
}

TEST_F(Simulator, FirstKernelWaits) {
  EXPECT_CUDA(cudaSetDevice(5));
  std::atomic<bool> isDone{false};
  EXPECT_CUDA(submit(nullptr, {"slow", {}, [&] {
                                 std::this_thread::sleep_for(
                                     std::chrono::milliseconds(20));
                                 isDone = true;
                               }}));
  EXPECT_CUDA(kernels::load());
  EXPECT_TRUE(isDone);
}

} // namespace
