// RUN: zpp-opt %s --zero-plan-loops --zero-write-loops=layers --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-plan-loops --zero-write-loops=layers --zero-plan-loops --zero-write-loops=layers --remarks-filter=none --split-input-file | FileCheck %s

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x16xf32>) -> tensor<16x16xf32> {
    %e = tensor.empty() : tensor<8x2x16xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x16xf32> into tensor<8x2x16xf32> -> tensor<8x2x16xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x16xf32> into tensor<16x16xf32>
    return %1 : tensor<16x16xf32>
  }
}

// A stack that is joined from layers, and taken apart again, is replaced by
// these, also where another loop reads it.
// CHECK-LABEL: func @joined
// CHECK-SAME: (%{{.*}}: tensor<16x16xf32>, %[[L0:.*]]: tensor<1x2x16xf32>, %[[L1:.*]]: tensor<1x2x16xf32>)
// CHECK-NOT: concatenate
// CHECK-NOT: dynamic
// CHECK: %[[R0:.*]] = stablehlo.reshape %[[L0]]
// CHECK: zero.start @zpp_host::@gather(%[[R0]])
// CHECK: %[[N0:.*]] = stablehlo.negate %[[L0]]
// CHECK: %[[R1:.*]] = stablehlo.reshape %[[L1]]
// CHECK: zero.start @zpp_host::@gather(%[[R1]])
// CHECK: %[[N1:.*]] = stablehlo.negate %[[L1]]
// CHECK: %[[R2:.*]] = stablehlo.reshape %[[N1]]
// CHECK: zero.start @zpp_host::@gather(%[[R2]])
// CHECK: %[[R3:.*]] = stablehlo.reshape %[[N0]]
// CHECK: zero.start @zpp_host::@gather(%[[R3]])
// CHECK: return %{{.*}}, %[[N0]], %[[N1]]
func.func @joined(%x: tensor<16x16xf32>, %l0: tensor<1x2x16xf32>, %l1: tensor<1x2x16xf32>) -> (tensor<16x16xf32>, tensor<1x2x16xf32>, tensor<1x2x16xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %s = stablehlo.concatenate %l0, %l1, dim = 0 : (tensor<1x2x16xf32>, tensor<1x2x16xf32>) -> tensor<2x2x16xf32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %h = %s) : tensor<i32>, tensor<16x16xf32>, tensor<2x2x16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %0 = stablehlo.dynamic_slice %h, %i, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x16xf32>) -> tensor<2x16xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x16xf32>) -> tensor<16x16xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x16xf32>) : tensor<16x16xf32>
    %4 = "stablehlo.dot_general"(%a, %3) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %5 = stablehlo.negate %0 : tensor<1x2x16xf32>
    %6 = stablehlo.dynamic_update_slice %h, %5, %i, %zero, %zero : (tensor<2x2x16xf32>, tensor<1x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x16xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %4, %6 : tensor<i32>, tensor<16x16xf32>, tensor<2x2x16xf32>
  }
  %b:2 = stablehlo.while(%i = %zero, %a = %r#1) : tensor<i32>, tensor<16x16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %at = stablehlo.subtract %one, %i : tensor<i32>
    %0 = stablehlo.dynamic_slice %r#2, %at, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x16xf32>) -> tensor<2x16xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x16xf32>) -> tensor<16x16xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x16xf32>) : tensor<16x16xf32>
    %4 = "stablehlo.dot_general"(%a, %3) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %4 : tensor<i32>, tensor<16x16xf32>
  }
  %e0 = stablehlo.dynamic_slice %r#2, %zero, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
  %e1 = stablehlo.dynamic_slice %r#2, %one, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
  return %b#1, %e0, %e1 : tensor<16x16xf32>, tensor<1x2x16xf32>, tensor<1x2x16xf32>
}

