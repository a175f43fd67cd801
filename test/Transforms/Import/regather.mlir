// RUN: zpp-opt %s --zero-regather --split-input-file --verify-diagnostics \
// RUN:   | FileCheck %s
// RUN: zpp-opt %s --zero-regather --zero-regather --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s

// The reads on which the first gradient scatter does not depend move to a second
// gather. The barrier ties it to a value of the backward pass.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16x8xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16x8xf32, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @step
// CHECK-SAME: %[[W:.*]]: tensor<2x8xf32>, %[[X:.*]]: tensor<16x8xf32>
func.func @step(%w: tensor<2x8xf32>, %x: tensor<16x8xf32>) -> tensor<2x8xf32> {
  // CHECK: %[[FIRST:.*]] = zero.all_gather
  // CHECK: %[[FORWARD:.*]] = zero.to_local %[[FIRST]]
  %0 = zero.from_local %w : tensor<2x8xf32> to !primary
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {before = [64, 384], id = 0, kind = "all_gather", phase = "forward", role = "weight", weight = 0}} : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<16x8xf32>
  // CHECK: %[[LOSS:.*]] = stablehlo.multiply %[[X]], %[[FORWARD]]
  %3 = stablehlo.multiply %x, %2 : tensor<16x8xf32>
  %4 = zero.from_local %3 : tensor<16x8xf32> to !whole
  %5 = zero.reduce_scatter sum %4 along ["node", "gpu"] {zpp.origin = {id = 1, kind = "reduce_scatter", role = "gradient"}} : !whole to !primary
  %6 = zero.to_local %5 : !primary to tensor<2x8xf32>
  // CHECK: %[[GRAD:.*]] = stablehlo.negate %[[LOSS]]
  %7 = stablehlo.negate %3 : tensor<16x8xf32>
  // CHECK: %[[TIED:.*]]:2 = stablehlo.optimization_barrier %[[W]], %[[GRAD]]
  // CHECK: %[[SHARD:.*]] = zero.from_local %[[TIED]]#0
  // CHECK: %[[SECOND:.*]] = zero.all_gather %[[SHARD]] along ["node", "gpu"]
  // CHECK-SAME: before = [0, 0]
  // CHECK-SAME: id = 2 : i64
  // CHECK-SAME: phase = "backward"
  // CHECK: %[[BACKWARD:.*]] = zero.to_local %[[SECOND]]
  // CHECK: stablehlo.multiply %[[TIED]]#1, %[[BACKWARD]]
  %8 = stablehlo.multiply %7, %2 : tensor<16x8xf32>
  // CHECK: stablehlo.add {{.*}}, %[[BACKWARD]]
  %9 = stablehlo.add %8, %2 : tensor<16x8xf32>
  %10 = zero.from_local %9 : tensor<16x8xf32> to !whole
  %11 = zero.reduce_scatter sum %10 along ["node", "gpu"] {zpp.origin = {id = 1, kind = "reduce_scatter", role = "gradient"}} : !whole to !primary
  %12 = zero.to_local %11 : !primary to tensor<2x8xf32>
  return %12 : tensor<2x8xf32>
}

// -----

// A read within a loop of the backward pass.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @nested
func.func @nested(%w: tensor<2xf32>) -> tensor<16xf32> {
  // CHECK-COUNT-2: zero.all_gather
  // CHECK: stablehlo.while
  // CHECK-NOT: zero.all_gather
  %0 = zero.from_local %w : tensor<2xf32> to !primary
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {id = 0, weight = 0}} : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<16xf32>
  %3 = stablehlo.tanh %2 : tensor<16xf32>
  %4 = zero.from_local %3 : tensor<16xf32> to !whole
  %5 = zero.reduce_scatter sum %4 along ["node", "gpu"] {zpp.origin = {id = 1, role = "gradient"}} : !whole to !primary
  %6 = stablehlo.while(%x = %3) : tensor<16xf32>
  cond {
    %more = stablehlo.constant dense<false> : tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %y = stablehlo.add %x, %2 : tensor<16xf32>
    stablehlo.return %y : tensor<16xf32>
  }
  return %6 : tensor<16xf32>
}

// -----

// Gathers that are left alone.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>
!encoded = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8, block = 128>>
!decoded = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh, #zero.quant<i8, block = 128>>

