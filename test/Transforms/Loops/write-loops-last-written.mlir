// RUN: zpp-opt %s --zero-plan-loops="gradients min-usec=0" --zero-write-loops --split-input-file \
// RUN:   | FileCheck %s
// RUN: zpp-opt %s --zero-plan-loops="gradients min-usec=0" --zero-write-loops --split-input-file \
// RUN:   --remarks-filter=.* 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: zpp-opt %s --zero-plan-loops="gradients" --zero-write-loops --split-input-file --remarks-filter=.* 2>&1 \
// RUN:   | FileCheck %s --check-prefix=SHORT
// RUN: zpp-opt %s --zero-plan-loops="gradients group=gpu min-usec=0" --zero-write-loops --split-input-file \
// RUN:   | FileCheck %s

// The step itself sends what a loop has added up, as it does with replicated
// weights. The last iteration stands after the loop, so that each sum is sent as
// soon as its last gradient is there.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// The mean of micro-batches.
// CHECK-LABEL: func @mean
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(
// CHECK: stablehlo.constant dense<2> : tensor<i32>
// CHECK: {{^ *[}]$}}
// CHECK: %[[LAST:.*]] = stablehlo.negate
// CHECK: %[[SUM:.*]] = stablehlo.add %[[LOOP]]#1, %[[LAST]]
// CHECK: %[[MEAN:.*]] = stablehlo.divide %[[SUM]], %{{.*}}
// CHECK: zero.from_local %[[MEAN]]
// REMARK: remark: [Passed] peeled {{.*}}its last iteration is written after it, to send gradients under its compute
// SHORT: remark: [Missed] not-peeled {{.*}}gradients are sent after the loop, where nothing hides it: it takes {{[0-9]+}} usec, with min-usec = 1000
func.func @mean(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<32xf32>
  %three = stablehlo.constant dense<3.0> : tensor<32xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<32xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %k = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %y = stablehlo.multiply %g, %b : tensor<32xf32>
    %t = stablehlo.negate %y : tensor<32xf32>
    %next = stablehlo.add %s, %t : tensor<32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<32xf32>, tensor<32xf32>
  }
  %mean = stablehlo.divide %0#1, %three : tensor<32xf32>
  %ap = zero.from_local %mean : tensor<32xf32> to !whole
  %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
  %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
  %p = zero.to_local %cp : !own to tensor<4xf32>
  return %p : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// What each iteration adds comes from a collective that is left to XLA.
// CHECK-LABEL: func @late
// CHECK: {{^ *[}]$}}
// CHECK-NOT: stablehlo.negate
// CHECK: return
func.func @late(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<32xf32>
  %three = stablehlo.constant dense<3.0> : tensor<32xf32>
  %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<32xf32>, %g: tensor<32xf32>):
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<32xf32>, %g: tensor<32xf32>):
    %k = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %y = stablehlo.multiply %g, %b : tensor<32xf32>
    %n = stablehlo.negate %y : tensor<32xf32>
    %t = "stablehlo.all_reduce"(%n) <{replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>}> ({
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %sum = stablehlo.add %l, %r : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<32xf32>) -> tensor<32xf32>
    %next = stablehlo.add %s, %t : tensor<32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<32xf32>, tensor<32xf32>
  }) : (tensor<i32>, tensor<32xf32>, tensor<32xf32>) -> (tensor<i32>, tensor<32xf32>, tensor<32xf32>)
  %mean = stablehlo.divide %0#1, %three : tensor<32xf32>
  %ap = zero.from_local %mean : tensor<32xf32> to !whole
  %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
  %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
  %p = zero.to_local %cp : !own to tensor<4xf32>
  return %p : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// Each iteration scatters two gradients within the node and adds them up at its