// The same where a loop over micro-batches carries the stack, behind a barrier:
// it carries the layers.
// CHECK-LABEL: func @micro_batches
// CHECK-SAME: (%[[X:.*]]: tensor<16x16xf32>, %[[L0:.*]]: tensor<1x2x16xf32>, %[[L1:.*]]: tensor<1x2x16xf32>)
// CHECK-NOT: concatenate
// CHECK: %[[H:.*]]:3 = stablehlo.optimization_barrier %[[X]], %[[L0]], %[[L1]]
// CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %[[H]]#0, %[[C0:[^ ]+]] = %[[H]]#1, %[[C1:[^ ]+]] = %[[H]]#2)
// CHECK: } do {
// CHECK: stablehlo.reshape %[[C1]]
// CHECK: stablehlo.reshape %[[C0]]
// CHECK: stablehlo.return %{{.*}}, %{{.*}}, %[[C0]], %[[C1]]
// CHECK: stablehlo.negate %[[H]]#2
func.func @micro_batches(%x: tensor<16x16xf32>, %l0: tensor<1x2x16xf32>, %l1: tensor<1x2x16xf32>) -> (tensor<16x16xf32>, tensor<1x2x16xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %s = stablehlo.concatenate %l0, %l1, dim = 0 : (tensor<1x2x16xf32>, tensor<1x2x16xf32>) -> tensor<2x2x16xf32>
  %hidden:2 = stablehlo.optimization_barrier %x, %s : tensor<16x16xf32>, tensor<2x2x16xf32>
  %r:3 = "stablehlo.while"(%zero, %hidden#0, %hidden#1) ({
  ^bb0(%j: tensor<i32>, %y: tensor<16x16xf32>, %t: tensor<2x2x16xf32>):
    %c = stablehlo.compare LT, %j, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  ^bb0(%j: tensor<i32>, %y: tensor<16x16xf32>, %t: tensor<2x2x16xf32>):
    %b:2 = stablehlo.while(%i = %zero, %a = %y) : tensor<i32>, tensor<16x16xf32>
    cond {
      %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %at = stablehlo.subtract %one, %i : tensor<i32>
      %0 = stablehlo.dynamic_slice %t, %at, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
      %1 = stablehlo.reshape %0 : (tensor<1x2x16xf32>) -> tensor<2x16xf32>
      %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x16xf32>) -> tensor<16x16xf32>
      %3 = zero.wait %2 from(%1 : tensor<2x16xf32>) : tensor<16x16xf32>
      %4 = "stablehlo.dot_general"(%a, %3) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
      %n = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %n, %4 : tensor<i32>, tensor<16x16xf32>
    }
    %m = stablehlo.add %j, %one : tensor<i32>
    stablehlo.return %m, %b#1, %t : tensor<i32>, tensor<16x16xf32>, tensor<2x2x16xf32>
  }) : (tensor<i32>, tensor<16x16xf32>, tensor<2x2x16xf32>) -> (tensor<i32>, tensor<16x16xf32>, tensor<2x2x16xf32>)
  %e0 = stablehlo.dynamic_slice %r#2, %one, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
  %n0 = stablehlo.negate %e0 : tensor<1x2x16xf32>
  return %r#1, %n0 : tensor<16x16xf32>, tensor<1x2x16xf32>
}

