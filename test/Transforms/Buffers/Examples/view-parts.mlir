// What `zero-view-parts` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-view-parts=max-slices=1 --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"gpu" = 4>
func.func @parts(%x: tensor<1x160xi8>, %a: tensor<4x64xf32>,
    %b: tensor<4x64xf32>) -> (tensor<4x64xf32>, tensor<4x64xf32>) {
  %empty = tensor.empty() : tensor<4x1x160xi8>
  %all = zero.all_gather_chunks %x along ["gpu"] on #mesh into %empty :
      tensor<1x160xi8> into tensor<4x1x160xi8> -> tensor<4x1x160xi8>
  %0 = tensor.extract_slice %all[0, 0, 0] [4, 1, 80] [1, 1, 1] :
      tensor<4x1x160xi8> to tensor<4x80xi8>
  %1 = zero.dequantize %0 quant <i8, block = 64> into %a :
      tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %2 = tensor.extract_slice %all[0, 0, 80] [4, 1, 80] [1, 1, 1] :
      tensor<4x1x160xi8> to tensor<4x80xi8>
  %3 = zero.dequantize %2 quant <i8, block = 64> into %b :
      tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  return %1, %3 : tensor<4x64xf32>, tensor<4x64xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"gpu" = 4>
func.func @parts(%x: tensor<1x160xi8>, %a: tensor<4x64xf32>,
    %b: tensor<4x64xf32>) -> (tensor<4x64xf32>, tensor<4x64xf32>) {
  %empty = tensor.empty() : tensor<4x1x160xi8>
  %all = zero.all_gather_chunks %x along ["gpu"] on #mesh into %empty :
      tensor<1x160xi8> into tensor<4x1x160xi8> -> tensor<4x1x160xi8>
  %buffer = bufferization.to_buffer %all read_only : tensor<4x1x160xi8> to
      memref<4x1x160xi8>
  %view = memref.subview %buffer[0, 0, 0] [4, 1, 80] [1, 1, 1] :
      memref<4x1x160xi8> to memref<4x80xi8, strided<[160, 1]>>
  %0 = bufferization.to_tensor %view restrict :
      memref<4x80xi8, strided<[160, 1]>> to tensor<4x80xi8>
  %1 = zero.dequantize %0 quant <i8, block = 64> into %a :
      tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %view_0 = memref.subview %buffer[0, 0, 80] [4, 1, 80] [1, 1, 1] :
      memref<4x1x160xi8> to
      memref<4x80xi8, strided<[160, 1], offset: 80>>
  %2 = bufferization.to_tensor %view_0 restrict :
      memref<4x80xi8, strided<[160, 1], offset: 80>> to tensor<4x80xi8>
  %3 = zero.dequantize %2 quant <i8, block = 64> into %b :
      tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  return %1, %3 : tensor<4x64xf32>, tensor<4x64xf32>
}
