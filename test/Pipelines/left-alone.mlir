// UNSUPPORTED: registered-ops
// A collective that is imported and then left alone, because of the links,
// comes out as the same op, with the same types and attributes and nothing
// around it.

// DEFINE: %{fast} = links=node=400gbyte,gpu=400gbyte
// DEFINE: %{slow} = links=node=50gbit,gpu=400gbyte
// DEFINE: %{target} =
// DEFINE: %{fast-step} = zpp-opt %t.dir/step.mlir --zeropp="gradients-of=all %{fast} target=%{target}" --remarks-filter=none \
// DEFINE:   | FileCheck %t.dir/step.mlir --implicit-check-not=reshape --implicit-check-not=transpose \
// DEFINE:       --implicit-check-not=zero. --implicit-check-not=zpp.source --implicit-check-not=private
// DEFINE: %{loops} = zpp-opt %t.dir/loops.mlir --zeropp="gradients-of=all %{fast} target=%{target}" --remarks-filter=none \
// DEFINE:   | FileCheck %t.dir/loops.mlir --implicit-check-not=reshape --implicit-check-not=private
// DEFINE: %{mixed} = zpp-opt %t.dir/mixed.mlir --zeropp="gradients-of=all %{slow} secondary=none tuning.coalesce-bytes=0 target=%{target}" --remarks-filter=none

// RUN: rm -rf %t.dir && split-file %s %t.dir

// REDEFINE: %{target} = portable
// RUN: %{fast-step}
// RUN: %{loops}
// RUN: %{mixed} | FileCheck %t.dir/mixed.mlir --check-prefixes=CHECK,PORTABLE
// REDEFINE: %{target} = cuda
// RUN: %{fast-step}
// RUN: %{loops}
// RUN: %{mixed} | FileCheck %t.dir/mixed.mlir --check-prefixes=CHECK,FFI

// A collective that shares a buffer with others does not become the original op
// again.
// RUN: zpp-opt %t.dir/mixed.mlir --zeropp="gradients-of=all %{slow} secondary=none target=cuda" --remarks-filter=none \
// RUN:   | FileCheck %t.dir/mixed.mlir --check-prefix=JOINED

// A gather that is split is not either, nor are its halves.
// RUN: zpp-opt %t.dir/again.mlir --zeropp="gradients-of=all weights-of=all weights=none gradients=none" --remarks-filter=none \
// RUN:   | FileCheck %t.dir/again.mlir --check-prefix=SPLIT
// One that is repeated is the same twice.
// RUN: zpp-opt %t.dir/again.mlir --zeropp="gradients-of=all weights-of=all weights=none gradients=none secondary=none regather=true" --remarks-filter=none \
// RUN:   | FileCheck %t.dir/again.mlir --check-prefix=AGAIN

