// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=2097152 --remarks-filter=none | FileCheck %s

// With room for one gradient at a time, an update whose gradient is there is
// computed while the next one is on the way: ties keep XLA from computing it
// before that starts, or after it has arrived.

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
}

// CHECK-LABEL: func @late
// CHECK: %[[LAST:.*]] = "stablehlo.dot_general"
// CHECK-NEXT: %[[G1:.*]], %[[SENT:.*]] = zero.wait {{.*}} ties(%[[LAST]] :
// CHECK-NEXT: %[[S2:.*]], %[[TIED:.*]] = zero.start @zpp_host::@scatter(%[[SENT]]) ties(%[[G1]] :
// CHECK-NEXT: %[[D:.*]] = stablehlo.add %[[TIED]], %[[TIED]]
// CHECK-NEXT: %[[NEW:.*]] = stablehlo.subtract %{{.*}}, %[[D]]
// CHECK-NEXT: zero.wait %[[S2]] {{.*}} ties(%[[NEW]] :
func.func @late(%x: tensor<1024x1024xf32>, %w: tensor<512x512xf32>, %v: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>) {
  %a = stablehlo.slice %x [0:1024, 0:512] : (tensor<1024x1024xf32>) -> tensor<1024x512xf32>
  %first = stablehlo.tanh %a : tensor<1024x512xf32>
  %last = "stablehlo.dot_general"(%x, %first) : (tensor<1024x1024xf32>, tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %s1 = zero.start @zpp_host::@scatter(%first) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g1 = zero.wait %s1 from(%first : tensor<1024x512xf32>) : tensor<512x512xf32>
  %s2 = zero.start @zpp_host::@scatter(%last) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g2 = zero.wait %s2 from(%last : tensor<1024x512xf32>) : tensor<512x512xf32>
  %d = stablehlo.add %g1, %g1 : tensor<512x512xf32>
  %new.w = stablehlo.subtract %w, %d : tensor<512x512xf32>
  %new.v = stablehlo.subtract %v, %g2 : tensor<512x512xf32>
  return %new.w, %new.v : tensor<512x512xf32>, tensor<512x512xf32>
}

// What is read beside its update before the next start is not tied.

// CHECK-LABEL: func @read
// CHECK: zero.start @zpp_host::@scatter(%{{[^)]*}}) {origins
// CHECK: zero.wait {{.*}} ties(
func.func @read(%x: tensor<1024x1024xf32>, %w: tensor<512x512xf32>, %v: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>, tensor<f32>) {
  %a = stablehlo.slice %x [0:1024, 0:512] : (tensor<1024x1024xf32>) -> tensor<1024x512xf32>
  %first = stablehlo.tanh %a : tensor<1024x512xf32>
  %last = "stablehlo.dot_general"(%x, %first) : (tensor<1024x1024xf32>, tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %s1 = zero.start @zpp_host::@scatter(%first) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g1 = zero.wait %s1 from(%first : tensor<1024x512xf32>) : tensor<512x512xf32>
  %d = stablehlo.custom_call @log(%g1) {has_side_effect = true} : (tensor<512x512xf32>) -> tensor<f32>
  %s2 = zero.start @zpp_host::@scatter(%last) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g2 = zero.wait %s2 from(%last : tensor<1024x512xf32>) : tensor<512x512xf32>
  %new.w = stablehlo.subtract %w, %g1 : tensor<512x512xf32>
  %new.v = stablehlo.subtract %v, %g2 : tensor<512x512xf32>
  return %new.w, %new.v, %d : tensor<512x512xf32>, tensor<512x512xf32>, tensor<f32>
}
