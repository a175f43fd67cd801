//===- BlockCodec.cuh - Blocks to codes and back, by threads ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The scalar steps of zpp/Support/BlockQuant.h, bit for bit, for items: `n`
// consecutive elements in the registers of one thread. A block is block / n
// consecutive threads. Conversion instructions run at a fraction of the full
// rate, so integers are converted in the low bits of a mantissa instead.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_BLOCKCODEC_CUH
#define ZPP_KERNELS_BLOCKCODEC_CUH

#include "zpp/kernels/Launch.h"
#include "zpp/kernels/Pack.cuh"

namespace zpp::kernels {

/// Threads of a thread block: as many as the largest block (kMaxBlock elements)
/// needs with the smallest item of an encoder (16).
inline constexpr int kThreads = 128;

/// How a kernel reaches the elements of a tensor.
enum class Path {
  /// In packs, with 32-bit indices.
  Narrow,
  /// In packs, with 64-bit indices.
  Wide,
  /// One by one, with 64-bit indices.
  Single,
};
template <Path path> using PathConstant = std::integral_constant<Path, path>;
template <Path path>
using IndexOf = std::conditional_t<path == Path::Narrow, int32_t, int64_t>;

/// The chunk that a thread block works on, in a grid of `threadBlocks` x rows x
/// layers.
template <typename Int> __device__ __forceinline__ Int chunkOfBlock() {
  return static_cast<Int>(blockIdx.z) * static_cast<Int>(gridDim.y) +
         static_cast<Int>(blockIdx.y);
}

//===----------------------------------------------------------------------===//
// Decoding
//===----------------------------------------------------------------------===//

/// (word & mask) ^ flip in one instruction.
__device__ __forceinline__ uint32_t maskFlip(uint32_t word, uint32_t mask,
                                             uint32_t flip) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;"
      : "=r"(result)
      : "r"(word), "r"(mask), "r"(flip));
  return result;
}

/// Calls `visit(i, code)` for the `n` codes of `pack`, as f32.
template <WireFormat format, int n, typename Visitor>
__device__ __forceinline__ void
forEachCode(const Pack<n * codeBits(format) / 8> &pack, const Visitor &visit) {
#pragma unroll
  for (int i = 0; i < n; ++i) {
    if constexpr (format == WireFormat::I8) {
      // A byte with its sign flipped is code + 128, in the low byte of 2^23.
      uint32_t word = pack.words[i / 4] ^ 0x80808080u;
      uint32_t bits = __byte_perm(word, 0x4b000000u, 0x7650 | (i % 4));
      visit(i, __uint_as_float(bits) - (0x1p23f + 128.0f));
    } else {
      static_assert(format == WireFormat::I4);
      // A nibble with its sign flipped is code + 8, at bit p of the mantissa of
      // 2^(23 - p), where bit p is worth 1: four of them need no shift.
      int p = 4 * (i % 4);
      uint32_t word = pack.words[i / 8] >> (i % 8 < 4 ? 0 : 16);
      uint32_t exponent = static_cast<uint32_t>(127 + 23 - p) << 23;
      uint32_t bits = maskFlip(word, 0xfu << p, exponent | (0x8u << p));
      float bias = static_cast<float>(1 << (23 - p)) + 8.0f;
      visit(i, __uint_as_float(bits) - bias);
    }
  }
}

/// Element `element` of a chunk.
template <WireFormat format>
__device__ __forceinline__ float
decodeElement(const uint8_t *chunk, int64_t scalesOffset, int32_t blockLog2,
              int64_t element) {
  auto *scales = reinterpret_cast<const uint16_t *>(chunk + scalesOffset);
  float scale = floatOfBF16Bits(scales[element >> blockLog2]);
  int32_t code = loadCode(chunk, element, format);
  return __fmul_rn(static_cast<float>(code), scale);
}

//===----------------------------------------------------------------------===//
// Encoding
//===----------------------------------------------------------------------===//

/// The place of the codes and scales of a chunk.
struct ChunkWriter {
  ChunkLayout layout;
  /// log2 of the threads of a block.
  int32_t lanesLog2;

