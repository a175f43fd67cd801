// RUN: zpp-opt %s --zero-write-loops=layers --verify-diagnostics
// Only that pass expects a schedule.
// RUN: zpp-opt %s --zero-coalesce-collectives -o /dev/null

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}

func.func @layers(%x: tensor<2x32xf32>) -> tensor<2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<2x32xf32>
  cond {
    %c = stablehlo.compare LT, %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // expected-error@below {{expected 1 zero.wait to read its outputs, but got 0}}
    %0 = zero.start @zpp_host::@gather(%a) {origins = [{role = "gradient"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %a : tensor<i32>, tensor<2x32xf32>
  }
  return %r#1 : tensor<2x32xf32>
}
