// What `zero-join-products` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-join-products=mesh=node:2,gpu:2 --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
module attributes {mhlo.num_partitions = 4 : i32} {
  func.func @step(%w: tensor<2x8xf32>, %m: tensor<2x8xf32>, %tokens:
      tensor<16x8xi32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
        use_global_device_ids}> : (tensor<2x8xf32>) -> tensor<8x8xf32>
    %x = stablehlo.convert %tokens : (tensor<16x8xi32>) -> tensor<16x8xf32>
    %y = stablehlo.dot %x, %0 : (tensor<16x8xf32>, tensor<8x8xf32>) ->
        tensor<16x8xf32>
    %1 = stablehlo.subtract %y, %x : tensor<16x8xf32>
    %2 = stablehlo.dot_general %x, %1, contracting_dims = [0] x [0] :
        (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
    %3 = "stablehlo.reduce_scatter"(%2) <{channel_handle =
        #stablehlo.channel_handle<handle = 2, type = 1>, replica_groups =
        dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, scatter_dimension = 0 :
        i64, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x8xf32>) -> tensor<2x8xf32>
    %4 = stablehlo.add %m, %3 : tensor<2x8xf32>
    %5 = stablehlo.transpose %4, dims = [1, 0] : (tensor<2x8xf32>) ->
        tensor<8x2xf32>
    %6 = "stablehlo.all_gather"(%5) <{all_gather_dim = 1 : i64,
        channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>,
        replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
        use_global_device_ids}> : (tensor<8x2xf32>) -> tensor<8x8xf32>
    %7 = stablehlo.dot %4, %6 : (tensor<2x8xf32>, tensor<8x8xf32>) ->
        tensor<2x8xf32>
    %8 = "stablehlo.all_gather"(%4) <{all_gather_dim = 0 : i64,
        channel_handle = #stablehlo.channel_handle<handle = 4, type = 1>,
        replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
        use_global_device_ids}> : (tensor<2x8xf32>) -> tensor<8x8xf32>
    %9 = stablehlo.dot %7, %8 : (tensor<2x8xf32>, tensor<8x8xf32>) ->
        tensor<2x8xf32>
    %10 = stablehlo.subtract %w, %9 : tensor<2x8xf32>
    return %10, %4 : tensor<2x8xf32>, tensor<2x8xf32>
  }
}

//--- output.mlir
module attributes {mhlo.num_partitions = 4 : i32} {
  func.func @step(%arg0: tensor<2x8xf32>, %arg1: tensor<2x8xf32>, %arg2:
      tensor<16x8xi32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
    %0 = "stablehlo.all_gather"(%arg0) <{all_gather_dim = 0 : i64,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
        use_global_device_ids}> : (tensor<2x8xf32>) -> tensor<8x8xf32>
    %1 = stablehlo.convert %arg2 : (tensor<16x8xi32>) -> tensor<16x8xf32>
    %2 = stablehlo.dot %1, %0 : (tensor<16x8xf32>, tensor<8x8xf32>) ->
        tensor<16x8xf32>
    %3 = stablehlo.subtract %2, %1 : tensor<16x8xf32>
    %4 = stablehlo.dot_general %1, %3, contracting_dims = [0] x [0] :
        (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
    %5 = "stablehlo.reduce_scatter"(%4) <{channel_handle =
        #stablehlo.channel_handle<handle = 2, type = 1>, replica_groups =
        dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, scatter_dimension = 0 :
        i64, use_global_device_ids}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %16 = stablehlo.add %arg3, %arg4 : tensor<f32>
      stablehlo.return %16 : tensor<f32>
    }) : (tensor<8x8xf32>) -> tensor<2x8xf32>
    %6 = stablehlo.add %arg1, %5 : tensor<2x8xf32>
    %7 = "stablehlo.all_gather"(%6) <{all_gather_dim = 0 : i64,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
        use_global_device_ids}> {zpp.sent = array<i64: 128, 256>} :
        (tensor<2x8xf32>) -> tensor<8x8xf32>
    %8 = stablehlo.transpose %7, dims = [1, 0] : (tensor<8x8xf32>) ->
        tensor<8x8xf32>
    %9 = stablehlo.dot %7, %8 : (tensor<8x8xf32>, tensor<8x8xf32>) ->
        tensor<8x8xf32>
    %10 = stablehlo.dot %9, %7 : (tensor<8x8xf32>, tensor<8x8xf32>) ->
        tensor<8x8xf32>
    %11 = stablehlo.partition_id : tensor<ui32>
    %c = stablehlo.constant dense<[0, 2, 4, 6]> : tensor<4xi64>
    %12 = stablehlo.dynamic_slice %c, %11, sizes = [1] : (tensor<4xi64>,
        tensor<ui32>) -> tensor<1xi64>
    %13 = stablehlo.reshape %12 : (tensor<1xi64>) -> tensor<i64>
    %c_0 = stablehlo.constant dense<0> : tensor<i64>
    %14 = stablehlo.dynamic_slice %10, %13, %c_0, sizes = [2, 8] :
        (tensor<8x8xf32>, tensor<i64>, tensor<i64>) -> tensor<2x8xf32>
    %15 = stablehlo.subtract %arg0, %14 : tensor<2x8xf32>
    return %15, %6 : tensor<2x8xf32>, tensor<2x8xf32>
  }
}
