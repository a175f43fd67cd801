// What `zero-rotate-loops` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-rotate-loops=min-trips=2 --remarks-filter=none | diff %t/expected.mlir -

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
func.func @layers(%x: tensor<4x16xf32>, %w: tensor<3x2x32xf32>, %v:
    tensor<32x16xf32>) -> tensor<4x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %s = %w) : tensor<i32>, tensor<4x16xf32>, tensor<3x2x32xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %0 = stablehlo.dynamic_slice %s, %i, %zero, %zero, sizes = [1, 2, 32] : (tensor<3x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"} ]}
        : (tensor<2x32xf32>) -> tensor<16x32xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x32xf32>) : tensor<16x32xf32>
    %4 = stablehlo.dot_general %a, %3, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
    %5 = stablehlo.dot_general %4, %v, contracting_dims = [1] x [0] : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %5, %s : tensor<i32>, tensor<4x16xf32>, tensor<3x2x32xf32>
  }
  return %r#1 : tensor<4x16xf32>
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
func.func @layers(%arg0: tensor<4x16xf32>, %arg1: tensor<3x2x32xf32>, %arg2:
    tensor<32x16xf32>) -> tensor<4x16xf32> {
  %0 = stablehlo.constant dense<0> : tensor<i32>
  %1 = stablehlo.constant dense<1> : tensor<i32>
  %2 = stablehlo.constant dense<3> : tensor<i32>
  %3 = stablehlo.dynamic_slice %arg1, %0, %0, %0, sizes = [1, 2, 32] : (tensor<3x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
  %4 = stablehlo.reshape %3 : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
  %outputs = zero.start @zpp_host::@gather(%4) {origins = [{role = "weight"}
      ]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %outputs_0 = zero.wait %outputs from(%4 : tensor<2x32xf32>) :
      tensor<16x32xf32>
  %5:4 = stablehlo.while(%arg3 = %0, %arg4 = %arg0, %arg5 = %arg1, %arg6 = %outputs_0) : tensor<i32>, tensor<4x16xf32>, tensor<3x2x32xf32>, tensor<16x32xf32>
  cond {
    %6 = stablehlo.compare LT, %arg3, %2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %6 : tensor<i1>
  } do {
    %6 = stablehlo.add %arg3, %1 : tensor<i32>
    %7 = stablehlo.dynamic_slice %arg5, %6, %0, %0, sizes = [1, 2, 32] : (tensor<3x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
    %8 = stablehlo.reshape %7 : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
    %outputs_1 = zero.start @zpp_host::@gather(%8) {origins = [{role =
        "weight"} ]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
    %outputs_2 = zero.wait %outputs_1 from(%8 : tensor<2x32xf32>) :
        tensor<16x32xf32>
    %9 = stablehlo.dot_general %arg4, %arg6, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
    %10 = stablehlo.dot_general %9, %arg2, contracting_dims = [1] x [0] : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
    %11 = stablehlo.add %arg3, %1 : tensor<i32>
    stablehlo.return %11, %10, %arg5, %outputs_2 : tensor<i32>, tensor<4x16xf32>, tensor<3x2x32xf32>, tensor<16x32xf32>
  }
  return %5#1 : tensor<4x16xf32>
}
