// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=2048 --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=2048 --zero-overlap-collectives=prefetch-bytes=2048 \
// RUN:   --remarks-filter=none --split-input-file | FileCheck %s

// A reshape has the memory of its operand. XLA would copy it where the reshape is
// tied and another op reads the operand.

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}

// The operand is tied, and the reshapes come after the start.

// CHECK-LABEL: func @operand_is_read
func.func @operand_is_read(%x: tensor<2x2x16xf32>, %w: tensor<2x32xf32>) -> (tensor<2x2x16xf32>, tensor<4x32xf32>) {
  // CHECK-NEXT: %[[A:.*]] = stablehlo.tanh
  // CHECK-NEXT: %[[S:.*]], %[[A1:.*]] = zero.start @zpp_host::@gather(%{{.*}}) ties(%[[A]] : tensor<2x2x16xf32>) {
  // CHECK-NEXT: %[[R:.*]] = stablehlo.reshape %[[A1]]
  // CHECK-NEXT: %[[Q:.*]] = stablehlo.reshape %[[R]]
  // CHECK-NEXT: %[[W:.*]] = zero.wait %[[S]]
  // CHECK-NEXT: "stablehlo.dot_general"(%[[Q]], %[[W]])
  // CHECK-NEXT: stablehlo.add %[[A1]], %[[A1]]
  %0 = zero.start @zpp_host::@gather(%w) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %1 = zero.wait %0 from(%w : tensor<2x32xf32>) : tensor<16x32xf32>
  %2 = stablehlo.tanh %x : tensor<2x2x16xf32>
  %3 = stablehlo.reshape %2 : (tensor<2x2x16xf32>) -> tensor<64xf32>
  %4 = stablehlo.reshape %3 : (tensor<64xf32>) -> tensor<4x16xf32>
  %5 = "stablehlo.dot_general"(%4, %1) : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  %6 = stablehlo.add %2, %2 : tensor<2x2x16xf32>
  return %6, %5 : tensor<2x2x16xf32>, tensor<4x32xf32>
}

// Nothing else reads the operand.

// CHECK-LABEL: func @operand_is_reshaped_only
func.func @operand_is_reshaped_only(%x: tensor<2x2x16xf32>, %w: tensor<2x32xf32>) -> tensor<4x32xf32> {
  // CHECK-NEXT: %[[A:.*]] = stablehlo.tanh
  // CHECK-NEXT: %[[R:.*]] = stablehlo.reshape %[[A]]
  // CHECK-NEXT: %[[S:.*]], %[[R1:.*]] = zero.start @zpp_host::@gather(%{{.*}}) ties(%[[R]] : tensor<4x16xf32>) {
  // CHECK-NEXT: %[[W:.*]] = zero.wait %[[S]]
  // CHECK-NEXT: "stablehlo.dot_general"(%[[R1]], %[[W]])
  %0 = zero.start @zpp_host::@gather(%w) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %1 = zero.wait %0 from(%w : tensor<2x32xf32>) : tensor<16x32xf32>
  %2 = stablehlo.tanh %x : tensor<2x2x16xf32>
  %3 = stablehlo.reshape %2 : (tensor<2x2x16xf32>) -> tensor<4x16xf32>
  %4 = "stablehlo.dot_general"(%3, %1) : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  return %4 : tensor<4x32xf32>
}

// The reshape is read before the start as well, and cannot come after it.

// CHECK-LABEL: func @reshape_is_read_before
func.func @reshape_is_read_before(%x: tensor<2x2x16xf32>, %v: tensor<16x16xf32>) -> (tensor<2x2x16xf32>, tensor<4x32xf32>) {
  // CHECK-NEXT: %[[A:.*]] = stablehlo.tanh
  // CHECK-NEXT: %[[R:.*]] = stablehlo.reshape %[[A]]
  // CHECK-NEXT: %[[P:.*]] = "stablehlo.dot_general"(%[[R]], %{{.*}})
  // CHECK-NEXT: %[[V:.*]] = stablehlo.reshape %[[P]]
  // CHECK-NEXT: %[[S:.*]], %[[R1:.*]] = zero.start @zpp_host::@gather(%[[V]]) ties(%[[R]] : tensor<4x16xf32>) {
  // CHECK-NEXT: %[[W:.*]] = zero.wait %[[S]]
  // CHECK-NEXT: "stablehlo.dot_general"(%[[R1]], %[[W]])
  // CHECK-NEXT: stablehlo.add %[[A]], %[[A]]
  %0 = stablehlo.tanh %x : tensor<2x2x16xf32>
  %1 = stablehlo.reshape %0 : (tensor<2x2x16xf32>) -> tensor<4x16xf32>
  %2 = "stablehlo.dot_general"(%1, %v) : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %3 = stablehlo.reshape %2 : (tensor<4x16xf32>) -> tensor<2x32xf32>
  %4 = zero.start @zpp_host::@gather(%3) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %5 = zero.wait %4 from(%3 : tensor<2x32xf32>) : tensor<16x32xf32>
  %6 = "stablehlo.dot_general"(%1, %5) : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  %7 = stablehlo.add %0, %0 : tensor<2x2x16xf32>
  return %7, %6 : tensor<2x2x16xf32>, tensor<4x32xf32>
}

