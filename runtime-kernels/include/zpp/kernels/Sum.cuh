//===- Sum.cuh - Sums over sources ------------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// value(e) = (((0 + source 0[e]) + source 1[e]) + ...) / divisor, in f32, for
// any number of sources.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_SUM_CUH
#define ZPP_KERNELS_SUM_CUH

#include "zpp/kernels/Async.cuh"
#include "zpp/kernels/BlockCodec.cuh"
#include "zpp/kernels/Gather.cuh"
#include "zpp/kernels/Launch.h"

#include <algorithm>
#include <cmath>

namespace zpp::kernels {

/// Chunks of equal shape, source s at data + s * stride.
struct Sources {
  const uint8_t *data;
  int64_t stride;
  int64_t scalesOffset;
  int32_t blockLog2;
  int32_t count;
};

/// How a sum is finished: see Reduction.
struct Finish {
  float divisor;
  /// 1 / divisor if multiplying by it gives the same bits as dividing, else 0.
  float factor;
  ElementType partial;

  /// For a valid divisor.
  static Finish create(float divisor, ElementType partial) {
    int exponent;
    bool isPowerOfTwo = std::frexp(divisor, &exponent) == 0.5f;
    return {divisor, isPowerOfTwo ? 1.0f / divisor : 0.0f, partial};
  }

#if defined(__CUDACC__)
  /// Whether apply() changes nothing.
  __device__ __forceinline__ bool isNothing() const {
    return factor == 1.0f && partial == ElementType::F32;
  }

  template <int n>
  __device__ __forceinline__ void apply(float (&values)[n]) const {
    if (factor == 0.0f) {
#pragma unroll
      for (int i = 0; i < n; ++i)
        values[i] = __fdiv_rn(values[i], divisor);
    } else if (factor != 1.0f) {
#pragma unroll
      for (int i = 0; i < n; ++i)
        values[i] = __fmul_rn(values[i], factor);
    }
    if (partial == ElementType::BF16) {
#pragma unroll
      for (int i = 0; i < n; ++i)
        values[i] = __bfloat162float(__float2bfloat16_rn(values[i]));
    } else if (partial == ElementType::F16) {
#pragma unroll
      for (int i = 0; i < n; ++i)
        values[i] = __half2float(__float2half_rn(values[i]));
    }
  }
#endif
};

/// Whether sums of `sources` can be divided by `divisor`.
inline bool areValid(const ConstChunks &sources, float divisor) {
  return sources.count <= std::numeric_limits<int32_t>::max() &&
         divisor > 0.0f && std::isfinite(divisor);
}

inline Sources createSources(const ConstChunks &chunks, int64_t elements) {
  Sources sources{static_cast<const uint8_t *>(chunks.data), chunks.stride,
                  /*scalesOffset=*/0, /*blockLog2=*/0,
                  static_cast<int32_t>(chunks.count)};
  if (chunks.format != WireFormat::None) {
    sources.scalesOffset =
        getChunkLayout(elements, chunks.format, chunks.block).scalesOffset;
    sources.blockLog2 = log2Of(chunks.block);
  }
  return sources;
}

/// Whether packs can be loaded from each of `sources`, at multiples of 16
/// bytes.
inline bool allowsVectors(const ConstChunks &sources) {
  return isAligned(sources.data, 16) &&
         (sources.count == 1 || sources.stride % 16 == 0);
}

/// The sum of one element.
template <Kind kind>
__device__ __forceinline__ float sumElement(const Sources &sources,
                                            int64_t element) {
  float sum = 0.0f;
  const uint8_t *chunk = sources.data;
#pragma unroll 1
  for (int s = 0; s < sources.count; ++s, chunk += sources.stride) {
    if constexpr (isQuantized(kind)) {
      sum = __fadd_rn(
          sum, decodeElement<formatOf(kind)>(chunk, sources.scalesOffset,
                                             sources.blockLog2, element));
    } else {
      using E = Element<kind>;
      auto *values = reinterpret_cast<const typename E::Storage *>(chunk);
      sum = __fadd_rn(sum, E::widen(values[element]));
    }
  }
  return sum;
}

/// Whether f64 runs at half the rate of f32, rather than at a small fraction.
#if defined(__CUDA_ARCH__) &&                                                  \
    (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000)
inline constexpr bool kHasFastF64 = true;
#else
inline constexpr bool kHasFastF64 = false;
#endif

/// Whether up to 8 sources of i4 can be summed as integers: with scales m * 2^e
/// (m < 2^8, e from eMin to eMax, zero scales apart), each product is a
/// multiple of 2^eMin, and so is each partial sum, which stays at or below
/// 8 * 15 * 255 * 2^eMax < 2^(15 + eMax), also when codes are biased to 0..15.
/// Up to eMax - eMin = 8 that is 23 bits: no sum in f32 rounds, in whatever way
/// it is computed.
struct ScaleRange {
  static constexpr int kMaxSources = 8;
  uint32_t largest = 0;
  /// Smallest of those that are not zero, less one.
  uint32_t smallest = kMost - 1;

