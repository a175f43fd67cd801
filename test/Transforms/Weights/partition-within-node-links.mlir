// RUN: zpp-opt %s --zero-import-collectives="mesh=node:2,gpu:4 links=node=400gbyte,gpu=400gbyte" --zero-partition-within-node \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=EQUAL
// RUN: zpp-opt %s --zero-import-collectives="mesh=node:2,gpu:4 links=node=5gbyte,gpu=400gbyte" --zero-partition-within-node \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=SLOW
// RUN: zpp-opt %s --zero-import-collectives="mesh=node:2,gpu:4 links=node=5gbyte,gpu=400gbyte" --zero-partition-within-node=split-small=true \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=BESIDE
// RUN: zpp-opt %s --zero-import-collectives="mesh=node:2,gpu:4 links=node=5gbyte,gpu=400gbyte" --zero-partition-within-node="split-small=true between-steps=all" \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=DIFFERENCES
// RUN: not zpp-opt %s --zero-import-collectives="mesh=node:2,gpu:4 links=node=5gbyte" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=MISSING

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<4096x4096xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<4096x4096xbf16, dim 0 = (2, 4) on #mesh>

// If the links between nodes are as fast as those within, a gather between
// nodes and one within take longer than one gather over both.

// EQUAL-COUNT-2: along ["node", "gpu"] {zpp.origin = {{{.*}}lacks = {secondary = "on these links {{.*}}"}, {{.*}}slower{{.*}}}, zpp.reason = "on these links its gathers take {{[0-9]+}} usec, with a secondary partition {{[0-9]+}}"
// SLOW: along ["node"] {zpp.keep
// SLOW-COUNT-2: along ["gpu"]
// MISSING: error: in links 'node=5gbyte': expected a link for tier 'gpu', but got none
func.func @weight(%w: tensor<512x4096xbf16>, %x: tensor<4xf32>)
    -> (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>, tensor<4xf32>) {
  %1 = zero.from_local %w : tensor<512x4096xbf16> to !primary
  %2 = zero.all_gather %1 along ["node", "gpu"] {zpp.origin = {id = 1}} : !primary to !whole
  %3 = zero.to_local %2 : !whole to tensor<4096x4096xbf16>
  %4:2 = stablehlo.optimization_barrier %w, %x : tensor<512x4096xbf16>, tensor<4xf32>
  %5 = zero.from_local %4#0 : tensor<512x4096xbf16> to !primary
  %6 = zero.all_gather %5 along ["node", "gpu"] {zpp.origin = {id = 2}} : !primary to !whole
  %7 = zero.to_local %6 : !whole to tensor<4096x4096xbf16>
  return %3, %7, %4#1 : tensor<4096x4096xbf16>, tensor<4096x4096xbf16>, tensor<4xf32>
}

!primary_i8 = !zero.shard<4096x4096xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8, block = 128>>
!whole_i8 = !zero.shard<4096x4096xbf16, dim 0 = (2, 4) on #mesh, #zero.quant<i8, block = 128>>
!small = !zero.shard<64xbf16, dim 0 = ("node", "gpu") on #mesh>
!small_whole = !zero.shard<64xbf16, dim 0 = (2, 4) on #mesh>

// A small weight costs a latency more in hops; but none beside others.

// SLOW-LABEL: func @small
// SLOW: along ["node"] {zpp.keep, zpp.origin = {gets = ["secondary"], id = 3
// SLOW: along ["node", "gpu"] {{.*}}zpp.reason = "on these links its gathers take 42 usec, with a secondary partition 51"
// SLOW: along ["gpu"] {zpp.origin = {id = 5
// SLOW: along ["node", "gpu"] {{.*}}zpp.reason = "on these links
// BESIDE-LABEL: func @small
// BESIDE: along ["node"] {zpp.keep, zpp.origin = {gets = ["secondary"], id = 3
// BESIDE: along ["node"] {zpp.keep, zpp.origin = {gets = ["secondary"], id = 4
// BESIDE: along ["gpu"] {zpp.origin = {id = 4
// BESIDE: along ["gpu"] {zpp.origin = {id = 5
// BESIDE: along ["gpu"] {zpp.origin = {id = 6
func.func @small(%w: tensor<512x4096xbf16>, %b: tensor<8xbf16>) -> (!whole, !small_whole, !whole, !small_whole) {
  %0 = zero.from_local %w : tensor<512x4096xbf16> to !primary
  %1 = zero.encode %0 : !primary to !primary_i8
  %2 = zero.all_gather %1 along ["node", "gpu"] {zpp.origin = {id = 3}} : !primary_i8 to !whole_i8
  %3 = zero.decode %2 : !whole_i8 to !whole
  %4 = zero.from_local %b : tensor<8xbf16> to !small
  %5 = zero.all_gather %4 along ["node", "gpu"] {zpp.origin = {id = 4}} : !small to !small_whole
  %6:2 = stablehlo.optimization_barrier %w, %b : tensor<512x4096xbf16>, tensor<8xbf16>
  %7 = zero.from_local %6#0 : tensor<512x4096xbf16> to !primary
  %8 = zero.encode %7 : !primary to !primary_i8
  %9 = zero.all_gather %8 along ["node", "gpu"] {zpp.origin = {id = 5}} : !primary_i8 to !whole_i8
  %10 = zero.decode %9 : !whole_i8 to !whole
  %11 = zero.from_local %6#1 : tensor<8xbf16> to !small
  %12 = zero.all_gather %11 along ["node", "gpu"] {zpp.origin = {id = 6}} : !small to !small_whole
  return %3, %5, %10, %12 : !whole, !small_whole, !whole, !small_whole
}