//--- step.mlir

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK: func.func @step(%[[A:.*]]: tensor<4x64xbf16>, %[[B:.*]]: tensor<64x4xbf16>, %[[C:.*]]: tensor<4x64xbf16>, %[[D:.*]]: tensor<8x4xf32>)
func.func @step(%a: tensor<4x64xbf16>, %b: tensor<64x4xbf16>, %c: tensor<4x64xbf16>, %d: tensor<8x4xf32>) -> (tensor<4x64xbf16>, tensor<64x4xbf16>, tensor<4x64xbf16>, tensor<8x4xf32>) {
  // CHECK-NEXT: %[[A1:.*]] = "stablehlo.all_gather"(%[[A]]) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, use_global_device_ids}> {mhlo.frontend_attributes = {mark = "a"}, zpp.origin = {{{.*}}}, zpp.reason = "on these links it takes {{.*}}"} : (tensor<4x64xbf16>) -> tensor<32x64xbf16>
  %0 = "stablehlo.all_gather"(%a) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, use_global_device_ids}> {mhlo.frontend_attributes = {mark = "a"}} : (tensor<4x64xbf16>) -> tensor<32x64xbf16>
  // CHECK-NEXT: %[[B1:.*]] = "stablehlo.all_gather"(%[[B]]) <{all_gather_dim = 1 : i64, replica_groups = dense<{{\[\[}}0, 4, 1, 5, 2, 6, 3, 7]]> : tensor<1x8xi64>}> {zpp.origin = {{{.*}}}, zpp.reason = {{.*}}} : (tensor<64x4xbf16>) -> tensor<64x32xbf16>
  %1 = "stablehlo.all_gather"(%b) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 4, 1, 5, 2, 6, 3, 7]]> : tensor<1x8xi64>}> : (tensor<64x4xbf16>) -> tensor<64x32xbf16>
  // Part of the devices, in a generic form without properties.
  // CHECK-NEXT: %[[C1:.*]] = "stablehlo.all_gather"(%[[C]]) {all_gather_dim = 1 : i64, replica_groups = dense<{{\[\[}}0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, zpp.origin = {{{.*}}}, zpp.reason = {{.*}}} : (tensor<4x64xbf16>) -> tensor<4x256xbf16>
  %2 = "stablehlo.all_gather"(%c) {all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>} : (tensor<4x64xbf16>) -> tensor<4x256xbf16>
  // CHECK-NEXT: %[[D1:.*]] = "stablehlo.all_gather"(%[[D]]) <{all_gather_dim = 1 : i64, {{.*}}mesh_axes{{.*}}name = "node">]>}> {{.*}} : (tensor<8x4xf32>) -> tensor<8x8xf32>
  %3 = "stablehlo.all_gather"(%d) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">]>}> : (tensor<8x4xf32>) -> tensor<8x8xf32>
  // CHECK-NEXT: %[[COMPUTED:.*]] = stablehlo.dot %
  // CHECK-NEXT: %[[A2:.*]] = "stablehlo.reduce_scatter"(%[[COMPUTED]]) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
  // CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<bf16>, %[[Y:.*]]: tensor<bf16>):
  // CHECK-NEXT: %[[SUM:.*]] = stablehlo.add %[[X]], %[[Y]] : tensor<bf16>
  // CHECK-NEXT: stablehlo.return %[[SUM]] : tensor<bf16>
  // CHECK-NEXT: }) {mhlo.frontend_attributes = {mark = "g"}, zpp.origin = {{{.*}}}, zpp.reason = {{.*}}} : (tensor<32x64xbf16>) -> tensor<4x64xbf16>
  %computed = stablehlo.dot %0, %0 : (tensor<32x64xbf16>, tensor<32x64xbf16>) -> tensor<32x64xbf16>
  %4 = "stablehlo.reduce_scatter"(%computed) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
  ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):
    %sum = stablehlo.add %x, %y : tensor<bf16>
    stablehlo.return %sum : tensor<bf16>
  }) {mhlo.frontend_attributes = {mark = "g"}} : (tensor<32x64xbf16>) -> tensor<4x64xbf16>
  // CHECK-NEXT: %[[COMPUTED1:.*]] = stablehlo.dot %
  // CHECK-NEXT: %[[B2:.*]] = "stablehlo.reduce_scatter"(%[[COMPUTED1]]) <{replica_groups = dense<{{\[\[}}0, 4, 1, 5, 2, 6, 3, 7]]> : tensor<1x8xi64>, scatter_dimension = 1 : i64}> ({
  // CHECK: }) {zpp.origin = {{{.*}}}, zpp.reason = {{.*}}} : (tensor<64x32xbf16>) -> tensor<64x4xbf16>
  %computed1 = stablehlo.dot %1, %1 : (tensor<64x32xbf16>, tensor<64x32xbf16>) -> tensor<64x32xbf16>
  %5 = "stablehlo.reduce_scatter"(%computed1) <{replica_groups = dense<[[0, 4, 1, 5, 2, 6, 3, 7]]> : tensor<1x8xi64>, scatter_dimension = 1 : i64}> ({
  ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):
    %sum = stablehlo.add %x, %y : tensor<bf16>
    stablehlo.return %sum : tensor<bf16>
  }) : (tensor<64x32xbf16>) -> tensor<64x4xbf16>
  // CHECK-NEXT: %[[COMPUTED2:.*]] = stablehlo.dot %
  // CHECK-NEXT: %[[C2:.*]] = "stablehlo.reduce_scatter"(%[[COMPUTED2]]) ({
  // CHECK: }) {replica_groups = dense<{{\[\[}}0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, scatter_dimension = 1 : i64, zpp.origin = {{{.*}}}, zpp.reason = {{.*}}} : (tensor<4x256xbf16>) -> tensor<4x64xbf16>
  %computed2 = stablehlo.dot %2, %2 : (tensor<4x256xbf16>, tensor<4x256xbf16>) -> tensor<4x256xbf16>
  %6 = "stablehlo.reduce_scatter"(%computed2) ({
  ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):
    %sum = stablehlo.add %x, %y : tensor<bf16>
    stablehlo.return %sum : tensor<bf16>
  }) {replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, scatter_dimension = 1 : i64} : (tensor<4x256xbf16>) -> tensor<4x64xbf16>
  // CHECK-NEXT: %[[COMPUTED3:.*]] = stablehlo.dot %
  // CHECK-NEXT: %[[D2:.*]] = "stablehlo.reduce_scatter"(%[[COMPUTED3]]) <{{.*}}mesh_axes{{.*}}scatter_dimension = 1 : i64}> ({
  // CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<f32>, %[[Y:.*]]: tensor<f32>):
  // CHECK: (tensor<8x8xf32>) -> tensor<8x4xf32>
  %computed3 = stablehlo.dot %3, %3 : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %7 = "stablehlo.reduce_scatter"(%computed3) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">]>, scatter_dimension = 1 : i64}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %sum = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<8x8xf32>) -> tensor<8x4xf32>
  // CHECK-NEXT: return %[[A2]], %[[B2]], %[[C2]], %[[D2]]
  return %4, %5, %6, %7 : tensor<4x64xbf16>, tensor<64x4xbf16>, tensor<4x64xbf16>, tensor<8x4xf32>
}