  /// The layout for threads that have `item` elements.
  static ChunkWriter create(int64_t elements, WireFormat format, int64_t block,
                            int64_t item) {
    return {getChunkLayout(elements, format, block), log2Of(block / item)};
  }
};

/// a * b with subnormal operands counted as zero. This is how BlockQuant.h
/// flushes values below 2^-126, at no cost.
__device__ __forceinline__ float multiplyFlushed(float a, float b) {
  float result;
  asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

/// scaleBits() of a block with these magnitude bits, subnormal ones included.
/// Division by a constant is a product and one correction, which gives the same
/// bits of the scale for every f32.
template <WireFormat format>
__device__ __forceinline__ uint32_t quickScaleBits(uint32_t amaxBits) {
  if (amaxBits < 0x00800000u)
    return 0;
  if (amaxBits >= 0x7f800000u)
    return 0x7fc0;
  constexpr float kMaxCode = static_cast<float>(maxCode(format));
  constexpr float kReciprocal = 1.0f / kMaxCode;
  float amax = __uint_as_float(amaxBits);
  float guess = __fmul_rn(amax, kReciprocal);
  float rest = __fmaf_rn(-guess, kMaxCode, amax);
  uint32_t quotient = __float_as_uint(__fmaf_rn(rest, kReciprocal, guess));
  return max((quotient + 0xffffu) >> 16, 0x0080u);
}

/// inverseScale() of a scale that quickScaleBits() returned. The hardware's
/// reciprocal and one Newton step: correctly rounded unless all significant
/// bits of the operand are ones, and a scale has only 8 of 24.
__device__ __forceinline__ float quickInverseScale(uint32_t scaleBits) {
  if (scaleBits == 0 || scaleBits == 0x7fc0)
    return 0.0f;
  float scale = __uint_as_float(scaleBits << 16);
  float guess;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(guess) : "f"(scale));
  float rest = __fmaf_rn(-scale, guess, 1.0f);
  return __fmaf_rn(rest, guess, guess);
}

template <int n>
__device__ __forceinline__ uint32_t amaxBits(const float (&values)[n]) {
  // Several chains: in one, each maximum would wait for the one before.
  constexpr int kChains = n < 4 ? n : 4;
  float amax[kChains];
#pragma unroll
  for (int i = 0; i < n; ++i)
    amax[i % kChains] = i < kChains
                            ? fabsf(values[i])
                            : maxOrNaN(amax[i % kChains], fabsf(values[i]));
#pragma unroll
  for (int i = 1; i < kChains; ++i)
    amax[0] = maxOrNaN(amax[0], amax[i]);
  return __float_as_uint(amax[0]);
}

