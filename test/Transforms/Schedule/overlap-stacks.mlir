// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=2048 --remarks-filter=none --split-input-file | FileCheck %s

// XLA would read all layers of a stack as soon as it is there, and keep what it
// has read until it is sent. So each is read after a barrier, through which the
// value passes that keeps the start in its place.

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}

// CHECK-LABEL: func @layers
// CHECK-SAME: (%[[X:.*]]: tensor<32x16xf32>, %[[Z:.*]]: tensor<32x16xf32>, %[[STACK:.*]]: tensor<3x2x32xf32>, %[[I:.*]]: tensor<i32>, %[[J:.*]]: tensor<i32>, %[[K:.*]]: tensor<i32>)
func.func @layers(%x: tensor<32x16xf32>, %z: tensor<32x16xf32>, %stack: tensor<3x2x32xf32>, %i: tensor<i32>, %j: tensor<i32>, %k: tensor<i32>) -> tensor<32x32xf32> {
  // Nothing keeps the first two in their places.
  // CHECK: stablehlo.dynamic_slice %[[STACK]], %[[I]],
  // CHECK: zero.start @zpp_host::@gather(%{{.*}}) {
  // CHECK: stablehlo.dynamic_slice %[[STACK]], %[[J]],
  // CHECK: zero.start @zpp_host::@gather(%{{.*}}) {
  // CHECK: %[[A:.*]] = "stablehlo.dot_general"(%{{.*}}, %[[Z]])
  // CHECK: %[[B:.*]]:2 = stablehlo.optimization_barrier %[[STACK]], %[[A]]
  // CHECK: %[[ROW:.*]] = stablehlo.dynamic_slice %[[B]]#0, %[[K]],
  // CHECK: %[[W:.*]] = stablehlo.reshape %[[ROW]]
  // CHECK: %{{.*}}, %[[TIED:.*]] = zero.start @zpp_host::@gather(%[[W]]) ties(%[[B]]#1 :
  // CHECK: "stablehlo.dot_general"(%[[TIED]],
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %row0 = stablehlo.dynamic_slice %stack, %i, %zero, %zero, sizes = [1, 2, 32] : (tensor<3x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
  %w0 = stablehlo.reshape %row0 : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
  %s0 = zero.start @zpp_host::@gather(%w0) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %g0 = zero.wait %s0 from(%w0 : tensor<2x32xf32>) : tensor<16x32xf32>
  %a0 = "stablehlo.dot_general"(%x, %g0) : (tensor<32x16xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %b0 = "stablehlo.dot_general"(%a0, %z) : (tensor<32x32xf32>, tensor<32x16xf32>) -> tensor<32x16xf32>
  %row1 = stablehlo.dynamic_slice %stack, %j, %zero, %zero, sizes = [1, 2, 32] : (tensor<3x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
  %w1 = stablehlo.reshape %row1 : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
  %s1 = zero.start @zpp_host::@gather(%w1) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %g1 = zero.wait %s1 from(%w1 : tensor<2x32xf32>) : tensor<16x32xf32>
  %a1 = "stablehlo.dot_general"(%b0, %g1) : (tensor<32x16xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %b1 = "stablehlo.dot_general"(%a1, %z) : (tensor<32x32xf32>, tensor<32x16xf32>) -> tensor<32x16xf32>
  %row2 = stablehlo.dynamic_slice %stack, %k, %zero, %zero, sizes = [1, 2, 32] : (tensor<3x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
  %w2 = stablehlo.reshape %row2 : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
  %s2 = zero.start @zpp_host::@gather(%w2) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %g2 = zero.wait %s2 from(%w2 : tensor<2x32xf32>) : tensor<16x32xf32>
  %a2 = "stablehlo.dot_general"(%b1, %g2) : (tensor<32x16xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  return %a2 : tensor<32x32xf32>
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

// The only layer that is read of a stack, as in the body of a loop, needs none.

// CHECK-LABEL: func @one
func.func @one(%x: tensor<32x16xf32>, %z: tensor<32x16xf32>, %stack: tensor<3x2x32xf32>, %k: tensor<i32>, %v0: tensor<2x32xf32>, %v1: tensor<2x32xf32>) -> tensor<32x32xf32> {
  // CHECK-NOT: optimization_barrier
  // CHECK: stablehlo.dynamic_slice %arg2,
  // CHECK-NOT: optimization_barrier
  // CHECK: zero.start {{.*}} ties(
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %s0 = zero.start @zpp_host::@gather(%v0) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %g0 = zero.wait %s0 from(%v0 : tensor<2x32xf32>) : tensor<16x32xf32>
  %a0 = "stablehlo.dot_general"(%x, %g0) : (tensor<32x16xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %b0 = "stablehlo.dot_general"(%a0, %z) : (tensor<32x32xf32>, tensor<32x16xf32>) -> tensor<32x16xf32>
  %s1 = zero.start @zpp_host::@gather(%v1) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %g1 = zero.wait %s1 from(%v1 : tensor<2x32xf32>) : tensor<16x32xf32>
  %a1 = "stablehlo.dot_general"(%b0, %g1) : (tensor<32x16xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %b1 = "stablehlo.dot_general"(%a1, %z) : (tensor<32x32xf32>, tensor<32x16xf32>) -> tensor<32x16xf32>
  %row2 = stablehlo.dynamic_slice %stack, %k, %zero, %zero, sizes = [1, 2, 32] : (tensor<3x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
  %w2 = stablehlo.reshape %row2 : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
  %s2 = zero.start @zpp_host::@gather(%w2) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %g2 = zero.wait %s2 from(%w2 : tensor<2x32xf32>) : tensor<16x32xf32>
  %a2 = "stablehlo.dot_general"(%b1, %g2) : (tensor<32x16xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  return %a2 : tensor<32x32xf32>
}

// -----

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>, %y: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %s = arith.addf %x, %y : tensor<2x32xf32>
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %s along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}

// A stack that is cast for one start alone is not there before. Only the cast comes
// after the barrier.

// CHECK-LABEL: func @cast
// CHECK: %[[B:.*]]:2 = stablehlo.optimization_barrier %arg2, %{{.*}}
// CHECK: %[[CAST:.*]] = stablehlo.convert %[[B]]#0
// CHECK: stablehlo.dynamic_slice %[[CAST]],
// CHECK: stablehlo.dynamic_slice %[[CAST]],
// CHECK: zero.start {{.*}} ties(%[[B]]#1 :
func.func @cast(%x: tensor<32x16xf32>, %z: tensor<32x16xf32>, %stack: tensor<1x2x32xbf16>, %i: tensor<i32>, %j: tensor<i32>, %v0: tensor<2x32xf32>, %v1: tensor<2x32xf32>) -> tensor<32x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %s0 = zero.start @zpp_host::@gather(%v0, %v0) {origins = [{role = "weight"}]} : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<16x32xf32>
  %g0 = zero.wait %s0 from(%v0, %v0 : tensor<2x32xf32>, tensor<2x32xf32>) : tensor<16x32xf32>
  %a0 = "stablehlo.dot_general"(%x, %g0) : (tensor<32x16xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %b0 = "stablehlo.dot_general"(%a0, %z) : (tensor<32x32xf32>, tensor<32x16xf32>) -> tensor<32x16xf32>
  %s1 = zero.start @zpp_host::@gather(%v1, %v1) {origins = [{role = "weight"}]} : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<16x32xf32>
  %g1 = zero.wait %s1 from(%v1, %v1 : tensor<2x32xf32>, tensor<2x32xf32>) : tensor<16x32xf32>
  %a1 = "stablehlo.dot_general"(%b0, %g1) : (tensor<32x16xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %b1 = "stablehlo.dot_general"(%a1, %z) : (tensor<32x32xf32>, tensor<32x16xf32>) -> tensor<32x16xf32>
  %again = stablehlo.optimization_barrier %v0 : tensor<2x32xf32>
  %cast = stablehlo.convert %stack : (tensor<1x2x32xbf16>) -> tensor<1x2x32xf32>
  %row0 = stablehlo.dynamic_slice %cast, %i, %zero, %zero, sizes = [1, 2, 32] : (tensor<1x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
  %w0 = stablehlo.reshape %row0 : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
  %row1 = stablehlo.dynamic_slice %cast, %j, %zero, %zero, sizes = [1, 2, 32] : (tensor<1x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
  %w1 = stablehlo.reshape %row1 : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
  %sum = stablehlo.add %w0, %w1 : tensor<2x32xf32>
  %s2 = zero.start @zpp_host::@gather(%sum, %again) {origins = [{role = "weight"}]} : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<16x32xf32>
  %g2 = zero.wait %s2 from(%sum, %again : tensor<2x32xf32>, tensor<2x32xf32>) : tensor<16x32xf32>
  %a2 = "stablehlo.dot_general"(%b1, %g2) : (tensor<32x16xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  return %a2 : tensor<32x32xf32>
}
