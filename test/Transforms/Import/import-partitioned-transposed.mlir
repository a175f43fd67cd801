// RUN: zpp-opt %s --zero-import-partitioned --split-input-file \
// RUN:   --verify-diagnostics --remarks-filter='.*' | FileCheck %s

// The gradient of `w` in `x @ w`, for a `w` of which each device has a part of
// the first dim. The product has the dims of `w` exchanged; it is summed, cut
// and transposed. With the operands exchanged nothing is transposed.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @weight
  // CHECK-SAME: (%[[DY:.*]]: tensor<2x8x24xbf16>, %[[X:.*]]: tensor<2x8x16xbf16>)
  func.func @weight(%dy: tensor<2x8x24xbf16>, %x: tensor<2x8x16xbf16>) -> tensor<4x24xf32> {
    %id = stablehlo.partition_id : tensor<ui32>
    %device = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
    %size = stablehlo.constant dense<4> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %offset = stablehlo.multiply %device, %size : tensor<i32>
    // CHECK: %[[D:.*]] = stablehlo.dot_general %[[X]], %[[DY]],
    // CHECK-SAME: contracting_dims = [0, 1] x [0, 1]
    // CHECK-SAME: precision = [HIGHEST, DEFAULT]
    // CHECK-SAME: -> tensor<16x24xbf16>
    %d = stablehlo.dot_general %dy, %x, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, HIGHEST] : (tensor<2x8x24xbf16>, tensor<2x8x16xbf16>) -> tensor<24x16xbf16>
    // CHECK: %[[S:.*]] = "stablehlo.reduce_scatter"(%[[D]])
    // CHECK-SAME: scatter_dimension = 0
    // CHECK: (tensor<16x24xbf16>) -> tensor<4x24xbf16>
    // expected-remark @below {{an all-reduce of which each device takes a slice becomes a reduce-scatter}}
    // expected-remark @below {{the operands of a product are exchanged, so that its sum is not transposed}}
    %g = "stablehlo.all_reduce"(%d) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %s = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %s : tensor<bf16>
    }) : (tensor<24x16xbf16>) -> tensor<24x16xbf16>
    %part = stablehlo.dynamic_slice %g, %zero, %offset, sizes = [24, 4] : (tensor<24x16xbf16>, tensor<i32>, tensor<i32>) -> tensor<24x4xbf16>
    // CHECK-NOT: stablehlo.transpose
    // CHECK: %[[F:.*]] = stablehlo.convert %[[S]] : (tensor<4x24xbf16>) -> tensor<4x24xf32>
    // CHECK: return %[[F]]
    %t = stablehlo.transpose %part, dims = [1, 0] : (tensor<24x4xbf16>) -> tensor<4x24xbf16>
    %f = stablehlo.convert %t : (tensor<4x24xbf16>) -> tensor<4x24xf32>
    return %f : tensor<4x24xf32>
  }
}

// -----

// Experts: dim 0 is one of both operands. Heads: an operand has two dims of its
// own. Casts lie between the product, the sum and the transpose.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @experts
  // CHECK-SAME: (%[[DY:.*]]: tensor<2x8x3x5xbf16>, %[[X:.*]]: tensor<8x2x16xbf16>)
  func.func @experts(%dy: tensor<2x8x3x5xbf16>, %x: tensor<8x2x16xbf16>) -> tensor<2x4x3x5xf32> {
    %id = stablehlo.partition_id : tensor<ui32>
    %device = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
    %size = stablehlo.constant dense<4> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %offset = stablehlo.multiply %device, %size : tensor<i32>
    // CHECK: stablehlo.dot_general %[[X]], %[[DY]],
    // CHECK-SAME: batching_dims = [1] x [0], contracting_dims = [0] x [1]
    // CHECK-SAME: -> tensor<2x16x3x5xf32>
    %d = stablehlo.dot_general %dy, %x, batching_dims = [0] x [1], contracting_dims = [1] x [0] : (tensor<2x8x3x5xbf16>, tensor<8x2x16xbf16>) -> tensor<2x3x5x16xf32>
    // CHECK: stablehlo.convert {{.*}}
    %c = stablehlo.convert %d : (tensor<2x3x5x16xf32>) -> tensor<2x3x5x16xbf16>
    // CHECK: scatter_dimension = 1
    // CHECK: (tensor<2x16x3x5xbf16>) -> tensor<2x4x3x5xbf16>
    // expected-remark @below {{an all-reduce of which each device takes a slice becomes a reduce-scatter}}
    // expected-remark @below {{the operands of a product are exchanged, so that its sum is not transposed}}
    %g = "stablehlo.all_reduce"(%c) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %s = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %s : tensor<bf16>
    }) : (tensor<2x3x5x16xbf16>) -> tensor<2x3x5x16xbf16>
    %part = stablehlo.dynamic_slice %g, %zero, %zero, %zero, %offset, sizes = [2, 3, 5, 4] : (tensor<2x3x5x16xbf16>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x3x5x4xbf16>
    // CHECK: stablehlo.convert {{.*}}
    // CHECK-NOT: stablehlo.transpose
    %f = stablehlo.convert %part : (tensor<2x3x5x4xbf16>) -> tensor<2x3x5x4xf32>
    %t = stablehlo.transpose %f, dims = [0, 3, 1, 2] : (tensor<2x3x5x4xf32>) -> tensor<2x4x3x5xf32>
    return %t : tensor<2x4x3x5xf32>
  }
}

