// RUN: zpp-opt %s --zero-write-loops=staying --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-write-loops=staying --zero-write-loops=staying --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-write-loops=staying --remarks-filter=zero-write-loops -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=REMARK
// RUN: zpp-opt %s --zero-write-loops="staying prefetch-bytes=2307" --remarks-filter=zero-write-loops -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=LESS
// RUN: zpp-opt %s --zero-write-loops=staying --zero-overlap-collectives --zero-report="mesh=gpu:8 output=-" --remarks-filter=none -o /dev/null \
// RUN:   | FileCheck %s --check-prefix=REPORT
// RUN: zpp-opt %s --zero-report="mesh=gpu:8 output=-" --remarks-filter=none -o /dev/null \
// RUN:   | FileCheck %s --check-prefix=PLAIN

// Scatters of a loop that run in its next iteration.

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
  func.func @scatter(%x: tensor<16x32xf32>) -> tensor<2x32xf32> {
    %0 = tensor.expand_shape %x [[0, 1], [2]] output_shape [8, 2, 32] : tensor<16x32xf32> into tensor<8x2x32xf32>
    %e = tensor.empty() : tensor<8x2x32xf32>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e : tensor<8x2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %f = tensor.empty() : tensor<2x32xf32>
    %2 = zero.reduce sum %1 into %f : tensor<8x2x32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
    return %2 : tensor<2x32xf32>
  }
}

