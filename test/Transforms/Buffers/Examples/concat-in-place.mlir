// What `zero-concat-in-place` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-concat-in-place --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
func.func @join(%x: tensor<2x256xf32>, %y: tensor<2x256xf32>)
    -> tensor<2x544xi8> {
  %e = tensor.empty() : tensor<2x272xi8>
  %0 = zero.quantize %x quant <i8, block = 128> into %e
      : tensor<2x256xf32> into tensor<2x272xi8> -> tensor<2x272xi8>
  %f = tensor.empty() : tensor<2x272xi8>
  %1 = zero.quantize %y quant <i8, block = 128> into %f
      : tensor<2x256xf32> into tensor<2x272xi8> -> tensor<2x272xi8>
  %2 = tensor.concat dim(1) %0, %1 : (tensor<2x272xi8>, tensor<2x272xi8>)
      -> tensor<2x544xi8>
  return %2 : tensor<2x544xi8>
}

//--- output.mlir
func.func @join(%arg0: tensor<2x256xf32>, %arg1: tensor<2x256xf32>)
    -> tensor<2x544xi8> {
  %0 = tensor.empty() : tensor<2x544xi8>
  %1 = tensor.empty() : tensor<2x272xi8>
  %2 = zero.quantize %arg0 quant <i8, block = 128> into %1
      : tensor<2x256xf32> into tensor<2x272xi8> -> tensor<2x272xi8>
  %inserted_slice = tensor.insert_slice %2 into %0[0, 0] [2, 272] [1, 1]
      : tensor<2x272xi8> into tensor<2x544xi8>
  %3 = tensor.empty() : tensor<2x272xi8>
  %4 = zero.quantize %arg1 quant <i8, block = 128> into %3
      : tensor<2x256xf32> into tensor<2x272xi8> -> tensor<2x272xi8>
  %inserted_slice_0 = tensor.insert_slice %4
      into %inserted_slice[0, 272] [2, 272] [1, 1] : tensor<2x272xi8>
      into tensor<2x544xi8>
  return %inserted_slice_0 : tensor<2x544xi8>
}
