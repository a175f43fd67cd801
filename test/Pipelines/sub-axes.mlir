// RUN: zpp-opt %s --zeropp="weights=none gradients=i8:i4" --remarks-filter=none \
// RUN:   | FileCheck %s
// RUN: zpp-opt %s --zeropp="mesh=rack:4,gpu:2 weights=none gradients=none" \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=OTHER

// Weights sharded over a part of an axis: "fsdp":(1)2 is its slower half. Devices
// 0, 2, 4 and 6 hold one weight; 0 and 4 are in different nodes.

module attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["node"=2, "fsdp"=4]>
  // CHECK-LABEL: func.func @main
  // OTHER-LABEL: func.func @main
  func.func @main(%w: tensor<64x64xf32>, %x: tensor<4x256xf32>) -> tensor<64x64xf32> {
    // The secondary partition stays within the slower half of "fsdp".
    // CHECK: "stablehlo.all_gather"({{.*}}axes = [#stablehlo.axis_ref<name = "node">]>{{.*}}zpp.keep
    // CHECK: "stablehlo.all_gather"({{.*}}axes = [#stablehlo.axis_ref<name = "fsdp", sub_axis_info = (1)2>]>
    // CHECK: stablehlo.optimization_barrier
    // CHECK: "stablehlo.all_gather"({{.*}}axes = [#stablehlo.axis_ref<name = "fsdp", sub_axis_info = (1)2>]>
    // CHECK: "stablehlo.all_to_all"({{.*}}axes = [#stablehlo.axis_ref<name = "fsdp", sub_axis_info = (1)2>]>
    // CHECK: "stablehlo.all_to_all"({{.*}}axes = [#stablehlo.axis_ref<name = "node">]>
    // On a mesh with other tiers the same devices are all of its slower axis.
    // OTHER-NOT: zpp.keep
    // OTHER: "stablehlo.all_gather"({{.*}}mesh_axes{{.*}}zpp.reason = "its group lies within the secondary group of 4
    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "fsdp", sub_axis_info = (1)2>]>, use_global_device_ids}> : (tensor<64x64xf32>) -> tensor<256x64xf32>
    %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0] : (tensor<4x256xf32>, tensor<256x64xf32>) -> tensor<4x64xf32>
    %2:2 = stablehlo.optimization_barrier %w, %1 : tensor<64x64xf32>, tensor<4x64xf32>
    %3 = "stablehlo.all_gather"(%2#0) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "fsdp", sub_axis_info = (1)2>]>, use_global_device_ids}> : (tensor<64x64xf32>) -> tensor<256x64xf32>
    %4 = stablehlo.dot_general %2#1, %3, contracting_dims = [1] x [1] : (tensor<4x64xf32>, tensor<256x64xf32>) -> tensor<4x256xf32>
    %5 = stablehlo.dot_general %4, %2#1, contracting_dims = [0] x [0] : (tensor<4x256xf32>, tensor<4x64xf32>) -> tensor<256x64xf32>
    %6 = "stablehlo.reduce_scatter"(%5) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "fsdp", sub_axis_info = (1)2>]>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %8 = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %8 : tensor<f32>
    }) : (tensor<256x64xf32>) -> tensor<64x64xf32>
    %7 = stablehlo.subtract %w, %6 : tensor<64x64xf32>
    return %7 : tensor<64x64xf32>
  }
}
