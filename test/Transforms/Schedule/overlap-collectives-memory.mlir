// Ties that keep XLA from holding memory for longer than the original step
// does.

// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=2048 --remarks-filter=none --split-input-file | FileCheck %s

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}

// The second gather of the weight casts it again, when it starts: after the
// value that the start is tied to. What is not cast needs no barrier.

// CHECK-LABEL: func @cast_again
// CHECK-SAME: (%[[X:.*]]: tensor<4x16xf32>, %[[W:.*]]: tensor<2x32xbf16>, %[[U:.*]]: tensor<2x32xf32>)
func.func @cast_again(%x: tensor<4x16xf32>, %w: tensor<2x32xbf16>, %u: tensor<2x32xf32>) -> tensor<4x32xf32> {
  // CHECK-NEXT: %[[A:.*]] = stablehlo.tanh %[[X]]
  // CHECK-NEXT: %[[CAST:.*]] = stablehlo.convert %[[W]]
  // CHECK-NEXT: %[[S:.*]], %[[A1:.*]] = zero.start @zpp_host::@gather(%[[CAST]]) ties(%[[A]] : tensor<4x16xf32>)
  // CHECK-NEXT: %[[B:.*]]:2 = stablehlo.optimization_barrier %[[W]], %[[A1]]
  // CHECK-NEXT: %[[AGAIN:.*]] = stablehlo.convert %[[B]]#0
  // CHECK-NEXT: %[[T:.*]], %[[A2:.*]] = zero.start @zpp_host::@gather(%[[AGAIN]]) ties(%[[B]]#1 : tensor<4x16xf32>)
  // CHECK-NEXT: %[[FIRST:.*]] = zero.wait %[[S]] from(%[[CAST]] : tensor<2x32xf32>)
  // CHECK-NEXT: %[[C:.*]] = "stablehlo.dot_general"(%[[A2]], %[[FIRST]])
  // CHECK-NEXT: stablehlo.optimization_barrier %[[C]] : tensor<4x32xf32>
  // CHECK: zero.start @zpp_host::@gather(%[[U]])
  // CHECK-NEXT: zero.wait %[[T]] from(%[[AGAIN]] : tensor<2x32xf32>)
  // CHECK-NOT: optimization_barrier
  %0 = stablehlo.tanh %x : tensor<4x16xf32>
  %1 = stablehlo.convert %w : (tensor<2x32xbf16>) -> tensor<2x32xf32>
  %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %3 = zero.wait %2 from(%1 : tensor<2x32xf32>) : tensor<16x32xf32>
  %4 = "stablehlo.dot_general"(%0, %3) : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  %5:3 = stablehlo.optimization_barrier %4, %w, %u : tensor<4x32xf32>, tensor<2x32xbf16>, tensor<2x32xf32>
  %6 = stablehlo.tanh %5#0 : tensor<4x32xf32>
  %k = stablehlo.constant dense<1.0> : tensor<32x16xf32>
  %7 = "stablehlo.dot_general"(%6, %k) : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
  %8 = stablehlo.convert %5#1 : (tensor<2x32xbf16>) -> tensor<2x32xf32>
  %9 = zero.start @zpp_host::@gather(%8) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %10 = zero.wait %9 from(%8 : tensor<2x32xf32>) : tensor<16x32xf32>
  %11 = "stablehlo.dot_general"(%7, %10) : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  %12 = zero.start @zpp_host::@gather(%5#2) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %13 = zero.wait %12 from(%5#2 : tensor<2x32xf32>) : tensor<16x32xf32>
  %14 = "stablehlo.dot_general"(%11, %13) : (tensor<4x32xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  return %14 : tensor<4x32xf32>
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

// A gradient that XLA scatters is computed before the next wait and scattered
// after it, together with shape changes and casts of the result. A cast of the
// gradient stays with the gradient. If another op reads the gradient before the
// wait, it is scattered where it was. With it, more would be in flight than
// allowed, so the wait comes after the scatter. An activation, which the
// compute needs, is left alone.

// CHECK-LABEL: func @gradients
func.func @gradients(%x: tensor<16x4xf32>, %y: tensor<4x32xf32>, %w: tensor<2x32xf32>)
    -> (tensor<2x4x8xf32>, tensor<2x32xf32>, tensor<f32>, tensor<32x32xf32>, tensor<16x32xf32>) {
  // CHECK-NEXT: %[[S:.*]] = zero.start
  // CHECK-NEXT: %[[PRODUCT:.*]] = "stablehlo.dot_general"
  // CHECK-NEXT: %[[G:.*]] = stablehlo.convert %[[PRODUCT]]
  // CHECK-NEXT: %[[H:.*]] = "stablehlo.dot_general"
  // CHECK: stablehlo.reduce(%[[H]] init:
  // CHECK: %[[P:.*]] = "stablehlo.reduce_scatter"(%[[H]])
  // CHECK: %[[L:.*]] = "stablehlo.dot_general"
  // CHECK-NEXT: %[[M:.*]] = "stablehlo.all_reduce"(%[[L]])
  // CHECK: %[[T:.*]], %[[M1:.*]] = zero.start @zpp_host::@gather(%{{.*}}) ties(%[[M]] : tensor<16x32xf32>)
  // CHECK-NEXT: %[[W:.*]], %[[G1:.*]]:2 = zero.wait %[[S]] from(%{{.*}}) ties(%[[G]], %[[P]] : tensor<16x32xbf16>, tensor<2x32xf32>)
  // CHECK-NEXT: %[[SHAPE:.*]] = stablehlo.reshape %[[G1]]#0
  // CHECK-NEXT: %[[SUM:.*]] = "stablehlo.reduce_scatter"(%[[SHAPE]])
  // CHECK: stablehlo.convert %[[SUM]]
  // CHECK: "stablehlo.dot_general"(%[[M1]], %[[W]])
  %0 = "stablehlo.dot_general"(%x, %y) : (tensor<16x4xf32>, tensor<4x32xf32>) -> tensor<16x32xf32>
  %1 = stablehlo.convert %0 : (tensor<16x32xf32>) -> tensor<16x32xbf16>
  %shape = stablehlo.reshape %1 : (tensor<16x32xbf16>) -> tensor<16x4x8xbf16>
  %2 = "stablehlo.reduce_scatter"(%shape) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
    %sum = stablehlo.add %a, %b : tensor<bf16>
    stablehlo.return %sum : tensor<bf16>
  }) : (tensor<16x4x8xbf16>) -> tensor<2x4x8xbf16>
  %cast = stablehlo.convert %2 : (tensor<2x4x8xbf16>) -> tensor<2x4x8xf32>
  %3 = "stablehlo.dot_general"(%x, %y) : (tensor<16x4xf32>, tensor<4x32xf32>) -> tensor<16x32xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x32xf32>, tensor<f32>) -> tensor<f32>
  %5 = "stablehlo.reduce_scatter"(%3) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<16x32xf32>) -> tensor<2x32xf32>
  %6 = "stablehlo.dot_general"(%x, %y) : (tensor<16x4xf32>, tensor<4x32xf32>) -> tensor<16x32xf32>
  %7 = "stablehlo.all_reduce"(%6) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<16x32xf32>) -> tensor<16x32xf32>
  %8 = zero.start @zpp_host::@gather(%w) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %9 = zero.wait %8 from(%w : tensor<2x32xf32>) : tensor<16x32xf32>
  %10 = "stablehlo.dot_general"(%7, %9) : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
  %11 = zero.start @zpp_host::@gather(%w) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %12 = zero.wait %11 from(%w : tensor<2x32xf32>) : tensor<16x32xf32>
  %13 = "stablehlo.dot_general"(%12, %10) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  return %cast, %5, %4, %10, %13 : tensor<2x4x8xf32>, tensor<2x32xf32>, tensor<f32>, tensor<32x32xf32>, tensor<16x32xf32>
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

