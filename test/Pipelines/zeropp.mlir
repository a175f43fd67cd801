// RUN: zpp-opt %s --zeropp=gradients-of=all --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zeropp=gradients-of=all --zeropp=gradients-of=all --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zeropp="gradients-of=all mesh=node:2,gpu:4 weights=i8 gradients=i8:i4 secondary=gpu tuning.block=128 regather=false" \
// RUN:   --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --remarks-filter=none --zero-import-collectives=gradients-of=all \
// RUN:   --zero-quantize-all-gather --zero-partition-within-node \
// RUN:   --zero-split-hierarchy --zero-decompose-reduce-scatter \
// RUN:   --zero-reorder-slices --zero-quantize-all-to-all \
// RUN:   --zero-decompose-all-gather --zero-fuse-quantization \
// RUN:   --convert-zero-to-stablehlo | FileCheck %s
// RUN: zpp-opt %s --zeropp="gradients-of=all gradients=none secondary=none" --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=QWZ
// RUN: zpp-opt %s --zeropp="gradients-of=all weights=none gradients=none" --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=HPZ
// RUN: zpp-opt %s --zeropp="gradients-of=all weights=none secondary=none" --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=QGZ
// RUN: zpp-opt %s --zeropp="gradients-of=all weights=none secondary=none gradients=i4" \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=HOP
// RUN: zpp-opt %s --remarks-filter=none --zero-import-collectives="weights=false gradients-of=all" \
// RUN:   --zero-split-hierarchy=formats=i8 --zero-decompose-reduce-scatter=stages=2 \
// RUN:   --zero-reorder-slices --zero-quantize-all-to-all --zero-fuse-quantization \
// RUN:   --convert-zero-to-stablehlo=outline=true | FileCheck %s --check-prefix=STAGES
// RUN: zpp-opt %s --zeropp="gradients-of=all weights=none secondary=none gradients=none" \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=NONE
// RUN: zpp-opt %s --zeropp="gradients-of=all target=cuda" --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=FFI
// RUN: zpp-opt %s --zeropp="gradients-of=all target=cuda" --zeropp="gradients-of=all target=cuda" \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=FFI
// RUN: zpp-opt %s --zeropp=gradients-of=all --zero-report=output=%t.portable --remarks-filter=none -o %t
// RUN: zpp-opt %s --zeropp="gradients-of=all target=cuda" --zero-report=output=%t.ffi --remarks-filter=none -o %t
// RUN: sed '/^schedule/,$d' %t.ffi | diff -B %t.portable -
// RUN: zpp-opt %s --zeropp=gradients-of=all --remarks-filter=none -o %t.1
// RUN: zpp-opt %s --zeropp=gradients-of=all --remarks-filter=none -o %t.2
// RUN: cmp %t.1 %t.2

// Everything: the forward gather over the nodes and within them, the backward
// one within them only, the scatter within nodes in i8, between them in i4.

// CHECK-LABEL: func @step
// CHECK-NOT: zero.
// CHECK: "stablehlo.all_gather"{{.*}}axes = [#stablehlo.axis_ref<name = "node">]>{{.*}}zpp.keep{{.*}}tensor<1x{{.*}}272xi8>)
// CHECK: "stablehlo.all_gather"{{.*}}axes = [#stablehlo.axis_ref<name = "gpu">]>{{.*}}x272xi8>)
// CHECK: stablehlo.optimization_barrier{{.*}}tensor<2x272xi8>
// CHECK: "stablehlo.all_gather"{{.*}}axes = [#stablehlo.axis_ref<name = "gpu">]>
// CHECK-NOT: stablehlo.all_gather
// CHECK: "stablehlo.all_to_all"{{.*}}axes = [#stablehlo.axis_ref<name = "gpu">]>{{.*}}tensor<4x528xi8>
// CHECK: "stablehlo.all_to_all"{{.*}}axes = [#stablehlo.axis_ref<name = "node">]>{{.*}}tensor<2x144xi8>
// CHECK-NOT: stablehlo.reduce_scatter

