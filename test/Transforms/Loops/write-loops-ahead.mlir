// RUN: zpp-opt %s --zero-write-loops=staying --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-write-loops=staying --zero-write-loops=staying --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-write-loops=staying --remarks-filter=zero-write-loops --split-input-file -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=REMARK
// RUN: zpp-opt %s --zero-write-loops="staying prefetch-bytes=2047" --remarks-filter=zero-write-loops --split-input-file 2>&1 \
// RUN:   | FileCheck %s --check-prefix=NONE
// RUN: not zpp-opt %s --zero-write-loops="staying prefetch-bytes=-2" --split-input-file -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=NEGATIVE

// NEGATIVE: error: expected a number of bytes to prefetch, but got -2

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}

// A loop over three layers, backwards: the weight of layer 2 - i is a slice of
// a stack. The first one is gathered before the loop, the one of i + 1 in each
// iteration; the product reads the value that the loop carries. A weight that
// is needed after the product can hide under it, and stays.

// CHECK-LABEL: func @layers
// CHECK-SAME: (%[[X:.*]]: tensor<32x16xf32>, %[[W:.*]]: tensor<3x2x32xf32>)
func.func @layers(%x: tensor<32x16xf32>, %w: tensor<3x2x32xf32>) -> tensor<32x16xf32> {
  // CHECK: %[[I0:.*]] = stablehlo.constant dense<0>
  // CHECK: %[[FIRST:.*]] = stablehlo.subtract %{{.*}}, %[[I0]]
  // CHECK-NEXT: %[[SLICE0:.*]] = stablehlo.dynamic_slice %[[W]], %[[FIRST]],
  // CHECK-NEXT: %[[INPUT0:.*]] = stablehlo.reshape %[[SLICE0]]
  // CHECK-NEXT: %[[START0:.*]] = zero.start @zpp_host::@gather(%[[INPUT0]])
  // CHECK-NEXT: %[[W0:.*]] = zero.wait %[[START0]]
  // CHECK-NEXT: stablehlo.while(%[[I:[^ ]+]] = %[[I0]], %[[A:[^ ]+]] = %[[X]], %[[S:[^ ]+]] = %[[W]], %[[CARRIED:[^ ]+]] = %[[W0]])
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %r:3 = "stablehlo.while"(%zero, %x, %w) ({
  // CHECK-NEXT: cond {
  ^bb0(%i: tensor<i32>, %a: tensor<32x16xf32>, %s: tensor<3x2x32xf32>):
    %c = "stablehlo.compare"(%i, %three) : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  // CHECK: } do {
  ^bb0(%i: tensor<i32>, %a: tensor<32x16xf32>, %s: tensor<3x2x32xf32>):
    // CHECK-NEXT: %[[NEXT:.*]] = stablehlo.add %[[I]],
    // CHECK-NEXT: %[[LAYER:.*]] = stablehlo.subtract %{{.*}}, %[[NEXT]]
    // CHECK-NEXT: %[[SLICE:.*]] = stablehlo.dynamic_slice %[[S]], %[[LAYER]],
    // CHECK-NEXT: %[[INPUT:.*]] = stablehlo.reshape %[[SLICE]]
    // CHECK-NEXT: %[[START:.*]] = zero.start @zpp_host::@gather(%[[INPUT]]) {origins
    // CHECK-NEXT: %[[AHEAD:.*]] = zero.wait %[[START]]
    // CHECK: %[[T:.*]] = stablehlo.transpose %[[CARRIED]]
    // CHECK: %[[B:.*]] = "stablehlo.dot_general"(%[[T]], %[[A]])
    // CHECK: zero.start
    // CHECK: stablehlo.return %{{.*}}, %{{.*}}, %[[S]], %[[AHEAD]]
    // CHECK-NOT: zero.start
    // REMARK: [Passed] rotated | Category:zero-write-loops | {{.*}}Remark="gathered in the iteration before the one that needs it"
    // NONE: [Missed] not-rotated {{.*}}gathered in the iteration that needs it: 2048 bytes would be in flight, more than prefetch-bytes = 2047
    %l = stablehlo.subtract %two, %i : tensor<i32>
    %0 = stablehlo.dynamic_slice %s, %l, %zero, %zero, sizes = [1, 2, 32] : (tensor<3x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x32xf32>) : tensor<16x32xf32>
    %4 = stablehlo.transpose %3, dims = [1, 0] : (tensor<16x32xf32>) -> tensor<32x16xf32>
    %5 = "stablehlo.dot_general"(%4, %a) : (tensor<32x16xf32>, tensor<32x16xf32>) -> tensor<16x16xf32>
    %6 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
    %7 = zero.wait %6 from(%1 : tensor<2x32xf32>) : tensor<16x32xf32>
    %8 = "stablehlo.dot_general"(%7, %5) : (tensor<16x32xf32>, tensor<16x16xf32>) -> tensor<32x16xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %8, %s : tensor<i32>, tensor<32x16xf32>, tensor<3x2x32xf32>
  }) {zpp.loop = {ahead}} : (tensor<i32>, tensor<32x16xf32>, tensor<3x2x32xf32>) -> (tensor<i32>, tensor<32x16xf32>, tensor<3x2x32xf32>)
  return %r#1 : tensor<32x16xf32>
}

// -----

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}

// A value that an iteration computes is not known in the one before.

// CHECK-LABEL: func @computed
func.func @computed(%x: tensor<2x32xf32>) -> tensor<2x32xf32> {
  // CHECK-NOT: zero.start
  // CHECK: stablehlo.while(%{{.*}} = %arg0)
  // REMARK: [Missed] not-rotated {{.*}}gathered in the iteration that needs it: its operand in the next iteration is not known in this one
  %r = stablehlo.while(%a = %x) : tensor<2x32xf32>
  attributes {zpp.loop = {ahead}}
  cond {
    %true = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %true : tensor<i1>
  } do {
    %0 = zero.start @zpp_host::@gather(%a) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
    %1 = zero.wait %0 from(%a : tensor<2x32xf32>) : tensor<16x32xf32>
    %2 = "stablehlo.dot_general"(%a, %1) : (tensor<2x32xf32>, tensor<16x32xf32>) -> tensor<2x32xf32>
    stablehlo.return %2 : tensor<2x32xf32>
  }
  return %r : tensor<2x32xf32>
}
