// What `zero-import-collectives` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-import-collectives="mesh=node:2,gpu:4 weights-of=0" --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
func.func @step(%w: tensor<128xf32>, %x: tensor<1024xf32>)
    -> (tensor<f32>, tensor<128xf32>) {
  %0 = "stablehlo.all_gather"(%w)
      <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4,
      5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<128xf32>) ->
      tensor<1024xf32>
  %1 = stablehlo.dot %0, %x : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<f32>
  return %1, %w : tensor<f32>, tensor<128xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
module attributes {zpp.machine = {mesh = "node:2,gpu:4"}} {
  func.func @step(%arg0: tensor<128xf32>, %arg1: tensor<1024xf32>)
      -> (tensor<f32>, tensor<128xf32>) {
    %0 = zero.from_local %arg0 : tensor<128xf32>
        to <1024xf32, dim 0 = ("node", "gpu") on #mesh>
    %1 = zero.all_gather %0
        along ["node", "gpu"]
        {zpp.origin = {before = [512, 3072], group = "node,gpu",
        id = 0 : i64, kind = "all_gather", model_bytes = 4096
        : i64, phase = "forward", role = "weight", rule = "R15",
        trips = 1 : i64, weight = 0 : i64}, zpp.source =
        {attributes = {}, properties = {all_gather_dim = 0 : i64,
        replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]>
        : tensor<1x8xi64>}}} : <1024xf32, dim 0 = ("node",
        "gpu") on #mesh> to <1024xf32, dim 0 = (2, 4) on #mesh>
    %2 = zero.to_local %1 : <1024xf32, dim 0 = (2, 4) on #mesh>
        to tensor<1024xf32>
    %3 = stablehlo.dot %2, %arg1 : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<f32>
    return %3, %arg0 : tensor<f32>, tensor<128xf32>
  }
}
