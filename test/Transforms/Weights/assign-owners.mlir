// RUN: zpp-opt %s --zero-assign-owners --split-input-file --remarks-filter=none \
// RUN:   | FileCheck %s
// RUN: zpp-opt %s --zero-assign-owners --zero-assign-owners --split-input-file \
// RUN:   --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-assign-owners --split-input-file --remarks-filter='.*' \
// RUN:   2>&1 | FileCheck %s --check-prefix=REMARK

// Two of three matrices for two devices: each gets one of them whole. What follows
// from the first update stands before the second gather, and has to wait.

#mesh = #zero.mesh<"node" = 2>
!part = !zero.shard<1024x512xf32, dim 0 = ("node") on #mesh>
!whole = !zero.shard<1024x512xf32, dim 0 = (2) on #mesh>

module attributes {mhlo.num_partitions = 2 : i32} {
// REMARK: it is left over: those alike have owners
// REMARK: each of 2 devices has one of 2 matrices
// CHECK-LABEL: func @two
// CHECK: %[[A:.*]] = stablehlo.reshape %arg0 : (tensor<512x512xf32>) -> tensor<1x512x512xf32>
// CHECK: %[[B:.*]] = stablehlo.reshape %arg1
// CHECK: %[[BOTH:.*]] = stablehlo.concatenate %[[A]], %[[B]], dim = 0
// CHECK: %[[SENT:.*]] = "stablehlo.all_to_all"(%[[BOTH]]) <{{.*}}concat_dimension = 1 : i64, {{.*}}replica_groups = dense<{{\[}}[0, 1]]> {{.*}}split_count = 2 : i64, split_dimension = 0 : i64}> {zpp.origin = [{id = 0 : i64, role = "moment"}, {id = 1 : i64, role = "moment"}]} : (tensor<2x512x512xf32>) -> tensor<1x1024x512xf32>
// CHECK: %[[MINE:.*]] = stablehlo.reshape %[[SENT]] : (tensor<1x1024x512xf32>) -> tensor<1024x512xf32>
// CHECK: %[[FLIPPED:.*]] = stablehlo.transpose %[[MINE]]
// CHECK: %[[ROOT:.*]] = stablehlo.dot_general %[[FLIPPED]], %[[MINE]]
// CHECK-NOT: dot_general
// CHECK: %[[STACK:.*]] = stablehlo.reshape %[[ROOT]] : (tensor<512x512xf32>) -> tensor<1x512x512xf32>
// CHECK: %[[BACK:.*]] = "stablehlo.all_to_all"(%[[STACK]]) <{{.*}}concat_dimension = 0 : i64, {{.*}}split_dimension = 2 : i64}> {{.*}} -> tensor<2x512x256xf32>
// CHECK: %[[X:.*]] = stablehlo.slice %[[BACK]] [0:1, 0:512, 0:256]
// CHECK: %[[OWN_A:.*]] = stablehlo.reshape %[[X]]
// CHECK: %[[Y:.*]] = stablehlo.slice %[[BACK]] [1:2, 0:512, 0:256]
// CHECK: %[[OWN_B:.*]] = stablehlo.reshape %[[Y]]
// CHECK: %[[NEXT:.*]] = stablehlo.negate %[[OWN_A]]
// CHECK: zero.all_gather
// CHECK: return %[[NEXT]], %[[OWN_B]],
func.func @two(%a: tensor<512x512xf32>, %b: tensor<512x512xf32>) -> (tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<ui32>
  %size = stablehlo.constant dense<256> : tensor<ui32>
  %id = stablehlo.partition_id : tensor<ui32>
  %at = stablehlo.multiply %id, %size : tensor<ui32>
  %0 = zero.from_local %a : tensor<512x512xf32> to !part
  %1 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 0, role = "moment"}} : !part to !whole
  %2 = zero.to_local %1 : !whole to tensor<1024x512xf32>
  %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<1024x512xf32>) -> tensor<512x1024xf32>
  %4 = stablehlo.dot_general %3, %2, contracting_dims = [1] x [0] : (tensor<512x1024xf32>, tensor<1024x512xf32>) -> tensor<512x512xf32>
  %5 = stablehlo.dynamic_slice %4, %zero, %at, sizes = [512, 256] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<512x256xf32>
  %6 = stablehlo.negate %5 : tensor<512x256xf32>
  %7 = zero.from_local %b : tensor<512x512xf32> to !part
  %8 = zero.all_gather %7 along ["node"] {zpp.origin = {id = 1, role = "moment"}} : !part to !whole
  %9 = zero.to_local %8 : !whole to tensor<1024x512xf32>
  %10 = stablehlo.transpose %9, dims = [1, 0] : (tensor<1024x512xf32>) -> tensor<512x1024xf32>
  %11 = stablehlo.dot_general %10, %9, contracting_dims = [1] x [0] : (tensor<512x1024xf32>, tensor<1024x512xf32>) -> tensor<512x512xf32>
  %12 = stablehlo.dynamic_slice %11, %zero, %at, sizes = [512, 256] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<512x256xf32>
  %13 = zero.all_gather %7 along ["node"] {zpp.origin = {id = 2, role = "moment"}} : !part to !whole
  %14 = zero.to_local %13 : !whole to tensor<1024x512xf32>
  %15 = stablehlo.transpose %14, dims = [1, 0] : (tensor<1024x512xf32>) -> tensor<512x1024xf32>
  %16 = stablehlo.dot_general %15, %14, contracting_dims = [1] x [0] : (tensor<512x1024xf32>, tensor<1024x512xf32>) -> tensor<512x512xf32>
  %17 = stablehlo.dynamic_slice %16, %zero, %at, sizes = [512, 256] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<512x256xf32>
  return %6, %12, %17 : tensor<512x256xf32>, tensor<512x256xf32>, tensor<512x256xf32>
}
}

