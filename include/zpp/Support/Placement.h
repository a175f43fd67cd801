//===- Placement.h - The hops of hierarchical collectives -------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The hops of hierarchical collectives with slice reordering and pipeline
// stages (ZeRO++ sections 3.3.2, 3.3.3 and 4.1.2), and how each of them cuts
// its tensor. Tests prove with symbolic values that no slice is misplaced.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_PLACEMENT_H
#define ZPP_SUPPORT_PLACEMENT_H

#include "zpp/Support/Mesh.h"
#include "zpp/Support/SliceMap.h"

#include <cstdint>
#include <vector>

namespace zpp {

/// One hop of a scatter.
struct TierHop {
  /// Slower tiers first.
  std::vector<AxisRef> axes;
  /// The position of its format in the list that the user gave.
  int64_t format;
};

/// Returns the hops of a scatter over `refs`, the innermost first, with
/// `numFormats` (at least 1) formats: one hop per tier. Formats belong to the
/// tiers of the mesh, whichever of them `refs` has: the last to the slowest
/// one, the first to the fastest and so on, and the one before the last to all
/// that are left. A tier of one device counts. One format alone is one hop over
/// all tiers.
std::vector<TierHop> getTierHops(const Mesh &mesh,
                                 const std::vector<AxisRef> &refs,
                                 int64_t numFormats);

/// True if what is sent over `refs` crosses the fastest tier of several, and no
/// other.
bool isWithinNode(const Mesh &mesh, const std::vector<AxisRef> &refs);

/// A tensor [outer, extent, inner] whose middle dim is partitioned over the
/// axes of `hops`, and the hops over which it is gathered and scattered.
struct HopPlan {
  /// The axes of each hop, the most significant first; the innermost (fastest)
  /// hop comes first. ZeRO-3 over two tiers has hops {"gpu"}, {"node"}.
  std::vector<std::vector<AxisRef>> hops;
  int64_t outer = 1;
  int64_t extent = 0;
  int64_t inner = 1;
  /// Pipeline stages: each moves its share of every slice through all hops.
  int64_t stages = 1;

  /// Returns the axes of the dim, most significant first: outermost hop to
  /// innermost. A device's slice number is its position along these.
  std::vector<AxisRef> getDimRefs() const;
  /// Returns the rows of a slice. The dim is padded to a multiple of the
  /// slices.
  int64_t getUnit() const;

  /// How hop `hop` of stage `stage` cuts its tensor into chunks. The tensor of
  /// the innermost hop is the whole one. That of any other hop is what the hop
  /// before it leaves, [outer, remaining factors, part, inner]. A scatter packs
  /// by these maps, the innermost hop first; a gather unpacks by them, the
  /// outermost first.
  SliceMap getHopMap(int64_t hop, int64_t stage) const;
};

} // namespace zpp

#endif // ZPP_SUPPORT_PLACEMENT_H
