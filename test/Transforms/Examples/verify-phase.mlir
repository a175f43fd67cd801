// What `zero-verify-phase` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-verify-phase=after=weights --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16x8xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16x8xf32, dim 0 = (2, 4) on #mesh>
func.func @step(%w: tensor<2x8xf32>) -> tensor<16x8xf32> {
  %0 = zero.from_local %w : tensor<2x8xf32> to !primary
  %1 = zero.all_gather %0 along ["node", "gpu"] : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<16x8xf32>
  return %2 : tensor<16x8xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%arg0: tensor<2x8xf32>) -> tensor<16x8xf32> {
  %0 = zero.from_local %arg0 : tensor<2x8xf32> to <16x8xf32, dim 0 =
      ("node", "gpu") on #mesh>
  %1 = zero.all_gather %0 along ["node", "gpu"] : <16x8xf32, dim 0 =
      ("node", "gpu") on #mesh> to <16x8xf32, dim 0 = (2, 4) on #mesh>
  %2 = zero.to_local %1 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
      tensor<16x8xf32>
  return %2 : tensor<16x8xf32>
}