//--- loops.mlir

// A loop over layers, whose body is a function.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func.func @step
// CHECK-SAME: %[[W:.*]]: tensor<64x4xbf16>
func.func @step(%w: tensor<64x4xbf16>) -> tensor<64x4xbf16> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  // CHECK: stablehlo.while(%[[I:[^ ]+]] = %{{.*}}, %[[SAME:[^ ]+]] = %[[W]], %{{.*}} = %[[W]])
  %0:3 = "stablehlo.while"(%zero, %w, %w) ({
  ^bb0(%i: tensor<i32>, %same: tensor<64x4xbf16>, %g: tensor<64x4xbf16>):
    %five = stablehlo.constant dense<5> : tensor<i32>
    %more = stablehlo.compare LT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  // CHECK: } do {
  ^bb0(%i: tensor<i32>, %same: tensor<64x4xbf16>, %g: tensor<64x4xbf16>):
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    // CHECK: %[[WHOLE:.*]] = "stablehlo.all_gather"(%[[SAME]]) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<{{.*}}> {zpp.origin = {{{.*}}trips = 5{{.*}}}, zpp.reason = {{.*}}} : (tensor<64x4xbf16>) -> tensor<64x32xbf16>
    // CHECK-NEXT: %[[GRAD:.*]] = stablehlo.negate %[[WHOLE]]
    // CHECK-NEXT: %[[SUM:.*]] = "stablehlo.reduce_scatter"(%[[GRAD]]) <{replica_groups = #stablehlo.replica_group_mesh_axes<{{.*}}, scatter_dimension = 1 : i64}> ({
    // CHECK: (tensor<64x32xbf16>) -> tensor<64x4xbf16>
    // CHECK-NEXT: stablehlo.return {{.*}}, %[[SAME]], %[[SUM]]
    %1 = func.call @layer(%same) : (tensor<64x4xbf16>) -> tensor<64x4xbf16>
    stablehlo.return %next, %same, %1 : tensor<i32>, tensor<64x4xbf16>, tensor<64x4xbf16>
  }) : (tensor<i32>, tensor<64x4xbf16>, tensor<64x4xbf16>) -> (tensor<i32>, tensor<64x4xbf16>, tensor<64x4xbf16>)
  return %0#2 : tensor<64x4xbf16>
}

func.func private @layer(%w: tensor<64x4xbf16>) -> tensor<64x4xbf16> {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<64x4xbf16>) -> tensor<64x32xbf16>
  %1 = stablehlo.negate %0 : tensor<64x32xbf16>
  %2 = "stablehlo.reduce_scatter"(%1) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 1 : i64}> ({
  ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):
    %sum = stablehlo.add %x, %y : tensor<bf16>
    stablehlo.return %sum : tensor<bf16>
  }) : (tensor<64x32xbf16>) -> tensor<64x4xbf16>
  return %2 : tensor<64x4xbf16>
}

//--- mixed.mlir

// A matrix is worth quantizing on a slow link, a bias is not.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// CHECK-LABEL: func.func @step
// CHECK-SAME: %[[W:.*]]: tensor<8192x1024xbf16>, %[[V:.*]]: tensor<4x256xbf16>
// CHECK-DAG: %[[WHOLE:.*]] = "stablehlo.all_gather"(%[[V]]) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<{{.*}}> {{.*}} : (tensor<4x256xbf16>) -> tensor<4x2048xbf16>
// PORTABLE-DAG: "stablehlo.all_gather"({{.*}}axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>{{.*}}xi8>
// FFI-DAG: stablehlo.custom_call @zpp.start(
// PORTABLE: "stablehlo.all_to_all"
// CHECK: %[[SUM:.*]] = "stablehlo.reduce_scatter"(%{{.*}}) <{replica_groups = #stablehlo.replica_group_mesh_axes<{{.*}}, scatter_dimension = 1 : i64}> ({
// CHECK: (tensor<4x2048xbf16>) -> tensor<4x256xbf16>
// CHECK-NOT: stablehlo.all_gather
// PORTABLE: return %{{.*}}, %[[SUM]]
// FFI: return

