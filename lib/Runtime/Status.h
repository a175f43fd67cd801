//===- Status.h - Code and message of a failure -----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_STATUS_H
#define ZPP_LIB_RUNTIME_STATUS_H

#include "zpp/Runtime/zpp_rt.h"

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace zpp::rt {

/// The result of an entry point, and the message that goes with it.
struct [[nodiscard]] Status {
  zpp_rt_status code = ZPP_RT_OK;
  std::string message;

  Status() = default;
  Status(zpp_rt_status code, std::string message)
      : code(code), message(std::move(message)) {}
  bool ok() const { return code == ZPP_RT_OK; }
};

inline Status invalid(std::string message) {
  return {ZPP_RT_INVALID_ARGUMENT, std::move(message)};
}

inline std::string quote(const std::string &text) { return "'" + text + "'"; }

/// "expected WHAT, but got GOT"
inline std::string expected(const std::string &what, const std::string &got) {
  return "expected " + what + ", but got " + got;
}
inline std::string expected(const std::string &what, int64_t got) {
  return expected(what, std::to_string(got));
}

/// The error of free() for memory that is not from alloc().
inline Status unknownMemory() {
  return invalid(expected("memory of alloc", "other memory"));
}

/// Calls `function`, which returns a Status; no exception gets out.
template <typename Function> Status guarded(const Function &function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc &) {
    return {ZPP_RT_OUT_OF_MEMORY, "out of memory"};
  } catch (const std::exception &error) {
    return {ZPP_RT_SYSTEM_ERROR, error.what()};
  }
}

/// The same for functions without a rank that keeps the message: copies it to
/// the caller.
template <typename Function>
zpp_rt_status guarded(char *message, size_t messageBytes,
                      const Function &function) noexcept {
  Status status = guarded(function);
  if (message && messageBytes > 0)
    std::snprintf(message, messageBytes, "%s", status.message.c_str());
  return status.code;
}

/// "rank 3", or "ranks 3, 5"
inline std::string describeRanks(const std::vector<int64_t> &ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

/// The announcement of a rank about an exchange.
struct Claim {
  int64_t rank;
  const std::string &title;
  std::string text;
};

/// The error where two ranks of a group disagree about an exchange.
inline Status mismatch(const Claim &first, const Claim &other) {
  return {ZPP_RT_MISMATCH,
          expected(first.text + " on all ranks, as on rank " +
                       std::to_string(first.rank) + " in " + first.title,
                   other.text + " on rank " + std::to_string(other.rank) +
                       " in " + other.title)};
}

} // namespace zpp::rt

/// Returns from the function if the expression is a failure.
#define ZPP_RT_TRY(...)                                                        \
  do {                                                                         \
    if (::zpp::rt::Status status_ = (__VA_ARGS__); !status_.ok())              \
      return status_;                                                          \
  } while (false)

#endif // ZPP_LIB_RUNTIME_STATUS_H