// QWZ-LABEL: func @step
// QWZ-COUNT-2: "stablehlo.all_gather"{{.*}}axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>{{.*}}xi8>
// QWZ: stablehlo.reduce_scatter
// QWZ-SAME: mesh_axes
// QWZ-NOT: stablehlo.all_to_all

// HPZ-LABEL: func @step
// HPZ: "stablehlo.all_gather"{{.*}}axes = [#stablehlo.axis_ref<name = "node">]>{{.*}}xbf16>
// HPZ-COUNT-2: "stablehlo.all_gather"{{.*}}axes = [#stablehlo.axis_ref<name = "gpu">]>{{.*}}xbf16>
// HPZ-NOT: xi8>
// HPZ: stablehlo.reduce_scatter

// QGZ-LABEL: func @step
// QGZ-COUNT-2: "stablehlo.all_gather"{{.*}}mesh_axes
// QGZ-COUNT-2: "stablehlo.all_to_all"
// QGZ-NOT: stablehlo.reduce_scatter

// HOP-LABEL: func @step
// HOP: "stablehlo.all_to_all"{{.*}}axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>{{.*}}tensor<8x144xi8>
// HOP-NOT: stablehlo.all_to_all

// Half of each slice of 256 values.
// STAGES-LABEL: func @step
// STAGES-COUNT-2: "stablehlo.all_to_all"{{.*}}tensor<8x144xi8>
// STAGES: stablehlo.concatenate

// NONE-LABEL: func @step
// NONE-COUNT-2: "stablehlo.all_gather"{{.*}}mesh_axes{{.*}}zpp.reason = "gathers of weights are to stay as they are"
// NONE: stablehlo.reduce_scatter
// NONE: zpp.reason = "scatters of gradients are to stay as they are"

// Back end (b): the gathers and the scatter are functions on the host, the
// secondary partition goes from one to the next.
// FFI-LABEL: func @step
// FFI-DAG: stablehlo.optimization_barrier %arg1
// FFI-DAG: %[[S:.*]]:4 = stablehlo.custom_call @zpp.start(%arg0, %{{.*}}function = "zpp_collective_0", inputs = 1 : i64, outputs = 2 : i64, workspace = 1 : i64
// FFI: %[[W:.*]]:3 = stablehlo.custom_call @zpp.wait(%arg0, %[[S]]#0, %[[S]]#1, %[[S]]#2, %[[S]]#3)
// FFI: stablehlo.custom_call @zpp.start(%[[W]]#0, %[[W]]#2)
// FFI-SAME: function = "zpp_collective_1"
// FFI: @zpp.start({{.*}}function = "zpp_collective_2"
// FFI: @zpp.wait({{.*}}function = "zpp_collective_2"
// FFI: return
// FFI: module @zpp_host
// FFI-COUNT-3: func.func @zpp_collective_{{.*}}{zpp.workspace}
// FFI-NOT: func.func @zpp_collective_

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @step(%w: tensor<4x64xbf16>, %x: tensor<f32>) -> (tensor<f32>, tensor<4x64xf32>, tensor<f32>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x64xbf16>) -> tensor<32x64xbf16>
  %1:2 = stablehlo.optimization_barrier %w, %x : tensor<4x64xbf16>, tensor<f32>
  %2 = "stablehlo.all_gather"(%1#0) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x64xbf16>) -> tensor<32x64xbf16>
  %3 = stablehlo.convert %2 : (tensor<32x64xbf16>) -> tensor<32x64xf32>
  %computed = stablehlo.dot %3, %3 : (tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<32x64xf32>
  %4 = "stablehlo.reduce_scatter"(%computed) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<32x64xf32>) -> tensor<4x64xf32>
  %read = stablehlo.dot %0, %0 : (tensor<32x64xbf16>, tensor<32x64xbf16>) -> tensor<f32>
  return %read, %4, %1#1 : tensor<f32>, tensor<4x64xf32>, tensor<f32>
}
