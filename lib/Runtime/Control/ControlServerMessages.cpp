//===- ControlServerMessages.cpp - What clients tell the control server ---===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ControlServer.h"
#include "Text.h"

using namespace zpp::rt;

/// Bytes of one rank that are read before others get their turn.
static constexpr size_t kMaxReadBytes = 1 << 20;

bool ControlServer::read(ServerConnection &connection) {
  size_t total = 0;
  while (!connection.isBroken && !connection.isEnding) {
    if (total >= kMaxReadBytes)
      return false;
    size_t before = connection.in.data.size();
    IoResult result = receive(connection.socket, connection.in.data);
    total += connection.in.data.size() - before;
    if (result == IoResult::Blocked)
      return true;
    if (result == IoResult::Ended) {
      connection.isBroken = true;
      return true;
    }
    Frame frame;
    std::string_view payload;
    FrameParser::Result parsed;
    while ((parsed = connection.in.next(frame, payload)) ==
               FrameParser::Result::Frame &&
           !connection.isEnding)
      if (!handle(connection, frame, payload)) {
        connection.isBroken = true;
        return true;
      }
    if (parsed == FrameParser::Result::Malformed)
      connection.isBroken = true;
    connection.in.compact();
  }
  return true;
}

/// Whether the frame is one that a client may send now.
bool ControlServer::handle(ServerConnection &connection, Frame frame,
                           std::string_view payload) {
  FrameReader reader(payload);
  bool isFromRank = frame != Frame::Hello && frame != Frame::Proof;
  if (isFromRank != (connection.rank >= 0))
    return false;
  switch (frame) {
  case Frame::Hello:
    return handleHello(connection, reader);
  case Frame::Proof:
    return handleProof(connection, reader);
  case Frame::Define:
    return handleDefine(connection, reader);
  case Frame::Announce: {
    uint32_t id = reader.u32();
    if (!reader.isComplete() || id >= connection.definitions.size())
      return false;
    return ledger.announce(connection.rank, connection.definitions[id],
                           Clock::now());
  }
  case Frame::Confirm:
    connection.awaited = ledger.getAnnounced(connection.rank);
    return reader.isComplete();
  case Frame::Fail: {
    std::string_view message = reader.text();
    if (!reader.isComplete() || message.size() > kMaxTextBytes)
      return false;
    ledger.fail(connection.rank, escapeControls(message));
    return true;
  }
  case Frame::Broadcast:
    return handleBroadcast(connection, reader);
  case Frame::Goodbye:
    ledger.leave(connection.rank);
    connection.isEnding = true;
    return reader.isComplete();
  default:
    return false;
  }
}

bool ControlServer::handleHello(ServerConnection &connection,
                                FrameReader &reader) {
  Handshake &handshake = connection.handshake;
  std::string_view nonce = reader.text();
  if (!reader.isComplete() || nonce.size() != kNonceBytes ||
      !handshake.clientNonce.empty() || !makeNonce(handshake.serverNonce).ok())
    return false;
  handshake.clientNonce = nonce;
  connection.out = kPreamble;
  FrameWriter(connection.out, Frame::Challenge).text(handshake.serverNonce);
  return true;
}

bool ControlServer::handleProof(ServerConnection &connection,
                                FrameReader &reader) {
  Handshake &handshake = connection.handshake;
  std::string_view proof = reader.text();
  handshake.rank = reader.i64();
  handshake.numRanks = reader.i64();
  std::string_view greeting = reader.text();
  if (!reader.isComplete() || handshake.clientNonce.empty() ||
      greeting.size() > kMaxTextBytes)
    return false;
  handshake.greeting = greeting;
  if (!handshake.isProof(Handshake::Side::Client, token, proof)) {
    ledger.turnAway("it does not know the token of this job");
    return false;
  }
  FrameWriter(connection.out, Frame::Accept)
      .text(handshake.prove(Handshake::Side::Server, token));
  Status status = ledger.join(handshake.rank, handshake.numRanks,
                              escapeControls(greeting), Clock::now());
  if (!status.ok()) {
    FrameWriter(connection.out, Frame::Failure)
        .i64(status.code)
        .text({})
        .text(status.message);
    connection.isEnding = true;
    return true;
  }
  connection.rank = handshake.rank;
  connection.in.maxBytes = kMaxFrameBytes;
  byRank[connection.rank] = &connection;
  welcome();
  return true;
}

/// NCCL connects to what the others are told, so only rank 0 tells them, and
/// only when all are there to hear it.
bool ControlServer::handleBroadcast(const ServerConnection &connection,
                                    FrameReader &reader) {
  std::string_view bytes = reader.text();
  if (!reader.isComplete() || connection.rank != 0 || !isWelcome ||
      bytes.size() > kMaxBroadcastBytes)
    return false;
  for (ServerConnection *other : byRank)
    if (other && other != &connection)
      FrameWriter(other->out, Frame::Broadcast).text(bytes);
  return true;
}

void ControlServer::welcome() {
  if (isWelcome || !ledger.isComplete() || ledger.hasFailed())
    return;
  isWelcome = true;
  for (ServerConnection *connection : byRank)
    if (connection)
      writeFrame(connection->out, Frame::Welcome);
}

bool ControlServer::handleDefine(ServerConnection &connection,
                                 FrameReader &reader) {
  uint32_t id = reader.u32();
  int64_t chunkBytes = reader.i64();
  std::string_view kind = reader.text();
  std::string_view title = reader.text();
  std::vector<int64_t> members;
  while (reader.hasMore())
    members.push_back(reader.i64());
  if (!reader.isComplete() || id >= kMaxDefinitions ||
      id > connection.definitions.size() || kind.size() > kMaxTitleBytes ||
      title.size() > kMaxTitleBytes)
    return false;
  std::shared_ptr<const ControlLedger::Exchange> exchange =
      ledger.define(connection.rank, members, chunkBytes, escapeControls(kind),
                    escapeControls(title));
  if (!exchange)
    return false;
  if (id == connection.definitions.size())
    connection.definitions.emplace_back();
  connection.definitions[id] = std::move(exchange);
  return true;
}
