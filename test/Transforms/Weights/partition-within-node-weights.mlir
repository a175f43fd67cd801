// RUN: zpp-opt %s --zero-partition-within-node --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s

// Which gathers are of one weight: the same slice of the same input.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<32x64xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<32x64xf32, dim 0 = (2, 4) on #mesh>

// A flat buffer of several inputs is not one that only begins like it.
// CHECK-LABEL: func @concatenated
// CHECK-NOT: zpp.keep
func.func @concatenated(%w: tensor<2x64xf32>, %v: tensor<2x64xf32>, %u: tensor<2x64xf32>) -> (!whole, !whole) {
  %0 = stablehlo.concatenate %w, %v, dim = 0 : (tensor<2x64xf32>, tensor<2x64xf32>) -> tensor<4x64xf32>
  %1 = zero.from_local %0 : tensor<4x64xf32> to !primary
  // expected-remark@+1 {{it is gathered once}}
  %2 = zero.all_gather %1 along ["node", "gpu"] : !primary to !whole
  %3 = stablehlo.concatenate %w, %u, dim = 0 : (tensor<2x64xf32>, tensor<2x64xf32>) -> tensor<4x64xf32>
  %4 = zero.from_local %3 : tensor<4x64xf32> to !primary
  // expected-remark@+1 {{it is gathered once}}
  %5 = zero.all_gather %4 along ["node", "gpu"] : !primary to !whole
  return %2, %5 : !whole, !whole
}