  __device__ __forceinline__ void add(uint32_t scaleBits) {
    largest = max(largest, scaleBits);
    smallest = min(smallest, scaleBits - 1);
  }
  /// Whether no sum but zero is below 2^-88, or above 2^108.
  __device__ __forceinline__ bool isUsual() const {
    return smallest + 1 >= ((127u - 80u) << 23) &&
           largest < ((127u + 96u) << 23);
  }
  /// False also for what ExactSum cannot scale: numbers that no encoder makes,
  /// and those from 2^73 on.
  __device__ __forceinline__ bool isExact() const {
    return isWithin(8) && smallest >= 0x007fffffu && largest < kMost;
  }
  /// Whether IntegerSum can sum `sources` sources.
  __device__ __forceinline__ bool isExactInteger(int sources) const {
    return isWithin(sources <= 2 ? 6 : 5) &&
           smallest >= (kLeastIntegerExponent << 23) - 1 && largest < kMost;
  }
  /// So that the factors of IntegerSum are not subnormal.
  static constexpr uint32_t kLeastIntegerExponent = 12;

private:
  static constexpr uint32_t kMost = 200u << 23;

  /// Whether all are within a factor of 2^exponent, also if all are zero.
  __device__ __forceinline__ bool isWithin(int exponent) const {
    return static_cast<int32_t>(largest - smallest) <= (exponent << 23) + 1;
  }
};

/// Such sums of n codes, two in each f64: one instruction masks two codes, and
/// one adds them.
///
/// Two nibbles 24 bits apart in a word, masked but not shifted, are with a high
/// word of zero the subnormal (a + b * 2^24) * 2^(p - 1074), p the bit of a. A
/// scale moved up to 2^1022 makes a multiple of the last bit of 2^(p - 15) of
/// it. Added to that, it leaves the 23 bits of both sums in the mantissa, 24
/// bits apart. The upper byte stays 0x3f, so that bytes of it and of a sum are
/// the f32 1/2 + sum * 2^-24.
template <int n> class ExactSum {
  /// Pairs of a word: nibbles 0 and 6, 1 and 7, then those of the word with its
  /// halves swapped.
  static constexpr int kPairs = 4;

public:
  __device__ __forceinline__ explicit ExactSum(const ScaleRange &range)
      : exponent(range.largest >> 23), shift((2045u - exponent) << 20) {
#pragma unroll
    for (int i = 0; i < n / 2; ++i)
      sums[i] = i % 2 == 0 ? 0x1p-15 : 0x1p-11;
  }

  __device__ __forceinline__ void add(const Pack<n / 2> &pack,
                                      uint32_t scaleBits) {
    scales = __fadd_rn(scales, __uint_as_float(scaleBits));
    double scale = __hiloint2double(
        scaleBits == 0 ? 0 : static_cast<int>((scaleBits >> 3) + shift), 0);
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      uint32_t word = pack.words[i / kPairs];
      if (i % kPairs >= 2)
        word = __byte_perm(word, 0, 0x1032);
      uint32_t bits = i % 2 == 0 ? maskFlip(word, 0x0f00000fu, 0x08000008u)
                                 : maskFlip(word, 0xf00000f0u, 0x80000080u);
      sums[i] =
          __fma_rn(__hiloint2double(0, static_cast<int>(bits)), scale, sums[i]);
    }
  }

