// RUN: zpp-opt %s --split-input-file --zero-accumulate-gradients=group=gpu \
// RUN:   --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --split-input-file --zero-accumulate-gradients=group=gpu \
// RUN:   --zero-decompose-reduce-scatter --zero-reorder-slices \
// RUN:   --convert-zero-to-stablehlo --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=LOWERED
// RUN: zpp-opt %s --split-input-file --zero-accumulate-gradients=group=gpu \
// RUN:   --remarks-filter=.* -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// A scatter that an earlier pass has left alone stays one collective where
// gradients are added up before it. Nodes have one device each.

#mesh = #zero.mesh<"node" = 2, "gpu" = 1>
!whole = !zero.shard<4x8xbf16, dim 1 = (2) on #mesh>
!own = !zero.shard<4x8xbf16, dim 1 = ("node") on #mesh>

// What was written is restored, after the loop.
// CHECK-LABEL: func.func @one_tensor
// CHECK: stablehlo.while(
// CHECK: {{^ *[}]$}}
// CHECK: zero.reduce_scatter sum %{{.*}} along ["node"] {{.*}}zpp.source
// LOWERED-LABEL: func.func @one_tensor
// LOWERED: stablehlo.while(
// LOWERED: {{^ *[}]$}}
// LOWERED: "stablehlo.reduce_scatter"({{.*}}) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 0>, replica_groups = dense<{{\[\[}}0, 1]]> : tensor<1x2xi64>, scatter_dimension = 1 : i64, use_global_device_ids}>
// LOWERED: mhlo.frontend_attributes = {mark = "g"}
// LOWERED-SAME: (tensor<4x8xbf16>) -> tensor<4x4xbf16>
// LOWERED-NOT: reduce_scatter
func.func @one_tensor(%x: tensor<4x8xbf16>) -> tensor<4x4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4x4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4x4xf32>, tensor<4x8xbf16>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %a = zero.from_local %g : tensor<4x8xbf16> to !whole
    %b = zero.reduce_scatter sum %a along ["node"] {zpp.reason = "it is small", zpp.source = {attributes = {mhlo.frontend_attributes = {mark = "g"}}, properties = {channel_handle = #stablehlo.channel_handle<handle = 5, type = 0>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, scatter_dimension = 1 : i64, use_global_device_ids}}} : !whole to !own
    %p = zero.to_local %b : !own to tensor<4x4xbf16>
    %q = stablehlo.convert %p : (tensor<4x4xbf16>) -> tensor<4x4xf32>
    %next = stablehlo.add %s, %q : tensor<4x4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<4x4xf32>, tensor<4x8xbf16>
  }
  return %0#1 : tensor<4x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 1>
!whole = !zero.shard<4x8xbf16, dim 1 = (2) on #mesh>
!own = !zero.shard<4x8xbf16, dim 1 = ("node") on #mesh>

// Layers are a dim of their own: the one collective scatters the next dim, and
// is not the one that was written any more.
// CHECK-LABEL: func.func @stack
// CHECK: stablehlo.while(
// CHECK-NOT: zero.reduce_scatter
// CHECK: %[[SHARD:.*]] = zero.from_local %{{.*}} : tensor<6x4x8xbf16>
// CHECK-NOT: zpp.source
// CHECK: zero.reduce_scatter sum %[[SHARD]] along ["node"] {zpp.reason = "it is small"} : <6x4x8xbf16, dim 2 = (2) on #mesh> to <6x4x8xbf16, dim 2 = ("node") on #mesh>
// CHECK: zero.to_local %{{.*}} to tensor<6x4x4xbf16>
// CHECK-NOT: zero.reduce_scatter
// LOWERED-LABEL: func.func @stack
// LOWERED-NOT: all_to_all
// LOWERED: "stablehlo.reduce_scatter"
// LOWERED-SAME: scatter_dimension = 2
// LOWERED: zpp.reason = "it is small"} : (tensor<6x4x8xbf16>) -> tensor<6x4x4xbf16>
// LOWERED-NOT: reduce_scatter
// LOWERED-NOT: all_to_all
func.func @stack(%x: tensor<4x8xbf16>) -> tensor<6x4x4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %c6 = stablehlo.constant dense<6> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<6x4x4xf32>
  %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<6x4x4xf32>, %g: tensor<4x8xbf16>):
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<6x4x4xf32>, %g: tensor<4x8xbf16>):
    %1:3 = stablehlo.while(%k = %c0, %t = %zeros, %h = %g) : tensor<i32>, tensor<6x4x4xf32>, tensor<4x8xbf16>
    cond {
      %more = stablehlo.compare LT, %k, %c6 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %a = zero.from_local %h : tensor<4x8xbf16> to !whole
      %b = zero.reduce_scatter sum %a along ["node"] {zpp.reason = "it is small", zpp.source = {attributes = {}, properties = {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, scatter_dimension = 1 : i64}}} : !whole to !own
      %p = zero.to_local %b : !own to tensor<4x4xbf16>
      %q = stablehlo.convert %p : (tensor<4x4xbf16>) -> tensor<4x4xf32>
      %row = stablehlo.reshape %q : (tensor<4x4xf32>) -> tensor<1x4x4xf32>
      %u = stablehlo.dynamic_update_slice %t, %row, %k, %c0, %c0 : (tensor<6x4x4xf32>, tensor<1x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<6x4x4xf32>
      %l = stablehlo.add %k, %c1 : tensor<i32>
      stablehlo.return %l, %u, %h : tensor<i32>, tensor<6x4x4xf32>, tensor<4x8xbf16>
    }
    %next = stablehlo.add %s, %1#1 : tensor<6x4x4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<6x4x4xf32>, tensor<4x8xbf16>
  }) : (tensor<i32>, tensor<6x4x4xf32>, tensor<4x8xbf16>) -> (tensor<i32>, tensor<6x4x4xf32>, tensor<4x8xbf16>)
  return %0#1 : tensor<6x4x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 1>
