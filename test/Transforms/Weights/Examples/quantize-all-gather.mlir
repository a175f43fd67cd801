// What `zero-quantize-all-gather` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-quantize-all-gather --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%w: tensor<128xbf16>) -> tensor<1024xbf16> {
  %0 = zero.from_local %w : tensor<128xbf16>
      to <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
  %1 = zero.all_gather %0 along ["node", "gpu"]
      : <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
      to <1024xbf16, dim 0 = (2, 4) on #mesh>
  %2 = zero.to_local %1 : <1024xbf16, dim 0 = (2, 4) on #mesh>
      to tensor<1024xbf16>
  return %2 : tensor<1024xbf16>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%arg0: tensor<128xbf16>) -> tensor<1024xbf16> {
  %0 = zero.from_local %arg0 : tensor<128xbf16>
      to <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
  %1 = zero.encode %0 : <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
      to <1024xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8,
      block = 128>>
  %2 = zero.all_gather %1 along ["node", "gpu"]
      : <1024xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8,
      block = 128>> to <1024xbf16, dim 0 = (2,
      4) on #mesh, #zero.quant<i8, block = 128>>
  %3 = zero.decode %2 :
      <1024xbf16, dim 0 = (2, 4) on #mesh, #zero.quant<i8, block = 128>>
      to <1024xbf16, dim 0 = (2, 4) on #mesh>
  %4 = zero.to_local %3 : <1024xbf16, dim 0 = (2, 4) on #mesh>
      to tensor<1024xbf16>
  return %4 : tensor<1024xbf16>
}