  /// sum over s of (n - 8) * scale, n the biased code, times a power of two.
  __device__ __forceinline__ void finish(float (&sum)[n],
                                         float power = 1.0f) const {
    float factor = __uint_as_float((exponent + 9) << 23) * power;
    float bias = __fmaf_rn(scales, -8.0f * power, -0.5f * factor);
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      constexpr int kLower[kPairs] = {0, 1, 4, 5};
      constexpr int kUpper[kPairs] = {6, 7, 2, 3};
      int first = i / kPairs * 8;
      uint32_t low = __double2loint(sums[i]);
      uint32_t high = __double2hiint(sums[i]);
      float lower = __uint_as_float(__byte_perm(low, high, 0x7210));
      float upper = __uint_as_float(__byte_perm(low, high, 0x7543));
      sum[first + kLower[i % kPairs]] = __fmaf_rn(lower, factor, bias);
      sum[first + kUpper[i % kPairs]] = __fmaf_rn(upper, factor, bias);
    }
  }

private:
  /// Exponent of the largest scale, as in an f32.
  uint32_t exponent;
  uint32_t shift;
  float scales = 0.0f;
  double sums[n / 2];
};

/// Such sums of n codes of up to four sources, with eMax - eMin <= 6 for two
/// and <= 5 for more: one instruction multiplies two codes by their scales and
/// adds the products.
///
/// The scales are integers below 2^14 (2^13) in units of 2^(eMin - 7). The
/// codes are bytes, biased to 0..15, or to 16 times that where they are masked
/// but not shifted. Added to the bits of 1.5 * 2^23, a sum below 2^22 makes the
/// float 1.5 * 2^23 + sum.
template <int n, int sources> class IntegerSum {
  static_assert(sources <= 4);
  static constexpr int kPairs = (sources + 1) / 2;

public:
  __device__ __forceinline__ IntegerSum(const ScaleRange &range,
                                        const uint32_t (&scales)[sources])
      : exponent(max((range.smallest + 1) >> 23,
                     ScaleRange::kLeastIntegerExponent)) {
    uint32_t sum = 0;
#pragma unroll
    for (int k = 0; k < kPairs; ++k)
      factors[k] = 0;
#pragma unroll
    for (int k = 0; k < sources; ++k) {
      uint32_t significand = __byte_perm(scales[k], 0, 0x4442) | 0x80u;
      // Nothing is left of a scale of zero, which is shifted by 2^32 less
      // `exponent`.
      uint32_t integer;
      asm("shl.b32 %0, %1, %2;"
          : "=r"(integer)
          : "r"(significand), "r"((scales[k] >> 23) - exponent));
      factors[k / 2] |= integer << (16 * (k % 2));
      sum += integer;
    }
    bias = 8 * sum;
  }

  /// The sums, times a power of two. `load(k, w)` is word w of source k's
  /// codes.
  template <typename Load>
  __device__ __forceinline__ void add(const Load &load, float power,
                                      float (&sum)[n]) const {
    // Of elements with an even and with an odd index.
    float factor[2], rest[2];
    uint32_t first[2];
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      factor[odd] = __uint_as_float((exponent - 7 - 4 * odd) << 23) * power;
      rest[odd] = -kMagic * factor[odd];
      first[odd] = kMagicBits - (bias << (4 * odd));
    }
#pragma unroll
    for (int w = 0; w < n / 8; ++w)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t lower[2] = {first[0], first[1]};
        uint32_t upper[2] = {first[0], first[1]};
#pragma unroll
        for (int k = 0; k < kPairs; ++k) {
          // Two bytes of each source, in turn: four elements.
          uint32_t other = 2 * k + 1 < sources ? load(2 * k + 1, w) : 0;
          uint32_t bytes =
              __byte_perm(load(2 * k, w), other, half == 0 ? 0x5140 : 0x7362);
#pragma unroll
          for (int odd = 0; odd < 2; ++odd) {
            uint32_t codes = maskFlip(bytes, 0x0f0f0f0fu << (4 * odd),
                                      0x08080808u << (4 * odd));
            lower[odd] = __dp2a_lo(factors[k], codes, lower[odd]);
            upper[odd] = __dp2a_hi(factors[k], codes, upper[odd]);
          }
        }
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          int i = 8 * w + 4 * half + odd;
          sum[i] =
              __fmaf_rn(__uint_as_float(lower[odd]), factor[odd], rest[odd]);
          sum[i + 2] =
              __fmaf_rn(__uint_as_float(upper[odd]), factor[odd], rest[odd]);
        }
      }
  }

