//===- ControlTest.cpp - Ranks that find, follow and lose each other ------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks with real connections. They are threads, or processes if they die.
// ControlLedgerTest checks what exactly each rank is told.
//
//===----------------------------------------------------------------------===//

#include "Control/ControlClient.h"
#include "Control/ControlServer.h"
#include "Control/ControlWire.h"
#include "Control/Handshake.h"
#include "Control/Hmac.h"
#include "Control/Socket.h"
#include "gtest/gtest.h"

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <poll.h>
#include <random>
#include <set>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace zpp::rt;
using namespace std::chrono_literals;

namespace {

using Usec = std::chrono::microseconds;
using Members = std::vector<int64_t>;

constexpr Usec kSoon = 400ms;
/// A time limit that is reached only if the test fails.
constexpr Usec kLate = 120s;
const char *const kGreeting = "gpu:4, interface 2";
const char *const kToken = "a token for this test";

Members getAll(int64_t numRanks) {
  Members members(numRanks);
  for (int64_t rank = 0; rank < numRanks; ++rank)
    members[rank] = rank;
  return members;
}

ControlClient::Options makeOptions(const std::string &endpoint, int64_t rank,
                                   int64_t numRanks, Usec timeLimit = kLate) {
  return {endpoint, rank, numRanks, kGreeting, kToken, timeLimit, nullptr};
}

std::unique_ptr<ControlServer>
makeServer(int64_t numRanks, Usec timeLimit = kLate,
           const std::string &endpoint = "127.0.0.1:0") {
  std::unique_ptr<ControlServer> server;
  Status status = ControlServer::create(
      {endpoint, numRanks, timeLimit, kGreeting, kToken}, server);
  EXPECT_TRUE(status.ok()) << status.message;
  return server;
}

/// A port at which nobody else listens: the address is this process's own.
std::string getFreeEndpoint() {
  int64_t id = getpid();
  std::string address = "127";
  for (int64_t shift : {16, 8, 0})
    address += "." + std::to_string(id >> shift & 0xff);
  return makeServer(1, kLate, address + ":0")->getEndpoint();
}

/// A rank, and what it was told.
struct Rank {
  Status connect(ControlClient::Options options) {
    options.onFailure = [this](const Failure &failure) {
      std::lock_guard<std::mutex> lock(mutex);
      failures.push_back(failure);
      changed.notify_all();
    };
    return ControlClient::connect(std::move(options), client);
  }
  void announce(const Members &members, const std::string &title,
                int64_t bytes = 1024, const std::string &kind = "all_to_all") {
    int64_t group = -1;
    Status status = client->addGroup(members, group);
    EXPECT_TRUE(status.ok()) << status.message;
    client->announce(group, kind, bytes, title);
  }
  /// Waits until the rank is told to give up.
  Status waitForFailure() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return !failures.empty(); });
    EXPECT_EQ(failures.size(), 1u);
    EXPECT_EQ(failures[0].getStatus().message,
              client->getFailure().getStatus().message);
    return failures[0].getStatus();
  }
  bool isWell() {
    std::lock_guard<std::mutex> lock(mutex);
    return failures.empty() && client->getFailure().ok();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Failure> failures;
  /// Destroyed first, because it calls back.
  std::unique_ptr<ControlClient> client;
};

/// Runs `body` on every rank, in threads that connect before and leave
/// afterwards.
void runRanks(const std::string &endpoint, int64_t numRanks, Usec timeLimit,
              const std::function<void(Rank &rank, int64_t index)> &body) {
  std::vector<std::thread> threads;
  for (int64_t index = 0; index < numRanks; ++index)
    threads.emplace_back([&, index] {
      Rank rank;
      Status status =
          rank.connect(makeOptions(endpoint, index, numRanks, timeLimit));
      ASSERT_TRUE(status.ok()) << status.message;
      body(rank, index);
    });
  for (std::thread &thread : threads)
    thread.join();
}

void runRanks(int64_t numRanks, Usec timeLimit,
              const std::function<void(Rank &rank, int64_t index)> &body) {
  std::unique_ptr<ControlServer> server = makeServer(numRanks, timeLimit);
  runRanks(server->getEndpoint(), numRanks, timeLimit, body);
}

void expectStatus(const Status &status, zpp_rt_status code,
                  const std::string &message) {
  EXPECT_EQ(status.code, code);
  EXPECT_EQ(status.message, message);
}

//===----------------------------------------------------------------------===//
// All is well
//===----------------------------------------------------------------------===//

TEST(Control, Broadcast) {
  std::string big(kMaxBroadcastBytes, 'x');
  runRanks(4, kLate, [&](Rank &rank, int64_t index) {
    for (const std::string &content : {std::string("a\0b", 3), big}) {
      std::string bytes = index == 0 ? content : "none";
      Status status = rank.client->broadcast(bytes);
      EXPECT_TRUE(status.ok()) << status.message;
      EXPECT_TRUE(bytes == content);
    }
    // The last broadcast has arrived before rank 0 leaves.
    rank.announce(getAll(4), "end");
    EXPECT_TRUE(rank.client->confirm().ok());
  });
}

TEST(Control, BroadcastFails) {
  runRanks(2, kSoon, [](Rank &rank, int64_t index) {
    std::string bytes(index == 0 ? kMaxBroadcastBytes + 1 : 0, 'x');
    Status status = rank.client->broadcast(bytes);
    if (index == 0) {
      expectStatus(status, ZPP_RT_INVALID_ARGUMENT,
                   "expected at most 1048576 bytes to broadcast, but got "
                   "1048577");
    } else {
      expectStatus(status, ZPP_RT_TIMEOUT,
                   "expected a broadcast of rank 0 within 400000 usec, but got "
                   "none");
    }
  });
}

/// Rows and columns of a grid, and all together.
TEST(Control, SeveralGroupsAtOnce) {
  runRanks(4, kLate, [](Rank &rank, int64_t index) {
    Members row = {index / 2 * 2, index / 2 * 2 + 1};
    Members column = {index % 2, index % 2 + 2};
    for (int64_t i = 0; i < 2000; ++i) {
      rank.announce(row, "rows", 16 * (i % 100));
      // Ranks that share no group may have any order.
      if (index % 3 == 0)
        rank.announce({0, 3}, "diagonal", i);
      rank.announce(column, "columns", 16, "all_gather_chunks");
      if (i % 500 == 0) {
        EXPECT_TRUE(rank.client->confirm().ok());
      }
    }
    rank.announce({3, 1, 2, 0}, "end");
    Status status = rank.client->confirm();
    EXPECT_TRUE(status.ok()) << status.message;
    EXPECT_TRUE(rank.isWell());
  });
}