// Unrolled layers: slices of a stack at constant indices.
// CHECK-LABEL: func @unrolled
func.func @unrolled(%stack: tensor<2x4x64xf32>) -> (!whole, !whole, !whole) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  // CHECK: %[[FIRST:.*]] = stablehlo.dynamic_slice %arg0, %[[C0:.*]], %[[C0]], %[[C0]]
  // CHECK: zero.all_gather {{.*}} along ["node"] {zpp.keep}
  // CHECK: %[[KEPT:.*]] = zero.to_local {{.*}} to tensor<8x64xf32>
  %0 = stablehlo.dynamic_slice %stack, %c0, %c0, %c0, sizes = [1, 4, 64] : (tensor<2x4x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x64xf32>
  %1 = stablehlo.reshape %0 : (tensor<1x4x64xf32>) -> tensor<4x64xf32>
  %2 = zero.from_local %1 : tensor<4x64xf32> to !primary
  %3 = zero.all_gather %2 along ["node", "gpu"] : !primary to !whole
  // CHECK: zero.all_gather {{.*}} along ["node", "gpu"]
  %4 = stablehlo.dynamic_slice %stack, %c1, %c0, %c0, sizes = [1, 4, 64] : (tensor<2x4x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x64xf32>
  %5 = stablehlo.reshape %4 : (tensor<1x4x64xf32>) -> tensor<4x64xf32>
  %6 = zero.from_local %5 : tensor<4x64xf32> to !primary
  // expected-remark@+1 {{it is gathered once}}
  %7 = zero.all_gather %6 along ["node", "gpu"] : !primary to !whole
  // CHECK: stablehlo.optimization_barrier %[[KEPT]]
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  %8 = stablehlo.optimization_barrier %stack : tensor<2x4x64xf32>
  %9 = stablehlo.dynamic_slice %8, %c0, %c0, %c0, sizes = [1, 4, 64] : (tensor<2x4x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x64xf32>
  %10 = stablehlo.reshape %9 : (tensor<1x4x64xf32>) -> tensor<4x64xf32>
  %11 = zero.from_local %10 : tensor<4x64xf32> to !primary
  %12 = zero.all_gather %11 along ["node", "gpu"] : !primary to !whole
  return %3, %7, %12 : !whole, !whole, !whole
}

// -----

// Two layers in one iteration are two weights.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @two_layers
// CHECK-NOT: zpp.keep
func.func @two_layers(%stack: tensor<6x2xf32>, %start: tensor<i32>) -> tensor<i32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.while(%i = %start) : tensor<i32>
  cond {
    %more = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %stack, %i, %c0, sizes = [1, 2] : (tensor<6x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x2xf32>) -> tensor<2xf32>
    %3 = zero.from_local %2 : tensor<2xf32> to !primary
    // expected-remark@+1 {{zero.all_gather is left alone}}
    %4 = zero.all_gather %3 along ["node", "gpu"] : !primary to !whole
    %next = stablehlo.add %i, %c1 : tensor<i32>
    %5 = stablehlo.dynamic_slice %stack, %next, %c0, sizes = [1, 2] : (tensor<6x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %6 = stablehlo.reshape %5 : (tensor<1x2xf32>) -> tensor<2xf32>
    %7 = zero.from_local %6 : tensor<2xf32> to !primary
    // expected-remark@+1 {{zero.all_gather is left alone}}
    %8 = zero.all_gather %7 along ["node", "gpu"] : !primary to !whole
    stablehlo.return %next : tensor<i32>
  }
  return %0 : tensor<i32>
}

// -----

// A weight that each iteration computes: the loop of the forward pass leaves a
// stack of what it keeps, from which that of the backward pass reads.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @computed
func.func @computed(%w: tensor<3x2xf32>, %s: tensor<3xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  // CHECK: %[[EMPTY:.*]] = stablehlo.broadcast_in_dim %[[ZERO]]{{.*}} -> tensor<3x4xf32>
  // CHECK: %[[FORWARD:.*]]:3 = stablehlo.while(%[[I:[^ ]+]] = {{.*}}, %[[STACK:[^ ]+]] = %[[EMPTY]])
  // CHECK: stablehlo.compare
  // CHECK: } do {
  // CHECK: zero.all_gather {{.*}} along ["node"] {zpp.keep = 3 : i64}
  // CHECK: %[[KEPT:.*]] = zero.to_local {{.*}} to tensor<4xf32>
  // CHECK: %[[ONE:.*]] = stablehlo.reshape %[[KEPT]] : (tensor<4xf32>) -> tensor<1x4xf32>
  // CHECK: %[[NEXT:.*]] = stablehlo.dynamic_update_slice %[[STACK]], %[[ONE]], %[[I]],
  // CHECK: stablehlo.return {{.*}}, %[[NEXT]]
  %0:2 = stablehlo.while(%i = %c0, %h = %x) : tensor<i32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %f = stablehlo.dynamic_slice %w, %i, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %f1 = stablehlo.reshape %f : (tensor<1x2xf32>) -> tensor<2xf32>
    %f2 = stablehlo.dynamic_slice %s, %i, sizes = [1] : (tensor<3xf32>, tensor<i32>) -> tensor<1xf32>
    %f3 = stablehlo.broadcast_in_dim %f2, dims = [0] : (tensor<1xf32>) -> tensor<2xf32>
    %f4 = stablehlo.multiply %f1, %f3 : tensor<2xf32>
    %f5 = zero.from_local %f4 : tensor<2xf32> to !primary
    %f6 = zero.all_gather %f5 along ["node", "gpu"] : !primary to !whole
    %f7 = zero.to_local %f6 : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %f7 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %y : tensor<i32>, tensor<16xf32>
  }
  // CHECK: stablehlo.while
  // CHECK: %[[J:.*]] = stablehlo.subtract %{{.*}}, %{{.*}}
  // CHECK: %[[J2:.*]] = stablehlo.subtract %[[J]],
  // CHECK: stablehlo.dynamic_slice %[[FORWARD]]#2, %[[J2]],
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  %1:2 = stablehlo.while(%i = %c0, %h = %0#1) : tensor<i32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %left = stablehlo.subtract %c3, %i : tensor<i32>
    %j = stablehlo.subtract %left, %c1 : tensor<i32>
    %b = stablehlo.dynamic_slice %w, %j, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %b1 = stablehlo.reshape %b : (tensor<1x2xf32>) -> tensor<2xf32>
    %b2 = stablehlo.dynamic_slice %s, %j, sizes = [1] : (tensor<3xf32>, tensor<i32>) -> tensor<1xf32>
    %b3 = stablehlo.broadcast_in_dim %b2, dims = [0] : (tensor<1xf32>) -> tensor<2xf32>
    %b4 = stablehlo.multiply %b1, %b3 : tensor<2xf32>
    %b5 = zero.from_local %b4 : tensor<2xf32> to !primary
    %b6 = zero.all_gather %b5 along ["node", "gpu"] : !primary to !whole
    %b7 = zero.to_local %b6 : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %b7 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %y : tensor<i32>, tensor<16xf32>
  }
  return %1#1 : tensor<16xf32>
}

// -----

// Not where the loops choose different layers.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @other_layers
// CHECK-NOT: zpp.keep
func.func @other_layers(%w: tensor<3x2xf32>, %s: tensor<3xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %0:2 = stablehlo.while(%i = %c0, %h = %x) : tensor<i32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %f = stablehlo.dynamic_slice %w, %i, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %f1 = stablehlo.reshape %f : (tensor<1x2xf32>) -> tensor<2xf32>
    %f2 = stablehlo.dynamic_slice %s, %i, sizes = [1] : (tensor<3xf32>, tensor<i32>) -> tensor<1xf32>
    %f3 = stablehlo.broadcast_in_dim %f2, dims = [0] : (tensor<1xf32>) -> tensor<2xf32>
    %f4 = stablehlo.multiply %f1, %f3 : tensor<2xf32>
    %f5 = zero.from_local %f4 : tensor<2xf32> to !primary
    // expected-remark@+1 {{the regions around the gathers of its weight are not loops over one stack of weights}}
    %f6 = zero.all_gather %f5 along ["node", "gpu"] : !primary to !whole
    %f7 = zero.to_local %f6 : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %f7 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %y : tensor<i32>, tensor<16xf32>
  }
  %1:2 = stablehlo.while(%i = %c0, %h = %0#1) : tensor<i32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %j = stablehlo.add %i, %c1 : tensor<i32>
    %b = stablehlo.dynamic_slice %w, %j, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %b1 = stablehlo.reshape %b : (tensor<1x2xf32>) -> tensor<2xf32>
    %b2 = stablehlo.dynamic_slice %s, %j, sizes = [1] : (tensor<3xf32>, tensor<i32>) -> tensor<1xf32>
    %b3 = stablehlo.broadcast_in_dim %b2, dims = [0] : (tensor<1xf32>) -> tensor<2xf32>
    %b4 = stablehlo.multiply %b1, %b3 : tensor<2xf32>
    %b5 = zero.from_local %b4 : tensor<2xf32> to !primary
    // expected-remark@+1 {{zero.all_gather is left alone}}
    %b6 = zero.all_gather %b5 along ["node", "gpu"] : !primary to !whole
    %b7 = zero.to_local %b6 : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %b7 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %y : tensor<i32>, tensor<16xf32>
  }
  return %1#1 : tensor<16xf32>
}

