//===- Decision.h - A value, or why there is none ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A pass decides first and rewrites then. What it decides is a Decision: the
// plan of a rewrite, or the reason why something is left as it was, which goes
// to the user's remarks and report.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_DECISION_H
#define ZPP_SUPPORT_DECISION_H

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace zpp {

/// The reason why something is left as it was, in words on which the writer of
/// the step can act: lower case, without a full stop.
class LeftAlone {
public:
  explicit LeftAlone(std::string reason) : reason(std::move(reason)) {
    assert(!this->reason.empty() && "expected a reason");
  }
  /// The reason that something takes `usec` on the links of the step, and no
  /// less when it is rewritten, which is `how`, such as "in hops".
  static LeftAlone
  onLinks(double usec, const std::string &how, double rewrittenUsec,
          const std::string &begin = "on these links it takes ") {
    LeftAlone why(begin + std::to_string(static_cast<long long>(usec)) +
                  " usec, " + how + " " +
                  std::to_string(static_cast<long long>(rewrittenUsec)));
    why.slower = true;
    return why;
  }

  const std::string &getReason() const { return reason; }
  /// True if it could be done, and would not be faster.
  bool isSlower() const { return slower; }

private:
  std::string reason;
  bool slower = false;
};

/// The value of a decision that has only a yes.
struct Yes {};

/// A value, or the reason why there is none. A function that returns one
/// changes nothing.
template <typename T = Yes> class [[nodiscard]] Decision {
public:
  /*implicit*/ Decision(T value) : content(std::move(value)) {}
  /*implicit*/ Decision(LeftAlone why) : content(std::move(why)) {}

  explicit operator bool() const { return std::holds_alternative<T>(content); }
  T &operator*() { return std::get<T>(content); }
  const T &operator*() const { return std::get<T>(content); }
  T *operator->() { return &**this; }
  const T *operator->() const { return &**this; }

  /// Only where there is no value.
  const LeftAlone &getLeftAlone() const { return std::get<LeftAlone>(content); }
  const std::string &getReason() const { return getLeftAlone().getReason(); }

private:
  std::variant<T, LeftAlone> content;
};

} // namespace zpp

#endif // ZPP_SUPPORT_DECISION_H
