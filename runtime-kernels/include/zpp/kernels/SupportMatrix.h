//===- SupportMatrix.h - Which kernels exist --------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The supported combinations of operation, source and destination. Kernels are
// instantiated for these and launched through them. Others are
// cudaErrorInvalidValue. The tests go through all.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_SUPPORTMATRIX_H
#define ZPP_KERNELS_SUPPORTMATRIX_H

#include "zpp/Support/BlockQuant.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <iterator>
#include <type_traits>

namespace zpp::kernels {

enum class Operation : int32_t {
  /// tensor -> chunks, in the order of a SliceMap
  Quantize,
  /// chunks -> tensor, in the order of a SliceMap
  Dequantize,
  /// tensor - tensor -> chunks, in the order of a SliceMap
  QuantizeDifference,
  /// tensor + chunks -> tensor, in the order of a SliceMap
  DequantizeAdd,
  /// sum of chunks -> tensor
  Reduce,
  /// sum of chunks -> chunks of the next hop
  ReduceQuantize,
};

/// One side of a kernel: elements, or codes with scales.
enum class Kind : int32_t { F32, BF16, F16, I8, I4 };

constexpr Kind kindOf(ElementType type, WireFormat format = WireFormat::None) {
  switch (format) {
  case WireFormat::None:
    break;
  case WireFormat::I8:
    return Kind::I8;
  case WireFormat::I4:
    return Kind::I4;
  }
  return type == ElementType::F32    ? Kind::F32
         : type == ElementType::BF16 ? Kind::BF16
                                     : Kind::F16;
}

/// None for elements.
ZPP_HOST_DEVICE constexpr WireFormat formatOf(Kind kind) {
  switch (kind) {
  case Kind::F32:
  case Kind::BF16:
  case Kind::F16:
    break;
  case Kind::I8:
    return WireFormat::I8;
  case Kind::I4:
    return WireFormat::I4;
  }
  return WireFormat::None;
}

ZPP_HOST_DEVICE constexpr bool isQuantized(Kind kind) {
  return formatOf(kind) != WireFormat::None;
}

ZPP_HOST_DEVICE constexpr int codeBits(WireFormat format) {
  return 8 / getTraits(format).codesPerByte;
}

/// The size of an element or a code.
ZPP_HOST_DEVICE constexpr int bitsOf(Kind kind) {
  return isQuantized(kind)   ? codeBits(formatOf(kind))
         : kind == Kind::F32 ? 32
                             : 16;
}

/// Whether there are kernels for an operation. Blocks are those of
/// isValidBlock() in any case.
constexpr bool isSupported(Operation operation, Kind source, Kind dest) {
  bool isEncoding = !isQuantized(source) && isQuantized(dest);
  bool isDecoding = isQuantized(source) && !isQuantized(dest);
  // Reordering alone, for hops that are not quantized.
  bool isReordering = !isQuantized(source) && source == dest;
  switch (operation) {
  case Operation::Quantize:
    return isEncoding || isReordering;
  case Operation::Dequantize:
    return isDecoding || isReordering;
  case Operation::QuantizeDifference:
    return isEncoding;
  case Operation::DequantizeAdd:
    return isDecoding;
  case Operation::Reduce:
    return !isQuantized(dest);
  case Operation::ReduceQuantize:
    return isQuantized(dest);
  }
  return false;
}

inline constexpr Kind kKinds[] = {Kind::F32, Kind::BF16, Kind::F16, Kind::I8,
                                  Kind::I4};

/// Calls `visit(source, dest)`, both as std::integral_constant<Kind, ...>, if
/// the operation is supported, or returns cudaErrorInvalidValue.
template <Operation op, size_t pair = 0, typename Visitor>
cudaError_t dispatch(Kind source, Kind dest, const Visitor &visit) {
  constexpr size_t kCount = std::size(kKinds);
  if constexpr (pair == kCount * kCount) {
    return cudaErrorInvalidValue;
  } else {
    constexpr Kind from = kKinds[pair / kCount], to = kKinds[pair % kCount];
    if constexpr (isSupported(op, from, to))
      if (source == from && dest == to)
        return visit(std::integral_constant<Kind, from>{},
                     std::integral_constant<Kind, to>{});
    return dispatch<op, pair + 1>(source, dest, visit);
  }
}

} // namespace zpp::kernels

#endif // ZPP_KERNELS_SUPPORTMATRIX_H
