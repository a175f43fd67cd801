// RUN: zpp-opt %s --zero-import-compiled=mesh=node:2,gpu:2 --verify-diagnostics

// expected-error @below {{expected a mesh of 8 devices, on which the module runs, but got 'node:2,gpu:2' of 4}}
module attributes {mhlo.is_dynamic = false, mhlo.num_replicas = 8 : i32} {
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    return %x : tensor<f32>
  }
}
