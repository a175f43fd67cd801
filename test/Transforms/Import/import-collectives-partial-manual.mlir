// RUN: zpp-opt %s --zero-import-collectives=weights-of=all --verify-diagnostics | FileCheck %s

// A shard_map over some axes of the mesh: along the others shapes are global,
// and what a device holds is the partitioner's to say.

sdy.mesh @mesh = <["node"=2, "gpu"=2, "tensor"=2]>
func.func @main(%w: tensor<64x64xbf16>) -> tensor<f32> {
  // CHECK: "stablehlo.all_gather"{{.*}} {zpp.origin = {{.*}}, zpp.reason = "its manual computation leaves the axes tensor to the partitioner"}
  // CHECK-NOT: zero.
  %0 = sdy.manual_computation(%w) in_shardings=[<@mesh, [{"node", "gpu"}, {}]>] out_shardings=[<@mesh, [{}, {}]>] manual_axes={"node", "gpu"} (%s: tensor<16x64xbf16>) {
    // expected-remark@+1 {{its manual computation leaves the axes tensor to the partitioner}}
    %1 = "stablehlo.all_gather"(%s) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, use_global_device_ids}> : (tensor<16x64xbf16>) -> tensor<64x64xbf16>
    sdy.return %1 : tensor<64x64xbf16>
  } : (tensor<64x64xbf16>) -> tensor<64x64xbf16>
  %2 = stablehlo.dot %0, %0 : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<f32>
  return %2 : tensor<f32>
}
