// RUN: zpp-opt %s --zero-accumulate-gradients=group=1 --remarks-filter=none \
// RUN:   | FileCheck %s

// In a group of one device nothing is summed before gradients are added up:
// these may be arguments.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!inner = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// CHECK-LABEL: func @in_a_row
// CHECK-SAME: (%[[X:.*]]: tensor<32xf32>, %[[Y:.*]]: tensor<32xf32>)
// CHECK-NEXT: %[[SUM:.*]] = stablehlo.add %[[X]], %[[Y]]
// CHECK: zero.from_local %[[SUM]]
// CHECK: zero.reduce_scatter {{.*}} along ["node"]
// CHECK-NOT: zero.reduce_scatter {{.*}} along ["node"]
// CHECK: return
func.func @in_a_row(%x: tensor<32xf32>, %y: tensor<32xf32>) -> tensor<4xf32> {
  %0 = zero.from_local %x : tensor<32xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 32> : !whole to !inner
  %2 = zero.reduce_scatter sum %1 along ["node"] wire <i4, block = 32> : !inner to !own
  %3 = zero.to_local %2 : !own to tensor<4xf32>
  %4 = zero.from_local %y : tensor<32xf32> to !whole
  %5 = zero.reduce_scatter sum %4 along ["gpu"] wire <i8, block = 32> : !whole to !inner
  %6 = zero.reduce_scatter sum %5 along ["node"] wire <i4, block = 32> : !inner to !own
  %7 = zero.to_local %6 : !own to tensor<4xf32>
  %8 = stablehlo.add %3, %7 : tensor<4xf32>
  return %8 : tensor<4xf32>
}
