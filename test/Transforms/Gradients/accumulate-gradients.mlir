// RUN: zpp-opt %s --zero-accumulate-gradients=group=gpu --split-input-file \
// RUN:   --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-accumulate-gradients=group=4 --split-input-file \
// RUN:   --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-accumulate-gradients=group=gpu --split-input-file \
// RUN:   --remarks-filter=.* 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: zpp-opt %s --zero-accumulate-gradients=group=gpu --split-input-file \
// RUN:   --zero-report=mesh=node:2,gpu:4 --remarks-filter=none -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=TABLE
// RUN: not zpp-opt %s --zero-accumulate-gradients=group=3 --split-input-file \
// RUN:   2>&1 | FileCheck %s --check-prefix=GROUP
// GROUP: error: expected a tier of the mesh node:2,gpu:4, or the number of devices of its fastest tiers, as the group that adds up gradients, but got '3'

// TABLE: total
// TABLE-NEXT: in units of M, per update
// TABLE-NEXT: per micro-batch, 1 of 2

// Gradients of micro-batches are added up before they leave the group.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// A loop in Python: what the hops within the node leave is added up.
// CHECK-LABEL: func @in_a_row
// CHECK: zero.reduce_scatter sum %{{.*}} along ["gpu"] wire <i8
// CHECK: %[[A:.*]] = zero.to_local %{{.*}} to tensor<8xf32>
// CHECK: zero.reduce_scatter sum %{{.*}} along ["gpu"] wire <i8
// CHECK: %[[B:.*]] = zero.to_local %{{.*}} to tensor<8xf32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[A]], %[[B]] : tensor<8xf32>
// CHECK: %[[SHARD:.*]] = zero.from_local %[[SUM]]
// CHECK: zero.reduce_scatter sum %[[SHARD]] along ["node"] wire <i4
// CHECK-NOT: reduce_scatter
func.func @in_a_row(%x: tensor<32xf32>, %y: tensor<32xf32>) -> tensor<4xf32> {
  %ap = zero.from_local %x : tensor<32xf32> to !whole
  %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
  %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
  %p = zero.to_local %cp : !own to tensor<4xf32>
  %aq = zero.from_local %y : tensor<32xf32> to !whole
  %bq = zero.reduce_scatter sum %aq along ["gpu"] wire <i8, block = 32> : !whole to !partial
  %cq = zero.reduce_scatter sum %bq along ["node"] wire <i4, block = 32> : !partial to !own
  %q = zero.to_local %cq : !own to tensor<4xf32>
  %r = stablehlo.add %p, %q : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// The loop carries the sum of partial sums; the hop between nodes is after it.
// CHECK-LABEL: func @micro_batches
// CHECK: %[[LOOP:.*]]:4 = stablehlo.while(
// CHECK: zero.reduce_scatter {{.*}} along ["gpu"]
// CHECK: %[[PART:.*]] = zero.to_local %{{.*}} to tensor<8xf32>
// CHECK-NOT: along ["node"]
// CHECK: %[[NEXT:.*]] = stablehlo.add %{{.*}}, %[[PART]] : tensor<8xf32>
// CHECK: stablehlo.return {{.*}}, %[[NEXT]]
// CHECK: %[[SHARD:.*]] = zero.from_local %[[LOOP]]#3
// CHECK: zero.reduce_scatter sum %[[SHARD]] along ["node"]
func.func @micro_batches(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %next = stablehlo.add %s, %p : tensor<4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  }
  return %0#1 : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// What the loop begins with is part of the same sum.
// CHECK-LABEL: func @after_a_first_one
// CHECK: along ["gpu"]
// CHECK-NOT: along ["node"]
// CHECK: stablehlo.while
// CHECK: along ["gpu"]
// CHECK: stablehlo.return
// CHECK: along ["node"]
// CHECK-NOT: along ["node"]
func.func @after_a_first_one(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %af = zero.from_local %x : tensor<32xf32> to !whole
  %bf = zero.reduce_scatter sum %af along ["gpu"] wire <i8, block = 32> : !whole to !partial
  %cf = zero.reduce_scatter sum %bf along ["node"] wire <i4, block = 32> : !partial to !own
  %f = zero.to_local %cf : !own to tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %f, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %next = stablehlo.add %s, %p : tensor<4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  }
  return %0#1 : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// CHECK-LABEL: func @one_iteration
// CHECK: stablehlo.while
// CHECK: along ["node"]
// CHECK: stablehlo.return
// CHECK-NOT: along ["node"]
func.func @one_iteration(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %next = stablehlo.add %s, %p : tensor<4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  }
  return %0#1 : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// The loop reads the sum: each micro-batch is sent as before.
// CHECK-LABEL: func @sum_is_read
// CHECK: stablehlo.while
// CHECK: along ["node"]
// CHECK: stablehlo.return
// CHECK-NOT: along ["node"]
// REMARK: in-each-iteration {{.*}}read norms and conditions after the loop
func.func @sum_is_read(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %sq = stablehlo.multiply %s, %s : tensor<4xf32>
    %r = stablehlo.add %sq, %p : tensor<4xf32>
    %next = stablehlo.add %s, %r : tensor<4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  }
  return %0#1 : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// The loop reads the gradient of a micro-batch.
// CHECK-LABEL: func @gradient_is_read
// CHECK: stablehlo.while
// CHECK: along ["node"]
// CHECK: stablehlo.return
// CHECK-NOT: along ["node"]
// REMARK: in-each-iteration {{.*}}read norms and conditions after the loop
func.func @gradient_is_read(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %sq = stablehlo.multiply %p, %p : tensor<4xf32>
    %r = stablehlo.add %sq, %p : tensor<4xf32>
    %next = stablehlo.add %s, %r : tensor<4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  }
  return %0#1 : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// One hop over the whole group has no partial sums.
// CHECK-LABEL: func @one_hop
// CHECK: stablehlo.while
// CHECK: along ["node", "gpu"]
// REMARK: in-each-iteration {{.*}}give formats of several hops
func.func @one_hop(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %cp = zero.reduce_scatter sum %ap along ["node", "gpu"] wire <i8, block = 32> : !whole to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %next = stablehlo.add %s, %p : tensor<4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  }
  return %0#1 : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// The sum over several calls is a result and an argument of the step, as a moment
// of an optimizer is.
// CHECK-LABEL: func @sum_over_calls
// CHECK: along ["gpu"]
// CHECK: along ["node"]
// REMARK-NOT: in-each-iteration
// REMARK: one-micro-batch {{.*}}as by optax.MultiSteps, crosses the slower tiers in each call; take all micro-batches in one call, in a lax.scan
// REMARK-NOT: one-micro-batch
func.func @sum_over_calls(%sum: tensor<4xf32>, %x: tensor<32xf32>, %y: tensor<32xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %ap = zero.from_local %x : tensor<32xf32> to !whole
  %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
  %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
  %p = zero.to_local %cp : !own to tensor<4xf32>
  %next = stablehlo.add %sum, %p : tensor<4xf32>
  %aq = zero.from_local %y : tensor<32xf32> to !whole
  %bq = zero.reduce_scatter sum %aq along ["gpu"] wire <i8, block = 32> : !whole to !partial
  %cq = zero.reduce_scatter sum %bq along ["node"] wire <i4, block = 32> : !partial to !own
  %q = zero.to_local %cq : !own to tensor<4xf32>
  return %next, %q : tensor<4xf32>, tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// A loop adds up what only then is summed over the devices.
// CHECK-LABEL: func @sum_before
// REMARK: added-up-before {{.*}}"a loop adds up the gradients before they leave the group, so they cross the slower tiers once per update as it is; leave out accumulate"
func.func @sum_before(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<32xf32>
  %third = stablehlo.constant dense<0.33> : tensor<32xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<32xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = stablehlo.add %g, %s : tensor<32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<32xf32>, tensor<32xf32>
  }
  %mean = stablehlo.multiply %third, %0#1 : tensor<32xf32>
  %a = zero.from_local %mean : tensor<32xf32> to !whole
  %b = zero.reduce_scatter sum %a along ["gpu"] wire <i8, block = 32> : !whole to !partial
  // CHECK: along ["node"]
  %c = zero.reduce_scatter sum %b along ["node"] wire <i4, block = 32> : !partial to !own
  %p = zero.to_local %c : !own to tensor<4xf32>
  return %p : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// Stacks of two loops over layers: the first one leaves partial sums. The last
// one adds its own, layer by layer, at their scale, and sends each.
// CHECK-LABEL: func @stacks_in_a_row
// CHECK: %[[FIRST:.*]]:4 = stablehlo.while(
// CHECK-NOT: along ["node"]
// CHECK: {{^ *[}]$}}
// CHECK: stablehlo.while(
// CHECK: zero.reduce_scatter {{.*}} along ["gpu"]
// CHECK: %[[PART:.*]] = zero.to_local %{{.*}} to tensor<8xf32>
// CHECK: %[[SCALED:.*]] = stablehlo.multiply %[[PART]],
// CHECK: %[[AT:.*]] = stablehlo.subtract
// CHECK: %[[ROW:.*]] = stablehlo.dynamic_slice %[[FIRST]]#3, %[[AT]],
// CHECK: %[[EARLIER:.*]] = stablehlo.reshape %[[ROW]]
// CHECK: %[[SUM:.*]] = stablehlo.add %[[EARLIER]], %[[SCALED]]
// CHECK: %[[SHARD:.*]] = zero.from_local %[[SUM]]
// CHECK: zero.reduce_scatter sum %[[SHARD]] along ["node"]
// CHECK: stablehlo.dynamic_update_slice
// CHECK-NOT: along ["node"]
// REMARK: rewritten {{.*}}added up before it crosses slower tiers, layer by layer
func.func @stacks_in_a_row(%x: tensor<32xf32>, %y: tensor<32xf32>) -> tensor<3x4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<3x4xf32>
  %half = stablehlo.constant dense<0.5> : tensor<3x4xf32>
  %s0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<3x4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %row = stablehlo.reshape %p : (tensor<4xf32>) -> tensor<1x4xf32>
    %at = stablehlo.subtract %c2, %i : tensor<i32>
    %next = stablehlo.dynamic_update_slice %s, %row, %at, %c0 : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<3x4xf32>, tensor<32xf32>
  }
  %s1:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %y) : tensor<i32>, tensor<3x4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %row = stablehlo.reshape %p : (tensor<4xf32>) -> tensor<1x4xf32>
    %at = stablehlo.subtract %c2, %i : tensor<i32>
    %next = stablehlo.dynamic_update_slice %s, %row, %at, %c0 : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<3x4xf32>, tensor<32xf32>
  }
  %h = stablehlo.multiply %s1#1, %half : tensor<3x4xf32>
  %r = stablehlo.add %s0#1, %h : tensor<3x4xf32>
  return %r : tensor<3x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// The other stack is there only after the last loop: whole stacks are added.
