// RUN: zpp-opt %s --zero-overlap-collectives --remarks-filter=none | FileCheck %s

// A step scales its gradients and adds the decay of weights after the backward
// pass, as a tree of ops does. Each is sent as soon as its product is there: the
// arithmetic moves up with the start.

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
// CHECK-SAME: %[[W1:[^:]*]]: tensor<1024x512xf32>, %[[W2:[^:]*]]: tensor<1024x512xf32>)
// CHECK: %[[DW1:.*]] = "stablehlo.dot_general"(%{{.*}}, %{{.*}}) : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
// CHECK: %[[SCALED1:.*]] = stablehlo.multiply %[[DW1]], %{{.*}}
// CHECK: %[[SUM1:.*]] = stablehlo.add %[[SCALED1]], %[[W1]]
// CHECK: zero.start @zpp_host::@scatter(%[[SUM1]])
// CHECK: "stablehlo.dot_general"
// CHECK: %[[DW2:.*]] = "stablehlo.dot_general"
// CHECK: stablehlo.multiply
// CHECK: zero.start @zpp_host::@scatter
func.func @backward(%d: tensor<1024x512xf32>, %x: tensor<512x512xf32>, %u: tensor<512x512xf32>, %w1: tensor<1024x512xf32>, %w2: tensor<1024x512xf32>) -> (tensor<1024x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>) {
  %dw1 = "stablehlo.dot_general"(%d, %x) : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %dx1 = "stablehlo.dot_general"(%d, %u) : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %t1 = stablehlo.tanh %dx1 : tensor<1024x512xf32>
  %dw2 = "stablehlo.dot_general"(%t1, %x) : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %dx2 = "stablehlo.dot_general"(%t1, %u) : (tensor<1024x512xf32>, tensor<512x512xf32>) -> tensor<1024x512xf32>
  %c = stablehlo.constant dense<0.25> : tensor<f32>
  %scale = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<1024x512xf32>
  %scaled1 = stablehlo.multiply %dw1, %scale : tensor<1024x512xf32>
  %scaled2 = stablehlo.multiply %dw2, %scale : tensor<1024x512xf32>
  %sum1 = stablehlo.add %scaled1, %w1 : tensor<1024x512xf32>
  %sum2 = stablehlo.add %scaled2, %w2 : tensor<1024x512xf32>
  %s1 = zero.start @zpp_host::@scatter(%sum1) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g1 = zero.wait %s1 from(%sum1 : tensor<1024x512xf32>) : tensor<512x512xf32>
  %s2 = zero.start @zpp_host::@scatter(%sum2) {origins = [{role = "gradient"}]} : (tensor<1024x512xf32>) -> tensor<512x512xf32>
  %g2 = zero.wait %s2 from(%sum2 : tensor<1024x512xf32>) : tensor<512x512xf32>
  return %dx2, %g1, %g2 : tensor<1024x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>
}