!whole = !zero.shard<4x8xbf16, dim 1 = (2) on #mesh>
!own = !zero.shard<4x8xbf16, dim 1 = ("node") on #mesh>

// One that is to be decomposed has layers as a factor of the dim.
// CHECK-LABEL: func.func @stack_to_decompose
// CHECK: zero.from_local %{{.*}} : tensor<4x48xbf16>
// CHECK: zero.reduce_scatter {{.*}} : <4x48xbf16, dim 1 = (6, 2) on #mesh> to <4x48xbf16, dim 1 = (6, "node") on #mesh>
// LOWERED-LABEL: func.func @stack_to_decompose
// LOWERED-NOT: reduce_scatter
// LOWERED: "stablehlo.all_to_all"
// LOWERED-NOT: reduce_scatter
func.func @stack_to_decompose(%x: tensor<4x8xbf16>) -> tensor<6x4x4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %c6 = stablehlo.constant dense<6> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<6x4x4xf32>
  %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<6x4x4xf32>, %g: tensor<4x8xbf16>):
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<6x4x4xf32>, %g: tensor<4x8xbf16>):
    %1:3 = stablehlo.while(%k = %c0, %t = %zeros, %h = %g) : tensor<i32>, tensor<6x4x4xf32>, tensor<4x8xbf16>
    cond {
      %more = stablehlo.compare LT, %k, %c6 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %a = zero.from_local %h : tensor<4x8xbf16> to !whole
      %b = zero.reduce_scatter sum %a along ["node"] : !whole to !own
      %p = zero.to_local %b : !own to tensor<4x4xbf16>
      %q = stablehlo.convert %p : (tensor<4x4xbf16>) -> tensor<4x4xf32>
      %row = stablehlo.reshape %q : (tensor<4x4xf32>) -> tensor<1x4x4xf32>
      %u = stablehlo.dynamic_update_slice %t, %row, %k, %c0, %c0 : (tensor<6x4x4xf32>, tensor<1x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<6x4x4xf32>
      %l = stablehlo.add %k, %c1 : tensor<i32>
      stablehlo.return %l, %u, %h : tensor<i32>, tensor<6x4x4xf32>, tensor<4x8xbf16>
    }
    %next = stablehlo.add %s, %1#1 : tensor<6x4x4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<6x4x4xf32>, tensor<4x8xbf16>
  }) : (tensor<i32>, tensor<6x4x4xf32>, tensor<4x8xbf16>) -> (tensor<i32>, tensor<6x4x4xf32>, tensor<4x8xbf16>)
  return %0#1 : tensor<6x4x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<4x8xbf16, dim 1 = (2, 4) on #mesh>
!own = !zero.shard<4x8xbf16, dim 1 = ("node", "gpu") on #mesh>

// One that also sums within the group has no partial sum, and stays in the loop.
// LOWERED-LABEL: func.func @over_all_tiers
// CHECK-LABEL: func.func @over_all_tiers
// CHECK: stablehlo.while(
// CHECK: zero.reduce_scatter {{.*}}zpp.source
// CHECK: {{^ *[}]$}}
// CHECK-NOT: zero.reduce_scatter
// REMARK-COUNT-2: added up before it crosses slower tiers
// REMARK: in-each-iteration {{.*}}because it stays one hop over all tiers: it is small; take fewer, larger micro-batches
func.func @over_all_tiers(%x: tensor<4x8xbf16>) -> tensor<4x1xbf16> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4x1xbf16>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4x1xbf16>, tensor<4x8xbf16>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %a = zero.from_local %g : tensor<4x8xbf16> to !whole
    %b = zero.reduce_scatter sum %a along ["node", "gpu"] {zpp.reason = "it is small", zpp.source = {attributes = {}, properties = {replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, scatter_dimension = 1 : i64}}} : !whole to !own
    %p = zero.to_local %b : !own to tensor<4x1xbf16>
    %next = stablehlo.add %s, %p : tensor<4x1xbf16>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<4x1xbf16>, tensor<4x8xbf16>
  }
  return %0#1 : tensor<4x1xbf16>
}