// How JAX writes a slice of a stack.
func.func private @update(%stack: tensor<3x2x32xf32>, %slice: tensor<2x32xf32>, %i: tensor<i32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.broadcast_in_dim %slice, dims = [1, 2] : (tensor<2x32xf32>) -> tensor<1x2x32xf32>
  %1 = stablehlo.dynamic_update_slice %stack, %0, %i, %zero, %zero : (tensor<3x2x32xf32>, tensor<1x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x2x32xf32>
  return %1 : tensor<3x2x32xf32>
}

// A stack of three gradients, backwards: that of layer 2 - i is computed last in
// iteration i. It is scattered from the start of iteration i + 1 on and stored at
// its end; that of the last iteration after the loop. In the first iteration
// zeros go where the result of that iteration will be stored.

// CHECK-LABEL: func @stack(
func.func @stack(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: %[[I0:.*]] = stablehlo.constant dense<0> : tensor<i32>
  // CHECK: %[[TWO:.*]] = stablehlo.constant dense<2>
  // CHECK: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<16x32xf32>
  // CHECK-NEXT: %[[FIRST:.*]] = stablehlo.subtract %[[TWO]], %[[I0]]
  // CHECK-NEXT: %[[R:.*]]:6 = stablehlo.while(%[[I:[^ ]+]] = %[[I0]], %[[X:[^ ]+]] = %arg0, %[[A:[^ ]+]] = %arg1, %[[G:[^ ]+]] = %arg2, %[[D:[^ ]+]] = %[[ZEROS]], %[[LAYER:[^ ]+]] = %[[FIRST]])
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // CHECK: } do {
    // CHECK-NEXT: %[[START:.*]] = zero.start @zpp_host::@scatter(%[[D]]) {origins
    // CHECK-NEXT: %[[L:.*]] = stablehlo.subtract %[[TWO]], %[[I]]
    // CHECK-NEXT: %[[DOT:.*]] = "stablehlo.dot_general"(%[[X]], %[[A]])
    // CHECK-NEXT: %[[N:.*]] = stablehlo.add %[[I]],
    // CHECK-NEXT: %[[WAIT:.*]] = zero.wait %[[START]] from(%[[D]]
    // CHECK-NEXT: %[[U:.*]] = func.call @update(%[[G]], %[[WAIT]], %[[LAYER]])
    // CHECK-NEXT: stablehlo.return %[[N]], %[[X]], %[[A]], %[[U]], %[[DOT]], %[[L]]
    // CHECK: %[[LAST:.*]] = zero.start @zpp_host::@scatter(%[[R]]#4) {origins
    // CHECK-NEXT: %[[SLICE:.*]] = zero.wait %[[LAST]] from(%[[R]]#4
    // CHECK-NEXT: "stablehlo.dot_general"
    // CHECK-NEXT: %[[RESULT:.*]] = call @update(%[[R]]#3, %[[SLICE]], %[[R]]#5)
    // CHECK-NEXT: return %[[RESULT]]
    // REMARK: [Passed] rotated {{.*}}scattered in the iteration after the one that computes it; the first one scatters zeros
    // LESS: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: 2308 bytes would be in flight, more than prefetch-bytes = 2307
    // One more than there are iterations: that of zeros. The last one runs under
    // what is computed after the loop.
    // PLAIN: reduce_scatter gradient backward gpu 5.2 KiB 5.2 KiB
    // PLAIN: start 0: backward gradient, 1 in scatter {{.*}}, 3 times
    // PLAIN-NEXT: wait 0: backward gradient, 1 in scatter {{.*}}under 0 heavy ops, 3 times [nothing heavy to hide under]
    // REPORT: reduce_scatter gradient backward gpu 5.2 KiB 7.0 KiB
    // REPORT: start 0: backward gradient, 1 in scatter {{.*}}before stablehlo.dot_general{{.*}}, 3 times
    // REPORT-NEXT: wait 0: backward gradient, 1 in scatter {{.*}}before func.call{{.*}}under 1 heavy ops, 3 times
    // REPORT-NEXT: start 1: backward gradient, 1 in scatter {{.*}}before stablehlo.dot_general
    // REPORT-NEXT: wait 1: backward gradient, 1 in scatter {{.*}}before func.call{{.*}}under 1 heavy ops
    %l = stablehlo.subtract %two, %i : tensor<i32>
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{before = [5376], group = "gpu", id = 100 : i64, kind = "reduce_scatter", model_bytes = 0 : i64, phase = "backward", role = "gradient", trips = 3 : i64, weight = -1 : i64}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %u = func.call @update(%g, %g1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }
  %d = "stablehlo.dot_general"(%x0, %a0) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
  return %r#3 : tensor<3x2x32xf32>
}

// A mean and a shape change on the way into a stack of one row per iteration.
// Values that do not change are computed once more, before the loop.

// CHECK-LABEL: func @mean(
func.func @mean(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // CHECK: %[[EIGHT:.*]] = stablehlo.broadcast_in_dim
    // CHECK-NEXT: %[[R:.*]]:6 = stablehlo.while(%[[I:[^ ]+]] = %[[I0:[^ ]+]], %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2, %[[D:[^ ]+]] = %{{.*}}, %[[LAYER:[^ ]+]] = %[[I0]])
    // CHECK: } do {
    // CHECK-NEXT: zero.start @zpp_host::@scatter(%[[D]])
    // CHECK-NEXT: "stablehlo.dot_general"
    // CHECK: zero.wait
    // CHECK-NEXT: stablehlo.divide
    // CHECK-NEXT: stablehlo.reshape
    // CHECK-NEXT: stablehlo.dynamic_update_slice %{{.*}}, %{{.*}}, %[[LAYER]],
    // CHECK-NEXT: stablehlo.return {{.*}}, %[[I]]
    // CHECK: zero.start
    // CHECK: stablehlo.divide %{{.*}}, %[[EIGHT]]
    // CHECK: stablehlo.dynamic_update_slice %[[R]]#3, %{{.*}}, %[[R]]#5,
    // REMARK: [Passed] rotated {{.*}}scattered in the iteration after the one that computes it; the first one scatters zeros
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %k = stablehlo.constant dense<8.0> : tensor<f32>
    %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
    %m = stablehlo.divide %g1, %b : tensor<2x32xf32>
    %v = stablehlo.reshape %m : (tensor<2x32xf32>) -> tensor<1x2x32xf32>
    %u = stablehlo.dynamic_update_slice %g, %v, %i, %zero, %zero : (tensor<3x2x32xf32>, tensor<1x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }
  return %r#3 : tensor<3x2x32xf32>
}

// Micro-batches: a sum, to which zeros are added first.

// CHECK-LABEL: func @sum(
func.func @sum(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<2x32xf32>) -> tensor<2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // CHECK: %[[R:.*]]:5 = stablehlo.while({{.*}}, %[[G:[^ ]+]] = {{[^,]+}}, %[[D:[^ ]+]] = {{[^,]+}})
    // CHECK: } do {
    // CHECK-NEXT: zero.start @zpp_host::@scatter(%[[D]])
    // CHECK: %[[WAIT:.*]] = zero.wait
    // CHECK-NEXT: stablehlo.add %[[G]], %[[WAIT]]
    // CHECK: %[[WAIT:.*]] = zero.wait
    // CHECK-NEXT: %[[SUM:.*]] = stablehlo.add %[[R]]#3, %[[WAIT]]
    // CHECK-NEXT: return %[[SUM]]
    // REMARK: [Passed] rotated {{.*}}scattered in the iteration after the one that computes it; the first one scatters zeros
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %u = stablehlo.add %g, %g1 : tensor<2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<2x32xf32>
  }
  return %r#3 : tensor<2x32xf32>
}