TEST(Control, ManyRanks) {
  runRanks(64, kLate, [](Rank &rank, int64_t index) {
    Members node;
    for (int64_t i = 0; i < 8; ++i)
      node.push_back(index / 8 * 8 + i);
    for (int64_t i = 0; i < 50; ++i) {
      rank.announce(node, "within nodes");
      rank.announce(getAll(64), "across nodes", i);
    }
    Status status = rank.client->confirm();
    EXPECT_TRUE(status.ok()) << status.message;
  });
}

/// There are more than numbers for them, so numbers are reused.
TEST(Control, ExchangesNeverRepeat) {
  runRanks(2, kLate, [](Rank &rank, int64_t) {
    for (int64_t i = 0; i < 2 * kMaxDefinitions + 10; ++i)
      rank.announce({0, 1}, "exchange " + std::to_string(i));
    EXPECT_TRUE(rank.client->confirm().ok());
    EXPECT_TRUE(rank.isWell());
  });
}

TEST(Control, LongTitle) {
  runRanks(2, kLate, [](Rank &rank, int64_t index) {
    std::string title(10 * kMaxTextBytes, 'x');
    rank.announce({0, 1}, title);
    EXPECT_TRUE(rank.client->confirm().ok());
    rank.announce({0, 1}, title, index);
    EXPECT_EQ(rank.waitForFailure().code, ZPP_RT_MISMATCH);
    EXPECT_EQ(rank.client->getFailure().title.size(), kMaxTitleBytes);
  });
}

TEST(Control, ConfirmWaits) {
  std::atomic<bool> isLast{false};
  runRanks(3, kLate, [&](Rank &rank, int64_t index) {
    EXPECT_TRUE(rank.client->confirm().ok());
    if (index == 2) {
      std::this_thread::sleep_for(50ms);
      isLast = true;
    }
    rank.announce(getAll(3), "x");
    EXPECT_TRUE(rank.client->confirm().ok());
    EXPECT_TRUE(isLast);
  });
}

TEST(Control, Groups) {
  runRanks(4, kLate, [](Rank &rank, int64_t index) {
    if (index != 1)
      return;
    int64_t first = -1, second = -1, again = -1;
    EXPECT_TRUE(rank.client->addGroup({1, 2}, first).ok());
    EXPECT_TRUE(rank.client->addGroup({2, 1}, second).ok());
    EXPECT_TRUE(rank.client->addGroup({1, 2}, again).ok());
    EXPECT_EQ(first, again);
    EXPECT_NE(first, second);
    expectStatus(rank.client->addGroup({0, 2}, first), ZPP_RT_INVALID_ARGUMENT,
                 "expected a group of rank 1, but got one without it");
    expectStatus(rank.client->addGroup({1, 2, 1}, first),
                 ZPP_RT_INVALID_ARGUMENT,
                 "expected different ranks, but got 1 twice");
    expectStatus(rank.client->addGroup({1, 4}, first), ZPP_RT_INVALID_ARGUMENT,
                 "expected ranks in [0, 4), but got 4");
  });
}

//===----------------------------------------------------------------------===//
// Come
//===----------------------------------------------------------------------===//

TEST(ControlConnect, Endpoints) {
  for (const char *endpoint : {"127.0.0.1:0", "localhost:0", "0.0.0.0:0"}) {
    std::unique_ptr<ControlServer> server = makeServer(1, kLate, endpoint);
    runRanks(server->getEndpoint(), 1, kLate, [](Rank &rank, int64_t) {
      EXPECT_TRUE(rank.client->confirm().ok());
    });
  }
  // A host may have no IPv6.
  std::unique_ptr<ControlServer> server;
  if (ControlServer::create({"[::1]:0", 1, kLate, kGreeting, kToken}, server)
          .ok()) {
    EXPECT_EQ(server->getEndpoint().substr(0, 6), "[::1]:");
    runRanks(server->getEndpoint(), 1, kLate, [](Rank &, int64_t) {});
  }
}

/// A name is an address of this host, not all of them.
TEST(ControlConnect, NamesAreAddresses) {
  char name[256] = "";
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  for (const std::string &host :
       {std::string("localhost"), std::string(name)}) {
    std::unique_ptr<ControlServer> server;
    Status status = ControlServer::create(
        {host + ":0", 1, kLate, kGreeting, kToken}, server);
    // A host may not know its own name.
    if (host == name && !status.ok())
      continue;
    ASSERT_TRUE(status.ok()) << status.message;
    Endpoint other;
    ASSERT_TRUE(Endpoint::parse(server->getEndpoint(), other).ok());
    other.host = "127.98.76.54";
    Descriptor connection;
    std::string error;
    // The last attempt begins long before that, also on a busy host.
    EXPECT_FALSE(connectTo(other, Clock::now() + 500ms, connection, error))
        << host;
    EXPECT_EQ(error, "Connection refused");
  }
  // An address of somebody else (RFC 5737).
  std::unique_ptr<ControlServer> server;
  expectStatus(
      ControlServer::create({"192.0.2.1:0", 1, kLate, kGreeting, kToken},
                            server),
      ZPP_RT_SYSTEM_ERROR,
      "expected to listen on 192.0.2.1:0, but got 'Cannot assign requested "
      "address'");
}

TEST(ControlConnect, BadEndpoints) {
  for (const char *endpoint :
       {"", "localhost", ":80", "localhost:", "localhost:http", "::1:80",
        "localhost:65536", "localhost:-1", "[]:80", "localhost:123456"}) {
    std::unique_ptr<ControlServer> server;
    std::string message =
        "expected HOST:PORT, but got '" + std::string(endpoint) + "'";
    expectStatus(
        ControlServer::create({endpoint, 1, kLate, "", kToken}, server),
        ZPP_RT_INVALID_ARGUMENT, message);
    std::unique_ptr<ControlClient> client;
    expectStatus(
        ControlClient::connect(makeOptions(endpoint, 0, 1, kSoon), client),
        ZPP_RT_INVALID_ARGUMENT, message);
  }
  std::unique_ptr<ControlServer> server;
  expectStatus(
      ControlServer::create({"127.0.0.1:0", 0, kLate, "", kToken}, server),
      ZPP_RT_INVALID_ARGUMENT, "expected at least 1 rank, but got 0");
}

TEST(ControlConnect, PortIsTaken) {
  std::unique_ptr<ControlServer> first = makeServer(1), second;
  Status status = ControlServer::create(
      {first->getEndpoint(), 1, kLate, kGreeting, kToken}, second);
  EXPECT_EQ(status.code, ZPP_RT_SYSTEM_ERROR);
  EXPECT_EQ(status.message, "expected to listen on " + first->getEndpoint() +
                                ", but got 'Address already in use'");
}

TEST(ControlConnect, ServerIsLate) {
  std::string endpoint = getFreeEndpoint();
  std::thread late([&] {
    std::this_thread::sleep_for(100ms);
    std::unique_ptr<ControlServer> server = makeServer(2, kLate, endpoint);
    // Until both ranks have been there.
    Rank rank;
    EXPECT_TRUE(rank.connect(makeOptions(endpoint, 0, 2)).ok());
  });
  Rank rank;
  Status status = rank.connect(makeOptions(endpoint, 1, 2));
  EXPECT_TRUE(status.ok()) << status.message;
  rank.client.reset();
  late.join();
}

