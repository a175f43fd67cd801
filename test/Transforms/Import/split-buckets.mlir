// RUN: zpp-opt %s --zero-import-collectives=mesh=node:2,gpu:4 \
// RUN:   --remarks-filter=none --split-input-file | FileCheck %s

// One collective may move a bucket of tensors, as PyTorch/XLA makes it. Roles
// are those of tensors: where one has a role, each gets a collective of its own.

// CHECK-LABEL: func @bucket
func.func @bucket(%w: tensor<32x64xf32>, %v: tensor<2x8xf32>, %n: tensor<1xi32>, %x: tensor<4x256xf32>) -> (tensor<32x64xf32>, tensor<2x8xf32>, tensor<8xi32>) {
  // CHECK: zero.all_gather {{.*}} along ["node", "gpu"] {{.*}}role = "weight"
  // CHECK: zero.all_gather {{.*}} along ["node", "gpu"] {{.*}}role = "weight"
  // CHECK: "stablehlo.all_gather"(%arg2) {{.*}} : (tensor<1xi32>) -> tensor<8xi32>
  %0:3 = "stablehlo.all_gather"(%w, %v, %n) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<32x64xf32>, tensor<2x8xf32>, tensor<1xi32>) -> (tensor<256x64xf32>, tensor<16x8xf32>, tensor<8xi32>)
  %1 = "stablehlo.dot_general"(%x, %0#0) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<4x256xf32>, tensor<256x64xf32>) -> tensor<4x64xf32>
  %2 = "stablehlo.dot_general"(%x, %1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>}> : (tensor<4x256xf32>, tensor<4x64xf32>) -> tensor<256x64xf32>
  %3 = "stablehlo.dot_general"(%0#1, %0#1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>}> : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x16xf32>
  %4 = "stablehlo.dot_general"(%3, %0#1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<16x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  // CHECK: zero.reduce_scatter sum {{.*}}role = "gradient"
  // CHECK: zero.reduce_scatter sum {{.*}}role = "gradient"
  %5:2 = "stablehlo.reduce_scatter"(%2, %4) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %8 = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%8) : (tensor<f32>) -> ()
  }) : (tensor<256x64xf32>, tensor<16x8xf32>) -> (tensor<32x64xf32>, tensor<2x8xf32>)
  %6 = "stablehlo.subtract"(%w, %5#0) : (tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<32x64xf32>
  %7 = "stablehlo.subtract"(%v, %5#1) : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %6, %7, %0#2 : tensor<32x64xf32>, tensor<2x8xf32>, tensor<8xi32>
}

// -----

// A bucket without weights and gradients stays one.

// CHECK-LABEL: func @no_role
func.func @no_role(%n: tensor<1xi32>, %m: tensor<1x4xi32>) -> (tensor<8xi32>, tensor<8x4xi32>, tensor<i32>, tensor<i32>) {
  // CHECK: %[[GATHERED:.*]]:2 = "stablehlo.all_gather"(%arg0, %arg1) <{all_gather_dim = 0 : i64, replica_groups = {{.*}}> {zpp.origin = {{.*}} : (tensor<1xi32>, tensor<1x4xi32>) -> (tensor<8xi32>, tensor<8x4xi32>)
  %0:2 = "stablehlo.all_gather"(%n, %m) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1xi32>, tensor<1x4xi32>) -> (tensor<8xi32>, tensor<8x4xi32>)
  %1 = "stablehlo.reshape"(%n) : (tensor<1xi32>) -> tensor<i32>
  // CHECK: "stablehlo.all_reduce"(%[[SCALAR:.*]], %[[SCALAR]])
  %2:2 = "stablehlo.all_reduce"(%1, %1) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %3 = "stablehlo.add"(%a, %b) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "stablehlo.return"(%3) : (tensor<i32>) -> ()
  }) : (tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>)
  // CHECK: return %[[GATHERED]]#0, %[[GATHERED]]#1
  return %0#0, %0#1, %2#0, %2#1 : tensor<8xi32>, tensor<8x4xi32>, tensor<i32>, tensor<i32>
}
