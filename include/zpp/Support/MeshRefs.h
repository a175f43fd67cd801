//===- MeshRefs.h - The axes of one mesh on another -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_MESHREFS_H
#define ZPP_SUPPORT_MESHREFS_H

#include "zpp/Support/Mesh.h"

namespace zpp {

/// Returns the axes (and parts of axes) of `other`, a grid of the same devices,
/// whose groups are those of `refs` on `mesh`, which must be valid. The same as
/// other.factorGroups(mesh.getGroups(refs)), without looking at each device.
/// nullopt if there are none.
std::optional<std::vector<AxisRef>>
findRefs(const Mesh &mesh, std::vector<AxisRef> refs, const Mesh &other);

} // namespace zpp

#endif // ZPP_SUPPORT_MESHREFS_H
