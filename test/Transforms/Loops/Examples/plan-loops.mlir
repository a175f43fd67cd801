// What `zero-plan-loops` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-plan-loops="gradients group=gpu min-usec=1" --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%x: tensor<3x32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<3x32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %g, %i, %c0, sizes = [1, 32] : (tensor<3x32xf32>, tensor<i32>, tensor<i32>) -> tensor<1x32xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x32xf32>) -> tensor<32xf32>
    %3 = zero.from_local %2 : tensor<32xf32> to <32xf32, dim 0 = (2, 4) on
        #mesh>
    %4 = zero.reduce_scatter sum %3 along ["gpu"] : <32xf32, dim 0 = (2, 4)
        on #mesh> to <32xf32, dim 0 = (2, "gpu") on #mesh>
    %5 = zero.reduce_scatter sum %4 along ["node"] : <32xf32, dim 0 = (2,
        "gpu") on #mesh> to <32xf32, dim 0 = ("node", "gpu") on #mesh>
    %6 = zero.to_local %5 : <32xf32, dim 0 = ("node", "gpu") on #mesh> to
        tensor<4xf32>
    %7 = stablehlo.add %s, %6 : tensor<4xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %7, %g : tensor<i32>, tensor<4xf32>, tensor<3x32xf32>
  }
  return %0#1 : tensor<4xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%x: tensor<3x32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<3x32xf32>
  attributes {zpp.loop = {last = 1 : i64}}
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %g, %i, %c0, sizes = [1, 32] : (tensor<3x32xf32>, tensor<i32>, tensor<i32>) -> tensor<1x32xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x32xf32>) -> tensor<32xf32>
    %3 = zero.from_local %2 : tensor<32xf32> to <32xf32, dim 0 = (2, 4) on
        #mesh>
    %4 = zero.reduce_scatter sum %3 along ["gpu"] : <32xf32, dim 0 = (2, 4)
        on #mesh> to <32xf32, dim 0 = (2, "gpu") on #mesh>
    %5 = zero.reduce_scatter sum %4 along ["node"] : <32xf32, dim 0 = (2,
        "gpu") on #mesh> to <32xf32, dim 0 = ("node", "gpu") on #mesh>
    %6 = zero.to_local %5 : <32xf32, dim 0 = ("node", "gpu") on #mesh> to
        tensor<4xf32>
    %7 = stablehlo.add %s, %6 : tensor<4xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %7, %g : tensor<i32>, tensor<4xf32>, tensor<3x32xf32>
  }
  return %0#1 : tensor<4xf32>
}
