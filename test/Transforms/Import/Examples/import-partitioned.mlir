// What `zero-import-partitioned` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-import-partitioned --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
module attributes {mhlo.num_partitions = 4 : i32} {
  func.func @step(%x: tensor<8x12xbf16>) -> tensor<8x3xbf16> {
    %0 = "stablehlo.all_reduce"(%x) <{channel_handle =
        #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups =
        dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %sum = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %sum : tensor<bf16>
    }) : (tensor<8x12xbf16>) -> tensor<8x12xbf16>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %table = stablehlo.constant dense<[0, 3, 6, 9]> : tensor<4xi32>
    %id = stablehlo.partition_id : tensor<ui32>
    %entry = stablehlo.dynamic_slice %table, %id, sizes = [1] : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset = stablehlo.reshape %entry : (tensor<1xi32>) -> tensor<i32>
    %1 = stablehlo.dynamic_slice %0, %zero, %offset, sizes = [8, 3] : (tensor<8x12xbf16>, tensor<i32>, tensor<i32>) -> tensor<8x3xbf16>
    return %1 : tensor<8x3xbf16>
  }
}

//--- output.mlir
module attributes {mhlo.num_partitions = 4 : i32} {
  func.func @step(%arg0: tensor<8x12xbf16>) -> tensor<8x3xbf16> {
    %0 = "stablehlo.reduce_scatter"(%arg0) <{channel_handle =
        #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups =
        dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, scatter_dimension = 1 :
        i64, use_global_device_ids}> ({
    ^bb0(%arg1: tensor<bf16>, %arg2: tensor<bf16>):
      %1 = stablehlo.add %arg1, %arg2 : tensor<bf16>
      stablehlo.return %1 : tensor<bf16>
    }) : (tensor<8x12xbf16>) -> tensor<8x3xbf16>
    return %0 : tensor<8x3xbf16>
  }
}
