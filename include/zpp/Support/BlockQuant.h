//===- BlockQuant.h - The one definition of block quantization -*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Symmetric block quantization in the format that travels on the wire (ZeRO++
// sections 3.1, 3.3.1 and 4.2). Everything that quantizes follows this header:
// the CPU runtime, the CUDA kernels, the StableHLO lowering and the tests. The
// scalar functions below are compiled into both host and device code, so that
// the back ends agree to the bit.
//
// The definition for a block of at most `block` f32 values v (bf16 and f16
// inputs are widened first, which is exact):
//
//   flush    |v| < 2^-126 counts as zero, so that hardware with and without
//            subnormals agrees
//   amax     max |v|; NaN if any v is NaN
//   scale    0                                       if amax == 0
//            NaN                                     if amax is NaN or Inf
//            max(2^-126, bf16_round_up(amax / qmax)) otherwise
//   code     0 if scale is 0 or NaN, else round_half_even(v * (1 / scale))
//            with the *stored* scale, both steps in f32. |code| <= qmax, so
//            nothing is clipped
//   value    code * scale in f32; NaN for every element of a NaN block
//
// qmax is 127 for i8 and 7 for i4 (15 levels, symmetric). Rounding the scale up
// keeps the largest element inside the code range. With one reciprocal per
// block and one product per element, the error is |value - v| <= scale / 2 * (1
// + 2^-14) instead of scale / 2. code * scale is exact in f32 (7 + 8
// significant bits), so a fused multiply-add changes no bit of a sum. Values
// above 0x1.ffp127, which is beyond every finite bf16 and f16, may become Inf
// in an i4 block, as in a cast to bf16.
//
// A format may rotate: before it is quantized, each group of 32 consecutive
// elements of a chunk is multiplied by fixed signs s and then by the Hadamard
// matrix of that size; after it is dequantized, or summed, by the matrix and
// then by the signs. The matrix is symmetric and a multiple of an orthonormal
// one, so that this gives the values back, and sums can stay rotated from hop
// to hop. An outlier spreads over its group, and a block has a smaller amax.
// The matrix alone would make one large element of 32 equal ones; the signs
// make noise of them. The definition for a group x, in f32:
//
//   before   x[i] = a zero of x[i]'s sign if |x[i]| < 2^-100, else
//            s[i] * x[i] * 2^-3. Then for h = 1, 2, 4, 8, 16, and each i
//            without the bit h:
//            x[i], x[i + h] = x[i] + x[i + h], x[i] - x[i + h]
//   after    x[i] = a zero of x[i]'s sign if |x[i]| < 2^-100, else x[i] * 2^-2.
//            Then for h = 16, 8, 4, 2, 1, and each i without the bit h, with
//            k = i less its bits below h:
//            x[i], x[i + h] = x[i] + x[i + h], d
//            d = x[i] - x[i + h] if s[k] = s[k + h], else x[i + h] - x[i]
//
// The element i meets the sign s[k] * s[k + h] for each of its bits h, and
// these multiply to s[i], as s[0] = 1. In this way signs cost no instruction,
// and no sum that cancels is a negative zero.
//
// Both factors together are 1 / 32. They are powers of two, so that a fused
// multiply-add changes no bit. What enters is a multiple of 2^-126, and so is
// every sum: none is subnormal. A sum may overflow where |x| >= 2^123, and a
// group with NaN or Inf has no finite values left. The elements after the last
// whole group of a chunk are not rotated.
//
// A hop may send how much a tensor a differs from what its receivers hold, h:
// the values are v = a - h, and each receiver, and the sender for its own copy,
// then holds h + value, rounded to the type of its elements. Both steps are in
// f32, and what goes in or comes out below 2^-126 counts as a zero of its sign.
// So all copies have the same bits, and what was rounded is part of the next
// difference. A difference that overflows is Inf. What is held counts as 0
// where it is NaN or Inf, so that numbers arrive again once a is one.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_BLOCKQUANT_H
#define ZPP_SUPPORT_BLOCKQUANT_H

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define ZPP_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define ZPP_HOST_DEVICE inline
#endif

