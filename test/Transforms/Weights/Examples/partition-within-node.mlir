// What `zero-partition-within-node` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-partition-within-node --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%w: tensor<2x8xf32>, %x: tensor<4xf32>) ->
    (tensor<16x8xf32>, tensor<16x8xf32>) {
  %0 = zero.from_local %w : tensor<2x8xf32> to <16x8xf32, dim 0 = ("node",
      "gpu") on #mesh>
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {id = 1}} :
      <16x8xf32, dim 0 = ("node", "gpu") on #mesh> to <16x8xf32, dim 0 = (2,
      4) on #mesh>
  %2 = zero.to_local %1 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
      tensor<16x8xf32>
  %3:2 = stablehlo.optimization_barrier %x, %w : tensor<4xf32>, tensor<2x8xf32>
  %4 = zero.from_local %3#1 : tensor<2x8xf32> to <16x8xf32, dim 0 = ("node",
      "gpu") on #mesh>
  %5 = zero.all_gather %4 along ["node", "gpu"] {zpp.origin = {id = 2}} :
      <16x8xf32, dim 0 = ("node", "gpu") on #mesh> to <16x8xf32, dim 0 = (2,
      4) on #mesh>
  %6 = zero.to_local %5 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
      tensor<16x8xf32>
  return %2, %6 : tensor<16x8xf32>, tensor<16x8xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%arg0: tensor<2x8xf32>, %arg1: tensor<4xf32>) ->
    (tensor<16x8xf32>, tensor<16x8xf32>) {
  %0 = zero.from_local %arg0 : tensor<2x8xf32> to <16x8xf32, dim 0 =
      ("node", "gpu") on #mesh>
  %1 = zero.all_gather %0 along ["node"] {zpp.keep, zpp.origin = {gets =
      ["secondary"], id = 1 : i64}} : <16x8xf32, dim 0 = ("node", "gpu") on
      #mesh> to <16x8xf32, dim 0 = (2, "gpu") on #mesh>
  %2 = zero.all_gather %1 along ["gpu"] {zpp.origin = {id = 1 : i64}} :
      <16x8xf32, dim 0 = (2, "gpu") on #mesh> to <16x8xf32, dim 0 = (2, 4)
      on #mesh>
  %3 = zero.to_local %1 : <16x8xf32, dim 0 = (2, "gpu") on #mesh> to
      tensor<4x8xf32>
  %4 = zero.to_local %2 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
      tensor<16x8xf32>
  %5 = stablehlo.optimization_barrier %3 : tensor<4x8xf32>
  %6 = zero.from_local %5 : tensor<4x8xf32> to <16x8xf32, dim 0 = (2, "gpu")
      on #mesh>
  %7 = zero.all_gather %6 along ["gpu"] {zpp.origin = {id = 2 : i64}} :
      <16x8xf32, dim 0 = (2, "gpu") on #mesh> to <16x8xf32, dim 0 = (2, 4)
      on #mesh>
  %8 = zero.to_local %7 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
      tensor<16x8xf32>
  return %4, %8 : tensor<16x8xf32>, tensor<16x8xf32>
}
