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
// RUN: zpp-opt %s --zero-split-hierarchy=rotate=32 --remarks-filter=none \
// RUN:   --split-input-file | FileCheck %s --check-prefix=ROTATE
// RUN: echo "module {}" | not zpp-opt --zero-split-hierarchy=rotate=16 2>&1 \
// RUN:   | FileCheck %s --check-prefix=GROUPS
// RUN: echo "module {}" | not zpp-opt --zero-split-hierarchy=formats=i8: 2>&1 \
// RUN:   | FileCheck %s --check-prefix=EMPTY
// RUN: echo "module {}" | not zpp-opt --zero-split-hierarchy=formats=i8:i7 2>&1 \
// RUN:   | FileCheck %s --check-prefix=UNKNOWN
// RUN: echo "module {}" | not zpp-opt --zero-split-hierarchy=block=16 2>&1 \
// RUN:   | FileCheck %s --check-prefix=BLOCK

// EMPTY: error: expected a format none, i8 or i4, but got ''
// UNKNOWN: error: expected a format none, i8 or i4, but got 'i7'
// GROUPS: error: expected groups of 0 or 32 elements to rotate, but got 16
// BLOCK: error: expected a block that is a power of two from 32 to 2048, but got 16

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>

// From the innermost tier outwards; the sum between the hops stays in f32.
// CHECK-LABEL: func @two_tiers
// ONE-LABEL: func @two_tiers
// THREE-LABEL: func @two_tiers
// PLAIN-LABEL: func @two_tiers
func.func @two_tiers(%g: !whole) -> !primary {
  // ROTATE: wire <i8, block = 128, rotate = 32>
  // ROTATE: wire <i4, block = 128, rotate = 32>
  // CHECK: %[[HOP:.*]] = zero.reduce_scatter sum %{{.*}} along ["gpu"] wire <i8, block = 128> {zpp.origin = {id = 3 : i64}}
  // CHECK-SAME: to <256x64xf32, dim 0 = (2, "gpu") on #mesh>
  // CHECK: %[[SUM:.*]] = zero.reduce_scatter sum %[[HOP]] along ["node"] wire <i4, block = 128> {zpp.origin = {id = 3 : i64}}
  // CHECK-SAME: to <256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
  // CHECK: return %[[SUM]]
  // ONE: zero.reduce_scatter sum %{{.*}} along ["node", "gpu"] wire <i4, block = 64>
  // ONE-NOT: zero.reduce_scatter
  // The last format is that of the outermost tier, however many there are.
  // THREE: along ["gpu"] wire <i8, block = 128> {{.*}} to <256x64xf32, dim 0 = (2, "gpu") on #mesh>
  // THREE: along ["node"] wire <i4, block = 128>
  // PLAIN: along ["gpu"] {zpp.origin {{.*}} to <256x64xbf16, dim 0 = (2, "gpu") on #mesh>
  // PLAIN: along ["node"] {zpp.origin
  %0 = zero.reduce_scatter sum %g along ["node", "gpu"] {zpp.origin = {id = 3}} : !whole to !primary
  return %0 : !primary
}

// -----

// One hop per tier. The format before the last is that of all tiers except the
// outermost. An axis of another kind of parallelism is not a tier of the group.

#mesh = #zero.mesh<"rack" = 2, "node" = 2, "tensor" = 2, "gpu" = 3>
!primary = !zero.shard<1200x16xf32, dim 0 = ("rack", "node", "gpu") on #mesh>
!whole = !zero.shard<1200x16xf32, dim 0 = (2, 2, 3) on #mesh>

// CHECK-LABEL: func @three_tiers
// ONE-LABEL: func @three_tiers
// THREE-LABEL: func @three_tiers
func.func @three_tiers(%g: !whole) -> !primary {
  // CHECK: zero.reduce_scatter mean %{{.*}} along ["gpu"] wire <i8, block = 128> {{.*}} dim 0 = (2, 2, "gpu")
  // CHECK: zero.reduce_scatter mean %{{.*}} along ["node"] wire <i8, block = 128> {{.*}} dim 0 = (2, "node", "gpu")
  // CHECK: zero.reduce_scatter mean %{{.*}} along ["rack"] wire <i4, block = 128>
  // One format alone is one hop, slower tiers first.
  // ONE: zero.reduce_scatter mean %{{.*}} along ["rack", "node", "gpu"] wire <i4, block = 64>
  // ONE-NOT: zero.reduce_scatter
  // THREE: along ["gpu"] wire <i8, block = 128>
  // THREE: along ["node"] : {{.*}} dim 0 = (2, "node", "gpu")
  // THREE: along ["rack"] wire <i4, block = 128>
  %0 = zero.reduce_scatter mean %g along ["rack", "node", "gpu"] : !whole to !primary
  return %0 : !primary
}

// -----

// Tiers are those of the mesh, in whatever order the dim is split; parts of an
// axis are one tier.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!swapped = !zero.shard<4x1024xf16, dim 1 = ("gpu", "node") on #mesh>
!swapped_whole = !zero.shard<4x1024xf16, dim 1 = (4, 2) on #mesh>
!parts = !zero.shard<4096xf16, dim 0 = ("gpu":(1)2, "node", "gpu":(2)2) on #mesh>
!parts_whole = !zero.shard<4096xf16, dim 0 = (2, 2, 2) on #mesh>