// -----

// Weights that are replicated between nodes: the sum within a node is scattered,
// the one between them follows. And weights that are on all devices.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @replicas
  // CHECK-SAME: (%[[DY:.*]]: tensor<8x24xbf16>, %[[X:.*]]: tensor<8x16xbf16>)
  func.func @replicas(%dy: tensor<8x24xbf16>, %x: tensor<8x16xbf16>) -> (tensor<8x24xf32>, tensor<16x24xbf16>) {
    %id = stablehlo.partition_id : tensor<ui32>
    %device = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
    %two = stablehlo.constant dense<2> : tensor<i32>
    %size = stablehlo.constant dense<8> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %gpu = stablehlo.remainder %device, %two : tensor<i32>
    %offset = stablehlo.multiply %gpu, %size : tensor<i32>
    // CHECK: %[[D:.*]] = stablehlo.dot_general %[[X]], %[[DY]],
    %d = stablehlo.dot_general %dy, %x, contracting_dims = [0] x [0] : (tensor<8x24xbf16>, tensor<8x16xbf16>) -> tensor<24x16xbf16>
    // CHECK: %[[S:.*]] = "stablehlo.reduce_scatter"(%[[D]])
    // CHECK-SAME: scatter_dimension = 0
    // CHECK: (tensor<16x24xbf16>) -> tensor<8x24xbf16>
    // expected-remark @below {{an all-reduce of which each device takes a slice becomes a reduce-scatter}}
    // expected-remark @below {{the operands of a product are exchanged, so that its sum is not transposed}}
    %n = "stablehlo.all_reduce"(%d) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %s = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %s : tensor<bf16>
    }) : (tensor<24x16xbf16>) -> tensor<24x16xbf16>
    %p = stablehlo.dynamic_slice %n, %zero, %offset, sizes = [24, 8] : (tensor<24x16xbf16>, tensor<i32>, tensor<i32>) -> tensor<24x8xbf16>
    // CHECK: %[[F:.*]] = stablehlo.convert %[[S]] : (tensor<8x24xbf16>) -> tensor<8x24xf32>
    %f = stablehlo.convert %p : (tensor<24x8xbf16>) -> tensor<24x8xf32>
    // CHECK: %[[G:.*]] = "stablehlo.all_reduce"(%[[F]])
    // CHECK: (tensor<8x24xf32>) -> tensor<8x24xf32>
    %g = "stablehlo.all_reduce"(%f) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<24x8xf32>) -> tensor<24x8xf32>
    %t = stablehlo.transpose %g, dims = [1, 0] : (tensor<24x8xf32>) -> tensor<8x24xf32>
    // CHECK: %[[D2:.*]] = stablehlo.dot_general %[[X]], %[[DY]],
    %d2 = stablehlo.dot_general %dy, %x, contracting_dims = [0] x [0] : (tensor<8x24xbf16>, tensor<8x16xbf16>) -> tensor<24x16xbf16>
    // CHECK: %[[G2:.*]] = "stablehlo.all_reduce"(%[[D2]])
    // CHECK: (tensor<16x24xbf16>) -> tensor<16x24xbf16>
    // expected-remark @below {{the operands of a product are exchanged, so that its sum is not transposed}}
    %g2 = "stablehlo.all_reduce"(%d2) <{channel_handle = #stablehlo.channel_handle<handle = 4, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %s = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %s : tensor<bf16>
    }) : (tensor<24x16xbf16>) -> tensor<24x16xbf16>
    %t2 = stablehlo.transpose %g2, dims = [1, 0] : (tensor<24x16xbf16>) -> tensor<16x24xbf16>
    // CHECK-NOT: stablehlo.transpose
    // CHECK: return %[[G]], %[[G2]]
    return %t, %t2 : tensor<8x24xf32>, tensor<16x24xbf16>
  }
}

// -----