// -----

// Nor where they count in floats, which choose no layers.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @floats
// CHECK-NOT: zpp.keep
func.func @floats(%w: tensor<3x2xf32>, %s: tensor<3xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<f32>
  %c1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<f32>
  %c3 = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<f32>
  %0:2 = stablehlo.while(%i = %c0, %h = %x) : tensor<f32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %f = stablehlo.dynamic_slice %w, %i, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<f32>, tensor<f32>) -> tensor<1x2xf32>
    %f1 = stablehlo.reshape %f : (tensor<1x2xf32>) -> tensor<2xf32>
    %f2 = stablehlo.dynamic_slice %s, %i, sizes = [1] : (tensor<3xf32>, tensor<f32>) -> tensor<1xf32>
    %f3 = stablehlo.broadcast_in_dim %f2, dims = [0] : (tensor<1xf32>) -> tensor<2xf32>
    %f4 = stablehlo.multiply %f1, %f3 : tensor<2xf32>
    %f5 = zero.from_local %f4 : tensor<2xf32> to !primary
    // expected-remark@+1 {{zero.all_gather is left alone: the regions around the gathers of its weight are not loops over one stack of weights}}
    %f6 = zero.all_gather %f5 along ["node", "gpu"] : !primary to !whole
    %f7 = zero.to_local %f6 : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %f7 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<f32>
    stablehlo.return %next, %y : tensor<f32>, tensor<16xf32>
  }
  %1:2 = stablehlo.while(%i = %c0, %h = %0#1) : tensor<f32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %left = stablehlo.subtract %c3, %i : tensor<f32>
    %j = stablehlo.subtract %left, %c1 : tensor<f32>
    %b = stablehlo.dynamic_slice %w, %j, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<f32>, tensor<f32>) -> tensor<1x2xf32>
    %b1 = stablehlo.reshape %b : (tensor<1x2xf32>) -> tensor<2xf32>
    %b2 = stablehlo.dynamic_slice %s, %j, sizes = [1] : (tensor<3xf32>, tensor<f32>) -> tensor<1xf32>
    %b3 = stablehlo.broadcast_in_dim %b2, dims = [0] : (tensor<1xf32>) -> tensor<2xf32>
    %b4 = stablehlo.multiply %b1, %b3 : tensor<2xf32>
    %b5 = zero.from_local %b4 : tensor<2xf32> to !primary
    // expected-remark@+1 {{zero.all_gather is left alone: the regions around the gathers of its weight are not loops over one stack of weights}}
    %b6 = zero.all_gather %b5 along ["node", "gpu"] : !primary to !whole
    %b7 = zero.to_local %b6 : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %b7 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<f32>
    stablehlo.return %next, %y : tensor<f32>, tensor<16xf32>
  }
  return %1#1 : tensor<16xf32>
}

