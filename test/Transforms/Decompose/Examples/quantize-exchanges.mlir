// What `zero-quantize-exchanges` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-quantize-exchanges --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
module attributes {zpp.machine = {mesh = "node:2,gpu:4"}} {
  func.func @step(%x: tensor<8x4x128xf32>) -> tensor<1x32x128xf32> {
    %0 = "stablehlo.all_to_all"(%x) <{concat_dimension = 1 : i64,
        replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>,
        split_count = 8 : i64, split_dimension = 0 : i64}>
        {zpp.origin = {id = 0 : i64, role = "exchange"}}
        : (tensor<8x4x128xf32>) -> tensor<1x32x128xf32>
    return %0 : tensor<1x32x128xf32>
  }
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
module attributes {zpp.machine = {mesh = "node:2,gpu:4"}} {
  func.func @step(%arg0: tensor<8x4x128xf32>) -> tensor<1x32x128xf32> {
    %0 = tensor.empty() : tensor<8x1x4x128xf32>
    %1 = zero.all_to_all %arg0 along ["node", "gpu"] on #mesh
        slices <dim = 0, factors = [8], chunk = [0]> wire <i8, block = 128>
        into %0 {zpp.origin = {id = 0 : i64, role = "exchange"}}
        : tensor<8x4x128xf32> into tensor<8x1x4x128xf32> -> tensor<8x1x4x128xf32>
    %2 = tensor.empty() : tensor<1x32x128xf32>
    %3 = zero.unpack_slices %1 slices <dim = 1, factors = [8], chunk = [0]>
        into %2 : tensor<8x1x4x128xf32> into tensor<1x32x128xf32>
        -> tensor<1x32x128xf32>
    return %3 : tensor<1x32x128xf32>
  }
}
