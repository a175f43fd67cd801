// What `zero-decompose-reduce-scatter` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-decompose-reduce-scatter --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%g: tensor<1024xf32>) -> tensor<128xf32> {
  %0 = zero.from_local %g : tensor<1024xf32>
      to <1024xf32, dim 0 = (2, 4) on #mesh>
  %1 = zero.reduce_scatter sum %0
      along ["node", "gpu"] wire <i4, block = 128>
      : <1024xf32, dim 0 = (2, 4) on #mesh>
      to <1024xf32, dim 0 = ("node", "gpu") on #mesh>
  %2 = zero.to_local %1 : <1024xf32, dim 0 = ("node", "gpu") on #mesh>
      to tensor<128xf32>
  return %2 : tensor<128xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%arg0: tensor<1024xf32>) -> tensor<128xf32> {
  %0 = tensor.empty() : tensor<8x128xf32>
  %1 = zero.all_to_all %arg0
      along ["node", "gpu"] on #mesh slices
      <dim = 0, factors = [2, 4], chunk = [0, 1]> wire <i4, block = 128>
      into %0 : tensor<1024xf32> into tensor<8x128xf32>
      -> tensor<8x128xf32>
  %2 = tensor.empty() : tensor<128xf32>
  %3 = zero.reduce sum %1 into %2 : tensor<8x128xf32> into tensor<128xf32>
      -> tensor<128xf32>
  return %3 : tensor<128xf32>
}
