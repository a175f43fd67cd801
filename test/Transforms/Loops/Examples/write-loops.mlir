// What `zero-write-loops` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-write-loops=layers --remarks-filter=none | diff %t/expected.mlir -

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
func.func @layers(%x: tensor<4x16xf32>, %w: tensor<2x2x32xf32>, %v:
    tensor<32x16xf32>) -> tensor<4x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %s = %w) : tensor<i32>, tensor<4x16xf32>, tensor<2x2x32xf32>
  attributes {zpp.loop = {layers = 2 : i64}}
  cond {
    %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %0 = stablehlo.dynamic_slice %s, %i, %zero, %zero, sizes = [1, 2, 32] : (tensor<2x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"} ]} :
        (tensor<2x32xf32>) -> tensor<16x32xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x32xf32>) : tensor<16x32xf32>
    %4 = stablehlo.dot_general %a, %3, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
    %5 = stablehlo.dot_general %4, %v, contracting_dims = [1] x [0] : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %5, %s : tensor<i32>, tensor<4x16xf32>, tensor<2x2x32xf32>
  }
  return %r#1 : tensor<4x16xf32>
}

//--- output.mlir
#mesh = #zero.mesh<"gpu" = 8>
module {
  module @zpp_host {
    func.func @gather(%arg0: tensor<2x32xf32>) -> tensor<16x32xf32> {
      %0 = tensor.empty() : tensor<8x2x32xf32>
      %1 = zero.all_gather_chunks %arg0 along ["gpu"] on #mesh into %0 : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
      %collapsed = tensor.collapse_shape %1 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
      return %collapsed : tensor<16x32xf32>
    }
  }
  func.func @layers(%arg0: tensor<4x16xf32>, %arg1: tensor<2x2x32xf32>, %arg2: tensor<32x16xf32>) -> tensor<4x16xf32> {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %1:2 = stablehlo.optimization_barrier %0, %arg1 : tensor<i32>, tensor<2x2x32xf32>
    %2 = stablehlo.constant dense<1> : tensor<i32>
    %3:2 = stablehlo.optimization_barrier %2, %arg1 : tensor<i32>, tensor<2x2x32xf32>
    %4 = stablehlo.constant dense<0> : tensor<i32>
    %5 = stablehlo.constant dense<2> : tensor<i32>
    %6 = stablehlo.dynamic_slice %1#1, %1#0, %4, %4, sizes = [1, 2, 32] : (tensor<2x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
    %7 = stablehlo.reshape %6 : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
    %outputs = zero.start @zpp_host::@gather(%7) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
    %outputs_0 = zero.wait %outputs from(%7 : tensor<2x32xf32>) : tensor<16x32xf32>
    %8 = stablehlo.dot_general %arg0, %outputs_0, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
    %9 = stablehlo.dot_general %8, %arg2, contracting_dims = [1] x [0] : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
    %10 = stablehlo.dynamic_slice %3#1, %3#0, %4, %4, sizes = [1, 2, 32] : (tensor<2x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
    %11 = stablehlo.reshape %10 : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
    %outputs_1 = zero.start @zpp_host::@gather(%11) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
    %outputs_2 = zero.wait %outputs_1 from(%11 : tensor<2x32xf32>) : tensor<16x32xf32>
    %12 = stablehlo.dot_general %9, %outputs_2, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
    %13 = stablehlo.dot_general %12, %arg2, contracting_dims = [1] x [0] : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
    return %13 : tensor<4x16xf32>
  }
}