namespace zpp {

/// The format that a hop sends. `None` is the tensor's own element type.
enum class WireFormat : int32_t { None = 0, I8 = 8, I4 = 4 };

/// Element type of a tensor that is quantized or reduced.
enum class ElementType : int32_t { F32 = 0, BF16 = 1, F16 = 2 };

/// Bytes of one element.
ZPP_HOST_DEVICE constexpr int64_t elementBytes(ElementType type) {
  return type == ElementType::F32 ? 4 : 2;
}

/// The elements of a block are a power of two in this range.
inline constexpr int64_t kMinBlock = 32;
inline constexpr int64_t kMaxBlock = 2048;
/// Codes, scales and chunks start at multiples of this number of bytes.
inline constexpr int64_t kChunkAlignment = 16;

/// The elements of a group that is rotated. No block is smaller.
inline constexpr int64_t kRotation = 32;

/// The signs of a rotation: element i's is negative if bit i is set. Whatever
/// is as alike as a row of the Hadamard matrix spreads over its group.
inline constexpr uint32_t kRotationSigns = 0xfa36f5c6u;
static_assert((kRotationSigns & 1) == 0, "element 0 keeps its sign");

/// Whether element i of a group is negated before the matrix.
ZPP_HOST_DEVICE constexpr bool isNegated(int64_t i) {
  return (kRotationSigns >> i & 1) != 0;
}

/// Whether stage `h` of the way back takes the difference of the elements i and
/// i + h of a group the other way round.
ZPP_HOST_DEVICE constexpr bool isReversed(int64_t i, int64_t h) {
  int64_t k = i & -h;
  return isNegated(k) != isNegated(k + h);
}

/// Elements of a group, or 0 for a format that does not rotate.
constexpr bool isValidRotation(int64_t rotate) {
  return rotate == 0 || rotate == kRotation;
}

constexpr bool isValidBlock(int64_t block) {
  return block >= kMinBlock && block <= kMaxBlock && (block & (block - 1)) == 0;
}

/// The properties that distinguish formats with codes.
struct WireFormatTraits {
  /// The largest code. Codes are symmetric.
  int32_t maxCode;
  /// How many codes a byte holds.
  int32_t codesPerByte;
};

/// The formats with codes.
inline constexpr WireFormat kCodedFormats[] = {WireFormat::I8, WireFormat::I4};

// The switches over formats have no default, so that compilers name those that
// lack a new one.

/// Returns the traits of a format with codes.
ZPP_HOST_DEVICE constexpr WireFormatTraits getTraits(WireFormat format) {
  switch (format) {
  case WireFormat::None:
    break;
  case WireFormat::I8:
    return {127, 1};
  case WireFormat::I4:
    return {7, 2};
  }
  return {0, 1};
}

/// The word for a format in options and reports.
constexpr const char *nameOf(WireFormat format) {
  switch (format) {
  case WireFormat::None:
    break;
  case WireFormat::I8:
    return "i8";
  case WireFormat::I4:
    return "i4";
  }
  return "none";
}

/// Returns the largest code of a format.
ZPP_HOST_DEVICE constexpr int32_t maxCode(WireFormat format) {
  return getTraits(format).maxCode;
}

/// Returns the bytes of `count` codes.
ZPP_HOST_DEVICE constexpr int64_t codeBytes(WireFormat format, int64_t count) {
  int32_t perByte = getTraits(format).codesPerByte;
  return (count + perByte - 1) / perByte;
}

// clang-format off
/// The layout of the chunk of `elements` values that one destination gets:
///
///   0         payloadBytes    scalesOffset              chunkBytes
///   |         |               |                         |
///   |  codes  | 0 to 15 zeros |  scales | 0 to 15 zeros |
///
///   codes    in two's complement. i8: one byte each. i4: two per byte, element
///            2k in the low nibble and element 2k + 1 in the high one
///   scales   one bf16 per block, little endian
///
/// Zeros fill up to a multiple of 16 bytes. Codes and scales lie together, so
/// that a hop is one collective.
struct ChunkLayout {
  int64_t elements;
  int64_t blocks;
  int64_t payloadBytes;
  int64_t scalesOffset;
  int64_t chunkBytes;
};
// clang-format on

ZPP_HOST_DEVICE constexpr int64_t alignToChunk(int64_t bytes) {
  return (bytes + 15) / 16 * 16;
}

/// Layout of a chunk of `elements` >= 0 values in a format with codes.
ZPP_HOST_DEVICE constexpr ChunkLayout
getChunkLayout(int64_t elements, WireFormat format, int64_t block) {
  ChunkLayout layout{};
  layout.elements = elements;
  layout.blocks = (elements + block - 1) / block;
  layout.payloadBytes = codeBytes(format, elements);
  layout.scalesOffset = alignToChunk(layout.payloadBytes);
  layout.chunkBytes = alignToChunk(layout.scalesOffset + 2 * layout.blocks);
  return layout;
}

//===----------------------------------------------------------------------===//
// Scalar steps
//===----------------------------------------------------------------------===//

ZPP_HOST_DEVICE uint32_t bitsOfFloat(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
#endif
}

ZPP_HOST_DEVICE float floatOfBits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
#endif
}

