//===- Control.h - How ranks of several processes keep together -*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How ranks find each other, agree on the next exchange, and learn of failures.
// Tensor data moves by other means. Every rank has a TCP connection to a server
// in the process of rank 0, which compares what the ranks announce.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CONTROL_H
#define ZPP_LIB_RUNTIME_CONTROL_H

#include "Status.h"

#include <string>

namespace zpp::rt {

/// The reason why a rank must give up.
struct Failure {
  zpp_rt_status code = ZPP_RT_OK;
  /// The exchange in which the rank waits, or getPlace().
  std::string title;
  std::string message;

  bool ok() const { return code == ZPP_RT_OK; }
  /// "all_to_all 'x' along gpu: expected 4 ranks, but rank 3 left"
  Status getStatus() const {
    return {code, title.empty() ? message : title + ": " + message};
  }
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CONTROL_H
