//===- SupportMatrix.h - Which kernels exist --------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of supported combinations of operation, source and destination.
// Kernels are instantiated for its rows and launched through it. Other
// combinations are cudaErrorInvalidValue. The tests go through all rows.
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

struct SupportRow {
  Operation operation;
  Kind source;
  Kind dest;
};

/// Blocks are those of isValidBlock() in every row.
inline constexpr SupportRow kSupport[] = {
    // clang-format off
    {Operation::Quantize, Kind::F32,  Kind::I8},
    {Operation::Quantize, Kind::F32,  Kind::I4},
    {Operation::Quantize, Kind::BF16, Kind::I8},
    {Operation::Quantize, Kind::BF16, Kind::I4},
    {Operation::Quantize, Kind::F16,  Kind::I8},
    {Operation::Quantize, Kind::F16,  Kind::I4},
    // Reordering alone, for hops that are not quantized.
    {Operation::Quantize, Kind::F32,  Kind::F32},
    {Operation::Quantize, Kind::BF16, Kind::BF16},
    {Operation::Quantize, Kind::F16,  Kind::F16},

    {Operation::Dequantize, Kind::I8, Kind::F32},
    {Operation::Dequantize, Kind::I8, Kind::BF16},
    {Operation::Dequantize, Kind::I8, Kind::F16},
    {Operation::Dequantize, Kind::I4, Kind::F32},
    {Operation::Dequantize, Kind::I4, Kind::BF16},
    {Operation::Dequantize, Kind::I4, Kind::F16},
    {Operation::Dequantize, Kind::F32,  Kind::F32},
    {Operation::Dequantize, Kind::BF16, Kind::BF16},
    {Operation::Dequantize, Kind::F16,  Kind::F16},

    {Operation::QuantizeDifference, Kind::F32,  Kind::I8},
    {Operation::QuantizeDifference, Kind::F32,  Kind::I4},
    {Operation::QuantizeDifference, Kind::BF16, Kind::I8},
    {Operation::QuantizeDifference, Kind::BF16, Kind::I4},
    {Operation::QuantizeDifference, Kind::F16,  Kind::I8},
    {Operation::QuantizeDifference, Kind::F16,  Kind::I4},

    {Operation::DequantizeAdd, Kind::I8, Kind::F32},
    {Operation::DequantizeAdd, Kind::I8, Kind::BF16},
    {Operation::DequantizeAdd, Kind::I8, Kind::F16},
    {Operation::DequantizeAdd, Kind::I4, Kind::F32},
    {Operation::DequantizeAdd, Kind::I4, Kind::BF16},
    {Operation::DequantizeAdd, Kind::I4, Kind::F16},

    {Operation::Reduce, Kind::I8, Kind::F32},
    {Operation::Reduce, Kind::I8, Kind::BF16},
    {Operation::Reduce, Kind::I8, Kind::F16},
    {Operation::Reduce, Kind::I4, Kind::F32},
    {Operation::Reduce, Kind::I4, Kind::BF16},
    {Operation::Reduce, Kind::I4, Kind::F16},
    {Operation::Reduce, Kind::F32,  Kind::F32},
    {Operation::Reduce, Kind::F32,  Kind::BF16},
    {Operation::Reduce, Kind::F32,  Kind::F16},
    {Operation::Reduce, Kind::BF16, Kind::F32},
    {Operation::Reduce, Kind::BF16, Kind::BF16},
    {Operation::Reduce, Kind::BF16, Kind::F16},
    {Operation::Reduce, Kind::F16,  Kind::F32},
    {Operation::Reduce, Kind::F16,  Kind::BF16},
    {Operation::Reduce, Kind::F16,  Kind::F16},

    {Operation::ReduceQuantize, Kind::I8, Kind::I8},
    {Operation::ReduceQuantize, Kind::I8, Kind::I4},
    {Operation::ReduceQuantize, Kind::I4, Kind::I8},
    {Operation::ReduceQuantize, Kind::I4, Kind::I4},
    {Operation::ReduceQuantize, Kind::F32,  Kind::I8},
    {Operation::ReduceQuantize, Kind::F32,  Kind::I4},
    {Operation::ReduceQuantize, Kind::BF16, Kind::I8},
    {Operation::ReduceQuantize, Kind::BF16, Kind::I4},
    {Operation::ReduceQuantize, Kind::F16,  Kind::I8},
    {Operation::ReduceQuantize, Kind::F16,  Kind::I4},
    // clang-format on
};

constexpr bool isSupported(Operation operation, Kind source, Kind dest) {
  for (const SupportRow &row : kSupport)
    if (row.operation == operation && row.source == source && row.dest == dest)
      return true;
  return false;
}

/// Calls `visit(source, dest)`, both as std::integral_constant<Kind, ...>, for
/// the row that matches, or returns cudaErrorInvalidValue.
template <Operation op, size_t row = 0, typename Visitor>
cudaError_t dispatch(Kind source, Kind dest, const Visitor &visit) {
  if constexpr (row == std::size(kSupport)) {
    return cudaErrorInvalidValue;
  } else {
    if constexpr (kSupport[row].operation == op)
      if (kSupport[row].source == source && kSupport[row].dest == dest)
        return visit(std::integral_constant<Kind, kSupport[row].source>{},
                     std::integral_constant<Kind, kSupport[row].dest>{});
    return dispatch<op, row + 1>(source, dest, visit);
  }
}

} // namespace zpp::kernels

#endif // ZPP_KERNELS_SUPPORTMATRIX_H
