//===- Npy.h - Arrays in NumPy's file format --------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_ZPP_RUN_NPY_H
#define ZPP_TOOLS_ZPP_RUN_NPY_H

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zpp {

/// A row-major array as in a .npy file. NumPy has no bf16; in files it has the
/// type that ml_dtypes gives it, "|V2".
struct NpyArray {
  /// As in the file's header, for example "<f4".
  std::string type;
  llvm::SmallVector<int64_t> shape;
  std::vector<uint8_t> data;
};

/// Returns the type that elements have in files. getElementBytes must know
/// `element`.
std::string getNpyType(mlir::Type element);

llvm::Expected<NpyArray> readNpy(llvm::StringRef path);
/// The same from memory; `path` is for errors.
llvm::Expected<NpyArray> parseNpy(llvm::StringRef path,
                                  llvm::StringRef content);

/// Writes an array whose data consists of `parts`, one after the other.
llvm::Error writeNpy(llvm::StringRef path, llvm::StringRef type,
                     llvm::ArrayRef<int64_t> shape,
                     llvm::ArrayRef<std::vector<uint8_t>> parts);

} // namespace zpp

#endif // ZPP_TOOLS_ZPP_RUN_NPY_H
