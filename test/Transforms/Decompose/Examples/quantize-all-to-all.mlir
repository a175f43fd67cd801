// What `zero-quantize-all-to-all` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-quantize-all-to-all --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%g: tensor<4x256xf32>) -> tensor<4x256xf32> {
  %e = tensor.empty() : tensor<4x256xf32>
  %0 = zero.all_to_all %g along ["gpu"] on #mesh wire <i8, block = 128>
      into %e : tensor<4x256xf32> into tensor<4x256xf32>
      -> tensor<4x256xf32>
  return %0 : tensor<4x256xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
func.func @step(%arg0: tensor<4x256xf32>) -> tensor<4x256xf32> {
  %0 = tensor.empty() : tensor<4x272xi8>
  %1 = zero.quantize %arg0 quant <i8, block = 128> into %0
      : tensor<4x256xf32> into tensor<4x272xi8> -> tensor<4x272xi8>
  %2 = tensor.empty() : tensor<4x272xi8>
  %3 = zero.all_to_all %1 along ["gpu"] on #mesh into %2
      : tensor<4x272xi8> into tensor<4x272xi8> -> tensor<4x272xi8>
  %4 = tensor.empty() : tensor<4x256xf32>
  %5 = zero.dequantize %3 quant <i8, block = 128> into %4
      : tensor<4x272xi8> into tensor<4x256xf32> -> tensor<4x256xf32>
  return %5 : tensor<4x256xf32>
}