// Nor beside weights of which differences will be sent: these are quantized
// later. Others that are not quantized are left to XLA, which joins nothing.

// BESIDE-LABEL: func @differences
// BESIDE: along ["node"] {zpp.keep, zpp.origin = {gets = ["secondary"], id = 7
// BESIDE: along ["node", "gpu"] {{.*}}zpp.reason = "on these links its gathers take 42 usec, with a secondary partition 51"
// DIFFERENCES-LABEL: func @differences
// DIFFERENCES: along ["node"] {zpp.keep, zpp.origin = {gets = ["secondary"], id = 7
// DIFFERENCES: along ["node"] {zpp.keep, zpp.origin = {gets = ["secondary"], id = 8
// DIFFERENCES: along ["gpu"] {zpp.origin = {id = 8
// DIFFERENCES: along ["gpu"] {zpp.origin = {id = 9
// DIFFERENCES: along ["gpu"] {zpp.origin = {id = 10
func.func @differences(%w: tensor<512x4096xbf16>, %b: tensor<8xbf16>) -> (!whole, !small_whole, !whole, !small_whole) {
  %0 = zero.from_local %w : tensor<512x4096xbf16> to !primary
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {id = 7}} : !primary to !whole
  %2 = zero.from_local %b : tensor<8xbf16> to !small
  %3 = zero.all_gather %2 along ["node", "gpu"] {zpp.origin = {id = 8}} : !small to !small_whole
  %4:2 = stablehlo.optimization_barrier %w, %b : tensor<512x4096xbf16>, tensor<8xbf16>
  %5 = zero.from_local %4#0 : tensor<512x4096xbf16> to !primary
  %6 = zero.all_gather %5 along ["node", "gpu"] {zpp.origin = {id = 9}} : !primary to !whole
  %7 = zero.from_local %4#1 : tensor<8xbf16> to !small
  %8 = zero.all_gather %7 along ["node", "gpu"] {zpp.origin = {id = 10}} : !small to !small_whole
  return %1, %3, %6, %8 : !whole, !small_whole, !whole, !small_whole
}

// On two nodes of two, hops over equal links take a sixth less than two gathers
// over both. That is not worth their memory.

#square = #zero.mesh<"node" = 2, "gpu" = 2>
!primary4 = !zero.shard<4096x4096xbf16, dim 0 = ("node", "gpu") on #square>
!whole4 = !zero.shard<4096x4096xbf16, dim 0 = (2, 2) on #square>

// EQUAL-LABEL: func @square
// EQUAL-COUNT-2: along ["node", "gpu"] {zpp.origin = {{{.*}}lacks = {secondary = "on these links {{.*}}"}, {{.*}}slower{{.*}}}, zpp.reason = "on these links its gathers take {{[0-9]+}} usec, with a secondary partition {{[0-9]+}}"
// SLOW-LABEL: func @square
// SLOW: along ["node"] {zpp.keep
func.func @square(%w: tensor<1024x4096xbf16>, %x: tensor<4xf32>)
    -> (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>, tensor<4xf32>) {
  %1 = zero.from_local %w : tensor<1024x4096xbf16> to !primary4
  %2 = zero.all_gather %1 along ["node", "gpu"] {zpp.origin = {id = 7}} : !primary4 to !whole4
  %3 = zero.to_local %2 : !whole4 to tensor<4096x4096xbf16>
  %4:2 = stablehlo.optimization_barrier %w, %x : tensor<1024x4096xbf16>, tensor<4xf32>
  %5 = zero.from_local %4#0 : tensor<1024x4096xbf16> to !primary4
  %6 = zero.all_gather %5 along ["node", "gpu"] {zpp.origin = {id = 8}} : !primary4 to !whole4
  %7 = zero.to_local %6 : !whole4 to tensor<4096x4096xbf16>
  return %3, %7, %4#1 : tensor<4096x4096xbf16>, tensor<4096x4096xbf16>, tensor<4xf32>
}
