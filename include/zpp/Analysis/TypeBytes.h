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

/// Returns the bits that an element takes in memory, or 0 if that is not known.
/// A predicate takes a byte, a complex number both of its parts.
int64_t getElementBits(mlir::Type element);

/// Returns the bytes of a tensor or buffer of static shape, or of the part of a
/// partitioned tensor that one device holds; 0 for other types. If 64 bits do
/// not hold the result, the largest number.
int64_t getBytes(mlir::Type type);

/// Returns the sum over several types; saturates.
int64_t getBytes(mlir::TypeRange types);

} // namespace zpp

#endif // ZPP_ANALYSIS_TYPEBYTES_H
