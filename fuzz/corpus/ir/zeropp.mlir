// RUN: zpp-opt %s --zeropp --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zeropp --zeropp --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zeropp="mesh=node:2,gpu:4 weights=i8 gradients=i8:i4 secondary=gpu tuning.block=128 regather=false" \
// RUN:   --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --remarks-filter=none --zero-import-collectives \
// RUN:   --zero-quantize-all-gather --zero-partition-within-node \
// RUN:   --zero-split-hierarchy --zero-decompose-reduce-scatter \
// RUN:   --zero-reorder-slices --zero-quantize-all-to-all \
// RUN:   --zero-decompose-all-gather --zero-fuse-quantization \
// RUN:   --convert-zero-to-stablehlo | FileCheck %s
// RUN: zpp-opt %s --zeropp="gradients=none secondary=none" --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=QWZ
// RUN: zpp-opt %s --zeropp="weights=none gradients=none" --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=HPZ
// RUN: zpp-opt %s --zeropp="weights=none secondary=none" --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=QGZ
// RUN: zpp-opt %s --zeropp="weights=none secondary=none gradients=i4" \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=HOP
// RUN: zpp-opt %s --remarks-filter=none --zero-import-collectives=weights=false \
// RUN:   --zero-split-hierarchy=formats=i8 --zero-decompose-reduce-scatter=stages=2 \
// RUN:   --zero-reorder-slices --zero-quantize-all-to-all --zero-fuse-quantization \
// RUN:   --convert-zero-to-stablehlo=outline=true | FileCheck %s --check-prefix=STAGES
// RUN: zpp-opt %s --zeropp="weights=none secondary=none gradients=none" \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=NONE
// RUN: zpp-opt %s --zeropp="target=cuda" --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=FFI
// RUN: zpp-opt %s --zeropp="target=cuda" --zeropp="target=cuda" \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=FFI
// RUN: zpp-opt %s --zeropp --zero-report=output=%t.portable --remarks-filter=none -o %t
// RUN: zpp-opt %s --zeropp=target=cuda --zero-report=output=%t.ffi --remarks-filter=none -o %t
// RUN: sed '/^schedule/,$d' %t.ffi | diff -B %t.portable -
// RUN: zpp-opt %s --zeropp --remarks-filter=none -o %t.1
// RUN: zpp-opt %s --zeropp --remarks-filter=none -o %t.2
// RUN: cmp %t.1 %t.2

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()
func.func @step(%w: tensor<4x64xbf16>, %x: tensor<f32>) -> (tensor<32x64xbf16>, tensor<4x64xf32>, tensor<f32>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x64xbf16>) -> tensor<32x64xbf16>
  %1:2 = "stablehlo.optimization_barrier"(%w, %x) : (tensor<4x64xbf16>, tensor<f32>) -> (tensor<4x64xbf16>, tensor<f32>)
  %2 = "stablehlo.all_gather"(%1#0) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<4x64xbf16>) -> tensor<32x64xbf16>
  %3 = "stablehlo.convert"(%2) : (tensor<32x64xbf16>) -> tensor<32x64xf32>
  %4 = "stablehlo.reduce_scatter"(%3) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%add) : (tensor<f32>) -> ()
  }) : (tensor<32x64xf32>) -> tensor<4x64xf32>
  return %0, %4, %1#1 : tensor<32x64xbf16>, tensor<4x64xf32>, tensor<f32>
}
