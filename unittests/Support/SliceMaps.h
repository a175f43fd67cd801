//===- SliceMaps.h - Slice maps of the tests --------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_UNITTESTS_SUPPORT_SLICEMAPS_H // NOLINT(llvm-header-guard)
#define ZPP_UNITTESTS_SUPPORT_SLICEMAPS_H

#include "zpp/Support/SliceMap.h"

#include <string>

namespace zpp {

/// Describes a map in the message of a failed test.
inline std::string describe(const SliceMap &map) {
  auto list = [](const std::vector<int64_t> &values) {
    std::string text = "[";
    for (int64_t value : values)
      text += (text.size() > 1 ? "," : "") + std::to_string(value);
    return text + "]";
  };
  return "outer " + std::to_string(map.outer) + " factors " +
         list(map.factors) + " unit " + std::to_string(map.unit) + " inner " +
         std::to_string(map.inner) + " extent " + std::to_string(map.extent) +
         " chunk " + list(map.chunkFactors) + " stage " +
         std::to_string(map.stage) + "/" + std::to_string(map.stages);
}

/// Draws up to three factors, and the ones that number the chunks, in any
/// order. `pick(n)` must return a number in [0, n).
template <typename Pick> void pickFactors(SliceMap &map, const Pick &pick) {
  for (int64_t f = 0, e = pick(4); f < e; ++f) {
    map.factors.push_back(1 + pick(4));
    if (pick(2))
      map.chunkFactors.insert(
          map.chunkFactors.begin() + pick(map.chunkFactors.size() + 1), f);
  }
}

} // namespace zpp

#endif // ZPP_UNITTESTS_SUPPORT_SLICEMAPS_H
