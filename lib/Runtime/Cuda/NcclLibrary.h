//===- NcclLibrary.h - NCCL, loaded when it is needed -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// libzpp_rt does not link NCCL: it must load on machines without NCCL, and use
// the NCCL that a framework has already loaded.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_NCCLLIBRARY_H
#define ZPP_LIB_RUNTIME_NCCLLIBRARY_H

#include "Status.h"

#include <nccl.h>

#include <string>

/// The functions of NCCL that are called; the last two only by Plain.
#define ZPP_NCCL_FUNCTIONS(X)                                                  \
  X(ncclGetVersion)                                                            \
  X(ncclGetUniqueId)                                                           \
  X(ncclGetErrorString)                                                        \
  X(ncclGetLastError)                                                          \
  X(ncclCommInitRankConfig)                                                    \
  X(ncclCommSplit)                                                             \
  X(ncclCommGetAsyncError)                                                     \
  X(ncclCommAbort)                                                             \
  X(ncclCommDestroy)                                                           \
  X(ncclGroupStart)                                                            \
  X(ncclGroupEnd)                                                              \
  X(ncclSend)                                                                  \
  X(ncclRecv)                                                                  \
  X(ncclAllGather)                                                             \
  X(ncclReduceScatter)                                                         \
  X(ncclAllReduce)

namespace zpp::rt {

/// The functions under their names in nccl.h, and where they come from.
struct NcclLibrary {
#define ZPP_NCCL_MEMBER(NAME) decltype(&::NAME) NAME = nullptr;
  ZPP_NCCL_FUNCTIONS(ZPP_NCCL_MEMBER)
#undef ZPP_NCCL_MEMBER

  /// NCCL_VERSION_CODE of the library, which may differ from the header's.
  int version = 0;
  std::string path;
};

/// Loads NCCL into `library`, once in a process; it stays loaded. Takes the
/// file that the environment variable ZPP_NCCL_LIBRARY names, or else the first
/// of: the NCCL that the process has loaded already, the system's, the one that
/// zpp was built with. Any thread may call it.
Status loadNccl(const NcclLibrary *&library);

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_NCCLLIBRARY_H
