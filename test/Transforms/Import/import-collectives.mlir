// RUN: zpp-opt %s --zero-import-collectives="weights-of=all gradients-of=all" --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s
// RUN: zpp-opt %s --zero-import-collectives="weights-of=all gradients-of=all" \
// RUN:   --zero-import-collectives="weights-of=all gradients-of=all" \
// RUN:   --split-input-file --verify-diagnostics | FileCheck %s

// A weight is gathered, its gradient scattered.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK: #[[MESH:.*]] = #zero.mesh<"node" = 2, "gpu" = 4>
// CHECK: module attributes {zpp.group_mesh = @mesh, zpp.machine = {mesh = "node:2,gpu:4"}}
// CHECK-LABEL: func @step
func.func @step(%w: tensor<4x64xf32>) -> tensor<4x64xf32> {
  // CHECK: %[[LOCAL:.*]] = stablehlo.convert
  // CHECK: %[[SHARD:.*]] = zero.from_local %[[LOCAL]] : tensor<4x64xbf16> to <32x64xbf16, dim 0 = ("node", "gpu") on #[[MESH]]>
  // CHECK: %[[WHOLE:.*]] = zero.all_gather %[[SHARD]] along ["node", "gpu"]
  // CHECK-SAME: zpp.origin = {before = [512, 3072], group = "node,gpu", id = 0 : i64, kind = "all_gather", model_bytes = 4096 : i64, phase = "forward", role = "weight", rule = "R15", trips = 1 : i64, weight = 0 : i64}
  // CHECK-SAME: zpp.source = {attributes = {}, properties = {all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<{{.*}}>}}
  // CHECK-SAME: to <32x64xbf16, dim 0 = (2, 4) on #[[MESH]]>
  // CHECK: %[[HELD:.*]] = zero.to_local %[[WHOLE]]
  %0 = stablehlo.convert %w : (tensor<4x64xf32>) -> tensor<4x64xbf16>
  %1 = "stablehlo.all_gather"(%0) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x64xbf16>) -> tensor<32x64xbf16>
  // CHECK: %[[READ:.*]] = stablehlo.convert %[[HELD]]
  // CHECK: %[[GRAD:.*]] = stablehlo.dot %[[READ]], %[[READ]]
  %2 = stablehlo.convert %1 : (tensor<32x64xbf16>) -> tensor<32x64xf32>
  // CHECK: %[[PARTS:.*]] = zero.from_local %[[GRAD]]
  // CHECK: %[[SUM:.*]] = zero.reduce_scatter sum %[[PARTS]] along ["node", "gpu"]
  // CHECK-SAME: before = [1024, 6144]
  // CHECK-SAME: phase = "backward", role = "gradient"
  // CHECK-SAME: zpp.source = {attributes = {mhlo.mark}, properties = {replica_groups = {{.*}}, scatter_dimension = 0 : i64}}
  // CHECK-SAME: to <32x64xf32, dim 0 = ("node", "gpu") on #[[MESH]]>
  // CHECK: %[[RESULT:.*]] = zero.to_local %[[SUM]]
  %computed = stablehlo.dot %2, %2 : (tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<32x64xf32>
  %3 = "stablehlo.reduce_scatter"(%computed) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) {mhlo.mark} : (tensor<32x64xf32>) -> tensor<4x64xf32>
  // CHECK: return %[[RESULT]]
  return %3 : tensor<4x64xf32>
}

// -----

// All spellings of groups.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func @groups
func.func @groups(%w: tensor<4x8xf32>) {
  // CHECK: zero.all_gather {{.*}} along ["gpu"] {{.*}} to <16x8xf32, dim 0 = (4) on
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  // Groups in any order.
  // CHECK: zero.all_gather {{.*}} along ["node"] {{.*}} to <8x8xf32, dim 0 = (2) on
  %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[3, 7], [0, 4], [2, 6], [1, 5]]> : tensor<4x2xi64>}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
  // Another order of a group is another order of the slices.
  // CHECK: zero.all_gather {{.*}} along ["gpu", "node"] {{.*}} : <32x8xf32, dim 0 = ("gpu", "node") on {{.*}} to <32x8xf32, dim 0 = (4, 2) on
  %2 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 4, 1, 5, 2, 6, 3, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // Parts of an axis.
  // CHECK: zero.all_gather {{.*}} along ["gpu":(2)2] {{.*}} group = "gpu:(2)2"
  %3 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1], [2, 3], [4, 5], [6, 7]]> : tensor<4x2xi64>}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
  // CHECK: zero.all_gather {{.*}} along ["gpu":(1)2]
  %4 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "gpu", sub_axis_info = (1)2>]>}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
  // CHECK: zero.all_gather {{.*}} along ["node", "gpu":(2)2]
  %5 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu", sub_axis_info = (2)2>]>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
  // Any dim.
  // CHECK: zero.all_gather {{.*}} to <4x32xf32, dim 1 = (4) on
  %6 = "stablehlo.all_gather"(%w) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<4x32xf32>
  return
}

