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
  %3:2 = "stablehlo.optimization_barrier"(%x, %w) : (tensor<4xf32>, tensor<32x64xbf16>) -> (tensor<4xf32>, tensor<32x64xbf16>)
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
  // NUMBER: "stablehlo.optimization_barrier"(%{{.*}}, %{{.*}}) : (tensor<4xf32>, tensor<32x64xbf16>)
  // NUMBER: zero.all_gather
  %0 = zero.from_local %w : tensor<32x64xbf16> to !primary
  // expected-remark@+1 {{its secondary group is one device; secondary=1 keeps whole weights on each}}
  %1 = zero.all_gather %0 along ["node"] : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<64x64xbf16>
  %3:2 = "stablehlo.optimization_barrier"(%x, %w) : (tensor<4xf32>, tensor<32x64xbf16>) -> (tensor<4xf32>, tensor<32x64xbf16>)
  %4 = zero.from_local %3#1 : tensor<32x64xbf16> to !primary
  // expected-remark@+1 {{its secondary group is one device; secondary=1 keeps whole weights on each}}
  %5 = zero.all_gather %4 along ["node"] : !primary to !whole
  %6 = zero.to_local %5 : !whole to tensor<64x64xbf16>
  return %2, %3#0 : tensor<64x64xbf16>, tensor<4xf32>
}