// Stacks that a loop begins with zeros, and that are taken apart: also of
// integers, as secondary partitions are.
// CHECK-LABEL: func @begun
// CHECK-NOT: dense<0.0
// CHECK-NOT: dynamic_update_slice
// CHECK: %[[N0:.*]] = stablehlo.negate
// CHECK-NOT: dynamic_update_slice
// CHECK: %[[N1:.*]] = stablehlo.negate
// CHECK-NOT: dynamic
// CHECK: %[[I1:.*]] = stablehlo.convert
// CHECK-NOT: dynamic
// CHECK: return %{{.*}}, %[[N0]], %[[N1]], %[[I1]]
func.func @begun(%x: tensor<16x16xf32>, %w: tensor<2x2x16xf32>) -> (tensor<16x16xf32>, tensor<1x2x16xf32>, tensor<1x2x16xf32>, tensor<1x2x16xi8>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %s = stablehlo.constant dense<0.0> : tensor<2x2x16xf32>
  %q = stablehlo.constant dense<0> : tensor<2x2x16xi8>
  %r:4 = stablehlo.while(%i = %zero, %a = %x, %h = %s, %b = %q) : tensor<i32>, tensor<16x16xf32>, tensor<2x2x16xf32>, tensor<2x2x16xi8>
  cond {
    %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %0 = stablehlo.dynamic_slice %w, %i, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x16xf32>) -> tensor<2x16xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x16xf32>) -> tensor<16x16xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x16xf32>) : tensor<16x16xf32>
    %4 = "stablehlo.dot_general"(%a, %3) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %5 = stablehlo.negate %0 : tensor<1x2x16xf32>
    %6 = stablehlo.dynamic_update_slice %h, %5, %i, %zero, %zero : (tensor<2x2x16xf32>, tensor<1x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x16xf32>
    %7 = stablehlo.convert %0 : (tensor<1x2x16xf32>) -> tensor<1x2x16xi8>
    %8 = stablehlo.dynamic_update_slice %b, %7, %i, %zero, %zero : (tensor<2x2x16xi8>, tensor<1x2x16xi8>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x16xi8>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %4, %6, %8 : tensor<i32>, tensor<16x16xf32>, tensor<2x2x16xf32>, tensor<2x2x16xi8>
  }
  %e0 = stablehlo.dynamic_slice %r#2, %zero, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
  %e1 = stablehlo.dynamic_slice %r#2, %one, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
  %e2 = stablehlo.dynamic_slice %r#3, %one, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xi8>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xi8>
  return %r#1, %e0, %e1, %e2 : tensor<16x16xf32>, tensor<1x2x16xf32>, tensor<1x2x16xf32>, tensor<1x2x16xi8>
}

// Not where the whole stack is read, too, ...
// CHECK-LABEL: func @whole
// CHECK: stablehlo.concatenate
// CHECK: %[[S:.*]] = stablehlo.dynamic_update_slice
// CHECK: %[[T:.*]] = stablehlo.dynamic_update_slice %[[S]],
// CHECK: return %{{.*}}, %{{.*}}, %{{.*}}, %[[T]]
func.func @whole(%x: tensor<16x16xf32>, %l0: tensor<1x2x16xf32>, %l1: tensor<1x2x16xf32>) -> (tensor<16x16xf32>, tensor<1x2x16xf32>, tensor<1x2x16xf32>, tensor<2x2x16xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %s = stablehlo.concatenate %l0, %l1, dim = 0 : (tensor<1x2x16xf32>, tensor<1x2x16xf32>) -> tensor<2x2x16xf32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %h = %s) : tensor<i32>, tensor<16x16xf32>, tensor<2x2x16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %0 = stablehlo.dynamic_slice %h, %i, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x16xf32>) -> tensor<2x16xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x16xf32>) -> tensor<16x16xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x16xf32>) : tensor<16x16xf32>
    %4 = "stablehlo.dot_general"(%a, %3) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %5 = stablehlo.negate %0 : tensor<1x2x16xf32>
    %6 = stablehlo.dynamic_update_slice %h, %5, %i, %zero, %zero : (tensor<2x2x16xf32>, tensor<1x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x16xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %4, %6 : tensor<i32>, tensor<16x16xf32>, tensor<2x2x16xf32>
  }
  %e0 = stablehlo.dynamic_slice %r#2, %zero, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
  %e1 = stablehlo.dynamic_slice %r#2, %one, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
  return %r#1, %e0, %e1, %r#2 : tensor<16x16xf32>, tensor<1x2x16xf32>, tensor<1x2x16xf32>, tensor<2x2x16xf32>
}