// -----

// A mesh of one axis, factored by the tiers that the module remembers; devices
// that stand in another order on it.

module attributes {zpp.machine = {mesh = "node:2,gpu:4"}} {
  sdy.mesh @mesh = <["data"=8]>
  sdy.mesh @crossed = <["data"=8], device_ids=[0, 4, 1, 5, 2, 6, 3, 7]>
  // CHECK-LABEL: func @one_axis
  func.func @one_axis(%w: tensor<4xf16>) {
    // CHECK: zero.all_gather {{.*}} along ["node", "gpu"]
    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "data">]>}> : (tensor<4xf16>) -> tensor<32xf16>
    // CHECK: zero.all_gather {{.*}} along ["gpu", "node"]
    %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @crossed, axes = [#stablehlo.axis_ref<name = "data">]>}> : (tensor<4xf16>) -> tensor<32xf16>
    // CHECK: zero.all_gather {{.*}} along ["gpu":(2)2]
    %2 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "data", sub_axis_info = (4)2>]>}> : (tensor<4xf16>) -> tensor<8xf16>
    return
  }
}

// -----

// Three tiers with the axis of another parallelism among them.

sdy.mesh @mesh = <["rack"=2, "node"=2, "tensor"=2, "gpu"=3]>

// CHECK-LABEL: func @tiers
func.func @tiers(%w: tensor<5xbf16>) -> tensor<f32> {
  // CHECK: zero.all_gather {{.*}} along ["rack", "node", "gpu"]
  // CHECK-SAME: before = [10, 20, 0, 80]
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "rack">, #stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<5xbf16>) -> tensor<60xbf16>
  %read = stablehlo.dot %0, %0 : (tensor<60xbf16>, tensor<60xbf16>) -> tensor<f32>
  return %read : tensor<f32>
}

// -----

// An axis of size 1 takes no part in anything.

sdy.mesh @mesh = <["node"=1, "gpu"=4]>

// CHECK-LABEL: func @one_node
func.func @one_node(%w: tensor<4xf32>) {
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  // CHECK-SAME: before = [0, 48]
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4xf32>) -> tensor<16xf32>
  // CHECK: stablehlo.all_gather
  // expected-remark@+1 {{stablehlo.all_gather is left alone: its groups have one device each}}
  %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">]>}> : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// The ops that may lie between a step input and the gather of a weight.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func @provenance