// CHECK-LABEL: func @left_alone
// CHECK-NOT: optimization_barrier
func.func @left_alone(%w: tensor<2xf32>) -> (tensor<16xf32>, !whole) {
  %0 = zero.from_local %w : tensor<2xf32> to !primary
  // CHECK: zero.all_gather {{.*}} zpp.reason = "the backward pass does not read it"
  // expected-remark@+1 {{zero.all_gather is left alone: the backward pass does not read it}}
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {weight = 0}} : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<16xf32>
  // expected-remark@+1 {{the forward pass does not read it}}
  %3 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {weight = 1}} : !primary to !whole
  %4 = zero.to_local %3 : !whole to tensor<16xf32>
  // Gathered twice as it is.
  %5 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {weight = 2}} : !primary to !whole
  %6 = zero.to_local %5 : !whole to tensor<16xf32>
  %7 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {weight = 2}} : !primary to !whole
  %8 = zero.to_local %7 : !whole to tensor<16xf32>
  // expected-remark@+1 {{it does not gather one local tensor into another}}
  %9 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {weight = 3}} : !primary to !whole
  %10 = zero.encode %0 : !primary to !encoded
  // expected-remark@+1 {{it does not gather one local tensor into another}}
  %11 = zero.all_gather %10 along ["node", "gpu"] {zpp.origin = {weight = 4}} : !encoded to !decoded
  %12 = zero.decode %11 : !decoded to !whole
  %13 = stablehlo.add %2, %6 : tensor<16xf32>
  %14 = zero.from_local %13 : tensor<16xf32> to !whole
  %15 = zero.reduce_scatter sum %14 along ["node", "gpu"] {zpp.origin = {role = "gradient"}} : !whole to !primary
  %16 = stablehlo.add %4, %6 : tensor<16xf32>
  return %16, %9 : tensor<16xf32>, !whole
}

// -----

// If a scan has the scatters in another region, the reads cannot be told apart.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

func.func @no_scatter(%w: tensor<2xf32>) -> tensor<16xf32> {
  %0 = zero.from_local %w : tensor<2xf32> to !primary
  // expected-remark@+1 {{no gradient scatter beside it tells its forward from its backward reads; use jax.checkpoint}}
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {weight = 0}} : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<16xf32>
  return %2 : tensor<16xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>

// A cast of the gathered weight in the forward pass, or a copy that its loop
// only passes on, still is that weight: the backward pass reads it.

