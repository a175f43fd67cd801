// What `zero-assign-owners` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-assign-owners --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2>
module attributes {mhlo.num_partitions = 2 : i32} {
func.func @step(%m: tensor<2x32x64xf32>) -> tensor<2x32x64xf32> {
  %0 = zero.from_local %m : tensor<2x32x64xf32>
      to <2x64x64xf32, dim 1 = ("node") on #mesh>
  %1 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 0, role = "moment"}}
      : <2x64x64xf32, dim 1 = ("node") on #mesh>
      to <2x64x64xf32, dim 1 = (2) on #mesh>
  %2 = zero.to_local %1 : <2x64x64xf32, dim 1 = (2) on #mesh>
      to tensor<2x64x64xf32>
  %3 = stablehlo.dot_general %2, %2, batching_dims = [0] x [0], contracting_dims = [2] x [2]
      : (tensor<2x64x64xf32>, tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %zero = stablehlo.constant dense<0> : tensor<ui32>
  %size = stablehlo.constant dense<32> : tensor<ui32>
  %id = stablehlo.partition_id : tensor<ui32>
  %at = stablehlo.multiply %id, %size : tensor<ui32>
  %4 = stablehlo.dynamic_slice %3, %zero, %at, %zero, sizes = [2, 32, 64]
      : (tensor<2x64x64xf32>, tensor<ui32>, tensor<ui32>, tensor<ui32>) -> tensor<2x32x64xf32>
  return %4 : tensor<2x32x64xf32>
}
}

//--- output.mlir
module attributes {mhlo.num_partitions = 2 : i32} {
  func.func @step(%arg0: tensor<2x32x64xf32>) -> tensor<2x32x64xf32> {
    %0 = "stablehlo.all_to_all"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, concat_dimension = 1 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, split_count = 2 : i64, split_dimension = 0 : i64}> {zpp.origin = {id = 0 : i64, role = "moment"}} : (tensor<2x32x64xf32>) -> tensor<1x64x64xf32>
    %1 = stablehlo.dot_general %0, %0, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<1x64x64xf32>, tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
    %2 = "stablehlo.all_to_all"(%1) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, concat_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, split_count = 2 : i64, split_dimension = 1 : i64}> {zpp.origin = {id = 0 : i64, role = "moment"}} : (tensor<1x64x64xf32>) -> tensor<2x32x64xf32>
    return %2 : tensor<2x32x64xf32>
  }
}
