//===- Placement.cpp - The hops of hierarchical collectives ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/Placement.h"

#include <algorithm>

using namespace zpp;

std::vector<TierHop> zpp::getTierHops(const Mesh &mesh,
                                      const std::vector<AxisRef> &refs,
                                      int64_t numFormats) {
  std::vector<TierHop> hops;
  // The formats' positions are those of tiers, whichever of them have a hop.
  int64_t numTiers = mesh.getAxes().size();
  auto getFormat = [&](int64_t index) {
    if (numFormats == 1 || index == 0)
      return numFormats - 1;
    return std::min(numTiers - 1 - index, numFormats - 2);
  };
  for (int64_t index = numTiers; index-- > 0;) {
    std::vector<AxisRef> tier;
    for (const AxisRef &ref : refs)
      if (ref.name == mesh.getAxes()[index].name)
        tier.push_back(ref);
    if (tier.empty())
      continue;
    if (numFormats > 1 || hops.empty())
      hops.push_back({{}, getFormat(index)});
    std::vector<AxisRef> &axes = hops.back().axes;
    axes.insert(axes.begin(), tier.begin(), tier.end());
  }
  return hops;
}

bool zpp::isWithinNode(const Mesh &mesh, const std::vector<AxisRef> &refs) {
  const std::vector<MeshAxis> &axes = mesh.getAxes();
  int64_t tiers = 0;
  for (const MeshAxis &axis : axes)
    tiers += axis.size > 1;
  for (const AxisRef &ref : refs)
    if (ref.name != axes.back().name)
      return false;
  return tiers > 1;
}

std::vector<AxisRef> HopPlan::getDimRefs() const {
  std::vector<AxisRef> refs;
  for (auto hop = hops.rbegin(); hop != hops.rend(); ++hop)
    refs.insert(refs.end(), hop->begin(), hop->end());
  return refs;
}

int64_t HopPlan::getUnit() const {
  int64_t slices = numDevices(getDimRefs());
  return extent / slices + (extent % slices != 0);
}

SliceMap HopPlan::getHopMap(int64_t hop, int64_t stage) const {
  SliceMap map;
  map.outer = outer;
  map.unit = getUnit();
  map.inner = inner;
  map.extent = extent;
  map.stage = stage;
  map.stages = stages;

  for (const AxisRef &ref : getDimRefs())
    map.factors.push_back(ref.size);
  if (hop > 0) {
    // Earlier hops have taken the innermost factors and this stage's part.
    int64_t taken = 0;
    for (int64_t inside = 0; inside < hop; ++inside)
      taken += hops[inside].size();
    map.factors.resize(map.factors.size() - taken);
    map.unit = map.partSize();
    map.extent = map.paddedExtent();
    map.stage = 0;
    map.stages = 1;
  }
  int64_t first = map.factors.size() - hops[hop].size();
  for (int64_t index = first, e = map.factors.size(); index < e; ++index)
    map.chunkFactors.push_back(index);
  return map;
}
