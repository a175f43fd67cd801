//===- Tensors.h - Tensors of all ranks -------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_ZPP_RUN_TENSORS_H
#define ZPP_TOOLS_ZPP_RUN_TENSORS_H

#include "Program.h"

namespace zpp {

/// Tensors by rank.
using RankData = std::vector<TensorData>;

/// Random elements, which are the same for the same seed on all machines.
/// Floats are nearly normal with variance 1; other types have random bits.
TensorData makeRandom(mlir::RankedTensorType type, uint64_t seed);

/// Reads a file that holds the tensors of all ranks, or one tensor for all
/// ranks.
llvm::Expected<RankData>
readTensors(llvm::StringRef path, mlir::RankedTensorType type, int64_t ranks);

/// Writes the tensors of all ranks to one file, with a leading dim of ranks.
llvm::Error writeTensors(llvm::StringRef path, mlir::RankedTensorType type,
                         const RankData &data);

/// Prints the elements, one line for each rank.
void printTensors(llvm::StringRef title, mlir::RankedTensorType type,
                  const RankData &data);

/// Returns the L2 norm of the elements of all ranks, or of their distance from
/// `other`.
double getNorm(mlir::RankedTensorType type, const RankData &data,
               const RankData *other = nullptr);

/// Prints how far `data` is from `expected`. Returns false if it is farther
/// than `bound` or the distance is not a number.
bool compare(llvm::StringRef title, mlir::RankedTensorType type,
             const RankData &data, const RankData &expected, double bound);

} // namespace zpp

#endif // ZPP_TOOLS_ZPP_RUN_TENSORS_H
