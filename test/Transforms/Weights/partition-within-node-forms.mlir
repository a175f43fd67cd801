// RUN: zpp-opt %s --zero-partition-within-node --split-input-file \
// RUN:   --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-partition-within-node --split-input-file \
// RUN:   --verify-diagnostics -o /dev/null

// Forms in which people write a step: where forward and backward gathers lie.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// jax.grad outside of shard_map: forward and backward are two manual
// computations. The secondary partition leaves the one, as a flat tensor of
// which each device has a part of its own, and enters the other.

// CHECK-LABEL: func @two_computations
func.func @two_computations(%w: tensor<256x64xf32>, %x: tensor<8xf32>) -> (tensor<2048x64xbf16>, tensor<2048x64xbf16>) {
  // CHECK: %[[FORWARD:.*]]:2 = sdy.manual_computation(%arg0)
  // CHECK-SAME: out_shardings=[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}]>]
  // CHECK: %[[KEPT:.*]] = zero.all_gather {{.*}} along ["node"] {zpp.keep}
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  // CHECK: %[[LOCAL:.*]] = zero.to_local %[[KEPT]] : {{.*}} to tensor<64x64xbf16>
  // CHECK: %[[FLAT:.*]] = stablehlo.reshape %[[LOCAL]] : (tensor<64x64xbf16>) -> tensor<4096xbf16>
  // CHECK: sdy.return %{{.*}}, %[[FLAT]] : tensor<256x64xbf16>, tensor<4096xbf16>
  // CHECK: (tensor<256x64xf32>) -> (tensor<2048x64xbf16>, tensor<32768xbf16>)
  %0 = sdy.manual_computation(%w) in_shardings=[<@mesh, [{"node", "gpu"}, {}]>] out_shardings=[<@mesh, [{"node", "gpu"}, {}]>] manual_axes={"node", "gpu"} (%a: tensor<32x64xf32>) {
    %2 = stablehlo.convert %a : (tensor<32x64xf32>) -> tensor<32x64xbf16>
    %3 = zero.from_local %2 : tensor<32x64xbf16> to !primary
    %4 = zero.all_gather %3 along ["node", "gpu"] : !primary to !whole
    %5 = zero.to_local %4 : !whole to tensor<256x64xbf16>
    sdy.return %5 : tensor<256x64xbf16>
  } : (tensor<256x64xf32>) -> tensor<2048x64xbf16>
  // CHECK: sdy.manual_computation(%arg0, %arg1, %[[FORWARD]]#1) in_shardings=[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}]>, <@mesh, [{"node", "gpu"}]>]
  // CHECK-SAME: (%{{.*}}: tensor<32x64xf32>, %[[Y:[^:]+]]: tensor<1xf32>, %[[ARG:[^:]+]]: tensor<4096xbf16>)
  // CHECK: %[[SECONDARY:.*]] = stablehlo.reshape %[[ARG]] : (tensor<4096xbf16>) -> tensor<64x64xbf16>
  // CHECK: %[[BARRIER:.*]]:2 = stablehlo.optimization_barrier %[[Y]], %[[SECONDARY]]
  // CHECK: %[[SHARD:.*]] = zero.from_local %[[BARRIER]]#1
  // CHECK: zero.all_gather %[[SHARD]] along ["gpu"]
  %1 = sdy.manual_computation(%w, %x) in_shardings=[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}]>] out_shardings=[<@mesh, [{"node", "gpu"}, {}]>] manual_axes={"node", "gpu"} (%a: tensor<32x64xf32>, %y: tensor<1xf32>) {
    %b:2 = stablehlo.optimization_barrier %a, %y : tensor<32x64xf32>, tensor<1xf32>
    %2 = stablehlo.convert %b#0 : (tensor<32x64xf32>) -> tensor<32x64xbf16>
    %3 = zero.from_local %2 : tensor<32x64xbf16> to !primary
    %4 = zero.all_gather %3 along ["node", "gpu"] : !primary to !whole
    %5 = zero.to_local %4 : !whole to tensor<256x64xbf16>
    %6 = stablehlo.custom_call @read(%5, %b#1) : (tensor<256x64xbf16>, tensor<1xf32>) -> tensor<256x64xbf16>
    sdy.return %6 : tensor<256x64xbf16>
  } : (tensor<256x64xf32>, tensor<8xf32>) -> tensor<2048x64xbf16>
  return %0, %1 : tensor<2048x64xbf16>, tensor<2048x64xbf16>
}

