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
// another device, or the host's. There is one exception: work that another
// thread has waited for counts as ordered, because threads communicate in ways
// that the simulator does not see.
//
//   ZPP_SIMULATED_GPUS        devices (default 8)
//   ZPP_SIMULATED_DELAY_USEC  every task is late by a random time up to this
//   ZPP_SIMULATED_SEED        of these times
//
// The following is for tests, and for the simulated kernels and NCCL.
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

/// All errors of the program since the last call. A process that ends with
/// errors that were not taken has exit status 86.
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
  /// The name in reports.
  std::string name;
  std::vector<Access> accesses;
  std::function<void()> run;
  /// Kernels see their device and pinned memory, copies see everything.
  enum Kind { Kernel, Copy } kind = Kernel;
};

/// Queues a task as a kernel launch does.
cudaError_t submit(cudaStream_t stream, Task task);

/// Loads the kernels to the current device. Otherwise the first launch does so,
/// and waits for all work on the device.
void loadKernels();

/// The address at which a task accesses what a program calls `data`. Host
/// memory has only one address.
uint8_t *at(void *data);
const uint8_t *at(const void *data);

/// Whether the device has failed. Tasks that wait for others end then.
bool hasFailed(int device);

//===----------------------------------------------------------------------===//
// Faults
//===----------------------------------------------------------------------===//

/// Makes the n-th call of a function from now on, n >= 1, return `error` and do
/// nothing. Counts the calls while `device` is current; -1: any device.
void failCall(const std::string &function, int64_t n, int error,
              int device = -1);
/// Calls of a function so far.
int64_t getCallCount(const std::string &function);
/// Bytes that can be allocated on each device.
void setMemoryLimit(int64_t bytes);
/// Bytes that are allocated.
int64_t getAllocatedBytes(int device);
/// From now on the device does nothing, and all calls return `error`.
void failDevice(int device, cudaError_t error);
/// The result of ncclCommGetAsyncError from now on for the communicators of a
/// device; 0 means no error.
void setNcclError(int device, int result);
/// Whether new communicators are never complete.
void setNcclInitHangs(bool hangs);
void setDelay(int64_t usec, uint64_t seed);
/// The devices' clock goes forward, as if nothing was done for so long.
void advanceClock(std::chrono::nanoseconds duration);
/// Removes all faults, and sets the delay to that of the environment.
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
