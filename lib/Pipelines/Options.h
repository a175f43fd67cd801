//===- Options.h - The meaning of the zeropp pipeline's options -*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_PIPELINES_OPTIONS_H
#define ZPP_LIB_PIPELINES_OPTIONS_H

#include "zpp/Pipelines/ZeroPP.h"

#include <string>

namespace zpp {

/// The values that options and their defaults amount to.
struct Settings {
  bool isCuda;
  int64_t block;
  int64_t rotate;
  /// 0: each tensor travels alone.
  int64_t coalesceBytes;
  int64_t prefetchBytes;
};

Settings getSettings(const ZeroPPOptions &options);

/// Returns whether weights are sent as differences.
bool sendsDifferences(const ZeroPPOptions &options);

/// Returns whether gradients of micro-batches are added up within a group.
bool accumulates(const ZeroPPOptions &options);

/// Returns whether something beside weights and gradients has a format.
bool roundsOthers(const ZeroPPOptions &options);

/// All reasons why the pipeline cannot do what the options say, with what to
/// write instead. Empty if it can.
llvm::SmallVector<std::string> findErrors(const ZeroPPOptions &options);

/// Options that have no effect beside the others, with what to write instead.
llvm::SmallVector<std::string> findWarnings(const ZeroPPOptions &options);

} // namespace zpp

#endif // ZPP_LIB_PIPELINES_OPTIONS_H
