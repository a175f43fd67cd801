//===- RemovedOrigins.h - Collectives that are gone -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_REMOVEDORIGINS_H
#define ZPP_LIB_TRANSFORMS_REMOVEDORIGINS_H

#include "zpp/Analysis/Origin.h"

namespace zpp {

/// Appends the origin of `op`, a collective in whose place nothing is sent, to
/// the `zpp.origin` of its module. The report would not know of it otherwise.
void recordRemoved(mlir::Operation *op);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_REMOVEDORIGINS_H
