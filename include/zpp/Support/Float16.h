//===- Float16.h - bf16 and f16 to and from f32 -----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Conversions between the 16-bit element types and f32 on the host, and
// elements of any type as f32. Conversions work on bit patterns, for compilers
// without these types. Widening is exact. Narrowing rounds to nearest even, as
// hardware does. A NaN stays a NaN: it becomes quiet and keeps its sign and the
// leading bits of its payload.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_FLOAT16_H
#define ZPP_SUPPORT_FLOAT16_H

#include "zpp/Support/BlockQuant.h"

#include <cmath>
#include <cstring>

namespace zpp {

/// Returns the f16 with these bits, as f32 (exact).
inline float floatOfF16Bits(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  uint32_t magnitude = bits & 0x7fffu;
  if (magnitude > 0x7c00u)
    return floatOfBits(sign | 0x7fc00000u | magnitude << 13);
  if (magnitude == 0x7c00u)
    return floatOfBits(sign | 0x7f800000u);
  if (magnitude < 0x0400u) // Subnormal: a multiple of 2^-24.
    return floatOfBits(sign |
                       bitsOfFloat(static_cast<float>(magnitude) * 0x1p-24f));
  return floatOfBits(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
}

/// `value` as bf16 bits.
inline uint16_t bf16BitsOfFloat(float value) {
  uint32_t bits = bitsOfFloat(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>(bits >> 16 | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/// `value` as f16 bits.
inline uint16_t f16BitsOfFloat(float value) {
  uint32_t bits = bitsOfFloat(value);
  uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x47800000u) // 2^16. Below, 65520 and more round up to it.
    return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) // Below 2^-14 the result is a multiple of 2^-24.
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyintf(
                                            floatOfBits(magnitude) * 0x1p24f)));
  uint32_t rebiased = magnitude - ((127u - 15u) << 23);
  return static_cast<uint16_t>(
      sign | ((rebiased + 0xfffu + (rebiased >> 13 & 1u)) >> 13));
}

/// Reads element `index` of `data`, which need not be aligned.
inline float readElement(ElementType type, const void *data, int64_t index) {
  auto *bytes = static_cast<const uint8_t *>(data);
  if (type == ElementType::F32) {
    float value;
    std::memcpy(&value, bytes + 4 * index, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes + 2 * index, sizeof(bits));
  return type == ElementType::BF16 ? floatOfBF16Bits(bits)
                                   : floatOfF16Bits(bits);
}

/// Writes element `index` of `data`, rounded. A NaN, as it was computed, gets
/// the one bit pattern that it has in each type.
inline void writeElement(ElementType type, float value, void *data,
                         int64_t index) {
  auto *bytes = static_cast<uint8_t *>(data);
  if (std::isnan(value))
    value = floatOfBits(0x7fc00000u);
  if (type == ElementType::F32) {
    std::memcpy(bytes + 4 * index, &value, sizeof(value));
    return;
  }
  uint16_t bits = type == ElementType::BF16 ? bf16BitsOfFloat(value)
                                            : f16BitsOfFloat(value);
  std::memcpy(bytes + 2 * index, &bits, sizeof(bits));
}

/// Rounds `value` to a type.
inline float roundTo(ElementType type, float value) {
  uint32_t bits = 0;
  writeElement(type, value, &bits, 0);
  return readElement(type, &bits, 0);
}

} // namespace zpp

#endif // ZPP_SUPPORT_FLOAT16_H