// -----

// Loops that cut one stack in different ways, with a layer left over: one hop
// gathers all layers.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @layers
// CHECK-SAME: (%[[W:.*]]: tensor<3x2xf32>,
func.func @layers(%w: tensor<3x2xf32>, %x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %fs = stablehlo.slice %w [0:2, 0:2] : (tensor<3x2xf32>) -> tensor<2x2xf32>
  // CHECK: zero.all_gather {{.*}} along ["node"] {zpp.keep}
  // CHECK: %[[KEPT:.*]] = stablehlo.reshape {{.*}} : {{.*}} -> tensor<3x4xf32>
  // CHECK: stablehlo.while
  // CHECK: %[[FACTOR:.*]] = stablehlo.multiply
  // CHECK: %[[LAYER:.*]] = stablehlo.add %{{.*}}, %[[FACTOR]]
  // CHECK: stablehlo.dynamic_slice %{{.*}}, %[[LAYER]],
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  %0:2 = stablehlo.while(%i = %c0, %h = %x) : tensor<i32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %f = stablehlo.dynamic_slice %fs, %i, %c0, sizes = [1, 2] : (tensor<2x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %f1 = stablehlo.reshape %f : (tensor<1x2xf32>) -> tensor<2xf32>
    %f5 = zero.from_local %f1 : tensor<2xf32> to !primary
    %f6 = zero.all_gather %f5 along ["node", "gpu"] : !primary to !whole
    %f7 = zero.to_local %f6 : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %f7 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %y : tensor<i32>, tensor<16xf32>
  }
  %gr = stablehlo.slice %w [2:3, 0:2] : (tensor<3x2xf32>) -> tensor<1x2xf32>
  %gf = stablehlo.reshape %gr : (tensor<1x2xf32>) -> tensor<2xf32>
  // CHECK: %[[TWO:.*]] = stablehlo.constant dense<2> : tensor<i32>
  // CHECK: stablehlo.dynamic_slice %{{.*}}, %[[TWO]],
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  %g5 = zero.from_local %gf : tensor<2xf32> to !primary
  %g6 = zero.all_gather %g5 along ["node", "gpu"] : !primary to !whole
  %g7 = zero.to_local %g6 : !whole to tensor<16xf32>
  %bs = stablehlo.slice %w [1:3, 0:2] : (tensor<3x2xf32>) -> tensor<2x2xf32>
  // CHECK: %[[ONE:.*]] = stablehlo.constant dense<1> : tensor<i32>
  // CHECK: stablehlo.add %[[ONE]],
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  %1:2 = stablehlo.while(%i = %c0, %h = %0#1) : tensor<i32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %b = stablehlo.dynamic_slice %bs, %i, %c0, sizes = [1, 2] : (tensor<2x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %b1 = stablehlo.reshape %b : (tensor<1x2xf32>) -> tensor<2xf32>
    %b5 = zero.from_local %b1 : tensor<2xf32> to !primary
    %b6 = zero.all_gather %b5 along ["node", "gpu"] : !primary to !whole
    %b7 = zero.to_local %b6 : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %b7 : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %y : tensor<i32>, tensor<16xf32>
  }
  %dr = stablehlo.slice %w [0:1, 0:2] : (tensor<3x2xf32>) -> tensor<1x2xf32>
  %df = stablehlo.reshape %dr : (tensor<1x2xf32>) -> tensor<2xf32>
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  %d5 = zero.from_local %df : tensor<2xf32> to !primary
  %d6 = zero.all_gather %d5 along ["node", "gpu"] : !primary to !whole
  %d7 = zero.to_local %d6 : !whole to tensor<16xf32>
  return %1#1, %g7, %d7 : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
}

// -----

