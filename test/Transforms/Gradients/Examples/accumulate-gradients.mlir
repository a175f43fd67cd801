// What `zero-accumulate-gradients` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-accumulate-gradients=group=gpu --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%a: tensor<32xf32>, %b: tensor<32xf32>) -> tensor<4xf32> {
  %0 = zero.from_local %a : tensor<32xf32>
      to <32xf32, dim 0 = (2, 4) on #mesh>
  %1 = zero.reduce_scatter sum %0 along ["gpu"]
      : <32xf32, dim 0 = (2, 4) on #mesh>
      to <32xf32, dim 0 = (2, "gpu") on #mesh>
  %2 = zero.reduce_scatter sum %1 along ["node"]
      : <32xf32, dim 0 = (2, "gpu") on #mesh>
      to <32xf32, dim 0 = ("node", "gpu") on #mesh>
  %3 = zero.to_local %2 : <32xf32, dim 0 = ("node", "gpu") on #mesh>
      to tensor<4xf32>
  %4 = zero.from_local %b : tensor<32xf32>
      to <32xf32, dim 0 = (2, 4) on #mesh>
  %5 = zero.reduce_scatter sum %4 along ["gpu"]
      : <32xf32, dim 0 = (2, 4) on #mesh>
      to <32xf32, dim 0 = (2, "gpu") on #mesh>
  %6 = zero.reduce_scatter sum %5 along ["node"]
      : <32xf32, dim 0 = (2, "gpu") on #mesh>
      to <32xf32, dim 0 = ("node", "gpu") on #mesh>
  %7 = zero.to_local %6 : <32xf32, dim 0 = ("node", "gpu") on #mesh>
      to tensor<4xf32>
  %8 = stablehlo.add %3, %7 : tensor<4xf32>
  return %8 : tensor<4xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
module attributes {zpp.accumulated = 16 : i64, zpp.micro_batches = 2 : i64} {
  func.func @step(%arg0: tensor<32xf32>, %arg1: tensor<32xf32>)
      -> tensor<4xf32> {
    %0 = zero.from_local %arg0 : tensor<32xf32>
        to <32xf32, dim 0 = (2, 4) on #mesh>
    %1 = zero.reduce_scatter sum %0 along ["gpu"]
        : <32xf32, dim 0 = (2, 4) on #mesh>
        to <32xf32, dim 0 = (2, "gpu") on #mesh>
    %2 = zero.to_local %1 : <32xf32, dim 0 = (2, "gpu") on #mesh>
        to tensor<8xf32>
    %3 = zero.from_local %arg1 : tensor<32xf32>
        to <32xf32, dim 0 = (2, 4) on #mesh>
    %4 = zero.reduce_scatter sum %3 along ["gpu"]
        : <32xf32, dim 0 = (2, 4) on #mesh>
        to <32xf32, dim 0 = (2, "gpu") on #mesh>
    %5 = zero.to_local %4 : <32xf32, dim 0 = (2, "gpu") on #mesh>
        to tensor<8xf32>
    %6 = stablehlo.add %2, %5 : tensor<8xf32>
    %7 = zero.from_local %6 : tensor<8xf32>
        to <32xf32, dim 0 = (2, "gpu") on #mesh>
    %8 = zero.reduce_scatter sum %7 along ["node"]
        : <32xf32, dim 0 = (2, "gpu") on #mesh>
        to <32xf32, dim 0 = ("node", "gpu") on #mesh>
    %9 = zero.to_local %8 : <32xf32, dim 0 = ("node", "gpu") on #mesh>
        to tensor<4xf32>
    return %9 : tensor<4xf32>
  }
}
