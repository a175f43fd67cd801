// What `zero-reorder-slices` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-reorder-slices --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%g: tensor<1024xf32>) -> tensor<4x256xf32> {
  %e = tensor.empty() : tensor<4x256xf32>
  %0 = zero.all_to_all %g
      along ["gpu"] on #mesh slices
      <dim = 0, factors = [2, 4], chunk = [1]> wire <i8, block = 128>
      into %e : tensor<1024xf32> into tensor<4x256xf32>
      -> tensor<4x256xf32>
  return %0 : tensor<4x256xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%arg0: tensor<1024xf32>) -> tensor<4x256xf32> {
  %0 = tensor.empty() : tensor<4x256xf32>
  %1 = tensor.empty() : tensor<4x256xf32>
  %2 = zero.pack_slices %arg0 slices
      <dim = 0, factors = [2, 4], chunk = [1]> into %1 : tensor<1024xf32>
      into tensor<4x256xf32> -> tensor<4x256xf32>
  %3 = zero.all_to_all %2 along ["gpu"] on #mesh wire <i8, block = 128>
      into %0 : tensor<4x256xf32> into tensor<4x256xf32>
      -> tensor<4x256xf32>
  return %3 : tensor<4x256xf32>
}