// A step that quantizes its weights itself computes their scale again in the
// backward pass: the largest element of a device, and of all.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf8E4M3FN, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf8E4M3FN, dim 0 = (2, 4) on #mesh>
// CHECK-LABEL: func @scale_of_the_largest
func.func @scale_of_the_largest(%w: tensor<2xf32>) -> (tensor<16xf8E4M3FN>, tensor<16xf8E4M3FN>) {
  // CHECK: zero.all_gather {{.*}} along ["node"]
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  // Nothing reads the second scale any more.
  // CHECK-NOT: stablehlo.all_reduce
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  // CHECK-NOT: zero.all_gather
  %low = stablehlo.constant dense<0.0> : tensor<f32>
  %own0 = stablehlo.reduce(%w init: %low) applies stablehlo.maximum across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
  %all0 = "stablehlo.all_reduce"(%own0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %max = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %max : tensor<f32>
  }) : (tensor<f32>) -> tensor<f32>
  %scale0 = stablehlo.broadcast_in_dim %all0, dims = [] : (tensor<f32>) -> tensor<2xf32>
  %scaled0 = stablehlo.divide %w, %scale0 : tensor<2xf32>
  %q0 = stablehlo.convert %scaled0 : (tensor<2xf32>) -> tensor<2xf8E4M3FN>
  %p0 = zero.from_local %q0 : tensor<2xf8E4M3FN> to !primary
  %g0 = zero.all_gather %p0 along ["node", "gpu"] : !primary to !whole
  %f0 = zero.to_local %g0 : !whole to tensor<16xf8E4M3FN>
  %own1 = stablehlo.reduce(%w init: %low) applies stablehlo.maximum across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
  %all1 = "stablehlo.all_reduce"(%own1) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %max = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %max : tensor<f32>
  }) : (tensor<f32>) -> tensor<f32>
  %scale1 = stablehlo.broadcast_in_dim %all1, dims = [] : (tensor<f32>) -> tensor<2xf32>
  %scaled1 = stablehlo.divide %w, %scale1 : tensor<2xf32>
  %q1 = stablehlo.convert %scaled1 : (tensor<2xf32>) -> tensor<2xf8E4M3FN>
  %p1 = zero.from_local %q1 : tensor<2xf8E4M3FN> to !primary
  %g1 = zero.all_gather %p1 along ["node", "gpu"] : !primary to !whole
  %f1 = zero.to_local %g1 : !whole to tensor<16xf8E4M3FN>
  return %f0, %f1 : tensor<16xf8E4M3FN>, tensor<16xf8E4M3FN>
}

// -----

// The largest and the smallest element are two scales, and so are sums, whose
// order may differ.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf8E4M3FN, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf8E4M3FN, dim 0 = (2, 4) on #mesh>
// CHECK-LABEL: func @other_scales
func.func @other_scales(%w: tensor<2xf32>) -> (tensor<16xf8E4M3FN>, tensor<16xf8E4M3FN>, tensor<16xf8E4M3FN>, tensor<16xf8E4M3FN>) {
  // CHECK-NOT: along ["node"]
  %low = stablehlo.constant dense<0.0> : tensor<f32>
  %s0 = stablehlo.reduce(%w init: %low) applies stablehlo.maximum across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
  %s1 = stablehlo.reduce(%w init: %low) applies stablehlo.minimum across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
  %s2 = stablehlo.reduce(%w init: %low) applies stablehlo.add across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
  %s3 = stablehlo.reduce(%w init: %low) applies stablehlo.add across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
  %b0 = stablehlo.broadcast_in_dim %s0, dims = [] : (tensor<f32>) -> tensor<2xf32>
  %b1 = stablehlo.broadcast_in_dim %s1, dims = [] : (tensor<f32>) -> tensor<2xf32>
  %b2 = stablehlo.broadcast_in_dim %s2, dims = [] : (tensor<f32>) -> tensor<2xf32>
  %b3 = stablehlo.broadcast_in_dim %s3, dims = [] : (tensor<f32>) -> tensor<2xf32>
  %d0 = stablehlo.divide %w, %b0 : tensor<2xf32>
  %d1 = stablehlo.divide %w, %b1 : tensor<2xf32>
  %d2 = stablehlo.divide %w, %b2 : tensor<2xf32>
  %d3 = stablehlo.divide %w, %b3 : tensor<2xf32>
  %q0 = stablehlo.convert %d0 : (tensor<2xf32>) -> tensor<2xf8E4M3FN>
  %q1 = stablehlo.convert %d1 : (tensor<2xf32>) -> tensor<2xf8E4M3FN>
  %q2 = stablehlo.convert %d2 : (tensor<2xf32>) -> tensor<2xf8E4M3FN>
  %q3 = stablehlo.convert %d3 : (tensor<2xf32>) -> tensor<2xf8E4M3FN>
  %p0 = zero.from_local %q0 : tensor<2xf8E4M3FN> to !primary
  %p1 = zero.from_local %q1 : tensor<2xf8E4M3FN> to !primary
  %p2 = zero.from_local %q2 : tensor<2xf8E4M3FN> to !primary
  %p3 = zero.from_local %q3 : tensor<2xf8E4M3FN> to !primary
  // expected-remark@+1 {{it is gathered once}}
  %g0 = zero.all_gather %p0 along ["node", "gpu"] : !primary to !whole
  // expected-remark@+1 {{it is gathered once}}
  %g1 = zero.all_gather %p1 along ["node", "gpu"] : !primary to !whole
  // expected-remark@+1 {{it is gathered once}}
  %g2 = zero.all_gather %p2 along ["node", "gpu"] : !primary to !whole
  // expected-remark@+1 {{it is gathered once}}
  %g3 = zero.all_gather %p3 along ["node", "gpu"] : !primary to !whole
  %f0 = zero.to_local %g0 : !whole to tensor<16xf8E4M3FN>
  %f1 = zero.to_local %g1 : !whole to tensor<16xf8E4M3FN>
  %f2 = zero.to_local %g2 : !whole to tensor<16xf8E4M3FN>
  %f3 = zero.to_local %g3 : !whole to tensor<16xf8E4M3FN>
  return %f0, %f1, %f2, %f3 : tensor<16xf8E4M3FN>, tensor<16xf8E4M3FN>, tensor<16xf8E4M3FN>, tensor<16xf8E4M3FN>
}

