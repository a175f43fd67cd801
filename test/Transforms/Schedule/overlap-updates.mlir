// RUN: zpp-opt %s --zero-overlap-collectives --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-overlap-collectives --zero-overlap-collectives --remarks-filter=none | FileCheck %s

// What a step computes after its last product waits for the gradients that it
// needs and for no later ones, whatever the order in which it was written.

#mesh = #zero.mesh<"gpu" = 2>
module @zpp_host {
  func.func @scatter(%x: tensor<1024x512xf32>) -> tensor<512x512xf32> {
    %0 = tensor.expand_shape %x [[0, 1], [2]] output_shape [2, 512, 512] : tensor<1024x512xf32> into tensor<2x512x512xf32>
    %e = tensor.empty() : tensor<2x512x512xf32>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e : tensor<2x512x512xf32> into tensor<2x512x512xf32> -> tensor<2x512x512xf32>
    %f = tensor.empty() : tensor<512x512xf32>
    %2 = zero.reduce sum %1 into %f : tensor<2x512x512xf32> into tensor<512x512xf32> -> tensor<512x512xf32>
    return %2 : tensor<512x512xf32>
  }
  func.func @gather(%x: tensor<512x512xf32>) -> tensor<1024x512xf32> {
    %e = tensor.empty() : tensor<2x512x512xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<512x512xf32> into tensor<2x512x512xf32> -> tensor<2x512x512xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<2x512x512xf32> into tensor<1024x512xf32>
    return %1 : tensor<1024x512xf32>
  }
}

// The weight whose gradient is there last is updated first as it is written.

// CHECK-LABEL: func @updates
// CHECK-SAME: (%[[X:[^:]*]]: tensor<1024x1024xf32>, %[[W:[^:]*]]: tensor<512x512xf32>, %[[V:[^:]*]]: tensor<512x512xf32>, %[[R:[^:]*]]: tensor<512x512xf32>)
func.func @updates(%x: tensor<1024x1024xf32>, %w: tensor<512x512xf32>, %v: tensor<512x512xf32>, %r: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>) {
  %a = stablehlo.slice %x [0:1024, 0:512] : (tensor<1024x1024xf32>) -> tensor<1024x512xf32>
  %first = stablehlo.tanh %a : tensor<1024x512xf32>
  // CHECK: %[[LAST:.*]] = "stablehlo.dot_general"
  %last = "stablehlo.dot_general"(%x, %first) : (tensor<1024x1024xf32>, tensor<1024x512xf32>) -> tensor<1024x512xf32>
  // CHECK: zero.start @zpp_host::@scatter(%[[LAST]])
  %s2 = zero.start @zpp_host::@scatter(%last) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g2 = zero.wait %s2 from(%last : tensor<1024x512xf32>) : tensor<512x512xf32>
  %s1 = zero.start @zpp_host::@scatter(%first) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g1 = zero.wait %s1 from(%first : tensor<1024x512xf32>) : tensor<512x512xf32>
  // What needs no gradient stands where it is needed, and is not tied.
  // CHECK-NEXT: %[[DECAYED_V:.*]] = stablehlo.add %[[V]], %[[V]]
  // CHECK-NEXT: %[[G1:.*]] = zero.wait %outputs from(%{{[0-9]+}} : tensor<1024x512xf32>) : tensor
  // CHECK-NEXT: %[[MOMENT:.*]] = stablehlo.multiply %[[G1]], %[[G1]]
  // CHECK-NEXT: %[[NEW_V:.*]] = stablehlo.subtract %[[DECAYED_V]], %[[MOMENT]]
  // One value is tied; the moment is computed on the way to it.
  // CHECK-NEXT: %[[DECAYED_W:.*]] = stablehlo.add %[[W]], %[[W]]
  // CHECK-NEXT: %[[G2:.*]], %[[TIED:.*]] = zero.wait {{.*}} ties(%[[NEW_V]] : tensor<512x512xf32>)
  // CHECK-NEXT: %[[NEW_W:.*]] = stablehlo.subtract %[[DECAYED_W]], %[[G2]]
  // CHECK-NEXT: return %[[NEW_W]], %[[TIED]], %[[MOMENT]], %[[R]]
  %decayed.w = stablehlo.add %w, %w : tensor<512x512xf32>
  %decayed.v = stablehlo.add %v, %v : tensor<512x512xf32>
  %new.w = stablehlo.subtract %decayed.w, %g2 : tensor<512x512xf32>
  %moment = stablehlo.multiply %g1, %g1 : tensor<512x512xf32>
  %new.v = stablehlo.subtract %decayed.v, %moment : tensor<512x512xf32>
  return %new.w, %new.v, %moment, %r : tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>
}

