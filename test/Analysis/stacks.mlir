// RUN: zpp-opt %s --split-input-file --zero-import-collectives | FileCheck %s

// The rows of two matrices in one dim. A device has 64 rows of one matrix.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
// CHECK-LABEL: func @rows(
func.func @rows(%p: tensor<64x16xf32>, %x: tensor<16x256xi32>) -> tensor<64x16xf32> {
  // CHECK: zero.all_gather
  // CHECK-NOT: exact
  // CHECK-SAME: weight
  %flat = "stablehlo.all_gather"(%p) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<64x16xf32>) -> tensor<512x16xf32>
  %whole = "stablehlo.reshape"(%flat) : (tensor<512x16xf32>) -> tensor<2x256x16xf32>
  %t = "stablehlo.convert"(%x) : (tensor<16x256xi32>) -> tensor<16x256xf32>
  %s0 = "stablehlo.slice"(%whole) <{start_indices = array<i64: 0, 0, 0>, limit_indices = array<i64: 1, 256, 16>, strides = array<i64: 1, 1, 1>}> : (tensor<2x256x16xf32>) -> tensor<1x256x16xf32>
  %m0 = "stablehlo.reshape"(%s0) : (tensor<1x256x16xf32>) -> tensor<256x16xf32>
  %y0 = "stablehlo.dot"(%t, %m0) : (tensor<16x256xf32>, tensor<256x16xf32>) -> tensor<16x16xf32>
  %dy0 = "stablehlo.dot_general"(%t, %y0) {dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>} : (tensor<16x256xf32>, tensor<16x16xf32>) -> tensor<256x16xf32>
  %ra0 = "stablehlo.reshape"(%dy0) : (tensor<256x16xf32>) -> tensor<1x256x16xf32>
  %s1 = "stablehlo.slice"(%whole) <{start_indices = array<i64: 1, 0, 0>, limit_indices = array<i64: 2, 256, 16>, strides = array<i64: 1, 1, 1>}> : (tensor<2x256x16xf32>) -> tensor<1x256x16xf32>
  %m1 = "stablehlo.reshape"(%s1) : (tensor<1x256x16xf32>) -> tensor<256x16xf32>
  %y1 = "stablehlo.dot"(%t, %m1) : (tensor<16x256xf32>, tensor<256x16xf32>) -> tensor<16x16xf32>
  %dy1 = "stablehlo.dot_general"(%t, %y1) {dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>} : (tensor<16x256xf32>, tensor<16x16xf32>) -> tensor<256x16xf32>
  %ra1 = "stablehlo.reshape"(%dy1) : (tensor<256x16xf32>) -> tensor<1x256x16xf32>
  %g3 = "stablehlo.concatenate"(%ra0, %ra1) <{dimension = 0 : i64}> : (tensor<1x256x16xf32>, tensor<1x256x16xf32>) -> tensor<2x256x16xf32>
  %g = "stablehlo.reshape"(%g3) : (tensor<2x256x16xf32>) -> tensor<512x16xf32>
  // CHECK: zero.reduce_scatter
  // CHECK-NOT: exact
  // CHECK-SAME: gradient
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %add = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%add) : (tensor<f32>) -> ()
  }) : (tensor<512x16xf32>) -> tensor<64x16xf32>
  %new = "stablehlo.subtract"(%p, %mine) : (tensor<64x16xf32>, tensor<64x16xf32>) -> tensor<64x16xf32>
  return %new : tensor<64x16xf32>
}