// -----

// Two matrices for four devices: two of them have the last one.

#mesh = #zero.mesh<"node" = 4>
!part = !zero.shard<512x512xf32, dim 0 = ("node") on #mesh>
!whole = !zero.shard<512x512xf32, dim 0 = (4) on #mesh>

module attributes {mhlo.num_partitions = 4 : i32} {
// REMARK: each of 4 devices has one of 2 matrices
// CHECK-LABEL: func @fewer
// CHECK: %[[A:.*]] = stablehlo.reshape %arg0
// CHECK: %[[B:.*]] = stablehlo.reshape %arg1
// CHECK: %[[ALL:.*]] = stablehlo.concatenate %[[A]], %[[B]], %[[B]], %[[B]], dim = 0
// CHECK: "stablehlo.all_to_all"(%[[ALL]])
// CHECK-COUNT-1: stablehlo.dot_general
// CHECK: "stablehlo.all_to_all"
// CHECK-NOT: stablehlo.dot_general
// CHECK: func private @square
func.func @fewer(%a: tensor<128x512xf32>, %b: tensor<128x512xf32>) -> (tensor<128x512xf32>, tensor<128x512xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<ui32>
  %size = stablehlo.constant dense<128> : tensor<ui32>
  %id = stablehlo.partition_id : tensor<ui32>
  %at = stablehlo.multiply %id, %size : tensor<ui32>
  %0 = zero.from_local %a : tensor<128x512xf32> to !part
  %1 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 0, role = "moment"}} : !part to !whole
  %2 = zero.to_local %1 : !whole to tensor<512x512xf32>
  %3 = func.call @square(%2) : (tensor<512x512xf32>) -> tensor<512x512xf32>
  %4 = stablehlo.dynamic_slice %3, %at, %zero, sizes = [128, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<128x512xf32>
  %5 = zero.from_local %b : tensor<128x512xf32> to !part
  %6 = zero.all_gather %5 along ["node"] {zpp.origin = {id = 1, role = "moment"}} : !part to !whole
  %7 = zero.to_local %6 : !whole to tensor<512x512xf32>
  %8 = func.call @square(%7) : (tensor<512x512xf32>) -> tensor<512x512xf32>
  %9 = stablehlo.dynamic_slice %8, %at, %zero, sizes = [128, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<128x512xf32>
  return %4, %9 : tensor<128x512xf32>, tensor<128x512xf32>
}
func.func private @square(%x: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  return %0 : tensor<512x512xf32>
}
}

