// RUN: zpp-opt %s --zero-import-collectives | FileCheck %s
// UNSUPPORTED: registered-ops

// Ops that nothing has verified, beside a stack.

// CHECK: zero.all_gather {{.*}} role = "weight"
// CHECK: zero.reduce_scatter {{.*}} role = "gradient"

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()
func.func @malformed(%w: tensor<2x2x8xf32>, %x: tensor<16x16xi32>) -> tensor<2x2x8xf32> {
  %whole = "stablehlo.all_gather"(%w) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x2x8xf32>) -> tensor<2x16x8xf32>
  %a = "stablehlo.slice"(%whole) <{start_indices = array<i64: 0, 0, 0>, limit_indices = array<i64: 1, 16, 8>, strides = array<i64: 1, 1, 1>}> : (tensor<2x16x8xf32>) -> tensor<1x16x8xf32>
  %b = "stablehlo.slice"(%whole) <{start_indices = array<i64: 1, 0, 0>, limit_indices = array<i64: 2, 16, 8>, strides = array<i64: 1, 1, 1>}> : (tensor<2x16x8xf32>) -> tensor<1x16x8xf32>
  %first = "stablehlo.reshape"(%a) : (tensor<1x16x8xf32>) -> tensor<16x8xf32>
  %second = "stablehlo.reshape"(%b) : (tensor<1x16x8xf32>) -> tensor<16x8xf32>
  %t = "stablehlo.convert"(%x) : (tensor<16x16xi32>) -> tensor<16x16xf32>
  %y = "stablehlo.dot"(%t, %first) : (tensor<16x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %z = "stablehlo.dot"(%t, %second) : (tensor<16x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %dy = "stablehlo.dot"(%t, %y) : (tensor<16x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %dz = "stablehlo.dot"(%t, %z) : (tensor<16x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %ra = "stablehlo.reshape"(%dy) : (tensor<16x8xf32>) -> tensor<1x16x8xf32>
  %rb = "stablehlo.reshape"(%dz) : (tensor<16x8xf32>) -> tensor<1x16x8xf32>
  %g = "stablehlo.concatenate"(%ra, %rb) <{dimension = 0 : i64}> : (tensor<1x16x8xf32>, tensor<1x16x8xf32>) -> tensor<2x16x8xf32>
  %mine = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 1 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %add = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%add) : (tensor<f32>) -> ()
  }) : (tensor<2x16x8xf32>) -> tensor<2x2x8xf32>
  %bad0 = "stablehlo.transpose"(%whole) {permutation = array<i64: 0, 1>} : (tensor<2x16x8xf32>) -> tensor<2x16x8xf32>
  %bad1 = "stablehlo.transpose"(%whole) {permutation = array<i64: 0, 1, 99999999>} : (tensor<2x16x8xf32>) -> tensor<2x16x8xf32>
  %bad2 = "stablehlo.broadcast_in_dim"(%whole) {broadcast_dimensions = array<i64: 0, 1, 99999999999>} : (tensor<2x16x8xf32>) -> tensor<2x16x8xf32>
  %bad3 = "stablehlo.broadcast_in_dim"(%whole) {broadcast_dimensions = array<i64: 0, 1, 2>} : (tensor<2x16x8xf32>) -> tensor<?x16x8xf32>
  %bad4 = "stablehlo.dot_general"(%whole, %whole) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [99999999999], rhs_batching_dimensions = [99999999999], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>} : (tensor<2x16x8xf32>, tensor<2x16x8xf32>) -> tensor<2x8x8xf32>
  %bad5 = "stablehlo.dot_general"(%whole, %whole) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [7], rhs_batching_dimensions = [7], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>} : (tensor<2x16x8xf32>, tensor<2x16x8xf32>) -> tensor<2x8x8xf32>
  %bad6 = "stablehlo.subtract"() : () -> tensor<f32>
  %new = "stablehlo.subtract"(%w, %mine) : (tensor<2x2x8xf32>, tensor<2x2x8xf32>) -> tensor<2x2x8xf32>
  return %new : tensor<2x2x8xf32>
}
