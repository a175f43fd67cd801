// What `zero-send-updates` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-send-updates=block=32 --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
module attributes {mhlo.num_partitions = 4 : i32, zpp.machine = {mesh = "node:2,gpu:2"}}
    {
  sdy.mesh @mesh = <["node"=2, "gpu"=2]>
  func.func public @main(%arg0: tensor<64x8xf32>, %arg1: tensor<64x8xf32>)
      -> tensor<64x8xf32> {
    %0 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{}, {} ]>, <@mesh, [{"node", "gpu"}, {} ]>] out_shardings=[<@mesh, [{}, {} ]>] manual_axes={"node", "gpu"} (%arg2: tensor<64x8xf32>, %arg3: tensor<16x8xf32>) {
      %1 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.constant dense<[0, 16, 32, 48]> : tensor<4xi32>
      %3 = stablehlo.partition_id : tensor<ui32>
      %4 = stablehlo.dynamic_slice %2, %3, sizes = [1] : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
      %5 = stablehlo.reshape %4 : (tensor<1xi32>) -> tensor<i32>
      %6 = stablehlo.dynamic_slice %arg2, %5, %1, sizes = [16, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
      %7 = stablehlo.subtract %6, %arg3 : tensor<16x8xf32>
      %8 = "stablehlo.all_gather"(%7) <{all_gather_dim = 0 : i64,
          channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>,
          replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
          use_global_device_ids}> {zpp.origin = {before = [512, 1024], group
          = "node,gpu", id = 0 : i64, kind = "all_gather", model_bytes = 0 :
          i64, phase = "forward", role = "other", rule = "R3", trips = 1 :
          i64, weight = -1 : i64}, zpp.updated} : (tensor<16x8xf32>) ->
          tensor<64x8xf32>
      sdy.return %8 : tensor<64x8xf32>
    } : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
    return %0 : tensor<64x8xf32>
  }
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 2>
module attributes {mhlo.num_partitions = 4 : i32, zpp.machine = {mesh = "node:2,gpu:2"}}
    {
  sdy.mesh @mesh = <["node"=2, "gpu"=2]>
  func.func public @main(%arg0: tensor<64x8xf32>, %arg1: tensor<64x8xf32>)
      -> tensor<64x8xf32> {
    %0 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{}, {} ]>, <@mesh, [{"node", "gpu"}, {} ]>] out_shardings=[<@mesh, [{}, {} ]>] manual_axes={"node", "gpu"} (%arg2: tensor<64x8xf32>, %arg3: tensor<16x8xf32>) {
      %1 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.constant dense<[0, 16, 32, 48]> : tensor<4xi32>
      %3 = stablehlo.partition_id : tensor<ui32>
      %4 = stablehlo.dynamic_slice %2, %3, sizes = [1] : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
      %5 = stablehlo.reshape %4 : (tensor<1xi32>) -> tensor<i32>
      %6 = stablehlo.dynamic_slice %arg2, %5, %1, sizes = [16, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
      %7 = stablehlo.subtract %6, %arg3 : tensor<16x8xf32>
      %8 = zero.from_local %7 : tensor<16x8xf32> to <64x8xf32, dim 0 =
          ("node", "gpu") on #mesh>
      %9 = zero.from_local %6 : tensor<16x8xf32> to <64x8xf32, dim 0 =
          ("node", "gpu") on #mesh>
      %10 = zero.encode %8 minus %9 : <64x8xf32, dim 0 = ("node", "gpu") on
          #mesh> to <64x8xf32, dim 0 = ("node", "gpu") on #mesh,
          #zero.quant<i8, block = 32>>
      %11 = zero.all_gather %10 along ["node"] {zpp.origin = {before = [512,
          1024], group = "node,gpu", id = 0 : i64, kind = "all_gather",
          model_bytes = 0 : i64, phase = "forward", role = "update", rule =
          "R3", trips = 1 : i64, weight = -1 : i64}} : <64x8xf32, dim 0 =
          ("node", "gpu") on #mesh, #zero.quant<i8, block = 32>> to
          <64x8xf32, dim 0 = (2, "gpu") on #mesh, #zero.quant<i8, block =
          32>>
      %12 = zero.all_gather %11 along ["gpu"] {zpp.origin = {before = [512,
          1024], group = "node,gpu", id = 0 : i64, kind = "all_gather",
          model_bytes = 0 : i64, phase = "forward", role = "update", rule =
          "R3", trips = 1 : i64, weight = -1 : i64}} : <64x8xf32, dim 0 =
          (2, "gpu") on #mesh, #zero.quant<i8, block = 32>> to <64x8xf32,
          dim 0 = (2, 2) on #mesh, #zero.quant<i8, block = 32>>
      %13 = zero.from_local %arg2 : tensor<64x8xf32> to <64x8xf32, dim 0 =
          (2, 2) on #mesh>
      %14 = zero.decode %12 plus %13 : <64x8xf32, dim 0 = (2, 2) on #mesh,
          #zero.quant<i8, block = 32>> to <64x8xf32, dim 0 = (2, 2) on
          #mesh>
      %15 = zero.to_local %14 : <64x8xf32, dim 0 = (2, 2) on #mesh> to
          tensor<64x8xf32>
      sdy.return %15 : tensor<64x8xf32>
    } : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
    return %0 : tensor<64x8xf32>
  }
}
