//===- FakeNccl.cpp - Libraries that look like NCCL to the loader ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every function by its name, none that works: FAKE_NCCL_VERSION is what
// ncclGetVersion says, FAKE_NCCL_PART leaves two out.
//
//===----------------------------------------------------------------------===//

#define FAKE_NCCL_FUNCTION(NAME)                                               \
  extern "C" __attribute__((visibility("default"))) int NAME() { return 1; }

extern "C" __attribute__((visibility("default"))) int
ncclGetVersion(int *version) {
  *version = FAKE_NCCL_VERSION;
  return 0;
}

FAKE_NCCL_FUNCTION(ncclGetUniqueId)
FAKE_NCCL_FUNCTION(ncclGetErrorString)
FAKE_NCCL_FUNCTION(ncclGetLastError)
FAKE_NCCL_FUNCTION(ncclCommInitRankConfig)
FAKE_NCCL_FUNCTION(ncclCommGetAsyncError)
FAKE_NCCL_FUNCTION(ncclCommAbort)
FAKE_NCCL_FUNCTION(ncclCommDestroy)
FAKE_NCCL_FUNCTION(ncclGroupStart)
FAKE_NCCL_FUNCTION(ncclGroupEnd)
FAKE_NCCL_FUNCTION(ncclSend)
FAKE_NCCL_FUNCTION(ncclRecv)
FAKE_NCCL_FUNCTION(ncclReduceScatter)
FAKE_NCCL_FUNCTION(ncclAllReduce)
#ifndef FAKE_NCCL_PART
FAKE_NCCL_FUNCTION(ncclCommSplit)
FAKE_NCCL_FUNCTION(ncclAllGather)
#endif