func.func @provenance(%w: tensor<8x8xf32>, %v: tensor<2xbf16>, %u: tensor<3xbf16>, %i: tensor<i32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<bf16>
  %0:2 = stablehlo.optimization_barrier %v, %w : tensor<2xbf16>, tensor<8x8xf32>
  // CHECK: zero.all_gather {{.*}} role = "weight", rule = "R15", trips = 1 : i64, weight = 0 : i64
  %1 = stablehlo.transpose %0#1, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "stablehlo.all_gather"(%1) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<8x8xf32>) -> tensor<64x8xf32>
  // Slices of one input are weights of their own; the same slice is the same.
  // CHECK: zero.all_gather {{.*}} phase = "forward", {{.*}} weight = 1 : i64
  %3 = stablehlo.slice %w [0:4, 0:8] : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %4 = "stablehlo.all_gather"(%3) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_gather {{.*}} phase = "forward", {{.*}} weight = 2 : i64
  %5 = stablehlo.slice %w [4:8, 0:8] : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %6 = "stablehlo.all_gather"(%5) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // CHECK: zero.all_gather {{.*}} phase = "backward", {{.*}} weight = 1 : i64
  %7 = stablehlo.slice %0#1 [0:4, 0:8] : (tensor<8x8xf32>) -> tensor<4x8xf32>
  %8 = "stablehlo.all_gather"(%7) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // So are slices at different indices.
  // CHECK: zero.all_gather {{.*}} weight = 3 : i64
  %9 = stablehlo.dynamic_slice %w, %i, %c0, sizes = [1, 8] : (tensor<8x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
  %10 = "stablehlo.all_gather"(%9) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<1x8xf32>) -> tensor<8x8xf32>
  // CHECK: zero.all_gather {{.*}} weight = 4 : i64
  %11 = stablehlo.dynamic_slice %w, %c0, %c0, sizes = [1, 8] : (tensor<8x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
  %12 = "stablehlo.all_gather"(%11) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<1x8xf32>) -> tensor<8x8xf32>
  // A flat buffer of several inputs.
  // CHECK: zero.all_gather {{.*}} weight = 5 : i64
  %13 = stablehlo.concatenate %v, %u, dim = 0 : (tensor<2xbf16>, tensor<3xbf16>) -> tensor<5xbf16>
  %14 = "stablehlo.all_gather"(%13) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<5xbf16>) -> tensor<40xbf16>
  // CHECK: zero.all_gather {{.*}} weight = 6 : i64
  %15 = stablehlo.concatenate %v, %v, dim = 0 : (tensor<2xbf16>, tensor<2xbf16>) -> tensor<4xbf16>
  %16 = "stablehlo.all_gather"(%15) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4xbf16>) -> tensor<32xbf16>
  // Padding.
  // CHECK: zero.all_gather {{.*}} weight = 7 : i64
  %17 = stablehlo.pad %u, %zero, low = [0], high = [1], interior = [0] : (tensor<3xbf16>, tensor<bf16>) -> tensor<4xbf16>
  %18 = "stablehlo.all_gather"(%17) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4xbf16>) -> tensor<32xbf16>
  // A new dim of size 1, as in front of a gather that makes one.
  // CHECK: zero.all_gather {{.*}} weight = 8 : i64
  %new = stablehlo.broadcast_in_dim %u, dims = [1] : (tensor<3xbf16>) -> tensor<1x3xbf16>
  %stacked = "stablehlo.all_gather"(%new) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1x3xbf16>) -> tensor<8x3xbf16>
  // A value that is computed from weights alone is a weight too.
  // CHECK: zero.all_gather
  %more = stablehlo.broadcast_in_dim %u, dims = [1] : (tensor<3xbf16>) -> tensor<2x3xbf16>
  // CHECK-SAME: weight = 9 : i64
  %copies = "stablehlo.all_gather"(%more) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<2x3xbf16>) -> tensor<16x3xbf16>
  // Not with what is computed.
  %time = stablehlo.convert %i : (tensor<i32>) -> tensor<bf16>
  %19 = stablehlo.broadcast_in_dim %time, dims = [] : (tensor<bf16>) -> tensor<2xbf16>
  %20 = stablehlo.concatenate %v, %19, dim = 0 : (tensor<2xbf16>, tensor<2xbf16>) -> tensor<4xbf16>
  // CHECK: stablehlo.all_gather
  // CHECK-SAME: role = "other", {{.*}} zpp.reason = "its operand is computed in the step, not a weight (R5)"
  // expected-remark@+1 {{its operand is computed in the step, not a weight}}
  %21 = "stablehlo.all_gather"(%20) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4xbf16>) -> tensor<32xbf16>
  return
}

// -----