// Another collective sends the result of a scatter, as with replicas. It moves
// behind the wait with that result, and is not tied through the wait itself.

// CHECK-LABEL: func @replicas
// CHECK: %[[S:.*]] = zero.start
// CHECK: %[[P:.*]] = "stablehlo.reduce_scatter"
// CHECK: %{{.*}}, %[[T:.*]]:2 = zero.wait %[[S]] from({{.*}} ties(%{{.*}}, %[[P]] :
// CHECK: "stablehlo.all_reduce"(%[[T]]#1)
func.func @replicas(%x: tensor<128x4xf32>, %y: tensor<4x32xf32>, %w: tensor<2x32xf32>) -> (tensor<16x32xf32>, tensor<f32>, tensor<128x32xf32>) {
  %0 = "stablehlo.dot_general"(%x, %y) : (tensor<128x4xf32>, tensor<4x32xf32>) -> tensor<128x32xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %norm = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<128x32xf32>, tensor<f32>) -> tensor<f32>
  %1 = "stablehlo.reduce_scatter"(%0) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<128x32xf32>) -> tensor<16x32xf32>
  %2 = "stablehlo.all_reduce"(%1) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<16x32xf32>) -> tensor<16x32xf32>
  %3 = "stablehlo.dot_general"(%x, %y) : (tensor<128x4xf32>, tensor<4x32xf32>) -> tensor<128x32xf32>
  %4 = zero.start @zpp_host::@gather(%w) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %5 = zero.wait %4 from(%w : tensor<2x32xf32>) : tensor<16x32xf32>
  %6 = "stablehlo.dot_general"(%3, %5) : (tensor<128x32xf32>, tensor<16x32xf32>) -> tensor<128x32xf32>
  return %2, %norm, %6 : tensor<16x32xf32>, tensor<f32>, tensor<128x32xf32>
}
