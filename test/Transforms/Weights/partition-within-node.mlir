// RUN: zpp-opt %s --zero-partition-within-node --split-input-file \
// RUN:   --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-partition-within-node --zero-partition-within-node \
// RUN:   --split-input-file --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-partition-within-node --split-input-file \
// RUN:   --verify-diagnostics -o /dev/null
// RUN: zpp-opt %s --zero-partition-within-node=secondary=2 --split-input-file \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=PAIR
// RUN: zpp-opt %s --zero-partition-within-node=secondary=node \
// RUN:   --split-input-file --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=NODE
// RUN: zpp-opt %s --zero-partition-within-node=secondary=1 \
// RUN:   --split-input-file --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=ONE

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>

// The primary partition leaves the barrier, the secondary one takes its place.

// CHECK-LABEL: func @weight
// PAIR-LABEL: func @weight
// NODE-LABEL: func @weight
// ONE-LABEL: func @weight
func.func @weight(%w: tensor<32x64xf32>, %x: tensor<4xf32>)
    -> (tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<4xf32>) {
  // CHECK: %[[CAST:.*]] = stablehlo.convert %arg0
  // CHECK: %[[PRIMARY:.*]] = zero.from_local %[[CAST]]
  // CHECK: %[[KEPT:.*]] = zero.all_gather %[[PRIMARY]] along ["node"] {zpp.keep, zpp.origin = {gets = ["secondary"], id = 1 : i64}}
  // CHECK-SAME: to <256x64xbf16, dim 0 = (2, "gpu") on #mesh>
  // CHECK: %[[FORWARD:.*]] = zero.all_gather %[[KEPT]] along ["gpu"] {zpp.origin = {id = 1 : i64}}
  // CHECK: %[[SECONDARY:.*]] = zero.to_local %[[KEPT]]
  // CHECK: %[[FIRST:.*]] = zero.to_local %[[FORWARD]]
  // CHECK: %[[BARRIER:.*]]:2 = stablehlo.optimization_barrier %arg1, %[[SECONDARY]]
  // CHECK: %[[SHARD:.*]] = zero.from_local %[[BARRIER]]#1 : tensor<64x64xbf16>
  // CHECK: %[[BACKWARD:.*]] = zero.all_gather %[[SHARD]] along ["gpu"] {zpp.origin = {id = 2 : i64}}
  // CHECK: %[[SECOND:.*]] = zero.to_local %[[BACKWARD]]
  // CHECK: return %[[FIRST]], %[[SECOND]], %[[BARRIER]]#0

  // A group of one device keeps the whole weight, which is not sent again.
  // ONE: %[[GATHERED:.*]] = zero.all_gather {{.*}} along ["node", "gpu"] {zpp.keep
  // ONE: %[[WHOLE:.*]] = zero.to_local %[[GATHERED]]
  // ONE: stablehlo.optimization_barrier %arg1, %[[WHOLE]]
  // ONE-NOT: zero.all_gather
  // ONE: return

  // A group size cuts an axis where its border falls inside it.
  // PAIR: zero.all_gather {{.*}} along ["node", "gpu":(1)2] {zpp.keep
  // PAIR-SAME: to <256x64xbf16, dim 0 = (2, 2, "gpu":(2)2) on #mesh>
  // PAIR: zero.all_gather {{.*}} along ["gpu":(2)2]
  // PAIR: optimization_barrier{{.*}} tensor<128x64xbf16>
  // PAIR: zero.all_gather {{.*}} along ["gpu":(2)2]

  // The slowest tier of the group is all there is: nothing to shorten.
  // NODE-COUNT-2: along ["node", "gpu"] {{.*}}zpp.reason = "its group lies within the secondary group of 8; secondary=N with N below 8 keeps it"
  %0 = stablehlo.convert %w : (tensor<32x64xf32>) -> tensor<32x64xbf16>
  %1 = zero.from_local %0 : tensor<32x64xbf16> to !primary
  %2 = zero.all_gather %1 along ["node", "gpu"] {zpp.origin = {id = 1}} : !primary to !whole
  %3 = zero.to_local %2 : !whole to tensor<256x64xbf16>
  %4:2 = stablehlo.optimization_barrier %0, %x : tensor<32x64xbf16>, tensor<4xf32>
  %5 = zero.from_local %4#0 : tensor<32x64xbf16> to !primary
  %6 = zero.all_gather %5 along ["node", "gpu"] {zpp.origin = {id = 2}} : !primary to !whole
  %7 = zero.to_local %6 : !whole to tensor<256x64xbf16>
  return %3, %7, %4#1 : tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>
!primary_i8 = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8, block = 128>>
!whole_i8 = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh, #zero.quant<i8, block = 128>>

// The received bytes are kept as they are: 2 chunks of 2080 bytes.

// CHECK-LABEL: func @quantized
func.func @quantized(%w: tensor<32x64xbf16>, %x: tensor<4xf32>)
    -> (tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<4xf32>) {
  // CHECK: zero.encode
  // CHECK-NOT: zero.encode
  // CHECK: %[[KEPT:.*]] = zero.all_gather {{.*}} along ["node"] {zpp.keep}
  // CHECK: %[[CODES:.*]] = zero.to_local %[[KEPT]] : {{.*}} to tensor<2x2080xi8>
  // CHECK: %[[BARRIER:.*]]:2 = stablehlo.optimization_barrier %arg1, %[[CODES]]
  // CHECK: zero.from_local %[[BARRIER]]#1 : tensor<2x2080xi8> to <256x64xbf16, dim 0 = (2, "gpu") on #mesh, #zero.quant<i8, block = 128>>
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  // CHECK: zero.decode
  %1 = zero.from_local %w : tensor<32x64xbf16> to !primary
  %e1 = zero.encode %1 : !primary to !primary_i8
  %2 = zero.all_gather %e1 along ["node", "gpu"] : !primary_i8 to !whole_i8
  %d1 = zero.decode %2 : !whole_i8 to !whole
  %3 = zero.to_local %d1 : !whole to tensor<256x64xbf16>
  %4:2 = stablehlo.optimization_barrier %w, %x : tensor<32x64xbf16>, tensor<4xf32>
  %5 = zero.from_local %4#0 : tensor<32x64xbf16> to !primary
  %e2 = zero.encode %5 : !primary to !primary_i8
  %6 = zero.all_gather %e2 along ["node", "gpu"] : !primary_i8 to !whole_i8
  %d2 = zero.decode %6 : !whole_i8 to !whole
  %7 = zero.to_local %d2 : !whole to tensor<256x64xbf16>
  return %3, %7, %4#1 : tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"rack" = 2, "node" = 2, "gpu" = 2>
!primary = !zero.shard<8x64xf32, dim 0 = ("rack", "node", "gpu") on #mesh>
!whole = !zero.shard<8x64xf32, dim 0 = (2, 2, 2) on #mesh>

// Three tiers; no barrier in the graph, so that one is put there.

// CHECK-LABEL: func @three_tiers
// NODE-LABEL: func @three_tiers
func.func @three_tiers(%w: tensor<1x64xf32>) -> (tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>) {
  // CHECK: %[[KEPT:.*]] = zero.all_gather {{.*}} along ["rack", "node"] {zpp.keep}
  // CHECK: %[[SECONDARY:.*]] = zero.to_local %[[KEPT]] : {{.*}} to tensor<4x64xf32>
  // CHECK-COUNT-2: stablehlo.optimization_barrier %[[SECONDARY]]
  // CHECK-NOT: "rack"]
  // NODE: along ["rack"] {zpp.keep}
  // NODE: along ["node", "gpu"]
  // NODE: optimization_barrier{{.*}} tensor<2x64xf32>
  %1 = zero.from_local %w : tensor<1x64xf32> to !primary
  %2 = zero.all_gather %1 along ["rack", "node", "gpu"] : !primary to !whole
  %3 = zero.to_local %2 : !whole to tensor<8x64xf32>
  %4 = zero.all_gather %1 along ["rack", "node", "gpu"] : !primary to !whole
  %5 = zero.to_local %4 : !whole to tensor<8x64xf32>
  %6 = zero.all_gather %1 along ["rack", "node", "gpu"] : !primary to !whole
  %7 = zero.to_local %6 : !whole to tensor<8x64xf32>
  return %3, %5, %7 : tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("gpu", "node") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (4, 2) on #mesh>

// Slices ordered by GPU first: the fast axis stays the secondary group.

// CHECK-LABEL: func @gpu_major
func.func @gpu_major(%w: tensor<32x64xbf16>) -> (tensor<256x64xbf16>, tensor<256x64xbf16>) {
  // CHECK: along ["node"] {zpp.keep} : {{.*}} to <256x64xbf16, dim 0 = ("gpu", 2) on #mesh>
  // CHECK: along ["gpu"] : <256x64xbf16, dim 0 = ("gpu", 2) on #mesh> to <256x64xbf16, dim 0 = (4, 2) on #mesh>
  %1 = zero.from_local %w : tensor<32x64xbf16> to !primary
  %2 = zero.all_gather %1 along ["gpu", "node"] : !primary to !whole
  %3 = zero.to_local %2 : !whole to tensor<256x64xbf16>
  %4 = zero.all_gather %1 along ["gpu", "node"] : !primary to !whole
  %5 = zero.to_local %4 : !whole to tensor<256x64xbf16>
  return %3, %5 : tensor<256x64xbf16>, tensor<256x64xbf16>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>
!node_primary = !zero.shard<256x64xbf16, dim 0 = ("gpu") on #mesh>
!node_whole = !zero.shard<256x64xbf16, dim 0 = (4) on #mesh>

// CHECK-LABEL: func @left_alone
func.func @left_alone(%w: tensor<32x64xbf16>, %v: tensor<64x64xbf16>)
    -> (tensor<256x64xbf16>, tensor<256x64xbf16>) {
  %0 = zero.from_local %w : tensor<32x64xbf16> to !primary
  // CHECK: along ["node", "gpu"] {zpp.reason = "it is gathered once; zero-regather
  // expected-remark@+1 {{it is gathered once; zero-regather can gather it again in the backward pass}}
  %1 = zero.all_gather %0 along ["node", "gpu"] : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<256x64xbf16>
  %3 = zero.from_local %v : tensor<64x64xbf16> to !node_primary
  // CHECK: along ["gpu"] {zpp.reason = "its group lies within the secondary group of 4; secondary=N with N below 4 keeps it"}
  // expected-remark@+1 {{its group lies within the secondary group of 4}}
  %4 = zero.all_gather %3 along ["gpu"] : !node_primary to !node_whole
  %5 = zero.to_local %4 : !node_whole to tensor<256x64xbf16>
  return %2, %5 : tensor<256x64xbf16>, tensor<256x64xbf16>
}

// If zero-regather has found nothing to do, the remark does not recommend it.

// CHECK-LABEL: func @not_read_late
func.func @not_read_late(%w: tensor<32x64xbf16>) -> tensor<256x64xbf16> {
  %0 = zero.from_local %w : tensor<32x64xbf16> to !primary
  // CHECK: zpp.forward_only, zpp.reason = "it is gathered once"}
  // expected-remark@+1 {{it is gathered once}}
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.forward_only} : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<256x64xbf16>
  return %2 : tensor<256x64xbf16>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<5x16xbf16, dim 1 = ("node", "gpu") on #mesh>
!whole = !zero.shard<5x16xbf16, dim 1 = (2, 4) on #mesh>

// Two loops over three layers: all secondary partitions are gathered before the
// first one, as one tensor that has the layer as a factor held whole.

// CHECK-LABEL: func @loops
func.func @loops(%stack: tensor<3x5x2xf32>, %i: tensor<i32>, %y: tensor<5x16xbf16>) -> tensor<5x16xbf16> {
  // CHECK: %[[CAST:.*]] = stablehlo.convert %arg0 : (tensor<3x5x2xf32>) -> tensor<3x5x2xbf16>
  // CHECK: %[[MOVED:.*]] = stablehlo.transpose %[[CAST]], dims = [1, 0, 2]
  // CHECK: %[[FLAT:.*]] = stablehlo.reshape %[[MOVED]] : {{.*}} -> tensor<5x6xbf16>
  // CHECK: zero.from_local %[[FLAT]] : tensor<5x6xbf16> to <5x48xbf16, dim 1 = (3, "node", "gpu") on #mesh>
  // CHECK: zero.all_gather {{.*}} along ["node"] {zpp.keep} : {{.*}} to <5x48xbf16, dim 1 = (3, 2, "gpu") on #mesh>
  // CHECK: stablehlo.reshape{{.*}} -> tensor<5x3x4xbf16>
  // CHECK: %[[KEPT:.*]] = stablehlo.transpose{{.*}} -> tensor<3x5x4xbf16>
  // CHECK: stablehlo.while(
  // CHECK: %[[SLICE:.*]] = stablehlo.dynamic_slice %[[KEPT]], {{.*}}, sizes = [1, 5, 4]
  // CHECK: %[[LAYER:.*]] = stablehlo.reshape %[[SLICE]] : {{.*}} -> tensor<5x4xbf16>
  // CHECK: zero.from_local %[[LAYER]] : tensor<5x4xbf16> to <5x16xbf16, dim 1 = (2, "gpu") on #mesh>
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  // CHECK: stablehlo.while(
  // CHECK: stablehlo.dynamic_slice %[[KEPT]],
  // CHECK: zero.all_gather {{.*}} along ["gpu"]
  // CHECK-NOT: "node"]
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:3 = stablehlo.while(%c = %i, %s = %stack, %a = %y) : tensor<i32>, tensor<3x5x2xf32>, tensor<5x16xbf16>
  cond {
    %t = stablehlo.compare LT, %c, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %l = stablehlo.dynamic_slice %s, %c, %zero, %zero, sizes = [1, 5, 2] : (tensor<3x5x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x5x2xf32>
    %m = stablehlo.reshape %l : (tensor<1x5x2xf32>) -> tensor<5x2xf32>
    %n = stablehlo.convert %m : (tensor<5x2xf32>) -> tensor<5x2xbf16>
    %p = zero.from_local %n : tensor<5x2xbf16> to !primary
    %w = zero.all_gather %p along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %w : !whole to tensor<5x16xbf16>
    stablehlo.return %c, %s, %f : tensor<i32>, tensor<3x5x2xf32>, tensor<5x16xbf16>
  }
  %1:3 = stablehlo.while(%c = %i, %s = %stack, %a = %0#2) : tensor<i32>, tensor<3x5x2xf32>, tensor<5x16xbf16>
  cond {
    %t = stablehlo.compare LT, %c, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %l = stablehlo.dynamic_slice %s, %c, %zero, %zero, sizes = [1, 5, 2] : (tensor<3x5x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x5x2xf32>
    %m = stablehlo.reshape %l : (tensor<1x5x2xf32>) -> tensor<5x2xf32>
    %n = stablehlo.convert %m : (tensor<5x2xf32>) -> tensor<5x2xbf16>
    %p = zero.from_local %n : tensor<5x2xbf16> to !primary
    %w = zero.all_gather %p along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %w : !whole to tensor<5x16xbf16>
    stablehlo.return %c, %s, %f : tensor<i32>, tensor<3x5x2xf32>, tensor<5x16xbf16>
  }
  return %1#2 : tensor<5x16xbf16>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xbf16, dim 0 = (2, 4) on #mesh>

// Out of a branch nothing is hoisted: it might not have run.

// CHECK-LABEL: func @branches
func.func @branches(%w: tensor<2xbf16>, %i: tensor<i32>) -> tensor<16xbf16> {
  // CHECK-COUNT-2: along ["node", "gpu"] {zpp.reason = "the regions around
  %0 = "stablehlo.case"(%i) ({
    %2 = zero.from_local %w : tensor<2xbf16> to !primary
    // expected-remark@+1 {{the regions around the gathers of its weight are not loops over one stack of weights}}
    %3 = zero.all_gather %2 along ["node", "gpu"] : !primary to !whole
    %4 = zero.to_local %3 : !whole to tensor<16xbf16>
    stablehlo.return %4 : tensor<16xbf16>
  }, {
    %2 = zero.from_local %w : tensor<2xbf16> to !primary
    // expected-remark@+1 {{the regions around}}
    %3 = zero.all_gather %2 along ["node", "gpu"] : !primary to !whole
    %4 = zero.to_local %3 : !whole to tensor<16xbf16>
    stablehlo.return %4 : tensor<16xbf16>
  }) : (tensor<i32>) -> tensor<16xbf16>
  return %0 : tensor<16xbf16>
}