// Other collectives than those of ZeRO-3 stay.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func @others
// CHECK-NOT: = zero.
func.func @others(%w: tensor<4x8xf32>, %i: tensor<4xi32>, %d: tensor<?xf32>, %x: tensor<4x8xf64>) {
  // expected-remark@+1 {{stablehlo.all_gather is left alone: it gathers data, not a weight: step input 1 has elements of type i32}}
  %0 = "stablehlo.all_gather"(%i) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4xi32>) -> tensor<32xi32>
  // expected-remark@+1 {{it does not gather one f32, bf16 or f16 tensor of static shape}}
  %1 = "stablehlo.all_gather"(%d) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<?xf32>) -> tensor<?xf32>
  // expected-remark@+1 {{it does not gather one f32, bf16 or f16 tensor of static shape}}
  %2 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf64>) -> tensor<32x8xf64>
  // expected-remark@+1 {{it gathers data, not a weight: step input 1 has elements of type i32}}
  %3:2 = "stablehlo.all_gather"(%i, %i) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4xi32>, tensor<4xi32>) -> (tensor<32xi32>, tensor<32xi32>)
  // expected-remark@+1 {{stablehlo.all_reduce is left alone: it sums state, not a gradient}}
  %4 = "stablehlo.all_reduce"(%w) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // expected-remark@+1 {{stablehlo.collective_permute is left alone: it is neither a gather of a weight nor a scatter of a gradient}}
  %5 = "stablehlo.collective_permute"(%w) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // expected-remark@+1 {{stablehlo.all_to_all is left alone}}
  %6 = "stablehlo.all_to_all"(%w) <{concat_dimension = 1 : i64, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, split_count = 4 : i64, split_dimension = 0 : i64}> : (tensor<4x8xf32>) -> tensor<1x32xf32>
  // expected-remark@+1 {{stablehlo.collective_broadcast is left alone}}
  %7 = "stablehlo.collective_broadcast"(%w) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // Groups that are no product over the tiers matter to nobody here.
  // expected-remark@+1 {{stablehlo.all_to_all is left alone: it is neither a gather of a weight nor a scatter of a gradient; its bytes are not counted: expected groups along axes of mesh 'node:2,gpu:4', but got [0, 3, 2, 1]}}
  %8 = "stablehlo.all_to_all"(%w) <{concat_dimension = 1 : i64, replica_groups = dense<[[0, 3, 2, 1], [4, 5, 6, 7]]> : tensor<2x4xi64>, split_count = 4 : i64, split_dimension = 0 : i64}> : (tensor<4x8xf32>) -> tensor<1x32xf32>
  return
}

// -----

// Scatters that are no gradient's.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func @scatters
func.func @scatters(%w: tensor<4x8xf32>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  // Gradients may have another element type than the weight.
  // CHECK: zero.reduce_scatter sum {{.*}} to <32x8xbf16,
  %1 = stablehlo.convert %0 : (tensor<32x8xf32>) -> tensor<32x8xbf16>
  %computed = stablehlo.dot %1, %1 : (tensor<32x8xbf16>, tensor<32x8xbf16>) -> tensor<32x8xbf16>
  %2 = "stablehlo.reduce_scatter"(%computed) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
    %add = stablehlo.add %a, %b : tensor<bf16>
    stablehlo.return %add : tensor<bf16>
  }) : (tensor<32x8xbf16>) -> tensor<4x8xbf16>
  // A sum that names how it is sharded, where axes are left to the partitioner.
  // CHECK: zero.reduce_scatter sum {{.*}} to <32x8xbf16,
  %computed1 = stablehlo.dot %1, %1 : (tensor<32x8xbf16>, tensor<32x8xbf16>) -> tensor<32x8xbf16>
  %named = "stablehlo.reduce_scatter"(%computed1) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
    %add = stablehlo.add %a, %b : tensor<bf16>
    %constrained = sdy.sharding_constraint %add <@mesh, []> : tensor<bf16>
    stablehlo.return %constrained : tensor<bf16>
  }) : (tensor<32x8xbf16>) -> tensor<4x8xbf16>
  // CHECK-NOT: zero.reduce_scatter
  %computed2 = stablehlo.dot %0, %0 : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{stablehlo.reduce_scatter is left alone: its reduction is not a sum}}
  %3 = "stablehlo.reduce_scatter"(%computed2) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %max = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %max : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %computed3 = stablehlo.dot %0, %0 : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{its reduction is not a sum}}
  %4 = "stablehlo.reduce_scatter"(%computed3) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %half = stablehlo.constant dense<0.5> : tensor<f32>
    %sum = stablehlo.add %a, %b : tensor<f32>
    %mean = stablehlo.multiply %sum, %half : tensor<f32>
    stablehlo.return %mean : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %computed4 = stablehlo.dot %0, %0 : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{its reduction is not a sum}}
  %5 = "stablehlo.reduce_scatter"(%computed4) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %twice = stablehlo.add %a, %a : tensor<f32>
    stablehlo.return %twice : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %computed5 = stablehlo.dot %0, %0 : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it mirrors no weight gather}}
  %6 = "stablehlo.reduce_scatter"(%computed5) <{scatter_dimension = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<32x1xf32>
  %computed6 = stablehlo.dot %0, %0 : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  // expected-remark@+1 {{it mirrors no weight gather}}
  %7 = "stablehlo.reduce_scatter"(%computed6) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 4, 1, 5, 2, 6, 3, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x8xf32>) -> tensor<4x8xf32>
  %8 = stablehlo.convert %0 : (tensor<32x8xf32>) -> tensor<32x8xi32>
  %computed7 = stablehlo.dot %8, %8 : (tensor<32x8xi32>, tensor<32x8xi32>) -> tensor<32x8xi32>
  // expected-remark@+1 {{it does not scatter one f32, bf16 or f16 tensor of static shape}}
  %9 = "stablehlo.reduce_scatter"(%computed7) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %add = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %add : tensor<i32>
  }) : (tensor<32x8xi32>) -> tensor<4x8xi32>
  return
}

