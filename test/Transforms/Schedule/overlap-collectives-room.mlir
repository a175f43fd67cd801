// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=2400 --remarks-filter=none | FileCheck %s

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @scatter(%x: tensor<16x32xf32>) -> tensor<2x32xf32> {
    %0 = tensor.expand_shape %x [[0, 1], [2]] output_shape [8, 2, 32] : tensor<16x32xf32> into tensor<8x2x32xf32>
    %e = tensor.empty() : tensor<8x2x32xf32>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e : tensor<8x2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %f = tensor.empty() : tensor<2x32xf32>
    %2 = zero.reduce sum %1 into %f : tensor<8x2x32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
    return %2 : tensor<2x32xf32>
  }
}

// Two gradients are there before the same product, and only one fits: the first
// one is waited for after its start.

// CHECK-LABEL: func @at_once
// CHECK: %[[S:[^,]*]], {{.*}} = zero.start @zpp_host::@scatter
// CHECK: zero.wait %[[S]] 
// CHECK: %[[T:[^,]*]], {{.*}} = zero.start @zpp_host::@scatter
// CHECK: "stablehlo.dot_general"
// CHECK: zero.wait %[[T]] 
func.func @at_once(%x: tensor<16x32xf32>) -> (tensor<2x32xf32>, tensor<2x32xf32>, tensor<16x32xf32>) {
  %0 = stablehlo.tanh %x : tensor<16x32xf32>
  %1 = zero.start @zpp_host::@scatter(%0) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
  %2 = zero.wait %1 from(%0 : tensor<16x32xf32>) : tensor<2x32xf32>
  %3 = zero.start @zpp_host::@scatter(%0) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
  %4 = zero.wait %3 from(%0 : tensor<16x32xf32>) : tensor<2x32xf32>
  %5 = "stablehlo.dot_general"(%x, %0) : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<16x32xf32>
  return %2, %4, %5 : tensor<2x32xf32>, tensor<2x32xf32>, tensor<16x32xf32>
}
