//===- Sum.cuh - Sums over sources -------------------------------*- C++
//-*-===//
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

#include "zpp/kernels/BlockCodec.cuh"
#include "zpp/kernels/Gather.cuh"
#include "zpp/kernels/Launch.h"

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

/// What happens to a sum: see Reduction.
struct Finish {
  float divisor;
  /// 1 / divisor where that product is the same as the quotient, else 0.
  float factor;
  ElementType partial;

  /// Of a valid divisor.
  static Finish create(float divisor, ElementType partial) {
    int exponent;
    bool isPowerOfTwo = std::frexp(divisor, &exponent) == 0.5f;
    return {divisor, isPowerOfTwo ? 1.0f / divisor : 0.0f, partial};
  }

#if defined(__CUDACC__)
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

/// Turns codes into f32, four at a time, on the tensor core: masking a word
/// makes pairs of f16 of it, 2^10 + code + bias or 2^10 + 16 * (code + bias),
/// and
///
///   D (f32, 16x8) = A (those, 16x8) * identity (or a 16th of it) + C
///
/// leaves the codes, exactly, in the threads that A came from. One by one,
/// masking and subtracting takes twice the instructions, and for sums of i4 it
/// is the instructions that count. All threads of the warp must take part.
template <WireFormat format> class CodeReader {
public:
  /// Of a warp. The constants go through shared memory because the compiler
  /// would load them again for each use; what memory held it keeps.
  struct Storage {
    float4 bias[2];
    uint2 flip;
  };

  __device__ __forceinline__ explicit CodeReader(Storage &storage) {
    uint32_t lane = threadIdx.x % 32;
    constexpr bool isByte = format == WireFormat::I8;
    constexpr float kUnitBias = -1024.0f - (isByte ? 128.0f : 8.0f);
    constexpr float kSixteenthBias = -1024.0f / 16 - 8.0f;
    uint32_t word = lane < 4   ? __float_as_uint(kUnitBias)
                    : lane < 8 ? __float_as_uint(kSixteenthBias)
                    : lane < 9 ? (isByte ? 0x64806480u : 0x64086408u)
                               : 0x64806480u;
    if (lane < sizeof(Storage) / 4)
      reinterpret_cast<uint32_t *>(&storage)[lane] = word;
    // The fragment of an 8x8 B: rows 2 * (lane % 4) + {0, 1}, column lane / 4.
    uint32_t diagonal = (2 * (lane % 4) == lane / 4 ? 0xffffu : 0u) |
                        (2 * (lane % 4) + 1 == lane / 4 ? 0xffff0000u : 0u);
    unit = diagonal & 0x3c003c00u;
    sixteenth = diagonal & 0x2c002c00u;
    __syncwarp();
    unitBias = storage.bias[0];
    sixteenthBias = storage.bias[1];
    uint2 flip = storage.flip;
    unitFlip = flip.x;
    sixteenthFlip = flip.y;
  }

  /// Calls `visit(i, code)` for the `n` codes of `pack`.
  template <int n, typename Visitor>
  __device__ __forceinline__ void
  forEachCode(const Pack<n * codeBits(format) / 8> &pack,
              const Visitor &visit) const {
    constexpr int kPerWord = 32 / codeBits(format);
    static_assert(n % kPerWord == 0);
#pragma unroll
    for (int i = 0; i < n; i += kPerWord) {
      uint32_t low = pack.words[i / kPerWord];
      uint32_t high = low >> 8;
      if constexpr (format == WireFormat::I8) {
        // A byte with its sign flipped is code + 128.
        float4 codes =
            multiply(maskFlip(low, 0x00ff00ffu, unitFlip),
                     maskFlip(high, 0x00ff00ffu, unitFlip), unit, unitBias);
        visit(i, codes.x);
        visit(i + 2, codes.y);
        visit(i + 1, codes.z);
        visit(i + 3, codes.w);
      } else {
        // A nibble with its sign flipped is code + 8.
        float4 codes =
            multiply(maskFlip(low, 0x000f000fu, unitFlip),
                     maskFlip(high, 0x000f000fu, unitFlip), unit, unitBias);
        visit(i, codes.x);
        visit(i + 4, codes.y);
        visit(i + 2, codes.z);
        visit(i + 6, codes.w);
        codes = multiply(maskFlip(low, 0x00f000f0u, sixteenthFlip),
                         maskFlip(high, 0x00f000f0u, sixteenthFlip), sixteenth,
                         sixteenthBias);
        visit(i + 1, codes.x);
        visit(i + 5, codes.y);
        visit(i + 3, codes.z);
        visit(i + 7, codes.w);
      }
    }
  }

private:
  __device__ __forceinline__ static float4
  multiply(uint32_t a0, uint32_t a1, uint32_t b, const float4 &c) {
    float4 d;
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                 : "=f"(d.x), "=f"(d.y), "=f"(d.z), "=f"(d.w)
                 : "r"(a0), "r"(a1), "r"(b), "f"(c.x), "f"(c.y), "f"(c.z),
                   "f"(c.w));
    return d;
  }

