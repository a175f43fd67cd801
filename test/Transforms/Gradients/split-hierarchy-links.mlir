// DEFINE: %{node} = 50gbit
// DEFINE: %{on} = --zero-import-collectives="mesh=node:2,gpu:4 links=node=%{node},gpu=400gbyte"
// DEFINE: %{split} = --zero-split-hierarchy=split-small=true --remarks-filter=none
// RUN: zpp-opt %s %{on} %{split} | FileCheck %s
// RUN: zpp-opt %s %{on} %{split} --zero-split-hierarchy=split-small=true --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s %{on} --zero-split-hierarchy --remarks-filter=none | FileCheck %s --check-prefix=ALONE
// REDEFINE: %{node} = 400gbyte
// RUN: zpp-opt %s %{on} %{split} | FileCheck %s --check-prefix=FAST

// What a communication library scatters faster than hops do travels with a large
// gradient of its block and of its devices, unquantized. If there is none, it is
// left to that library.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!large = !zero.shard<4096x4096xbf16, dim 0 = ("node", "gpu") on #mesh>
!large_whole = !zero.shard<4096x4096xbf16, dim 0 = (2, 4) on #mesh>
!small = !zero.shard<2048xf32, dim 0 = ("node", "gpu") on #mesh>
!small_whole = !zero.shard<2048xf32, dim 0 = (2, 4) on #mesh>
!node = !zero.shard<2048xf32, dim 0 = ("node") on #mesh>
!node_whole = !zero.shard<2048xf32, dim 0 = (2) on #mesh>

// CHECK-LABEL: func @beside
// ALONE-LABEL: func @beside
// FAST-LABEL: func @beside
func.func @beside(%a: !large_whole, %b: !small_whole, %c: !node_whole) -> (!large, !small, !node) {
  // CHECK: zero.reduce_scatter sum %arg0 along ["gpu"] wire <i8
  // CHECK: along ["node"] wire <i4
  // FAST: zero.reduce_scatter sum %arg0 along ["node", "gpu"] {zpp.reason = "on these links it takes
  %0 = zero.reduce_scatter sum %a along ["node", "gpu"] : !large_whole to !large
  // CHECK: zero.reduce_scatter sum %arg1 along ["gpu"] : {{.*}} to <2048xf32, dim 0 = (2, "gpu") on #mesh>
  // CHECK: along ["node"] : <2048xf32{{.*}} to <2048xf32, dim 0 = ("node", "gpu") on #mesh>
  // ALONE: zero.reduce_scatter sum %arg1 along ["node", "gpu"] {zpp.reason = "on these links it takes {{[0-9]+}} usec, in hops {{[0-9]+}}"}
  // FAST: zero.reduce_scatter sum %arg1 along ["node", "gpu"] {zpp.reason = "on these links it takes
  %1 = zero.reduce_scatter sum %b along ["node", "gpu"] : !small_whole to !small
  // CHECK: zero.reduce_scatter sum %arg2 along ["node"] {zpp.reason = "on these links it takes
  %2 = zero.reduce_scatter sum %c along ["node"] : !node_whole to !node
  return %0, %1, %2 : !large, !small, !node
}

// CHECK-LABEL: func @elsewhere
// CHECK: zero.reduce_scatter sum %arg0 along ["node", "gpu"] {zpp.reason = "on these links it takes
func.func @elsewhere(%b: !small_whole) -> !small {
  %0 = zero.reduce_scatter sum %b along ["node", "gpu"] : !small_whole to !small
  return %0 : !small
}
