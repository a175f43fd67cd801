//===- NvtxRange.h - Names for Nsight Systems -------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CUDA_NVTXRANGE_H
#define ZPP_LIB_RUNTIME_CUDA_NVTXRANGE_H

#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <string>

namespace zpp::rt {

/// A range of NVTX on this thread, which profilers project onto what is queued
/// in it. NVTX loads what a tool names in NVTX_INJECTION64_PATH; without a tool
/// a range costs a look at a pointer.
class NvtxRange {
public:
  /// `bytes`, as the payload: those that the operation reads.
  NvtxRange(const std::string &label, int64_t bytes) {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = label.c_str();
    attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    attributes.payload.llValue = bytes;
    nvtxDomainRangePushEx(getDomain(), &attributes);
  }
  ~NvtxRange() { nvtxDomainRangePop(getDomain()); }
  NvtxRange(const NvtxRange &) = delete;
  NvtxRange &operator=(const NvtxRange &) = delete;

private:
  static nvtxDomainHandle_t getDomain() {
    static nvtxDomainHandle_t domain = nvtxDomainCreateA("zpp");
    return domain;
  }
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CUDA_NVTXRANGE_H
