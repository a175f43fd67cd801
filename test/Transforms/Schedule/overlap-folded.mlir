// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=2048 --remarks-filter=none | FileCheck %s

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}

// A product reads a transpose through a reshape, as behind XLA's
// simplifications. XLA folds both into the product, unless a start ties them: a
// tied value is materialized. The other operand is tied.

// CHECK-LABEL: func @folded
// CHECK-SAME: (%[[X:.*]]: tensor<2x2x16xf32>, %[[W:.*]]: tensor<2x32xf32>)
func.func @folded(%x: tensor<2x2x16xf32>, %w: tensor<2x32xf32>) -> tensor<16x32xf32> {
  // CHECK: %[[DY:.*]] = stablehlo.tanh %[[X]]
  // CHECK: %[[ROWS:.*]] = stablehlo.reshape %[[DY]]
  %dy = stablehlo.tanh %x : tensor<2x2x16xf32>
  %rows = stablehlo.reshape %dy : (tensor<2x2x16xf32>) -> tensor<4x16xf32>
  %h = stablehlo.exponential %x : tensor<2x2x16xf32>
  %t = stablehlo.transpose %h, dims = [2, 0, 1] : (tensor<2x2x16xf32>) -> tensor<16x2x2xf32>
  // CHECK: %[[T:.*]] = stablehlo.reshape {{.*}} : (tensor<16x2x2xf32>) -> tensor<16x4xf32>
  // CHECK: %{{.*}}, %[[TIED:.*]] = zero.start @zpp_host::@gather(%[[W]]) ties(%[[ROWS]] : tensor<4x16xf32>)
  %columns = stablehlo.reshape %t : (tensor<16x2x2xf32>) -> tensor<16x4xf32>
  // CHECK: "stablehlo.dot_general"(%[[T]], %[[TIED]])
  %product = "stablehlo.dot_general"(%columns, %rows) : (tensor<16x4xf32>, tensor<4x16xf32>) -> tensor<16x16xf32>
  %start = zero.start @zpp_host::@gather(%w) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %whole = zero.wait %start from(%w : tensor<2x32xf32>) : tensor<16x32xf32>
  %y = "stablehlo.dot_general"(%product, %whole) : (tensor<16x16xf32>, tensor<16x32xf32>) -> tensor<16x32xf32>
  return %y : tensor<16x32xf32>
}
