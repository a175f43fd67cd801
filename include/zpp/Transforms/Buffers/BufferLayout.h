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

/// Bytes of an element, which are whole.
int64_t getElementBytes(mlir::MemRefType type);

/// Bytes from each chunk of an operand of a decomposed zero op to the next one,
/// 0 for dense. Tensors, and what an exchange sends and receives, must be
/// dense; chunks that are made or read may lie apart, as they do where several
/// tensors share the buffer of an exchange. Nothing, and in `expected` what
/// there should be, where the runtime cannot use the buffer.
std::optional<int64_t> getChunkStride(mlir::OpOperand &operand,
                                      std::string *expected = nullptr);

/// A copy of bytes between two buffers: rows of `rowBytes` bytes, and the loops
/// around them, from the outermost to the innermost.
struct StridedCopy {
  struct Loop {
    int64_t size;
    /// In bytes.
    int64_t targetStride;
    int64_t sourceStride;
  };
  int64_t rowBytes = 0;
  llvm::SmallVector<Loop> loops;

  /// With as few loops as possible; nothing where a stride is dynamic.
  static std::optional<StridedCopy> get(mlir::MemRefType target,
                                        mlir::MemRefType source);
};

} // namespace zpp

#endif // ZPP_TRANSFORMS_BUFFERS_BUFFERLAYOUT_H