// -----

// A stack of three layers, each of which is computed by itself, in a loop: each
// of two devices has two, the last one twice. On known links, time decides.

#mesh = #zero.mesh<"node" = 2>
!part = !zero.shard<3x512x512xf32, dim 1 = ("node") on #mesh>
!whole = !zero.shard<3x512x512xf32, dim 1 = (2) on #mesh>

module attributes {mhlo.num_partitions = 2 : i32, zpp.machine = {mesh = "node:2", links = "node=50gbyte", device = "1tflops,100gbyte"}} {
// REMARK: each of 2 devices has 2 of 3 layers
// CHECK-LABEL: func @stack
// CHECK-NOT: zero.all_gather
// CHECK: %[[LAST:.*]] = stablehlo.slice %arg0 [2:3, 0:256, 0:512]
// CHECK: %[[FOUR:.*]] = stablehlo.concatenate %arg0, %[[LAST]], dim = 0
// CHECK: %[[MINE:.*]] = "stablehlo.all_to_all"(%[[FOUR]]) <{{.*}}concat_dimension = 1 : i64, {{.*}}split_dimension = 0 : i64}> {zpp.origin = {id = 0 : i64, role = "moment"}} : (tensor<4x256x512xf32>) -> tensor<2x512x512xf32>
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[MINE]] init: {{.*}} -> tensor<2xf32>
// CHECK: stablehlo.broadcast_in_dim %[[SUM]], dims = [0] : (tensor<2xf32>) -> tensor<2x512x512xf32>
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while
// CHECK: stablehlo.dot_general {{.*}}batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x512x512xf32>, tensor<2x512x512xf32>) -> tensor<2x512x512xf32>
// CHECK: stablehlo.broadcast_in_dim {{.*}} : (tensor<f32>) -> tensor<2x512x512xf32>
// CHECK: %[[BACK:.*]] = "stablehlo.all_to_all"(%[[LOOP]]#1) <{{.*}}concat_dimension = 0 : i64, {{.*}}split_dimension = 1 : i64}> {{.*}} : (tensor<2x512x512xf32>) -> tensor<4x256x512xf32>
// CHECK: %[[OWN:.*]] = stablehlo.slice %[[BACK]] [0:3, 0:256, 0:512]
// CHECK: return %[[OWN]]
func.func @stack(%a: tensor<3x256x512xf32>) -> tensor<3x256x512xf32> {
  %c = stablehlo.constant dense<0> : tensor<i32>
  %c5 = stablehlo.constant dense<5> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %half = stablehlo.constant dense<5.000000e-01> : tensor<f32>
  %none = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<ui32>
  %size = stablehlo.constant dense<256> : tensor<ui32>
  %id = stablehlo.partition_id : tensor<ui32>
  %at = stablehlo.multiply %id, %size : tensor<ui32>
  %0 = zero.from_local %a : tensor<3x256x512xf32> to !part
  %1 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 0, role = "moment"}} : !part to !whole
  %2 = zero.to_local %1 : !whole to tensor<3x512x512xf32>
  %3 = stablehlo.reduce(%2 init: %none) applies stablehlo.add across dimensions = [1, 2] : (tensor<3x512x512xf32>, tensor<f32>) -> tensor<3xf32>
  %4 = stablehlo.broadcast_in_dim %3, dims = [0] : (tensor<3xf32>) -> tensor<3x512x512xf32>
  %5 = stablehlo.divide %2, %4 : tensor<3x512x512xf32>
  %6:2 = stablehlo.while(%i = %c, %x = %5) : tensor<i32>, tensor<3x512x512xf32>
  cond {
    %9 = stablehlo.compare LT, %i, %c5, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %9 : tensor<i1>
  } do {
    %9 = stablehlo.dot_general %x, %x, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<3x512x512xf32>, tensor<3x512x512xf32>) -> tensor<3x512x512xf32>
    %10 = stablehlo.broadcast_in_dim %half, dims = [] : (tensor<f32>) -> tensor<3x512x512xf32>
    %11 = stablehlo.multiply %10, %9 : tensor<3x512x512xf32>
    %12 = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %12, %11 : tensor<i32>, tensor<3x512x512xf32>
  }
  %7 = stablehlo.dynamic_slice %6#1, %zero, %at, %zero, sizes = [3, 256, 512] : (tensor<3x512x512xf32>, tensor<ui32>, tensor<ui32>, tensor<ui32>) -> tensor<3x256x512xf32>
  return %7 : tensor<3x256x512xf32>
}
}

