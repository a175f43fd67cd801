// What `zero-split-all-reduce` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-split-all-reduce --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%g: tensor<2048xbf16>) -> tensor<2048xbf16> {
  %0 = zero.from_local %g : tensor<2048xbf16>
      to <2048xbf16, dim 0 = () on #mesh>
  %1 = zero.all_reduce sum %0 along ["node", "gpu"]
      : <2048xbf16, dim 0 = () on #mesh>
  %2 = zero.to_local %1 : <2048xbf16, dim 0 = () on #mesh>
      to tensor<2048xbf16>
  return %2 : tensor<2048xbf16>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%arg0: tensor<2048xbf16>) -> tensor<2048xbf16> {
  %0 = zero.from_local %arg0 : tensor<2048xbf16>
      to <2048xbf16, dim 0 = (4, 2) on #mesh>
  %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 128>
      : <2048xbf16, dim 0 = (4, 2) on #mesh>
      to <2048xf32, dim 0 = ("gpu", 2) on #mesh>
  %2 = zero.reduce_scatter sum %1 along ["node"] wire <i4, block = 128>
      : <2048xf32, dim 0 = ("gpu", 2) on #mesh>
      to <2048xf32, dim 0 = ("gpu", "node") on #mesh>
  %3 = zero.encode %2 : <2048xf32, dim 0 = ("gpu", "node") on #mesh>
      to <2048xbf16, dim 0 = ("gpu", "node") on #mesh, #zero.quant<i8,
      block = 128>>
  %4 = zero.all_gather %3 along ["node"]
      : <2048xbf16, dim 0 = ("gpu", "node") on #mesh, #zero.quant<i8,
      block = 128>> to <2048xbf16, dim 0 = ("gpu",
      2) on #mesh, #zero.quant<i8, block = 128>>
  %5 = zero.all_gather %4 along ["gpu"]
      : <2048xbf16, dim 0 = ("gpu", 2) on #mesh, #zero.quant<i8,
      block = 128>> to <2048xbf16, dim 0 = (4,
      2) on #mesh, #zero.quant<i8, block = 128>>
  %6 = zero.decode %5 :
      <2048xbf16, dim 0 = (4, 2) on #mesh, #zero.quant<i8, block = 128>>
      to <2048xbf16, dim 0 = (4, 2) on #mesh>
  %7 = zero.to_local %6 : <2048xbf16, dim 0 = (4, 2) on #mesh>
      to tensor<2048xbf16>
  return %7 : tensor<2048xbf16>
}
