// What `zero-fuse-quantization` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-fuse-quantization --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
func.func @step(%g: tensor<1024xf32>) -> tensor<4x272xi8> {
  %e = tensor.empty() : tensor<4x256xf32>
  %0 = zero.pack_slices %g slices <dim = 0, factors = [2, 4], chunk = [1]>
      into %e : tensor<1024xf32> into tensor<4x256xf32>
      -> tensor<4x256xf32>
  %d = tensor.empty() : tensor<4x272xi8>
  %1 = zero.quantize %0 quant <i8, block = 128> into %d
      : tensor<4x256xf32> into tensor<4x272xi8> -> tensor<4x272xi8>
  return %1 : tensor<4x272xi8>
}

//--- output.mlir
func.func @step(%arg0: tensor<1024xf32>) -> tensor<4x272xi8> {
  %0 = tensor.empty() : tensor<4x272xi8>
  %1 = zero.quantize %arg0 quant <i8, block = 128> slices
      <dim = 0, factors = [2, 4], chunk = [1]> into %0 : tensor<1024xf32>
      into tensor<4x272xi8> -> tensor<4x272xi8>
  return %1 : tensor<4x272xi8>
}
