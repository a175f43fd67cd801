// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=100000000 --remarks-filter=none | FileCheck %s

// Stacks of layers begin as zeros of their own, when something is there that the
// stack needs. XLA would compute equal zeros together, before the first stack.

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @scatter(%x: tensor<4096x512xf32>) -> tensor<1x512x512xf32> {
    %0 = tensor.expand_shape %x [[0, 1], [2]] output_shape [8, 512, 512] : tensor<4096x512xf32> into tensor<8x512x512xf32>
    %e = tensor.empty() : tensor<8x512x512xf32>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e : tensor<8x512x512xf32> into tensor<8x512x512xf32> -> tensor<8x512x512xf32>
    %f = tensor.empty() : tensor<512x512xf32>
    %2 = zero.reduce sum %1 into %f : tensor<8x512x512xf32> into tensor<512x512xf32> -> tensor<512x512xf32>
    %3 = tensor.expand_shape %2 [[0, 1], [2]] output_shape [1, 512, 512] : tensor<512x512xf32> into tensor<1x512x512xf32>
    return %3 : tensor<1x512x512xf32>
  }
}

// Two stacks that one op reads are stored one after the other: when the second one
// begins, the layers of the first one need no memory any more.

// CHECK-LABEL: func @stores
// CHECK-SAME: (%[[X:.*]]: tensor<4096x512xf32>, %{{.*}}: tensor<512x512xf32>, %[[I:.*]]: tensor<i32>, %[[J:.*]]: tensor<i32>)
// CHECK: %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK: %[[G0:[^,]*]] = zero.wait
// CHECK: %[[B0:.*]]:2 = stablehlo.optimization_barrier %[[ZERO]], %[[G0]]
// CHECK-NEXT: %[[Z0:.*]] = stablehlo.broadcast_in_dim %[[B0]]#0
// CHECK-NEXT: %[[A0:.*]] = stablehlo.dynamic_update_slice %[[Z0]], %[[G0]], %[[I]],
// CHECK-NEXT: %[[G1:[^,]*]] = zero.wait
// CHECK-NEXT: %[[A1:.*]] = stablehlo.dynamic_update_slice %[[A0]], %[[G1]], %[[J]],
// CHECK-NEXT: %[[B1:.*]]:2 = stablehlo.optimization_barrier %[[ZERO]], %[[A1]]
// CHECK-NEXT: %[[Z1:.*]] = stablehlo.broadcast_in_dim %[[B1]]#0
// CHECK-NEXT: %[[C0:.*]] = stablehlo.dynamic_update_slice %[[Z1]], %[[G1]], %[[I]],
// CHECK-NEXT: %[[C1:.*]] = stablehlo.dynamic_update_slice %[[C0]], %[[G0]], %[[J]],
// CHECK-NEXT: stablehlo.optimization_barrier %[[A1]], %[[C1]]
func.func @stores(%x: tensor<4096x512xf32>, %m: tensor<512x512xf32>, %i: tensor<i32>, %j: tensor<i32>) -> (tensor<1024x512xf32>, tensor<2x512x512xf32>) {
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %none, dims = [] : (tensor<f32>) -> tensor<2x512x512xf32>
  %a = "stablehlo.dot_general"(%x, %m) : (tensor<4096x512xf32>, tensor<512x512xf32>) -> tensor<4096x512xf32>
  %s0 = zero.start @zpp_host::@scatter(%a) {origins = [{role = "gradient"}]} : (tensor<4096x512xf32>) -> tensor<1x512x512xf32>
  %g0 = zero.wait %s0 from(%a : tensor<4096x512xf32>) : tensor<1x512x512xf32>
  %b = "stablehlo.dot_general"(%a, %m) : (tensor<4096x512xf32>, tensor<512x512xf32>) -> tensor<4096x512xf32>
  %s1 = zero.start @zpp_host::@scatter(%b) {origins = [{role = "gradient"}]} : (tensor<4096x512xf32>) -> tensor<1x512x512xf32>
  %g1 = zero.wait %s1 from(%b : tensor<4096x512xf32>) : tensor<1x512x512xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %a0 = stablehlo.dynamic_update_slice %zeros, %g0, %i, %zero, %zero : (tensor<2x512x512xf32>, tensor<1x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x512x512xf32>
  %c0 = stablehlo.dynamic_update_slice %zeros, %g1, %i, %zero, %zero : (tensor<2x512x512xf32>, tensor<1x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x512x512xf32>
  %a1 = stablehlo.dynamic_update_slice %a0, %g1, %j, %zero, %zero : (tensor<2x512x512xf32>, tensor<1x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x512x512xf32>
  %c1 = stablehlo.dynamic_update_slice %c0, %g0, %j, %zero, %zero : (tensor<2x512x512xf32>, tensor<1x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x512x512xf32>
  %r:2 = stablehlo.optimization_barrier %a1, %c1 : tensor<2x512x512xf32>, tensor<2x512x512xf32>
  %v = stablehlo.reshape %r#0 : (tensor<2x512x512xf32>) -> tensor<1024x512xf32>
  %c = "stablehlo.dot_general"(%v, %m) : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  return %c, %r#1 : tensor<1024x512xf32>, tensor<2x512x512xf32>
}

// Stacks that other ops read are stored as they were. A loop begins when what it
// carries is there, behind casts that XLA fuses. Its zeros may be negative.

// CHECK-LABEL: func @apart
// CHECK: %[[ZERO:.*]] = stablehlo.constant dense<-0.000000e+00> : tensor<f32>
// CHECK: %[[G0:[^,]*]]{{(, .*)?}} = zero.wait
// CHECK: %[[B0:.*]]:2 = stablehlo.optimization_barrier %[[ZERO]], %[[G0]]
// CHECK-NEXT: %[[Z0:.*]] = stablehlo.broadcast_in_dim %[[B0]]#0
// CHECK-NEXT: %[[S:.*]] = stablehlo.dynamic_update_slice %[[Z0]], %[[G0]],
// CHECK: %[[P:.*]] = "stablehlo.dot_general"(%arg0, %arg1)
// CHECK-NEXT: %[[D:.*]] = stablehlo.convert %[[P]]
// CHECK: %[[B1:.*]]:3 = stablehlo.optimization_barrier %[[ZERO]], %[[ZERO]], %[[P]]
// CHECK-NEXT: %[[Z1:.*]] = stablehlo.broadcast_in_dim %[[B1]]#0
// CHECK-NEXT: %[[Z2:.*]] = stablehlo.broadcast_in_dim %[[B1]]#1
// CHECK-NEXT: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %[[Z1]], %{{.*}} = %[[Z2]], %{{.*}} = %[[D]])
func.func @apart(%x: tensor<4096x512xf32>, %m: tensor<512x512xf32>, %i: tensor<i32>) -> (tensor<2x512x512xf32>, tensor<2x512x512xf32>) {
  %none = stablehlo.constant dense<-0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %none, dims = [] : (tensor<f32>) -> tensor<2x512x512xf32>
  %a = "stablehlo.dot_general"(%x, %m) : (tensor<4096x512xf32>, tensor<512x512xf32>) -> tensor<4096x512xf32>
  %s0 = zero.start @zpp_host::@scatter(%a) {origins = [{role = "gradient"}]} : (tensor<4096x512xf32>) -> tensor<1x512x512xf32>
  %g0 = zero.wait %s0 from(%a : tensor<4096x512xf32>) : tensor<1x512x512xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %u0 = stablehlo.dynamic_update_slice %zeros, %g0, %i, %zero, %zero : (tensor<2x512x512xf32>, tensor<1x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x512x512xf32>
  %b = "stablehlo.dot_general"(%x, %m) : (tensor<4096x512xf32>, tensor<512x512xf32>) -> tensor<4096x512xf32>
  %d = stablehlo.convert %b : (tensor<4096x512xf32>) -> tensor<4096x512xbf16>
  %n = stablehlo.constant dense<2> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:4 = stablehlo.while(%k = %zero, %s = %zeros, %q = %zeros, %y = %d) : tensor<i32>, tensor<2x512x512xf32>, tensor<2x512x512xf32>, tensor<4096x512xbf16>
  cond {
    %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %next = stablehlo.add %k, %one : tensor<i32>
    %t = stablehlo.add %s, %q : tensor<2x512x512xf32>
    stablehlo.return %next, %t, %s, %y : tensor<i32>, tensor<2x512x512xf32>, tensor<2x512x512xf32>, tensor<4096x512xbf16>
  }
  return %u0, %r#1 : tensor<2x512x512xf32>, tensor<2x512x512xf32>
}

// What XLA scatters itself is a partitioned tensor before it is cast to a local one.

// CHECK-LABEL: func @partitioned
// CHECK: %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK: %[[L:.*]] = zero.to_local
// CHECK: %[[B:.*]]:2 = stablehlo.optimization_barrier %[[ZERO]], %[[L]]
// CHECK-NEXT: %[[Z:.*]] = stablehlo.broadcast_in_dim %[[B]]#0
// CHECK-NEXT: stablehlo.dynamic_update_slice %[[Z]],
func.func @partitioned(%x: tensor<4096x512xf32>, %m: tensor<512x512xf32>, %i: tensor<i32>) -> (tensor<2x512x512xf32>, tensor<1x512x512xf32>) {
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %none, dims = [] : (tensor<f32>) -> tensor<2x512x512xf32>
  %a = "stablehlo.dot_general"(%x, %m) : (tensor<4096x512xf32>, tensor<512x512xf32>) -> tensor<4096x512xf32>
  %s0 = zero.start @zpp_host::@scatter(%a) {origins = [{role = "gradient"}]} : (tensor<4096x512xf32>) -> tensor<1x512x512xf32>
  %g0 = zero.wait %s0 from(%a : tensor<4096x512xf32>) : tensor<1x512x512xf32>
  %w = zero.from_local %a : tensor<4096x512xf32> to <4096x512xf32, dim 0 = (8) on #mesh>
  %p = zero.reduce_scatter sum %w along ["gpu"] : <4096x512xf32, dim 0 = (8) on #mesh> to <4096x512xf32, dim 0 = ("gpu") on #mesh>
  %l = zero.to_local %p : <4096x512xf32, dim 0 = ("gpu") on #mesh> to tensor<512x512xf32>
  %u = stablehlo.broadcast_in_dim %l, dims = [1, 2] : (tensor<512x512xf32>) -> tensor<1x512x512xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %u0 = stablehlo.dynamic_update_slice %zeros, %u, %i, %zero, %zero : (tensor<2x512x512xf32>, tensor<1x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x512x512xf32>
  return %u0, %g0 : tensor<2x512x512xf32>, tensor<1x512x512xf32>
}

// What is no zero, is small, or has nothing to come after stays as it is.

// CHECK-LABEL: func @stays
// CHECK-NOT: stablehlo.optimization_barrier
func.func @stays(%x: tensor<4096x512xf32>, %m: tensor<512x512xf32>, %layer: tensor<1x512x512xf32>, %small: tensor<1x4xf32>, %i: tensor<i32>) -> (tensor<2x512x512xf32>, tensor<2x512x512xf32>, tensor<2x4xf32>, tensor<1x512x512xf32>) {
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %none, dims = [] : (tensor<f32>) -> tensor<2x512x512xf32>
  %ones = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<2x512x512xf32>
  %few = stablehlo.broadcast_in_dim %none, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
  %a = "stablehlo.dot_general"(%x, %m) : (tensor<4096x512xf32>, tensor<512x512xf32>) -> tensor<4096x512xf32>
  %s0 = zero.start @zpp_host::@scatter(%a) {origins = [{role = "gradient"}]} : (tensor<4096x512xf32>) -> tensor<1x512x512xf32>
  %g0 = zero.wait %s0 from(%a : tensor<4096x512xf32>) : tensor<1x512x512xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %u0 = stablehlo.dynamic_update_slice %zeros, %layer, %i, %zero, %zero : (tensor<2x512x512xf32>, tensor<1x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x512x512xf32>
  %u1 = stablehlo.dynamic_update_slice %ones, %g0, %i, %zero, %zero : (tensor<2x512x512xf32>, tensor<1x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x512x512xf32>
  %u2 = stablehlo.dynamic_update_slice %few, %small, %i, %zero : (tensor<2x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
  return %u0, %u1, %u2, %g0 : tensor<2x512x512xf32>, tensor<2x512x512xf32>, tensor<2x4xf32>, tensor<1x512x512xf32>
}