private:
  static constexpr float kMagic = 12582912.0f;
  static constexpr uint32_t kMagicBits = 0x4b400000u;
  /// eMin, as in an f32.
  uint32_t exponent;
  /// The scales of two sources each.
  uint32_t factors[kPairs];
  /// Contribution of the codes' bias to a sum.
  uint32_t bias;
};

/// A product that overflows must do so before it is added: a fused multiply-add
/// could come back below infinity. Codes are below 2^8, so that scales below
/// 2^120 cannot. As f32 bits.
inline constexpr uint32_t kLargestFusedScale = 0x7b800000u;

/// Buffer in which the items of a warp, of `n` elements of one source, arrive
/// in shared memory. No thread reads what another one has copied.
template <Kind kind, int n> struct SourceStage {
  static constexpr int kBytes = n * bitsOf(kind) / 8;
  /// Copies of 16 bytes.
  static constexpr int kPieces = kBytes / 16;
  static_assert(kBytes % 16 == 0);

  uint4 packs[kPieces][32];
  uint32_t scales[32];

  /// Between `global` and the thread's place at `shared`.
  __device__ __forceinline__ static void copy(uint32_t shared,
                                              const uint8_t *global) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      copyAsync<16>(shared + 512 * i, global + 16 * i);
  }
  __device__ __forceinline__ static Pack<kBytes> load(uint32_t shared) {
    Pack<kBytes> pack;
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      pack.setSlice(i, loadShared16(shared + 512 * i));
    return pack;
  }
};

