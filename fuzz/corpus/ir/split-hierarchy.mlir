// RUN: zpp-opt %s --zero-split-hierarchy --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s
// RUN: zpp-opt %s --zero-split-hierarchy --zero-split-hierarchy \
// RUN:   --split-input-file --verify-diagnostics | FileCheck %s
// RUN: zpp-opt %s --zero-split-hierarchy="formats=i4 block=64" \
// RUN:   --split-input-file | FileCheck %s --check-prefix=ONE
// RUN: zpp-opt %s --zero-split-hierarchy="formats=i8:none:i4" \
// RUN:   --split-input-file | FileCheck %s --check-prefix=THREE
// RUN: zpp-opt %s --zero-split-hierarchy="formats=i8:none:i4" \
// RUN:   --zero-split-hierarchy="formats=i4" --split-input-file \
// RUN:   | FileCheck %s --check-prefix=THREE
// RUN: zpp-opt %s --zero-split-hierarchy="formats=none:none" \
// RUN:   --split-input-file | FileCheck %s --check-prefix=PLAIN --implicit-check-not=wire
// RUN: zpp-opt %s --zero-split-hierarchy=split-small=true --remarks-filter=none \
// RUN:   --split-input-file | FileCheck %s --check-prefix=SPLIT
// RUN: echo "module {}" | not zpp-opt --zero-split-hierarchy=formats=i8: 2>&1 \
// RUN:   | FileCheck %s --check-prefix=EMPTY
// RUN: echo "module {}" | not zpp-opt --zero-split-hierarchy=formats=i8:i7 2>&1 \
// RUN:   | FileCheck %s --check-prefix=UNKNOWN
// RUN: echo "module {}" | not zpp-opt --zero-split-hierarchy=block=16 2>&1 \
// RUN:   | FileCheck %s --check-prefix=BLOCK

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>

func.func @two_tiers(%g: !whole) -> !primary {

  %0 = zero.reduce_scatter sum %g along ["node", "gpu"] {zpp.origin = {id = 3}} : !whole to !primary
  return %0 : !primary
}

// -----

#mesh = #zero.mesh<"rack" = 2, "node" = 2, "tensor" = 2, "gpu" = 3>
!primary = !zero.shard<1200x16xf32, dim 0 = ("rack", "node", "gpu") on #mesh>
!whole = !zero.shard<1200x16xf32, dim 0 = (2, 2, 3) on #mesh>

func.func @three_tiers(%g: !whole) -> !primary {

  %0 = zero.reduce_scatter mean %g along ["rack", "node", "gpu"] : !whole to !primary
  return %0 : !primary
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!swapped = !zero.shard<4x1024xf16, dim 1 = ("gpu", "node") on #mesh>
!swapped_whole = !zero.shard<4x1024xf16, dim 1 = (4, 2) on #mesh>
!parts = !zero.shard<4096xf16, dim 0 = ("gpu":(1)2, "node", "gpu":(2)2) on #mesh>
!parts_whole = !zero.shard<4096xf16, dim 0 = (2, 2, 2) on #mesh>

func.func @order(%a: !swapped_whole, %b: !parts_whole) -> (!swapped, !parts) {

  %0 = zero.reduce_scatter sum %a along ["gpu", "node"] : !swapped_whole to !swapped

  %1 = zero.reduce_scatter sum %b along ["gpu":(1)2, "node", "gpu":(2)2] : !parts_whole to !parts
  return %0, %1 : !swapped, !parts
}

// -----

#mesh = #zero.mesh<"node" = 1, "gpu" = 3>
!primary = !zero.shard<100x7xbf16, dim 0 = ("gpu") on #mesh>
!whole = !zero.shard<100x7xbf16, dim 0 = (3) on #mesh>

func.func @one_tier(%g: !whole) -> !primary {

  %0 = zero.reduce_scatter sum %g along ["gpu"] : !whole to !primary
  return %0 : !primary
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!a = !zero.shard<128xbf16, dim 0 = ("node", "gpu") on #mesh>
!a_whole = !zero.shard<128xbf16, dim 0 = (2, 4) on #mesh>
!b = !zero.shard<80xbf16, dim 0 = ("node", "gpu") on #mesh>
!b_whole = !zero.shard<80xbf16, dim 0 = (2, 4) on #mesh>

func.func @small(%a: !a_whole, %b: !b_whole) -> (!a, !b) {

  %0 = zero.reduce_scatter sum %a along ["node", "gpu"] : !a_whole to !a

  %1 = zero.reduce_scatter sum %b along ["node", "gpu"] : !b_whole to !b
  return %0, %1 : !a, !b
}

// -----

#mesh = #zero.mesh<"rack" = 2, "node" = 2, "gpu" = 2>
!large = !zero.shard<4096xbf16, dim 0 = ("rack", "node", "gpu") on #mesh>
!large_whole = !zero.shard<4096xbf16, dim 0 = (2, 2, 2) on #mesh>
!small = !zero.shard<16xbf16, dim 0 = ("rack", "node", "gpu") on #mesh>
!small_whole = !zero.shard<16xbf16, dim 0 = (2, 2, 2) on #mesh>

func.func @small_three_tiers(%a: !large_whole, %b: !small_whole) -> (!large, !small) {
  %0 = zero.reduce_scatter sum %a along ["rack", "node", "gpu"] : !large_whole to !large

  %1 = zero.reduce_scatter sum %b along ["rack", "node", "gpu"] : !small_whole to !small
  return %0, %1 : !large, !small
}
