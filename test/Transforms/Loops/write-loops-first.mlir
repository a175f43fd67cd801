// RUN: zpp-opt %s --zero-plan-loops=min-usec=1 --zero-write-loops --split-input-file \
// RUN:   | FileCheck %s
// RUN: zpp-opt %s --zero-plan-loops=min-usec=1 --zero-write-loops --split-input-file \
// RUN:   --remarks-filter=.* 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: zpp-opt %s --zero-plan-loops=min-usec=1 --zero-write-loops \
// RUN:   --zero-partition-within-node --split-input-file \
// RUN:   | FileCheck %s --check-prefix=KEPT
// RUN: zpp-opt %s --zero-plan-loops --split-input-file --remarks-filter=.* \
// RUN:   2>&1 | FileCheck %s --check-prefix=SHORT
// RUN: not zpp-opt %s --zero-plan-loops=secondary=3 --split-input-file 2>&1 \
// RUN:   | FileCheck %s --check-prefix=GROUP

// Weights that a loop leaves as they are are gathered in its first iteration,
// which stands in front of it.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// Two iterations are left. The first one gathers between the nodes and keeps
// what the loop reads.
// CHECK-LABEL: func @three
// CHECK: zero.all_gather
// CHECK: %[[NEXT:.*]] = stablehlo.multiply
// CHECK: %[[ONE:.*]] = stablehlo.constant dense<1> : tensor<i32>
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(%{{.*}} = %[[ONE]], %{{.*}} = %arg0, %{{.*}} = %[[NEXT]])
// CHECK: zero.all_gather
// CHECK-NOT: zero.all_gather
// CHECK: return %[[LOOP]]#2
// KEPT-LABEL: func @three
// KEPT: zero.all_gather {{.*}} along ["node"] {zpp.keep}
// KEPT: zero.all_gather {{.*}} along ["gpu"]
// KEPT: stablehlo.while
// KEPT-NOT: along ["node"
// KEPT: zero.all_gather {{.*}} along ["gpu"]
// KEPT-NOT: zero.all_gather
// REMARK: remark: [Passed] peeled {{.*}}its first iteration is written in front of it, to gather weights under its compute
// SHORT: remark: [Missed] not-peeled {{.*}}weights are gathered in front of the loop, where nothing hides it: it takes {{[0-9]+}} usec, with min-usec = 1000
// GROUP: error: expected a secondary group size that divides the 8 devices of a weight's group on node:2,gpu:4, but got 3
func.func @three(%w: tensor<2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %v = %w, %h = %x) : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %pf = zero.from_local %v : tensor<2xf32> to !primary
    %gf = zero.all_gather %pf along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %gf : !whole to tensor<16xf32>
    %z = stablehlo.multiply %h, %f : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %z : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// Two iterations are straight code.
// CHECK-LABEL: func @two
// CHECK-NOT: stablehlo.while
// CHECK: zero.all_gather
// CHECK: zero.all_gather
// CHECK-NOT: zero.all_gather
// CHECK: return
// KEPT-LABEL: func @two
// KEPT: zero.all_gather {{.*}} along ["node"] {zpp.keep}
// KEPT: zero.all_gather {{.*}} along ["gpu"]
// KEPT-NOT: along ["node"
// KEPT: zero.all_gather {{.*}} along ["gpu"]
// KEPT-NOT: zero.all_gather
// KEPT: return
func.func @two(%w: tensor<2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %v = %w, %h = %x) : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %pf = zero.from_local %v : tensor<2xf32> to !primary
    %gf = zero.all_gather %pf along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %gf : !whole to tensor<16xf32>
    %z = stablehlo.multiply %h, %f : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %z : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// One iteration is as it was.
// CHECK-LABEL: func @one
// CHECK: stablehlo.while
// CHECK: zero.all_gather
// CHECK-NOT: zero.all_gather
// CHECK: return
func.func @one(%w: tensor<2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %v = %w, %h = %x) : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %pf = zero.from_local %v : tensor<2xf32> to !primary
    %gf = zero.all_gather %pf along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %gf : !whole to tensor<16xf32>
    %z = stablehlo.multiply %h, %f : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %z : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// It counts from 5 to 11 in steps of 2: 5, 7, 9.
