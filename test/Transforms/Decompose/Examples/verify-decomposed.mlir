// What `zero-verify-decomposed` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-verify-decomposed --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e :
        tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into
        tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}
func.func @step(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
  %0 = zero.start @zpp_host::@gather(%x) : (tensor<2x32xf32>) ->
      tensor<16x32xf32>
  %1 = zero.wait %0 from(%x : tensor<2x32xf32>) : tensor<16x32xf32>
  return %1 : tensor<16x32xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%arg0: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %0 = tensor.empty() : tensor<8x2x32xf32>
    %1 = zero.all_gather_chunks %arg0 along ["gpu"] on #mesh into %0 :
        tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %collapsed = tensor.collapse_shape %1 [[0, 1], [2]] : tensor<8x2x32xf32>
        into tensor<16x32xf32>
    return %collapsed : tensor<16x32xf32>
  }
}
func.func @step(%arg0: tensor<2x32xf32>) -> tensor<16x32xf32> {
  %outputs = zero.start @zpp_host::@gather(%arg0) : (tensor<2x32xf32>) ->
      tensor<16x32xf32>
  %outputs_0 = zero.wait %outputs from(%arg0 : tensor<2x32xf32>) :
      tensor<16x32xf32>
  return %outputs_0 : tensor<16x32xf32>
}
