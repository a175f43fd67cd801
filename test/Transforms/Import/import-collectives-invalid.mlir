// UNSUPPORTED: registered-ops
// RUN: zpp-opt %s --zero-import-collectives="weights-of=all gradients-of=all" --split-input-file \
// RUN:   --verify-diagnostics

//===----------------------------------------------------------------------===//
// Meshes
//===----------------------------------------------------------------------===//

// expected-error@+1 {{expected a mesh, but the module has none; name the tiers from slowest to fastest with mesh=node:N,gpu:M}}
module {
}

// -----

// expected-error@+1 {{expected a mesh of at least 2 tiers, but got 'data:8'; name the tiers from slowest to fastest with mesh=node:N,gpu:M}}
sdy.mesh @mesh = <["data"=8]>

// -----

// expected-error@+1 {{in the module's mesh: expected an axis name, but got 'my node' in 'my node:2'; name the tiers}}
sdy.mesh @mesh = <["my node"=2, "gpu"=4]>

// -----

// A mesh of no devices, or of other devices than it has, is none.
// expected-error@+1 {{expected a mesh, but the module has none}}
module {
  sdy.mesh @mesh = <["node"=0, "gpu"=4]>
  sdy.mesh @mesh_0 = <["node"=2, "gpu"=2], device_ids=[0, 1]>
  sdy.mesh @one = <[], device_ids=[3]>
}

// -----

// expected-error@+1 {{in mesh 'node:2,gpu': expected NAME:SIZE, but got 'gpu'}}
module attributes {zpp.machine = {mesh = "node:2,gpu"}} {
}

// -----

// expected-error@+1 {{expected a mesh of 8 devices, on which the module runs, but got 'node:2,gpu:2' of 4}}
module attributes {zpp.machine = {mesh = "node:2,gpu:2"}} {
  sdy.mesh @mesh = <["node"=2, "gpu"=4]>
}

// -----

// expected-error@+1 {{expected a mesh of 8 devices, on which the module runs, but got 'node:2,gpu:2' of 4}}
module attributes {zpp.machine = {mesh = "node:2,gpu:2"}, mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 2 : i32} {
}

// -----

//===----------------------------------------------------------------------===//
// Groups of weights and gradients
//===----------------------------------------------------------------------===//

// A scalar has no dim that could lead to a weight.
sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @scalar(%w: tensor<4x64xbf16>) -> (tensor<f32>, tensor<4x64xf32>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x64xbf16>) -> tensor<32x64xbf16>
  %1 = stablehlo.dot %0, %0 : (tensor<32x64xbf16>, tensor<32x64xbf16>) -> tensor<f32>
  // expected-error@+1 {{expected the parts 'tensor<4x64xf32>' of 8 devices to make 'tensor<32x64xf32>', but got 'tensor<f32>'}}
  %2 = "stablehlo.reduce_scatter"(%1) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<f32>) -> tensor<4x64xf32>
  return %1, %2 : tensor<f32>, tensor<4x64xf32>
}

// -----

// Of axes that overlap there are no groups, and a number that 64 bits do not
// hold is no part of an axis.
sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @overlapping(%w: tensor<4x8xf32>) {
  // expected-error@+1 {{in the groups of a weight collective: expected separate parts of axis 'node', but got "node":(1)2 and "node":(1)2}}
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "node">]>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  return
}

// -----

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @large_part(%w: tensor<4x8xf32>) {
  // expected-error@+1 {{in the groups of a weight collective: expected a part of axis 'gpu:4', but got "gpu":(1)0}}
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "gpu", sub_axis_info = (36893488147419103232)4>]>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  return
}

// -----

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @order(%w: tensor<4x8xf32>) {
  // expected-error@+1 {{in the groups of a weight collective: expected groups along axes of mesh 'node:2,gpu:4', but got [0, 3, 2, 1]}}
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 3, 2, 1], [4, 5, 6, 7]]> : tensor<2x4xi64>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  return
}

// -----

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @no_product(%w: tensor<4x8xf32>) {
  // expected-error@+1 {{expected groups along axes of mesh 'node:2,gpu:4', but got [0, 1, 2, 4]}}
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 4], [3, 5, 6, 7]]> : tensor<2x4xi64>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  return
}

// -----

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @twice(%w: tensor<4x8xf32>) {
  // expected-error@+1 {{expected every device in one group, but got 0 twice}}
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<2x4xi64>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  return
}

// -----

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @uncovered(%w: tensor<4x8xf32>) {
  // expected-error@+1 {{expected groups that cover 8 devices, but got 4}}
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  // expected-error@+1 {{expected groups that cover 8 devices, but got 0}}
  %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<> : tensor<0x0xi64>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  // expected-error@+1 {{expected groups of one size, but got [0, 1, 2, 3, 4, 5] and [6, 7]}}
  %2 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5], [6, 7, -1, -1, -1, -1]]> : tensor<2x6xi64>}> : (tensor<4x8xf32>) -> tensor<24x8xf32>
  // expected-error@+1 {{expected devices in [0, 8), but got 9}}
  %3 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 9]]> : tensor<1x2xi64>}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
  return
}

// -----

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @unread(%w: tensor<4x8xf32>) {
  // expected-error@+1 {{expected replica groups of rank 2, but got dense<[0, 1]>}}
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[0, 1]> : tensor<2xi64>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  // expected-error@+1 {{in the groups of a weight collective: it has no replica groups}}
  %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  // expected-error@+1 {{expected replica groups as a dense list or as mesh axes, but got "all"}}
  %2 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = "all"}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  // expected-error@+1 {{expected a mesh 'other', but the module has none}}
  %3 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @other, axes = [#stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  // expected-error@+1 {{expected an axis of mesh 'node:2,gpu:4', but got 'tpu'}}
  %4 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "tpu">]>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  // expected-error@+1 {{expected a part of axis 'gpu:4', but got "gpu":(3)2}}
  %5 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "gpu", sub_axis_info = (3)2>]>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  return
}

