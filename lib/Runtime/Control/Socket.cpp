//===- Socket.cpp - TCP connections that do not block ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Socket.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>

using namespace zpp::rt;

static std::string describe(int error) {
  return std::generic_category().message(error);
}

void Descriptor::reset() {
  if (fd >= 0)
    ::close(std::exchange(fd, -1));
}

/// Processes that this one starts must not hold connections open.
static constexpr int kSocketFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;

static void setOption(const Descriptor &socket, int level, int name,
                      int value) {
  ::setsockopt(socket.get(), level, name, &value, sizeof(value));
}

/// A host that has vanished is noticed within half a minute, whether or not
/// there is something to send.
static void prepareConnection(const Descriptor &connection) {
  setOption(connection, IPPROTO_TCP, TCP_NODELAY, 1);
  setOption(connection, SOL_SOCKET, SO_KEEPALIVE, 1);
  setOption(connection, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  setOption(connection, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  setOption(connection, IPPROTO_TCP, TCP_KEEPCNT, 4);
  setOption(connection, IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

//===----------------------------------------------------------------------===//
// Endpoint
//===----------------------------------------------------------------------===//

Status Endpoint::parse(const std::string &text, Endpoint &endpoint) {
  auto malformed = [&] { return invalid(expected("HOST:PORT", quote(text))); };
  size_t colon = text.rfind(':');
  if (colon == std::string::npos)
    return malformed();
  std::string host = text.substr(0, colon), port = text.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find_first_of("[]:") != std::string::npos)
    return malformed();
  bool isNumber = !port.empty() && port.size() <= 5 &&
                  port.find_first_not_of("0123456789") == std::string::npos;
  if (host.empty() || !isNumber || std::stoi(port) > 65535)
    return malformed();
  endpoint = {std::move(host), std::move(port)};
  return {};
}

std::string Endpoint::str() const {
  bool isIpv6 = host.find(':') != std::string::npos;
  return (isIpv6 ? "[" + host + "]" : host) + ":" + port;
}

bool Endpoint::isAddress() const {
  in6_addr address;
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

namespace {
struct FreeAddresses {
  void operator()(addrinfo *addresses) const { ::freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;
} // namespace

/// The addresses of `endpoint`; null with an error.
static Addresses resolve(const Endpoint &endpoint, std::string &error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo *addresses = nullptr;
  int result = ::getaddrinfo(endpoint.host.c_str(), endpoint.port.c_str(),
                             &hints, &addresses);
  if (result != 0)
    error = result == EAI_SYSTEM ? describe(errno)
                                 : std::string(gai_strerror(result));
  return Addresses(result == 0 ? addresses : nullptr);
}

//===----------------------------------------------------------------------===//
// Listen and connect
//===----------------------------------------------------------------------===//

static Descriptor listenOn(const addrinfo &address, std::string &error) {
  Descriptor listener(::socket(address.ai_family,
                               address.ai_socktype | kSocketFlags,
                               address.ai_protocol));
  if (listener) {
    setOption(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    if (address.ai_family == AF_INET6)
      setOption(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (::bind(listener.get(), address.ai_addr, address.ai_addrlen) == 0 &&
        ::listen(listener.get(), SOMAXCONN) == 0)
      return listener;
  }
  error = describe(errno);
  return Descriptor();
}

static bool isLoopback(const sockaddr &address) {
  if (address.sa_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in &>(address)
                     .sin_addr.s_addr) >>
               24 ==
           127;
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(
             &reinterpret_cast<const sockaddr_in6 &>(address).sin6_addr);
}

Status zpp::rt::listenOn(Endpoint &endpoint, Descriptor &listener,
                         bool &isLocal) {
  std::string error;
  Addresses addresses = resolve(endpoint, error);
  // Others can reach what is not a loopback address.
  for (bool mayBeLocal : {false, true})
    for (const addrinfo *address = addresses.get(); address && !listener;
         address = address->ai_next)
      if (isLoopback(*address->ai_addr) == mayBeLocal)
        listener = ::listenOn(*address, error);
  sockaddr_storage bound{};
  auto *boundAddress = reinterpret_cast<sockaddr *>(&bound);
  socklen_t size = sizeof(bound);
  if (listener && ::getsockname(listener.get(), boundAddress, &size)) {
    error = describe(errno);
    listener.reset();
  }
  if (!listener)
    return {ZPP_RT_SYSTEM_ERROR,
            expected("to listen on " + endpoint.str(), quote(error))};
  isLocal = isLoopback(*boundAddress);
  endpoint.port = std::to_string(
      ntohs(bound.ss_family == AF_INET6
                ? reinterpret_cast<const sockaddr_in6 &>(bound).sin6_port
                : reinterpret_cast<const sockaddr_in &>(bound).sin_port));
  return {};
}

IoResult zpp::rt::acceptFrom(const Descriptor &listener,
                             Descriptor &connection) {
  int fd = ::accept4(listener.get(), nullptr, nullptr, kSocketFlags);
  int error = errno;
  connection = Descriptor(fd);
  if (connection) {
    prepareConnection(connection);
    return IoResult::Done;
  }
  switch (error) {
  case EMFILE:
  case ENFILE:
  case ENOBUFS:
  case ENOMEM:
    return IoResult::Exhausted;
  case EAGAIN:
    return IoResult::Blocked;
  default:
    // The client has gone already. There may be others.
    return IoResult::Ended;
  }
}

/// Whether a port of this host on which nobody listens was connected to itself.
/// The server could then never listen there.
static bool isConnectedToItself(const Descriptor &connection) {
  sockaddr_storage here{}, there{};
  socklen_t hereSize = sizeof(here), thereSize = sizeof(there);
  return ::getsockname(connection.get(), reinterpret_cast<sockaddr *>(&here),
                       &hereSize) == 0 &&
         ::getpeername(connection.get(), reinterpret_cast<sockaddr *>(&there),
                       &thereSize) == 0 &&
         hereSize == thereSize && std::memcmp(&here, &there, hereSize) == 0;
}

static Descriptor connectTo(const addrinfo &address, Clock::time_point deadline,
                            std::string &error) {
  Descriptor connection(::socket(address.ai_family,
                                 address.ai_socktype | kSocketFlags,
                                 address.ai_protocol));
  if (!connection) {
    error = describe(errno);
    return connection;
  }
  prepareConnection(connection);
  int result =
      ::connect(connection.get(), address.ai_addr, address.ai_addrlen) == 0
          ? 0
          : errno;
  if (result == EINPROGRESS || result == EINTR) {
    pollfd entry{connection.get(), POLLOUT, 0};
    int polled;
    do
      polled = ::poll(&entry, 1, getPollTimeout(deadline));
    while (polled < 0 && errno == EINTR);
    socklen_t size = sizeof(result);
    if (polled == 0)
      result = ETIMEDOUT;
    else if (polled < 0 || ::getsockopt(connection.get(), SOL_SOCKET, SO_ERROR,
                                        &result, &size) != 0)
      result = errno;
  }
  if (result == 0 && isConnectedToItself(connection))
    result = ECONNREFUSED;
  if (result != 0) {
    error = describe(result);
    connection.reset();
  }
  return connection;
}

bool zpp::rt::connectTo(const Endpoint &endpoint, Clock::time_point deadline,
                        Descriptor &connection, std::string &error) {
  using namespace std::chrono_literals;
  // An address that does not answer must not use up the time of the others.
  constexpr auto kAttempt = 5s;
  constexpr auto kLongestPause = 250ms;
  for (auto pause = 5ms;; pause = std::min(2 * pause, kLongestPause)) {
    Addresses addresses = resolve(endpoint, error);
    for (const addrinfo *address = addresses.get(); address;
         address = address->ai_next) {
      connection = ::connectTo(
          *address, std::min(deadline, Clock::now() + kAttempt), error);
      if (connection)
        return true;
    }
    if (Clock::now() + pause >= deadline)
      return false;
    std::this_thread::sleep_for(pause);
  }
}

//===----------------------------------------------------------------------===//
// Transfer
//===----------------------------------------------------------------------===//

static IoResult classify(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR
             ? IoResult::Blocked
             : IoResult::Ended;
}

IoResult zpp::rt::receive(const Descriptor &connection, std::string &data) {
  char buffer[1 << 16];
  ssize_t size = ::recv(connection.get(), buffer, sizeof(buffer), 0);
  if (size < 0)
    return classify(errno);
  data.append(buffer, size);
  return size == 0 ? IoResult::Ended : IoResult::Done;
}

IoResult zpp::rt::send(const Descriptor &connection, const std::string &data,
                       size_t &sent) {
  while (sent < data.size()) {
    ssize_t size = ::send(connection.get(), data.data() + sent,
                          data.size() - sent, MSG_NOSIGNAL);
    if (size < 0)
      return classify(errno);
    sent += size;
  }
  return IoResult::Done;
}

//===----------------------------------------------------------------------===//
// Poll
//===----------------------------------------------------------------------===//

Status WakeUp::create() {
  event = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event)
    return {ZPP_RT_SYSTEM_ERROR,
            expected("an eventfd", quote(describe(errno)))};
  return {};
}

void WakeUp::signal() { ::eventfd_write(event.get(), 1); }

void WakeUp::clear() {
  eventfd_t count;
  ::eventfd_read(event.get(), &count);
}

int zpp::rt::getPollTimeout(Clock::time_point deadline) {
  using namespace std::chrono;
  int64_t left = ceil<milliseconds>(deadline - Clock::now()).count();
  return std::clamp<int64_t>(left, 0, 1'000'000);
}