// All updates need all gradients: there is nothing to run before the last wait.

// CHECK-LABEL: func @clipped
func.func @clipped(%x: tensor<1024x1024xf32>, %w: tensor<512x512xf32>, %v: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>) {
  %a = stablehlo.slice %x [0:1024, 0:512] : (tensor<1024x1024xf32>) -> tensor<1024x512xf32>
  %first = stablehlo.tanh %a : tensor<1024x512xf32>
  %last = "stablehlo.dot_general"(%x, %first) : (tensor<1024x1024xf32>, tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %s1 = zero.start @zpp_host::@scatter(%first) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g1 = zero.wait %s1 from(%first : tensor<1024x512xf32>) : tensor<512x512xf32>
  %s2 = zero.start @zpp_host::@scatter(%last) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g2 = zero.wait %s2 from(%last : tensor<1024x512xf32>) : tensor<512x512xf32>
  // CHECK: %[[G1:.*]] = zero.wait %outputs from(%{{[0-9]+}} : tensor<1024x512xf32>) : tensor
  // CHECK-NEXT: %[[G2:.*]] = zero.wait %outputs_0 from(%{{[0-9]+}} : tensor<1024x512xf32>) : tensor
  // CHECK-NEXT: %[[SUM:.*]] = stablehlo.add %[[G1]], %[[G2]]
  // CHECK-NEXT: stablehlo.divide %[[G1]], %[[SUM]]
  %sum = stablehlo.add %g1, %g2 : tensor<512x512xf32>
  %c1 = stablehlo.divide %g1, %sum : tensor<512x512xf32>
  %c2 = stablehlo.divide %g2, %sum : tensor<512x512xf32>
  %new.w = stablehlo.subtract %w, %c1 : tensor<512x512xf32>
  %new.v = stablehlo.subtract %v, %c2 : tensor<512x512xf32>
  return %new.w, %new.v : tensor<512x512xf32>, tensor<512x512xf32>
}

// An update that is written before the last product, as the partitioner does,
// keeps that product from nothing.

// CHECK-LABEL: func @early
func.func @early(%x: tensor<1024x1024xf32>, %w: tensor<512x512xf32>, %v: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>) {
  %a = stablehlo.slice %x [0:1024, 0:512] : (tensor<1024x1024xf32>) -> tensor<1024x512xf32>
  // CHECK: %[[FIRST:.*]] = stablehlo.tanh
  %first = stablehlo.tanh %a : tensor<1024x512xf32>
  %s1 = zero.start @zpp_host::@scatter(%first) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g1 = zero.wait %s1 from(%first : tensor<1024x512xf32>) : tensor<512x512xf32>
  // What no gradient is needed for stays, and so does what the product needs.
  // CHECK: stablehlo.negate
  // CHECK: zero.wait
  // CHECK: stablehlo.abs
  // CHECK: "stablehlo.dot_general"
  // CHECK: stablehlo.multiply
  // CHECK: stablehlo.subtract
  %decayed = stablehlo.negate %w : tensor<512x512xf32>
  %moment = stablehlo.multiply %g1, %g1 : tensor<512x512xf32>
  %new.w = stablehlo.subtract %decayed, %moment : tensor<512x512xf32>
  %scale = stablehlo.abs %g1 : tensor<512x512xf32>
  %last = "stablehlo.dot_general"(%scale, %v) : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  return %new.w, %moment, %last : tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>
}

// Calls keep their order: the one of the second gradient may do more than its
// result shows, so the other one follows it.

// CHECK-LABEL: func @calls
func.func @calls(%x: tensor<1024x1024xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>) {
  %a = stablehlo.slice %x [0:1024, 0:512] : (tensor<1024x1024xf32>) -> tensor<1024x512xf32>
  %first = stablehlo.tanh %a : tensor<1024x512xf32>
  %last = "stablehlo.dot_general"(%x, %first) : (tensor<1024x1024xf32>, tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %s1 = zero.start @zpp_host::@scatter(%first) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g1 = zero.wait %s1 from(%first : tensor<1024x512xf32>) : tensor<512x512xf32>
  %s2 = zero.start @zpp_host::@scatter(%last) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g2 = zero.wait %s2 from(%last : tensor<1024x512xf32>) : tensor<512x512xf32>
  // CHECK: %[[G2:.*]] = zero.wait %outputs_0
  // CHECK-NEXT: stablehlo.custom_call @{{.*}}(%[[G2]])
  // CHECK-NEXT: zero.wait %outputs from
  // CHECK-NEXT: stablehlo.custom_call
  %c2 = stablehlo.custom_call @log(%g2) {has_side_effect = true} : (tensor<512x512xf32>) -> tensor<512x512xf32>
  %c1 = stablehlo.custom_call @log(%g1) {has_side_effect = true} : (tensor<512x512xf32>) -> tensor<512x512xf32>
  return %c1, %c2 : tensor<512x512xf32>, tensor<512x512xf32>
}

// Nor is an update of what a barrier passes on to what may read it late: XLA
// would copy it.

// CHECK-LABEL: func @barred
func.func @barred(%x: tensor<1024x1024xf32>, %w: tensor<512x512xf32>, %v: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>) {
  %kept = stablehlo.optimization_barrier %w : tensor<512x512xf32>
  %a = stablehlo.slice %x [0:1024, 0:512] : (tensor<1024x1024xf32>) -> tensor<1024x512xf32>
  %first = stablehlo.tanh %a : tensor<1024x512xf32>
  %last = "stablehlo.dot_general"(%x, %first) : (tensor<1024x1024xf32>, tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %s1 = zero.start @zpp_host::@scatter(%first) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g1 = zero.wait %s1 from(%first : tensor<1024x512xf32>) : tensor<512x512xf32>
  %s2 = zero.start @zpp_host::@scatter(%last) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g2 = zero.wait %s2 from(%last : tensor<1024x512xf32>) : tensor<512x512xf32>
  // CHECK: stablehlo.subtract
  // CHECK-NEXT: zero.wait %outputs_{{[0-9]+}} from(%{{[0-9]+}} : tensor<1024x512xf32>) : tensor
  // CHECK-NEXT: stablehlo.subtract
  %new.w = stablehlo.subtract %w, %g1 : tensor<512x512xf32>
  %new.v = stablehlo.subtract %v, %g2 : tensor<512x512xf32>
  return %new.w, %new.v, %kept : tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>
}

// What a barrier passes on to be sent only, layer by layer, has been read by
// then.

// CHECK-LABEL: func @sent
func.func @sent(%i: tensor<i32>, %x: tensor<1024x1024xf32>, %w: tensor<2x512x512xf32>, %v: tensor<512x512xf32>) -> (tensor<2x512x512xf32>, tensor<512x512xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %layers:2 = stablehlo.optimization_barrier %w, %i : tensor<2x512x512xf32>, tensor<i32>
  %slice = stablehlo.dynamic_slice %layers#0, %layers#1, %zero, %zero, sizes = [1, 512, 512] : (tensor<2x512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x512x512xf32>
  %layer = stablehlo.reshape %slice : (tensor<1x512x512xf32>) -> tensor<512x512xf32>
  %code = stablehlo.negate %layer : tensor<512x512xf32>
  %s0 = zero.start @zpp_host::@gather(%code) {origins = [{role = "weight"}]} : (tensor<512x512xf32>) -> tensor<1024x512xf32>
  %whole = zero.wait %s0 from(%code : tensor<512x512xf32>) : tensor<1024x512xf32>
  %h = "stablehlo.dot_general"(%x, %whole) : (tensor<1024x1024xf32>, tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %first = stablehlo.tanh %h : tensor<1024x512xf32>
  %last = "stablehlo.dot_general"(%x, %first) : (tensor<1024x1024xf32>, tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %s1 = zero.start @zpp_host::@scatter(%first) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g1 = zero.wait %s1 from(%first : tensor<1024x512xf32>) : tensor<512x512xf32>
  %s2 = zero.start @zpp_host::@scatter(%last) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g2 = zero.wait %s2 from(%last : tensor<1024x512xf32>) : tensor<512x512xf32>
  // CHECK: stablehlo.optimization_barrier %{{.*}}, %{{.*}}
  // CHECK: %[[NEW:.*]] = stablehlo.subtract
  // CHECK-NEXT: zero.wait {{.*}} ties(%[[NEW]] :
  %whole.g = stablehlo.broadcast_in_dim %g1, dims = [1, 2] : (tensor<512x512xf32>) -> tensor<2x512x512xf32>
  %new.w = stablehlo.subtract %w, %whole.g : tensor<2x512x512xf32>
  %new.v = stablehlo.subtract %v, %g2 : tensor<512x512xf32>
  return %new.w, %new.v : tensor<2x512x512xf32>, tensor<512x512xf32>
}

// Small updates are not tied: XLA may compute them together.

// CHECK-LABEL: module @small_host
module @small_host {
  func.func @scatter(%x: tensor<4x4xf32>) -> tensor<2x4xf32> {
    %0 = tensor.expand_shape %x [[0, 1], [2]] output_shape [2, 2, 4] : tensor<4x4xf32> into tensor<2x2x4xf32>
    %e = tensor.empty() : tensor<2x2x4xf32>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e : tensor<2x2x4xf32> into tensor<2x2x4xf32> -> tensor<2x2x4xf32>
    %f = tensor.empty() : tensor<2x4xf32>
    %2 = zero.reduce sum %1 into %f : tensor<2x2x4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %2 : tensor<2x4xf32>
  }
}

// CHECK: func @small
// CHECK-NOT: zero.wait {{.*}} ties
func.func @small(%x: tensor<4x4xf32>, %w: tensor<2x4xf32>, %v: tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
  %first = stablehlo.tanh %x : tensor<4x4xf32>
  %last = "stablehlo.dot_general"(%x, %first) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %s1 = zero.start @small_host::@scatter(%first) {origins = [{role = "gradient"}]} : (tensor<4x4xf32>) -> tensor<2x4xf32>
  %g1 = zero.wait %s1 from(%first : tensor<4x4xf32>) : tensor<2x4xf32>
  %s2 = zero.start @small_host::@scatter(%last) {origins = [{role = "gradient"}]} : (tensor<4x4xf32>) -> tensor<2x4xf32>
  %g2 = zero.wait %s2 from(%last : tensor<4x4xf32>) : tensor<2x4xf32>
  // CHECK: stablehlo.subtract
  // CHECK-NEXT: zero.wait
  // CHECK-NEXT: stablehlo.subtract
  %new.v = stablehlo.subtract %v, %g2 : tensor<2x4xf32>
  %new.w = stablehlo.subtract %w, %g1 : tensor<2x4xf32>
  return %new.w, %new.v : tensor<2x4xf32>, tensor<2x4xf32>
}
