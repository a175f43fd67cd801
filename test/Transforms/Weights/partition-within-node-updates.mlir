// RUN: zpp-opt %s --zero-partition-within-node --split-input-file \
// RUN:   | FileCheck %s
// RUN: zpp-opt %s --zero-partition-within-node --split-input-file \
// RUN:   --remarks-filter=.* 2>&1 | FileCheck %s --check-prefix=REMARK

// Loops over micro-batches, which leave the weights as they are: what crosses
// the nodes leaves the loop.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// The second gather reads what is kept behind the barrier of the step, so that
// XLA does not merge the two.
// CHECK-LABEL: func @micro_batches
// CHECK: %[[KEPT:.*]] = zero.all_gather {{.*}} along ["node"] {zpp.keep}
// CHECK: %[[LOCAL:.*]] = zero.to_local %[[KEPT]] {{.*}} to tensor<4xf32>
// CHECK: stablehlo.while
// CHECK: %[[FIRST:.*]] = zero.from_local %[[LOCAL]]
// CHECK: zero.all_gather %[[FIRST]] along ["gpu"]
// CHECK: %[[BARRIER:.*]]:2 = stablehlo.optimization_barrier %{{.*}}, %[[LOCAL]]
// CHECK: %[[SECOND:.*]] = zero.from_local %[[BARRIER]]#1
// CHECK: zero.all_gather %[[SECOND]] along ["gpu"]
// CHECK-NOT: along ["node"
func.func @micro_batches(%w: tensor<2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
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
    %y = stablehlo.multiply %h, %f : tensor<16xf32>
    %b:2 = stablehlo.optimization_barrier %v, %y : tensor<2xf32>, tensor<16xf32>
    %pk = zero.from_local %b#0 : tensor<2xf32> to !primary
    %gk = zero.all_gather %pk along ["node", "gpu"] : !primary to !whole
    %k = zero.to_local %gk : !whole to tensor<16xf32>
    %z = stablehlo.multiply %b#1, %k : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %z : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// One gather in each iteration is one that is repeated.
// CHECK-LABEL: func @once_in_each
// CHECK: zero.all_gather {{.*}} along ["node"] {zpp.keep}
// CHECK: stablehlo.while
// CHECK: zero.all_gather {{.*}} along ["gpu"]
// CHECK-NOT: along ["node"
func.func @once_in_each(%w: tensor<2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
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

// With one iteration there is nothing to save.
// CHECK-LABEL: func @one_iteration
// CHECK: stablehlo.while
// CHECK: zero.all_gather {{.*}} along ["node", "gpu"]
func.func @one_iteration(%w: tensor<2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
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

// The loop changes the weight: within an iteration, as without a loop.
// CHECK-LABEL: func @updated_in_the_loop
// CHECK: stablehlo.while
// CHECK: zero.all_gather {{.*}} along ["node"] {zpp.keep}
// CHECK: zero.all_gather {{.*}} along ["gpu"]
// CHECK: zero.all_gather {{.*}} along ["gpu"]
func.func @updated_in_the_loop(%w: tensor<2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
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
    %y = stablehlo.multiply %h, %f : tensor<16xf32>
    %b:2 = stablehlo.optimization_barrier %v, %y : tensor<2xf32>, tensor<16xf32>
    %pk = zero.from_local %b#0 : tensor<2xf32> to !primary
    %gk = zero.all_gather %pk along ["node", "gpu"] : !primary to !whole
    %k = zero.to_local %gk : !whole to tensor<16xf32>
    %z = stablehlo.multiply %b#1, %k : tensor<16xf32>
    %n = stablehlo.negate %v : tensor<2xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %n, %z : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// A weight that is also used after the loop, where it is cast again.
// CHECK-LABEL: func @used_behind
// CHECK: zero.all_gather {{.*}} along ["node"] {zpp.keep}
// CHECK: stablehlo.while
// CHECK: zero.all_gather {{.*}} along ["gpu"]
// CHECK: zero.all_gather {{.*}} along ["gpu"]
// CHECK: stablehlo.return
// CHECK: zero.all_gather {{.*}} along ["gpu"]
// CHECK-NOT: along ["node"
func.func @used_behind(%w: tensor<2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %v = %w, %h = %x) : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %nv = stablehlo.negate %v : tensor<2xf32>
    %pf = zero.from_local %nv : tensor<2xf32> to !primary
    %gf = zero.all_gather %pf along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %gf : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %f : tensor<16xf32>
    %b:2 = stablehlo.optimization_barrier %nv, %y : tensor<2xf32>, tensor<16xf32>
    %pk = zero.from_local %b#0 : tensor<2xf32> to !primary
    %gk = zero.all_gather %pk along ["node", "gpu"] : !primary to !whole
    %k = zero.to_local %gk : !whole to tensor<16xf32>
    %z = stablehlo.multiply %b#1, %k : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %z : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  }
  %s = stablehlo.negate %w : tensor<2xf32>
  %pe = zero.from_local %s : tensor<2xf32> to !primary
  %ge = zero.all_gather %pe along ["node", "gpu"] : !primary to !whole
  %e = zero.to_local %ge : !whole to tensor<16xf32>
  %r = stablehlo.multiply %e, %e : tensor<16xf32>
  return %r : tensor<16xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// What the loop computes of two tensors is gathered within it.
// CHECK-LABEL: func @computed
// CHECK: stablehlo.while
// CHECK: zero.all_gather {{.*}} along ["node"] {zpp.keep}
// REMARK: in-each-iteration {{.*}}it crosses the slower tiers in each iteration of a loop, which computes it
// REMARK-NOT: in-each-iteration
func.func @computed(%w: tensor<2xf32>, %s: tensor<2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %0:3 = stablehlo.while(%i = %c0, %v = %w, %h = %x) : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %sv = stablehlo.multiply %v, %s : tensor<2xf32>
    %pf = zero.from_local %sv : tensor<2xf32> to !primary
    %gf = zero.all_gather %pf along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %gf : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %f : tensor<16xf32>
    %b:2 = stablehlo.optimization_barrier %sv, %y : tensor<2xf32>, tensor<16xf32>
    %pk = zero.from_local %b#0 : tensor<2xf32> to !primary
    %gk = zero.all_gather %pk along ["node", "gpu"] : !primary to !whole
    %k = zero.to_local %gk : !whole to tensor<16xf32>
    %z = stablehlo.multiply %b#1, %k : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next, %v, %z : tensor<i32>, tensor<2xf32>, tensor<16xf32>
  }
  return %0#2 : tensor<16xf32>
}