// The sharding of an operand decides which part a device has: the same tensor
// with another sharding is another weight.

// CHECK-LABEL: func @other_shardings
func.func @other_shardings(%w: tensor<64x256xbf16>) -> (tensor<2048x64xbf16>, tensor<2048x64xbf16>) {
  // CHECK-COUNT-2: along ["node", "gpu"] {zpp.reason = "the manual computations with its gathers shard an operand differently"}
  %0 = sdy.manual_computation(%w) in_shardings=[<@mesh, [{}, {"node", "gpu"}]>] out_shardings=[<@mesh, [{"node", "gpu"}, {}]>] manual_axes={"node", "gpu"} (%a: tensor<64x32xbf16>) {
    %2 = stablehlo.reshape %a : (tensor<64x32xbf16>) -> tensor<32x64xbf16>
    %3 = zero.from_local %2 : tensor<32x64xbf16> to !primary
    // expected-remark@+1 {{the manual computations with its gathers shard an operand differently}}
    %4 = zero.all_gather %3 along ["node", "gpu"] : !primary to !whole
    %5 = zero.to_local %4 : !whole to tensor<256x64xbf16>
    sdy.return %5 : tensor<256x64xbf16>
  } : (tensor<64x256xbf16>) -> tensor<2048x64xbf16>
  %1 = sdy.manual_computation(%w) in_shardings=[<@mesh, [{}, {"gpu", "node"}]>] out_shardings=[<@mesh, [{"node", "gpu"}, {}]>] manual_axes={"node", "gpu"} (%a: tensor<64x32xbf16>) {
    %2 = stablehlo.reshape %a : (tensor<64x32xbf16>) -> tensor<32x64xbf16>
    %3 = zero.from_local %2 : tensor<32x64xbf16> to !primary
    // expected-remark@+1 {{the manual computations with its gathers shard an operand differently}}
    %4 = zero.all_gather %3 along ["node", "gpu"] : !primary to !whole
    %5 = zero.to_local %4 : !whole to tensor<256x64xbf16>
    sdy.return %5 : tensor<256x64xbf16>
  } : (tensor<64x256xbf16>) -> tensor<2048x64xbf16>
  return %0, %1 : tensor<2048x64xbf16>, tensor<2048x64xbf16>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16x5xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16x5xbf16, dim 0 = (2, 4) on #mesh>

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// The same with a loop over layers in each: all layers' secondary partitions
// leave the forward computation.

// CHECK-LABEL: func @loops_in_computations
func.func @loops_in_computations(%stack: tensor<3x16x5xbf16>, %i: tensor<i32>, %y: tensor<16x5xbf16>) {
  // CHECK: %[[FORWARD:.*]] = sdy.manual_computation(
  // CHECK: zero.all_gather {{.*}} along ["node"] {zpp.keep}
  // CHECK: stablehlo.while(
  // CHECK: along ["gpu"]
  // CHECK: sdy.return %{{.*}} : tensor<60xbf16>
  "sdy.manual_computation"(%stack, %i, %y) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"node", "gpu"}, {}]>, <@mesh, []>, <@mesh, []>]>, manual_axes = #sdy<manual_axes{"node", "gpu"}>, out_shardings = #sdy.sharding_per_value<[]>}> ({
  ^bb0(%s: tensor<3x2x5xbf16>, %i0: tensor<i32>, %y0: tensor<16x5xbf16>):
    %0:3 = stablehlo.while(%a = %s, %j = %i0, %b = %y0) : tensor<3x2x5xbf16>, tensor<i32>, tensor<16x5xbf16>
    cond {
      %more = stablehlo.custom_call @more(%j) : (tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %1 = stablehlo.dynamic_slice %a, %j, %zero, %zero, sizes = [1, 2, 5] : (tensor<3x2x5xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x5xbf16>
      %2 = stablehlo.reshape %1 : (tensor<1x2x5xbf16>) -> tensor<2x5xbf16>
      %3 = zero.from_local %2 : tensor<2x5xbf16> to !primary
      %4 = zero.all_gather %3 along ["node", "gpu"] : !primary to !whole
      %5 = zero.to_local %4 : !whole to tensor<16x5xbf16>
      stablehlo.return %a, %j, %5 : tensor<3x2x5xbf16>, tensor<i32>, tensor<16x5xbf16>
    }
    sdy.return
  }) : (tensor<3x16x5xbf16>, tensor<i32>, tensor<16x5xbf16>) -> ()
  // CHECK: sdy.manual_computation(%arg0, %arg1, %arg2, %[[FORWARD]])
  // CHECK: %[[KEPT:.*]] = stablehlo.reshape %{{.*}} : (tensor<60xbf16>) -> tensor<3x4x5xbf16>
  // CHECK: stablehlo.while(
  // CHECK: stablehlo.dynamic_slice %[[KEPT]], {{.*}}, sizes = [1, 4, 5]
  // CHECK: along ["gpu"]
  "sdy.manual_computation"(%stack, %i, %y) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"node", "gpu"}, {}]>, <@mesh, []>, <@mesh, []>]>, manual_axes = #sdy<manual_axes{"node", "gpu"}>, out_shardings = #sdy.sharding_per_value<[]>}> ({
  ^bb0(%s: tensor<3x2x5xbf16>, %i0: tensor<i32>, %y0: tensor<16x5xbf16>):
    %0:3 = stablehlo.while(%a = %s, %j = %i0, %b = %y0) : tensor<3x2x5xbf16>, tensor<i32>, tensor<16x5xbf16>
    cond {
      %more = stablehlo.custom_call @more(%j) : (tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %1 = stablehlo.dynamic_slice %a, %j, %zero, %zero, sizes = [1, 2, 5] : (tensor<3x2x5xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x5xbf16>
      %2 = stablehlo.reshape %1 : (tensor<1x2x5xbf16>) -> tensor<2x5xbf16>
      %3 = zero.from_local %2 : tensor<2x5xbf16> to !primary
      %4 = zero.all_gather %3 along ["node", "gpu"] : !primary to !whole
      %5 = zero.to_local %4 : !whole to tensor<16x5xbf16>
      stablehlo.return %a, %j, %5 : tensor<3x2x5xbf16>, tensor<i32>, tensor<16x5xbf16>
    }
    sdy.return
  }) : (tensor<3x16x5xbf16>, tensor<i32>, tensor<16x5xbf16>) -> ()
  return
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16x5xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16x5xbf16, dim 0 = (2, 4) on #mesh>

