// RUN: zpp-opt %s --zero-partition-within-node=split-small=true --split-input-file \
// RUN:   --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-partition-within-node=split-small=true \
// RUN:   --zero-partition-within-node=split-small=true --split-input-file \
// RUN:   --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-partition-within-node=split-small=true --split-input-file \
// RUN:   --remarks-filter=zero-partition-within-node -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: zpp-opt %s --zero-partition-within-node --split-input-file --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=FLAT
// Together they are one exchange per hop, and what is kept is sent as it is.
// RUN: zpp-opt %s --zero-partition-within-node=split-small=true --zero-decompose-all-gather \
// RUN:   --zero-fuse-quantization --zero-coalesce-collectives --split-input-file --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=JOINED

// A small weight is gathered in two hops beside a weight that is split, to
// travel with it. A weight that is large, or in another place, stays as it is.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<8192x4096xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<8192x4096xbf16, dim 0 = (2, 4) on #mesh>
!primary_i8 = !zero.shard<8192x4096xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8, block = 128>>
!whole_i8 = !zero.shard<8192x4096xbf16, dim 0 = (2, 4) on #mesh, #zero.quant<i8, block = 128>>
!small = !zero.shard<64xbf16, dim 0 = ("node", "gpu") on #mesh>
!small_whole = !zero.shard<64xbf16, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @beside
// FLAT-LABEL: func @beside
func.func @beside(%w: tensor<1024x4096xbf16>, %b: tensor<8xbf16>, %c: tensor<8xbf16>, %d: tensor<8xbf16>, %e: tensor<1024x4096xbf16>, %x: tensor<4x4xf32>)
    -> (!whole, !whole, !whole, !small_whole, !small_whole, !small_whole, !small_whole, tensor<4x4xf32>) {
  // CHECK: %[[KEPT:.*]] = zero.all_gather {{.*}} along ["node"] {zpp.keep, zpp.origin = {gets = ["secondary"], id = 0 : i64}}
  // CHECK: zero.all_gather %[[KEPT]] along ["gpu"] {zpp.origin = {id = 0 : i64}}
  // FLAT: along ["node"] {zpp.keep, zpp.origin = {gets = ["secondary"], id = 0
  %0 = zero.from_local %w : tensor<1024x4096xbf16> to !primary
  %1 = zero.encode %0 : !primary to !primary_i8
  %2 = zero.all_gather %1 along ["node", "gpu"] {zpp.origin = {id = 0}} : !primary_i8 to !whole_i8
  %3 = zero.decode %2 : !whole_i8 to !whole
  // Gathered once, but small.
  // CHECK: %[[PART:.*]] = zero.all_gather {{.*}} along ["node"] {zpp.origin = {id = 1 : i64}}
  // CHECK-SAME: to <64xbf16, dim 0 = (2, "gpu") on #mesh>
  // CHECK: zero.all_gather %[[PART]] along ["gpu"] {zpp.origin = {id = 1 : i64}}
  // FLAT: along ["node", "gpu"] {zpp.origin = {id = 1 : i64, lacks = {secondary = "it is gathered once{{.*}}"}}, zpp.reason = "it is gathered once
  // REMARK: [Passed] rewritten | Category:zero-partition-within-node{{.*}}gathered in 2 hops, to travel with others
  %4 = zero.from_local %b : tensor<8xbf16> to !small
  %5 = zero.all_gather %4 along ["node", "gpu"] {zpp.origin = {id = 1}} : !small to !small_whole
  // Gathered twice.
  // CHECK: along ["node"] {zpp.keep, zpp.origin = {gets = ["secondary"], id = 2
  %6 = zero.from_local %c : tensor<8xbf16> to !small
  %7 = zero.all_gather %6 along ["node", "gpu"] {zpp.origin = {id = 2}} : !small to !small_whole
  // Gathered once, and large.
  // CHECK: along ["node", "gpu"] {zpp.origin = {id = 3 : i64, lacks = {secondary = "it is gathered once{{.*}}"}}, zpp.reason = "it is gathered once
  %8 = zero.from_local %e : tensor<1024x4096xbf16> to !primary
  %9 = zero.encode %8 : !primary to !primary_i8
  %10 = zero.all_gather %9 along ["node", "gpu"] {zpp.origin = {id = 3}} : !primary_i8 to !whole_i8
  %11 = zero.decode %10 : !whole_i8 to !whole
  %12 = "stablehlo.dot_general"(%x, %x) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  // Nothing to travel with.
  // CHECK: along ["node", "gpu"] {zpp.origin = {id = 4 : i64, lacks = {secondary = "it is gathered once{{.*}}"}}, zpp.reason = "it is gathered once
  %13 = zero.from_local %d : tensor<8xbf16> to !small
  %14 = zero.all_gather %13 along ["node", "gpu"] {zpp.origin = {id = 4}} : !small to !small_whole
  %15:3 = stablehlo.optimization_barrier %w, %c, %12 : tensor<1024x4096xbf16>, tensor<8xbf16>, tensor<4x4xf32>
  // CHECK: along ["gpu"] {zpp.origin = {id = 5
  %16 = zero.from_local %15#0 : tensor<1024x4096xbf16> to !primary
  %17 = zero.encode %16 : !primary to !primary_i8
  %18 = zero.all_gather %17 along ["node", "gpu"] {zpp.origin = {id = 5}} : !primary_i8 to !whole_i8
  %19 = zero.decode %18 : !whole_i8 to !whole
  // CHECK: along ["gpu"] {zpp.origin = {id = 6
  %20 = zero.from_local %15#1 : tensor<8xbf16> to !small
  %21 = zero.all_gather %20 along ["node", "gpu"] {zpp.origin = {id = 6}} : !small to !small_whole
  return %3, %11, %19, %5, %7, %14, %21, %15#2 : !whole, !whole, !whole, !small_whole, !small_whole, !small_whole, !small_whole, tensor<4x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>

// Collectives that are not quantized are left to XLA, which joins nothing.

// CHECK-LABEL: func @not_quantized
// CHECK: along ["node"] {zpp.keep
// CHECK: along ["node", "gpu"] {zpp.reason = "it is gathered once
func.func @not_quantized(%w: tensor<32x64xbf16>, %v: tensor<32x64xbf16>) -> (!whole, !whole, !whole) {
  %0 = zero.from_local %w : tensor<32x64xbf16> to !primary
  %1 = zero.all_gather %0 along ["node", "gpu"] : !primary to !whole
  %2 = zero.from_local %v : tensor<32x64xbf16> to !primary
  %3 = zero.all_gather %2 along ["node", "gpu"] : !primary to !whole
  %4 = zero.all_gather %0 along ["node", "gpu"] : !primary to !whole
  return %1, %3, %4 : !whole, !whole, !whole
}

// -----

#mesh = #zero.mesh<"rack" = 2, "node" = 2, "gpu" = 2>
!primary = !zero.shard<256x64xbf16, dim 0 = ("rack", "node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 2, 2) on #mesh>
!primary_i8 = !zero.shard<256x64xbf16, dim 0 = ("rack", "node", "gpu") on #mesh, #zero.quant<i8, block = 128>>
!whole_i8 = !zero.shard<256x64xbf16, dim 0 = (2, 2, 2) on #mesh, #zero.quant<i8, block = 128>>
!small = !zero.shard<64xbf16, dim 0 = ("rack", "node", "gpu") on #mesh>
!small_whole = !zero.shard<64xbf16, dim 0 = (2, 2, 2) on #mesh>
!other = !zero.shard<64xbf16, dim 0 = ("node", "gpu") on #mesh>
!other_whole = !zero.shard<64xbf16, dim 0 = (2, 2) on #mesh>

// Three tiers. A gather cannot travel with one over other axes.

// CHECK-LABEL: func @three_tiers
// CHECK: along ["rack", "node"] {zpp.origin = {id = 1  {{.*}} : {{.*}} to <64xbf16, dim 0 = (2, 2, "gpu") on #mesh>
// CHECK: along ["gpu"] {zpp.origin = {id = 1
// CHECK: along ["node", "gpu"] {zpp.origin = {id = 2  {{.*}}zpp.reason = "it is gathered once

// JOINED-LABEL: func @three_tiers
// JOINED: zero.all_gather_chunks {{.*}} along ["rack", "node"] {{.*}}id = 0 {{.*}}share = 2080{{.*}}id = 1 {{.*}}share = 16
// JOINED: %[[KEPT:.*]] = zero.unpack_slices {{.*}} -> tensor<4x2096xi8>
// JOINED: zero.all_gather_chunks %[[KEPT]] along ["gpu"]
// JOINED: zero.all_gather_chunks {{.*}} along ["node", "gpu"]
// JOINED: %[[CROSSED:.*]] = stablehlo.optimization_barrier %[[KEPT]]
// JOINED: zero.all_gather_chunks %[[CROSSED]] along ["gpu"] {{.*}}id = 3 {{.*}}share = 2096
func.func @three_tiers(%w: tensor<32x64xbf16>, %b: tensor<8xbf16>, %c: tensor<16xbf16>)
    -> (!whole, !small_whole, !other_whole, !whole) {
  %0 = zero.from_local %w : tensor<32x64xbf16> to !primary
  %1 = zero.encode %0 : !primary to !primary_i8
  %2 = zero.all_gather %1 along ["rack", "node", "gpu"] {zpp.origin = {id = 0, role = "weight"}} : !primary_i8 to !whole_i8
  %3 = zero.decode %2 : !whole_i8 to !whole
  %4 = zero.from_local %b : tensor<8xbf16> to !small
  %5 = zero.all_gather %4 along ["rack", "node", "gpu"] {zpp.origin = {id = 1, role = "weight"}} : !small to !small_whole
  %6 = zero.from_local %c : tensor<16xbf16> to !other
  %7 = zero.all_gather %6 along ["node", "gpu"] {zpp.origin = {id = 2, role = "weight"}} : !other to !other_whole
  %8 = zero.encode %0 : !primary to !primary_i8
  %9 = zero.all_gather %8 along ["rack", "node", "gpu"] {zpp.origin = {id = 3, role = "weight"}} : !primary_i8 to !whole_i8
  %10 = zero.decode %9 : !whole_i8 to !whole
  return %3, %5, %7, %10 : !whole, !small_whole, !other_whole, !whole
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>
!primary_i8 = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8, block = 128>>
!whole_i8 = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh, #zero.quant<i8, block = 128>>
!small = !zero.shard<16xbf16, dim 0 = ("node", "gpu") on #mesh>
!small_whole = !zero.shard<16xbf16, dim 0 = (2, 4) on #mesh>

// In a loop it is hoisted with the others: out of all layers at once.

// CHECK-LABEL: func @loops
func.func @loops(%stack: tensor<3x32x64xbf16>, %biases: tensor<3x2xbf16>, %i: tensor<i32>, %y: tensor<256x64xbf16>, %z: tensor<16xbf16>)
    -> (tensor<256x64xbf16>, tensor<16xbf16>) {
  // CHECK: zero.all_gather {{.*}} along ["node"] {zpp.keep, zpp.origin = {gets = ["secondary"], id = 0
  // CHECK: zero.all_gather {{.*}} along ["node"] {zpp.keep, zpp.origin = {gets = ["secondary"], id = 1 {{.*}} to <48xbf16, dim 0 = (3, 2, "gpu") on #mesh>
  // CHECK: stablehlo.while(
  // CHECK: zero.all_gather {{.*}} along ["gpu"] {zpp.origin = {id = 0
  // CHECK: zero.all_gather {{.*}} along ["gpu"] {zpp.origin = {id = 1
  // CHECK: stablehlo.while(
  // CHECK: zero.all_gather {{.*}} along ["gpu"] {zpp.origin = {id = 2
  // REMARK: hoisted out of the loops, its result is kept for 2 gathers
  // REMARK: hoisted out of the loops, its result is kept for 1 gather"
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:5 = stablehlo.while(%c = %i, %s = %stack, %v = %biases, %a = %y, %b = %z) : tensor<i32>, tensor<3x32x64xbf16>, tensor<3x2xbf16>, tensor<256x64xbf16>, tensor<16xbf16>
  cond {
    %t = stablehlo.compare LT, %c, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %l = stablehlo.dynamic_slice %s, %c, %zero, %zero, sizes = [1, 32, 64] : (tensor<3x32x64xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x32x64xbf16>
    %m = stablehlo.reshape %l : (tensor<1x32x64xbf16>) -> tensor<32x64xbf16>
    %p = zero.from_local %m : tensor<32x64xbf16> to !primary
    %q = zero.encode %p : !primary to !primary_i8
    %w = zero.all_gather %q along ["node", "gpu"] {zpp.origin = {id = 0}} : !primary_i8 to !whole_i8
    %d = zero.decode %w : !whole_i8 to !whole
    %f = zero.to_local %d : !whole to tensor<256x64xbf16>
    %n = stablehlo.dynamic_slice %v, %c, %zero, sizes = [1, 2] : (tensor<3x2xbf16>, tensor<i32>, tensor<i32>) -> tensor<1x2xbf16>
    %o = stablehlo.reshape %n : (tensor<1x2xbf16>) -> tensor<2xbf16>
    %r = zero.from_local %o : tensor<2xbf16> to !small
    %u = zero.all_gather %r along ["node", "gpu"] {zpp.origin = {id = 1}} : !small to !small_whole
    %g = zero.to_local %u : !small_whole to tensor<16xbf16>
    stablehlo.return %c, %s, %v, %f, %g : tensor<i32>, tensor<3x32x64xbf16>, tensor<3x2xbf16>, tensor<256x64xbf16>, tensor<16xbf16>
  }
  %1:3 = stablehlo.while(%c = %i, %s = %stack, %a = %0#3) : tensor<i32>, tensor<3x32x64xbf16>, tensor<256x64xbf16>
  cond {
    %t = stablehlo.compare LT, %c, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %l = stablehlo.dynamic_slice %s, %c, %zero, %zero, sizes = [1, 32, 64] : (tensor<3x32x64xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x32x64xbf16>
    %m = stablehlo.reshape %l : (tensor<1x32x64xbf16>) -> tensor<32x64xbf16>
    %p = zero.from_local %m : tensor<32x64xbf16> to !primary
    %q = zero.encode %p : !primary to !primary_i8
    %w = zero.all_gather %q along ["node", "gpu"] {zpp.origin = {id = 2}} : !primary_i8 to !whole_i8
    %d = zero.decode %w : !whole_i8 to !whole
    %f = zero.to_local %d : !whole to tensor<256x64xbf16>
    stablehlo.return %c, %s, %f : tensor<i32>, tensor<3x32x64xbf16>, tensor<256x64xbf16>
  }
  return %1#2, %0#4 : tensor<256x64xbf16>, tensor<16xbf16>
}
