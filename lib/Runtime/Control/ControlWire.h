//===- ControlWire.h - What control servers and clients say -----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both sides begin with the preamble; frames follow: the number of bytes behind
// it (u32), the kind (u8), the payload. Numbers are little endian, texts and
// lists begin with their length (u32).
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CONTROLWIRE_H
#define ZPP_LIB_RUNTIME_CONTROLWIRE_H

#include <cstdint>
#include <string>
#include <string_view>

namespace zpp::rt {

/// The last byte is the version of all below.
constexpr std::string_view kPreamble{"zpp-ctl\x01", 8};

enum class Frame : uint8_t {
  // From clients.
  /// rank i64, numRanks i64, greeting text
  Hello = 1,
  /// What later announcements name: id u32, chunkBytes i64, kind text, title
  /// text, members i64...
  Define,
  /// id u32
  Announce,
  /// Asks for Progress as soon as all announcements so far are matched.
  Confirm,
  /// message text
  Fail,
  Goodbye,
  // From the server.
  /// All ranks are there.
  Welcome = 64,
  /// Announcements matched since the last report u64
  Progress,
  /// code i64, title text, message text
  Failure,
  // Both ways.
  /// text
  Broadcast = 128
};

/// Definitions that a client may have at a time; it reuses their numbers.
constexpr uint32_t kMaxDefinitions = 4096;
/// Of one frame: from a rank, and from whoever connects.
constexpr uint32_t kMaxFrameBytes = 4 << 20;
constexpr uint32_t kMaxHelloBytes = 64 << 10;
/// Of what a program can make arbitrarily long.
constexpr size_t kMaxBroadcastBytes = 1 << 20;
constexpr size_t kMaxTextBytes = 16 << 10;

/// Appends one frame to `out`, finished with its life.
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

/// Reads a payload. Past its end all is 0 or empty, and isComplete() false.
class FrameReader {
public:
  explicit FrameReader(std::string_view payload) : rest(payload) {}

  uint32_t u32() { return number(4); }
  uint64_t u64() { return number(8); }
  int64_t i64() { return number(8); }
  std::string_view text();
  /// Whether there is something left to read.
  bool hasMore() const { return isWithin && !rest.empty(); }
  /// Whether all was there, and nothing else.
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

  /// Where to append what arrives.
  std::string data;
  /// Of a frame.
  uint32_t maxBytes;

  enum class Result { Frame, NeedMore, Malformed };
  /// `payload` is valid until `data` changes.
  Result next(Frame &frame, std::string_view &payload);
  /// Drops what next() has returned.
  void compact();
  /// Whether the other side is of this kind and version.
  bool hasPreamble() const { return isPast; }

private:
  size_t position = 0;
  bool isPast = false;
};

/// At most kMaxTextBytes of `text`.
inline std::string_view clip(std::string_view text) {
  return text.substr(0, kMaxTextBytes);
}

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CONTROLWIRE_H
