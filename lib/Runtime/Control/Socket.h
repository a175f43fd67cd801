//===- Socket.h - TCP connections that do not block -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_SOCKET_H
#define ZPP_LIB_RUNTIME_SOCKET_H

#include "Status.h"

#include <chrono>
#include <string>
#include <utility>

namespace zpp::rt {

using Clock = std::chrono::steady_clock;

/// A file descriptor, closed with its owner.
class Descriptor {
public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor &&other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }

  int get() const { return fd; }
  explicit operator bool() const { return fd >= 0; }
  void reset();

private:
  int fd = -1;
};

/// "HOST:PORT", an IPv6 address in brackets.
struct Endpoint {
  std::string host;
  std::string port;

  static Status parse(const std::string &text, Endpoint &endpoint);
  std::string str() const;
  /// Whether the host is a number.
  bool isAddress() const;
};

/// Listens on `endpoint`. Its host must be, or resolve to, an address of this
/// host. Sets the port to the one that is used, and `isLocal` to whether only
/// this host can connect.
Status listenOn(Endpoint &endpoint, Descriptor &listener, bool &isLocal);

enum class IoResult {
  Done,
  /// Try again when poll() returns.
  Blocked,
  /// Closed by the other side, or broken.
  Ended,
  /// The process has no descriptors left.
  Exhausted
};

IoResult acceptFrom(const Descriptor &listener, Descriptor &connection);

/// Tries all addresses of `endpoint` until one answers. If none has when
/// `deadline` has passed, `error` says why.
bool connectTo(const Endpoint &endpoint, Clock::time_point deadline,
               Descriptor &connection, std::string &error);

/// Appends up to 64 KiB to `data`.
IoResult receive(const Descriptor &connection, std::string &data);

/// Sends `data` from position `sent` on, and advances `sent`.
IoResult send(const Descriptor &connection, const std::string &data,
              size_t &sent);

/// Ends a poll() of another thread.
class WakeUp {
public:
  Status create();
  /// Returns the descriptor to poll() for input.
  int get() const { return event.get(); }
  void signal();
  void clear();

private:
  Descriptor event;
};

/// Time until `deadline` for poll(), at least 0; rounded up.
int getPollTimeout(Clock::time_point deadline);

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_SOCKET_H