// -----

// Nothing is alike: a constant, the shape, what is read besides. Others need all of
// what follows, or slices of more than one tensor.

#mesh = #zero.mesh<"node" = 2>
!part = !zero.shard<512x512xf32, dim 0 = ("node") on #mesh>
!whole = !zero.shard<512x512xf32, dim 0 = (2) on #mesh>
!hop = !zero.shard<512x512xf32, dim 0 = (2) on #mesh>

module attributes {mhlo.num_partitions = 2 : i32} {
// CHECK-LABEL: func @left
// CHECK-COUNT-8: zero.all_gather
// CHECK-NOT: stablehlo.all_to_all
// REMARK: all devices compute what follows from it: what follows from it is made of other things, too, which devices may have differently, in stablehlo.dot_general: alike are constants, and replicated arguments that the step returns as they are or as all devices compute them
// REMARK: all devices need all of what follows from it, for func.return
// REMARK: devices take slices of several tensors that follow from it
// REMARK: devices take no slice of what follows from it
// REMARK: all devices need all of what follows from it, for func.return
// REMARK: nothing is computed of it
// REMARK: nothing else of its shape is computed alike, which other devices could have
// REMARK: nothing else of its shape is computed alike
func.func @left(%a: tensor<256x512xf32>, %rate: tensor<512x512xf32>) -> (tensor<256x512xf32>, tensor<512x512xf32>, tensor<256x512xf32>, tensor<256x512xf32>, tensor<256x512xf32>, tensor<256x512xf32>, tensor<256x512xf32>, tensor<256x512xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<ui32>
  %size = stablehlo.constant dense<256> : tensor<ui32>
  %one = stablehlo.constant dense<1> : tensor<ui32>
  %id = stablehlo.partition_id : tensor<ui32>
  %at = stablehlo.multiply %id, %size : tensor<ui32>
  %other = stablehlo.subtract %one, %id : tensor<ui32>
  %not_at = stablehlo.multiply %other, %size : tensor<ui32>
  %two = stablehlo.constant dense<2.000000e+00> : tensor<512x512xf32>
  %three = stablehlo.constant dense<3.000000e+00> : tensor<512x512xf32>
  %0 = zero.from_local %a : tensor<256x512xf32> to !part

  // An argument.
  %1 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 0, role = "moment"}} : !part to !whole
  %2 = zero.to_local %1 : !whole to tensor<512x512xf32>
  %3 = stablehlo.dot_general %2, %rate, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %4 = stablehlo.dynamic_slice %3, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>

  // All of the result.
  %5 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 1, role = "moment"}} : !part to !whole
  %6 = zero.to_local %5 : !whole to tensor<512x512xf32>
  %7 = stablehlo.dot_general %6, %6, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %8 = stablehlo.dynamic_slice %7, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>

  // Slices of two tensors.
  %9 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 2, role = "moment"}} : !part to !whole
  %10 = zero.to_local %9 : !whole to tensor<512x512xf32>
  %11 = stablehlo.dot_general %10, %10, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %12 = stablehlo.dynamic_slice %11, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>
  %13 = stablehlo.dynamic_slice %10, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>
  %14 = stablehlo.add %12, %13 : tensor<256x512xf32>

  // The same slice on all devices.
  %15 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 3, role = "moment"}} : !part to !whole
  %16 = zero.to_local %15 : !whole to tensor<512x512xf32>
  %17 = stablehlo.dot_general %16, %16, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>

  // The slice of another device.
  %19 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 4, role = "moment"}} : !part to !whole
  %20 = zero.to_local %19 : !whole to tensor<512x512xf32>
  %21 = stablehlo.dot_general %20, %20, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %22 = stablehlo.dynamic_slice %21, %not_at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>
  %23 = stablehlo.dynamic_slice %21, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>
  %24 = stablehlo.add %22, %23 : tensor<256x512xf32>

  %25 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 5, role = "moment"}} : !part to !whole
  %26 = zero.to_local %25 : !whole to tensor<512x512xf32>
  %27 = stablehlo.dynamic_slice %26, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>

  // Two that differ in a constant.
  %28 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 6, role = "moment"}} : !part to !whole
  %29 = zero.to_local %28 : !whole to tensor<512x512xf32>
  %30 = stablehlo.multiply %29, %two : tensor<512x512xf32>
  %31 = stablehlo.dot_general %30, %29, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %32 = stablehlo.dynamic_slice %31, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>
  %33 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 7, role = "moment"}} : !part to !whole
  %34 = zero.to_local %33 : !whole to tensor<512x512xf32>
  %35 = stablehlo.multiply %34, %three : tensor<512x512xf32>
  %36 = stablehlo.dot_general %35, %34, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %37 = stablehlo.dynamic_slice %36, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>
  return %4, %7, %8, %14, %24, %27, %32, %37 : tensor<256x512xf32>, tensor<512x512xf32>, tensor<256x512xf32>, tensor<256x512xf32>, tensor<256x512xf32>, tensor<256x512xf32>, tensor<256x512xf32>, tensor<256x512xf32>
}

}