/// Sums items of `n` elements. The sources travel through shared memory, so
/// that what is in flight costs no registers and the loop over them stays
/// small: kStages of them at once.
template <Kind kind, int n> class Summer {
  static constexpr int kStages =
      isQuantized(kind) ? 8 : 128 / (n * bitsOf(kind) / 8);
  using Stage = SourceStage<kind, n>;

public:
  struct Storage {
    Stage stages[kStages];
  };

  /// The sums of the elements from `element` on; of codes, it is a multiple of
  /// n. If the thread is `active`, all of them must be there in the sources (as
  /// padding, for codes). Returns false if the sums are not valid and
  /// sumElement() must be used.
  template <typename Int>
  __device__ __forceinline__ static bool sum(const Sources &sources,
                                             Storage &storage, bool active,
                                             Int element, float (&sum)[n]) {
    int lane = threadIdx.x % 32;
    const uint8_t *packs =
        sources.data + static_cast<int64_t>(element) * bitsOf(kind) / 8;
    // Scales come in pairs, because 4 bytes are the least that can be copied.
    Int block = element >> sources.blockLog2;
    const uint8_t *scales =
        sources.data + sources.scalesOffset + (block / 2) * 4;
    uint32_t scaleSelector = block % 2 != 0 ? 0x3244 : 0x1044;
    uint32_t sharedPacks = sharedAddress(&storage.stages[0].packs[0][lane]);
    uint32_t sharedScales = sharedAddress(&storage.stages[0].scales[lane]);
    // Not indices, from which the compiler would compute each address anew.
    auto advance = [&](const uint8_t *&pointer) {
      asm("add.s64 %0, %0, %1;" : "+l"(pointer) : "l"(sources.stride));
    };
    auto copyScale = [&](uint32_t offset, bool exists) {
      if (exists && isQuantized(kind))
        copyAsync<4>(sharedScales + offset, scales);
      advance(scales);
    };
    auto copyPacks = [&](uint32_t offset, bool exists) {
      if (exists)
        Stage::copy(sharedPacks + offset, packs);
      advance(packs);
    };
    // One group for the first scales, then one per source.
#pragma unroll
    for (int k = 0; k < kStages; ++k)
      copyScale(k * sizeof(Stage), active && k < sources.count);
    commitCopies();
#pragma unroll
    for (int k = 0; k < kStages; ++k) {
      copyPacks(k * sizeof(Stage), active && k < sources.count);
      commitCopies();
    }

    // As f32 bits.
    auto loadScale = [&](uint32_t offset) {
      return __byte_perm(loadShared4(sharedScales + offset), 0, scaleSelector);
    };

    if constexpr (kind == Kind::I4 && kHasFastF64) {
      static_assert(kStages <= ScaleRange::kMaxSources);
      if (sources.count <= kStages) {
        waitForCopies<kStages>();
        ScaleRange range;
#pragma unroll
        for (int k = 0; k < kStages; ++k)
          if (k < sources.count)
            range.add(loadScale(k * sizeof(Stage)));
        if (__all_sync(0xffffffffu, !active || range.isExact())) {
          ExactSum<n> exact(range);
          uint32_t offset = 0;
#pragma unroll 1
          for (int left = sources.count; left > 0; --left) {
            waitForCopies<kStages - 1>();
            exact.add(Stage::load(sharedPacks + offset), loadScale(offset));
            commitCopies();
            offset += sizeof(Stage);
          }
          exact.finish(sum);
          return active;
        }
      }
    }

#pragma unroll
    for (int i = 0; i < n; ++i)
      sum[i] = 0.0f;
    uint32_t largestScale = 0;
    auto add = [&](uint32_t offset) {
      waitForCopies<kStages - 1>();
      auto pack = Stage::load(sharedPacks + offset);
      if constexpr (isQuantized(kind)) {
        uint32_t scaleBits = loadScale(offset);
        largestScale = max(largestScale, scaleBits);
        float scale = __uint_as_float(scaleBits);
        forEachCode<formatOf(kind), n>(pack, [&](int i, float code) {
          sum[i] = __fmaf_rn(code, scale, sum[i]);
        });
      } else {
        float values[n];
        Element<kind>::template widen<n>(pack, values);
#pragma unroll
        for (int i = 0; i < n; ++i)
          sum[i] = __fadd_rn(sum[i], values[i]);
      }
    };
    uint32_t offset = 0;
    auto moveOn = [&] {
      offset += sizeof(Stage);
      if (offset == kStages * sizeof(Stage))
        offset = 0;
    };
    int left = sources.count;
#pragma unroll 1
    for (; left > kStages; --left) {
      add(offset);
      copyScale(offset, active);
      copyPacks(offset, active);
      commitCopies();
      moveOn();
    }
#pragma unroll 1
    for (; left > 0; --left) {
      add(offset);
      commitCopies();
      moveOn();
    }
    return active && largestScale < kLargestFusedScale;
  }
};

