//===- BufferLayout.h - Where the bytes of buffers lie ----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_BUFFERS_BUFFERLAYOUT_H
#define ZPP_TRANSFORMS_BUFFERS_BUFFERLAYOUT_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"

#include <optional>
#include <string>

namespace zpp {

/// Whether the elements of `type` lie one after the other, in row-major order.
bool isDense(mlir::MemRefType type);

/// Bytes that an element takes in memory, if they are whole.
int64_t getElementBytes(mlir::MemRefType type);

/// True for elements that the runtime can move: of 1, 2, 4 or 8 bytes.
bool isMovable(mlir::Type element);

/// Returns the distance in bytes between the starts of consecutive chunks of an
/// operand of a decomposed zero op, or 0 if the operand is dense. Tensors must
/// be dense, and so must the buffers that an exchange sends and receives. The
/// chunks that another op writes or reads may lie apart, as they do if several
/// tensors share the buffer of an exchange. If the runtime cannot use the
/// buffer, returns nullopt and sets `expected` to what it could use.
std::optional<int64_t> getChunkStride(mlir::OpOperand &operand,
                                      std::string *expected = nullptr);

/// A copy of bytes between two buffers: rows of `rowBytes` bytes and the loops
/// around them, the outermost first.
struct StridedCopy {
  struct Loop {
    int64_t size;
    /// Strides in bytes.
    int64_t targetStride;
    int64_t sourceStride;
  };
  int64_t rowBytes = 0;
  llvm::SmallVector<Loop> loops;

  /// Returns the copy with the fewest loops; nullopt if a stride is dynamic or
  /// leads further than 64 bits.
  static std::optional<StridedCopy> get(mlir::MemRefType target,
                                        mlir::MemRefType source);
};

} // namespace zpp

#endif // ZPP_TRANSFORMS_BUFFERS_BUFFERLAYOUT_H
