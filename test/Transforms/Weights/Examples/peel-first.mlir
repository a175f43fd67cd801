// What `zero-peel-first` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-peel-first=min-usec=1 --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%w: tensor<2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %v = %w, %h = %x) : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = zero.from_local %v : tensor<2xf32> to <16xf32, dim 0 = ("node",
        "gpu") on #mesh>
    %2 = zero.all_gather %1 along ["node", "gpu"] : <16xf32, dim 0 =
        ("node", "gpu") on #mesh> to <16xf32, dim 0 = (2, 4) on #mesh>
    %3 = zero.to_local %2 : <16xf32, dim 0 = (2, 4) on #mesh> to
        tensor<16xf32>
    %4 = stablehlo.multiply %h, %3 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %4 : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
module {
  func.func @step(%arg0: tensor<2xf32>, %arg1: tensor<16xf32>) ->
      tensor<16xf32> {
    %0 = stablehlo.constant dense<1> : tensor<i32>
    %1 = stablehlo.constant dense<3> : tensor<i32>
    %2 = zero.from_local %arg0 : tensor<2xf32> to <16xf32, dim 0 = ("node",
        "gpu") on #mesh>
    %3 = zero.all_gather %2 along ["node", "gpu"] : <16xf32, dim 0 =
        ("node", "gpu") on #mesh> to <16xf32, dim 0 = (2, 4) on #mesh>
    %4 = zero.to_local %3 : <16xf32, dim 0 = (2, 4) on #mesh> to
        tensor<16xf32>
    %5 = stablehlo.multiply %arg1, %4 : tensor<16xf32>
    %6 = stablehlo.constant dense<1> : tensor<i32>
    %7:3 = stablehlo.while(%arg2 = %6, %arg3 = %arg0, %arg4 = %5) : tensor<i32>, tensor<2xf32>, tensor<16xf32>
    cond {
      %8 = stablehlo.compare LT, %arg2, %1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %8 : tensor<i1>
    } do {
      %8 = zero.from_local %arg3 : tensor<2xf32> to <16xf32, dim 0 =
          ("node", "gpu") on #mesh>
      %9 = zero.all_gather %8 along ["node", "gpu"] : <16xf32, dim 0 =
          ("node", "gpu") on #mesh> to <16xf32, dim 0 = (2, 4) on #mesh>
      %10 = zero.to_local %9 : <16xf32, dim 0 = (2, 4) on #mesh> to
          tensor<16xf32>
      %11 = stablehlo.multiply %arg4, %10 : tensor<16xf32>
      %12 = stablehlo.add %arg2, %0 : tensor<i32>
      stablehlo.return %12, %arg3, %11 : tensor<i32>, tensor<2xf32>, tensor<16xf32>
    }
    return %7#2 : tensor<16xf32>
  }
}