// JOINED-LABEL: func.func @step
// JOINED-NOT: stablehlo.all_gather
// JOINED-COUNT-2: @zpp.start
// JOINED-NOT: stablehlo.reduce_scatter
// JOINED-NOT: zpp.source
func.func @step(%w: tensor<8192x1024xbf16>, %v: tensor<4x256xbf16>) -> (tensor<8192x1024xbf16>, tensor<4x256xbf16>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<8192x1024xbf16>) -> tensor<8192x8192xbf16>
  %1 = "stablehlo.all_gather"(%v) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x256xbf16>) -> tensor<4x2048xbf16>
  %g = stablehlo.dot %0, %0 : (tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>
  %2 = "stablehlo.reduce_scatter"(%g) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 1 : i64}> ({
  ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):
    %sum = stablehlo.add %x, %y : tensor<bf16>
    stablehlo.return %sum : tensor<bf16>
  }) : (tensor<8192x8192xbf16>) -> tensor<8192x1024xbf16>
  %computed = stablehlo.dot %1, %1 : (tensor<4x2048xbf16>, tensor<4x2048xbf16>) -> tensor<4x2048xbf16>
  %3 = "stablehlo.reduce_scatter"(%computed) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 1 : i64}> ({
  ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):
    %sum = stablehlo.add %x, %y : tensor<bf16>
    stablehlo.return %sum : tensor<bf16>
  }) : (tensor<4x2048xbf16>) -> tensor<4x256xbf16>
  return %2, %3 : tensor<8192x1024xbf16>, tensor<4x256xbf16>
}

//--- again.mlir

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// SPLIT-LABEL: func.func @twice
// SPLIT-NOT: all_gather_dim = 1
// SPLIT-COUNT-3: "stablehlo.all_gather"{{.*}}all_gather_dim = 0 : i64, {{.*}}mesh_axes
// SPLIT-NOT: "stablehlo.all_gather"
func.func @twice(%w: tensor<64x4xbf16>, %x: tensor<64x32xbf16>) -> (tensor<f32>, tensor<f32>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<64x4xbf16>) -> tensor<64x32xbf16>
  %1:2 = stablehlo.optimization_barrier %w, %x : tensor<64x4xbf16>, tensor<64x32xbf16>
  %2 = "stablehlo.all_gather"(%1#0) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<64x4xbf16>) -> tensor<64x32xbf16>
  %read = stablehlo.dot %0, %0 : (tensor<64x32xbf16>, tensor<64x32xbf16>) -> tensor<f32>
  %read1 = stablehlo.dot %2, %2 : (tensor<64x32xbf16>, tensor<64x32xbf16>) -> tensor<f32>
  return %read, %read1 : tensor<f32>, tensor<f32>
}

// SPLIT-LABEL: func.func @once
// SPLIT: "stablehlo.all_gather"({{.*}}all_gather_dim = 1 : i64, {{.*}}mesh_axes
// AGAIN-LABEL: func.func @once
// AGAIN-SAME: %[[V:.*]]: tensor<16x1xf32>
// AGAIN: "stablehlo.all_gather"(%[[V]]) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes
// AGAIN: %[[TIED:.*]]:2 = stablehlo.optimization_barrier %[[V]]
// AGAIN-NEXT: "stablehlo.all_gather"(%[[TIED]]#0) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes
// AGAIN-NOT: reshape
func.func @once(%v: tensor<16x1xf32>, %x: tensor<16x8xf32>) -> tensor<16x1xf32> {
  %0 = "stablehlo.all_gather"(%v) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<16x1xf32>) -> tensor<16x8xf32>
  %1 = stablehlo.dot %x, %0 : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %2 = "stablehlo.reduce_scatter"(%1) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 1 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<16x8xf32>) -> tensor<16x1xf32>
  %3 = stablehlo.negate %1 : tensor<16x8xf32>
  %4 = stablehlo.dot %3, %0 : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %5 = "stablehlo.reduce_scatter"(%4) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 1 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<16x8xf32>) -> tensor<16x1xf32>
  %6 = stablehlo.add %2, %5 : tensor<16x1xf32>
  return %6 : tensor<16x1xf32>
}