// end. Of the last one, the sum of the first gradient is sent before anything is
// computed for the second one. The number of the mean moves along, the gather of
// an all-reduce stays.
// CHECK-LABEL: func @scattered
// CHECK: %[[NUMBER:.*]] = stablehlo.constant dense<3.000000e+00>
// CHECK: %[[LOOP:.*]]:4 = stablehlo.while(
// CHECK: {{^ *[}]$}}
// CHECK: %[[FIRST:.*]] = stablehlo.negate
// CHECK: zero.from_local %[[FIRST]]
// CHECK-NEXT: zero.reduce_scatter sum %{{.*}} along ["gpu"]
// CHECK-NEXT: %[[LOCAL:.*]] = zero.to_local
// CHECK-NEXT: %[[SUM:.*]] = stablehlo.add %[[LOOP]]#1, %[[LOCAL]]
// CHECK-NEXT: %[[MEAN:.*]] = stablehlo.divide %[[SUM]], %[[NUMBER]]
// CHECK-NEXT: zero.from_local %[[MEAN]]
// CHECK-NEXT: %[[HOP:.*]] = zero.reduce_scatter sum %{{.*}} along ["node"]
// CHECK: %[[SECOND:.*]] = stablehlo.tanh
// CHECK: zero.from_local %[[SECOND]]
// CHECK-NEXT: zero.reduce_scatter sum %{{.*}} along ["gpu"]
// CHECK-NEXT: zero.to_local
// CHECK-NEXT: stablehlo.add %[[LOOP]]#2,
// CHECK-NEXT: stablehlo.divide
// CHECK-NEXT: zero.from_local
// CHECK-NEXT: zero.reduce_scatter sum %{{.*}} along ["node"]
// CHECK: zero.all_gather %[[HOP]] along ["node"]
func.func @scattered(%x: tensor<32xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<8xf32>
  %0:4 = stablehlo.while(%i = %c0, %s = %zeros, %t = %zeros, %g = %x) : tensor<i32>, tensor<8xf32>, tensor<8xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %k = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %y = stablehlo.multiply %g, %b : tensor<32xf32>
    %n = stablehlo.negate %y : tensor<32xf32>
    %as = zero.from_local %n : tensor<32xf32> to !whole
    %ag = zero.reduce_scatter sum %as along ["gpu"] : !whole to !partial
    %al = zero.to_local %ag : !partial to tensor<8xf32>
    %m = stablehlo.tanh %y : tensor<32xf32>
    %bs = zero.from_local %m : tensor<32xf32> to !whole
    %bg = zero.reduce_scatter sum %bs along ["gpu"] : !whole to !partial
    %bl = zero.to_local %bg : !partial to tensor<8xf32>
    %next = stablehlo.add %s, %al : tensor<8xf32>
    %other = stablehlo.add %t, %bl : tensor<8xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %other, %g : tensor<i32>, tensor<8xf32>, tensor<8xf32>, tensor<32xf32>
  }
  %three = stablehlo.constant dense<3.0> : tensor<8xf32>
  %mean = stablehlo.divide %0#1, %three : tensor<8xf32>
  %ap = zero.from_local %mean : tensor<8xf32> to !partial
  %bp = zero.reduce_scatter sum %ap along ["node"] : !partial to !own
  %cp = zero.all_gather %bp along ["node"] : !own to !partial
  %p = zero.to_local %cp : !partial to tensor<8xf32>
  %half = stablehlo.divide %0#2, %three : tensor<8xf32>
  %aq = zero.from_local %half : tensor<8xf32> to !partial
  %bq = zero.reduce_scatter sum %aq along ["node"] : !partial to !own
  %q = zero.to_local %bq : !own to tensor<4xf32>
  return %p, %q : tensor<8xf32>, tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// A loop in a loop of two iterations, which become straight code. The inner one
// stays as it is.
// CHECK-LABEL: func @nested
// CHECK-COUNT-2: stablehlo.while(
// CHECK-NOT: stablehlo.while(
// CHECK: return
func.func @nested(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<32xf32>
  %none = stablehlo.constant dense<0.0> : tensor<8xf32>
  %0:3 = "stablehlo.while"(%c0, %none, %x) ({
  ^bb0(%i: tensor<i32>, %s: tensor<8xf32>, %g: tensor<32xf32>):
    %more = stablehlo.compare LT, %i, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<8xf32>, %g: tensor<32xf32>):
    %1:3 = stablehlo.while(%k = %c0, %t = %zeros, %h = %g) : tensor<i32>, tensor<32xf32>, tensor<32xf32>
    cond {
      %again = stablehlo.compare LT, %k, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %again : tensor<i1>
    } do {
      %f = stablehlo.convert %k : (tensor<i32>) -> tensor<f32>
      %b = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<32xf32>
      %y = stablehlo.tanh %b : tensor<32xf32>
      %sum = stablehlo.add %t, %y : tensor<32xf32>
      %l = stablehlo.add %k, %c1 : tensor<i32>
      stablehlo.return %l, %sum, %h : tensor<i32>, tensor<32xf32>, tensor<32xf32>
    }
    %as = zero.from_local %1#1 : tensor<32xf32> to !whole
    %ag = zero.reduce_scatter sum %as along ["gpu"] : !whole to !partial
    %al = zero.to_local %ag : !partial to tensor<8xf32>
    %next = stablehlo.add %s, %al : tensor<8xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<8xf32>, tensor<32xf32>
  }) : (tensor<i32>, tensor<8xf32>, tensor<32xf32>) -> (tensor<i32>, tensor<8xf32>, tensor<32xf32>)
  %aq = zero.from_local %0#1 : tensor<8xf32> to !partial
  %bq = zero.reduce_scatter sum %aq along ["node"] : !partial to !own
  %q = zero.to_local %bq : !own to tensor<4xf32>
  return %q : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// Another loop sends the sum, once in each of its iterations. It stays there.
