// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=0 --remarks-filter=none --split-input-file | FileCheck %s

// What XLA folds into a start or wait, or would copy for it, is not tied through
// it: slices and arguments, whatever their shape is afterwards.

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

// CHECK-LABEL: func @held
func.func @held(%x: tensor<16x4xf32>, %y: tensor<4x32xf32>, %stack: tensor<8x32x32xf32>, %i: tensor<i32>) -> (tensor<2x32xf32>, tensor<4x32xf32>) {
  // CHECK: %[[ROW:.*]] = stablehlo.dynamic_slice %arg2
  // CHECK: %[[HELD:.*]] = stablehlo.reshape %[[ROW]]
  // CHECK: %[[BEHIND:.*]] = stablehlo.optimization_barrier %[[HELD]]
  // CHECK: %[[D:.*]] = "stablehlo.dot_general"
  // CHECK: zero.start @zpp_host::@scatter(%[[D]]) {
  // CHECK: "stablehlo.dot_general"(%arg1, %[[BEHIND]])
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %row = stablehlo.dynamic_slice %stack, %i, %zero, %zero, sizes = [1, 32, 32] : (tensor<8x32x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x32x32xf32>
  %matrix = stablehlo.reshape %row : (tensor<1x32x32xf32>) -> tensor<32x32xf32>
  %held = stablehlo.optimization_barrier %matrix : tensor<32x32xf32>
  %d = "stablehlo.dot_general"(%x, %y) : (tensor<16x4xf32>, tensor<4x32xf32>) -> tensor<16x32xf32>
  %0 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
  %1 = zero.wait %0 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
  %b = "stablehlo.dot_general"(%y, %held) : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  return %1, %b : tensor<2x32xf32>, tensor<4x32xf32>
}

// -----

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

// A cast of a slice is computed: its result has memory of its own.

// CHECK-LABEL: func @cast
func.func @cast(%x: tensor<16x4xf32>, %y: tensor<4x32xf32>, %stack: tensor<64x32xbf16>) -> (tensor<2x32xf32>, tensor<4x32xf32>) {
  // CHECK: %[[CAST:.*]] = stablehlo.convert
  // CHECK: %[[D:.*]] = "stablehlo.dot_general"
  // CHECK: %{{.*}}, %[[TIED:.*]] = zero.start @zpp_host::@scatter(%[[D]]) ties(%[[CAST]] :
  // CHECK: "stablehlo.dot_general"(%arg1, %[[TIED]])
  %part = stablehlo.slice %stack [0:32, 0:32] : (tensor<64x32xbf16>) -> tensor<32x32xbf16>
  %cast = stablehlo.convert %part : (tensor<32x32xbf16>) -> tensor<32x32xf32>
  %d = "stablehlo.dot_general"(%x, %y) : (tensor<16x4xf32>, tensor<4x32xf32>) -> tensor<16x32xf32>
  %0 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
  %1 = zero.wait %0 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
  %b = "stablehlo.dot_general"(%y, %cast) : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  return %1, %b : tensor<2x32xf32>, tensor<4x32xf32>
}

// -----

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

// A weight of the step, which its update may read, and one that a loop keeps for
// its next iteration; in the loop, what it hands on to that is tied.
// CHECK-LABEL: func @arguments
func.func @arguments(%x: tensor<16x4xf32>, %y: tensor<4x32xf32>, %w: tensor<32x32xf32>) -> (tensor<2x32xf32>, tensor<4x32xf32>, tensor<4x32xf32>) {
  // CHECK: %[[WEIGHT:.*]] = stablehlo.optimization_barrier %arg2
  // CHECK: %[[D:.*]] = "stablehlo.dot_general"
  // CHECK: zero.start @zpp_host::@scatter(%[[D]]) {
  // CHECK: "stablehlo.dot_general"(%arg1, %[[WEIGHT]])
  // CHECK: stablehlo.while(%{{.*}} = {{[^,]+}}, %[[CARRIED:[^ ]+]] = {{[^,]+}}, %[[KEPT:[^ ]+]] = {{[^,]+}}, %{{.*}} = {{[^,]+}})
  // CHECK: } do {
  // CHECK: %[[BARRED:.*]]:2 = stablehlo.optimization_barrier %[[CARRIED]], %[[KEPT]]
  // CHECK: %{{.*}}, %[[TIED:.*]] = zero.start @zpp_host::@scatter(%{{.*}}) ties(%[[BARRED]]#0
  // CHECK: "stablehlo.dot_general"(%[[TIED]], %[[BARRED]]#1)
  %held = stablehlo.optimization_barrier %w : tensor<32x32xf32>
  %d = "stablehlo.dot_general"(%x, %y) : (tensor<16x4xf32>, tensor<4x32xf32>) -> tensor<16x32xf32>
  %0 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
  %1 = zero.wait %0 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
  %b = "stablehlo.dot_general"(%y, %held) : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %2:4 = stablehlo.while(%i = %c0, %z = %b, %v = %w, %g = %1) : tensor<i32>, tensor<4x32xf32>, tensor<32x32xf32>, tensor<2x32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %z1, %v1 = stablehlo.optimization_barrier %z, %v : tensor<4x32xf32>, tensor<32x32xf32>
    %e = "stablehlo.dot_general"(%x, %y) : (tensor<16x4xf32>, tensor<4x32xf32>) -> tensor<16x32xf32>
    %3 = zero.start @zpp_host::@scatter(%e) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %4 = zero.wait %3 from(%e : tensor<16x32xf32>) : tensor<2x32xf32>
    %h = "stablehlo.dot_general"(%z1, %v1) : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %h, %v, %4 : tensor<i32>, tensor<4x32xf32>, tensor<32x32xf32>, tensor<2x32xf32>
  }
  return %2#3, %b, %2#1 : tensor<2x32xf32>, tensor<4x32xf32>, tensor<4x32xf32>
}