// -----

module attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32, zpp.machine = {mesh = "node:2,gpu:4"}} {
  func.func @replicas(%w: tensor<4x8xf32>) {
    // expected-error@+1 {{expected ids of 1 replicas, as it has no use_global_device_ids, but got 1}}
    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
    return
  }
}

// -----

//===----------------------------------------------------------------------===//
// Ops that do not fit: nothing has verified them
//===----------------------------------------------------------------------===//

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @shapes(%w: tensor<4x8xf32>) {
  // expected-error@+1 {{expected the parts 'tensor<4x8xf32>' of 8 devices to make 'tensor<32x8xf32>', but got 'tensor<16x8xf32>'}}
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  // expected-error@+1 {{expected the parts 'tensor<4x8xf32>' of 8 devices to make 'tensor<32x8xf32>', but got 'tensor<32x8xbf16>'}}
  %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xbf16>
  // expected-error@+1 {{expected a dim of 'tensor<4x8xf32>', but got 2}}
  %2 = "stablehlo.all_gather"(%w) <{all_gather_dim = 2 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-error@+1 {{expected a dim of 'tensor<4x8xf32>', but got -1}}
  %3 = "stablehlo.all_gather"(%w) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  return
}

// -----

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @indivisible(%w: tensor<2xf32>, %x: tensor<f32>) {
  %g = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<18xf32>
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<2xf32>) -> tensor<16xf32>
  // expected-error@+1 {{expected the parts 'tensor<2xf32>' of 8 devices to make 'tensor<16xf32>', but got 'tensor<18xf32>'}}
  %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<2xf32>) -> tensor<18xf32>
  // expected-error@+1 {{expected the parts 'tensor<2xf32>' of 8 devices to make 'tensor<16xf32>', but got 'tensor<18xf32>'}}
  %2 = "stablehlo.reduce_scatter"(%g) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<18xf32>) -> tensor<2xf32>
  return
}

// -----

// Loops, barriers and reductions that nothing can be said about. What is made of
// weights alone is one all the same.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @malformed(%w: tensor<4x8xf32>, %i: tensor<i32>) {
  %0:2 = "stablehlo.while"(%w, %i) : (tensor<4x8xf32>, tensor<i32>) -> (tensor<4x8xf32>, tensor<i32>)
  // expected-remark@+1 {{its operand is computed in the step, not a weight}}
  %1 = "stablehlo.all_gather"(%0#0) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %2:2 = stablehlo.while(%v = %w, %n = %i) : tensor<4x8xf32>, tensor<i32>
  cond {} do {
    // expected-remark@+2 {{the trip count of a loop around stablehlo.all_gather is not constant; its bytes are counted once}}
    // expected-remark@+1 {{its operand is computed in the step, not a weight}}
    %3 = "stablehlo.all_gather"(%v) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  }
  %4:2 = "stablehlo.optimization_barrier"(%w) : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  %5 = "stablehlo.all_gather"(%4#1) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %narrow = "stablehlo.optimization_barrier"(%w) : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  %whole = "stablehlo.all_gather"(%narrow) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xbf16>) -> tensor<32x8xbf16>
  %6 = "stablehlo.convert"() : () -> tensor<4x8xf32>
  // expected-remark@+1 {{its operand is computed in the step, not a weight}}
  %7 = "stablehlo.all_gather"(%6) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it does not gather one f32, bf16 or f16 tensor of static shape}}
  "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> ()
  %computed = stablehlo.dot %1, %1 : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{its reduction is not a sum}}
  %8 = "stablehlo.reduce_scatter"(%computed) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 0 : i64}> ({}) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %computed1 = stablehlo.dot %1, %1 : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{its reduction is not a sum}}
  %9 = "stablehlo.reduce_scatter"(%computed1) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = "stablehlo.add"(%a) : (tensor<f32>) -> tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @all_reduce(%w: tensor<32x8xf32>, %x: tensor<16x32xf32>) -> tensor<32x8xf32> {
  %y = stablehlo.dot %x, %w : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %g = stablehlo.dot %x, %y : (tensor<16x32xf32>, tensor<16x8xf32>) -> tensor<64x8xf32>
  // expected-error@+1 {{expected a result of 'tensor<64x8xf32>', but got 'tensor<32x8xf32>'}}
  %0 = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<64x8xf32>) -> tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}

// -----

// More elements than `zero` ops may have.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @huge(%w: tensor<4x9223372036854775807xf32>, %x: tensor<16x32xf32>) -> tensor<4x9223372036854775807xf32> {
  // expected-remark@+1 {{its tensor has 2^57 elements or more}}
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x9223372036854775807xf32>) -> tensor<32x9223372036854775807xf32>
  %y = stablehlo.dot %x, %0 : (tensor<16x32xf32>, tensor<32x9223372036854775807xf32>) -> tensor<16x9223372036854775807xf32>
  %g = stablehlo.dot %x, %y : (tensor<16x32xf32>, tensor<16x9223372036854775807xf32>) -> tensor<4x9223372036854775807xf32>
  // expected-remark@+1 {{its tensor has 2^57 elements or more}}
  %1 = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<4x9223372036854775807xf32>) -> tensor<4x9223372036854775807xf32>
  return %1 : tensor<4x9223372036854775807xf32>
}

// -----

// Elements of one byte are what a step may have quantized, if it gathers them.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @nothing(%w: tensor<4x8xf8E4M3FN>) {
  // expected-remark@+1 {{it does not gather one f32, bf16 or f16 tensor of static shape}}
  "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf8E4M3FN>) -> ()
  return
}
