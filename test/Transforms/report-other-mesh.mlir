// Ops of a rewrite on one mesh, reported on another: a name of an axis would
// stand for other links, so nothing is counted, and the report says so.

// RUN: zpp-opt %s --zero-report=mesh=gpu:8 -o /dev/null 2>&1 | FileCheck %s
// RUN: zpp-opt %s --zero-report=mesh=node:4,gpu:2 -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=SWAPPED
// RUN: zpp-opt %s --zero-report=mesh=node:2,gpu:4 -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=OWN

// CHECK: its bytes are not counted: expected an op on the mesh 'gpu:8', but got one on 'node:2,gpu:4'
// SWAPPED: expected an op on the mesh 'node:4,gpu:2', but got one on 'node:2,gpu:4'
// OWN-NOT: not counted

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %0 = zero.all_to_all %x along ["gpu"] on #mesh into %e
      : tensor<4x8xf32> into tensor<4x8xf32> -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