// -----

// A constant of which each device has its own part; what a loop gathers.

#mesh = #zero.mesh<"node" = 2>
!part = !zero.shard<512x512xf32, dim 0 = ("node") on #mesh>
!whole = !zero.shard<512x512xf32, dim 0 = (2) on #mesh>

module attributes {mhlo.num_partitions = 2 : i32} {
// CHECK-LABEL: func @others
// CHECK-COUNT-4: zero.all_gather
// CHECK-NOT: stablehlo.all_to_all
// REMARK: what follows from it is made of other things, too
// REMARK: it is one of several hops
// REMARK: it is one of several hops
// REMARK: it is one in each iteration of a loop
func.func @others(%a: tensor<256x512xf32>) -> (tensor<256x512xf32>, tensor<256x512xf32>, tensor<512x512xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<ui32>
  %size = stablehlo.constant dense<256> : tensor<ui32>
  %id = stablehlo.partition_id : tensor<ui32>
  %at = stablehlo.multiply %id, %size : tensor<ui32>
  %0 = zero.from_local %a : tensor<256x512xf32> to !part
  %table = stablehlo.constant dense<2.000000e+00> : tensor<1024x512xf32>
  %own = stablehlo.custom_call @SPMDFullToShardShape(%table) : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %1 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 0, role = "moment"}} : !part to !whole
  %2 = zero.to_local %1 : !whole to tensor<512x512xf32>
  %3 = stablehlo.multiply %2, %own : tensor<512x512xf32>
  %4 = stablehlo.dynamic_slice %3, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>
  %c = stablehlo.constant dense<0> : tensor<i32>
  %c5 = stablehlo.constant dense<5> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %5:2 = stablehlo.while(%i = %c, %x = %a) : tensor<i32>, tensor<256x512xf32>
  cond {
    %9 = stablehlo.compare LT, %i, %c5, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %9 : tensor<i1>
  } do {
    %9 = zero.from_local %x : tensor<256x512xf32> to !part
    %10 = zero.all_gather %9 along ["node"] {zpp.origin = {id = 1, role = "moment"}} : !part to !whole
    %11 = zero.to_local %10 : !whole to tensor<512x512xf32>
    %12 = stablehlo.negate %11 : tensor<512x512xf32>
    %13 = stablehlo.dynamic_slice %12, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>
    %14 = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %14, %13 : tensor<i32>, tensor<256x512xf32>
  }
  %6 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 2, role = "moment"}} : !part to !whole
  %7 = zero.to_local %6 : !whole to tensor<512x512xf32>
  %8 = zero.to_local %6 : !whole to tensor<512x512xf32>
  %15 = stablehlo.add %7, %8 : tensor<512x512xf32>
  %16 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 3, role = "moment"}} : !part to !whole
  return %4, %5#1, %15 : tensor<256x512xf32>, tensor<256x512xf32>, tensor<512x512xf32>
}
}

