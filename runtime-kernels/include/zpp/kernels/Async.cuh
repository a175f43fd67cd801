//===- Async.cuh - Copies to shared memory ----------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Copies that travel while threads compute.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_ASYNC_CUH
#define ZPP_KERNELS_ASYNC_CUH

#include <cstdint>

namespace zpp::kernels {

/// An address in shared memory, as instructions take it.
__device__ __forceinline__ uint32_t sharedAddress(const void *pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
template <int bytes>
__device__ __forceinline__ void copyAsync(uint32_t shared, const void *global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared),
               "l"(global), "n"(bytes)
               : "memory");
}
__device__ __forceinline__ void commitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `pending` of the thread's groups are under way.
template <int pending> __device__ __forceinline__ void waitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
__device__ __forceinline__ uint4 loadShared16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ uint32_t loadShared4(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

/// Hides how `value` was computed, so that it stays in a register: the compiler
/// would compute it anew for each item. All threads of the warp must take part.
__device__ __forceinline__ void keepInRegister(uint32_t &value) {
  value = __shfl_sync(0xffffffffu, value, threadIdx.x % 32);
}
__device__ __forceinline__ void keepInRegister(int64_t &value) {
  value =
      __shfl_sync(0xffffffffu, static_cast<long long>(value), threadIdx.x % 32);
}

} // namespace zpp::kernels

#endif // ZPP_KERNELS_ASYNC_CUH
