// RUN: zpp-opt %s --zero-import-compiled=mesh=node:2,gpu:2 --split-input-file \
// RUN:   --verify-diagnostics

// expected-error @below {{expected a mesh of 8 devices, on which the module runs, but got 'node:2,gpu:2' of 4}}
module attributes {mhlo.num_partitions = 8 : i32} {
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    return %x : tensor<f32>
  }
}

// -----

// expected-error @below {{expected the program of one device, but got one with a manual computation in it}}
module {
  sdy.mesh @mesh = <["node"=2, "gpu"=2]>
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, []>] out_shardings=[<@mesh, []>] manual_axes={"node", "gpu"} (%arg0: tensor<f32>) {
      sdy.return %arg0 : tensor<f32>
    } : (tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
}