// -----

// JAX writes functions such as jnp.round once for each trace. Two of them are one
// if they do the same.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xi8, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xi8, dim 0 = (2, 4) on #mesh>
// CHECK-LABEL: func @calls
func.func @calls(%w: tensor<2xf32>) -> (tensor<16xi8>, tensor<16xi8>, tensor<16xi8>) {
  // CHECK: zero.all_gather {{.*}} along ["node"]
  // CHECK-COUNT-2: zero.all_gather {{.*}} along ["gpu"]
  // CHECK: zero.all_gather {{.*}} along ["node", "gpu"]
  %r0 = func.call @round(%w) : (tensor<2xf32>) -> tensor<2xf32>
  %q0 = stablehlo.convert %r0 : (tensor<2xf32>) -> tensor<2xi8>
  %p0 = zero.from_local %q0 : tensor<2xi8> to !primary
  %g0 = zero.all_gather %p0 along ["node", "gpu"] : !primary to !whole
  %f0 = zero.to_local %g0 : !whole to tensor<16xi8>
  %r1 = func.call @round_0(%w) : (tensor<2xf32>) -> tensor<2xf32>
  %q1 = stablehlo.convert %r1 : (tensor<2xf32>) -> tensor<2xi8>
  %p1 = zero.from_local %q1 : tensor<2xi8> to !primary
  %g1 = zero.all_gather %p1 along ["node", "gpu"] : !primary to !whole
  %f1 = zero.to_local %g1 : !whole to tensor<16xi8>
  %r2 = func.call @doubled(%w) : (tensor<2xf32>) -> tensor<2xf32>
  %q2 = stablehlo.convert %r2 : (tensor<2xf32>) -> tensor<2xi8>
  %p2 = zero.from_local %q2 : tensor<2xi8> to !primary
  // expected-remark@+1 {{it is gathered once}}
  %g2 = zero.all_gather %p2 along ["node", "gpu"] : !primary to !whole
  %f2 = zero.to_local %g2 : !whole to tensor<16xi8>
  return %f0, %f1, %f2 : tensor<16xi8>, tensor<16xi8>, tensor<16xi8>
}
func.func private @round(%x: tensor<2xf32>) -> tensor<2xf32> {
  %half = stablehlo.constant dense<0.5> : tensor<2xf32>
  %sum = stablehlo.add %x, %half : tensor<2xf32>
  %floor = stablehlo.floor %sum : tensor<2xf32>
  return %floor : tensor<2xf32>
}
func.func private @round_0(%x: tensor<2xf32>) -> tensor<2xf32> {
  %half = stablehlo.constant dense<0.5> : tensor<2xf32>
  %sum = stablehlo.add %x, %half : tensor<2xf32>
  %floor = stablehlo.floor %sum : tensor<2xf32>
  return %floor : tensor<2xf32>
}
func.func private @doubled(%x: tensor<2xf32>) -> tensor<2xf32> {
  %half = stablehlo.constant dense<0.5> : tensor<2xf32>
  %sum = stablehlo.add %x, %x : tensor<2xf32>
  %floor = stablehlo.floor %sum : tensor<2xf32>
  return %floor : tensor<2xf32>
}