// -----

// One function for several layers: each call is a layer of its own. Helpers
// without collectives stay functions, unless an operand of a gather comes out of
// one.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func @layers
func.func @layers(%w: tensor<4x8xf32>, %v: tensor<4x8xf32>) -> (tensor<f32>, tensor<f32>) {
  // CHECK-COUNT-2: zero.all_gather {{.*}} phase = "forward"
  // CHECK: call @activate
  // CHECK: zero.all_gather {{.*}} phase = "forward", role = "weight", rule = "R15", trips = 1 : i64, weight = 2 : i64
  // CHECK: return
  %0 = call @layer(%w) : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %1 = call @layer(%v) : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %2 = call @activate(%1) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %3 = call @first_row(%v) : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %4 = "stablehlo.all_gather"(%3) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<1x8xf32>) -> tensor<8x8xf32>
  %5 = stablehlo.dot %0, %0 : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<f32>
  %6 = stablehlo.dot %2, %2 : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<f32>
  return %5, %6 : tensor<f32>, tensor<f32>
}
// CHECK-NOT: func private @layer
func.func private @layer(%w: tensor<4x8xf32>) -> tensor<32x8xf32> {
  %0 = func.call @gather(%w) : (tensor<4x8xf32>) -> tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}
func.func private @gather(%w: tensor<4x8xf32>) -> tensor<32x8xf32> {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}
// CHECK: func private @activate
func.func private @activate(%x: tensor<32x8xf32>) -> tensor<32x8xf32> {
  %0 = stablehlo.tanh %x : tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}
// CHECK-NOT: first_row
func.func private @first_row(%w: tensor<4x8xf32>) -> tensor<1x8xf32> {
  %0 = stablehlo.slice %w [0:1, 0:8] : (tensor<4x8xf32>) -> tensor<1x8xf32>
  return %0 : tensor<1x8xf32>
}

// -----

