//===- TypeBytes.h - Bytes of types -----------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_TYPEBYTES_H
#define ZPP_ANALYSIS_TYPEBYTES_H

#include "mlir/IR/TypeRange.h"
#include "mlir/IR/Types.h"

namespace zpp {

/// Bits that one element takes in memory: a predicate takes a byte, a complex
/// number both of its parts. 0 where that is not known.
int64_t getElementBits(mlir::Type element);

/// Bytes of a tensor or buffer of static shape; of a partitioned tensor, those
/// that one device holds. 0 for other types; the largest number where 64 bits
/// do not hold the result.
int64_t getBytes(mlir::Type type);

/// The sum over several types.
int64_t getBytes(mlir::TypeRange types);

} // namespace zpp

#endif // ZPP_ANALYSIS_TYPEBYTES_H
