//===- Status.h - Code and message of a failure -----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_STATUS_H
#define ZPP_LIB_RUNTIME_STATUS_H

#include "zpp/Runtime/zpp_rt.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
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

/// The error where ranks, of so many that are expected, left or were lost.
enum class Loss { Left, Lost };
inline Status getLoss(size_t numExpected, const std::vector<int64_t> &gone,
                      Loss loss) {
  const char *how = loss == Loss::Left ? "left"
                    : gone.size() == 1 ? "was lost"
                                       : "were lost";
  return {ZPP_RT_RANK_LOST, "expected " + std::to_string(numExpected) +
                                " ranks, but " + describeRanks(gone) + " " +
                                how};
}

/// The error where ranks have not come in time.
inline Status getTimeout(size_t numExpected, std::chrono::microseconds limit,
                         const std::vector<int64_t> &missing) {
  return {ZPP_RT_TIMEOUT, "expected " + std::to_string(numExpected) +
                              " ranks within " + std::to_string(limit.count()) +
                              " usec, but " + describeRanks(missing) +
                              " did not arrive"};
}

/// The announcement of a rank about an exchange.
struct Claim {
  int64_t rank;
  std::string_view title;
  std::string_view kind;
  int64_t chunkBytes;
};

/// Returns an error if two ranks of a group disagree about an exchange.
inline Status compare(const Claim &first, const Claim &other) {
  auto expect = [&](const std::string &here, const std::string &there) {
    auto place = [](const Claim &claim) {
      return " on rank " + std::to_string(claim.rank) + " in " +
             std::string(claim.title);
    };
    return Status(ZPP_RT_MISMATCH,
                  expected(here + " on all ranks, as" + place(first),
                           there + place(other)));
  };
  if (first.kind != other.kind)
    return expect(std::string(first.kind), std::string(other.kind));
  if (first.chunkBytes != other.chunkBytes)
    return expect("chunks of " + std::to_string(first.chunkBytes) + " bytes",
                  std::to_string(other.chunkBytes));
  return {};
}

} // namespace zpp::rt

/// Returns from the function if the expression is a failure.
#define ZPP_RT_TRY(...)                                                        \
  do {                                                                         \
    if (::zpp::rt::Status status_ = (__VA_ARGS__); !status_.ok())              \
      return status_;                                                          \
  } while (false)

#endif // ZPP_LIB_RUNTIME_STATUS_H