/// Returns the bf16 with these bits, as f32 (exact).
ZPP_HOST_DEVICE float floatOfBF16Bits(uint16_t bits) {
  return floatOfBits(static_cast<uint32_t>(bits) << 16);
}

/// |value| as f32 bits; values below 2^-126 become 0. The bits of numbers are
/// ordered as their magnitudes, and those of a NaN are above those of every
/// number. So a block's amax is a maximum of unsigned integers, which is
/// associative and exact.
ZPP_HOST_DEVICE uint32_t magnitudeBits(float value) {
  uint32_t bits = bitsOfFloat(value) & 0x7fffffffu;
  return bits < 0x00800000u ? 0u : bits;
}

/// Returns the stored scale, as bf16 bits, of a block whose largest
/// magnitudeBits is `amaxBits`.
ZPP_HOST_DEVICE uint16_t scaleBits(uint32_t amaxBits, WireFormat format) {
  if (amaxBits == 0)
    return 0;
  if (amaxBits >= 0x7f800000u)
    return 0x7fc0; // NaN, since a NaN or Inf in the block must stay visible.
  float qmax = static_cast<float>(maxCode(format));
#if defined(__CUDA_ARCH__)
  float exact = __fdiv_rn(floatOfBits(amaxBits), qmax);
#else
  float exact = floatOfBits(amaxBits) / qmax;
#endif
  uint32_t up = (bitsOfFloat(exact) + 0xffffu) >> 16;
  return static_cast<uint16_t>(up < 0x0080u ? 0x0080u : up);
}

/// Returns the factor that `encodeValue` multiplies by: 1 / scale, or 0 if
/// every code is 0.
ZPP_HOST_DEVICE float inverseScale(float scale) {
  // The comparison is false for 0 and for NaN.
  if (!(scale > 0.0f))
    return 0.0f;
#if defined(__CUDA_ARCH__)
  return __frcp_rn(scale);
#else
  return 1.0f / scale;
#endif
}

/// The code of `value` in a block whose stored scale has this inverse.
ZPP_HOST_DEVICE int32_t encodeValue(float value, float inverse) {
  if (inverse == 0.0f || magnitudeBits(value) == 0)
    return 0;
#if defined(__CUDA_ARCH__)
  return __float2int_rn(__fmul_rn(value, inverse));
#else
  return static_cast<int32_t>(std::nearbyintf(value * inverse));
#endif
}

