// What `zero-return-state` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-return-state --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
module attributes {zpp.state = [{kind = "held", type = tensor<4xf32>} ]} {
  func.func @main(%w: tensor<4xf32> {tf.aliasing_output = 0 : i32}) ->
      (tensor<4xf32>, tensor<4xf32>) {
    %0 = stablehlo.negate %w : tensor<4xf32>
    %1 = stablehlo.add %w, %w : tensor<4xf32>
    return %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
}

//--- output.mlir
module attributes {zpp.state = [{kind = "held", type = tensor<4xf32>} ]} {
  func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
