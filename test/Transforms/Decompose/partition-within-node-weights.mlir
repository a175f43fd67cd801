// RUN: zpp-opt %s --zero-partition-within-node --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s

// Which gathers are of one weight: the same slice of the same input.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<32x64xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<32x64xf32, dim 0 = (2, 4) on #mesh>

// A flat buffer of several inputs is not one that only begins like it.
// CHECK-LABEL: func @concatenated
// CHECK-NOT: zpp.keep
func.func @concatenated(%w: tensor<2x64xf32>, %v: tensor<2x64xf32>, %u: tensor<2x64xf32>) -> (!whole, !whole) {
  %0 = "stablehlo.concatenate"(%w, %v) <{dimension = 0 : i64}> : (tensor<2x64xf32>, tensor<2x64xf32>) -> tensor<4x64xf32>
  %1 = zero.from_local %0 : tensor<4x64xf32> to !primary
  // expected-remark@+1 {{it is gathered once}}
  %2 = zero.all_gather %1 along ["node", "gpu"] : !primary to !whole
  %3 = "stablehlo.concatenate"(%w, %u) <{dimension = 0 : i64}> : (tensor<2x64xf32>, tensor<2x64xf32>) -> tensor<4x64xf32>
  %4 = zero.from_local %3 : tensor<4x64xf32> to !primary
  // expected-remark@+1 {{it is gathered once}}
  %5 = zero.all_gather %4 along ["node", "gpu"] : !primary to !whole
  return %2, %5 : !whole, !whole
}

// Unrolled layers: slices of a stack at constant indices.
// CHECK-LABEL: func @unrolled
func.func @unrolled(%stack: tensor<2x4x64xf32>) -> (!whole, !whole, !whole) {
  %c0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %c1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
  // CHECK: %[[FIRST:.*]] = "stablehlo.dynamic_slice"(%arg0, %[[C0:.*]], %[[C0]], %[[C0]])
  // CHECK: zero.all_gather {{.*}} along ["node"] {zpp.keep}
  // CHECK: %[[KEPT:.*]] = zero.to_local {{.*}} to tensor<8x64xf32>
  %0 = "stablehlo.dynamic_slice"(%stack, %c0, %c0, %c0) <{slice_sizes = array<i64: 1, 4, 64>}> : (tensor<2x4x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x64xf32>
  %1 = "stablehlo.reshape"(%0) : (tensor<1x4x64xf32>) -> tensor<4x64xf32>
  %2 = zero.from_local %1 : tensor<4x64xf32> to !primary
  %3 = zero.all_gather %2 along ["node", "gpu"] : !primary to !whole
  // CHECK: zero.all_gather {{.*}} along ["node", "gpu"]
  %4 = "stablehlo.dynamic_slice"(%stack, %c1, %c0, %c0) <{slice_sizes = array<i64: 1, 4, 64>}> : (tensor<2x4x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x64xf32>
  %5 = "stablehlo.reshape"(%4) : (tensor<1x4x64xf32>) -> tensor<4x64xf32>
  %6 = zero.from_local %5 : tensor<4x64xf32> to !primary
  // expected-remark@+1 {{it is gathered once}}
  %7 = zero.all_gather %6 along ["node", "gpu"] : !primary to !whole
  // CHECK: "stablehlo.optimization_barrier"(%[[KEPT]])
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  %8 = "stablehlo.optimization_barrier"(%stack) : (tensor<2x4x64xf32>) -> tensor<2x4x64xf32>
  %9 = "stablehlo.dynamic_slice"(%8, %c0, %c0, %c0) <{slice_sizes = array<i64: 1, 4, 64>}> : (tensor<2x4x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x64xf32>
  %10 = "stablehlo.reshape"(%9) : (tensor<1x4x64xf32>) -> tensor<4x64xf32>
  %11 = zero.from_local %10 : tensor<4x64xf32> to !primary
  %12 = zero.all_gather %11 along ["node", "gpu"] : !primary to !whole
  return %3, %7, %12 : !whole, !whole, !whole
}

// -----

// Two layers in one iteration are two weights.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @two_layers
// CHECK-NOT: zpp.keep
func.func @two_layers(%stack: tensor<6x2xf32>, %start: tensor<i32>) -> tensor<i32> {
  %c0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %c1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
  %0 = "stablehlo.while"(%start) ({
  ^bb0(%i: tensor<i32>):
    %more = "stablehlo.constant"() <{value = dense<true> : tensor<i1>}> : () -> tensor<i1>
    "stablehlo.return"(%more) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>):
    %1 = "stablehlo.dynamic_slice"(%stack, %i, %c0) <{slice_sizes = array<i64: 1, 2>}> : (tensor<6x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %2 = "stablehlo.reshape"(%1) : (tensor<1x2xf32>) -> tensor<2xf32>
    %3 = zero.from_local %2 : tensor<2xf32> to !primary
    // expected-remark@+1 {{zero.all_gather is left alone}}
    %4 = zero.all_gather %3 along ["node", "gpu"] : !primary to !whole
    %next = "stablehlo.add"(%i, %c1) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %5 = "stablehlo.dynamic_slice"(%stack, %next, %c0) <{slice_sizes = array<i64: 1, 2>}> : (tensor<6x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %6 = "stablehlo.reshape"(%5) : (tensor<1x2xf32>) -> tensor<2xf32>
    %7 = zero.from_local %6 : tensor<2xf32> to !primary
    // expected-remark@+1 {{zero.all_gather is left alone}}
    %8 = zero.all_gather %7 along ["node", "gpu"] : !primary to !whole
    "stablehlo.return"(%next) : (tensor<i32>) -> ()
  }) : (tensor<i32>) -> tensor<i32>
  return %0 : tensor<i32>
}