// What a loop calls becomes part of it, if it has products or loops and is called
// once, as the functions are that an older JAX makes of bodies of loops. What is
// called twice, or only computes element by element, stays a function.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func @bodies
func.func @bodies(%w: tensor<8x8xf32>, %v: tensor<4x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  // A plan for a loop that the module brings is none of this run.
  // CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<8x8xf32>{{$}}
  // CHECK: stablehlo.while(
  // CHECK: stablehlo.dot %
  // CHECK: call @twice
  // CHECK: call @twice
  // CHECK: call @activate
  // CHECK: zero.all_gather
  %0:2 = stablehlo.while(%i = %c0, %x = %w) : tensor<i32>, tensor<8x8xf32>
  attributes {zpp.loop = {layers = 3 : i64}}
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = func.call @body(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %2 = func.call @twice(%1) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %3 = func.call @twice(%2) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %4 = func.call @activate(%3) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %4 : tensor<i32>, tensor<8x8xf32>
  }
  %5 = "stablehlo.all_gather"(%v) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %6 = stablehlo.dot %5, %5 : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<f32>
  return %0#1, %6 : tensor<8x8xf32>, tensor<f32>
}
// CHECK-NOT: func private @body
// CHECK-NOT: func private @inner
func.func private @body(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %0:2 = stablehlo.while(%i = %c0, %y = %x) : tensor<i32>, tensor<8x8xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = func.call @inner(%y) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %1 : tensor<i32>, tensor<8x8xf32>
  }
  return %0#1 : tensor<8x8xf32>
}
func.func private @inner(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = stablehlo.dot %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
// CHECK: func private @twice
func.func private @twice(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = stablehlo.dot %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
// CHECK: func private @activate
func.func private @activate(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = stablehlo.tanh %x : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

// Before Shardy, a shard_map was a function between two custom calls.

module attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32, zpp.machine = {mesh = "node:2,gpu:4"}} {
  // CHECK-LABEL: func @gspmd
  func.func @gspmd(%w: tensor<32x8xf32>) -> tensor<256x8xf32> {
    // CHECK: zero.all_gather {{.*}} role = "weight"
    // CHECK: stablehlo.custom_call{{.*}}SPMDShardToFullShape
    %0 = stablehlo.custom_call @Sharding(%w) {mhlo.sharding = "{devices=[8,1]<=[8]}"} : (tensor<32x8xf32>) -> tensor<32x8xf32>
    %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "{manual}"} : (tensor<32x8xf32>) -> tensor<4x8xf32>
    %2 = call @shmap_body(%1) : (tensor<4x8xf32>) -> tensor<32x8xf32>
    %3 = stablehlo.custom_call @Sharding(%2) {mhlo.sharding = "{manual}"} : (tensor<32x8xf32>) -> tensor<32x8xf32>
    %4 = stablehlo.custom_call @SPMDShardToFullShape(%3) {mhlo.sharding = "{devices=[8,1]<=[8]}"} : (tensor<32x8xf32>) -> tensor<256x8xf32>
    return %4 : tensor<256x8xf32>
  }
  // CHECK-NOT: shmap_body
  func.func private @shmap_body(%w: tensor<4x8xf32>) -> tensor<32x8xf32> {
    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    %x = stablehlo.constant dense<2.0> : tensor<8x8xf32>
    %1 = stablehlo.dot %0, %x : (tensor<32x8xf32>, tensor<8x8xf32>) -> tensor<32x8xf32>
    return %1 : tensor<32x8xf32>
  }
}

// -----

// Loops: what they do not change is an input, what they slice is a part of one.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func @loops
func.func @loops(%w: tensor<4x8xf32>, %stack: tensor<5x4x8xf32>, %n: tensor<i32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c5 = stablehlo.constant dense<5> : tensor<i32>
  %0:4 = stablehlo.while(%i = %c0, %same = %w, %changing = %w, %s = %stack) : tensor<i32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<5x4x8xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c5 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    // CHECK: zero.all_gather
    // CHECK-SAME: before = [640, 3840], {{.*}} model_bytes = 1024 : i64, {{.*}} trips = 5 : i64
    %1 = "stablehlo.all_gather"(%same) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    // A weight that changes from iteration to iteration is one weight.
    // CHECK: zero.all_gather {{.*}} weight = 1 : i64
    %2 = "stablehlo.all_gather"(%changing) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    // A stack counts with all of its layers.
    %3 = stablehlo.dynamic_slice %s, %i, %c0, %c0, sizes = [1, 4, 8] : (tensor<5x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %4 = stablehlo.reshape %3 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    // CHECK: zero.all_gather {{.*}} model_bytes = 5120 : i64, {{.*}} weight = 2 : i64
    %5 = "stablehlo.all_gather"(%4) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    // Two layers an iteration are two weights.
    %6 = stablehlo.dynamic_slice %s, %next, %c0, %c0, sizes = [1, 4, 8] : (tensor<5x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %7 = stablehlo.reshape %6 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    // CHECK: zero.all_gather {{.*}} weight = 3 : i64
    %8 = "stablehlo.all_gather"(%7) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    %other = stablehlo.negate %changing : tensor<4x8xf32>
    stablehlo.return %next, %same, %other, %s : tensor<i32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<5x4x8xf32>
  }
  // After the loop too; the slice of another loop is the same weight again.
  // CHECK: zero.all_gather {{.*}} phase = "backward", {{.*}} weight = 0 : i64
  %9 = "stablehlo.all_gather"(%0#1) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %10 = stablehlo.while(%i = %n) : tensor<i32>
  cond {
    %more = stablehlo.compare GE, %i, %c5 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %11 = stablehlo.dynamic_slice %0#3, %i, %c0, %c0, sizes = [1, 4, 8] : (tensor<5x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
    %12 = stablehlo.reshape %11 : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
    // CHECK: zero.all_gather {{.*}} phase = "backward", role = "weight", rule = "R15", trips = 1 : i64, weight = 2 : i64
    // expected-remark@+1 {{the trip count of a loop around stablehlo.all_gather is not constant; its bytes are counted once}}
    %13 = "stablehlo.all_gather"(%12) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    %next = stablehlo.subtract %i, %c1 : tensor<i32>
    stablehlo.return %next : tensor<i32>
  }
  return
}

// -----

// Branches.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func @branches
func.func @branches(%which: tensor<i32>, %w: tensor<4x8xf32>) -> tensor<f32> {
  // CHECK: stablehlo.case
  // CHECK-COUNT-2: zero.all_gather
  %0 = "stablehlo.case"(%which) ({
    %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    stablehlo.return %1 : tensor<32x8xf32>
  }, {
    %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    stablehlo.return %1 : tensor<32x8xf32>
  }) : (tensor<i32>) -> tensor<32x8xf32>
  %2 = stablehlo.dot %0, %0 : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<f32>
  return %2 : tensor<f32>
}

// -----

// Upstream's shard dialect. Collectives that are imported from it become
// StableHLO even if they are left alone.

module attributes {zpp.machine = {mesh = "node:2,gpu:4"}} {
  shard.grid @grid(shape = 2x4)
  // CHECK-LABEL: func @shard
  func.func @shard(%w: tensor<4x8xf32>) -> tensor<4x8xf32> {
    // CHECK-NOT: zpp.source
    // CHECK: zero.all_gather {{.*}} along ["node", "gpu"]
    %0 = shard.all_gather %w on @grid grid_axes = [0, 1] gather_axis = 0 : tensor<4x8xf32> -> tensor<32x8xf32>
    // CHECK: zero.reduce_scatter sum {{.*}} along ["node", "gpu"]
    %computed = stablehlo.dot %0, %0 : (tensor<32x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
    %1 = shard.reduce_scatter %computed on @grid grid_axes = [0, 1] reduction = sum scatter_axis = 0 : tensor<32x8xf32> -> tensor<4x8xf32>
    // CHECK: zero.all_gather {{.*}} along ["gpu"] {{.*}} dim 1 = (4) on
    %2 = shard.all_gather %w on @grid grid_axes = [1] gather_axis = 1 : tensor<4x8xf32> -> tensor<4x32xf32>
    // expected-remark@+1 {{shard.reduce_scatter is left alone: its reduction is not a sum}}
    %3 = shard.reduce_scatter %0 on @grid grid_axes = [0, 1] reduction = max scatter_axis = 0 : tensor<32x8xf32> -> tensor<4x8xf32>
    // expected-remark@+1 {{shard.all_reduce is left alone: it sums state}}
    %4 = shard.all_reduce %w on @grid grid_axes = [1] : tensor<4x8xf32> -> tensor<4x8xf32>
    return %1 : tensor<4x8xf32>
  }
}

// -----

// Tensors without elements, and functions that nobody calls.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func @empty
// CHECK-NOT: = zero.
func.func @empty(%w: tensor<0x8xf32>) -> tensor<f32> {
  // expected-remark@+1 {{its tensor is empty}}
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<0x8xf32>) -> tensor<0x8xf32>
  %read = stablehlo.dot %0, %0 : (tensor<0x8xf32>, tensor<0x8xf32>) -> tensor<f32>
  return %read : tensor<f32>
}
func.func private @dead(%w: tensor<4x8xf32>) -> tensor<32x8xf32> {
  // expected-remark@+1 {{its operand is computed in the step, not a weight}}
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}

// -----

// A function without end.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func @recursive
// CHECK: zero.all_gather
func.func @recursive(%w: tensor<4x8xf32>) {
  call @even(%w) : (tensor<4x8xf32>) -> ()
  return
}
func.func private @even(%w: tensor<4x8xf32>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  call @odd(%w) : (tensor<4x8xf32>) -> ()
  return
}
func.func private @odd(%w: tensor<4x8xf32>) {
  call @even(%w) : (tensor<4x8xf32>) -> ()
  return
}

// -----

// Groups of replicas: here each is one device, or has all partitions.

module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 4 : i32, zpp.machine = {mesh = "node:4,gpu:2"}} {
  // CHECK-LABEL: func @replicas
  func.func @replicas(%w: tensor<4x8xf32>) {
    // CHECK: zero.all_gather {{.*}} along ["node"]
    %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
    // CHECK: zero.all_gather {{.*}} along ["gpu", "node":(2)2]
    %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> : (tensor<4x8xf32>) -> tensor<16x8xf32>
    return
  }
}

// -----

// A scatter mirrors a gather of the same tensor seen from where the weight is
// stored, even if one of them lies after a transpose or has dims of size 1.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func @transposed
func.func @transposed(%w: tensor<4x64xf32>) -> (tensor<4x64xf32>, tensor<4x1x64xf32>, tensor<f32>) {
  // CHECK: zero.all_gather
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x64xf32>) -> tensor<32x64xf32>
  %g = stablehlo.dot %0, %0 : (tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<64x32xf32>
  %h = stablehlo.dot %0, %0 : (tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<32x1x64xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %1 = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<64x32xf32>) -> tensor<64x4xf32>
  %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<64x4xf32>) -> tensor<4x64xf32>
  // CHECK: zero.reduce_scatter {{.*}} role = "gradient"
  %3 = "stablehlo.reduce_scatter"(%h) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x1x64xf32>) -> tensor<4x1x64xf32>
  // The dims are transposed, but there is no transpose: this is another tensor.
  // CHECK: "stablehlo.reduce_scatter"
  // expected-remark @below {{stablehlo.reduce_scatter is left alone: it mirrors no weight gather}}
  %4 = "stablehlo.reduce_scatter"(%g) <{scatter_dimension = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<64x32xf32>) -> tensor<8x32xf32>
  %5 = stablehlo.dot %4, %4 : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<f32>
  return %2, %3, %5 : tensor<4x64xf32>, tensor<4x1x64xf32>, tensor<f32>
}