// Loops over groups of layers and the layers of a group, with the weights in
// stacks of stacks; constants that scale them; halves of an unrolled loop. The
// ops on one weight before its gather are applied to all weights before the
// loops.

// CHECK-LABEL: func @nested_loops
func.func @nested_loops(%stack: tensor<3x7x2x2x5xf32>, %i: tensor<i32>, %y: tensor<16x5xbf16>) {
  // CHECK: %[[ONE:.*]] = stablehlo.slice %{{.*}} [0:3, 0:7, 1:2, 0:2, 0:5] : (tensor<3x7x2x2x5xf32>) -> tensor<3x7x1x2x5xf32>
  // CHECK: %[[WEIGHTS:.*]] = stablehlo.reshape %[[ONE]] : (tensor<3x7x1x2x5xf32>) -> tensor<3x7x2x5xf32>
  // CHECK: %[[SCALE:.*]] = stablehlo.broadcast_in_dim{{.*}} -> tensor<3x7x2x5xf32>
  // CHECK: %[[SCALED:.*]] = stablehlo.multiply %[[WEIGHTS]], %[[SCALE]]
  // CHECK: stablehlo.convert %[[SCALED]] : (tensor<3x7x2x5xf32>) -> tensor<3x7x2x5xbf16>
  // CHECK: zero.all_gather {{.*}} along ["node"] {zpp.keep} : {{.*}} to <336x5xbf16, dim 0 = (21, 2, "gpu") on #mesh>
  // CHECK: %[[KEPT:.*]] = stablehlo.reshape{{.*}} -> tensor<3x7x4x5xbf16>
  // CHECK-NOT: "node"
  // CHECK: stablehlo.while(%{{.*}} = {{[^,]+}}, %[[OUTER:[^ ]+]] = {{[^,]+}}, %{{.*}} = {{[^,]+}})
  // CHECK: } do {
  // CHECK: stablehlo.while(%{{.*}} = {{[^,]+}}, %[[INNER:[^ ]+]] = {{[^,]+}}, %{{.*}} = {{[^,]+}})
  // CHECK: } do {
  // CHECK: stablehlo.while(
  // CHECK: stablehlo.dynamic_slice %[[KEPT]], {{.*}}, sizes = [1, 1, 4, 5]
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  %0:3 = "stablehlo.while"(%stack, %i, %y) ({
  ^bb0(%a: tensor<3x7x2x2x5xf32>, %j: tensor<i32>, %b: tensor<16x5xbf16>):
    %more = stablehlo.custom_call @more(%j) : (tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%a: tensor<3x7x2x2x5xf32>, %j: tensor<i32>, %b: tensor<16x5xbf16>):
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_slice %a, %j, %zero, %zero, %zero, %zero, sizes = [1, 7, 2, 2, 5] : (tensor<3x7x2x2x5xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x7x2x2x5xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x7x2x2x5xf32>) -> tensor<7x2x2x5xf32>
    %3:3 = stablehlo.while(%c = %2, %k = %zero, %d = %b) : tensor<7x2x2x5xf32>, tensor<i32>, tensor<16x5xbf16>
    cond {
      %more = stablehlo.custom_call @more(%k) : (tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %4 = stablehlo.dynamic_slice %c, %k, %zero, %zero, %zero, sizes = [1, 2, 2, 5] : (tensor<7x2x2x5xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x2x5xf32>
      %5 = stablehlo.reshape %4 : (tensor<1x2x2x5xf32>) -> tensor<2x2x5xf32>
      %6 = stablehlo.slice %5 [1:2, 0:2, 0:5] : (tensor<2x2x5xf32>) -> tensor<1x2x5xf32>
      %7 = stablehlo.reshape %6 : (tensor<1x2x5xf32>) -> tensor<2x5xf32>
      %8 = stablehlo.constant dense<0.5> : tensor<f32>
      %9 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<f32>) -> tensor<2x5xf32>
      %10 = stablehlo.multiply %7, %9 : tensor<2x5xf32>
      %11 = stablehlo.convert %10 : (tensor<2x5xf32>) -> tensor<2x5xbf16>
      %12 = zero.from_local %11 : tensor<2x5xbf16> to !primary
      %13 = zero.all_gather %12 along ["node", "gpu"] : !primary to !whole
      %14 = zero.to_local %13 : !whole to tensor<16x5xbf16>
      stablehlo.return %c, %k, %14 : tensor<7x2x2x5xf32>, tensor<i32>, tensor<16x5xbf16>
    }
    stablehlo.return %a, %j, %3#2 : tensor<3x7x2x2x5xf32>, tensor<i32>, tensor<16x5xbf16>
  }) : (tensor<3x7x2x2x5xf32>, tensor<i32>, tensor<16x5xbf16>) -> (tensor<3x7x2x2x5xf32>, tensor<i32>, tensor<16x5xbf16>)
  %20:3 = "stablehlo.while"(%stack, %i, %y) ({
  ^bb0(%a: tensor<3x7x2x2x5xf32>, %j: tensor<i32>, %b: tensor<16x5xbf16>):
    %more = stablehlo.custom_call @more(%j) : (tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%a: tensor<3x7x2x2x5xf32>, %j: tensor<i32>, %b: tensor<16x5xbf16>):
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_slice %a, %j, %zero, %zero, %zero, %zero, sizes = [1, 7, 2, 2, 5] : (tensor<3x7x2x2x5xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x7x2x2x5xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x7x2x2x5xf32>) -> tensor<7x2x2x5xf32>
    %barrier = stablehlo.optimization_barrier %2 : tensor<7x2x2x5xf32>
    %3:3 = stablehlo.while(%c = %barrier, %k = %zero, %d = %b) : tensor<7x2x2x5xf32>, tensor<i32>, tensor<16x5xbf16>
    cond {
      %more = stablehlo.custom_call @more(%k) : (tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %4 = stablehlo.dynamic_slice %c, %k, %zero, %zero, %zero, sizes = [1, 2, 2, 5] : (tensor<7x2x2x5xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x2x5xf32>
      %5 = stablehlo.reshape %4 : (tensor<1x2x2x5xf32>) -> tensor<2x2x5xf32>
      %6 = stablehlo.slice %5 [1:2, 0:2, 0:5] : (tensor<2x2x5xf32>) -> tensor<1x2x5xf32>
      %7 = stablehlo.reshape %6 : (tensor<1x2x5xf32>) -> tensor<2x5xf32>
      %8 = stablehlo.constant dense<0.5> : tensor<f32>
      %9 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<f32>) -> tensor<2x5xf32>
      %10 = stablehlo.multiply %7, %9 : tensor<2x5xf32>
      %11 = stablehlo.convert %10 : (tensor<2x5xf32>) -> tensor<2x5xbf16>
      %12 = zero.from_local %11 : tensor<2x5xbf16> to !primary
      %13 = zero.all_gather %12 along ["node", "gpu"] : !primary to !whole
      %14 = zero.to_local %13 : !whole to tensor<16x5xbf16>
      stablehlo.return %c, %k, %14 : tensor<7x2x2x5xf32>, tensor<i32>, tensor<16x5xbf16>
    }
    stablehlo.return %a, %j, %3#2 : tensor<3x7x2x2x5xf32>, tensor<i32>, tensor<16x5xbf16>
  }) : (tensor<3x7x2x2x5xf32>, tensor<i32>, tensor<16x5xbf16>) -> (tensor<3x7x2x2x5xf32>, tensor<i32>, tensor<16x5xbf16>)
  return
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16x5xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16x5xbf16, dim 0 = (2, 4) on #mesh>

// The backward pass computes again what the forward pass computed from weights:
// a merged LoRA. Equal arithmetic on equal operands gives the same weight.

// CHECK-LABEL: func @computed
func.func @computed(%w: tensor<2x5xf32>, %a: tensor<2x1xf32>, %b: tensor<1x5xf32>, %y: tensor<1xf32>) -> (tensor<16x5xbf16>, tensor<16x5xbf16>, tensor<1xf32>) {
  // CHECK: along ["node"] {zpp.keep}
  // CHECK: %[[BARRIER:.*]]:2 = stablehlo.optimization_barrier %arg3, %{{.*}} : tensor<1xf32>, tensor<4x5xbf16>
  // CHECK-NOT: dot_general
  // CHECK: zero.from_local %[[BARRIER]]#1
  // CHECK: along ["gpu"]
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x1xf32>, tensor<1x5xf32>) -> tensor<2x5xf32>
  %1 = stablehlo.add %w, %0 : tensor<2x5xf32>
  %2 = stablehlo.convert %1 : (tensor<2x5xf32>) -> tensor<2x5xbf16>
  %3 = zero.from_local %2 : tensor<2x5xbf16> to !primary
  %4 = zero.all_gather %3 along ["node", "gpu"] : !primary to !whole
  %5 = zero.to_local %4 : !whole to tensor<16x5xbf16>
  %6:4 = stablehlo.optimization_barrier %w, %a, %b, %y : tensor<2x5xf32>, tensor<2x1xf32>, tensor<1x5xf32>, tensor<1xf32>
  %7 = stablehlo.dot_general %6#1, %6#2, contracting_dims = [1] x [0] : (tensor<2x1xf32>, tensor<1x5xf32>) -> tensor<2x5xf32>
  %8 = stablehlo.add %6#0, %7 : tensor<2x5xf32>
  %9 = stablehlo.convert %8 : (tensor<2x5xf32>) -> tensor<2x5xbf16>
  %10 = zero.from_local %9 : tensor<2x5xbf16> to !primary
  %11 = zero.all_gather %10 along ["node", "gpu"] : !primary to !whole
  %12 = zero.to_local %11 : !whole to tensor<16x5xbf16>
  return %5, %12, %6#3 : tensor<16x5xbf16>, tensor<16x5xbf16>, tensor<1xf32>
}

// Other arithmetic makes another weight.

// CHECK-LABEL: func @other_arithmetic
func.func @other_arithmetic(%w: tensor<2x5xbf16>, %b: tensor<2x5xbf16>) -> (tensor<16x5xbf16>, tensor<16x5xbf16>) {
  // CHECK-COUNT-2: along ["node", "gpu"] {zpp.reason = "it is gathered once;
  %0 = stablehlo.add %w, %b : tensor<2x5xbf16>
  %1 = zero.from_local %0 : tensor<2x5xbf16> to !primary
  // expected-remark@+1 {{it is gathered once}}
  %2 = zero.all_gather %1 along ["node", "gpu"] : !primary to !whole
  %3 = zero.to_local %2 : !whole to tensor<16x5xbf16>
  %4 = stablehlo.subtract %w, %b : tensor<2x5xbf16>
  %5 = zero.from_local %4 : tensor<2x5xbf16> to !primary
  // expected-remark@+1 {{it is gathered once}}
  %6 = zero.all_gather %5 along ["node", "gpu"] : !primary to !whole
  %7 = zero.to_local %6 : !whole to tensor<16x5xbf16>
  return %3, %7 : tensor<16x5xbf16>, tensor<16x5xbf16>
}

// A loop that carries what it updates: several steps of an optimizer in one
// scan. Both gathers of an iteration read the same.

// CHECK-LABEL: func @several_steps
func.func @several_steps(%w: tensor<2x5xbf16>, %y: tensor<16x5xbf16>) -> tensor<2x5xbf16> {
  // CHECK: stablehlo.while(
  // CHECK: along ["node"] {zpp.keep}
  // CHECK: optimization_barrier
  // CHECK-NOT: "node"]
  %0:2 = stablehlo.while(%a = %w, %b = %y) : tensor<2x5xbf16>, tensor<16x5xbf16>
  cond {
    %more = stablehlo.custom_call @more(%b) : (tensor<16x5xbf16>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = zero.from_local %a : tensor<2x5xbf16> to !primary
    %2 = zero.all_gather %1 along ["node", "gpu"] : !primary to !whole
    %3 = zero.to_local %2 : !whole to tensor<16x5xbf16>
    %4:2 = stablehlo.optimization_barrier %a, %3 : tensor<2x5xbf16>, tensor<16x5xbf16>
    %5 = zero.from_local %4#0 : tensor<2x5xbf16> to !primary
    %6 = zero.all_gather %5 along ["node", "gpu"] : !primary to !whole
    %7 = zero.to_local %6 : !whole to tensor<16x5xbf16>
    %8 = stablehlo.add %4#1, %7 : tensor<16x5xbf16>
    %9 = stablehlo.custom_call @update(%a, %8) : (tensor<2x5xbf16>, tensor<16x5xbf16>) -> tensor<2x5xbf16>
    stablehlo.return %9, %8 : tensor<2x5xbf16>, tensor<16x5xbf16>
  }
  return %0#0 : tensor<2x5xbf16>
}
