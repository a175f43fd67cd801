// Two axes of one name, which nobody has verified, are not matched by name: the
// tiers take the devices in their order.

// RUN: zpp-opt %s --zero-import-collectives="mesh=node:2,gpu:4" | FileCheck %s

// CHECK: zpp.machine = {mesh = "node:2,gpu:4"}
// CHECK: func @step
module {
  sdy.mesh @mesh = <["gpu"=2, "gpu"=4]>
  func.func @step(%w: tensor<4xf32>) -> tensor<32xf32> {
    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>,
        use_global_device_ids}> : (tensor<4xf32>) -> tensor<32xf32>
    return %0 : tensor<32xf32>
  }
}