// The wait comes after the product, and slices of its result come after the
// wait.

// CHECK-LABEL: func @slices_of_a_product
func.func @slices_of_a_product(%x: tensor<16x16xf32>, %v: tensor<16x64xf32>, %w: tensor<2x32xf32>) -> (tensor<16x32xf32>, tensor<32x16xf32>) {
  // CHECK: %[[P:.*]] = "stablehlo.dot_general"
  // CHECK-NEXT: %[[W:.*]], %[[P1:.*]] = zero.wait %{{.*}} ties(%[[P]] : tensor<16x64xf32>)
  // CHECK-NEXT: %[[A:.*]] = stablehlo.slice %[[P1]] [{{[0-9]+}}:16, {{[0-9]+}}:32
  // CHECK-NEXT: %[[B:.*]] = stablehlo.slice %[[P1]] [{{[0-9]+}}:16, {{[0-9]+}}:64
  // CHECK-NEXT: stablehlo.transpose %[[B]]
  // CHECK-NEXT: stablehlo.add %[[A]], %[[W]]
  %0 = zero.start @zpp_host::@gather(%w) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %1 = zero.wait %0 from(%w : tensor<2x32xf32>) : tensor<16x32xf32>
  %2 = "stablehlo.dot_general"(%x, %v) : (tensor<16x16xf32>, tensor<16x64xf32>) -> tensor<16x64xf32>
  %3 = stablehlo.slice %2 [0:16, 0:32] : (tensor<16x64xf32>) -> tensor<16x32xf32>
  %4 = stablehlo.slice %2 [0:16, 32:64] : (tensor<16x64xf32>) -> tensor<16x32xf32>
  %5 = stablehlo.transpose %4, dims = [1, 0] : (tensor<16x32xf32>) -> tensor<32x16xf32>
  %6 = stablehlo.add %3, %1 : tensor<16x32xf32>
  return %6, %5 : tensor<16x32xf32>, tensor<32x16xf32>
}

// A small sum of what the product reads comes after the start.

// CHECK-LABEL: func @small_sum
func.func @small_sum(%x: tensor<4x16xf32>, %w: tensor<2x2x32xf32>) -> (tensor<4x32xf32>, tensor<16xf32>) {
  // CHECK: %[[A:.*]] = stablehlo.tanh
  // CHECK: %{{.*}}, %[[A1:.*]] = zero.start @zpp_host::@gather(%{{.*}}) ties(%[[A]] : tensor<4x16xf32>) {
  // CHECK-NEXT: stablehlo.reduce(%[[A1]] init: %{{.*}})
  // CHECK: "stablehlo.dot_general"(%[[A1]], %{{.*}})
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.tanh %x : tensor<4x16xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4x16xf32>, tensor<f32>) -> tensor<16xf32>
  %2 = stablehlo.reduce(%w init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<2x2x32xf32>, tensor<f32>) -> tensor<2x32xf32>
  %3 = zero.start @zpp_host::@gather(%2) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %4 = zero.wait %3 from(%2 : tensor<2x32xf32>) : tensor<16x32xf32>
  %5 = "stablehlo.dot_general"(%0, %4) : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  return %5, %1 : tensor<4x32xf32>, tensor<16xf32>
}

// A sum of 1 MiB stays where it is.

// CHECK-LABEL: func @large_sum
func.func @large_sum(%x: tensor<2x16384x16xf32>, %w: tensor<2x2x32xf32>) -> (tensor<2x16384x32xf32>, tensor<16384x16xf32>) {
  // CHECK: %[[A:.*]] = stablehlo.tanh
  // CHECK: stablehlo.reduce(%[[A]] init: %{{.*}})
  // CHECK: %{{.*}}, %[[A1:.*]] = zero.start @zpp_host::@gather(%{{.*}}) ties(%[[A]] : tensor<2x16384x16xf32>) {
  // CHECK: "stablehlo.dot_general"(%[[A1]], %{{.*}})
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.tanh %x : tensor<2x16384x16xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<2x16384x16xf32>, tensor<f32>) -> tensor<16384x16xf32>
  %2 = stablehlo.reduce(%w init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<2x2x32xf32>, tensor<f32>) -> tensor<2x32xf32>
  %3 = zero.start @zpp_host::@gather(%2) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %4 = zero.wait %3 from(%2 : tensor<2x32xf32>) : tensor<16x32xf32>
  %5 = "stablehlo.dot_general"(%0, %4) : (tensor<2x16384x16xf32>, tensor<16x32xf32>) -> tensor<2x16384x32xf32>
  return %5, %1 : tensor<2x16384x32xf32>, tensor<16384x16xf32>
}
