// A scatter in the region of another one goes with that one.
// RUN: zpp-opt %s --zeropp --zero-report=output=/dev/null -o %t.mlir
// RUN: zpp-opt %t.mlir | FileCheck %s

// CHECK-LABEL: func.func @scatters
// CHECK-NOT: "stablehlo.reduce_scatter"
// CHECK: return

"builtin.module"() ({
  sdy.mesh @mesh = <["node"=2, "gpu"=4]>
  "func.func"() <{function_type = (tensor<4x8xf32>) -> (), sym_name = "scatters"}> ({
  ^bb0(%arg0: tensor<4x8xf32>):
    %0 = "stablehlo.all_gather"(%arg0) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
    %1 = stablehlo.convert %0 : (tensor<32x8xf32>) -> tensor<32x8xbf16>
    %2 = stablehlo.dot %1, %1 : (tensor<32x8xbf16>, tensor<32x8xbf16>) -> tensor<32x8xbf16>
    %3 = stablehlo.dot %1, %1 : (tensor<32x8xbf16>, tensor<32x8xbf16>) -> tensor<32x8xbf16>
    %4 = "stablehlo.reduce_scatter"(%3) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 0 : i64}> ({
    ^bb0(%arg13: tensor<bf16>, %arg14: tensor<bf16>):
      %26 = stablehlo.add %arg13, %arg14 : tensor<bf16>
      %27 = "stablehlo.reduce_scatter"(%2) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 0 : i64}> ({
      ^bb0(%arg15: tensor<bf16>, %arg16: tensor<bf16>):
        %29 = stablehlo.add %arg15, %arg16 : tensor<bf16>
        stablehlo.return %29 : tensor<bf16>
      }) : (tensor<32x8xbf16>) -> tensor<4x8xbf16>
      %28 = sdy.sharding_constraint %26 <@mesh, []> : tensor<bf16>
      stablehlo.return %28 : tensor<bf16>
    }) : (tensor<32x8xbf16>) -> tensor<4x8xbf16>
    "func.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