TEST(ControlConnect, ServerNeverStarts) {
  std::string endpoint = getFreeEndpoint();
  Rank rank;
  expectStatus(rank.connect(makeOptions(endpoint, 1, 2, kSoon)), ZPP_RT_TIMEOUT,
               "expected to reach the process of rank 0 at " + endpoint +
                   " within 400000 usec, but got 'Connection refused'");
}

TEST(ControlConnect, RankIsLate) {
  std::unique_ptr<ControlServer> server = makeServer(3);
  std::atomic<bool> isLast{false};
  std::vector<std::thread> threads;
  for (int64_t index : {0, 1, 2})
    threads.emplace_back([&, index] {
      if (index == 1) {
        std::this_thread::sleep_for(100ms);
        isLast = true;
      }
      Rank rank;
      EXPECT_TRUE(
          rank.connect(makeOptions(server->getEndpoint(), index, 3)).ok());
      EXPECT_TRUE(isLast);
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(ControlConnect, RankNeverComes) {
  std::unique_ptr<ControlServer> server = makeServer(4, kSoon);
  std::vector<std::thread> threads;
  for (int64_t index : {0, 1, 3})
    threads.emplace_back([&, index] {
      Rank rank;
      expectStatus(
          rank.connect(makeOptions(server->getEndpoint(), index, 4, kSoon)),
          ZPP_RT_TIMEOUT,
          "expected 4 ranks within 400000 usec, but rank 2 did not arrive");
      EXPECT_TRUE(rank.failures.empty());
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(ControlConnect, WrongRanks) {
  std::unique_ptr<ControlServer> server = makeServer(2);
  const std::string endpoint = server->getEndpoint();
  runRanks(endpoint, 2, kLate, [&](Rank &rank, int64_t index) {
    if (index == 1) {
      Rank other;
      expectStatus(other.connect(makeOptions(endpoint, 1, 2)),
                   ZPP_RT_INVALID_ARGUMENT,
                   "expected a rank that has not joined yet, but got 1");
      expectStatus(other.connect(makeOptions(endpoint, 2, 2)),
                   ZPP_RT_INVALID_ARGUMENT,
                   "expected a rank in [0, 2), but got 2");
      expectStatus(other.connect(makeOptions(endpoint, 1, 3)), ZPP_RT_MISMATCH,
                   "expected 2 ranks on all ranks, as in the process of rank "
                   "0, but got 3 on rank 1");
      ControlClient::Options options = makeOptions(endpoint, 1, 2);
      options.greeting = "gpu:2";
      expectStatus(other.connect(options), ZPP_RT_MISMATCH,
                   "expected 'gpu:4, interface 2' on all ranks, as in the "
                   "process of rank 0, but got 'gpu:2' on rank 1");
      options.greeting.assign(kMaxTextBytes + 1, 'x');
      expectStatus(other.connect(options), ZPP_RT_INVALID_ARGUMENT,
                   "expected a greeting of at most 16384 bytes, but got 16385");
    }
    // The ranks that belong here did not notice.
    rank.announce({0, 1}, "end");
    EXPECT_TRUE(rank.client->confirm().ok());
  });
}

//===----------------------------------------------------------------------===//
// Strangers
//===----------------------------------------------------------------------===//

class Stranger {
public:
  explicit Stranger(const std::string &endpointText) {
    Endpoint endpoint;
    EXPECT_TRUE(Endpoint::parse(endpointText, endpoint).ok());
    std::string error;
    EXPECT_TRUE(connectTo(endpoint, Clock::now() + kLate, connection, error))
        << error;
  }
  void say(const std::string &data) {
    size_t sent = 0;
    while (send(connection, data, sent) == IoResult::Blocked)
      wait(POLLOUT);
  }
  /// Waits until the other side hangs up; returns what it has said.
  std::string expectEnd() {
    std::string data;
    IoResult result;
    while ((result = receive(connection, data)) != IoResult::Ended)
      if (result == IoResult::Blocked)
        wait(POLLIN);
    return data;
  }
  /// Waits for at least so many bytes.
  std::string hear(size_t bytes) {
    std::string data;
    while (data.size() < bytes) {
      IoResult result = receive(connection, data);
      if (result == IoResult::Ended)
        break;
      if (result == IoResult::Blocked)
        wait(POLLIN);
    }
    EXPECT_EQ(data.size(), bytes);
    return data;
  }

private:
  void wait(short events) {
    pollfd entry{connection.get(), events, 0};
    EXPECT_EQ(::poll(&entry, 1, 60'000), 1);
  }
  Descriptor connection;
};

TEST(ControlStranger, TalksNonsense) {
  std::unique_ptr<ControlServer> server = makeServer(2);
  const std::string preamble(kPreamble);
  const std::string endpoint = server->getEndpoint();
  std::string early = preamble;
  FrameWriter(early, Frame::Announce).u32(0);
  std::string partial = preamble;
  FrameWriter(partial, Frame::Hello).i64(0);
  runRanks(endpoint, 2, kLate, [&](Rank &rank, int64_t index) {
    if (index == 1)
      for (const std::string &data :
           {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(1, '\0'),
            std::string("zpp-ctl\x01"), preamble + std::string(100, '\xff'),
            preamble + std::string(4, '\0'), early, partial,
            // The length is right, but too large.
            preamble + std::string("\1\0\1\0\1", 5) + std::string(65536, 'x'),
            std::string(1 << 22, 'x')}) {
        Stranger stranger(endpoint);
        stranger.say(data);
        stranger.expectEnd();
      }
    rank.announce({0, 1}, "end");
    EXPECT_TRUE(rank.client->confirm().ok());
  });
}

/// Whatever follows the preamble.
TEST(ControlStranger, TalksAtRandom) {
  std::unique_ptr<ControlServer> server = makeServer(2);
  std::mt19937 random(1);
  for (int64_t i = 0; i < 200; ++i) {
    std::string data(kPreamble);
    for (int64_t j = 0; j < i; ++j) {
      // Small numbers, so that lengths are plausible.
      data += static_cast<char>(random() % (j % 3 == 0 ? 256 : 4));
    }
    Stranger(server->getEndpoint()).say(data);
  }
  runRanks(server->getEndpoint(), 2, kLate, [](Rank &rank, int64_t) {
    rank.announce({0, 1}, "end");
    EXPECT_TRUE(rank.client->confirm().ok());
  });
}

TEST(ControlStranger, SaysNothing) {
  std::unique_ptr<ControlServer> server = makeServer(2);
  std::vector<Stranger> strangers;
  for (int64_t i = 0; i < 200; ++i)
    strangers.emplace_back(server->getEndpoint());
  strangers.back().say("zpp");
  runRanks(server->getEndpoint(), 2, kLate, [](Rank &rank, int64_t) {
    rank.announce({0, 1}, "end");
    EXPECT_TRUE(rank.client->confirm().ok());
  });
  // The server keeps only some of them.
  strangers.front().expectEnd();
}

/// Sends the preamble and `frames`, and returns what the server answers until
/// it hangs up.
std::string talk(const std::string &endpoint, const std::string &frames) {
  Stranger stranger(endpoint);
  stranger.say(std::string(kPreamble) + frames);
  return stranger.expectEnd();
}

/// The server tells nothing to somebody who has not proved to know the token.
TEST(ControlStranger, IsToldNothing) {
  std::unique_ptr<ControlServer> server = makeServer(2);
  const std::string endpoint = server->getEndpoint();
  std::string hello, proof;
  FrameWriter(hello, Frame::Hello).text(std::string(kNonceBytes, 'n'));
  FrameWriter(proof, Frame::Proof)
      .text(std::string(kDigestBytes, 'p'))
      .i64(1)
      .i64(2)
      .text(kGreeting);
  // A challenge, and no more. Each is another one.
  const size_t numBytes = kPreamble.size() + 4 + 1 + 4 + kNonceBytes;
  std::set<std::string> challenges;
  for (int i = 0; i < 2; ++i) {
    Stranger stranger(endpoint);
    stranger.say(std::string(kPreamble) + hello);
    challenges.insert(stranger.hear(numBytes));
    stranger.say(proof);
    EXPECT_EQ(stranger.expectEnd(), "");
  }
  EXPECT_EQ(challenges.size(), 2u);
  // No answer without a hello, to a second one, or to a short one.
  EXPECT_EQ(talk(endpoint, proof), "");
  EXPECT_LE(talk(endpoint, hello + hello).size(), numBytes);
  std::string shortHello;
  FrameWriter(shortHello, Frame::Hello).text("n");
  EXPECT_EQ(talk(endpoint, shortHello), "");
  // The places of the ranks are free.
  runRanks(endpoint, 2, kLate, [](Rank &rank, int64_t) {
    rank.announce({0, 1}, "end");
    EXPECT_TRUE(rank.client->confirm().ok());
  });
}

TEST(ControlStranger, HasAnotherToken) {
  std::unique_ptr<ControlServer> server = makeServer(2);
  const std::string endpoint = server->getEndpoint();
  auto comeWithoutToken = [&] {
    ControlClient::Options options = makeOptions(endpoint, 1, 2);
    options.token = "a token for another test";
    Rank stranger;
    expectStatus(stranger.connect(options), ZPP_RT_MISMATCH,
                 "expected a process at " + endpoint +
                     " that knows the token of this job, but got one that hung "
                     "up; all processes of a job need the same token");
  };
  comeWithoutToken();
  runRanks(endpoint, 2, kLate, [&](Rank &rank, int64_t index) {
    if (index == 1)
      comeWithoutToken();
    rank.announce({0, 1}, "end");
    EXPECT_TRUE(rank.client->confirm().ok());
  });
}

/// A rank that is missing in the end may be the one that was turned away.
TEST(ControlStranger, IsRememberedWhereARankIsMissing) {
  std::unique_ptr<ControlServer> server = makeServer(2, kSoon);
  ControlClient::Options options = makeOptions(server->getEndpoint(), 1, 2);
  options.token = "a token for another test";
  EXPECT_EQ(Rank().connect(options).code, ZPP_RT_MISMATCH);
  expectStatus(
      Rank().connect(makeOptions(server->getEndpoint(), 0, 2)), ZPP_RT_TIMEOUT,
      "expected 2 ranks within 400000 usec, but rank 1 did not arrive; "
      "one that came was turned away: it does not know the token of "
      "this job");
}

TEST(ControlStranger, ShortTokens) {
  std::unique_ptr<ControlServer> server;
  expectStatus(ControlServer::create(
                   {"127.0.0.1:0", 1, kLate, kGreeting, "short"}, server),
               ZPP_RT_INVALID_ARGUMENT,
               "expected a token of at least 16 bytes, but got 5");
  ControlClient::Options options = makeOptions("127.0.0.1:1", 0, 1);
  options.token.clear();
  expectStatus(Rank().connect(options), ZPP_RT_INVALID_ARGUMENT,
               "expected a token of at least 16 bytes, but got 0");
}

//===----------------------------------------------------------------------===//
// Strangers that listen
//===----------------------------------------------------------------------===//

/// Connects to a server that sends `answer(handshake)` after the client's
/// hello. `use` is called if that succeeds.
Status
connectToStranger(const std::function<std::string(const Handshake &)> &answer,
                  const std::function<void(Rank &)> &use = {}) {
  Endpoint endpoint{"127.0.0.1", "0"};
  Descriptor listener;
  bool isLocal = false;
  EXPECT_TRUE(listenOn(endpoint, listener, isLocal).ok());
  std::atomic<bool> isOver{false};
  std::thread thread([&] {
    Descriptor connection;
    pollfd entry{listener.get(), POLLIN, 0};
    ::poll(&entry, 1, 60'000);
    EXPECT_EQ(acceptFrom(listener, connection), IoResult::Done);
    FrameParser in(kMaxHelloBytes);
    Frame frame;
    std::string_view payload;
    Handshake handshake;
    while (in.next(frame, payload) != FrameParser::Result::Frame)
      if (receive(connection, in.data) == IoResult::Ended)
        return;
    handshake.clientNonce = FrameReader(payload).text();
    handshake.serverNonce.assign(kNonceBytes, 's');
    handshake.rank = 0;
    handshake.numRanks = 1;
    handshake.greeting = kGreeting;
    size_t sent = 0;
    send(connection, answer(handshake), sent);
    while (!isOver)
      std::this_thread::sleep_for(1ms);
  });
  Rank rank;
  Status status = rank.connect(makeOptions(endpoint.str(), 0, 1));
  if (status.ok() && use)
    use(rank);
  isOver = true;
  rank.client.reset();
  thread.join();
  // The port differs from run to run.
  size_t at = status.message.find(endpoint.str());
  if (at != std::string::npos)
    status.message.replace(at, endpoint.str().size(), "HOST:PORT");
  return status;
}

std::string makeChallenge(const Handshake &handshake) {
  std::string text(kPreamble);
  FrameWriter(text, Frame::Challenge).text(handshake.serverNonce);
  return text;
}
std::string makeAccept(const Handshake &handshake, const std::string &token) {
  std::string text = makeChallenge(handshake);
  FrameWriter(text, Frame::Accept)
      .text(handshake.prove(Handshake::Side::Server, token));
  return text;
}

TEST(ControlImpostor, DoesNotKnowTheToken) {
  const std::string foreign = "expected a zpp process of the same version at "
                              "HOST:PORT, but got one that speaks another "
                              "protocol";
  expectStatus(connectToStranger([](const Handshake &) {
                 return std::string("SSH-2.0-OpenSSH\r\n");
               }),
               ZPP_RT_SYSTEM_ERROR, foreign);
  expectStatus(connectToStranger([](const Handshake &handshake) {
                 return makeAccept(handshake, "a token for another test");
               }),
               ZPP_RT_MISMATCH,
               "expected a process at HOST:PORT that knows the token of this "
               "job, but got one that does not");
  // The client's own proof does not prove anything about the server.
  expectStatus(connectToStranger([](const Handshake &handshake) {
                 std::string text = makeChallenge(handshake);
                 FrameWriter(text, Frame::Accept)
                     .text(handshake.prove(Handshake::Side::Client, kToken));
                 return text;
               }),
               ZPP_RT_MISMATCH,
               "expected a process at HOST:PORT that knows the token of this "
               "job, but got one that does not");
  // Nothing counts before the proof.
  for (Frame frame : {Frame::Welcome, Frame::Failure, Frame::Broadcast})
    expectStatus(connectToStranger([&](const Handshake &handshake) {
                   std::string text = makeChallenge(handshake);
                   FrameWriter(text, frame).text("x");
                   return text;
                 }),
                 ZPP_RT_SYSTEM_ERROR, foreign);
}

/// A failure is one, whatever its number.
TEST(ControlImpostor, FailsWithoutAnError) {
  for (int64_t code : {int64_t(0), int64_t(-1), int64_t(99), INT64_MIN}) {
    Status status = connectToStranger(
        [&](const Handshake &handshake) {
          std::string text = makeAccept(handshake, kToken);
          writeFrame(text, Frame::Welcome);
          FrameWriter(text, Frame::Failure)
              .i64(code)
              .text("\x1b[2J")
              .text("said \x07 so");
          return text;
        },
        [](Rank &rank) {
          expectStatus(rank.waitForFailure(), ZPP_RT_SYSTEM_ERROR,
                       "\\x1b[2J: said \\x07 so");
        });
    // The failure may arrive before the connection is complete.
    if (!status.ok())
      expectStatus(status, ZPP_RT_SYSTEM_ERROR, "\\x1b[2J: said \\x07 so");
  }
}

//===----------------------------------------------------------------------===//
// Doctored members
//===----------------------------------------------------------------------===//

/// A rank that knows the token and says what it likes.
class Member {
public:
  Member(const std::string &endpointText, int64_t rank, int64_t numRanks)
      : stranger(endpointText) {
    Handshake handshake;
    handshake.clientNonce.assign(kNonceBytes, 'c');
    handshake.rank = rank;
    handshake.numRanks = numRanks;
    handshake.greeting = kGreeting;
    std::string hello(kPreamble), proof;
    FrameWriter(hello, Frame::Hello).text(handshake.clientNonce);
    stranger.say(hello);
    std::string answer =
        stranger.hear(kPreamble.size() + 4 + 1 + 4 + kNonceBytes);
    handshake.serverNonce = answer.substr(answer.size() - kNonceBytes);
    FrameWriter(proof, Frame::Proof)
        .text(handshake.prove(Handshake::Side::Client, kToken))
        .i64(rank)
        .i64(numRanks)
        .text(kGreeting);
    stranger.say(proof);
  }
  void say(const std::string &frames) { stranger.say(frames); }
  /// Returns when all ranks have joined: hears Accept and Welcome.
  void waitForOthers() { stranger.hear(4 + 1 + 4 + kDigestBytes + 4 + 1); }
  void expectEnd() { stranger.expectEnd(); }

private:
  Stranger stranger;
};

/// Expects that the server hangs up on rank 1 of 2 when it sends `frames`.
void expectLost(const std::string &what, const std::string &frames) {
  SCOPED_TRACE(what);
  std::unique_ptr<ControlServer> server = makeServer(2);
  std::thread thread([&] {
    Member member(server->getEndpoint(), 1, 2);
    member.waitForOthers();
    member.say(frames);
    member.expectEnd();
  });
  Rank rank;
  EXPECT_TRUE(rank.connect(makeOptions(server->getEndpoint(), 0, 2)).ok());
  expectStatus(rank.waitForFailure(), ZPP_RT_RANK_LOST,
               "expected 2 ranks, but rank 1 was lost");
  thread.join();
}

std::string define(uint32_t id, const std::string &kind,
                   const std::string &title, const Members &members) {
  std::string text;
  FrameWriter frame(text, Frame::Define);
  frame.u32(id).i64(16).text(kind).text(title);
  for (int64_t member : members)
    frame.i64(member);
  return text;
}

TEST(ControlMember, IsBounded) {
  std::string frames;
  FrameWriter(frames, Frame::Broadcast).text("an id of NCCL");
  expectLost("a broadcast of another rank than 0", frames);
  const std::string longTitle(kMaxTitleBytes + 1, 'x');
  expectLost("a long title", define(0, "all_to_all", longTitle, {0, 1}));
  expectLost("a long kind", define(0, longTitle, "x", {0, 1}));
  frames.clear();
  FrameWriter(frames, Frame::Fail).text(std::string(kMaxTextBytes + 1, 'x'));
  expectLost("a long message", frames);
  frames = define(0, "all_to_all", "x", {0, 1});
  std::string announcement;
  FrameWriter(announcement, Frame::Announce).u32(0);
  for (size_t i = 0; i <= kMaxPending; ++i)
    frames += announcement;
  expectLost("many announcements", frames);
}

/// Frames that a rank does not send, or not any more.
TEST(ControlMember, StaysInItsRole) {
  std::string frames;
  FrameWriter(frames, Frame::Hello).text(std::string(kNonceBytes, 'n'));
  expectLost("a hello", frames);
  frames.clear();
  FrameWriter(frames, Frame::Proof)
      .text(std::string(kDigestBytes, 'p'))
      .i64(0)
      .i64(2)
      .text(kGreeting);
  expectLost("a proof", frames);
  for (Frame frame : {Frame(0), Frame::Challenge, Frame::Accept, Frame::Welcome,
                      Frame::Progress, Frame::Failure, Frame(255)}) {
    frames.clear();
    writeFrame(frames, frame);
    expectLost("frame " + std::to_string(static_cast<int>(frame)), frames);
  }
  const std::string exchange = define(0, "all_to_all", "x", {0, 1});
  for (Frame frame : {Frame::Confirm, Frame::Fail, Frame::Announce}) {
    frames = exchange;
    FrameWriter(frames, frame).u32(0).u32(0);
    expectLost("too much in frame " + std::to_string(static_cast<int>(frame)),
               frames);
  }
  frames.clear();
  FrameWriter(frames, Frame::Announce).u32(0);
  expectLost("an announcement of nothing", frames);
  expectLost("a number that is left out", define(1, "x", "x", {0, 1}));
  expectLost("a group without it", define(0, "x", "x", {0}));
  expectLost("a group of nobody", define(0, "x", "x", {}));
  expectLost("a rank that there is not", define(0, "x", "x", {1, 2}));
  expectLost("a rank below 0", define(0, "x", "x", {-1, 1}));
  expectLost("a rank twice", define(0, "x", "x", {1, 1}));
  expectLost("an empty frame", std::string(4, '\0'));
  expectLost("a long frame", std::string(4, '\xff'));
}

TEST(ControlMember, FrameIsCutOff) {
  std::string frames = define(0, "all_to_all", "x", {0, 1});
  FrameWriter(frames, Frame::Announce).u32(0);
  for (size_t size = 1; size < frames.size(); size += 3) {
    SCOPED_TRACE(size);
    std::unique_ptr<ControlServer> server = makeServer(2);
    {
      Member member(server->getEndpoint(), 1, 2);
      member.say(frames.substr(0, size));
    }
    Rank rank;
    expectStatus(rank.connect(makeOptions(server->getEndpoint(), 0, 2)),
                 ZPP_RT_RANK_LOST, "expected 2 ranks, but rank 1 was lost");
  }
}

/// It is late like one that says nothing.
TEST(ControlMember, FrameStopsHalfway) {
  std::unique_ptr<ControlServer> server = makeServer(2, kSoon);
  std::string frames = define(0, "all_to_all", "x", {0, 1});
  FrameWriter(frames, Frame::Announce).u32(0);
  frames.pop_back();
  std::atomic<bool> isOver{false};
  std::thread thread([&] {
    Member member(server->getEndpoint(), 1, 2);
    member.say(frames);
    while (!isOver)
      std::this_thread::sleep_for(1ms);
  });
  Rank rank;
  EXPECT_TRUE(rank.connect(makeOptions(server->getEndpoint(), 0, 2)).ok());
  rank.announce({0, 1}, "x");
  expectStatus(rank.client->confirm(), ZPP_RT_TIMEOUT,
               "x: expected 2 ranks within 400000 usec, but rank 1 did not "
               "arrive");
  isOver = true;
  thread.join();
}

/// The others hear the same, however much it says.
TEST(ControlMember, NeverStopsTalking) {
  std::unique_ptr<ControlServer> server = makeServer(3, kSoon);
  std::string frames;
  while (frames.size() < 1 << 20)
    writeFrame(frames, Frame::Confirm);
  std::atomic<bool> isOver{false};
  std::vector<std::thread> threads;
  // Two, so that one talks while the other is heard.
  for (int64_t index : {1, 2})
    threads.emplace_back([&, index] {
      Member member(server->getEndpoint(), index, 3);
      while (!isOver)
        member.say(frames);
    });
  Rank rank;
  EXPECT_TRUE(rank.connect(makeOptions(server->getEndpoint(), 0, 3)).ok());
  rank.announce({0, 1, 2}, "x");
  expectStatus(rank.client->confirm(), ZPP_RT_TIMEOUT,
               "x: expected 3 ranks within 400000 usec, but ranks 1, 2 did "
               "not arrive");
  isOver = true;
  for (std::thread &thread : threads)
    thread.join();
}

/// Nothing that it does not read piles up at the server.
TEST(ControlMember, StopsReading) {
  std::unique_ptr<ControlServer> server = makeServer(2);
  std::atomic<bool> isOver{false};
  std::thread thread([&] {
    Member member(server->getEndpoint(), 1, 2);
    while (!isOver)
      std::this_thread::sleep_for(1ms);
  });
  Rank rank;
  EXPECT_TRUE(rank.connect(makeOptions(server->getEndpoint(), 0, 2)).ok());
  std::string bytes(kMaxBroadcastBytes, 'x');
  // The system keeps some for it, too.
  for (size_t sent = 0; rank.isWell() && sent < 16 * kMaxUnreadBytes;
       sent += bytes.size())
    (void)rank.client->broadcast(bytes);
  expectStatus(rank.waitForFailure(), ZPP_RT_RANK_LOST,
               "expected 2 ranks, but rank 1 was lost");
  isOver = true;
  thread.join();
}

/// Exchanges that nobody joins, each with a title of its own.
TEST(ControlMember, TitlesAreBounded) {
  std::string frames;
  std::string title(kMaxTitleBytes, 'x');
  for (size_t i = 0; i * kMaxTitleBytes <= kMaxDefinitionBytes; ++i) {
    std::string number = std::to_string(i);
    title.replace(0, number.size(), number);
    frames += define(0, "all_to_all", title, {0, 1});
    FrameWriter(frames, Frame::Announce).u32(0);
  }
  expectLost("many titles", frames);
}

TEST(ControlMember, BroadcastOfRankZeroIsBounded) {
  std::unique_ptr<ControlServer> server = makeServer(2);
  std::thread thread([&] {
    Member member(server->getEndpoint(), 0, 2);
    member.waitForOthers();
    std::string frames;
    FrameWriter(frames, Frame::Broadcast)
        .text(std::string(kMaxBroadcastBytes + 1, 'x'));
    member.say(frames);
    member.expectEnd();
  });
  Rank rank;
  EXPECT_TRUE(rank.connect(makeOptions(server->getEndpoint(), 1, 2)).ok());
  expectStatus(rank.waitForFailure(), ZPP_RT_RANK_LOST,
               "expected 2 ranks, but rank 0 was lost");
  thread.join();
}

/// Nobody hears it, so it is refused.
TEST(ControlMember, BroadcastsBeforeOthersHaveJoined) {
  std::unique_ptr<ControlServer> server = makeServer(2);
  Member member(server->getEndpoint(), 0, 2);
  std::string frames;
  FrameWriter(frames, Frame::Broadcast).text("an id of NCCL");
  member.say(frames);
  Rank rank;
  expectStatus(rank.connect(makeOptions(server->getEndpoint(), 1, 2)),
               ZPP_RT_RANK_LOST, "expected 2 ranks, but rank 0 was lost");
}

/// A rank keeps what it has not asked for, but not without end.
TEST(ControlMember, BroadcastsArePatient) {
  for (size_t bytes : {size_t(0), kMaxBroadcastBytes}) {
    std::unique_ptr<ControlServer> server = makeServer(2);
    std::atomic<bool> isOver{false};
    std::thread thread([&] {
      Member member(server->getEndpoint(), 0, 2);
      member.waitForOthers();
      std::string frames;
      FrameWriter(frames, Frame::Broadcast).text(std::string(bytes, 'x'));
      for (size_t i = 0; !isOver && i <= kMaxBroadcasts; ++i)
        member.say(frames);
      while (!isOver)
        std::this_thread::sleep_for(1ms);
    });
    Rank rank;
    Status status = rank.connect(makeOptions(server->getEndpoint(), 1, 2));
    if (status.ok())
      status = rank.waitForFailure();
    expectStatus(status, ZPP_RT_SYSTEM_ERROR,
                 "expected a zpp process of the same version at " +
                     server->getEndpoint() +
                     ", but got one that speaks another protocol");
    isOver = true;
    thread.join();
  }
}

/// Messages of other ranks may be printed on a terminal.
TEST(ControlMember, SaysNothingToATerminal) {
  std::atomic<int64_t> numReady{0};
  runRanks(2, kLate, [&](Rank &rank, int64_t index) {
    rank.announce({0, 1}, "first \x1b]0;title\x07");
    EXPECT_TRUE(rank.client->confirm().ok());
    // No rank waits for anything when rank 1 fails.
    ++numReady;
    while (numReady < 2)
      std::this_thread::yield();
    if (index == 1)
      rank.client->fail("\x1b[31mred\nzpp: all is well");
    else
      expectStatus(rank.waitForFailure(), ZPP_RT_ABORTED,
                   "after the call of first \x1b]0;title\x07: rank 1 failed: "
                   "\\x1b[31mred\\x0azpp: all is well");
  });
  runRanks(2, kLate, [](Rank &rank, int64_t index) {
    rank.announce({0, 1}, index == 0 ? "mine" : "\x9b theirs", index);
    Status status = rank.waitForFailure();
    if (index == 0)
      expectStatus(
          status, ZPP_RT_MISMATCH,
          "mine: expected chunks of 0 bytes on all ranks, as on rank 0 "
          "in mine, but got 1 on rank 1 in \\x9b theirs");
  });
}

//===----------------------------------------------------------------------===//
// Disagree, stay away, fail, leave
//===----------------------------------------------------------------------===//

TEST(ControlFault, SizesAndKindsDiffer) {
  runRanks(4, kLate, [](Rank &rank, int64_t index) {
    rank.announce(getAll(4), "first");
    rank.announce(getAll(4), index == 2 ? "y" : "x", index == 2 ? 512 : 1024);
    Status status = rank.waitForFailure();
    expectStatus(status, ZPP_RT_MISMATCH,
                 std::string(index == 2 ? "y" : "x") +
                     ": expected chunks of 1024 bytes on all ranks, as on rank "
                     "0 in x, but got 512 on rank 2 in y");
    expectStatus(rank.client->confirm(), status.code, status.message);
  });
  runRanks(2, kLate, [](Rank &rank, int64_t index) {
    rank.announce(getAll(2), "x", 8, index == 0 ? "all_to_all" : "all_gather");
    expectStatus(rank.client->confirm(), ZPP_RT_MISMATCH,
                 "x: expected all_to_all on all ranks, as on rank 0 in x, but "
                 "got all_gather on rank 1 in x");
  });
}

TEST(ControlFault, RankNeverAnnounces) {
  const Clock::time_point begin = Clock::now();
  runRanks(4, kSoon, [&](Rank &rank, int64_t index) {
    std::string text = "x: expected 4 ranks within 400000 usec, but rank 2 did "
                       "not arrive";
    rank.announce(getAll(4), "first");
    if (index == 2) {
      Status status = rank.waitForFailure();
      EXPECT_EQ(status.code, ZPP_RT_ABORTED);
      status.message.replace(status.message.find("rank ") + 5, 1, "N");
      EXPECT_EQ(status.message,
                "after the call of first: rank N failed: " + text);
      return;
    }
    rank.announce(getAll(4), "x");
    expectStatus(rank.client->confirm(), ZPP_RT_TIMEOUT, text);
    EXPECT_GE(Clock::now() - begin, kSoon);
    EXPECT_LT(Clock::now() - begin, kLate);
  });
}

TEST(ControlFault, RankLeaves) {
  std::atomic<int64_t> numDone{0};
  runRanks(4, kLate, [&](Rank &rank, int64_t index) {
    rank.announce(getAll(4), "first");
    if (index == 3)
      return;
    // This is no failure for ranks that do not wait for it.
    for (int64_t i = 0; i < 100; ++i) {
      rank.announce({0, 1, 2}, "rest");
      EXPECT_TRUE(rank.client->confirm().ok());
    }
    ++numDone;
    while (numDone < 3)
      std::this_thread::yield();
    rank.announce(getAll(4), "second");
    Status status = rank.client->confirm();
    std::string text = "second: expected 4 ranks, but rank 3 left";
    // Another rank may have been told first, and this one is told about that.
    if (status.code == ZPP_RT_RANK_LOST) {
      EXPECT_EQ(status.message, text);
    } else {
      EXPECT_EQ(status.code, ZPP_RT_ABORTED);
      EXPECT_NE(status.message.find(" failed: " + text), std::string::npos)
          << status.message;
    }
  });
}

TEST(ControlFault, RankFails) {
  runRanks(4, kLate, [](Rank &rank, int64_t index) {
    if (index == 1) {
      rank.announce({0, 1}, "never");
      std::thread watchdog([&] {
        std::this_thread::sleep_for(20ms);
        rank.client->fail("lost its GPU");
      });
      expectStatus(rank.client->confirm(), ZPP_RT_ABORTED, "lost its GPU");
      watchdog.join();
      rank.client->announce(0, "all_to_all", 1, "too late");
      EXPECT_TRUE(rank.failures.empty());
      return;
    }
    if (index == 2) {
      std::string bytes;
      expectStatus(rank.client->broadcast(bytes), ZPP_RT_ABORTED,
                   "rank 1 failed: lost its GPU");
    }
    expectStatus(rank.waitForFailure(), ZPP_RT_ABORTED,
                 "rank 1 failed: lost its GPU");
    rank.client->fail("too late");
  });
}

/// The others end, no matter when ranks leave.
TEST(ControlFault, RanksLeaveAtAnyMoment) {
  for (int64_t round = 0; round < 40; ++round)
    runRanks(4, kLate, [&](Rank &rank, int64_t index) {
      Status status;
      for (int64_t i = 0; status.ok() && (index != round % 4 || i < round % 13);
           ++i) {
        rank.announce(getAll(4), "x");
        if (i % 5 == round % 5)
          status = rank.client->confirm();
      }
      EXPECT_EQ(status.ok(), index == round % 4) << status.message;
    });
}

//===----------------------------------------------------------------------===//
// Order of the end
//===----------------------------------------------------------------------===//

TEST(ControlEnd, ServerWaitsForOthers) {
  std::unique_ptr<ControlServer> server = makeServer(3);
  const std::string endpoint = server->getEndpoint();
  runRanks(endpoint, 3, kLate, [&](Rank &rank, int64_t index) {
    if (index == 0) {
      rank.client.reset();
      server.reset();
      return;
    }
    for (int64_t i = 0; i < 10; ++i) {
      std::this_thread::sleep_for(10ms);
      rank.announce({1, 2}, "x");
      EXPECT_TRUE(rank.client->confirm().ok());
    }
    EXPECT_TRUE(rank.isWell());
  });
}

TEST(ControlEnd, ServerDoesNotWaitForever) {
  std::unique_ptr<ControlServer> server = makeServer(2, kSoon);
  runRanks(server->getEndpoint(), 2, kLate, [&](Rank &rank, int64_t index) {
    if (index == 0) {
      rank.client.reset();
      server.reset();
      return;
    }
    expectStatus(rank.waitForFailure(), ZPP_RT_RANK_LOST,
                 "expected 2 ranks, but rank 0 left");
  });
}

TEST(ControlEnd, ServerEndsBeforeAllHaveCome) {
  std::unique_ptr<ControlServer> server = makeServer(2);
  const std::string endpoint = server->getEndpoint();
  std::thread thread([&] {
    std::this_thread::sleep_for(50ms);
    server.reset();
  });
  Rank rank;
  Status status = rank.connect(makeOptions(endpoint, 1, 2));
  EXPECT_EQ(status.code, ZPP_RT_RANK_LOST);
  EXPECT_EQ(status.message, "expected 2 ranks, but rank 0 left");
  thread.join();
}

/// The next program on the same port is not affected by the one before.
TEST(ControlEnd, PortIsFreeAtOnce) {
  std::string endpoint = getFreeEndpoint();
  for (int64_t i = 0; i < 20; ++i) {
    std::unique_ptr<ControlServer> server = makeServer(2, kLate, endpoint);
    runRanks(endpoint, 2, kLate, [](Rank &rank, int64_t) {
      rank.announce({0, 1}, "x");
      EXPECT_TRUE(rank.client->confirm().ok());
    });
  }
}

//===----------------------------------------------------------------------===//
// Processes
//===----------------------------------------------------------------------===//

/// A rank in a process of its own. Lines go both ways.
class Process {
public:
  explicit Process(const std::function<void(Process &parent)> &body) {
    int down[2], up[2];
    EXPECT_EQ(::pipe(down), 0);
    EXPECT_EQ(::pipe(up), 0);
    pid = ::fork();
    if (pid == 0) {
      Process parent(down[0], up[1]);
      ::close(down[1]);
      ::close(up[0]);
      body(parent);
      ::_exit(0);
    }
    in = Descriptor(up[0]);
    out = Descriptor(down[1]);
    ::close(down[0]);
    ::close(up[1]);
  }
  Process(Process &&other) noexcept
      : pid(std::exchange(other.pid, 0)), in(std::move(other.in)),
        out(std::move(other.out)) {}
  ~Process() {
    if (pid > 0)
      kill(SIGKILL);
  }

  void say(const std::string &line) {
    std::string data = line + "\n";
    EXPECT_EQ(::write(out.get(), data.data(), data.size()),
              static_cast<ssize_t>(data.size()));
  }
  std::string hear() {
    std::string line;
    char c;
    while (::read(in.get(), &c, 1) == 1 && c != '\n')
      line += c;
    return line;
  }
  void kill(int signal) {
    ::kill(pid, signal);
    ::waitpid(std::exchange(pid, 0), nullptr, 0);
  }

private:
  Process(int in, int out) : in(in), out(out) {}
  pid_t pid = 0;
  Descriptor in;
  Descriptor out;
};

/// Ranks that exchange until they fail and then say why.
class Processes {
public:
  explicit Processes(int64_t numRanks) {
    for (int64_t rank = 0; rank < numRanks; ++rank)
      processes.emplace_back([=](Process &parent) {
        std::unique_ptr<ControlServer> server;
        if (rank == 0) {
          server = makeServer(numRanks);
          parent.say(server->getEndpoint());
        }
        runRank(parent, rank == 0 ? server->getEndpoint() : parent.hear(), rank,
                numRanks);
      });
    std::string endpoint = processes[0].hear();
    for (int64_t rank = 1; rank < numRanks; ++rank)
      processes[rank].say(endpoint);
    for (Process &process : processes)
      EXPECT_EQ(process.hear(), "connected");
  }

  /// In the middle of exchanges.
  void kill(int64_t rank) {
    std::this_thread::sleep_for(20ms);
    processes[rank].kill(SIGKILL);
  }
  void expectFailure(int64_t rank, const std::string &text) {
    EXPECT_EQ(processes[rank].hear(), "5 " + text) << rank;
  }

private:
  static void runRank(Process &parent, const std::string &endpoint,
                      int64_t index, int64_t numRanks) {
    Rank rank;
    Status status = rank.connect(makeOptions(endpoint, index, numRanks));
    parent.say(status.ok() ? "connected" : status.message);
    while (status.ok()) {
      rank.announce(getAll(numRanks), "x");
      status = rank.client->confirm();
    }
    // Whether the rank was in an exchange is chance.
    parent.say(std::to_string(status.code) + " " +
               rank.client->getFailure().message);
  }

  std::vector<Process> processes;
};

TEST(ControlProcess, RankIsKilled) {
  Processes processes(4);
  processes.kill(2);
  for (int64_t rank : {0, 1, 3})
    processes.expectFailure(rank, "expected 4 ranks, but rank 2 was lost");
}

TEST(ControlProcess, RankZeroIsKilled) {
  Processes processes(4);
  processes.kill(0);
  for (int64_t rank : {1, 2, 3})
    processes.expectFailure(rank, "expected 4 ranks, but rank 0 was lost");
}

/// The message names the exchange, which is known without the server.
TEST(ControlProcess, ServerIsKilled) {
  Process server([](Process &parent) {
    std::unique_ptr<ControlServer> server = makeServer(2);
    parent.say(server->getEndpoint());
    parent.hear();
  });
  std::string endpoint = server.hear();
  std::atomic<int64_t> numReady{0};
  std::thread killer([&] {
    while (numReady < 2)
      std::this_thread::sleep_for(1ms);
    server.kill(SIGKILL);
  });
  runRanks(endpoint, 2, kLate, [&](Rank &rank, int64_t index) {
    rank.announce({0, 1}, "done");
    EXPECT_TRUE(rank.client->confirm().ok());
    if (index == 1)
      rank.announce({0, 1}, "x");
    ++numReady;
    expectStatus(rank.waitForFailure(), ZPP_RT_RANK_LOST,
                 std::string(index == 1 ? "x" : "after the call of done") +
                     ": expected 2 ranks, but rank 0 was lost");
  });
  killer.join();
}

TEST(ControlProcess, RankIsKilledBeforeAllHaveCome) {
  Process rank([](Process &parent) {
    Rank rank;
    std::string endpoint = parent.hear();
    Endpoint parsed;
    parent.say(Endpoint::parse(endpoint, parsed).message);
    Status status = rank.connect(makeOptions(endpoint, 1, 3));
  });
  std::unique_ptr<ControlServer> server = makeServer(3);
  rank.say(server->getEndpoint());
  rank.hear();
  std::thread killer([&] {
    std::this_thread::sleep_for(200ms);
    rank.kill(SIGKILL);
  });
  Rank other;
  expectStatus(other.connect(makeOptions(server->getEndpoint(), 0, 3)),
               ZPP_RT_RANK_LOST, "expected 3 ranks, but rank 1 was lost");
  killer.join();
}

} // namespace