// CHECK-LABEL: func @scaled_after_the_last
// CHECK: stablehlo.while(
// CHECK: stablehlo.while(
// CHECK: {{^ *[}]$}}
// CHECK: along ["node"]
// CHECK-NOT: along ["node"]
func.func @scaled_after_the_last(%x: tensor<32xf32>, %y: tensor<32xf32>) -> tensor<3x4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<3x4xf32>
  %half = stablehlo.constant dense<0.5> : tensor<3x4xf32>
  %s0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<3x4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %row = stablehlo.reshape %p : (tensor<4xf32>) -> tensor<1x4xf32>
    %at = stablehlo.subtract %c2, %i : tensor<i32>
    %next = stablehlo.dynamic_update_slice %s, %row, %at, %c0 : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<3x4xf32>, tensor<32xf32>
  }
  %s1:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %y) : tensor<i32>, tensor<3x4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %row = stablehlo.reshape %p : (tensor<4xf32>) -> tensor<1x4xf32>
    %at = stablehlo.subtract %c2, %i : tensor<i32>
    %next = stablehlo.dynamic_update_slice %s, %row, %at, %c0 : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<3x4xf32>, tensor<32xf32>
  }
  %h = stablehlo.multiply %s0#1, %half : tensor<3x4xf32>
  %r = stablehlo.add %h, %s1#1 : tensor<3x4xf32>
  return %r : tensor<3x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// What is added up in front of the loop is where its partial sums begin.