// ... or a layer of which nobody knows the number, whatever the input says, ...
// CHECK-LABEL: func @unknown
// CHECK: stablehlo.concatenate
// CHECK-NOT: zpp.layer_number
// CHECK: return
func.func @unknown(%x: tensor<16x16xf32>, %l0: tensor<1x2x16xf32>, %l1: tensor<1x2x16xf32>, %at: tensor<i32>) -> (tensor<16x16xf32>, tensor<1x2x16xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %s = stablehlo.concatenate %l0, %l1, dim = 0 : (tensor<1x2x16xf32>, tensor<1x2x16xf32>) -> tensor<2x2x16xf32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %h = %s) : tensor<i32>, tensor<16x16xf32>, tensor<2x2x16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %0 = stablehlo.dynamic_slice %h, %i, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x16xf32>) -> tensor<2x16xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x16xf32>) -> tensor<16x16xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x16xf32>) : tensor<16x16xf32>
    %4 = "stablehlo.dot_general"(%a, %3) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %5 = stablehlo.negate %0 : tensor<1x2x16xf32>
    %6 = stablehlo.dynamic_update_slice %h, %5, %i, %zero, %zero : (tensor<2x2x16xf32>, tensor<1x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x16xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %4, %6 : tensor<i32>, tensor<16x16xf32>, tensor<2x2x16xf32>
  }
  %e0 = stablehlo.dynamic_slice %r#2, %at, %zero, %zero, sizes = [1, 2, 16] {zpp.layer_number = 0 : i64} : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
  return %r#1, %e0 : tensor<16x16xf32>, tensor<1x2x16xf32>
}

// ... or one past the end, which is the last one, ...
// CHECK-LABEL: func @past_the_end
// CHECK: stablehlo.concatenate
// CHECK: return
func.func @past_the_end(%x: tensor<16x16xf32>, %l0: tensor<1x2x16xf32>, %l1: tensor<1x2x16xf32>) -> (tensor<16x16xf32>, tensor<1x2x16xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %s = stablehlo.concatenate %l0, %l1, dim = 0 : (tensor<1x2x16xf32>, tensor<1x2x16xf32>) -> tensor<2x2x16xf32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %h = %s) : tensor<i32>, tensor<16x16xf32>, tensor<2x2x16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %0 = stablehlo.dynamic_slice %h, %i, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x16xf32>) -> tensor<2x16xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x16xf32>) -> tensor<16x16xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x16xf32>) : tensor<16x16xf32>
    %4 = "stablehlo.dot_general"(%a, %3) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %5 = stablehlo.negate %0 : tensor<1x2x16xf32>
    %6 = stablehlo.dynamic_update_slice %h, %5, %i, %zero, %zero : (tensor<2x2x16xf32>, tensor<1x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x16xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %4, %6 : tensor<i32>, tensor<16x16xf32>, tensor<2x2x16xf32>
  }
  %e0 = stablehlo.dynamic_slice %r#2, %two, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
  return %r#1, %e0 : tensor<16x16xf32>, tensor<1x2x16xf32>
}

// ... or where it is joined along another dim, or from parts of two layers.
// CHECK-LABEL: func @rows
// CHECK: stablehlo.concatenate
// CHECK: stablehlo.concatenate
// CHECK: return
func.func @rows(%x: tensor<16x16xf32>, %l0: tensor<2x1x16xf32>, %l1: tensor<2x1x16xf32>, %p: tensor<2x2x16xf32>) -> (tensor<16x16xf32>, tensor<16x16xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %s = stablehlo.concatenate %l0, %l1, dim = 1 : (tensor<2x1x16xf32>, tensor<2x1x16xf32>) -> tensor<2x2x16xf32>
  %q = stablehlo.concatenate %p, dim = 0 : (tensor<2x2x16xf32>) -> tensor<2x2x16xf32>
  %b:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<16x16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %at = stablehlo.subtract %one, %i : tensor<i32>
    %0 = stablehlo.dynamic_slice %s, %at, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x16xf32>) -> tensor<2x16xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x16xf32>) -> tensor<16x16xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x16xf32>) : tensor<16x16xf32>
    %4 = "stablehlo.dot_general"(%a, %3) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %4 : tensor<i32>, tensor<16x16xf32>
  }
  %d:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<16x16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %at = stablehlo.subtract %one, %i : tensor<i32>
    %0 = stablehlo.dynamic_slice %q, %at, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x16xf32>) -> tensor<2x16xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x16xf32>) -> tensor<16x16xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x16xf32>) : tensor<16x16xf32>
    %4 = "stablehlo.dot_general"(%a, %3) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %4 : tensor<i32>, tensor<16x16xf32>
  }
  return %b#1, %d#1 : tensor<16x16xf32>, tensor<16x16xf32>
}

