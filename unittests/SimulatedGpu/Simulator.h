//===- Simulator.h - A simulated CUDA device --------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For tests only: the CUDA runtime's functions, the launchers of zpp::kernels
// and NCCL on the CPU, so that the logic of the cuda back end is tested without
// a GPU. A stream is a thread with a queue. Device memory is host memory under
// two addresses: the one that programs see cannot be dereferenced by the host.
//
// Every queued task declares the bytes that it reads and writes. Vector clocks
// over streams, events and host synchronization tell whether two tasks are
// ordered; two that touch the same byte and are not are reported, whatever
// order they happened to run in. So is all use of memory that is freed, of
// another device, or the host's. One thing passes for ordered that is not: work
// that another thread has waited for, because threads talk to each other in
// ways that nobody sees here.
//
//   ZPP_SIMULATED_GPUS        devices (default 8)
//   ZPP_SIMULATED_DELAY_USEC  every task is late by a random time up to this
//   ZPP_SIMULATED_SEED        of these times
//
// What follows is for tests, and for what simulates kernels and NCCL.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_UNITTESTS_SIMULATEDGPU_SIMULATOR_H
#define ZPP_UNITTESTS_SIMULATEDGPU_SIMULATOR_H

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace zpp::simulated {

//===----------------------------------------------------------------------===//
// What went wrong
//===----------------------------------------------------------------------===//

/// Everything a program did that a GPU would not forgive, since the last call.
/// A process that ends with errors which nobody took ends with status 86.
std::vector<std::string> takeErrors();
void reportError(const std::string &message);

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

struct Access {
  const void *data;
  int64_t bytes;
  bool isWrite;
};

struct Task {
  /// What reports call it.
  std::string name;
  std::vector<Access> accesses;
  std::function<void()> run;
  /// Kernels see their device and pinned memory, copies see everything.
  enum Kind { Kernel, Copy } kind = Kernel;
};

/// Queues a task as a kernel launch does.
cudaError_t submit(cudaStream_t stream, Task task);

/// Kernels get to a device with the first of them, which waits for all that is
/// under way there.
void loadKernels();

/// Where a task finds what a program calls `data`. The host's memory is where
/// the program says.
uint8_t *at(void *data);
const uint8_t *at(const void *data);

/// Whether the device has failed. Tasks that wait for others end then.
bool hasFailed(int device);

//===----------------------------------------------------------------------===//
// Faults
//===----------------------------------------------------------------------===//

/// The n-th call of a function from now on, n >= 1, returns `error` and does
/// nothing. Counts calls with `device` current; -1: with any.
void failCall(const std::string &function, int64_t n, int error,
              int device = -1);
/// Calls of a function so far.
int64_t getCallCount(const std::string &function);
/// Bytes that can be allocated on each device.
void setMemoryLimit(int64_t bytes);
/// Bytes that are allocated.
int64_t getAllocatedBytes(int device);
/// The device does nothing from now on, and all calls return `error`.
void failDevice(int device, cudaError_t error);
/// What ncclCommGetAsyncError says, from now on, of the communicators of a
/// device; 0: nothing special.
void setNcclError(int device, int result);
/// Whether new communicators are never complete.
void setNcclInitHangs(bool hangs);
void setDelay(int64_t usec, uint64_t seed);
/// The devices' clock goes forward, as if nothing was done for so long.
void advanceClock(std::chrono::nanoseconds duration);
/// No faults, no delay but what the environment says.
void resetFaults();

//===----------------------------------------------------------------------===//
// For simulated NCCL
//===----------------------------------------------------------------------===//

/// Counts a call; returns the error that it has to fail with, or 0.
int countCall(const char *function);
int getNcclError(int device);
bool ncclInitHangs();
/// Sleeps for a random part of the delay.
void delay();

} // namespace zpp::simulated

#endif // ZPP_UNITTESTS_SIMULATEDGPU_SIMULATOR_H