  uint32_t unit;
  uint32_t sixteenth;
  uint32_t unitFlip;
  uint32_t sixteenthFlip;
  float4 unitBias;
  float4 sixteenthBias;
};

/// Elements that are no codes.
template <> class CodeReader<WireFormat::None> {
public:
  struct Storage {};
  __device__ explicit CodeReader(Storage &) {}
};

/// An address in shared memory, as instructions take it.
__device__ __forceinline__ uint32_t sharedAddress(const void *pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
template <int bytes>
__device__ __forceinline__ void copyAsync(uint32_t shared, const void *global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared),
               "l"(global), "n"(bytes)
               : "memory");
}
__device__ __forceinline__ void commitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `pending` of the thread's groups are under way.
template <int pending> __device__ __forceinline__ void waitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
__device__ __forceinline__ uint4 loadShared16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ uint32_t loadShared4(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

/// Sums items of `n` elements. The sources travel through shared memory, so
/// that what is in flight costs no registers and the loop over them stays
/// small.
template <Kind kind, int n> class Summer {
  static constexpr int kBytes = n * bitsOf(kind) / 8;
  /// Copies of 16 bytes.
  static constexpr int kPieces = kBytes / 16;
  static_assert(kBytes % 16 == 0);
  /// Sources in flight: 128 bytes per thread.
  static constexpr int kStages = 128 / kBytes;

  /// Of a warp. No thread reads what another one has copied.
  struct Stage {
    uint4 packs[kPieces][32];
    uint32_t scales[32];
  };

public:
  struct Storage {
    Stage stages[kStages];
    typename CodeReader<formatOf(kind)>::Storage reader;
  };

  /// The sums of the elements from `element` on; of codes, it is a multiple of
  /// n. If the thread is `active`, all of them must be there in the sources (as
  /// padding, for codes). Returns false where the sums are not valid and
  /// sumElement() must be used. All threads of the warp must take part.
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
    // The next source, if there is one, as one group.
    auto copyNext = [&](uint32_t offset, bool exists) {
      if (exists) {
#pragma unroll
        for (int i = 0; i < kPieces; ++i)
          copyAsync<16>(sharedPacks + offset + 512 * i, packs + 16 * i);
        if constexpr (isQuantized(kind))
          copyAsync<4>(sharedScales + offset, scales);
      }
      commitCopies();
      // Not an index, from which the compiler would compute each address anew.
      asm("add.s64 %0, %0, %1;" : "+l"(packs) : "l"(sources.stride));
      asm("add.s64 %0, %0, %1;" : "+l"(scales) : "l"(sources.stride));
    };
#pragma unroll
    for (int k = 0; k < kStages; ++k)
      copyNext(k * sizeof(Stage), active && k < sources.count);

#pragma unroll
    for (int i = 0; i < n; ++i)
      sum[i] = 0.0f;
    uint32_t largestScale = 0;
    CodeReader<formatOf(kind)> reader(storage.reader);
    auto add = [&](uint32_t offset) {
      waitForCopies<kStages - 1>();
      Pack<kBytes> pack;
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        pack.setSlice(i, loadShared16(sharedPacks + offset + 512 * i));
      if constexpr (isQuantized(kind)) {
        uint32_t scaleBits =
            __byte_perm(loadShared4(sharedScales + offset), 0, scaleSelector);
        largestScale = max(largestScale, scaleBits);
        float scale = __uint_as_float(scaleBits);
        reader.template forEachCode<n>(pack, [&](int i, float code) {
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
      copyNext(offset, active);
      moveOn();
    }
#pragma unroll 1
    for (; left > 0; --left) {
      add(offset);
      commitCopies();
      moveOn();
    }
    // A product that overflows must do so before it is added: a fused
    // multiply-add could come back below infinity. Codes are below 2^8, so that
    // scales below 2^120 cannot.
    return active && largestScale < 0x7b800000u;
  }
};

/// Elements that a thread sums: 16 bytes of i4, else what the registers hold.
/// Where elements are gathered one by one it is the shared memory that bounds
/// them.
ZPP_HOST_DEVICE constexpr int sumElements(Kind from, Path path) {
  return from == Kind::I4 && path != Path::Single ? 32 : 16;
}

} // namespace zpp::kernels

#endif // ZPP_KERNELS_SUM_CUH
