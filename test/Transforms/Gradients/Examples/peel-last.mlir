// What `zero-peel-last` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-peel-last="group=gpu min-usec=1" --remarks-filter=none | diff %t/expected.mlir -

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
module {
  func.func @step(%arg0: tensor<3x32xf32>) -> tensor<4xf32> {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.constant dense<1> : tensor<i32>
    %2 = stablehlo.constant dense<3> : tensor<i32>
    %3 = stablehlo.constant dense<0.000000e+00> : tensor<4xf32>
    %4:3 = stablehlo.while(%arg1 = %0, %arg2 = %3, %arg3 = %arg0) : tensor<i32>, tensor<4xf32>, tensor<3x32xf32>
    cond {
      %13 = stablehlo.constant dense<2> : tensor<i32>
      %14 = stablehlo.compare LT, %arg1, %13 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %14 : tensor<i1>
    } do {
      %13 = stablehlo.dynamic_slice %arg3, %arg1, %0, sizes = [1, 32] : (tensor<3x32xf32>, tensor<i32>, tensor<i32>) -> tensor<1x32xf32>
      %14 = stablehlo.reshape %13 : (tensor<1x32xf32>) -> tensor<32xf32>
      %15 = zero.from_local %14 : tensor<32xf32> to <32xf32, dim 0 = (2, 4)
          on #mesh>
      %16 = zero.reduce_scatter sum %15 along ["gpu"] : <32xf32, dim 0 = (2,
          4) on #mesh> to <32xf32, dim 0 = (2, "gpu") on #mesh>
      %17 = zero.reduce_scatter sum %16 along ["node"] : <32xf32, dim 0 =
          (2, "gpu") on #mesh> to <32xf32, dim 0 = ("node", "gpu") on #mesh>
      %18 = zero.to_local %17 : <32xf32, dim 0 = ("node", "gpu") on #mesh>
          to tensor<4xf32>
      %19 = stablehlo.add %arg2, %18 : tensor<4xf32>
      %20 = stablehlo.add %arg1, %1 : tensor<i32>
      stablehlo.return %20, %19, %arg3 : tensor<i32>, tensor<4xf32>, tensor<3x32xf32>
    }
    %5 = stablehlo.dynamic_slice %arg0, %4#0, %0, sizes = [1, 32] : (tensor<3x32xf32>, tensor<i32>, tensor<i32>) -> tensor<1x32xf32>
    %6 = stablehlo.reshape %5 : (tensor<1x32xf32>) -> tensor<32xf32>
    %7 = zero.from_local %6 : tensor<32xf32> to <32xf32, dim 0 = (2, 4) on
        #mesh>
    %8 = zero.reduce_scatter sum %7 along ["gpu"] : <32xf32, dim 0 = (2, 4)
        on #mesh> to <32xf32, dim 0 = (2, "gpu") on #mesh>
    %9 = zero.reduce_scatter sum %8 along ["node"] : <32xf32, dim 0 = (2,
        "gpu") on #mesh> to <32xf32, dim 0 = ("node", "gpu") on #mesh>
    %10 = zero.to_local %9 : <32xf32, dim 0 = ("node", "gpu") on #mesh> to
        tensor<4xf32>
    %11 = stablehlo.add %4#1, %10 : tensor<4xf32>
    %12 = stablehlo.add %4#0, %1 : tensor<i32>
    return %11 : tensor<4xf32>
  }
}
