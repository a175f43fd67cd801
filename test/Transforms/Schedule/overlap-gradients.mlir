// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=4194304 --remarks-filter=none | FileCheck %s

// There is room for one gradient. The first one is waited for after the product
// that computes the second one: that passes through the wait, in the layout in
// which it is sent. What both products of a layer read does not: XLA would copy
// it for the second one.

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

// CHECK-LABEL: func @backward
// CHECK: zero.start
// CHECK: %[[D:.*]] = stablehlo.tanh
// CHECK-NEXT: %[[DW:.*]] = "stablehlo.dot_general"(%[[D]], %{{.*}})
// CHECK-NEXT: %[[G2:.*]] = stablehlo.transpose %[[DW]]
// CHECK-NEXT: %{{[^,]*}}, %[[SENT:.*]] = zero.wait {{.*}} ties(%[[G2]] : tensor<1024x512xf32>)
// CHECK-NEXT: %{{[^,]*}}, %[[TIED:.*]] = zero.start @zpp_host::@scatter(%[[SENT]]) ties(%[[D]] : tensor<512x1024xf32>)
// CHECK-NEXT: "stablehlo.dot_general"(%[[TIED]], %{{.*}})
func.func @backward(%d: tensor<512x1024xf32>, %x: tensor<1024x1024xf32>, %w: tensor<1024x1024xf32>) -> (tensor<512x1024xf32>, tensor<512x512xf32>, tensor<512x512xf32>) {
  %d1 = stablehlo.tanh %d : tensor<512x1024xf32>
  %dw1 = "stablehlo.dot_general"(%d1, %x) : (tensor<512x1024xf32>, tensor<1024x1024xf32>) -> tensor<512x1024xf32>
  %t1 = stablehlo.transpose %dw1, dims = [1, 0] : (tensor<512x1024xf32>) -> tensor<1024x512xf32>
  %s1 = zero.start @zpp_host::@scatter(%t1) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g1 = zero.wait %s1 from(%t1 : tensor<1024x512xf32>) : tensor<512x512xf32>
  %dx1 = "stablehlo.dot_general"(%d1, %w) : (tensor<512x1024xf32>, tensor<1024x1024xf32>) -> tensor<512x1024xf32>
  %d2 = stablehlo.tanh %dx1 : tensor<512x1024xf32>
  %dw2 = "stablehlo.dot_general"(%d2, %x) : (tensor<512x1024xf32>, tensor<1024x1024xf32>) -> tensor<512x1024xf32>
  %t2 = stablehlo.transpose %dw2, dims = [1, 0] : (tensor<512x1024xf32>) -> tensor<1024x512xf32>
  %s2 = zero.start @zpp_host::@scatter(%t2) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g2 = zero.wait %s2 from(%t2 : tensor<1024x512xf32>) : tensor<512x512xf32>
  %dx2 = "stablehlo.dot_general"(%d2, %w) : (tensor<512x1024xf32>, tensor<1024x1024xf32>) -> tensor<512x1024xf32>
  return %dx2, %g1, %g2 : tensor<512x1024xf32>, tensor<512x512xf32>, tensor<512x512xf32>
}
