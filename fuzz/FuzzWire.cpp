//===- FuzzWire.cpp - Any bytes as what a control client sends ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Require.h"

#include "Control/ControlWire.h"

using namespace zpp::rt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char *>(data), size);
  // The first byte is how much arrives at a time.
  size_t step = bytes.empty() ? 1 : 1 + data[0];
  FrameParser parser(kMaxHelloBytes);
  parser.data = kPreamble;
  for (size_t begin = 1; begin < size; begin += step) {
    parser.data.append(bytes.substr(begin, step));
    Frame frame;
    std::string_view payload;
    FrameParser::Result result;
    while ((result = parser.next(frame, payload)) ==
           FrameParser::Result::Frame) {
      require(payload.size() <= kMaxHelloBytes, "no frame above the limit");
      FrameReader reader(payload);
      while (reader.hasMore()) {
        reader.i64();
        require(reader.text().size() <= payload.size(), "text of the payload");
        reader.u32();
      }
    }
    if (result == FrameParser::Result::Malformed)
      return 0;
    parser.compact();
  }
  return 0;
}
