// What `zero-import-compiled` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-import-compiled=mesh=node:2,gpu:4 --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
module attributes {mhlo.is_dynamic = false} {
  func.func private @body(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.negate %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

//--- output.mlir
module attributes {mhlo.is_dynamic = false, mhlo.num_partitions = 8 : i32} {
  func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    return %arg0 : tensor<4xf32>
  }
}
