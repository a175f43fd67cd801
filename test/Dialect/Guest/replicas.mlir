// RUN: zpp-opt %s --split-input-file --remarks-filter=none \
// RUN:   --zeropp="mesh=node:2,gpu:4 weights=i8 gradients=i8:i4" | FileCheck %s
// RUN: zpp-opt %s --split-input-file -o /dev/null --zeropp=mesh=node:2,gpu:4 \
// RUN:   2>&1 | FileCheck %s --check-prefix=REMARK

// A module of replicas, as jax.pmap of old releases and PyTorch/XLA make it.
// Ids of its groups are those of replicas, which is what a collective without
// a channel says.

// CHECK-LABEL: func.func @main
module @replicas attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 8 : i32} {
  func.func @main(%w: tensor<32x64xf32>, %x: tensor<4x256xf32>) -> tensor<32x64xf32> {
    // CHECK-NOT: channel_handle
    // CHECK-NOT: use_global_device_ids
    // CHECK: "stablehlo.all_gather"({{.*}}) <{all_gather_dim = 0 : i64, replica_groups = dense<{{\[\[}}0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>}> {{.*}}zpp.keep
    // CHECK: "stablehlo.all_gather"({{.*}}) <{all_gather_dim = 0 : i64, replica_groups = dense<{{\[\[}}0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>}>
    // CHECK: "stablehlo.all_to_all"({{.*}}) <{concat_dimension = 0 : i64, replica_groups = dense<{{\[\[}}0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, split_count = 4 : i64, split_dimension = 0 : i64}>
    // CHECK: "stablehlo.all_to_all"({{.*}}) <{concat_dimension = 0 : i64, replica_groups = dense<{{\[\[}}0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>, split_count = 2 : i64, split_dimension = 0 : i64}>
    // CHECK-NOT: channel_handle
    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<32x64xf32>) -> tensor<256x64xf32>
    %1 = "stablehlo.dot_general"(%x, %0) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<4x256xf32>, tensor<256x64xf32>) -> tensor<4x64xf32>
    %2:2 = "stablehlo.optimization_barrier"(%w, %1) : (tensor<32x64xf32>, tensor<4x64xf32>) -> (tensor<32x64xf32>, tensor<4x64xf32>)
    %3 = "stablehlo.all_gather"(%2#0) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<32x64xf32>) -> tensor<256x64xf32>
    %4 = "stablehlo.dot_general"(%2#1, %3) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>}> : (tensor<4x64xf32>, tensor<256x64xf32>) -> tensor<4x256xf32>
    %5 = "stablehlo.dot_general"(%4, %2#1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>}> : (tensor<4x256xf32>, tensor<4x64xf32>) -> tensor<256x64xf32>
    %6 = "stablehlo.reduce_scatter"(%5) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, scatter_dimension = 0 : i64}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %8 = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%8) : (tensor<f32>) -> ()
    }) : (tensor<256x64xf32>) -> tensor<32x64xf32>
    %7 = "stablehlo.subtract"(%w, %6) : (tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<32x64xf32>
    return %7 : tensor<32x64xf32>
  }
}

// -----

// An all-to-all over replicas and partitions has no form in StableHLO. A gather
// has: ids of devices.

// CHECK-LABEL: module @both
// REMARK: stablehlo.reduce_scatter is left alone: the module has 2 replicas of 4 partitions each, over which StableHLO has no all-to-all
module @both attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 2 : i32} {
  func.func @main(%w: tensor<32x64xf32>, %x: tensor<4x256xf32>) -> tensor<32x64xf32> {
    // CHECK: "stablehlo.all_gather"({{.*}}) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<{{\[\[}}0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}>
    // CHECK: "stablehlo.reduce_scatter"
    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<32x64xf32>) -> tensor<256x64xf32>
    %1 = "stablehlo.dot_general"(%x, %0) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<4x256xf32>, tensor<256x64xf32>) -> tensor<4x64xf32>
    %2 = "stablehlo.dot_general"(%x, %1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>}> : (tensor<4x256xf32>, tensor<4x64xf32>) -> tensor<256x64xf32>
    %3 = "stablehlo.reduce_scatter"(%2) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %5 = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%5) : (tensor<f32>) -> ()
    }) : (tensor<256x64xf32>) -> tensor<32x64xf32>
    %4 = "stablehlo.subtract"(%w, %3) : (tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<32x64xf32>
    return %4 : tensor<32x64xf32>
  }
}