// CHECK-LABEL: func @begins_in_front
// CHECK: zero.reduce_scatter {{.*}} along ["gpu"]
// CHECK: %[[PART:.*]] = zero.to_local %{{.*}} to tensor<8xf32>
// CHECK-NOT: along ["node"]
// CHECK: %[[LOOP:.*]]:4 = stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %[[PART]])
// CHECK-NOT: along ["node"]
// CHECK: {{^ *[}]$}}
// CHECK: %[[SHARD:.*]] = zero.from_local %[[LOOP]]#3
// CHECK: zero.reduce_scatter sum %[[SHARD]] along ["node"]
// CHECK: %[[GRADIENT:.*]] = zero.to_local
// CHECK-NEXT: return %[[GRADIENT]]
func.func @begins_in_front(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %aq = zero.from_local %x : tensor<32xf32> to !whole
  %bq = zero.reduce_scatter sum %aq along ["gpu"] wire <i8, block = 32> : !whole to !partial
  %cq = zero.reduce_scatter sum %bq along ["node"] wire <i4, block = 32> : !partial to !own
  %q = zero.to_local %cq : !own to tensor<4xf32>
  %begin = stablehlo.add %zeros, %q : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %begin, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %k = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %y = stablehlo.add %g, %b : tensor<32xf32>
    %ap = zero.from_local %y : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %next = stablehlo.add %s, %p : tensor<4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  }
  return %0#1 : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// Stacks without layers, of which no sum can be sent.
