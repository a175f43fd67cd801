//===- Hmac.cpp - HMAC-SHA-256 --------------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Hmac.h"

#include <array>
#include <cstdint>

using namespace zpp::rt;

static constexpr size_t kBlockBytes = 64;

/// The first 32 bits of the fractional parts of the cube roots of the first 64
/// primes.
static constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using Hash = std::array<uint32_t, 8>;

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void addBlock(Hash &hash, std::string_view block) {
  std::array<uint32_t, 64> words{};
  for (size_t i = 0; i < kBlockBytes; ++i)
    words[i / 4] = words[i / 4] << 8 | static_cast<uint8_t>(block[i]);
  for (size_t i = 16; i < words.size(); ++i) {
    uint32_t a = words[i - 15], b = words[i - 2];
    words[i] = words[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) +
               words[i - 7] + (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = hash;
  for (size_t i = 0; i < words.size(); ++i) {
    uint32_t first = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                     ((e & f) ^ (~e & g)) + kRounds[i] + words[i];
    uint32_t second = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                      ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const Hash added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < hash.size(); ++i)
    hash[i] += added[i];
}

std::string zpp::rt::getSha256(std::string_view data) {
  Hash hash = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const uint64_t bits = data.size() * uint64_t(8);
  for (; data.size() >= kBlockBytes; data.remove_prefix(kBlockBytes))
    addBlock(hash, data.substr(0, kBlockBytes));
  // A one, zeros, and the number of bits, up to whole blocks.
  std::string last(data);
  last += '\x80';
  last.resize((last.size() + 8 + kBlockBytes - 1) / kBlockBytes * kBlockBytes -
              8);
  for (int shift = 56; shift >= 0; shift -= 8)
    last += static_cast<char>(bits >> shift);
  for (size_t begin = 0; begin < last.size(); begin += kBlockBytes)
    addBlock(hash, std::string_view(last).substr(begin, kBlockBytes));
  std::string digest;
  for (uint32_t word : hash)
    for (int shift = 24; shift >= 0; shift -= 8)
      digest += static_cast<char>(word >> shift);
  return digest;
}

std::string zpp::rt::getHmac(std::string_view key, std::string_view data) {
  std::string padded =
      key.size() > kBlockBytes ? getSha256(key) : std::string(key);
  padded.resize(kBlockBytes);
  auto mix = [&](char pad) {
    std::string mixed = padded;
    for (char &c : mixed)
      c = static_cast<char>(c ^ pad);
    return mixed;
  };
  return getSha256(mix('\x5c') + getSha256(mix('\x36').append(data)));
}

bool zpp::rt::areEqualInConstantTime(std::string_view a, std::string_view b) {
  if (a.size() != b.size())
    return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}
