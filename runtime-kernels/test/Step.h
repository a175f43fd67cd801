//===- Step.h - A call of a launcher as a value -----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the test and the benchmark of the kernels have in common.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_TEST_STEP_H
#define ZPP_KERNELS_TEST_STEP_H

#include "zpp/kernels/Kernels.h"
#include "zpp/kernels/SupportMatrix.h"

namespace zpp::kernels {

inline const char *str(Kind kind) {
  constexpr const char *kNames[] = {"f32", "bf16", "f16", "i8", "i4"};
  return kNames[static_cast<int>(kind)];
}

/// The type of elements; F32 for codes.
inline ElementType typeOf(Kind kind) {
  return kind == Kind::BF16  ? ElementType::BF16
         : kind == Kind::F16 ? ElementType::F16
                             : ElementType::F32;
}

inline bool isDifference(Operation operation) {
  return operation == Operation::QuantizeDifference ||
         operation == Operation::DequantizeAdd;
}
inline bool isSum(Operation operation) {
  return operation == Operation::Reduce ||
         operation == Operation::ReduceQuantize;
}
inline bool isFromTensor(Operation operation) {
  return operation == Operation::Quantize ||
         operation == Operation::QuantizeDifference;
}
inline bool isToTensor(Operation operation) {
  return !isFromTensor(operation) && operation != Operation::ReduceQuantize;
}

/// A tensor or chunks that an operation reads or writes.
struct Side {
  Kind kind;
  uint8_t *data = nullptr;
  /// Number of chunks, and so on as in ChunkBuffer.
  int64_t count = 0;
  int64_t stride = 0;
  int64_t block = 0;
  int64_t rotate = 0;

  template <typename Void> operator TensorBuffer<Void>() const {
    return {data, typeOf(kind)};
  }
  template <typename Void> operator ChunkBuffer<Void>() const {
    return {data, count, stride, formatOf(kind), block, typeOf(kind), rotate};
  }
};

/// An operation on such memory.
struct Step {
  Operation operation;
  SliceMap map;
  Side source = {};
  Side dest = {};
  /// The tensor that is held, of differences.
  Side held = {};
  Reduction reduction = {};

  cudaError_t launch(const LaunchTarget &target = nullptr) const {
    switch (operation) {
    case Operation::Quantize:
      return quantize(source, map, dest, target);
    case Operation::Dequantize:
      return dequantize(source, map, dest, target);
    case Operation::QuantizeDifference:
      return quantizeDifference(source, held, map, dest, target);
    case Operation::DequantizeAdd:
      return dequantizeAdd(source, held, map, dest, target);
    case Operation::Reduce:
      return dequantizeReduce(source, map, reduction, dest, target);
    case Operation::ReduceQuantize:
      return dequantizeReduceQuantize(source, map, reduction, dest, target);
    }
    return cudaErrorInvalidValue;
  }
};

} // namespace zpp::kernels

#endif // ZPP_KERNELS_TEST_STEP_H
