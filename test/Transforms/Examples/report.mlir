// What `zero-report` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-report=mesh=node:2,gpu:4 --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
module attributes {mhlo.num_partitions = 8 : i32} {
  func.func @step(%w: tensor<2x8xf32>) -> tensor<16x8xf32> {
    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> :
        tensor<1x8xi64>, use_global_device_ids}> : (tensor<2x8xf32>) ->
        tensor<16x8xf32>
    return %0 : tensor<16x8xf32>
  }
}

//--- output.mlir
module attributes {mhlo.num_partitions = 8 : i32} {
  func.func @step(%arg0: tensor<2x8xf32>) -> tensor<16x8xf32> {
    %0 = "stablehlo.all_gather"(%arg0) <{all_gather_dim = 0 : i64,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> :
        tensor<1x8xi64>, use_global_device_ids}> : (tensor<2x8xf32>) ->
        tensor<16x8xf32>
    return %0 : tensor<16x8xf32>
  }
}
