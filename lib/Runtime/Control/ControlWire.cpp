//===- ControlWire.cpp - What control servers and clients say -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ControlWire.h"

using namespace zpp::rt;

static constexpr size_t kLengthBytes = 4;

//===----------------------------------------------------------------------===//
// Write
//===----------------------------------------------------------------------===//

FrameWriter::FrameWriter(std::string &out, Frame frame)
    : out(out), begin(out.size()) {
  out.append(kLengthBytes, '\0');
  out += static_cast<char>(frame);
}

FrameWriter::~FrameWriter() {
  uint64_t length = out.size() - begin - kLengthBytes;
  for (size_t i = 0; i < kLengthBytes; ++i)
    out[begin + i] = static_cast<char>(length >> (8 * i));
}

FrameWriter &FrameWriter::number(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    out += static_cast<char>(value >> (8 * i));
  return *this;
}

FrameWriter &FrameWriter::text(std::string_view value) {
  u32(value.size());
  out += value;
  return *this;
}

//===----------------------------------------------------------------------===//
// Read
//===----------------------------------------------------------------------===//

static uint64_t readNumber(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;)
    value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

uint64_t FrameReader::number(size_t bytes) {
  isWithin = isWithin && rest.size() >= bytes;
  if (!isWithin)
    return 0;
  uint64_t value = readNumber(rest.substr(0, bytes));
  rest.remove_prefix(bytes);
  return value;
}

std::string_view FrameReader::text() {
  size_t size = u32();
  isWithin = isWithin && rest.size() >= size;
  if (!isWithin)
    return {};
  std::string_view value = rest.substr(0, size);
  rest.remove_prefix(size);
  return value;
}

FrameParser::Result FrameParser::next(Frame &frame, std::string_view &payload) {
  std::string_view rest = std::string_view(data).substr(position);
  if (!isPast) {
    // A stranger is known by the first byte that differs.
    if (rest.substr(0, kPreamble.size()) != kPreamble.substr(0, rest.size()))
      return Result::Malformed;
    if (rest.size() < kPreamble.size())
      return Result::NeedMore;
    isPast = true;
    position += kPreamble.size();
    rest.remove_prefix(kPreamble.size());
  }
  if (rest.size() < kLengthBytes)
    return Result::NeedMore;
  uint64_t length = readNumber(rest.substr(0, kLengthBytes));
  if (length == 0 || length > maxBytes)
    return Result::Malformed;
  if (rest.size() < kLengthBytes + length)
    return Result::NeedMore;
  frame = static_cast<Frame>(static_cast<uint8_t>(rest[kLengthBytes]));
  payload = rest.substr(kLengthBytes + 1, length - 1);
  position += kLengthBytes + length;
  return Result::Frame;
}

void FrameParser::compact() {
  data.erase(0, position);
  position = 0;
}
