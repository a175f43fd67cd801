// RUN: zpp-opt %s --zero-import-partitioned --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-import-partitioned --remarks-filter=none --split-input-file > %t.once
// RUN: zpp-opt %s --zero-import-partitioned --zero-import-partitioned \
// RUN:   --remarks-filter=none --split-input-file | diff %t.once -

// Two layers. XLA's text has the products of the weights' gradients at the end,
// the last layer's last. That of the last layer moves to where its operands are
// known, with the transposition that only it needs, and so does its sum. That
// of the first layer depends on the product before it. The update stays.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @layers
  // CHECK-SAME: (%[[X:.*]]: tensor<8x8xf32>, %[[W1:.*]]: tensor<8x8xf32>, %[[W2:.*]]: tensor<8x8xf32>)
  func.func @layers(%x: tensor<8x8xf32>, %w1: tensor<8x8xf32>, %w2: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<ui32>) {
    // CHECK: %[[H:.*]] = "stablehlo.dot_general"(%[[X]], %[[W1]])
    // CHECK: %[[Y:.*]] = "stablehlo.dot_general"(%[[H]], %[[W2]])
    // CHECK: %[[T:.*]] = stablehlo.transpose %[[H]]
    // CHECK: %[[D2:.*]] = "stablehlo.dot_general"(%[[T]], %[[Y]])
    // CHECK: %[[G2:.*]] = "stablehlo.all_reduce"(%[[D2]])
    // CHECK: %[[DH:.*]] = "stablehlo.dot_general"(%[[Y]], %[[W2]])
    // CHECK: %[[D1:.*]] = "stablehlo.dot_general"(%[[X]], %[[DH]])
    // CHECK: %[[G1:.*]] = "stablehlo.all_reduce"(%[[D1]])
    // CHECK: stablehlo.subtract %[[W1]], %[[G1]]
    // CHECK: stablehlo.subtract %[[W2]], %[[G2]]
    %id = stablehlo.partition_id : tensor<ui32>
    %h = "stablehlo.dot_general"(%x, %w1) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %y = "stablehlo.dot_general"(%h, %w2) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %dh = "stablehlo.dot_general"(%y, %w2) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %d1 = "stablehlo.dot_general"(%x, %dh) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %g1 = "stablehlo.all_reduce"(%d1) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %n1 = stablehlo.subtract %w1, %g1 : tensor<8x8xf32>
    %t = stablehlo.transpose %h, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %d2 = "stablehlo.dot_general"(%t, %y) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %g2 = "stablehlo.all_reduce"(%d2) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %n2 = stablehlo.subtract %w2, %g2 : tensor<8x8xf32>
    return %n1, %n2, %id : tensor<8x8xf32>, tensor<8x8xf32>, tensor<ui32>
  }
}

// -----

// A sum of what an op makes that zpp does not know stays after that op, and the
// product of `x` with itself, which another product needs, is none of a gradient.
// The scalar loss stays.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @stay
  // CHECK: %[[P:.*]] = "stablehlo.dot_general"
  // CHECK: "stablehlo.dot_general"(%[[P]]
  // CHECK: %[[U:.*]] = stablehlo.custom_call
  // CHECK: %[[D:.*]] = "stablehlo.dot_general"(%[[U]]
  // CHECK: "stablehlo.all_reduce"(%[[D]])
  // CHECK: %[[M:.*]] = stablehlo.reduce(
  // CHECK: "stablehlo.all_reduce"(%[[M]])
  // CHECK: return
  func.func @stay(%x: tensor<8x8xf32>, %l: tensor<f32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>, tensor<ui32>) {
    %id = stablehlo.partition_id : tensor<ui32>
    %0 = "stablehlo.dot_general"(%x, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = "stablehlo.dot_general"(%0, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %u = stablehlo.custom_call @unknown(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %d = "stablehlo.dot_general"(%u, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %g = "stablehlo.all_reduce"(%d) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %m = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x8xf32>, tensor<f32>) -> tensor<f32>
    %loss = "stablehlo.all_reduce"(%m) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<f32>) -> tensor<f32>
    return %1, %g, %loss, %id : tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>, tensor<ui32>
  }
}
