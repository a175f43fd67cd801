// RUN: zpp-opt %s --zero-plan-loops="gradients group=gpu min-usec=1" --zero-write-loops --split-input-file \
// RUN:   | FileCheck %s
// RUN: zpp-opt %s --zero-plan-loops="gradients group=gpu min-usec=1" --zero-write-loops --split-input-file \
// RUN:   --remarks-filter=.* 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: zpp-opt %s --zero-plan-loops="gradients group=gpu min-usec=1" --zero-write-loops \
// RUN:   --zero-accumulate-gradients=group=gpu --split-input-file \
// RUN:   | FileCheck %s --check-prefix=SENT
// RUN: zpp-opt %s --zero-plan-loops="gradients group=gpu" --zero-write-loops --split-input-file \
// RUN:   --remarks-filter=.* 2>&1 | FileCheck %s --check-prefix=SHORT
// RUN: zpp-opt %s --zero-plan-loops="gradients group=3" --zero-write-loops --split-input-file \
// RUN:   | FileCheck %s --check-prefix=GROUP

// Gradients that a loop adds up are sent in its last iteration, which stands
// after it.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// Two iterations are left. What they add up and the last gradient are sent as
// one.
// CHECK-LABEL: func @three
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(
// CHECK: %[[END:.*]] = stablehlo.constant dense<2> : tensor<i32>
// CHECK: stablehlo.compare {{[A-Z]+}}, %{{.*}}, %[[END]]
// CHECK: {{^ *[}]$}}
// CHECK: stablehlo.convert %[[LOOP]]#0
// CHECK: %[[LAST:.*]] = zero.to_local
// CHECK: %[[SUM:.*]] = stablehlo.add %[[LOOP]]#1, %[[LAST]]
// CHECK: return %[[SUM]]
// SENT-LABEL: func @three
// SENT: %[[LOOP:.*]]:4 = stablehlo.while(
// SENT-NOT: along ["node"]
// SENT: {{^ *[}]$}}
// SENT: zero.reduce_scatter {{.*}} along ["gpu"]
// SENT: %[[LAST:.*]] = zero.to_local %{{.*}} to tensor<8xf32>
// SENT: %[[SUM:.*]] = stablehlo.add %[[LOOP]]#3, %[[LAST]]
// SENT: %[[SHARD:.*]] = zero.from_local %[[SUM]]
// SENT: zero.reduce_scatter sum %[[SHARD]] along ["node"]
// SENT-NOT: zero.reduce_scatter
// REMARK: remark: [Passed] peeled {{.*}}its last iteration is written after it, to send gradients under its compute
// SHORT: remark: [Missed] not-peeled {{.*}}gradients are sent after the loop, where nothing hides it: it takes {{[0-9]+}} usec, with min-usec = 1000
// GROUP-LABEL: func @three
// GROUP: stablehlo.while
// GROUP: return %{{.*}}#1
func.func @three(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<32xf32>
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

// Two iterations are straight code.
// CHECK-LABEL: func @two
// CHECK-NOT: stablehlo.while
// CHECK: zero.reduce_scatter {{.*}} along ["gpu"]
// CHECK: zero.reduce_scatter {{.*}} along ["gpu"]
// CHECK-NOT: along ["gpu"]
// CHECK: return
// SENT-LABEL: func @two
// SENT: zero.reduce_scatter {{.*}} along ["gpu"]
// SENT-NOT: along ["node"]
// SENT: zero.reduce_scatter {{.*}} along ["gpu"]
// SENT: zero.reduce_scatter {{.*}} along ["node"]
// SENT-NOT: zero.reduce_scatter
// SENT: return
func.func @two(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
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

// One iteration is as it was.
// CHECK-LABEL: func @one
// CHECK: stablehlo.while
// CHECK: {{^ *[}]$}}
// CHECK-NEXT: return
// REMARK: remark: [Missed] not-peeled {{.*}}gradients are sent after the loop, where nothing hides it: the loop has 1 iteration
func.func @one(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
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

// Nobody knows how often this one runs.
// CHECK-LABEL: func @unknown
// CHECK: stablehlo.while
// CHECK: {{^ *[}]$}}
// CHECK-NEXT: return
// REMARK: remark: [Missed] not-peeled {{.*}}it is not known how often the loop runs
func.func @unknown(%x: tensor<32xf32>, %end: tensor<i32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  cond {
    %more = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
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

// The loop reads the sum, so that nothing is sent after it.
// CHECK-LABEL: func @is_read
// CHECK: stablehlo.while
// CHECK: {{^ *[}]$}}
// CHECK-NEXT: return
func.func @is_read(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<32xf32>
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
    %sq = stablehlo.multiply %s, %s : tensor<4xf32>
    %t = stablehlo.add %sq, %p : tensor<4xf32>
    %next = stablehlo.add %s, %t : tensor<4xf32>
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

// The last micro-batch stands after the loop already.
// CHECK-LABEL: func @last
// CHECK: stablehlo.while
// CHECK: {{^ *[}]$}}
// CHECK: zero.reduce_scatter {{.*}} along ["gpu"]
// CHECK-NOT: along ["gpu"]
func.func @last(%x: tensor<32xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0:3 = stablehlo.while(%i = %c0, %s = %zeros, %g = %x) : tensor<i32>, tensor<4xf32>, tensor<32xf32>
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
  %aq = zero.from_local %x : tensor<32xf32> to !whole
  %bq = zero.reduce_scatter sum %aq along ["gpu"] wire <i8, block = 32> : !whole to !partial
  %cq = zero.reduce_scatter sum %bq along ["node"] wire <i4, block = 32> : !partial to !own
  %q = zero.to_local %cq : !own to tensor<4xf32>
  %r = stablehlo.add %0#1, %q : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!partial = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// One hop over the whole group has no partial sums.
// CHECK-LABEL: func @one_hop
// CHECK: stablehlo.while
// CHECK: {{^ *[}]$}}
// CHECK-NEXT: return
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
    %k = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %y = stablehlo.add %g, %b : tensor<32xf32>
    %ap = zero.from_local %y : tensor<32xf32> to !whole
    %cp = zero.reduce_scatter sum %ap along ["node", "gpu"] wire <i4, block = 32> : !whole to !own
    %p = zero.to_local %cp : !own to tensor<4xf32>
    %next = stablehlo.add %s, %p : tensor<4xf32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %next, %g : tensor<i32>, tensor<4xf32>, tensor<32xf32>
  }
  return %0#1 : tensor<4xf32>
}

// -----

// Without gradients there is nothing to do.
// CHECK-LABEL: func @nothing
// CHECK-NEXT: return
func.func @nothing(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