// CHECK-LABEL: func @elsewhere
// CHECK: {{^ *[}]$}}
// CHECK-NOT: stablehlo.negate
// CHECK: stablehlo.while(
// CHECK: zero.reduce_scatter
// CHECK: return
func.func @elsewhere(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<32xf32>
  %none = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<32xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %t = stablehlo.negate %g : tensor<32xf32>
    %next = stablehlo.add %s, %t : tensor<32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<32xf32>, tensor<32xf32>
  }
  %1:2 = stablehlo.while(%i = %c0, %s = %none) : tensor<i32>, tensor<4xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %ap = zero.from_local %0#1 : tensor<32xf32> to !whole
    %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
    %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %p : tensor<i32>, tensor<4xf32>
  }
  return %1#1 : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// The step reads the sum for something else, too: that is not known before.
// CHECK-LABEL: func @both
// CHECK: {{^ *[}]$}}
// CHECK-NOT: stablehlo.negate
// CHECK: return
func.func @both(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<32xf32>
  %three = stablehlo.constant dense<3.0> : tensor<32xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<32xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %k = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %y = stablehlo.multiply %g, %b : tensor<32xf32>
    %t = stablehlo.negate %y : tensor<32xf32>
    %next = stablehlo.add %s, %t : tensor<32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<32xf32>, tensor<32xf32>
  }
  %mean = stablehlo.divide %0#1, %three : tensor<32xf32>
  %sq = stablehlo.multiply %0#1, %0#1 : tensor<32xf32>
  %ap = zero.from_local %mean : tensor<32xf32> to !whole
  %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
  %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
  %p = zero.to_local %cp : !own to tensor<4xf32>
  return %p : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// An iteration multiplies what it carries.
// CHECK-LABEL: func @not_a_sum
// CHECK: {{^ *[}]$}}
// CHECK-NOT: stablehlo.negate
// CHECK: return
func.func @not_a_sum(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<32xf32>
  %three = stablehlo.constant dense<3.0> : tensor<32xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<32xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %k = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %y = stablehlo.multiply %g, %b : tensor<32xf32>
    %n = stablehlo.negate %y : tensor<32xf32>
    %t = stablehlo.multiply %n, %s : tensor<32xf32>
    %next = stablehlo.add %s, %t : tensor<32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<32xf32>, tensor<32xf32>
  }
  %mean = stablehlo.divide %0#1, %three : tensor<32xf32>
  %ap = zero.from_local %mean : tensor<32xf32> to !whole
  %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
  %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
  %p = zero.to_local %cp : !own to tensor<4xf32>
  return %p : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// Two sums travel as one, which is known when the last of them is.
// CHECK-LABEL: func @joined
// CHECK: {{^ *[}]$}}
// CHECK-NOT: stablehlo.negate
// CHECK: return
func.func @joined(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<32xf32>
  %three = stablehlo.constant dense<3.0> : tensor<32xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<32xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %k = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %y = stablehlo.multiply %g, %b : tensor<32xf32>
    %t = stablehlo.negate %y : tensor<32xf32>
    %next = stablehlo.add %s, %t : tensor<32xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<32xf32>, tensor<32xf32>
  }
  %all = stablehlo.concatenate %0#1, %0#1, dim = 0 : (tensor<32xf32>, tensor<32xf32>) -> tensor<64xf32>
  %mean = stablehlo.slice %all [16:48] : (tensor<64xf32>) -> tensor<32xf32>
  %ap = zero.from_local %mean : tensor<32xf32> to !whole
  %bp = zero.reduce_scatter sum %ap along ["gpu"] wire <i8, block = 32> : !whole to !partial
  %cp = zero.reduce_scatter sum %bp along ["node"] wire <i4, block = 32> : !partial to !own
  %p = zero.to_local %cp : !own to tensor<4xf32>
  return %p : tensor<4xf32>
}
