// Tiers that have the names of the step's axes are these axes, in any order:
// the links say which tier is the slowest, the step says which devices it has.

// RUN: zpp-opt %s --zero-import-collectives="mesh=replica:2,data:4" \
// RUN:   --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zeropp="mesh=replica:2,data:4 weights=i8 gradients=none" \
// RUN:   --zero-report="mesh=replica:2,data:4 format=json output=%t.json" \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=OUT
// RUN: FileCheck %s --check-prefix=REPORT < %t.json

// The names alone say which axis is meant; other tiers take what is left.
// RUN: zpp-opt %s --zero-import-collectives="mesh=node:2,data:4" \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=REST
// RUN: zpp-opt %s --zero-import-collectives="mesh=replica:2,gpu:4" \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=OUTER
// RUN: zpp-opt %s --zero-import-collectives="mesh=replica:2,host:2,gpu:2" \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=CUT

// RUN: not zpp-opt %s --zero-import-collectives="mesh=replica:4,data:2" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=SIZE
// SIZE: error: expected 'replica:2', an axis of the module's mesh 'data:4,replica:2', but got 'replica:4' in 'replica:4,data:2'; a tier that is no axis needs another name
// RUN: not zpp-opt %s --zeropp="mesh=replica:2,data:4" \
// RUN:   --zero-report="mesh=node:2,gpu:4" -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=OTHER
// OTHER: error: expected the mesh of the rewrite, "replica:2@1,data:4@2", but got 'node:2,gpu:4'

// CHECK-DAG: #[[MESH:.*]] = #zero.mesh<"replica" = 2 stride 1, "data" = 4 stride 2>
// REST-DAG: #[[MESH:.*]] = #zero.mesh<"node" = 2 stride 1, "data" = 4 stride 2>
// OUTER-DAG: #[[MESH:.*]] = #zero.mesh<"replica" = 2 stride 1, "gpu" = 4 stride 2>
// CUT-DAG: #[[MESH:.*]] = #zero.mesh<"replica" = 2 stride 1, "host" = 2 stride 4, "gpu" = 2 stride 2>
// CHECK: zpp.machine = {mesh = "replica:2@1,data:4@2"}
// CUT: zpp.machine = {mesh = "replica:2@1,host:2@4,gpu:2@2"}

// The gather over all devices, then one over the devices of a node. In the
// output these are 0, 2, 4 and 6, and the group crosses nodes once.
// CHECK: zero.all_gather {{.*}} along ["data", "replica"]
// CHECK: zero.all_gather {{.*}} along ["data"]
// REST: zero.all_gather {{.*}} along ["data", "node"]
// OUTER: zero.all_gather {{.*}} along ["gpu", "replica"]
// CUT: zero.all_gather {{.*}} along ["host", "gpu", "replica"]
// OUT-DAG: dense<{{\[\[}}0, 2, 4, 6], [1, 3, 5, 7]]>
// REPORT: "after":
// REPORT-NEXT: "data": 6240
// REPORT-NEXT: "replica": 1040
sdy.mesh @mesh = <["data"=4, "replica"=2]>
func.func @step(%w: tensor<4x256xf32>, %v: tensor<8x256xf32>) -> (tensor<f32>, tensor<f32>, tensor<4x256xf32>, tensor<8x256xf32>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x256xf32>) -> tensor<32x256xf32>
  %1 = "stablehlo.all_gather"(%v) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 2, 4, 6], [1, 3, 5, 7]]> : tensor<2x4xi64>}> : (tensor<8x256xf32>) -> tensor<32x256xf32>
  %2 = stablehlo.dot %0, %0 : (tensor<32x256xf32>, tensor<32x256xf32>) -> tensor<f32>
  %3 = stablehlo.dot %1, %1 : (tensor<32x256xf32>, tensor<32x256xf32>) -> tensor<f32>
  %4 = stablehlo.negate %w : tensor<4x256xf32>
  %5 = stablehlo.negate %v : tensor<8x256xf32>
  return %2, %3, %4, %5 : tensor<f32>, tensor<f32>, tensor<4x256xf32>, tensor<8x256xf32>
}