/// Sums items of `n` elements of so many `sources`. All sources of an item are
/// in flight at once, beside those of the thread's next item.
template <Kind kind, int n, int sources> class FewSummer {
  static_assert(isQuantized(kind));
  using Stage = SourceStage<kind, n>;

public:
  struct Storage {
    Stage stages[2][sources];
  };

  /// The addresses of a thread in the storage of its warp.
  struct Lane {
    uint32_t packs, scales;

    __device__ __forceinline__ explicit Lane(Storage &storage)
        : packs(
              sharedAddress(&storage.stages[0][0].packs[0][threadIdx.x % 32])),
          scales(
              sharedAddress(&storage.stages[0][0].scales[threadIdx.x % 32])) {
      keepInRegister(packs);
      keepInRegister(scales);
    }
    /// Offset of stage `k` of a half.
    static __device__ __forceinline__ uint32_t offset(int half, int k) {
      return (half * sources + k) * static_cast<uint32_t>(sizeof(Stage));
    }
  };

  /// Begins to copy the sources' elements from `element` on, a multiple of n,
  /// to a half of the storage: one group of copies, which is empty if the
  /// thread is not `active`. If it is, all elements must be there, as padding
  /// at least.
  __device__ __forceinline__ static void copy(const Sources &from,
                                              const Lane &lane, int half,
                                              bool active, int32_t element) {
    if (active) {
      auto first = static_cast<uint32_t>(element);
      const uint8_t *packs = from.data + first / (8 / bitsOf(kind));
      // Scales come in pairs, because 4 bytes are the least that can be copied.
      const uint8_t *scales =
          from.data + from.scalesOffset + (first >> from.blockLog2) / 2 * 4;
#pragma unroll
      for (int k = 0; k < sources; ++k) {
        int64_t source = k * from.stride;
        uint32_t stage = Lane::offset(half, k);
        copyAsync<4>(lane.scales + stage, scales + source);
        Stage::copy(lane.packs + stage, packs + source);
      }
    }
    commitCopies();
  }

  /// The sums of the elements that the last but one copy() has brought. Returns
  /// false if they are not valid and sumElement() must be used. If `power` is
  /// not 0, the sums may be multiplied by it: then `isMultiplied` is set. It is
  /// a power of two from 2^-12 to 1, and no such sum is below 2^-100.
  __device__ __forceinline__ static bool
  sum(const Sources &from, const Lane &lane, int half, bool active,
      int32_t element, float power, bool &isMultiplied, float (&sum)[n]) {
    uint32_t scaleSelector =
        (element >> from.blockLog2) % 2 != 0 ? 0x3244 : 0x1044;
    auto loadPack = [&](int k) {
      return Stage::load(lane.packs + Lane::offset(half, k));
    };
    waitForCopies<1>();
    // As f32 bits.
    uint32_t scales[sources];
#pragma unroll
    for (int k = 0; k < sources; ++k)
      scales[k] = __byte_perm(loadShared4(lane.scales + Lane::offset(half, k)),
                              0, scaleSelector);

    if constexpr (kind == Kind::I4) {
      ScaleRange range;
#pragma unroll
      for (int k = 0; k < sources; ++k)
        range.add(scales[k]);
      if (__all_sync(0xffffffffu, !active || range.isExactInteger(sources))) {
        isMultiplied = power != 0.0f && range.isUsual();
        Pack<Stage::kBytes> packs[sources];
#pragma unroll
        for (int k = 0; k < sources; ++k)
          packs[k] = loadPack(k);
        IntegerSum<n, sources>(range, scales)
            .add([&](int k, int w) { return packs[k].words[w]; },
                 isMultiplied ? power : 1.0f, sum);
        return active;
      }
    }

#pragma unroll
    for (int i = 0; i < n; ++i)
      sum[i] = 0.0f;
    uint32_t largestScale = 0;
#pragma unroll
    for (int k = 0; k < sources; ++k) {
      largestScale = max(largestScale, scales[k]);
      float scale = __uint_as_float(scales[k]);
      forEachCode<formatOf(kind), n>(loadPack(k), [&](int i, float code) {
        sum[i] = __fmaf_rn(code, scale, sum[i]);
      });
    }
    return active && largestScale < kLargestFusedScale;
  }
};

/// Elements that a thread sums on the fast path. The more there are, the less
/// the work per item counts. An item of codes must not be larger than a block.
ZPP_HOST_DEVICE constexpr int largeItem(Kind from) {
  return isQuantized(from) ? 256 / bitsOf(from) : 16;
}
/// The same with the smallest blocks.
ZPP_HOST_DEVICE constexpr int smallItem(Kind from) {
  return isQuantized(from) ? static_cast<int>(kMinBlock) : 16;
}
/// The same if elements are gathered one by one.
inline constexpr int kSingleItem = 16;

} // namespace zpp::kernels

#endif // ZPP_KERNELS_SUM_CUH
