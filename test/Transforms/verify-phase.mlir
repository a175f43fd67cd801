// What import leaves is as it was. What each phase leaves, and what breaks its
// contract: verify-phase-contracts.mlir.

// RUN: zpp-opt %s --zero-verify-phase=after=import -o %t.mlir
// RUN: zpp-opt %s -o - | diff %t.mlir -

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%w: tensor<2xf32>) -> tensor<16xf32> {
  %0 = zero.from_local %w : tensor<2xf32> to <16xf32, dim 0 = ("node", "gpu") on #mesh>
  %1 = zero.all_gather %0 along ["node", "gpu"] : <16xf32, dim 0 = ("node", "gpu") on #mesh> to <16xf32, dim 0 = (2, 4) on #mesh>
  %2 = zero.to_local %1 : <16xf32, dim 0 = (2, 4) on #mesh> to tensor<16xf32>
  return %2 : tensor<16xf32>
}
