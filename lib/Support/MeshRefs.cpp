//===- MeshRefs.cpp - The axes of one mesh on another ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/MeshRefs.h"

#include <algorithm>

using namespace zpp;

/// Prepends to `refs` the parts of axes that number the devices at distance
/// `begin` below distance `end`. Returns false if an axis cannot be cut there.
static bool prependParts(const Mesh &mesh, int64_t begin, int64_t end,
                         std::vector<AxisRef> &refs) {
  int64_t axisBegin = 1;
  for (size_t index : mesh.getOrder()) {
    const MeshAxis &axis = mesh.getAxes()[index];
    int64_t axisEnd = axisBegin * axis.size;
    int64_t from = std::max(begin, axisBegin), to = std::min(end, axisEnd);
    if (from < to) {
      if (from % axisBegin != 0 || to % from != 0 || axisEnd % to != 0)
        return false;
      refs.insert(refs.begin(), {axis.name, axisEnd / to, to / from});
    }
    axisBegin = axisEnd;
  }
  return true;
}

std::optional<std::vector<AxisRef>>
zpp::findRefs(const Mesh &mesh, std::vector<AxisRef> refs, const Mesh &other) {
  if (mesh.numDevices() != other.numDevices())
    return std::nullopt;
  // One of a single device says nothing, wherever it stands.
  refs.erase(std::remove_if(refs.begin(), refs.end(),
                            [](const AxisRef &ref) { return ref.size == 1; }),
             refs.end());
  std::vector<AxisRef> found;
  for (size_t index = refs.size(); index > 0;) {
    int64_t begin = mesh.getStride(refs[--index]);
    int64_t end = begin * refs[index].size;
    // Parts that continue each other are one run.
    for (; index > 0 && mesh.getStride(refs[index - 1]) == end; --index)
      end *= refs[index - 1].size;
    if (!prependParts(other, begin, end, found))
      return std::nullopt;
  }
  return found;
}
