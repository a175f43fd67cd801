// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=5000000 --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=100000000 --remarks-filter=none | FileCheck %s --check-prefix=LATE

// A layer that has been waited for to make room is stored at once, and the stack
// passes through the next wait: XLA would store all layers at the end.

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @scatter(%x: tensor<4096x512xf32>) -> tensor<512x512xf32> {
    %0 = tensor.expand_shape %x [[0, 1], [2]] output_shape [8, 512, 512] : tensor<4096x512xf32> into tensor<8x512x512xf32>
    %e = tensor.empty() : tensor<8x512x512xf32>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e : tensor<8x512x512xf32> into tensor<8x512x512xf32> -> tensor<8x512x512xf32>
    %f = tensor.empty() : tensor<512x512xf32>
    %2 = zero.reduce sum %1 into %f : tensor<8x512x512xf32> into tensor<512x512xf32> -> tensor<512x512xf32>
    return %2 : tensor<512x512xf32>
  }
}

// CHECK-LABEL: func @layers
// CHECK-SAME: (%[[X:.*]]: tensor<4096x512xf32>, %[[M:.*]]: tensor<512x512xf32>, %[[STACK:.*]]: tensor<3x512x512xf32>, %[[I:.*]]: tensor<i32>, %[[J:.*]]: tensor<i32>, %[[K:.*]]: tensor<i32>)
// CHECK: zero.start
// CHECK: %[[G0:[^,]*]]{{(, .*)?}} = zero.wait
// The layer is added to what the stack has, as micro-batches do.
// CHECK-DAG: %[[R0:.*]] = stablehlo.reshape %[[G0]]
// CHECK-DAG: %[[OLD:.*]] = stablehlo.dynamic_slice %[[STACK]], %[[I]],
// CHECK: %[[A0:.*]] = stablehlo.add %[[OLD]], %[[R0]]
// CHECK: %[[S0:.*]] = stablehlo.dynamic_update_slice %[[STACK]], %[[A0]], %[[I]],
// CHECK: zero.start
// CHECK: "stablehlo.dot_general"
// CHECK: %[[G1:[^,]*]], %[[T:[^ ]*]]:2 = zero.wait {{.*}} ties(%{{.*}}, %[[S0]] :
// CHECK: %[[R1:.*]] = stablehlo.reshape %[[G1]]
// CHECK: %[[S1:.*]] = stablehlo.dynamic_update_slice %[[T]]#1, %[[R1]], %[[J]],
// CHECK: zero.start
// CHECK: zero.wait {{.*}} ties(%[[S1]] :

