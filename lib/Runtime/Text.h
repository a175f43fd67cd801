//===- Text.h - Text of unknown origin --------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_TEXT_H
#define ZPP_LIB_RUNTIME_TEXT_H

#include <algorithm>
#include <string>
#include <string_view>

namespace zpp::rt {

/// Returns the bytes of the UTF-8 character that `text`, which is not empty,
/// starts with; 0 if it starts with none.
inline size_t getCharacterBytes(std::string_view text) {
  auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = at(0);
  if (first < 0x80)
    return 1;
  size_t bytes = first < 0xc2   ? 0
                 : first < 0xe0 ? 2
                 : first < 0xf0 ? 3
                 : first < 0xf5 ? 4
                                : 0;
  if (bytes == 0 || text.size() < bytes)
    return 0;
  for (size_t i = 1; i < bytes; ++i)
    if ((at(i) & 0xc0) != 0x80)
      return 0;
  // An overlong encoding, a surrogate, or beyond U+10FFFF.
  bool isNone =
      (first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) >= 0xa0) ||
      (first == 0xf0 && at(1) < 0x90) || (first == 0xf4 && at(1) >= 0x90);
  return isNone ? 0 : bytes;
}

/// Whether a terminal may interpret `text`, one character, as a command: the
/// control characters of ASCII and of Unicode (U+0080 to U+009F).
inline bool isControl(std::string_view text) {
  auto first = static_cast<unsigned char>(text[0]);
  if (text.size() == 1)
    return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
}

/// `text` with "\x1b" in place of each byte of a control character, and of each
/// byte that is not UTF-8: for text of other processes, which may end up on a
/// terminal.
inline std::string escapeControls(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  while (!text.empty()) {
    size_t bytes = getCharacterBytes(text);
    size_t step = std::max<size_t>(bytes, 1);
    if (bytes > 0 && !isControl(text.substr(0, bytes))) {
      result += text.substr(0, bytes);
    } else {
      for (char c : text.substr(0, step)) {
        auto byte = static_cast<unsigned char>(c);
        result += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
      }
    }
    text.remove_prefix(step);
  }
  return result;
}

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_TEXT_H