// -----

// Without partitions nothing tells slices.

#mesh = #zero.mesh<"node" = 2>
!part = !zero.shard<512x512xf32, dim 0 = ("node") on #mesh>
!whole = !zero.shard<512x512xf32, dim 0 = (2) on #mesh>

module {
// CHECK-LABEL: func @replicas
// CHECK-NOT: stablehlo.all_to_all
// REMARK: the module is not for 2 partitions, and nothing tells their slices
func.func @replicas(%a: tensor<256x512xf32>) -> tensor<512x512xf32> {
  %0 = zero.from_local %a : tensor<256x512xf32> to !part
  %1 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 0, role = "moment"}} : !part to !whole
  %2 = zero.to_local %1 : !whole to tensor<512x512xf32>
  return %2 : tensor<512x512xf32>
}
}

// -----

// Numbers of the step: all devices have the same of what is replicated, unless each
// returns its own for the next step, and of sums over all devices.

#mesh = #zero.mesh<"node" = 2>
!part = !zero.shard<512x512xf32, dim 0 = ("node") on #mesh>
!whole = !zero.shard<512x512xf32, dim 0 = (2) on #mesh>

module attributes {mhlo.num_partitions = 2 : i32} {
sdy.mesh @mesh = <["node"=2]>
// CHECK-LABEL: func @numbers
// CHECK-COUNT-2: stablehlo.all_to_all
// CHECK: zero.all_gather
// CHECK: zero.all_gather
// REMARK: in stablehlo.multiply: alike are constants
// REMARK: in stablehlo.multiply: alike are constants
// REMARK: each of 2 devices has one of 2 matrices
func.func @numbers(%parts: tensor<1024x512xf32>, %same: tensor<f32> {tf.aliasing_output = 1 : i32}, %own: tensor<f32> {tf.aliasing_output = 2 : i32}) -> (tensor<1024x512xf32>, tensor<f32>, tensor<f32>) {
  %all:3 = sdy.manual_computation(%parts, %same, %own) in_shardings=[<@mesh, [{"node"}, {}]>, <@mesh, []>, <@mesh, []>] out_shardings=[<@mesh, [{"node"}, {}]>, <@mesh, []>, <@mesh, []>] manual_axes={"node"} (%x: tensor<512x512xf32>, %rate: tensor<f32>, %other: tensor<f32>) {
    %zero = stablehlo.constant dense<0> : tensor<ui32>
    %none = stablehlo.constant dense<0.0> : tensor<f32>
    %size = stablehlo.constant dense<256> : tensor<ui32>
    %id = stablehlo.partition_id : tensor<ui32>
    %at = stablehlo.multiply %id, %size : tensor<ui32>
    %a = stablehlo.slice %x [0:256, 0:512] : (tensor<512x512xf32>) -> tensor<256x512xf32>
    %b = stablehlo.slice %x [256:512, 0:512] : (tensor<512x512xf32>) -> tensor<256x512xf32>
    %mine = stablehlo.reduce(%x init: %none) applies stablehlo.add across dimensions = [0, 1] : (tensor<512x512xf32>, tensor<f32>) -> tensor<f32>
    %sum = "stablehlo.all_reduce"(%mine) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%c: tensor<f32>, %d: tensor<f32>):
      %e = stablehlo.add %c, %d : tensor<f32>
      stablehlo.return %e : tensor<f32>
    }) : (tensor<f32>) -> tensor<f32>
    %next = stablehlo.add %rate, %sum : tensor<f32>
    %differs = stablehlo.add %other, %mine : tensor<f32>
    %0 = zero.from_local %a : tensor<256x512xf32> to !part
    %1 = zero.from_local %b : tensor<256x512xf32> to !part

    %2 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 0, role = "moment"}} : !part to !whole
    %3 = zero.to_local %2 : !whole to tensor<512x512xf32>
    %4 = stablehlo.broadcast_in_dim %rate, dims = [] : (tensor<f32>) -> tensor<512x512xf32>
    %5 = stablehlo.multiply %3, %4 : tensor<512x512xf32>
    %6 = stablehlo.dynamic_slice %5, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>
    %7 = zero.all_gather %1 along ["node"] {zpp.origin = {id = 1, role = "moment"}} : !part to !whole
    %8 = zero.to_local %7 : !whole to tensor<512x512xf32>
    %9 = stablehlo.broadcast_in_dim %rate, dims = [] : (tensor<f32>) -> tensor<512x512xf32>
    %10 = stablehlo.multiply %8, %9 : tensor<512x512xf32>
    %11 = stablehlo.dynamic_slice %10, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>

    %12 = zero.all_gather %0 along ["node"] {zpp.origin = {id = 2, role = "moment"}} : !part to !whole
    %13 = zero.to_local %12 : !whole to tensor<512x512xf32>
    %14 = stablehlo.broadcast_in_dim %other, dims = [] : (tensor<f32>) -> tensor<512x512xf32>
    %15 = stablehlo.multiply %13, %14 : tensor<512x512xf32>
    %16 = stablehlo.dynamic_slice %15, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>
    %17 = zero.all_gather %1 along ["node"] {zpp.origin = {id = 3, role = "moment"}} : !part to !whole
    %18 = zero.to_local %17 : !whole to tensor<512x512xf32>
    %19 = stablehlo.multiply %18, %14 : tensor<512x512xf32>
    %20 = stablehlo.dynamic_slice %19, %at, %zero, sizes = [256, 512] : (tensor<512x512xf32>, tensor<ui32>, tensor<ui32>) -> tensor<256x512xf32>

    %21 = stablehlo.add %6, %16 : tensor<256x512xf32>
    %22 = stablehlo.add %11, %20 : tensor<256x512xf32>
    %23 = stablehlo.concatenate %21, %22, dim = 0 : (tensor<256x512xf32>, tensor<256x512xf32>) -> tensor<512x512xf32>
    sdy.return %23, %next, %differs : tensor<512x512xf32>, tensor<f32>, tensor<f32>
  } : (tensor<1024x512xf32>, tensor<f32>, tensor<f32>) -> (tensor<1024x512xf32>, tensor<f32>, tensor<f32>)
  return %all#0, %all#1, %all#2 : tensor<1024x512xf32>, tensor<f32>, tensor<f32>
}
}
