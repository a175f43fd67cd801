// What `zero-regather` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-regather --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16x8xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16x8xf32, dim 0 = (2, 4) on #mesh>
func.func @step(%w: tensor<2x8xf32>, %x: tensor<16x8xf32>) ->
    tensor<2x8xf32> {
  %0 = zero.from_local %w : tensor<2x8xf32> to !primary
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {id = 0, kind
      = "all_gather", phase = "forward", role = "weight", weight = 0}} :
      !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<16x8xf32>
  %3 = stablehlo.multiply %x, %2 : tensor<16x8xf32>
  %4 = zero.from_local %3 : tensor<16x8xf32> to !whole
  %5 = zero.reduce_scatter sum %4 along ["node", "gpu"] {zpp.origin = {id =
      1, kind = "reduce_scatter", role = "gradient"}} : !whole to !primary
  %6 = stablehlo.multiply %3, %2 : tensor<16x8xf32>
  %7 = zero.from_local %6 : tensor<16x8xf32> to !whole
  %8 = zero.reduce_scatter sum %7 along ["node", "gpu"] {zpp.origin = {id =
      2, kind = "reduce_scatter", role = "gradient"}} : !whole to !primary
  %9 = zero.to_local %8 : !primary to tensor<2x8xf32>
  return %9 : tensor<2x8xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%arg0: tensor<2x8xf32>, %arg1: tensor<16x8xf32>) ->
    tensor<2x8xf32> {
  %0 = zero.from_local %arg0 : tensor<2x8xf32> to <16x8xf32, dim 0 =
      ("node", "gpu") on #mesh>
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {id = 0 : i64,
      kind = "all_gather", phase = "forward", role = "weight", weight = 0 :
      i64}} : <16x8xf32, dim 0 = ("node", "gpu") on #mesh> to <16x8xf32, dim
      0 = (2, 4) on #mesh>
  %2 = zero.to_local %1 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
      tensor<16x8xf32>
  %3 = stablehlo.multiply %arg1, %2 : tensor<16x8xf32>
  %4 = zero.from_local %3 : tensor<16x8xf32> to <16x8xf32, dim 0 = (2, 4) on
      #mesh>
  %5 = zero.reduce_scatter sum %4 along ["node", "gpu"] {zpp.origin = {id =
      1 : i64, kind = "reduce_scatter", role = "gradient"}} : <16x8xf32, dim
      0 = (2, 4) on #mesh> to <16x8xf32, dim 0 = ("node", "gpu") on #mesh>
  %6 = stablehlo.optimization_barrier %arg0 : tensor<2x8xf32>
  %7 = zero.from_local %6 : tensor<2x8xf32> to <16x8xf32, dim 0 = ("node",
      "gpu") on #mesh>
  %8 = zero.all_gather %7 along ["node", "gpu"] {zpp.origin = {before = [],
      group = "", id = 3 : i64, kind = "all_gather", model_bytes = 0 : i64,
      phase = "backward", role = "weight", trips = 0 : i64, weight = 0 :
      i64}} : <16x8xf32, dim 0 = ("node", "gpu") on #mesh> to <16x8xf32, dim
      0 = (2, 4) on #mesh>
  %9 = zero.to_local %8 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
      tensor<16x8xf32>
  %10 = stablehlo.multiply %3, %9 : tensor<16x8xf32>
  %11 = zero.from_local %10 : tensor<16x8xf32> to <16x8xf32, dim 0 = (2, 4)
      on #mesh>
  %12 = zero.reduce_scatter sum %11 along ["node", "gpu"] {zpp.origin = {id
      = 2 : i64, kind = "reduce_scatter", role = "gradient"}} : <16x8xf32,
      dim 0 = (2, 4) on #mesh> to <16x8xf32, dim 0 = ("node", "gpu") on
      #mesh>
  %13 = zero.to_local %12 : <16x8xf32, dim 0 = ("node", "gpu") on #mesh> to
      tensor<2x8xf32>
  return %13 : tensor<2x8xf32>
}