/// Returns the value of `code` in a block with stored scale `scale` (as f32).
ZPP_HOST_DEVICE float decodeValue(int32_t code, float scale) {
  return static_cast<float>(code) * scale;
}

#if !defined(__CUDA_ARCH__)
/// A zero of the sign of `value` if |value| < 2^-126, else `value`.
inline float flushToZero(float value) {
  return magnitudeBits(value) == 0 ? std::copysign(0.0f, value) : value;
}
#endif

/// `held`, or 0 if it is no finite number, to which nothing can be added.
ZPP_HOST_DEVICE float finiteOrZero(float held) {
  return magnitudeBits(held) < 0x7f800000u ? held : 0.0f;
}

/// a - held: what is quantized of a difference.
ZPP_HOST_DEVICE float subtractHeld(float a, float held) {
  held = finiteOrZero(held);
#if defined(__CUDA_ARCH__)
  float result;
  asm("sub.rn.ftz.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(held));
  return result;
#else
  return flushToZero(flushToZero(a) - flushToZero(held));
#endif
}

/// held + value: what is held once the decoded `value` has arrived.
ZPP_HOST_DEVICE float addHeld(float held, float value) {
  held = finiteOrZero(held);
#if defined(__CUDA_ARCH__)
  float result;
  asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(result) : "f"(held), "f"(value));
  return result;
#else
  return flushToZero(flushToZero(held) + flushToZero(value));
#endif
}

/// Before the first quantization, or after the last dequantization.
enum class Rotation { Forward, Back };

/// Scales `value`, element i of a group, for the first stage of a rotation.
/// The sign of a zero that goes forward does not show.
ZPP_HOST_DEVICE float enterRotation(float value, Rotation rotation, int64_t i) {
  float factor = rotation == Rotation::Back ? 0x1p-2f
                 : isNegated(i)             ? -0x1p-3f
                                            : 0x1p-3f;
#if defined(__CUDA_ARCH__)
  // Products with powers of two are exact, but where they would be subnormal.
  float flushed;
  asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(flushed) : "f"(value), "f"(0x1p-26f));
  return __fmul_rn(flushed, 0x1p26f * factor);
#else
  // The comparison is false for NaN.
  return std::fabs(value) < 0x1p-100f ? std::copysign(0.0f, value)
                                      : value * factor;
#endif
}

/// Two i4 codes as one byte; `low` is the element with the even index.
ZPP_HOST_DEVICE uint8_t packNibbles(int32_t low, int32_t high) {
  return static_cast<uint8_t>((low & 0xf) | ((high & 0xf) << 4));
}

/// The i4 code of the even (`odd` = 0) or odd (`odd` = 1) element of a byte.
ZPP_HOST_DEVICE int32_t unpackNibble(uint8_t byte, int odd) {
  int32_t nibble = odd ? byte >> 4 : byte & 0xf;
  return (nibble ^ 8) - 8;
}

/// Returns code `index` of `codes`.
ZPP_HOST_DEVICE int32_t loadCode(const uint8_t *codes, int64_t index,
                                 WireFormat format) {
  switch (format) {
  case WireFormat::None:
    break;
  case WireFormat::I8:
    return static_cast<int8_t>(codes[index]);
  case WireFormat::I4:
    return unpackNibble(codes[index / 2], static_cast<int>(index % 2));
  }
  return 0;
}

/// Stores code `index` in `codes`, which has zeros there.
inline void storeCode(uint8_t *codes, int64_t index, int32_t code,
                      WireFormat format) {
  switch (format) {
  case WireFormat::None:
    return;
  case WireFormat::I8:
    codes[index] = static_cast<uint8_t>(code);
    return;
  case WireFormat::I4:
    codes[index / 2] |= index % 2 ? packNibbles(0, code) : packNibbles(code, 0);
    return;
  }
}

} // namespace zpp

#endif // ZPP_SUPPORT_BLOCKQUANT_H
