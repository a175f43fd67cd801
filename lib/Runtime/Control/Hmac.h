//===- Hmac.h - HMAC-SHA-256 ------------------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CONTROL_HMAC_H
#define ZPP_LIB_RUNTIME_CONTROL_HMAC_H

#include <cstddef>
#include <string>
#include <string_view>

namespace zpp::rt {

inline constexpr size_t kDigestBytes = 32;

/// Returns the SHA-256 of `data` (FIPS 180-4), kDigestBytes bytes.
std::string getSha256(std::string_view data);

/// Returns the HMAC-SHA-256 of `data` (RFC 2104), kDigestBytes bytes.
std::string getHmac(std::string_view key, std::string_view data);

/// Whether two texts are equal. The time depends on their sizes alone, so that
/// it tells nothing about where they differ.
bool areEqualInConstantTime(std::string_view a, std::string_view b);

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CONTROL_HMAC_H
