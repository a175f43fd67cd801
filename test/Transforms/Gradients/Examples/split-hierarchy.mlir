// What `zero-split-hierarchy` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-split-hierarchy --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%g: tensor<1024xf32>) -> tensor<128xf32> {
  %0 = zero.from_local %g : tensor<1024xf32>
      to <1024xf32, dim 0 = (2, 4) on #mesh>
  %1 = zero.reduce_scatter sum %0 along ["node", "gpu"]
      : <1024xf32, dim 0 = (2, 4) on #mesh>
      to <1024xf32, dim 0 = ("node", "gpu") on #mesh>
  %2 = zero.to_local %1 : <1024xf32, dim 0 = ("node", "gpu") on #mesh>
      to tensor<128xf32>
  return %2 : tensor<128xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%arg0: tensor<1024xf32>) -> tensor<128xf32> {
  %0 = zero.from_local %arg0 : tensor<1024xf32>
      to <1024xf32, dim 0 = (2, 4) on #mesh>
  %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 128>
      : <1024xf32, dim 0 = (2, 4) on #mesh>
      to <1024xf32, dim 0 = (2, "gpu") on #mesh>
  %2 = zero.reduce_scatter sum %1 along ["node"] wire <i4, block = 128>
      : <1024xf32, dim 0 = (2, "gpu") on #mesh>
      to <1024xf32, dim 0 = ("node", "gpu") on #mesh>
  %3 = zero.to_local %2 : <1024xf32, dim 0 = ("node", "gpu") on #mesh>
      to tensor<128xf32>
  return %3 : tensor<128xf32>
}
