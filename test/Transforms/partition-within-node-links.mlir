// RUN: zpp-opt %s --zero-partition-within-node=links=node=400gbyte,gpu=400gbyte \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=EQUAL
// RUN: zpp-opt %s --zero-partition-within-node=links=node=5gbyte,gpu=400gbyte \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=SLOW
// RUN: not zpp-opt %s --zero-partition-within-node=links=node=5gbyte 2>&1 \
// RUN:   | FileCheck %s --check-prefix=MISSING

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<4096x4096xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<4096x4096xbf16, dim 0 = (2, 4) on #mesh>

// Where the links between nodes are as fast as those within, a gather between
// nodes and one within are more than one over both.

// EQUAL-COUNT-2: along ["node", "gpu"] {{.*}}zpp.reason = "on these links its gathers take {{[0-9]+}} usec, with a secondary partition {{[0-9]+}}"
// SLOW: along ["node"] {zpp.keep
// SLOW-COUNT-2: along ["gpu"]
// MISSING: error: in links 'node=5gbyte': expected a link for tier 'gpu', but got none
func.func @weight(%w: tensor<512x4096xbf16>, %x: tensor<4xf32>)
    -> (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>, tensor<4xf32>) {
  %1 = zero.from_local %w : tensor<512x4096xbf16> to !primary
  %2 = zero.all_gather %1 along ["node", "gpu"] {zpp.origin = {id = 1}} : !primary to !whole
  %3 = zero.to_local %2 : !whole to tensor<4096x4096xbf16>
  %4:2 = "stablehlo.optimization_barrier"(%w, %x) : (tensor<512x4096xbf16>, tensor<4xf32>) -> (tensor<512x4096xbf16>, tensor<4xf32>)
  %5 = zero.from_local %4#0 : tensor<512x4096xbf16> to !primary
  %6 = zero.all_gather %5 along ["node", "gpu"] {zpp.origin = {id = 2}} : !primary to !whole
  %7 = zero.to_local %6 : !whole to tensor<4096x4096xbf16>
  return %3, %7, %4#1 : tensor<4096x4096xbf16>, tensor<4096x4096xbf16>, tensor<4xf32>
}