// Two scatters start in the order of the program, in the loop and after it. They
// share the index that is carried. What reads one stack first is what its last
// slice is stored before.

// CHECK-LABEL: func @two(
func.func @two(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>, %h0: tensor<3x2x32xf32>) -> (tensor<3x2x32xf32>, tensor<3x2x32xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: %[[R:.*]]:8 = stablehlo.while({{.*}}, %[[G:[^ ]+]] = {{[^,]+}}, %[[H:[^ ]+]] = {{[^,]+}}, %[[D:[^ ]+]] = {{[^,]+}}, %[[LAYER:[^ ]+]] = {{[^,]+}}, %[[E:[^ ]+]] = {{[^,]+}})
  %r:5 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0, %h = %h0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // CHECK: } do {
    // CHECK-NEXT: %[[START1:.*]] = zero.start @zpp_host::@scatter(%[[D]])
    // CHECK-NEXT: %[[START2:.*]] = zero.start @zpp_host::@scatter(%[[E]])
    // CHECK: %[[WAIT1:.*]] = zero.wait %[[START1]]
    // CHECK-NEXT: func.call @update(%[[G]], %[[WAIT1]], %[[LAYER]])
    // CHECK-NEXT: %[[WAIT2:.*]] = zero.wait %[[START2]]
    // CHECK-NEXT: func.call @update(%[[H]], %[[WAIT2]], %[[LAYER]])
    // CHECK: %[[START1:.*]] = zero.start @zpp_host::@scatter(%[[R]]#5)
    // CHECK-NEXT: %[[WAIT1:.*]] = zero.wait %[[START1]]
    // CHECK-NEXT: %[[START2:.*]] = zero.start @zpp_host::@scatter(%[[R]]#7)
    // CHECK-NEXT: %[[WAIT2:.*]] = zero.wait %[[START2]]
    // CHECK-NEXT: %[[LAST2:.*]] = call @update(%[[R]]#4, %[[WAIT2]], %[[R]]#6)
    // CHECK-NEXT: stablehlo.negate %[[LAST2]]
    // CHECK-NEXT: %[[LAST1:.*]] = call @update(%[[R]]#3, %[[WAIT1]], %[[R]]#6)
    // CHECK-NEXT: return %[[LAST1]],
    // REMARK: [Passed] rotated {{.*}}scattered in the iteration after the one that computes it; the first one scatters zeros
    // REMARK: [Passed] rotated {{.*}}scattered in the iteration after the one that computes it; the first one scatters zeros
    %l = stablehlo.subtract %two, %i : tensor<i32>
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %e = stablehlo.negate %d : tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %u = func.call @update(%g, %g1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %s2 = zero.start @zpp_host::@scatter(%e) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g2 = zero.wait %s2 from(%e : tensor<16x32xf32>) : tensor<2x32xf32>
    %v = func.call @update(%h, %g2, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u, %v : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>, tensor<3x2x32xf32>
  }
  %m = stablehlo.negate %r#4 : tensor<3x2x32xf32>
  return %r#3, %m : tensor<3x2x32xf32>, tensor<3x2x32xf32>
}

// Two layers in a loop in a loop. The last gradient of the inner loop is stored
// in its result, which is not a stack of the outer loop.

// CHECK-LABEL: func @nested(
func.func @nested(%x: tensor<16x32xf32>, %a: tensor<32x32xf32>, %g: tensor<3x2x32xf32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2)
  %r:4 = "stablehlo.while"(%zero, %x, %a, %g) ({
  ^bb0(%i1: tensor<i32>, %x1: tensor<16x32xf32>, %a1: tensor<32x32xf32>, %g1: tensor<3x2x32xf32>):
    %c = stablehlo.compare LT, %i1, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  ^bb0(%i1: tensor<i32>, %x1: tensor<16x32xf32>, %a1: tensor<32x32xf32>, %g1: tensor<3x2x32xf32>):
    // CHECK: %[[R:.*]]:6 = stablehlo.while(
    %q:4 = stablehlo.while(%i2 = %zero, %x2 = %x1, %a2 = %a1, %g2 = %g1) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
    attributes {zpp.loop = {ahead}}
    cond {
      %c = stablehlo.compare LT, %i2, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      // CHECK: zero.start
      // CHECK-NEXT: "stablehlo.dot_general"
      // CHECK: zero.wait
      // CHECK: zero.start @zpp_host::@scatter(%[[R]]#4)
      // CHECK: func.call @update(%[[R]]#3, %{{.*}}, %[[R]]#5)
        // REMARK: [Passed] rotated {{.*}}scattered in the iteration after the one that computes it; the first one scatters zeros
    // REMARK: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: the loop uses the tensor that it is stored in for other purposes
      %d = "stablehlo.dot_general"(%x2, %a2) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
      %s = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
      %y = zero.wait %s from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
      %u = func.call @update(%g2, %y, %i2) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
      %n = stablehlo.add %i2, %one : tensor<i32>
      stablehlo.return %n, %x2, %a2, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
    }
    %n = stablehlo.add %i1, %one : tensor<i32>
    stablehlo.return %n, %x1, %a1, %q#3 : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }) {zpp.loop = {ahead}} : (tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>) -> (tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>)
  return %r#3 : tensor<3x2x32xf32>
}

// With a weight that is gathered ahead, which comes first: 2048 bytes of it, then
// 2308. Both are carried, the weight first.

// CHECK-LABEL: func @both(
func.func @both(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>, %w: tensor<3x2x32xf32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: %[[W0:.*]] = zero.wait
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2, %[[W:[^ ]+]] = %[[W0]], %[[D:[^ ]+]] = %{{.*}}, %{{.*}} = %{{.*}})
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // CHECK: } do {
    // CHECK-NEXT: zero.start @zpp_host::@scatter(%[[D]])
    // CHECK: zero.start @zpp_host::@gather(
    // CHECK: "stablehlo.dot_general"(%[[W]],
    // REMARK: [Passed] rotated {{.*}}gathered in the iteration before
    // REMARK: [Passed] rotated {{.*}}scattered in the iteration after the one that computes it; the first one scatters zeros
    // LESS: [Missed] not-rotated {{.*}}: 4356 bytes would be in flight, more than prefetch-bytes = 2307
    // LESS: [Passed] rotated {{.*}}gathered in the iteration before
    %s = stablehlo.dynamic_slice %w, %i, %zero, %zero, sizes = [1, 2, 32] : (tensor<3x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
    %p = stablehlo.reshape %s : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
    %f = zero.start @zpp_host::@gather(%p) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
    %x1 = zero.wait %f from(%p : tensor<2x32xf32>) : tensor<16x32xf32>
    %l = stablehlo.subtract %two, %i : tensor<i32>
    %d = "stablehlo.dot_general"(%x1, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %u = func.call @update(%g, %g1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }
  return %r#3 : tensor<3x2x32xf32>
}

// Scatters that stay as they are.

// CHECK-LABEL: func @unknown(
func.func @unknown(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>, %end: tensor<i32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2)
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // REMARK: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: it is not known whether the loop has a next iteration
    %l = stablehlo.subtract %two, %i : tensor<i32>
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %u = func.call @update(%g, %g1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }
  return %r#3 : tensor<3x2x32xf32>
}

// CHECK-LABEL: func @once(
func.func @once(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2)
  %r:4 = stablehlo.while(%i = %two, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // REMARK: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: the loop has no next iteration
    %l = stablehlo.subtract %two, %i : tensor<i32>
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %u = func.call @update(%g, %g1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }
  return %r#3 : tensor<3x2x32xf32>
}

// Three of four products come after the first gradient, which they hide. One
// comes after the second gradient, too short for it if the links take as long as
// the iteration computes: it is scattered an iteration later.

// CHECK-LABEL: func @covered(
func.func @covered(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>, %h0: tensor<3x2x32xf32>) -> (tensor<3x2x32xf32>, tensor<3x2x32xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: %[[ZEROS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<16x32xf32>
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2, %{{.*}} = %arg3, %[[OLD:[^ ]+]] = %[[ZEROS]], %{{.*}} = %{{.*}})
  %r:5 = "stablehlo.while"(%zero, %x0, %a0, %g0, %h0) ({
  ^bb0(%i: tensor<i32>, %x: tensor<16x32xf32>, %a: tensor<32x32xf32>, %g: tensor<3x2x32xf32>, %h: tensor<3x2x32xf32>):
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  // CHECK: } do {
  ^bb0(%i: tensor<i32>, %x: tensor<16x32xf32>, %a: tensor<32x32xf32>, %g: tensor<3x2x32xf32>, %h: tensor<3x2x32xf32>):
    // REMARK: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: what is computed after it there hides it
    // REMARK: [Passed] rotated {{.*}}scattered in the iteration after the one that computes it
    %l = stablehlo.subtract %two, %i : tensor<i32>
    // CHECK: zero.start @zpp_host::@scatter(%[[OLD]])
    // CHECK: %[[FIRST:.*]] = "stablehlo.dot_general"
    // CHECK-NEXT: zero.start @zpp_host::@scatter(%[[FIRST]])
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    // CHECK: "stablehlo.dot_general"
    // CHECK: %[[SECOND:.*]] = "stablehlo.dot_general"
    // CHECK-NOT: zero.start
    %e = "stablehlo.dot_general"(%d, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %f = "stablehlo.dot_general"(%e, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s2 = zero.start @zpp_host::@scatter(%f) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %h1 = zero.wait %s2 from(%f : tensor<16x32xf32>) : tensor<2x32xf32>
    %k = "stablehlo.dot_general"(%f, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %u = func.call @update(%g, %g1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %v = func.call @update(%h, %h1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    // CHECK: stablehlo.return {{.*}}, %[[SECOND]], %{{.*}}
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u, %v : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>, tensor<3x2x32xf32>
  }) {zpp.loop = {ahead}} : (tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>, tensor<3x2x32xf32>) -> (tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>, tensor<3x2x32xf32>)
  // CHECK: zero.start @zpp_host::@scatter
  return %r#3, %r#4 : tensor<3x2x32xf32>, tensor<3x2x32xf32>
}

// Two gradients of one iteration are stored in one slice, as where a scan is
// unrolled: the later one is deferred, with what the other one has brought.

// CHECK-LABEL: func @joined(
func.func @joined(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x4x32xf32>) -> tensor<3x4x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x4x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // REMARK: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: its result is stored with that of a later one, which is deferred
    // REMARK: [Passed] rotated {{.*}}scattered in the iteration after the one that computes it
    // CHECK: stablehlo.while({{.*}}, %[[SECOND:[^ ]+]] = {{[^,]+}}, %[[FIRST:[^ ]+]] = {{[^,]+}}, %{{[^ ]+}} = {{[^,]+}})
    // CHECK: } do {
    // CHECK: %[[S:.*]] = zero.start @zpp_host::@scatter(%[[SECOND]])
    // CHECK: "stablehlo.dot_general"
    // CHECK: %[[E:.*]] = "stablehlo.dot_general"
    // CHECK: %[[T:.*]] = zero.start @zpp_host::@scatter(%{{.*}})
    // CHECK: %[[NOW:.*]] = zero.wait %[[T]]
    // CHECK: %[[SENT:.*]] = zero.wait %[[S]]
    // CHECK: stablehlo.concatenate %[[FIRST]], %[[SENT]]
    // CHECK: stablehlo.return {{.*}}, %[[E]], %[[NOW]], %{{.*}}
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %e = "stablehlo.dot_general"(%d, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %s2 = zero.start @zpp_host::@scatter(%e) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g2 = zero.wait %s2 from(%e : tensor<16x32xf32>) : tensor<2x32xf32>
    %both = stablehlo.concatenate %g1, %g2, dim = 0 : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<4x32xf32>
    %layer = stablehlo.reshape %both : (tensor<4x32xf32>) -> tensor<1x4x32xf32>
    %u = stablehlo.dynamic_update_slice %g, %layer, %i, %zero, %zero : (tensor<3x4x32xf32>, tensor<1x4x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x4x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x4x32xf32>
  }
  return %r#3 : tensor<3x4x32xf32>
}

// CHECK-LABEL: func @stack_read(
func.func @stack_read(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2)
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // REMARK: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: the loop uses the tensor that it is stored in for other purposes
    %l = stablehlo.subtract %two, %i : tensor<i32>
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %o = "stablehlo.slice"(%g) : (tensor<3x2x32xf32>) -> tensor<3x2x32xf32>
    %u = func.call @update(%g, %g1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }
  return %r#3 : tensor<3x2x32xf32>
}

// CHECK-LABEL: func @stack_read_by_condition(
func.func @stack_read_by_condition(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2)
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %s = "stablehlo.slice"(%g) : (tensor<3x2x32xf32>) -> tensor<3x2x32xf32>
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // REMARK: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: the loop uses the tensor that it is stored in for other purposes
    %l = stablehlo.subtract %two, %i : tensor<i32>
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %u = func.call @update(%g, %g1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }
  return %r#3 : tensor<3x2x32xf32>
}

// CHECK-LABEL: func @stack_read_later(
func.func @stack_read_later(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2)
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // REMARK: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: the loop uses the tensor that it is stored in for other purposes
    %l = stablehlo.subtract %two, %i : tensor<i32>
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %t = func.call @update(%g, %g1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %u = stablehlo.negate %t : tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }
  return %r#3 : tensor<3x2x32xf32>
}

// CHECK-LABEL: func @result_read(
func.func @result_read(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2)
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // REMARK: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: the iteration that computes it does more with its result than store it
    %l = stablehlo.subtract %two, %i : tensor<i32>
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %o = stablehlo.tanh %g1 : tensor<2x32xf32>
    %u = func.call @update(%g, %g1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }
  return %r#3 : tensor<3x2x32xf32>
}

// CHECK-LABEL: func @result_read_in_region(
func.func @result_read_in_region(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2)
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // REMARK: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: the iteration that computes it does more with its result than store it
    %l = stablehlo.subtract %two, %i : tensor<i32>
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %o = "stablehlo.optional"(%l) ({
      %o = stablehlo.tanh %g1 : tensor<2x32xf32>
      stablehlo.return %o : tensor<2x32xf32>
    }) : (tensor<i32>) -> tensor<2x32xf32>
    %u = func.call @update(%g, %g1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }
  return %r#3 : tensor<3x2x32xf32>
}

// CHECK-LABEL: func @computed_index(
func.func @computed_index(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2)
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // REMARK: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: the place where it is stored is not known before the loop
    %l = stablehlo.custom_call @index(%i) : (tensor<i32>) -> tensor<i32>
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %u = func.call @update(%g, %g1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }
  return %r#3 : tensor<3x2x32xf32>
}

// CHECK-LABEL: func @no_zero(
func.func @no_zero(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<2x32xf32>, %y: tensor<2x32xf32>) -> tensor<2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2)
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // REMARK: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: scattering zeros would not leave the sum as it is
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %o = stablehlo.add %g1, %y : tensor<2x32xf32>
    %u = stablehlo.add %g, %o : tensor<2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<2x32xf32>
  }
  return %r#3 : tensor<2x32xf32>
}

