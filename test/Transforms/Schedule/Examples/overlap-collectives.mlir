// What `zero-overlap-collectives` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-overlap-collectives=prefetch-bytes=2048 --remarks-filter=none | diff %t/expected.mlir -

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
func.func @forward(%x: tensor<4x16xf32>, %v: tensor<2x32xf32>) ->
    tensor<4x32xf32> {
  %0 = stablehlo.tanh %x : tensor<4x16xf32>
  %1 = stablehlo.dot_general %0, %x, contracting_dims = [1] x [1] : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x4xf32>
  %2 = stablehlo.dot_general %1, %x, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
  %3 = zero.start @zpp_host::@gather(%v) {origins = [{role = "weight"} ]} :
      (tensor<2x32xf32>) -> tensor<16x32xf32>
  %4 = zero.wait %3 from(%v : tensor<2x32xf32>) : tensor<16x32xf32>
  %5 = stablehlo.dot_general %2, %4, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  return %5 : tensor<4x32xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"gpu" = 8>
module attributes {zpp.prefetch_bytes = 2048 : i64} {
  module @zpp_host {
    func.func @gather(%arg0: tensor<2x32xf32>) -> tensor<16x32xf32> {
      %0 = tensor.empty() : tensor<8x2x32xf32>
      %1 = zero.all_gather_chunks %arg0 along ["gpu"] on #mesh into %0 : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
      %collapsed = tensor.collapse_shape %1 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
      return %collapsed : tensor<16x32xf32>
    }
  }
  func.func @forward(%arg0: tensor<4x16xf32>, %arg1: tensor<2x32xf32>) -> tensor<4x32xf32> {
    %0 = stablehlo.tanh %arg0 : tensor<4x16xf32>
    %outputs, %tied = zero.start @zpp_host::@gather(%arg1) ties(%0 : tensor<4x16xf32>) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
    %1 = stablehlo.dot_general %tied, %arg0, contracting_dims = [1] x [1] : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x4xf32>
    %2 = stablehlo.dot_general %1, %arg0, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
    %outputs_0, %tied_1 = zero.wait %outputs from(%arg1 : tensor<2x32xf32>) ties(%2 : tensor<4x16xf32>) : tensor<16x32xf32>
    %3 = stablehlo.dot_general %tied_1, %outputs_0, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
    return %3 : tensor<4x32xf32>
  }
}
