//===- ControlWire.h - What control servers and clients say -----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both sides begin with the preamble. Frames follow: the number of bytes that
// come after it (u32), the kind (u8), the payload. Numbers are little endian,
// texts begin with their length (u32).
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CONTROLWIRE_H
#define ZPP_LIB_RUNTIME_CONTROLWIRE_H

#include <cstdint>
#include <string>
#include <string_view>

namespace zpp::rt {

/// The last byte is the version of everything below.
constexpr std::string_view kPreamble{"zpp-ctl\x02", 8};

enum class Frame : uint8_t {
  // From clients, in the order of Handshake.h.
  /// nonce text
  Hello = 1,
  /// proof text, rank i64, numRanks i64, greeting text
  Proof,
  // From ranks.
  /// Defines what later announcements name: id u32, chunkBytes i64, kind text,
  /// title text, members i64...
  Define,
  /// id u32
  Announce,
  /// Asks for Progress as soon as all announcements so far are matched.
  Confirm,
  /// message text
  Fail,
  Goodbye,
  // From the server.
  /// nonce text
  Challenge = 64,
  /// proof text
  Accept,
  /// All ranks are there.
  Welcome,
  /// The number of announcements matched since the last report: u64
  Progress,
  /// code i64, title text, message text
  Failure,
  // From rank 0, and from the server to the others.
  /// text
  Broadcast = 128
};

// Limits on what the other side may send. Both sides keep to them: the server
// hangs up on a rank that does not.

/// Definitions that a client may have at a time. It reuses their numbers.
constexpr uint32_t kMaxDefinitions = 4096;
/// Groups of which a rank may announce exchanges.
constexpr size_t kMaxGroups = 256;
/// Announcements of a rank that wait for others.
constexpr size_t kMaxPending = 1 << 20;
/// Bytes of the titles and kinds of exchanges that a rank has defined, or has
/// announced and that wait for others.
constexpr size_t kMaxDefinitionBytes = 32 << 20;
/// Bytes of a frame: from a rank, and from a client before its proof.
constexpr uint32_t kMaxFrameBytes = 4 << 20;
constexpr uint32_t kMaxHelloBytes = 32 << 10;
/// Bytes of a broadcast.
constexpr size_t kMaxBroadcastBytes = 1 << 20;
/// Broadcasts that a rank has received but not asked for. All of them have at
/// most kMaxUnreadBytes.
constexpr size_t kMaxBroadcasts = 1 << 12;
/// Bytes of the title or kind of an exchange, and of other texts: greetings and
/// messages.
constexpr size_t kMaxTitleBytes = 1 << 10;
constexpr size_t kMaxTextBytes = 16 << 10;
/// Bytes that wait for a rank that does not read them.
constexpr size_t kMaxUnreadBytes = 16 << 20;

/// Appends one frame to `out`. The destructor finishes it.
class FrameWriter {
public:
  FrameWriter(std::string &out, Frame frame);
  ~FrameWriter();
  FrameWriter(const FrameWriter &) = delete;
  FrameWriter &operator=(const FrameWriter &) = delete;

  FrameWriter &u32(uint32_t value) { return number(value, 4); }
  FrameWriter &u64(uint64_t value) { return number(value, 8); }
  FrameWriter &i64(int64_t value) { return number(value, 8); }
  FrameWriter &text(std::string_view value);

private:
  FrameWriter &number(uint64_t value, int bytes);

  std::string &out;
  size_t begin;
};

/// A frame without payload.
inline void writeFrame(std::string &out, Frame frame) {
  FrameWriter writer(out, frame);
}

/// Reads a payload. Past its end everything is 0 or empty, and isComplete() is
/// false.
class FrameReader {
public:
  explicit FrameReader(std::string_view payload) : rest(payload) {}

  uint32_t u32() { return number(4); }
  uint64_t u64() { return number(8); }
  int64_t i64() { return number(8); }
  std::string_view text();
  /// Whether there is something left to read.
  bool hasMore() const { return isWithin && !rest.empty(); }
  /// Whether the payload had everything that was read, and nothing else.
  bool isComplete() const { return isWithin && rest.empty(); }

private:
  uint64_t number(size_t bytes);

  std::string_view rest;
  bool isWithin = true;
};

/// Cuts what has arrived into frames.
class FrameParser {
public:
  explicit FrameParser(uint32_t maxBytes) : maxBytes(maxBytes) {}

  /// Append what arrives here.
  std::string data;
  /// The longest frame that is accepted.
  uint32_t maxBytes;

  enum class Result { Frame, NeedMore, Malformed };
  /// `payload` is valid until `data` changes.
  Result next(Frame &frame, std::string_view &payload);
  /// Drops the frames that next() has returned.
  void compact();

private:
  size_t position = 0;
  /// Whether the preamble was read: the other side speaks this protocol.
  bool isPast = false;
};

/// The first `maxBytes` bytes of `text`.
inline std::string_view clip(std::string_view text, size_t maxBytes) {
  return text.substr(0, maxBytes);
}

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CONTROLWIRE_H