/// Maximum over the 2^lanesLog2 threads of a block. All threads of the thread
/// block must take part. `isFirst`: the thread block has not called it before.
template <bool isFirst>
__device__ __forceinline__ uint32_t blockMax(uint32_t value,
                                             int32_t lanesLog2) {
  auto exchange = [&](int lanes) {
    value = max(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  };
  // Two or four threads are what most blocks have.
  if (lanesLog2 > 0)
    exchange(1);
  if (lanesLog2 > 1)
    exchange(2);
#pragma unroll 1
  for (int i = 2; i < min(lanesLog2, 5); ++i)
    exchange(1 << i);
  if (lanesLog2 > 5) {
    __shared__ uint32_t warps[kThreads / 32];
    int warp = threadIdx.x / 32;
    // What an earlier item has left there has been read.
    if constexpr (!isFirst)
      __syncthreads();
    if (threadIdx.x % 32 == 0)
      warps[warp] = value;
    __syncthreads();
    int count = 1 << (lanesLog2 - 5);
    int first = warp & ~(count - 1);
#pragma unroll 1
    for (int i = 0; i < count; ++i)
      value = max(value, warps[first + i]);
  }
  return value;
}

/// Returns the codes of `values`, packed as on the wire.
template <WireFormat format, int n>
__device__ __forceinline__ Pack<n * codeBits(format) / 8>
packCodes(const float (&values)[n], float inverse) {
  // In a NaN block the values can be anything, and the codes are zero.
  // A mask made by arithmetic: a predicate takes an instruction more per word.
  auto keep = static_cast<uint32_t>(
      -static_cast<int32_t>(__float_as_uint(inverse)) >> 31);
  Pack<n * codeBits(format) / 8> pack;
  // Added to a float up to 2^22, a large one leaves its nearest integer, ties
  // to even, in the low bits.
  auto round = [&](int i, float large) {
    return __float_as_uint(
        __fadd_rn(multiplyFlushed(values[i], inverse), large));
  };
  if constexpr (format == WireFormat::I8) {
    // In two's complement, of 1.5 * 2^23.
    auto lowBytes = [](uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
      return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040),
                         0x5410);
    };
#pragma unroll
    for (int w = 0; w < n / 4; ++w) {
      uint32_t bits[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        bits[i] = round(4 * w + i, 12582912.0f);
      pack.words[w] = keep & lowBytes(bits[0], bits[1], bits[2], bits[3]);
    }
  } else {
    static_assert(format == WireFormat::I4);
    // Biased by 8, of 2^23 = 0x4b000000: such words, 4 bits apart, add up to
    // the nibbles and 0xfb000000. The third one is larger by 0x50000, so that
    // nothing but the nibbles is left.
    //
    // Multiplied by 16, which the compiler must not know: it would shift, on
    // the pipe that is the busier one.
    uint32_t sixteen = blockDim.x / (kThreads / 16);
#pragma unroll
    for (int w = 0; w < n / 8; ++w) {
      uint32_t bits[8];
#pragma unroll
      for (int i = 0; i < 8; ++i)
        bits[i] = round(8 * w + i, i == 2 ? 8388616.0f + 0x50000 : 8388616.0f);
      uint32_t factor = sixteen;
#pragma unroll
      for (int count = 8; count > 1; count /= 2, factor *= factor)
#pragma unroll
        for (int i = 0; i < count / 2; ++i)
          bits[i] = bits[2 * i + 1] * factor + bits[2 * i];
      pack.words[w] = keep & (bits[0] ^ 0x88888888u);
    }
  }
  return pack;
}

/// Encodes and stores item `item` of a chunk; `values` beyond the chunk's
/// elements are zero. What is encoded are the products of the values and
/// `factor`, a power of two, whose largest magnitude is `amax`, as bits. All
/// threads of the thread block must take part, including those whose items lie
/// after the chunk. Writes every byte of the chunk, padding included.
template <WireFormat format, bool isFirst, typename Int, int n>
__device__ __forceinline__ void
encodeItem(const float (&values)[n], float factor, uint32_t amax, Int item,
           const ChunkWriter &writer, uint8_t *chunk) {
  constexpr int kBytes = n * codeBits(format) / 8;
  amax = blockMax<isFirst>(amax, writer.lanesLog2);
  uint32_t scale = quickScaleBits<format>(amax);
  Pack<kBytes> codes =
      packCodes<format>(values, quickInverseScale(scale) * factor);

  Int block = item >> writer.lanesLog2;
  Int blocks = static_cast<Int>(writer.layout.blocks);
  Int scalesOffset = static_cast<Int>(writer.layout.scalesOffset);
  if (block >= blocks)
    return;
  Int offset = item * kBytes;
  if (offset + kBytes <= scalesOffset) {
    codes.store(chunk + offset);
  } else {
    // The payload ends at a multiple of 16 bytes.
    constexpr int kPiece = kBytes < 16 ? kBytes : 16;
#pragma unroll
    for (int i = 0; i < kBytes; i += kPiece)
      if (offset + i < scalesOffset)
        codes.template slice<kPiece>(i / kPiece).store(chunk + offset + i);
  }
  if ((item & ((1 << writer.lanesLog2) - 1)) != 0)
    return;
  uint16_t *scales = reinterpret_cast<uint16_t *>(chunk + scalesOffset);
  scales[block] = static_cast<uint16_t>(scale);
  if (block == blocks - 1) {
    Int end = static_cast<Int>(writer.layout.chunkBytes) - scalesOffset;
#pragma unroll 1
    for (Int i = blocks; i < end / 2; ++i)
      scales[i] = 0;
  }
}

} // namespace zpp::kernels

#endif // ZPP_KERNELS_BLOCKCODEC_CUH
