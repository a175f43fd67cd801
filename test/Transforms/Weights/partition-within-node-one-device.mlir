// RUN: zpp-opt %s --zero-partition-within-node=secondary=gpu --verify-diagnostics \
// RUN:   | FileCheck %s --check-prefix=TIER
// RUN: zpp-opt %s --zero-partition-within-node=secondary=1 --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=NUMBER

// A tier of one device is a group of one by accident, the number 1 is meant.

#mesh = #zero.mesh<"node" = 2, "gpu" = 1>
!primary = !zero.shard<64x64xbf16, dim 0 = ("node") on #mesh>
!whole = !zero.shard<64x64xbf16, dim 0 = (2) on #mesh>

// TIER-LABEL: func @weight
// NUMBER-LABEL: func @weight
func.func @weight(%w: tensor<32x64xbf16>, %x: tensor<4xf32>)
    -> (tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<4xf32>) {
  // TIER-COUNT-2: zero.all_gather {{.*}} along ["node"]
  // NUMBER: zero.all_gather {{.*}} along ["node"] {zpp.keep
  // NUMBER-NOT: zero.all_gather
  %0 = zero.from_local %w : tensor<32x64xbf16> to !primary
  // expected-remark@+1 {{its secondary group is one device; secondary=1 keeps whole weights on each}}
  %1 = zero.all_gather %0 along ["node"] : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<64x64xbf16>
  %3:2 = stablehlo.optimization_barrier %x, %w : tensor<4xf32>, tensor<32x64xbf16>
  %4 = zero.from_local %3#1 : tensor<32x64xbf16> to !primary
  // expected-remark@+1 {{its secondary group is one device; secondary=1 keeps whole weights on each}}
  %5 = zero.all_gather %4 along ["node"] : !primary to !whole
  %6 = zero.to_local %5 : !whole to tensor<64x64xbf16>
  return %2, %6, %3#0 : tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<4xf32>
}

// A gather that nobody reads keeps nothing, and its barrier stays.

// TIER-LABEL: func @unread
// NUMBER-LABEL: func @unread
func.func @unread(%w: tensor<32x64xbf16>, %x: tensor<4xf32>)
    -> (tensor<64x64xbf16>, tensor<4xf32>) {
  // NUMBER: stablehlo.optimization_barrier %{{.*}}, %{{.*}} : tensor<4xf32>, tensor<32x64xbf16>
  // NUMBER: zero.all_gather
  %0 = zero.from_local %w : tensor<32x64xbf16> to !primary
  // expected-remark@+1 {{its secondary group is one device; secondary=1 keeps whole weights on each}}
  %1 = zero.all_gather %0 along ["node"] : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<64x64xbf16>
  %3:2 = stablehlo.optimization_barrier %x, %w : tensor<4xf32>, tensor<32x64xbf16>
  %4 = zero.from_local %3#1 : tensor<32x64xbf16> to !primary
  // expected-remark@+1 {{its secondary group is one device; secondary=1 keeps whole weights on each}}
  %5 = zero.all_gather %4 along ["node"] : !primary to !whole
  %6 = zero.to_local %5 : !whole to tensor<64x64xbf16>
  return %2, %3#0 : tensor<64x64xbf16>, tensor<4xf32>
}

// Nor is the stack of all layers erased with what nobody reads in the first loop:
// the second one takes its layers from it.

// TIER-LABEL: func @unread_in_a_loop
// NUMBER-LABEL: func @unread_in_a_loop
func.func @unread_in_a_loop(%x: tensor<3x32x64xbf16>, %z: tensor<64x64xbf16>) -> tensor<64x64xbf16> {
  // NUMBER: zero.all_gather {{.*}} {zpp.keep
  // NUMBER: zero.to_local
  // NUMBER: %[[STACK:.*]] = stablehlo.reshape
  // NUMBER: stablehlo.while(
  // NUMBER: stablehlo.while(
  // NUMBER: stablehlo.dynamic_slice %[[STACK]],
  // NUMBER-NOT: zero.all_gather
  // NUMBER: return
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %a:3 = stablehlo.while(%i = %c0, %s = %x, %y = %z) : tensor<i32>, tensor<3x32x64xbf16>, tensor<64x64xbf16>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %l = stablehlo.dynamic_slice %s, %i, %c0, %c0, sizes = [1, 32, 64] : (tensor<3x32x64xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x32x64xbf16>
    %w = stablehlo.reshape %l : (tensor<1x32x64xbf16>) -> tensor<32x64xbf16>
    %p = zero.from_local %w : tensor<32x64xbf16> to !primary
    // expected-remark@+1 {{its secondary group is one device; secondary=1 keeps whole weights on each}}
    %g = zero.all_gather %p along ["node"] : !primary to !whole
    %t = zero.to_local %g : !whole to tensor<64x64xbf16>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %s, %y : tensor<i32>, tensor<3x32x64xbf16>, tensor<64x64xbf16>
  }
  %b:3 = stablehlo.while(%i = %c0, %s = %x, %y = %a#2) : tensor<i32>, tensor<3x32x64xbf16>, tensor<64x64xbf16>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %l = stablehlo.dynamic_slice %s, %i, %c0, %c0, sizes = [1, 32, 64] : (tensor<3x32x64xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x32x64xbf16>
    %w = stablehlo.reshape %l : (tensor<1x32x64xbf16>) -> tensor<32x64xbf16>
    %p = zero.from_local %w : tensor<32x64xbf16> to !primary
    // expected-remark@+1 {{its secondary group is one device; secondary=1 keeps whole weights on each}}
    %g = zero.all_gather %p along ["node"] : !primary to !whole
    %t = zero.to_local %g : !whole to tensor<64x64xbf16>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %s, %t : tensor<i32>, tensor<3x32x64xbf16>, tensor<64x64xbf16>
  }
  return %b#2 : tensor<64x64xbf16>
}