// CHECK-LABEL: func @from_five
// CHECK: %[[SEVEN:.*]] = stablehlo.constant dense<7> : tensor<i32>
// CHECK: stablehlo.while(%{{.*}} = %[[SEVEN]],
func.func @from_five(%w: tensor<2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c5 = stablehlo.constant dense<5> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c11 = stablehlo.constant dense<11> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c5, %v = %w, %h = %x) : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c11 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %pf = zero.from_local %v : tensor<2xf32> to !primary
    %gf = zero.all_gather %pf along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %gf : !whole to tensor<16xf32>
    %z = stablehlo.multiply %h, %f : tensor<16xf32>
    %next = stablehlo.add %i, %c2 : tensor<i32>
    stablehlo.return %next, %v, %z : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// Nobody knows how often this one runs.
// CHECK-LABEL: func @unknown
// CHECK-NOT: zero.all_gather
// CHECK: stablehlo.while
// REMARK: remark: [Missed] not-peeled {{.*}}weights are gathered in front of the loop, where nothing hides it: it is not known how often the loop runs
func.func @unknown(%w: tensor<2xf32>, %x: tensor<16xf32>, %end: tensor<i32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %v = %w, %h = %x) : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %pf = zero.from_local %v : tensor<2xf32> to !primary
    %gf = zero.all_gather %pf along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %gf : !whole to tensor<16xf32>
    %z = stablehlo.multiply %h, %f : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %z : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// The loop changes the weight: nothing is gathered in front of it.
// CHECK-LABEL: func @changed
// CHECK-NOT: zero.all_gather
// CHECK: stablehlo.while
func.func @changed(%w: tensor<2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %v = %w, %h = %x) : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %pf = zero.from_local %v : tensor<2xf32> to !primary
    %gf = zero.all_gather %pf along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %gf : !whole to tensor<16xf32>
    %z = stablehlo.multiply %h, %f : tensor<16xf32>
    %u = stablehlo.add %v, %v : tensor<2xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %u, %z : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// A loop over layers in a loop over micro-batches: the first one gathers layer
// by layer, and keeps a stack for all other loops.
// KEPT-LABEL: func @layers
// KEPT: %[[FIRST:.*]]:4 = stablehlo.while(
// KEPT: zero.all_gather {{.*}} along ["node"] {zpp.keep = 3 : i64}
// KEPT: stablehlo.dynamic_update_slice
// KEPT: stablehlo.while
// KEPT: stablehlo.dynamic_slice %[[FIRST]]#3
// KEPT: zero.all_gather {{.*}} along ["gpu"]
// KEPT: stablehlo.while
// KEPT: stablehlo.while
// KEPT: stablehlo.dynamic_slice %[[FIRST]]#3
// KEPT: zero.all_gather {{.*}} along ["gpu"]
// KEPT: stablehlo.while
// KEPT: stablehlo.dynamic_slice %[[FIRST]]#3
// KEPT-NOT: along ["node"
// KEPT: return
func.func @layers(%w: tensor<3x2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %c4 = stablehlo.constant dense<4> : tensor<i32>
  %0:3 = "stablehlo.while"(%c0, %w, %x) ({
  ^bb0(%m: tensor<i32>, %v: tensor<3x2xf32>, %h0: tensor<16xf32>):
    %more = stablehlo.compare LT, %m, %c4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%m: tensor<i32>, %v: tensor<3x2xf32>, %h0: tensor<16xf32>):
    %r0:3 = stablehlo.while(%i = %c0, %s = %v, %a = %h0) : tensor<i32>, tensor<3x2xf32>, tensor<16xf32>
    cond {
      %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %l = stablehlo.dynamic_slice %s, %i, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
      %row = stablehlo.reshape %l : (tensor<1x2xf32>) -> tensor<2xf32>
      %p = zero.from_local %row : tensor<2xf32> to !primary
      %g = zero.all_gather %p along ["node", "gpu"] : !primary to !whole
      %f = zero.to_local %g : !whole to tensor<16xf32>
      %z = stablehlo.multiply %a, %f : tensor<16xf32>
      %j = stablehlo.add %i, %c1 : tensor<i32>
      stablehlo.return %j, %s, %z : tensor<i32>, tensor<3x2xf32>, tensor<16xf32>
    }
    %h1 = stablehlo.negate %r0#2 : tensor<16xf32>
    %r1:3 = stablehlo.while(%i = %c0, %s = %v, %a = %h1) : tensor<i32>, tensor<3x2xf32>, tensor<16xf32>
    cond {
      %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %at = stablehlo.subtract %c2, %i : tensor<i32>
      %l = stablehlo.dynamic_slice %s, %at, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
      %row = stablehlo.reshape %l : (tensor<1x2xf32>) -> tensor<2xf32>
      %p = zero.from_local %row : tensor<2xf32> to !primary
      %g = zero.all_gather %p along ["node", "gpu"] : !primary to !whole
      %f = zero.to_local %g : !whole to tensor<16xf32>
      %z = stablehlo.multiply %a, %f : tensor<16xf32>
      %j = stablehlo.add %i, %c1 : tensor<i32>
      stablehlo.return %j, %s, %z : tensor<i32>, tensor<3x2xf32>, tensor<16xf32>
    }
    %next = stablehlo.add %m, %c1 : tensor<i32>
    stablehlo.return %next, %v, %r1#2 : tensor<i32>, tensor<3x2xf32>, tensor<16xf32>
  }) : (tensor<i32>, tensor<3x2xf32>, tensor<16xf32>) -> (tensor<i32>, tensor<3x2xf32>, tensor<16xf32>)
  return %0#2 : tensor<16xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// The loops begin with the last layer, so that an iteration does not keep them in