// Many rows are no layers.
// CHECK-LABEL: func @many
// CHECK-NOT: concatenate
// CHECK: stablehlo.dynamic_update_slice
// CHECK: return
func.func @many(%x: tensor<16x16xf32>, %l0: tensor<1x2x16xf32>, %l1: tensor<1x2x16xf32>) -> (tensor<16x16xf32>, tensor<1x2x16xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %s = stablehlo.concatenate %l0, %l1, dim = 0 : (tensor<1x2x16xf32>, tensor<1x2x16xf32>) -> tensor<2x2x16xf32>
  %b:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<16x16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %at = stablehlo.subtract %one, %i : tensor<i32>
    %0 = stablehlo.dynamic_slice %s, %at, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x16xf32>) -> tensor<2x16xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x16xf32>) -> tensor<16x16xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x16xf32>) : tensor<16x16xf32>
    %4 = "stablehlo.dot_general"(%a, %3) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %4 : tensor<i32>, tensor<16x16xf32>
  }
  %none = stablehlo.constant dense<0.0> : tensor<129x2x16xf32>
  %t = stablehlo.dynamic_update_slice %none, %l0, %one, %zero, %zero : (tensor<129x2x16xf32>, tensor<1x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<129x2x16xf32>
  %e = stablehlo.dynamic_slice %t, %one, %zero, %zero, sizes = [1, 2, 16] : (tensor<129x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
  return %b#1, %e : tensor<16x16xf32>, tensor<1x2x16xf32>
}

// A stack of whose layers one is computed from another stack, and read by nobody.
// CHECK-LABEL: func @nested
// CHECK-NOT: concatenate
// CHECK-NOT: dynamic
// CHECK: return
func.func @nested(%x: tensor<16x16xf32>, %l0: tensor<1x2x16xf32>, %l1: tensor<1x2x16xf32>) -> (tensor<16x16xf32>, tensor<1x2x16xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %s = stablehlo.concatenate %l0, %l1, dim = 0 : (tensor<1x2x16xf32>, tensor<1x2x16xf32>) -> tensor<2x2x16xf32>
  %b:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<16x16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %at = stablehlo.subtract %one, %i : tensor<i32>
    %0 = stablehlo.dynamic_slice %s, %at, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x2x16xf32>) -> tensor<2x16xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x16xf32>) -> tensor<16x16xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x16xf32>) : tensor<16x16xf32>
    %4 = "stablehlo.dot_general"(%a, %3) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %4 : tensor<i32>, tensor<16x16xf32>
  }
  %none = stablehlo.constant dense<0.0> : tensor<2x2x16xf32>
  %t = stablehlo.dynamic_update_slice %none, %l0, %one, %zero, %zero : (tensor<2x2x16xf32>, tensor<1x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x16xf32>
  %d = stablehlo.dynamic_slice %t, %one, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
  %p = stablehlo.negate %d : tensor<1x2x16xf32>
  %u = stablehlo.concatenate %l1, %p, dim = 0 : (tensor<1x2x16xf32>, tensor<1x2x16xf32>) -> tensor<2x2x16xf32>
  %e = stablehlo.dynamic_slice %u, %zero, %zero, %zero, sizes = [1, 2, 16] : (tensor<2x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x16xf32>
  return %b#1, %e : tensor<16x16xf32>, tensor<1x2x16xf32>
}