// None of these is folded: the product has another reader; the transpose has
// another order than that of exchanged operands; an algorithm has a type for
// each operand; what is summed is no product.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @stay
  func.func @stay(%dy: tensor<8x24xbf16>, %x: tensor<8x16xbf16>, %y: tensor<8x4x6xbf16>) -> (tensor<4x24xbf16>, tensor<24x16xbf16>, tensor<4x6x4xbf16>, tensor<4x24xbf16>, tensor<4x8xbf16>) {
    %id = stablehlo.partition_id : tensor<ui32>
    %device = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
    %size = stablehlo.constant dense<4> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %offset = stablehlo.multiply %device, %size : tensor<i32>
    // CHECK: stablehlo.transpose {{.*}}, dims = [1, 0] : (tensor<24x4xbf16>)
    %d1 = stablehlo.dot_general %dy, %x, contracting_dims = [0] x [0] : (tensor<8x24xbf16>, tensor<8x16xbf16>) -> tensor<24x16xbf16>
    // expected-remark @below {{an all-reduce of which each device takes a slice becomes a reduce-scatter}}
    %g1 = "stablehlo.all_reduce"(%d1) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %s = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %s : tensor<bf16>
    }) : (tensor<24x16xbf16>) -> tensor<24x16xbf16>
    %p1 = stablehlo.dynamic_slice %g1, %zero, %offset, sizes = [24, 4] : (tensor<24x16xbf16>, tensor<i32>, tensor<i32>) -> tensor<24x4xbf16>
    %t1 = stablehlo.transpose %p1, dims = [1, 0] : (tensor<24x4xbf16>) -> tensor<4x24xbf16>
    // CHECK: stablehlo.transpose {{.*}}, dims = [2, 1, 0] : (tensor<4x6x4xbf16>)
    %d2 = stablehlo.dot_general %y, %x, contracting_dims = [0] x [0] : (tensor<8x4x6xbf16>, tensor<8x16xbf16>) -> tensor<4x6x16xbf16>
    // expected-remark @below {{an all-reduce of which each device takes a slice becomes a reduce-scatter}}
    %g2 = "stablehlo.all_reduce"(%d2) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %s = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %s : tensor<bf16>
    }) : (tensor<4x6x16xbf16>) -> tensor<4x6x16xbf16>
    %p2 = stablehlo.dynamic_slice %g2, %zero, %zero, %offset, sizes = [4, 6, 4] : (tensor<4x6x16xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x6x4xbf16>
    %t2 = stablehlo.transpose %p2, dims = [2, 1, 0] : (tensor<4x6x4xbf16>) -> tensor<4x6x4xbf16>
    // CHECK: stablehlo.transpose {{.*}}, dims = [1, 0] : (tensor<24x4xbf16>)
    %d3 = "stablehlo.dot_general"(%dy, %x) <{algorithm = "some", dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>}> : (tensor<8x24xbf16>, tensor<8x16xbf16>) -> tensor<24x16xbf16>
    // expected-remark @below {{an all-reduce of which each device takes a slice becomes a reduce-scatter}}
    %g3 = "stablehlo.all_reduce"(%d3) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %s = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %s : tensor<bf16>
    }) : (tensor<24x16xbf16>) -> tensor<24x16xbf16>
    %p3 = stablehlo.dynamic_slice %g3, %zero, %offset, sizes = [24, 4] : (tensor<24x16xbf16>, tensor<i32>, tensor<i32>) -> tensor<24x4xbf16>
    %t3 = stablehlo.transpose %p3, dims = [1, 0] : (tensor<24x4xbf16>) -> tensor<4x24xbf16>
    // CHECK: stablehlo.transpose {{.*}}, dims = [1, 0] : (tensor<8x4xbf16>)
    // expected-remark @below {{an all-reduce of which each device takes a slice becomes a reduce-scatter}}
    %g4 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %s = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %s : tensor<bf16>
    }) : (tensor<8x16xbf16>) -> tensor<8x16xbf16>
    %p4 = stablehlo.dynamic_slice %g4, %zero, %offset, sizes = [8, 4] : (tensor<8x16xbf16>, tensor<i32>, tensor<i32>) -> tensor<8x4xbf16>
    %t4 = stablehlo.transpose %p4, dims = [1, 0] : (tensor<8x4xbf16>) -> tensor<4x8xbf16>
    return %t1, %d1, %t2, %t3, %t4 : tensor<4x24xbf16>, tensor<24x16xbf16>, tensor<4x6x4xbf16>, tensor<4x24xbf16>, tensor<4x8xbf16>
  }
}

// -----

// A cast to another shape is none: what follows it is left alone.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @cast
  func.func @cast(%dy: tensor<8x24xbf16>, %x: tensor<8x16xbf16>) -> tensor<4x12xf32> {
    %id = stablehlo.partition_id : tensor<ui32>
    %device = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
    %size = stablehlo.constant dense<4> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %offset = stablehlo.multiply %device, %size : tensor<i32>
    %d = stablehlo.dot_general %dy, %x, contracting_dims = [0] x [0] : (tensor<8x24xbf16>, tensor<8x16xbf16>) -> tensor<24x16xbf16>
    // expected-remark @below {{an all-reduce of which each device takes a slice becomes a reduce-scatter}}
    %g = "stablehlo.all_reduce"(%d) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %s = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %s : tensor<bf16>
    }) : (tensor<24x16xbf16>) -> tensor<24x16xbf16>
    %p = stablehlo.dynamic_slice %g, %zero, %offset, sizes = [24, 4] : (tensor<24x16xbf16>, tensor<i32>, tensor<i32>) -> tensor<24x4xbf16>
    %c = stablehlo.convert %p : (tensor<24x4xbf16>) -> tensor<24x8xf32>
    // CHECK: stablehlo.transpose {{.*}}, dims = [1, 0] : (tensor<24x8xf32>) -> tensor<4x12xf32>
    %t = stablehlo.transpose %c, dims = [1, 0] : (tensor<24x8xf32>) -> tensor<4x12xf32>
    return %t : tensor<4x12xf32>
  }
}
