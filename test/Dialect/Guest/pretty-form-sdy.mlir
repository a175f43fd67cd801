// As JAX prints a mesh by default: at the start of the module.

// RUN: not zpp-opt %s 2>&1 | FileCheck %s
// CHECK: pretty-form-sdy.mlir:[[@LINE+1]]:1: error: custom op '{{[a-z.]+}}' expected the generic form "sdy.mesh"(...), but got the pretty form of 'sdy.mesh'
sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