// CHECK-LABEL: func @order
// ONE-LABEL: func @order
func.func @order(%a: !swapped_whole, %b: !parts_whole) -> (!swapped, !parts) {
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["gpu"] wire <i8, block = 128> {{.*}} to <4x1024xf32, dim 1 = ("gpu", 2) on #mesh>
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["node"] wire <i4, block = 128> {{.*}} to <4x1024xf16, dim 1 = ("gpu", "node") on #mesh>
  %0 = zero.reduce_scatter sum %a along ["gpu", "node"] : !swapped_whole to !swapped
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["gpu":(1)2, "gpu":(2)2] wire <i8, block = 128>
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["node"] wire <i4, block = 128>
  %1 = zero.reduce_scatter sum %b along ["gpu":(1)2, "node", "gpu":(2)2] : !parts_whole to !parts
  return %0, %1 : !swapped, !parts
}

// -----

// A group within one tier is one hop, with the format of that tier: weights may
// be sharded over nodes alone, beside another parallelism within them.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!nodes = !zero.shard<256x64xbf16, dim 0 = ("node") on #mesh>
!nodes_whole = !zero.shard<256x64xbf16, dim 0 = (2) on #mesh>
!gpus = !zero.shard<256x64xbf16, dim 0 = ("gpu") on #mesh>
!gpus_whole = !zero.shard<256x64xbf16, dim 0 = (4) on #mesh>

// CHECK-LABEL: func @a_group_within_a_tier
func.func @a_group_within_a_tier(%a: !nodes_whole, %b: !gpus_whole) -> (!nodes, !gpus) {
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["node"] wire <i4, block = 128>
  %0 = zero.reduce_scatter sum %a along ["node"] : !nodes_whole to !nodes
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["gpu"] wire <i8, block = 128>
  %1 = zero.reduce_scatter sum %b along ["gpu"] : !gpus_whole to !gpus
  return %0, %1 : !nodes, !gpus
}

// -----

// A tier of one device counts.

#mesh = #zero.mesh<"node" = 1, "gpu" = 3>
!primary = !zero.shard<100x7xbf16, dim 0 = ("gpu") on #mesh>
!whole = !zero.shard<100x7xbf16, dim 0 = (3) on #mesh>

// CHECK-LABEL: func @one_tier
func.func @one_tier(%g: !whole) -> !primary {
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["gpu"] wire <i8, block = 128>
  // CHECK-NOT: zero.reduce_scatter
  %0 = zero.reduce_scatter sum %g along ["gpu"] : !whole to !primary
  return %0 : !primary
}

// -----

// Chunks that would not shrink: those of one hop travel as they are, a scatter
// all of whose hops would is left alone.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!a = !zero.shard<128xbf16, dim 0 = ("node", "gpu") on #mesh>
!a_whole = !zero.shard<128xbf16, dim 0 = (2, 4) on #mesh>
!b = !zero.shard<80xbf16, dim 0 = ("node", "gpu") on #mesh>
!b_whole = !zero.shard<80xbf16, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @small
// SPLIT-LABEL: func @small
func.func @small(%a: !a_whole, %b: !b_whole) -> (!a, !b) {
  // 16 elements: 32 bytes, also in i4.
  // CHECK: along ["gpu"] wire <i8, block = 128> {{.*}} to <128xbf16, dim 0 = (2, "gpu") on #mesh>
  // CHECK: along ["node"] : <128xbf16
  %0 = zero.reduce_scatter sum %a along ["node", "gpu"] : !a_whole to !a
  // CHECK: zero.reduce_scatter sum %arg1 along ["node", "gpu"] {zpp.reason = "its chunks are so small that they would not shrink"}
  // expected-remark@+5 {{zero.reduce_scatter is left alone: its chunks are so small that they would not shrink}}
  // To travel with others it is split too. The slowest tier carries bf16, as it
  // did before.
  // SPLIT: zero.reduce_scatter sum %arg1 along ["gpu"] : {{.*}} to <80xbf16, dim 0 = (2, "gpu") on #mesh>
  // SPLIT: along ["node"] : <80xbf16{{.*}} to <80xbf16, dim 0 = ("node", "gpu") on #mesh>
  %1 = zero.reduce_scatter sum %b along ["node", "gpu"] : !b_whole to !b
  return %0, %1 : !a, !b
}

// -----

// With three tiers, the inner ones carry the sum in f32.

#mesh = #zero.mesh<"rack" = 2, "node" = 2, "gpu" = 2>
!large = !zero.shard<4096xbf16, dim 0 = ("rack", "node", "gpu") on #mesh>
!large_whole = !zero.shard<4096xbf16, dim 0 = (2, 2, 2) on #mesh>
!small = !zero.shard<16xbf16, dim 0 = ("rack", "node", "gpu") on #mesh>
!small_whole = !zero.shard<16xbf16, dim 0 = (2, 2, 2) on #mesh>

// SPLIT-LABEL: func @small_three_tiers
func.func @small_three_tiers(%a: !large_whole, %b: !small_whole) -> (!large, !small) {
  %0 = zero.reduce_scatter sum %a along ["rack", "node", "gpu"] : !large_whole to !large
  // SPLIT: zero.reduce_scatter sum %arg1 along ["gpu"] : {{.*}} to <16xf32, dim 0 = (2, 2, "gpu") on #mesh>
  // SPLIT: along ["node"] : <16xf32{{.*}} to <16xbf16, dim 0 = (2, "node", "gpu") on #mesh>
  // SPLIT: along ["rack"] : <16xbf16{{.*}} to <16xbf16, dim 0 = ("rack", "node", "gpu") on #mesh>
  // expected-remark@+1 {{its chunks are so small that they would not shrink}}
  %1 = zero.reduce_scatter sum %b along ["rack", "node", "gpu"] : !small_whole to !small
  return %0, %1 : !large, !small
}