// CHECK-LABEL: func @nothing_heavy(
func.func @nothing_heavy(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2)
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    // REMARK: [Missed] not-rotated {{.*}}scattered in the iteration that computes it: the loop computes nothing heavy
    %s1 = zero.start @zpp_host::@scatter(%x) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%x : tensor<16x32xf32>) : tensor<2x32xf32>
    %u = func.call @update(%g, %g1, %i) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }
  return %r#3 : tensor<3x2x32xf32>
}

// No gradients: not a word about them.
// REMARK-NOT: rotated

// CHECK-LABEL: func @other(
func.func @other(%x0: tensor<16x32xf32>, %a0: tensor<32x32xf32>, %g0: tensor<3x2x32xf32>) -> tensor<3x2x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %arg0, %{{.*}} = %arg1, %{{.*}} = %arg2)
  %r:4 = stablehlo.while(%i = %zero, %x = %x0, %a = %a0, %g = %g0) : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %l = stablehlo.subtract %two, %i : tensor<i32>
    %d = "stablehlo.dot_general"(%x, %a) : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %s1 = zero.start @zpp_host::@scatter(%d) {origins = [{role = "other"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
    %g1 = zero.wait %s1 from(%d : tensor<16x32xf32>) : tensor<2x32xf32>
    %u = func.call @update(%g, %g1, %l) : (tensor<3x2x32xf32>, tensor<2x32xf32>, tensor<i32>) -> tensor<3x2x32xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %x, %a, %u : tensor<i32>, tensor<16x32xf32>, tensor<32x32xf32>, tensor<3x2x32xf32>
  }
  return %r#3 : tensor<3x2x32xf32>
}