// -----

// A slice of a stack whose bytes 64 bits do not hold.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func @large_stack
// CHECK: zero.all_gather {{.*}} model_bytes = 33554432 : i64
func.func @large_stack(%stack: tensor<2199023255552x1048576xf32>) -> tensor<f32> {
  %0 = stablehlo.slice %stack [0:1, 0:1048576] : (tensor<2199023255552x1048576xf32>) -> tensor<1x1048576xf32>
  %1 = stablehlo.reshape %0 : (tensor<1x1048576xf32>) -> tensor<1048576xf32>
  %2 = "stablehlo.all_gather"(%1) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1048576xf32>) -> tensor<8388608xf32>
  %3 = stablehlo.dot %2, %2 : (tensor<8388608xf32>, tensor<8388608xf32>) -> tensor<f32>
  return %3 : tensor<f32>
}

// -----

// What ragged exchanges move is not known.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func @ragged
func.func @ragged(%w: tensor<8x32xf32>, %rows: tensor<16x32xf32>, %n: tensor<8xi32>) -> tensor<64x64xf32> {
  // CHECK: @ragged_all_to_all{{.*}}zpp.reason
  // expected-remark @below {{stablehlo.custom_call is left alone: only the data say how much it exchanges}}
  %0 = stablehlo.custom_call @ragged_all_to_all(%rows, %rows, %n, %n, %n, %n) {api_version = 4 : i32, backend_config = {replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}} : (tensor<16x32xf32>, tensor<16x32xf32>, tensor<8xi32>, tensor<8xi32>, tensor<8xi32>, tensor<8xi32>) -> tensor<16x32xf32>
  // CHECK: zero.all_gather
  %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<8x32xf32>) -> tensor<64x32xf32>
  %2 = stablehlo.dot_general %1, %1, contracting_dims = [1] x [1] : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  return %2 : tensor<64x64xf32>
}