// order: they are gathered in front.
// CHECK-LABEL: func @backwards
// CHECK-NOT: zero.all_gather
// CHECK: stablehlo.while
// CHECK: stablehlo.while
// REMARK: remark: [Missed] not-peeled {{.*}}weights are gathered in front of the loop, where nothing hides it: an iteration could not keep what it gathers
func.func @backwards(%w: tensor<3x2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %c4 = stablehlo.constant dense<4> : tensor<i32>
  %0:3 = "stablehlo.while"(%c0, %w, %x) ({
  ^bb0(%m: tensor<i32>, %v: tensor<3x2xf32>, %h0: tensor<16xf32>):
    %more = stablehlo.compare LT, %m, %c4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%m: tensor<i32>, %v: tensor<3x2xf32>, %h0: tensor<16xf32>):
    %r0:3 = stablehlo.while(%i = %c0, %s = %v, %a = %h0) : tensor<i32>, tensor<3x2xf32>, tensor<16xf32>
    cond {
      %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %at = stablehlo.subtract %c2, %i : tensor<i32>
      %l = stablehlo.dynamic_slice %s, %at, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
      %row = stablehlo.reshape %l : (tensor<1x2xf32>) -> tensor<2xf32>
      %p = zero.from_local %row : tensor<2xf32> to !primary
      %g = zero.all_gather %p along ["node", "gpu"] : !primary to !whole
      %f = zero.to_local %g : !whole to tensor<16xf32>
      %z = stablehlo.multiply %a, %f : tensor<16xf32>
      %j = stablehlo.add %i, %c1 : tensor<i32>
      stablehlo.return %j, %s, %z : tensor<i32>, tensor<3x2xf32>, tensor<16xf32>
    }
    %h1 = stablehlo.negate %r0#2 : tensor<16xf32>
    %r1:3 = stablehlo.while(%i = %c0, %s = %v, %a = %h1) : tensor<i32>, tensor<3x2xf32>, tensor<16xf32>
    cond {
      %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %at = stablehlo.subtract %c2, %i : tensor<i32>
      %l = stablehlo.dynamic_slice %s, %at, %c0, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
      %row = stablehlo.reshape %l : (tensor<1x2xf32>) -> tensor<2xf32>
      %p = zero.from_local %row : tensor<2xf32> to !primary
      %g = zero.all_gather %p along ["node", "gpu"] : !primary to !whole
      %f = zero.to_local %g : !whole to tensor<16xf32>
      %z = stablehlo.multiply %a, %f : tensor<16xf32>
      %j = stablehlo.add %i, %c1 : tensor<i32>
      stablehlo.return %j, %s, %z : tensor<i32>, tensor<3x2xf32>, tensor<16xf32>
    }
    %next = stablehlo.add %m, %c1 : tensor<i32>
    stablehlo.return %next, %v, %r1#2 : tensor<i32>, tensor<3x2xf32>, tensor<16xf32>
  }) : (tensor<i32>, tensor<3x2xf32>, tensor<16xf32>) -> (tensor<i32>, tensor<3x2xf32>, tensor<16xf32>)
  return %0#2 : tensor<16xf32>
}
