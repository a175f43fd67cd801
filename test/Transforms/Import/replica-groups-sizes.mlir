// Groups that would take memory for more devices than there are, or time for
// more ids, are refused as they are read.

// RUN: zpp-opt %s --zero-report=mesh=node:2,gpu:4 -o /dev/null 2>&1 | FileCheck %s
// RUN: not zpp-opt %s --zeropp=mesh=node:2,gpu:33554432 -o /dev/null 2>&1 | FileCheck %s --check-prefix=MESH

// MESH: error: expected a mesh of at most 1048576 devices, but got 'node:2,gpu:33554432' of 67108864

// CHECK-DAG: its bytes are not counted: expected at most 1048576 ids in the replica groups, but got dense<0> : tensor<1048576x1048576xi64>
// CHECK-DAG: its bytes are not counted: expected at most 1048576 ids in the replica groups, but got dense<> : tensor<1099511627776x0xi64>
// CHECK-DAG: its bytes are not counted: expected a mesh 'huge', but the module has none

sdy.mesh @huge = <["node"=2, "gpu"=33554432]>
func.func @step(%w: tensor<4x64xf32>, %x: tensor<16x32xf32>) -> (tensor<16x64xf32>, tensor<16x64xf32>, tensor<16x64xf32>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1048576x1048576xi64>}> : (tensor<4x64xf32>) -> tensor<32x64xf32>
  %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<> : tensor<1099511627776x0xi64>}> : (tensor<4x64xf32>) -> tensor<32x64xf32>
  %2 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @huge, axes = [#stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x64xf32>) -> tensor<32x64xf32>
  %3 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0] : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
  %4 = stablehlo.dot_general %x, %1, contracting_dims = [1] x [0] : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
  %5 = stablehlo.dot_general %x, %2, contracting_dims = [1] x [0] : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
  return %3, %4, %5 : tensor<16x64xf32>, tensor<16x64xf32>, tensor<16x64xf32>
}
