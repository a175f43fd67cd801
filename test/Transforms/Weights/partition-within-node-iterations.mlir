// RUN: zpp-opt %s --zero-plan-loops --zero-partition-within-node --remarks-filter=none \
// RUN:   | FileCheck %s
// RUN: zpp-opt %s --zero-plan-loops --zero-partition-within-node --remarks-filter=zero-partition-within-node -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=REMARK
// RUN: zpp-opt %s --zero-partition-within-node --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=HOISTED
// RUN: zpp-opt %s --zero-plan-loops --zero-partition-within-node=between-steps=all --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=HOISTED

// A loop of three layers gathers the secondary partition of each in its
// iteration, and leaves it to the loop after it. A loop without a plan for that
// hoists, and so does one whose partitions are kept for the next step.

// REMARK: the loop keeps its results for 1 later gathers

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xbf16, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @layers
// HOISTED-LABEL: func @layers
func.func @layers(%w: tensor<3x2xf32>, %x: tensor<16xbf16>) -> tensor<16xbf16> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  // CHECK-NOT: zero.all_gather
  // CHECK: %[[EMPTY:.*]] = stablehlo.broadcast_in_dim {{.*}} -> tensor<3x4xbf16>
  // CHECK: %[[FORWARD:.*]]:3 = stablehlo.while(%[[I:[^ ]+]] = {{.*}}, %[[STACK:[^ ]+]] = %[[EMPTY]])
  // CHECK: } do {
  // CHECK: %[[KEPT:.*]] = zero.all_gather {{.*}} along ["node"] {zpp.keep = 3 : i64}
  // CHECK: zero.all_gather %[[KEPT]] along ["gpu"]
  // CHECK: %[[LAYER:.*]] = zero.to_local %[[KEPT]]
  // CHECK: %[[ONE:.*]] = stablehlo.reshape %[[LAYER]] : (tensor<4xbf16>) -> tensor<1x4xbf16>
  // CHECK: %[[NEXT:.*]] = stablehlo.dynamic_update_slice %[[STACK]], %[[ONE]], %[[I]],
  // CHECK: stablehlo.return {{.*}}, %[[NEXT]]
  // HOISTED: zero.all_gather {{.*}} along ["node"] {zpp.keep}
  // HOISTED: stablehlo.while
  // HOISTED-NOT: along ["node"]
  // HOISTED: along ["gpu"]
  %0:2 = stablehlo.while(%i = %c0, %h = %x) : tensor<i32>, tensor<16xbf16>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %f = stablehlo.dynamic_slice %w, %i, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %f1 = stablehlo.reshape %f : (tensor<1x2xf32>) -> tensor<2xf32>
    %f2 = stablehlo.convert %f1 : (tensor<2xf32>) -> tensor<2xbf16>
    %f3 = zero.from_local %f2 : tensor<2xbf16> to !primary
    %f4 = zero.all_gather %f3 along ["node", "gpu"] : !primary to !whole
    %f5 = zero.to_local %f4 : !whole to tensor<16xbf16>
    %y = stablehlo.multiply %h, %f5 : tensor<16xbf16>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %y : tensor<i32>, tensor<16xbf16>
  }
  // CHECK: stablehlo.while
  // CHECK: %[[J:.*]] = stablehlo.subtract
  // CHECK: stablehlo.dynamic_slice %[[FORWARD]]#2, %[[J]],
  // CHECK-NOT: along ["node"]
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  // CHECK-NOT: along ["node"]
  // HOISTED: stablehlo.while
  // HOISTED-NOT: along ["node"]
  // HOISTED: along ["gpu"]
  %1:2 = stablehlo.while(%i = %c0, %h = %0#1) : tensor<i32>, tensor<16xbf16>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %j = stablehlo.subtract %c2, %i : tensor<i32>
    %b = stablehlo.dynamic_slice %w, %j, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %b1 = stablehlo.reshape %b : (tensor<1x2xf32>) -> tensor<2xf32>
    %b2 = stablehlo.convert %b1 : (tensor<2xf32>) -> tensor<2xbf16>
    %b3 = zero.from_local %b2 : tensor<2xbf16> to !primary
    %b4 = zero.all_gather %b3 along ["node", "gpu"] : !primary to !whole
    %b5 = zero.to_local %b4 : !whole to tensor<16xbf16>
    %y = stablehlo.multiply %h, %b5 : tensor<16xbf16>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %y : tensor<i32>, tensor<16xbf16>
  }
  return %1#1 : tensor<16xbf16>
}
