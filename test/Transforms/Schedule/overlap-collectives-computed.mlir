// RUN: zpp-opt %s --zero-overlap-collectives --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-overlap-collectives --zero-overlap-collectives --remarks-filter=none --split-input-file | FileCheck %s

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}

// XLA's partitioner adds 1 to a device's part of a weight, just before it
// gathers it. The gather starts before the product, and the sum moves with it.

// CHECK-LABEL: func @plus_one
// CHECK-SAME: (%[[X:.*]]: tensor<4x16xf32>, %[[U:.*]]: tensor<16x16xf32>, %[[W:.*]]: tensor<2x32xbf16>)
// CHECK: %[[CAST:.*]] = stablehlo.convert %[[W]]
// CHECK: %[[ONE:.*]] = stablehlo.constant
// CHECK: %[[ONES:.*]] = stablehlo.broadcast_in_dim %[[ONE]]
// CHECK: %[[SUM:.*]] = stablehlo.add %[[CAST]], %[[ONES]]
// CHECK: zero.start @zpp_host::@gather(%[[SUM]])
// CHECK: "stablehlo.dot_general"
// CHECK: zero.wait
// CHECK: "stablehlo.dot_general"
func.func @plus_one(%x: tensor<4x16xf32>, %u: tensor<16x16xf32>, %w: tensor<2x32xbf16>) -> tensor<4x32xf32> {
  %0 = stablehlo.tanh %x : tensor<4x16xf32>
  %1 = "stablehlo.dot_general"(%0, %u) : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %2 = stablehlo.tanh %1 : tensor<4x16xf32>
  %3 = stablehlo.convert %w : (tensor<2x32xbf16>) -> tensor<2x32xf32>
  %4 = stablehlo.constant dense<1.0> : tensor<f32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
  %6 = stablehlo.add %3, %5 : tensor<2x32xf32>
  %7 = zero.start @zpp_host::@gather(%6) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %8 = zero.wait %7 from(%6 : tensor<2x32xf32>) : tensor<16x32xf32>
  %9 = "stablehlo.dot_general"(%2, %8) : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  return %9 : tensor<4x32xf32>
}

// A constant moves with the start that reads it.

// CHECK-LABEL: func @constant
// CHECK: %[[C:.*]] = stablehlo.constant
// CHECK-NEXT: zero.start @zpp_host::@gather(%[[C]])
// CHECK: "stablehlo.dot_general"
// CHECK: zero.wait
// CHECK: "stablehlo.dot_general"
func.func @constant(%x: tensor<4x16xf32>, %u: tensor<16x16xf32>) -> tensor<4x32xf32> {
  %0 = "stablehlo.dot_general"(%x, %u) : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %1 = stablehlo.tanh %0 : tensor<4x16xf32>
  %2 = stablehlo.constant dense<1.0> : tensor<2x32xf32>
  %3 = zero.start @zpp_host::@gather(%2) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %4 = zero.wait %3 from(%2 : tensor<2x32xf32>) : tensor<16x32xf32>
  %5 = "stablehlo.dot_general"(%1, %4) : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  return %5 : tensor<4x32xf32>
}

// -----

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}

// A weight that a product scales must wait for the product.

// CHECK-LABEL: func @scaled
// CHECK: %[[P:.*]] = "stablehlo.dot_general"
// CHECK: %[[SCALE:.*]] = stablehlo.slice %
// CHECK: %[[SUM:.*]] = stablehlo.add %{{.*}}, %[[SCALE]]
// CHECK: zero.start @zpp_host::@gather(%[[SUM]])
func.func @scaled(%x: tensor<4x16xf32>, %u: tensor<16x32xf32>, %w: tensor<2x32xf32>) -> tensor<4x32xf32> {
  %0 = "stablehlo.dot_general"(%x, %u) : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  %1 = stablehlo.tanh %0 : tensor<4x32xf32>
  %2 = stablehlo.slice %1 [0:2, 0:32] : (tensor<4x32xf32>) -> tensor<2x32xf32>
  %3 = stablehlo.add %w, %2 : tensor<2x32xf32>
  %4 = zero.start @zpp_host::@gather(%3) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %5 = zero.wait %4 from(%3 : tensor<2x32xf32>) : tensor<16x32xf32>
  %6 = "stablehlo.dot_general"(%x, %5) : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  return %6 : tensor<4x32xf32>
}
