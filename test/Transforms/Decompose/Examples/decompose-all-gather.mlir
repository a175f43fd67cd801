// What `zero-decompose-all-gather` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-decompose-all-gather --remarks-filter=none | diff %t/expected.mlir -

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
  %0 = tensor.empty() : tensor<8x128xbf16>
  %1 = zero.all_gather_chunks %arg0 along ["node", "gpu"] on #mesh into %0
      : tensor<128xbf16> into tensor<8x128xbf16> -> tensor<8x128xbf16>
  %2 = tensor.empty() : tensor<1024xbf16>
  %3 = zero.unpack_slices %1 slices
      <dim = 0, factors = [2, 4], chunk = [0, 1]> into %2
      : tensor<8x128xbf16> into tensor<1024xbf16> -> tensor<1024xbf16>
  return %3 : tensor<1024xbf16>
}
