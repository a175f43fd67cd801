//===- MirrorKeys.h - The shapes that weights and gradients share *- C++
//-*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_ROLES_MIRRORKEYS_H
#define ZPP_LIB_ANALYSIS_ROLES_MIRRORKEYS_H

#include "zpp/Analysis/Roles/Roles.h"

namespace zpp {

/// Returns the keys of a gather or a scatter. A scatter mirrors a gather if
/// they share a key: their shapes are equal either at the collective or where
/// the weight is stored, since XLA's partitioner leaves transposes after
/// scatters.
llvm::SmallVector<std::string> getMirrorKeys(const StepCollective &collective);

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_MIRRORKEYS_H