// CHECK-LABEL: func @cast_and_passed_on
func.func @cast_and_passed_on(%w: tensor<32x64xbf16>, %x: tensor<256x64xf32>) -> tensor<32x64xf32> {
  // CHECK: %[[FIRST:.*]] = zero.all_gather
  // CHECK: %[[WHOLE:.*]] = zero.to_local %[[FIRST]]
  // CHECK: %[[CAST:.*]] = stablehlo.convert %[[WHOLE]]
  // CHECK: stablehlo.while(%{{.*}} = %[[CAST]], %{{.*}} = %arg1)
  // CHECK: %[[BARRIER:.*]]:2 = stablehlo.optimization_barrier %arg0, %{{.*}}
  // CHECK: %[[SHARD:.*]] = zero.from_local %[[BARRIER]]#0
  // CHECK: %[[AGAIN:.*]] = zero.all_gather %[[SHARD]]
  // CHECK: %[[SECOND:.*]] = zero.to_local %[[AGAIN]]
  // CHECK: %[[RECAST:.*]] = stablehlo.convert %[[SECOND]]
  // CHECK: stablehlo.multiply %[[BARRIER]]#1, %[[RECAST]]
  %0 = zero.from_local %w : tensor<32x64xbf16> to !primary
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {id = 0, weight = 0}} : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<256x64xbf16>
  %3 = stablehlo.convert %2 : (tensor<256x64xbf16>) -> tensor<256x64xf32>
  %4:2 = stablehlo.while(%a = %3, %b = %x) : tensor<256x64xf32>, tensor<256x64xf32>
  cond {
    %more = stablehlo.custom_call @more(%b) : (tensor<256x64xf32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %c = stablehlo.multiply %a, %b : tensor<256x64xf32>
    stablehlo.return %a, %c : tensor<256x64xf32>, tensor<256x64xf32>
  }
  %5 = "stablehlo.reduce_scatter"(%4#1) <{scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) {zpp.origin = {id = 1, role = "gradient"}} : (tensor<256x64xf32>) -> tensor<32x64xf32>
  %6 = stablehlo.abs %x : tensor<256x64xf32>
  %7 = stablehlo.multiply %6, %4#0 : tensor<256x64xf32>
  %8 = "stablehlo.reduce_scatter"(%7) <{scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) {zpp.origin = {id = 2, role = "gradient"}} : (tensor<256x64xf32>) -> tensor<32x64xf32>
  %9 = stablehlo.add %5, %8 : tensor<32x64xf32>
  return %9 : tensor<32x64xf32>
}

// -----

// A scan without a checkpoint keeps a stack of whole weights. The loop of the
// backward pass gathers them again instead.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @stack
// CHECK-SAME: (%[[W:.*]]: tensor<3x2xf32>,
func.func @stack(%w: tensor<3x2xf32>, %x: tensor<16xf32>, %empty: tensor<3x16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %h = %x, %stack = %empty) : tensor<i32>, tensor<16xf32>, tensor<3x16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    // CHECK: zero.all_gather {{.*}} id = 0 : i64
    // CHECK-NOT: dynamic_update_slice
    %layer = stablehlo.dynamic_slice %w, %i, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %flat = stablehlo.reshape %layer : (tensor<1x2xf32>) -> tensor<2xf32>
    %shard = zero.from_local %flat : tensor<2xf32> to !primary
    %all = zero.all_gather %shard along ["node", "gpu"] {zpp.origin = {before = [8, 48], id = 0, kind = "all_gather", phase = "forward", role = "weight", weight = 0}} : !primary to !whole
    %local = zero.to_local %all : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %local : tensor<16xf32>
    %one = stablehlo.reshape %local : (tensor<16xf32>) -> tensor<1x16xf32>
    %stacked = stablehlo.dynamic_update_slice %stack, %one, %i, %c0 : (tensor<3x16xf32>, tensor<1x16xf32>, tensor<i32>, tensor<i32>) -> tensor<3x16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %y, %stacked : tensor<i32>, tensor<16xf32>, tensor<3x16xf32>
  }
  %1:3 = stablehlo.while(%i = %c0, %h = %0#1, %stack = %0#2) : tensor<i32>, tensor<16xf32>, tensor<3x16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %left = stablehlo.subtract %c3, %i : tensor<i32>
    %j = stablehlo.subtract %left, %c1 : tensor<i32>
    // CHECK: %[[J:.*]] = stablehlo.subtract
    // CHECK: %[[J2:.*]] = stablehlo.subtract %[[J]],
    // CHECK: stablehlo.dynamic_slice %[[W]], %[[J2]],
    // CHECK: zero.all_gather {{.*}}before = [0, 0], {{.*}} id = 1 : i64, {{.*}} phase = "backward"
    // CHECK-NEXT: %[[AGAIN:.*]] = zero.to_local
    // CHECK-NEXT: stablehlo.multiply %{{.*}}, %[[AGAIN]]
    // CHECK-NOT: zero.all_gather
    // CHECK: return
    %layer = stablehlo.dynamic_slice %stack, %j, %c0, sizes = [1, 16] : (tensor<3x16xf32>, tensor<i32>, tensor<i32>) -> tensor<1x16xf32>
    %whole = stablehlo.reshape %layer : (tensor<1x16xf32>) -> tensor<16xf32>
    %y = stablehlo.multiply %h, %whole : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %y, %stack : tensor<i32>, tensor<16xf32>, tensor<3x16xf32>
  }
  return %1#1 : tensor<16xf32>
}

// -----

// It cannot where something else reads the stack.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @returned_stack
func.func @returned_stack(%w: tensor<3x2xf32>, %x: tensor<16xf32>, %empty: tensor<3x16xf32>) -> tensor<3x16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %h = %x, %stack = %empty) : tensor<i32>, tensor<16xf32>, tensor<3x16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %layer = stablehlo.dynamic_slice %w, %i, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %flat = stablehlo.reshape %layer : (tensor<1x2xf32>) -> tensor<2xf32>
    %shard = zero.from_local %flat : tensor<2xf32> to !primary
    // expected-remark@+1 {{the loop around it keeps the gathered weights of all iterations, and not only loops that count read them; use jax.checkpoint}}
    %all = zero.all_gather %shard along ["node", "gpu"] {zpp.origin = {before = [8, 48], id = 0, kind = "all_gather", phase = "forward", role = "weight", weight = 0}} : !primary to !whole
    %local = zero.to_local %all : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %local : tensor<16xf32>
    %one = stablehlo.reshape %local : (tensor<16xf32>) -> tensor<1x16xf32>
    %stacked = stablehlo.dynamic_update_slice %stack, %one, %i, %c0 : (tensor<3x16xf32>, tensor<1x16xf32>, tensor<i32>, tensor<i32>) -> tensor<3x16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %y, %stacked : tensor<i32>, tensor<16xf32>, tensor<3x16xf32>
  }
  return %0#2 : tensor<3x16xf32>
}