// With room for all of them, each is waited for where it is stored.
// LATE-LABEL: func @layers
// LATE-NOT: zero.wait
// LATE: zero.start
// LATE-NOT: zero.wait
// LATE: zero.start
// LATE-NOT: zero.wait
// LATE: zero.start
// LATE: zero.wait
// LATE: stablehlo.dynamic_update_slice %arg2,
func.func @layers(%x: tensor<4096x512xf32>, %m: tensor<512x512xf32>, %stack: tensor<3x512x512xf32>, %i: tensor<i32>, %j: tensor<i32>, %k: tensor<i32>) -> tensor<3x512x512xf32> {
  %a = "stablehlo.dot_general"(%x, %m) : (tensor<4096x512xf32>, tensor<512x512xf32>) -> tensor<4096x512xf32>
  %s0 = zero.start @zpp_host::@scatter(%a) {origins = [{role = "gradient"}]} : (tensor<4096x512xf32>) -> tensor<512x512xf32>
  %g0 = zero.wait %s0 from(%a : tensor<4096x512xf32>) : tensor<512x512xf32>
  %b = "stablehlo.dot_general"(%a, %m) : (tensor<4096x512xf32>, tensor<512x512xf32>) -> tensor<4096x512xf32>
  %s1 = zero.start @zpp_host::@scatter(%b) {origins = [{role = "gradient"}]} : (tensor<4096x512xf32>) -> tensor<512x512xf32>
  %g1 = zero.wait %s1 from(%b : tensor<4096x512xf32>) : tensor<512x512xf32>
  %c = "stablehlo.dot_general"(%b, %m) : (tensor<4096x512xf32>, tensor<512x512xf32>) -> tensor<4096x512xf32>
  %s2 = zero.start @zpp_host::@scatter(%c) {origins = [{role = "gradient"}]} : (tensor<4096x512xf32>) -> tensor<512x512xf32>
  %g2 = zero.wait %s2 from(%c : tensor<4096x512xf32>) : tensor<512x512xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r0 = stablehlo.reshape %g0 : (tensor<512x512xf32>) -> tensor<1x512x512xf32>
  %old = stablehlo.dynamic_slice %stack, %i, %zero, %zero, sizes = [1, 512, 512] : (tensor<3x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x512x512xf32>
  %a0 = stablehlo.add %old, %r0 : tensor<1x512x512xf32>
  %u0 = stablehlo.dynamic_update_slice %stack, %a0, %i, %zero, %zero : (tensor<3x512x512xf32>, tensor<1x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x512x512xf32>
  %r1 = stablehlo.reshape %g1 : (tensor<512x512xf32>) -> tensor<1x512x512xf32>
  %u1 = stablehlo.dynamic_update_slice %u0, %r1, %j, %zero, %zero : (tensor<3x512x512xf32>, tensor<1x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x512x512xf32>
  %r2 = stablehlo.reshape %g2 : (tensor<512x512xf32>) -> tensor<1x512x512xf32>
  %u2 = stablehlo.dynamic_update_slice %u1, %r2, %k, %zero, %zero : (tensor<3x512x512xf32>, tensor<1x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x512x512xf32>
  return %u2 : tensor<3x512x512xf32>
}

// Something else reads the stack as it was, perhaps later: storing early would take
// a copy.

// CHECK-LABEL: func @read
// CHECK: zero.wait
// CHECK-NOT: stablehlo.dynamic_update_slice
// CHECK: zero.wait {{.*}} : tensor<512x512xf32>
// CHECK: stablehlo.dynamic_update_slice %arg2,
// LATE-LABEL: func @read
func.func @read(%x: tensor<4096x512xf32>, %m: tensor<512x512xf32>, %stack: tensor<3x512x512xf32>, %i: tensor<i32>, %j: tensor<i32>) -> (tensor<3x512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>) {
  %a = "stablehlo.dot_general"(%x, %m) : (tensor<4096x512xf32>, tensor<512x512xf32>) -> tensor<4096x512xf32>
  %s0 = zero.start @zpp_host::@scatter(%a) {origins = [{role = "gradient"}]} : (tensor<4096x512xf32>) -> tensor<512x512xf32>
  %g0 = zero.wait %s0 from(%a : tensor<4096x512xf32>) : tensor<512x512xf32>
  %b = "stablehlo.dot_general"(%a, %m) : (tensor<4096x512xf32>, tensor<512x512xf32>) -> tensor<4096x512xf32>
  %s1 = zero.start @zpp_host::@scatter(%b) {origins = [{role = "gradient"}]} : (tensor<4096x512xf32>) -> tensor<512x512xf32>
  %g1 = zero.wait %s1 from(%b : tensor<4096x512xf32>) : tensor<512x512xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %old = stablehlo.dynamic_slice %stack, %j, %zero, %zero, sizes = [1, 512, 512] : (tensor<3x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x512x512xf32>
  %w = stablehlo.reshape %old : (tensor<1x512x512xf32>) -> tensor<512x512xf32>
  %c = "stablehlo.dot_general"(%w, %g1) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %r0 = stablehlo.reshape %g0 : (tensor<512x512xf32>) -> tensor<1x512x512xf32>
  %u0 = stablehlo.dynamic_update_slice %stack, %r0, %i, %zero, %zero : (tensor<3x512x512xf32>, tensor<1x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x512x512xf32>
  return %u0, %g1, %c : tensor<3x512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>
}
