// What `zero-set-floors` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-set-floors=floors=0=i8 --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%w: tensor<128xbf16>) -> tensor<1024xbf16> {
  %0 = zero.from_local %w : tensor<128xbf16>
      to <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {id = 0,
      kind = "all_gather", role = "weight", weight = 0}}
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
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {floor = "i8",
      id = 0, kind = "all_gather", role = "weight", weight = 0}}
      : <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
      to <1024xbf16, dim 0 = (2, 4) on #mesh>
  %2 = zero.to_local %1 : <1024xbf16, dim 0 = (2, 4) on #mesh>
      to tensor<1024xbf16>
  return %2 : tensor<1024xbf16>
}