// CHECK-LABEL: func @no_layers
// CHECK-COUNT-2: stablehlo.while(
// CHECK: {{^ *[}]$}}
// CHECK-NOT: along ["node"]
func.func @no_layers(%x: tensor<32xf32>, %y: tensor<32xf32>) -> tensor<0x4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<0x4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<0x4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %row = stablehlo.reshape %p : (tensor<4xf32>) -> tensor<1x4xf32>
    %next = stablehlo.dynamic_update_slice %s, %row, %i, %c0 : (tensor<0x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<0x4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<0x4xf32>, tensor<32xf32>
  }
  %1:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %y) : tensor<i32>, tensor<0x4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %row = stablehlo.reshape %p : (tensor<4xf32>) -> tensor<1x4xf32>
    %next = stablehlo.dynamic_update_slice %s, %row, %i, %c0 : (tensor<0x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<0x4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<0x4xf32>, tensor<32xf32>
  }
  %r = stablehlo.add %0#1, %1#1 : tensor<0x4xf32>
  return %r : tensor<0x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// A loop that leaves another type than it carries, which nothing has verified.
// CHECK-LABEL: func @other_type
// CHECK: stablehlo.while(
// CHECK: "stablehlo.while"(
// CHECK: }) :
// CHECK-NOT: along ["node"]
func.func @other_type(%x: tensor<32xf32>, %y: tensor<32xf32>) -> tensor<3x4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<3x4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<3x4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %row = stablehlo.reshape %p : (tensor<4xf32>) -> tensor<1x4xf32>
    %next = stablehlo.dynamic_update_slice %s, %row, %i, %c0 : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<3x4xf32>, tensor<32xf32>
  }
  %1:3 = "stablehlo.while"(%c0, %zeros, %y) ({
  ^bb0(%i: tensor<i32>, %s: tensor<3x4xf32>, %g: tensor<32xf32>):
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<3x4xf32>, %g: tensor<32xf32>):
    %ap = zero.from_local %g : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %row = stablehlo.reshape %p : (tensor<4xf32>) -> tensor<1x4xf32>
    %next = stablehlo.dynamic_update_slice %s, %row, %i, %c0 : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<3x4xf32>, tensor<32xf32>
  }) : (tensor<i32>, tensor<3x4xf32>, tensor<32xf32>) -> (tensor<i32>, tensor<6x4xf32>, tensor<32xf32>)
  %h = stablehlo.negate %1#1 : (tensor<6x4xf32>) -> tensor<3x4xf32>
  %r = stablehlo.add %0#1, %h : tensor<3x4xf32>
  return %r : tensor<3x4xf32>
}
