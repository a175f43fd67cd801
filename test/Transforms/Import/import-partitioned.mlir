// RUN: zpp-opt %s --zero-import-partitioned --split-input-file \
// RUN:   --verify-diagnostics --remarks-filter='.*' | FileCheck %s
// RUN: zpp-opt %s --zero-import-partitioned --split-input-file 2>/dev/null > %t.once
// RUN: zpp-opt %s --zero-import-partitioned --zero-import-partitioned \
// RUN:   --split-input-file 2>/dev/null | diff %t.once -

// A table of offsets, and what the partitioner leaves after the slice.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @table
  // CHECK-SAME: (%[[X:.*]]: tensor<8x12xbf16>)
  func.func @table(%x: tensor<8x12xbf16>) -> tensor<3x8xf32> {
    // CHECK-NEXT: %[[PART:.*]] = "stablehlo.reduce_scatter"(%[[X]]) <{
    // CHECK-SAME: replica_groups = dense<{{\[\[}}0, 1, 2, 3]]> : tensor<1x4xi64>, scatter_dimension = 1 : i64, use_global_device_ids}>
    // CHECK-NEXT: ^bb0
    // CHECK-NEXT: stablehlo.add
    // CHECK-NEXT: stablehlo.return
    // CHECK-NEXT: (tensor<8x12xbf16>) -> tensor<8x3xbf16>
    // CHECK-NEXT: %[[TURNED:.*]] = stablehlo.transpose %[[PART]], dims = [1, 0] : (tensor<8x3xbf16>) -> tensor<3x8xbf16>
    // CHECK-NEXT: %[[WIDE:.*]] = stablehlo.convert %[[TURNED]]
    // CHECK-NEXT: return %[[WIDE]]
    // expected-remark @below {{an all-reduce of which each device takes a slice becomes a reduce-scatter}}
    %0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %sum = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %sum : tensor<bf16>
    }) : (tensor<8x12xbf16>) -> tensor<8x12xbf16>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %table = stablehlo.constant dense<[0, 3, 6, 9]> : tensor<4xi32>
    %id = stablehlo.partition_id : tensor<ui32>
    %entry = stablehlo.dynamic_slice %table, %id, sizes = [1] : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset = stablehlo.reshape %entry : (tensor<1xi32>) -> tensor<i32>
    %1 = stablehlo.dynamic_slice %0, %zero, %offset, sizes = [8, 3] : (tensor<8x12xbf16>, tensor<i32>, tensor<i32>) -> tensor<8x3xbf16>
    %2 = "mhlo.copy"(%1) : (tensor<8x3xbf16>) -> tensor<8x3xbf16>
    %3 = stablehlo.transpose %2, dims = [1, 0] {result_layout = dense<[0, 1]> : tensor<2xindex>, xla_shape = "bf16[3,8]{0,1}"} : (tensor<8x3xbf16>) -> tensor<3x8xbf16>
    %4 = stablehlo.convert %3 : (tensor<3x8xbf16>) -> tensor<3x8xf32>
    return %4 : tensor<3x8xf32>
  }
}

// -----

// Casts, transposes and dims of size 1 between the sum and its slices, which
// two readers share. Offsets are computed, and a loop hands the id on.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @between
  // CHECK-SAME: (%[[X:.*]]: tensor<1x8x4xbf16>)
  func.func @between(%x: tensor<1x8x4xbf16>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
    // CHECK: %[[PART:.*]] = "stablehlo.reduce_scatter"(%[[X]]) <{
    // CHECK-SAME: dense<{{\[\[}}0, 2], [1, 3]]> : tensor<2x2xi64>, scatter_dimension = 1
    // CHECK: (tensor<1x8x4xbf16>) -> tensor<1x4x4xbf16>
    // CHECK: %[[FLAT:.*]] = stablehlo.reshape %[[PART]] : (tensor<1x4x4xbf16>) -> tensor<4x4xbf16>
    // CHECK: %[[TURNED:.*]] = stablehlo.transpose %[[FLAT]], dims = [1, 0] : (tensor<4x4xbf16>) -> tensor<4x4xbf16>
    // CHECK: %[[WIDE:.*]] = stablehlo.convert %[[TURNED]] : (tensor<4x4xbf16>) -> tensor<4x4xf32>
    // CHECK: return %[[WIDE]], %[[WIDE]]
    // expected-remark @below {{becomes a reduce-scatter}}
    %0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[2, 0], [3, 1]]> : tensor<2x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %sum = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %sum : tensor<bf16>
    }) : (tensor<1x8x4xbf16>) -> tensor<1x8x4xbf16>
    %1 = stablehlo.reshape %0 : (tensor<1x8x4xbf16>) -> tensor<8x4xbf16>
    %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<8x4xbf16>) -> tensor<4x8xbf16>
    %3 = stablehlo.convert %2 : (tensor<4x8xbf16>) -> tensor<4x8xf32>
    %zero = stablehlo.constant dense<0> : tensor<ui32>
    %two = stablehlo.constant dense<2> : tensor<ui32>
    %id = stablehlo.partition_id : tensor<ui32>
    %half = stablehlo.divide %id, %two : tensor<ui32>
    %four = stablehlo.add %two, %two : tensor<ui32>
    %offset = stablehlo.multiply %half, %four : tensor<ui32>
    %4 = stablehlo.dynamic_slice %3, %zero, %offset, sizes = [4, 4] : (tensor<4x8xf32>, tensor<ui32>, tensor<ui32>) -> tensor<4x4xf32>
    %5 = stablehlo.dynamic_slice %3, %zero, %offset, sizes = [4, 4] : (tensor<4x8xf32>, tensor<ui32>, tensor<ui32>) -> tensor<4x4xf32>
    return %4, %5 : tensor<4x4xf32>, tensor<4x4xf32>
  }
}

// -----

// The id of a partition may come into a loop from outside of it.

module attributes {mhlo.num_partitions = 2 : i32} {
  // CHECK-LABEL: func @loop
  func.func @loop(%x: tensor<4xf32>) -> tensor<2xf32> {
    %y = stablehlo.constant dense<0.0> : tensor<2xf32>
    %id = stablehlo.partition_id : tensor<ui32>
    %r:2 = "stablehlo.while"(%id, %y) ({
    ^bb0(%i: tensor<ui32>, %z: tensor<2xf32>):
      %go = stablehlo.constant dense<false> : tensor<i1>
      stablehlo.return %go : tensor<i1>
    }, {
    ^bb0(%i: tensor<ui32>, %z: tensor<2xf32>):
      // CHECK: "stablehlo.reduce_scatter"
      // expected-remark @below {{becomes a reduce-scatter}}
      %0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %sum = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %sum : tensor<f32>
      }) : (tensor<4xf32>) -> tensor<4xf32>
      %offset = stablehlo.add %i, %i : tensor<ui32>
      %1 = stablehlo.dynamic_slice %0, %offset, sizes = [2] : (tensor<4xf32>, tensor<ui32>) -> tensor<2xf32>
      stablehlo.return %i, %1 : tensor<ui32>, tensor<2xf32>
    }) : (tensor<ui32>, tensor<2xf32>) -> (tensor<ui32>, tensor<2xf32>)
    return %r#1 : tensor<2xf32>
  }
}

// -----

// Slices in another order than that of the group: the group takes their order.

module attributes {mhlo.num_partitions = 2 : i32} {
  // CHECK-LABEL: func @backwards
  func.func @backwards(%x: tensor<4xf32>) -> tensor<2xf32> {
    // CHECK: replica_groups = dense<{{\[\[}}1, 0]]>
    // expected-remark @below {{becomes a reduce-scatter}}
    %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<4xf32>) -> tensor<4xf32>
    %table = stablehlo.constant dense<[2, 0]> : tensor<2xi32>
    %id = stablehlo.partition_id : tensor<ui32>
    %entry = stablehlo.dynamic_slice %table, %id, sizes = [1] : (tensor<2xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset = stablehlo.reshape %entry : (tensor<1xi32>) -> tensor<i32>
    %1 = stablehlo.dynamic_slice %0, %offset, sizes = [2] : (tensor<4xf32>, tensor<i32>) -> tensor<2xf32>
    return %1 : tensor<2xf32>
  }

  // No slice, no remark. A maximum is not a sum.
  // CHECK-LABEL: func @others
  func.func @others(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<2xf32>) {
    // CHECK-COUNT-2: "stablehlo.all_reduce"
    %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %max = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %max : tensor<f32>
    }) : (tensor<4xf32>) -> tensor<4xf32>
    %id = stablehlo.partition_id : tensor<ui32>
    %offset = stablehlo.add %id, %id : tensor<ui32>
    %2 = stablehlo.dynamic_slice %1, %offset, sizes = [2] : (tensor<4xf32>, tensor<ui32>) -> tensor<2xf32>
    return %0, %2 : tensor<4xf32>, tensor<2xf32>
  }
}

// -----

// An all-reduce that is not a reduce-scatter stays, with the reason.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @left
  func.func @left(%x: tensor<8x4xf32>, %i: tensor<i32>) -> (tensor<8x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x1xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
    // CHECK-NOT: stablehlo.reduce_scatter
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %table = stablehlo.constant dense<[0, 2, 4, 6]> : tensor<4xi32>
    %wrong = stablehlo.constant dense<[0, 2, 4, 4]> : tensor<4xi32>
    %id = stablehlo.partition_id : tensor<ui32>
    %0 = stablehlo.dynamic_slice %table, %id, sizes = [1] : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
    %right_offset = stablehlo.reshape %0 : (tensor<1xi32>) -> tensor<i32>
    %1 = stablehlo.dynamic_slice %wrong, %id, sizes = [1] : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
    %wrong_offset = stablehlo.reshape %1 : (tensor<1xi32>) -> tensor<i32>

    // expected-remark @below {{an all-reduce is not imported as a reduce-scatter: some of its readers need the whole sum; a norm of it can be the psum of the squares of scattered parts}}
    %whole = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %2 = stablehlo.dynamic_slice %whole, %right_offset, %zero, sizes = [2, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>

    // expected-remark @below {{its slices do not match its groups}}
    %offsets = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %3 = stablehlo.dynamic_slice %offsets, %wrong_offset, %zero, sizes = [2, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>

    // expected-remark @below {{a slice of it is one of several dims}}
    %dims = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %4 = stablehlo.dynamic_slice %dims, %right_offset, %zero, sizes = [2, 1] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x1xf32>
    %other4 = stablehlo.dynamic_slice %dims, %right_offset, %zero, sizes = [2, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>

    // expected-remark @below {{the offset of a slice of it depends on more than the device}}
    %data = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %5 = stablehlo.dynamic_slice %data, %i, %zero, sizes = [2, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
    %other5 = stablehlo.dynamic_slice %data, %right_offset, %zero, sizes = [2, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>

    // Groups of two have slices of half.
    // expected-remark @below {{its slices do not match its groups}}
    %groups = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %6 = stablehlo.dynamic_slice %groups, %right_offset, %zero, sizes = [2, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
    return %whole, %2, %3, %4, %5, %6 : tensor<8x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x1xf32>, tensor<2x4xf32>, tensor<2x4xf32>
  }
}

// -----

// Devices that take the same slice, as where weights are replicated between the
// nodes: the slices are scattered among those that differ, and then summed over
// those that are alike.

module attributes {mhlo.num_partitions = 8 : i32} {
  // CHECK-LABEL: func @replicated
  // CHECK-SAME: (%[[X:.*]]: tensor<8xf32>)
  func.func @replicated(%x: tensor<8xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<4xf32>) {
    %id = stablehlo.partition_id : tensor<ui32>
    %table0 = stablehlo.constant dense<[0, 2, 4, 6, 0, 2, 4, 6]> : tensor<8xi32>
    %entry0 = stablehlo.dynamic_slice %table0, %id, sizes = [1] : (tensor<8xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset0 = stablehlo.reshape %entry0 : (tensor<1xi32>) -> tensor<i32>
    %table1 = stablehlo.constant dense<[0, 0, 2, 2, 4, 4, 6, 6]> : tensor<8xi32>
    %entry1 = stablehlo.dynamic_slice %table1, %id, sizes = [1] : (tensor<8xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset1 = stablehlo.reshape %entry1 : (tensor<1xi32>) -> tensor<i32>
    %table2 = stablehlo.constant dense<[0, 2, 0, 2, 4, 6, 4, 6]> : tensor<8xi32>
    %entry2 = stablehlo.dynamic_slice %table2, %id, sizes = [1] : (tensor<8xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset2 = stablehlo.reshape %entry2 : (tensor<1xi32>) -> tensor<i32>
    %table3 = stablehlo.constant dense<[0, 4, 0, 4, 0, 4, 0, 4]> : tensor<8xi32>
    %entry3 = stablehlo.dynamic_slice %table3, %id, sizes = [1] : (tensor<8xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset3 = stablehlo.reshape %entry3 : (tensor<1xi32>) -> tensor<i32>
    // Two nodes of four devices, and weights within a node.
    // CHECK: %[[PART:.*]] = "stablehlo.reduce_scatter"(%[[X]]) <{
    // CHECK-SAME: replica_groups = dense<{{\[\[}}0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, scatter_dimension = 0
    // CHECK: (tensor<8xf32>) -> tensor<2xf32>
    // CHECK: %[[NODE:.*]] = "stablehlo.all_reduce"(%[[PART]]) <{
    // CHECK-SAME: replica_groups = dense<{{\[\[}}0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>
    // CHECK: (tensor<2xf32>) -> tensor<2xf32>
    // expected-remark @below {{an all-reduce of which several devices take the same slice becomes a reduce-scatter, and an all-reduce of the slice}}
    %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8xf32>) -> tensor<8xf32>
    %1 = stablehlo.dynamic_slice %0, %offset0, sizes = [2] : (tensor<8xf32>, tensor<i32>) -> tensor<2xf32>

    // Four nodes of two devices, and weights between the nodes.
    // CHECK: %[[PART:.*]] = "stablehlo.reduce_scatter"(%[[X]]) <{
    // CHECK-SAME: dense<{{\[\[}}0, 2, 4, 6], [1, 3, 5, 7]]>
    // CHECK: %[[OUTER:.*]] = "stablehlo.all_reduce"(%[[PART]]) <{
    // CHECK-SAME: dense<{{\[\[}}0, 1], [2, 3], [4, 5], [6, 7]]>
    // expected-remark @below {{several devices take the same slice}}
    %2 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8xf32>) -> tensor<8xf32>
    %3 = stablehlo.dynamic_slice %2, %offset1, sizes = [2] : (tensor<8xf32>, tensor<i32>) -> tensor<2xf32>

    // Three tiers, and weights replicated over the middle one. The group lists
    // its devices in some order.
    // CHECK: %[[PART:.*]] = "stablehlo.reduce_scatter"(%[[X]]) <{
    // CHECK-SAME: dense<{{\[\[}}0, 1, 4, 5], [2, 3, 6, 7]]>
    // CHECK: %[[MIDDLE:.*]] = "stablehlo.all_reduce"(%[[PART]]) <{
    // CHECK-SAME: dense<{{\[\[}}0, 2], [1, 3], [4, 6], [5, 7]]>
    // expected-remark @below {{several devices take the same slice}}
    %4 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[7, 2, 3, 1, 4, 5, 6, 0]]> : tensor<1x8xi64>, use_global_device_ids, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8xf32>) -> tensor<8xf32>
    %5 = stablehlo.dynamic_slice %4, %offset2, sizes = [2] : (tensor<8xf32>, tensor<i32>) -> tensor<2xf32>

    // Groups of four, of which two take each half.
    // CHECK: %[[PART:.*]] = "stablehlo.reduce_scatter"(%[[X]]) <{
    // CHECK-SAME: dense<{{\[\[}}0, 1], [2, 3], [4, 5], [6, 7]]>
    // CHECK: (tensor<8xf32>) -> tensor<4xf32>
    // CHECK: %[[HALF:.*]] = "stablehlo.all_reduce"(%[[PART]]) <{
    // CHECK-SAME: dense<{{\[\[}}0, 2], [1, 3], [4, 6], [5, 7]]>
    // expected-remark @below {{several devices take the same slice}}
    %6 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, use_global_device_ids, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8xf32>) -> tensor<8xf32>
    %7 = stablehlo.dynamic_slice %6, %offset3, sizes = [4] : (tensor<8xf32>, tensor<i32>) -> tensor<4xf32>

    // CHECK: return %[[NODE]], %[[OUTER]], %[[MIDDLE]], %[[HALF]]
    return %1, %3, %5, %7 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<4xf32>
  }
}

// -----

// Slices that have not as many devices each as the others, or none, and groups
// in which all take the same one.

module attributes {mhlo.num_partitions = 6 : i32} {
  // CHECK-LABEL: func @not_replicated
  func.func @not_replicated(%x: tensor<6xf32>) -> (tensor<3xf32>, tensor<2xf32>, tensor<3xf32>, tensor<4xf32>) {
    // CHECK-NOT: stablehlo.reduce_scatter
    %id = stablehlo.partition_id : tensor<ui32>
    %table0 = stablehlo.constant dense<[0, 3, 0, 3, 0, 0]> : tensor<6xi32>
    %entry0 = stablehlo.dynamic_slice %table0, %id, sizes = [1] : (tensor<6xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset0 = stablehlo.reshape %entry0 : (tensor<1xi32>) -> tensor<i32>
    %table1 = stablehlo.constant dense<[0, 2, 0, 2, 0, 2]> : tensor<6xi32>
    %entry1 = stablehlo.dynamic_slice %table1, %id, sizes = [1] : (tensor<6xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset1 = stablehlo.reshape %entry1 : (tensor<1xi32>) -> tensor<i32>
    %table2 = stablehlo.constant dense<[0, 3, 0, 3, 0, 3]> : tensor<6xi32>
    %entry2 = stablehlo.dynamic_slice %table2, %id, sizes = [1] : (tensor<6xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset2 = stablehlo.reshape %entry2 : (tensor<1xi32>) -> tensor<i32>
    %table3 = stablehlo.constant dense<[0, 2, 0, 2, 0, 2]> : tensor<6xi32>
    %entry3 = stablehlo.dynamic_slice %table3, %id, sizes = [1] : (tensor<6xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset3 = stablehlo.reshape %entry3 : (tensor<1xi32>) -> tensor<i32>
    // expected-remark @below {{its slices do not match its groups}}
    %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5]]> : tensor<1x6xi64>, use_global_device_ids, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<6xf32>) -> tensor<6xf32>
    %1 = stablehlo.dynamic_slice %0, %offset0, sizes = [3] : (tensor<6xf32>, tensor<i32>) -> tensor<3xf32>
    // expected-remark @below {{its slices do not match its groups}}
    %2 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5]]> : tensor<1x6xi64>, use_global_device_ids, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<6xf32>) -> tensor<6xf32>
    %3 = stablehlo.dynamic_slice %2, %offset1, sizes = [2] : (tensor<6xf32>, tensor<i32>) -> tensor<2xf32>
    // expected-remark @below {{its slices do not match its groups}}
    %4 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 2, 4], [1, 3, 5]]> : tensor<2x3xi64>, use_global_device_ids, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<6xf32>) -> tensor<6xf32>
    %5 = stablehlo.dynamic_slice %4, %offset2, sizes = [3] : (tensor<6xf32>, tensor<i32>) -> tensor<3xf32>
    // Slices that overlap.
    // expected-remark @below {{its slices do not match its groups}}
    %6 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5]]> : tensor<1x6xi64>, use_global_device_ids, channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<6xf32>) -> tensor<6xf32>
    %7 = stablehlo.dynamic_slice %6, %offset3, sizes = [4] : (tensor<6xf32>, tensor<i32>) -> tensor<4xf32>
    return %1, %3, %5, %7 : tensor<3xf32>, tensor<2xf32>, tensor<3xf32>, tensor<4xf32>
  }
}

// -----

// Sums over dims of size 1 move elements.

module attributes {mhlo.num_partitions = 2 : i32} {
  // CHECK-LABEL: func @unit_sums
  // CHECK-SAME: (%[[X:.*]]: tensor<1x1x4xf32>, %[[ONE:.*]]: tensor<1xf32>)
  func.func @unit_sums(%x: tensor<1x1x4xf32>, %one: tensor<1xf32>) -> (tensor<4xf32>, tensor<f32>, tensor<1x1xf32>, tensor<1x4xf32>, tensor<1x4xf32>, tensor<ui32>) {
    // CHECK-NOT: stablehlo.reduce"
    // CHECK: %[[FLAT:.*]] = stablehlo.reshape %[[X]] : (tensor<1x1x4xf32>) -> tensor<4xf32>
    // CHECK-NOT: stablehlo.reduce"
    // CHECK: %[[SCALAR:.*]] = stablehlo.reshape %[[ONE]] : (tensor<1xf32>) -> tensor<f32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x1x4xf32>, tensor<f32>) -> tensor<4xf32>
    %2 = "stablehlo.reduce"(%one, %zero) <{dimensions = array<i64: 0>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %b, %a : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<1xf32>, tensor<f32>) -> tensor<f32>

    // A sum of four, one that begins with another number, and a maximum.
    // CHECK-COUNT-3: stablehlo.reduce(
    %3 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<1x1x4xf32>, tensor<f32>) -> tensor<1x1xf32>
    %begin = stablehlo.constant dense<1.0> : tensor<f32>
    %4 = stablehlo.reduce(%x init: %begin) applies stablehlo.add across dimensions = [0] : (tensor<1x1x4xf32>, tensor<f32>) -> tensor<1x4xf32>
    %5 = stablehlo.reduce(%x init: %zero) applies stablehlo.maximum across dimensions = [0] : (tensor<1x1x4xf32>, tensor<f32>) -> tensor<1x4xf32>
    // CHECK: return %[[FLAT]], %[[SCALAR]]
    %id = stablehlo.partition_id : tensor<ui32>
    return %1, %2, %3, %4, %5, %id : tensor<4xf32>, tensor<f32>, tensor<1x1xf32>, tensor<1x4xf32>, tensor<1x4xf32>, tensor<ui32>
  }
}

// -----

// Of a step that is not the partitioner's, they stay.

module attributes {mhlo.num_partitions = 2 : i32} {
  // CHECK-LABEL: func @written_unit_sum
  func.func @written_unit_sum(%x: tensor<1x4xf32>) -> tensor<4xf32> {
    // CHECK: stablehlo.reduce(
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<1x4xf32>, tensor<f32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}

// -----

// With several replicas a partition is not a device.

module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 2 : i32} {
  // CHECK-LABEL: func @replicas
  func.func @replicas(%x: tensor<4xf32>) -> tensor<2xf32> {
    // CHECK: "stablehlo.all_reduce"
    %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<4xf32>) -> tensor<4xf32>
    %id = stablehlo.partition_id : tensor<ui32>
    %offset = stablehlo.add %id, %id : tensor<ui32>
    %1 = stablehlo.dynamic_slice %0, %offset, sizes = [2] : (tensor<4xf32>, tensor<ui32>) -> tensor<2xf32>
    return %1 : tensor<2xf32>
  }
}

// -----

// Meshes of the partitioner are not in scope elsewhere; the step's own is.

module attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["node"=2, "gpu"=2]>
  sdy.mesh @made_up = <["axis_0"=4]>
  // CHECK-LABEL: func @meshes
  func.func @meshes(%x: tensor<4xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    // CHECK: replica_groups = dense<{{\[\[}}0, 2], [1, 3]]>
    %0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @made_up, axes = [#stablehlo.axis_ref<name = "axis_0", sub_axis_info = (1)2>]>, use_global_device_ids}> : (tensor<4xf32>) -> tensor<8xf32>
    // CHECK: replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh,
    %1 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "gpu">]>, use_global_device_ids}> : (tensor<4xf32>) -> tensor<8xf32>
    return %0, %1 : tensor<8xf32>, tensor<8xf32>
  }
}

// -----

// A loop that saves a row of a stack, and one that gathers it: the second cuts
// it from the stack of the first itself.

module attributes {mhlo.num_partitions = 2 : i32} {
  // CHECK-LABEL: func @saved
  func.func @saved(%arg: tensor<4x2x8xf32>, %empty: tensor<4x2x8xbf16>, %start: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    // CHECK: %[[LOOP:.*]]:3 = stablehlo.while(
    // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %[[LOOP]]#1)
    // CHECK: } do {
    %f:3 = stablehlo.while(%i = %zero, %s = %empty, %w = %arg) : tensor<i32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    cond {
      %n = stablehlo.constant dense<4> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %slice = stablehlo.dynamic_slice %w, %i, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xf32>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
      %cast = stablehlo.convert %flat : (tensor<2x8xf32>) -> tensor<2x8xbf16>
      %unit = stablehlo.constant dense<1.0> : tensor<2x8xbf16>
      %row = stablehlo.add %cast, %unit : tensor<2x8xbf16>
      %part = stablehlo.reshape %row : (tensor<2x8xbf16>) -> tensor<1x2x8xbf16>
      %saved = stablehlo.dynamic_update_slice %s, %part, %i, %zero_, %zero_ : (tensor<4x2x8xbf16>, tensor<1x2x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x2x8xbf16>
      stablehlo.return %next, %saved, %w : tensor<i32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    }
    %r:3 = stablehlo.while(%i = %zero, %x = %start, %s = %f#1) : tensor<i32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    cond {
      %n = stablehlo.constant dense<4> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %last = stablehlo.constant dense<3> : tensor<i32>
      %j = stablehlo.subtract %last, %i : tensor<i32>
      // CHECK: %[[J:.*]] = stablehlo.subtract
      // CHECK: %[[SLICE:.*]] = stablehlo.dynamic_slice %arg0, %[[J]], %[[ZERO:.*]], %[[ZERO]]
      // CHECK: %[[FLAT:.*]] = stablehlo.reshape %[[SLICE]]
      // CHECK: %[[CAST:.*]] = stablehlo.convert %[[FLAT]]
      // CHECK: %[[ROW:.*]] = stablehlo.add %[[CAST]]
      // CHECK-NEXT: "stablehlo.all_gather"(%[[ROW]])
      // expected-remark @below {{a slice that a loop has saved is made again where it is gathered}}
      %slice = stablehlo.dynamic_slice %s, %j, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xbf16>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xbf16>) -> tensor<2x8xbf16>
      %all = "stablehlo.all_gather"(%flat) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<2x8xbf16>) -> tensor<4x8xbf16>
      %sum = stablehlo.add %x, %all : tensor<4x8xbf16>
      stablehlo.return %next, %sum, %s : tensor<i32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    }
    return %r#1 : tensor<4x8xbf16>
  }
}

// -----

// An iteration of an unrolled loop saves several layers in one row. The gather
// of one of them reads what the loop has joined.
module attributes {mhlo.num_partitions = 2 : i32} {
  // CHECK-LABEL: func @saved_by_unrolled
  func.func @saved_by_unrolled(%arg: tensor<4x4x8xf32>, %empty: tensor<4x4x8xbf16>, %start: tensor<4x8xbf16>) -> (tensor<4x8xbf16>, tensor<4x8xbf16>) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    // CHECK: stablehlo.while(
    // CHECK: stablehlo.while(
    // CHECK: } do {
    %f:3 = stablehlo.while(%i = %zero, %s = %empty, %w = %arg) : tensor<i32>, tensor<4x4x8xbf16>, tensor<4x4x8xf32>
    cond {
      %n = stablehlo.constant dense<4> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %slice = stablehlo.dynamic_slice %w, %i, %zero_, %zero_, sizes = [1, 4, 8] : (tensor<4x4x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
      %flat = stablehlo.reshape %slice : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
      %a = stablehlo.slice %flat [0:2, 0:8] : (tensor<4x8xf32>) -> tensor<2x8xf32>
      %b = stablehlo.slice %flat [2:4, 0:8] : (tensor<4x8xf32>) -> tensor<2x8xf32>
      %ca = stablehlo.convert %a : (tensor<2x8xf32>) -> tensor<2x8xbf16>
      %cb = stablehlo.convert %b : (tensor<2x8xf32>) -> tensor<2x8xbf16>
      %both = stablehlo.concatenate %ca, %cb, dim = 0 : (tensor<2x8xbf16>, tensor<2x8xbf16>) -> tensor<4x8xbf16>
      %part = stablehlo.reshape %both : (tensor<4x8xbf16>) -> tensor<1x4x8xbf16>
      %saved = stablehlo.dynamic_update_slice %s, %part, %i, %zero_, %zero_ : (tensor<4x4x8xbf16>, tensor<1x4x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x4x8xbf16>
      stablehlo.return %next, %saved, %w : tensor<i32>, tensor<4x4x8xbf16>, tensor<4x4x8xf32>
    }
    %r:4 = stablehlo.while(%i = %zero, %x = %start, %y = %start, %s = %f#1) : tensor<i32>, tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x4x8xbf16>
    cond {
      %n = stablehlo.constant dense<4> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      // CHECK: %[[SLICE:.*]] = stablehlo.dynamic_slice %arg0
      // CHECK: %[[FLAT:.*]] = stablehlo.reshape %[[SLICE]]
      // CHECK: %[[B:.*]] = stablehlo.slice %[[FLAT]] [2:4, 0:8
      // CHECK: %[[CB:.*]] = stablehlo.convert %[[B]]
      // CHECK: %[[BOTH:.*]] = stablehlo.concatenate {{.*}}, %[[CB]], dim
      // CHECK: "stablehlo.all_gather"(%[[CB]])
      // What is part of both layers stays a slice of both.
      // CHECK: %[[MIDDLE:.*]] = stablehlo.slice %[[BOTH]]
      // CHECK: "stablehlo.all_gather"(%[[MIDDLE]])
      // expected-remark @below {{a slice that a loop has saved is made again where it is gathered}}
      %slice = stablehlo.dynamic_slice %s, %i, %zero_, %zero_, sizes = [1, 4, 8] : (tensor<4x4x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xbf16>
      %flat = stablehlo.reshape %slice : (tensor<1x4x8xbf16>) -> tensor<4x8xbf16>
      %b = stablehlo.slice %flat [2:4, 0:8] : (tensor<4x8xbf16>) -> tensor<2x8xbf16>
      %all = "stablehlo.all_gather"(%b) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<2x8xbf16>) -> tensor<4x8xbf16>
      %middle = stablehlo.slice %flat [1:3, 0:8] : (tensor<4x8xbf16>) -> tensor<2x8xbf16>
      %other = "stablehlo.all_gather"(%middle) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<2x8xbf16>) -> tensor<4x8xbf16>
      %sum = stablehlo.add %x, %all : tensor<4x8xbf16>
      %sum1 = stablehlo.add %y, %other : tensor<4x8xbf16>
      stablehlo.return %next, %sum, %sum1, %s : tensor<i32>, tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x4x8xbf16>
    }
    return %r#1, %r#2 : tensor<4x8xbf16>, tensor<4x8xbf16>
  }
}

// -----

// A float is no index of a row. Nothing has verified these ops.

module attributes {mhlo.num_partitions = 2 : i32} {
  // CHECK-LABEL: func @saved_by_float
  // CHECK: %[[LOOP:.*]]:3 = stablehlo.while(
  // CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %[[LOOP]]#1)
  func.func @saved_by_float(%arg: tensor<4x2x8xf32>, %empty: tensor<4x2x8xbf16>, %start: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
    %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<f32>
    %f:3 = stablehlo.while(%i = %zero, %s = %empty, %w = %arg) : tensor<f32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    cond {
      %n = "stablehlo.constant"() <{value = dense<4> : tensor<i32>}> : () -> tensor<f32>
      %go = stablehlo.compare LT, %i, %n : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<f32>
      %zero_ = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<f32>
      %next = stablehlo.add %i, %one : tensor<f32>
      %slice = stablehlo.dynamic_slice %w, %i, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xf32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<1x2x8xf32>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
      %cast = stablehlo.convert %flat : (tensor<2x8xf32>) -> tensor<2x8xbf16>
      %unit = stablehlo.constant dense<1.0> : tensor<2x8xbf16>
      %row = stablehlo.add %cast, %unit : tensor<2x8xbf16>
      %part = stablehlo.reshape %row : (tensor<2x8xbf16>) -> tensor<1x2x8xbf16>
      %saved = stablehlo.dynamic_update_slice %s, %part, %i, %zero_, %zero_ : (tensor<4x2x8xbf16>, tensor<1x2x8xbf16>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<4x2x8xbf16>
      stablehlo.return %next, %saved, %w : tensor<f32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    }
    %r:3 = stablehlo.while(%i = %zero, %x = %start, %s = %f#1) : tensor<f32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    cond {
      %n = "stablehlo.constant"() <{value = dense<4> : tensor<i32>}> : () -> tensor<f32>
      %go = stablehlo.compare LT, %i, %n : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<f32>
      %zero_ = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<f32>
      %next = stablehlo.add %i, %one : tensor<f32>
      %last = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<f32>
      %j = stablehlo.subtract %last, %i : tensor<f32>
      %slice = stablehlo.dynamic_slice %s, %j, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xbf16>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<1x2x8xbf16>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xbf16>) -> tensor<2x8xbf16>
      %all = "stablehlo.all_gather"(%flat) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<2x8xbf16>) -> tensor<4x8xbf16>
      %sum = stablehlo.add %x, %all : tensor<4x8xbf16>
      stablehlo.return %next, %sum, %s : tensor<f32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    }
    return %r#1 : tensor<4x8xbf16>
  }
}

// -----

// What is saved is something else: some rows only, rows of a stack that
// changes, other rows; or nobody gathers it.

module attributes {mhlo.num_partitions = 2 : i32} {
  // CHECK-LABEL: func @some_rows
  func.func @some_rows(%arg: tensor<4x2x8xf32>, %empty: tensor<4x2x8xbf16>, %start: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %f:3 = stablehlo.while(%i = %zero, %s = %empty, %w = %arg) : tensor<i32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    cond {
      %n = stablehlo.constant dense<3> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %slice = stablehlo.dynamic_slice %w, %i, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xf32>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
      %cast = stablehlo.convert %flat : (tensor<2x8xf32>) -> tensor<2x8xbf16>
      %unit = stablehlo.constant dense<1.0> : tensor<2x8xbf16>
      %row = stablehlo.add %cast, %unit : tensor<2x8xbf16>
      %part = stablehlo.reshape %row : (tensor<2x8xbf16>) -> tensor<1x2x8xbf16>
      %saved = stablehlo.dynamic_update_slice %s, %part, %i, %zero_, %zero_ : (tensor<4x2x8xbf16>, tensor<1x2x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x2x8xbf16>
      stablehlo.return %next, %saved, %w : tensor<i32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    }
    %r:3 = stablehlo.while(%i = %zero, %x = %start, %s = %f#1) : tensor<i32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    cond {
      %n = stablehlo.constant dense<4> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %last = stablehlo.constant dense<3> : tensor<i32>
      %j = stablehlo.subtract %last, %i : tensor<i32>
      // CHECK: stablehlo.subtract
      // CHECK: stablehlo.dynamic_slice %{{.*}}{{.*}}tensor<4x2x8xbf16>
      %slice = stablehlo.dynamic_slice %s, %j, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xbf16>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xbf16>) -> tensor<2x8xbf16>
      %all = "stablehlo.all_gather"(%flat) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<2x8xbf16>) -> tensor<4x8xbf16>
      %sum = stablehlo.add %x, %all : tensor<4x8xbf16>
      stablehlo.return %next, %sum, %s : tensor<i32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    }
    return %r#1 : tensor<4x8xbf16>
  }
  // CHECK-LABEL: func @later_rows
  func.func @later_rows(%arg: tensor<4x2x8xf32>, %empty: tensor<4x2x8xbf16>, %start: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %first = stablehlo.constant dense<1> : tensor<i32>
    %f:3 = stablehlo.while(%i = %first, %s = %empty, %w = %arg) : tensor<i32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    cond {
      %n = stablehlo.constant dense<4> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %slice = stablehlo.dynamic_slice %w, %i, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xf32>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
      %cast = stablehlo.convert %flat : (tensor<2x8xf32>) -> tensor<2x8xbf16>
      %unit = stablehlo.constant dense<1.0> : tensor<2x8xbf16>
      %row = stablehlo.add %cast, %unit : tensor<2x8xbf16>
      %part = stablehlo.reshape %row : (tensor<2x8xbf16>) -> tensor<1x2x8xbf16>
      %saved = stablehlo.dynamic_update_slice %s, %part, %i, %zero_, %zero_ : (tensor<4x2x8xbf16>, tensor<1x2x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x2x8xbf16>
      stablehlo.return %next, %saved, %w : tensor<i32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    }
    %r:3 = stablehlo.while(%i = %zero, %x = %start, %s = %f#1) : tensor<i32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    cond {
      %n = stablehlo.constant dense<4> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %last = stablehlo.constant dense<3> : tensor<i32>
      %j = stablehlo.subtract %last, %i : tensor<i32>
      // CHECK: stablehlo.subtract
      // CHECK: stablehlo.dynamic_slice %{{.*}}{{.*}}tensor<4x2x8xbf16>
      %slice = stablehlo.dynamic_slice %s, %j, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xbf16>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xbf16>) -> tensor<2x8xbf16>
      %all = "stablehlo.all_gather"(%flat) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<2x8xbf16>) -> tensor<4x8xbf16>
      %sum = stablehlo.add %x, %all : tensor<4x8xbf16>
      stablehlo.return %next, %sum, %s : tensor<i32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    }
    return %r#1 : tensor<4x8xbf16>
  }
  // CHECK-LABEL: func @changed_stack
  func.func @changed_stack(%arg: tensor<4x2x8xf32>, %empty: tensor<4x2x8xbf16>, %start: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %f:3 = stablehlo.while(%i = %zero, %s = %empty, %w = %arg) : tensor<i32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    cond {
      %n = stablehlo.constant dense<4> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %slice = stablehlo.dynamic_slice %w, %i, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xf32>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
      %cast = stablehlo.convert %flat : (tensor<2x8xf32>) -> tensor<2x8xbf16>
      %unit = stablehlo.constant dense<1.0> : tensor<2x8xbf16>
      %row = stablehlo.add %cast, %unit : tensor<2x8xbf16>
      %part = stablehlo.reshape %row : (tensor<2x8xbf16>) -> tensor<1x2x8xbf16>
      %saved = stablehlo.dynamic_update_slice %s, %part, %i, %zero_, %zero_ : (tensor<4x2x8xbf16>, tensor<1x2x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x2x8xbf16>
      %changed = stablehlo.negate %w : tensor<4x2x8xf32>
      stablehlo.return %next, %saved, %changed : tensor<i32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    }
    %r:3 = stablehlo.while(%i = %zero, %x = %start, %s = %f#1) : tensor<i32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    cond {
      %n = stablehlo.constant dense<4> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %last = stablehlo.constant dense<3> : tensor<i32>
      %j = stablehlo.subtract %last, %i : tensor<i32>
      // CHECK: stablehlo.subtract
      // CHECK: stablehlo.dynamic_slice %{{.*}}{{.*}}tensor<4x2x8xbf16>
      %slice = stablehlo.dynamic_slice %s, %j, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xbf16>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xbf16>) -> tensor<2x8xbf16>
      %all = "stablehlo.all_gather"(%flat) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<2x8xbf16>) -> tensor<4x8xbf16>
      %sum = stablehlo.add %x, %all : tensor<4x8xbf16>
      stablehlo.return %next, %sum, %s : tensor<i32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    }
    return %r#1 : tensor<4x8xbf16>
  }
  // CHECK-LABEL: func @other_row
  func.func @other_row(%arg: tensor<4x2x8xf32>, %empty: tensor<4x2x8xbf16>, %start: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %f:3 = stablehlo.while(%i = %zero, %s = %empty, %w = %arg) : tensor<i32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    cond {
      %n = stablehlo.constant dense<4> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %slice = stablehlo.dynamic_slice %w, %next, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xf32>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
      %cast = stablehlo.convert %flat : (tensor<2x8xf32>) -> tensor<2x8xbf16>
      %unit = stablehlo.constant dense<1.0> : tensor<2x8xbf16>
      %row = stablehlo.add %cast, %unit : tensor<2x8xbf16>
      %part = stablehlo.reshape %row : (tensor<2x8xbf16>) -> tensor<1x2x8xbf16>
      %saved = stablehlo.dynamic_update_slice %s, %part, %i, %zero_, %zero_ : (tensor<4x2x8xbf16>, tensor<1x2x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x2x8xbf16>
      stablehlo.return %next, %saved, %w : tensor<i32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    }
    %r:3 = stablehlo.while(%i = %zero, %x = %start, %s = %f#1) : tensor<i32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    cond {
      %n = stablehlo.constant dense<4> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %last = stablehlo.constant dense<3> : tensor<i32>
      %j = stablehlo.subtract %last, %i : tensor<i32>
      // CHECK: stablehlo.subtract
      // CHECK: stablehlo.dynamic_slice %{{.*}}{{.*}}tensor<4x2x8xbf16>
      %slice = stablehlo.dynamic_slice %s, %j, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xbf16>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xbf16>) -> tensor<2x8xbf16>
      %all = "stablehlo.all_gather"(%flat) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<2x8xbf16>) -> tensor<4x8xbf16>
      %sum = stablehlo.add %x, %all : tensor<4x8xbf16>
      stablehlo.return %next, %sum, %s : tensor<i32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    }
    return %r#1 : tensor<4x8xbf16>
  }
  // CHECK-LABEL: func @not_gathered
  func.func @not_gathered(%arg: tensor<4x2x8xf32>, %empty: tensor<4x2x8xbf16>, %start: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %f:3 = stablehlo.while(%i = %zero, %s = %empty, %w = %arg) : tensor<i32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    cond {
      %n = stablehlo.constant dense<4> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %slice = stablehlo.dynamic_slice %w, %i, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xf32>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
      %cast = stablehlo.convert %flat : (tensor<2x8xf32>) -> tensor<2x8xbf16>
      %unit = stablehlo.constant dense<1.0> : tensor<2x8xbf16>
      %row = stablehlo.add %cast, %unit : tensor<2x8xbf16>
      %part = stablehlo.reshape %row : (tensor<2x8xbf16>) -> tensor<1x2x8xbf16>
      %saved = stablehlo.dynamic_update_slice %s, %part, %i, %zero_, %zero_ : (tensor<4x2x8xbf16>, tensor<1x2x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x2x8xbf16>
      stablehlo.return %next, %saved, %w : tensor<i32>, tensor<4x2x8xbf16>, tensor<4x2x8xf32>
    }
    %r:3 = stablehlo.while(%i = %zero, %x = %start, %s = %f#1) : tensor<i32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    cond {
      %n = stablehlo.constant dense<4> : tensor<i32>
      %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero_ = stablehlo.constant dense<0> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %last = stablehlo.constant dense<3> : tensor<i32>
      %j = stablehlo.subtract %last, %i : tensor<i32>
      // CHECK: stablehlo.subtract
      // CHECK: stablehlo.dynamic_slice %{{.*}}{{.*}}tensor<4x2x8xbf16>
      %slice = stablehlo.dynamic_slice %s, %j, %zero_, %zero_, sizes = [1, 2, 8] : (tensor<4x2x8xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x8xbf16>
      %flat = stablehlo.reshape %slice : (tensor<1x2x8xbf16>) -> tensor<2x8xbf16>
      %all = stablehlo.concatenate %flat, %flat, dim = 0 : (tensor<2x8xbf16>, tensor<2x8xbf16>) -> tensor<4x8xbf16>
      %sum = stablehlo.add %x, %all : tensor<4x8xbf16>
      stablehlo.return %next, %sum, %s : tensor<i32>, tensor<4x8xbf16>, tensor<4x2x8xbf16>
    }
    return %r#1 : tensor<4x8xbf16>
  }
}

// -----

// ZeRO-1 as people write it: the sum is divided by a number first, and the
// offset is guarded against being negative. Of a bucket, the other tensor stays.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @own_slice
  // CHECK-SAME: (%[[X:.*]]: tensor<8x4xf32>, %[[Y:.*]]: tensor<f32>)
  func.func @own_slice(%x: tensor<8x4xf32>, %loss: tensor<f32>) -> (tensor<2x4xf32>, tensor<f32>) {
    // CHECK: %[[PART:.*]] = "stablehlo.reduce_scatter"(%[[X]])
    // CHECK: (tensor<8x4xf32>) -> tensor<2x4xf32>
    // CHECK: %[[SUM:.*]] = "stablehlo.all_reduce"(%[[Y]])
    // CHECK: %[[FOUR:.*]] = stablehlo.slice {{.*}}{{.*}} -> tensor<2x4xf32>
    // CHECK: %[[MEAN:.*]] = stablehlo.divide %[[PART]], %[[FOUR]] : tensor<2x4xf32>
    // CHECK: %[[SQUARE:.*]] = stablehlo.multiply %[[MEAN]], %[[MEAN]]
    // CHECK: return %[[SQUARE]], %[[SUM]]
    // expected-remark @below {{becomes a reduce-scatter}}
    %0:2 = "stablehlo.all_reduce"(%x, %loss) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>, tensor<f32>) -> (tensor<8x4xf32>, tensor<f32>)
    %four = stablehlo.constant dense<4.0> : tensor<f32>
    %fours = stablehlo.broadcast_in_dim %four, dims = [] : (tensor<f32>) -> tensor<8x4xf32>
    %mean = stablehlo.divide %0#0, %fours : tensor<8x4xf32>
    %square = stablehlo.multiply %mean, %mean : tensor<8x4xf32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %two = stablehlo.constant dense<2> : tensor<i32>
    %eight = stablehlo.constant dense<8> : tensor<i32>
    %id = stablehlo.partition_id : tensor<ui32>
    %number = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
    %begin = stablehlo.multiply %number, %two : tensor<i32>
    %isNegative = stablehlo.compare LT, %begin, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %fromEnd = stablehlo.add %begin, %eight : tensor<i32>
    %offset = stablehlo.select %isNegative, %fromEnd, %begin : tensor<i1>, tensor<i32>
    %mine = stablehlo.dynamic_slice %square, %offset, %zero, sizes = [2, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
    return %mine, %0#1 : tensor<2x4xf32>, tensor<f32>
  }
}

// -----

// A tensor that is not the same everywhere has no slice here.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @other_operand
  func.func @other_operand(%x: tensor<8x4xf32>, %w: tensor<8x4xf32>) -> tensor<2x4xf32> {
    // CHECK: stablehlo.all_reduce
    %0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = stablehlo.add %0, %w : tensor<8x4xf32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %two = stablehlo.constant dense<2> : tensor<ui32>
    %id = stablehlo.partition_id : tensor<ui32>
    %begin = stablehlo.multiply %id, %two : tensor<ui32>
    %offset = stablehlo.convert %begin : (tensor<ui32>) -> tensor<i32>
    %mine = stablehlo.dynamic_slice %1, %offset, %zero, sizes = [2, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
    return %mine : tensor<2x4xf32>
  }
}

// -----

// Nothing has verified the slices: what changes the type of elements is none.

module attributes {mhlo.num_partitions = 2 : i32} {
  // CHECK-LABEL: func @malformed
  // CHECK-NOT: stablehlo.reduce_scatter
  // CHECK: "stablehlo.all_reduce"
  // CHECK: "stablehlo.all_reduce"
  // CHECK: return
  func.func @malformed(%x: tensor<4xf32>) -> (tensor<2xi24>, tensor<2xf32>) {
    %0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<4xf32>) -> tensor<4xf32>
    %two = stablehlo.constant dense<2> : tensor<ui32>
    %id = stablehlo.partition_id : tensor<ui32>
    %offset = stablehlo.multiply %two, %id : tensor<ui32>
    %2 = stablehlo.dynamic_slice %0, %offset, sizes = [2] : (tensor<4xf32>, tensor<ui32>) -> tensor<2xi24>
    %3 = stablehlo.transpose %1, dims = [7] : (tensor<4xf32>) -> tensor<4xf32>
    %4 = stablehlo.dynamic_slice %3, %offset, sizes = [2] : (tensor<4xf32>, tensor<ui32>) -> tensor<2xf32>
    return %2, %4 : tensor<2xi24>, tensor<2xf32>
  }
}

// -----

// The sum is in a function, as that of a shard_map in the step, and its slices
// are in the caller.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @in_a_function
  // CHECK-SAME: (%[[X:.*]]: tensor<8x4xbf16>)
  // CHECK: %[[PART:.*]] = "stablehlo.reduce_scatter"(%[[X]])
  // CHECK: (tensor<8x4xbf16>) -> tensor<2x4xbf16>
  // CHECK: return %[[PART]]
  func.func @in_a_function(%x: tensor<8x4xbf16>) -> tensor<2x4xbf16> {
    %0 = call @sum(%x) : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %table = stablehlo.constant dense<[0, 2, 4, 6]> : tensor<4xi32>
    %id = stablehlo.partition_id : tensor<ui32>
    %entry = stablehlo.dynamic_slice %table, %id, sizes = [1] : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset = stablehlo.reshape %entry : (tensor<1xi32>) -> tensor<i32>
    %1 = stablehlo.dynamic_slice %0, %offset, %zero, sizes = [2, 4] : (tensor<8x4xbf16>, tensor<i32>, tensor<i32>) -> tensor<2x4xbf16>
    return %1 : tensor<2x4xbf16>
  }
  func.func private @sum(%x: tensor<8x4xbf16>) -> tensor<8x4xbf16> {
    // expected-remark @below {{becomes a reduce-scatter}}
    %0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %sum = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %sum : tensor<bf16>
    }) : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
    return %0 : tensor<8x4xbf16>
  }
}

// -----

// The gradients of a weight that is used twice are added before they are summed
// over the devices, in the most precise of their types.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @used_twice
  // CHECK-SAME: (%[[X:.*]]: tensor<8x4xf32>, %[[Y:.*]]: tensor<8x4xbf16>)
  // CHECK: %[[WIDE:.*]] = stablehlo.convert %[[Y]] : (tensor<8x4xbf16>) -> tensor<8x4xf32>
  // CHECK: %[[SUM:.*]] = stablehlo.add %[[X]], %[[WIDE]] : tensor<8x4xf32>
  // CHECK-NOT: stablehlo.all_reduce
  // CHECK: %[[PART:.*]] = "stablehlo.reduce_scatter"(%[[SUM]])
  // CHECK: (tensor<8x4xf32>) -> tensor<2x4xf32>
  // CHECK: %[[NARROW:.*]] = stablehlo.convert %[[PART]] : (tensor<2x4xf32>) -> tensor<2x4xbf16>
  // CHECK-NOT: stablehlo.all_reduce
  // CHECK: return %[[NARROW]]
  func.func @used_twice(%x: tensor<8x4xf32>, %y: tensor<8x4xbf16>) -> tensor<2x4xbf16> {
    // expected-remark @below {{two sums over the same devices that are added become one}}
    // expected-remark @below {{becomes a reduce-scatter}}
    %0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = stablehlo.convert %0 : (tensor<8x4xf32>) -> tensor<8x4xbf16>
    %2 = "stablehlo.all_reduce"(%y) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %sum = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %sum : tensor<bf16>
    }) : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
    %3 = stablehlo.add %1, %2 : tensor<8x4xbf16>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %table = stablehlo.constant dense<[0, 2, 4, 6]> : tensor<4xi32>
    %id = stablehlo.partition_id : tensor<ui32>
    %entry = stablehlo.dynamic_slice %table, %id, sizes = [1] : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset = stablehlo.reshape %entry : (tensor<1xi32>) -> tensor<i32>
    %4 = stablehlo.dynamic_slice %3, %offset, %zero, sizes = [2, 4] : (tensor<8x4xbf16>, tensor<i32>, tensor<i32>) -> tensor<2x4xbf16>
    return %4 : tensor<2x4xbf16>
  }
}

// -----

// Three uses. Where the whole sum is read, it stays an all-reduce.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @used_three_times
  // CHECK-SAME: (%[[X:.*]]: tensor<8x4xbf16>, %[[Y:.*]]: tensor<8x4xbf16>, %[[Z:.*]]: tensor<8x4xf16>)
  // CHECK: %[[XY:.*]] = stablehlo.add %[[X]], %[[Y]] : tensor<8x4xbf16>
  // CHECK: %[[WIDE_Z:.*]] = stablehlo.convert %[[Z]] : (tensor<8x4xf16>) -> tensor<8x4xf32>
  // CHECK: %[[WIDE_XY:.*]] = stablehlo.convert %[[XY]] : (tensor<8x4xbf16>) -> tensor<8x4xf32>
  // CHECK: %[[SUM:.*]] = stablehlo.add %[[WIDE_Z]], %[[WIDE_XY]] : tensor<8x4xf32>
  // CHECK: %[[ALL:.*]] = "stablehlo.all_reduce"(%[[SUM]])
  // CHECK-NOT: stablehlo.all_reduce
  // CHECK: return %[[ALL]]
  func.func @used_three_times(%x: tensor<8x4xbf16>, %y: tensor<8x4xbf16>, %z: tensor<8x4xf16>) -> (tensor<8x4xf32>, tensor<ui32>) {
    // expected-remark @below {{two sums over the same devices that are added become one}}
    %0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %sum = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %sum : tensor<bf16>
    }) : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
    %1 = "stablehlo.all_reduce"(%y) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
      %sum = stablehlo.add %a, %b : tensor<bf16>
      stablehlo.return %sum : tensor<bf16>
    }) : (tensor<8x4xbf16>) -> tensor<8x4xbf16>
    // expected-remark @below {{two sums over the same devices that are added become one}}
    %2 = "stablehlo.all_reduce"(%z) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f16>, %b: tensor<f16>):
      %sum = stablehlo.add %a, %b : tensor<f16>
      stablehlo.return %sum : tensor<f16>
    }) : (tensor<8x4xf16>) -> tensor<8x4xf16>
    %3 = stablehlo.add %0, %1 : tensor<8x4xbf16>
    %4 = stablehlo.convert %3 : (tensor<8x4xbf16>) -> tensor<8x4xf32>
    %5 = stablehlo.convert %2 : (tensor<8x4xf16>) -> tensor<8x4xf32>
    %6 = stablehlo.add %5, %4 : tensor<8x4xf32>
    %id = stablehlo.partition_id : tensor<ui32>
    return %6, %id : tensor<8x4xf32>, tensor<ui32>
  }
}

// -----

// Other devices, another reader, one sum added to itself, scalars, and integers.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @not_merged
  // CHECK-COUNT-9: "stablehlo.all_reduce"(%{{.*}})
  // CHECK-NOT: stablehlo.all_reduce
  // CHECK: return
  func.func @not_merged(%x: tensor<8x4xf32>, %s: tensor<f32>, %i: tensor<8x4xi32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<f32>, tensor<8x4xi32>, tensor<ui32>) {
    %0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %other_devices = stablehlo.add %0, %1 : tensor<8x4xf32>
    %2 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %3 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %other_reader = stablehlo.add %2, %3 : tensor<8x4xf32>
    %4 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %itself = stablehlo.add %4, %4 : tensor<8x4xf32>
    %5 = "stablehlo.all_reduce"(%s) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<f32>) -> tensor<f32>
    %6 = "stablehlo.all_reduce"(%s) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<f32>) -> tensor<f32>
    %scalars = stablehlo.add %5, %6 : tensor<f32>
    %7 = "stablehlo.all_reduce"(%i) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %sum = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %sum : tensor<i32>
    }) : (tensor<8x4xi32>) -> tensor<8x4xi32>
    %8 = "stablehlo.all_reduce"(%i) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %sum = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %sum : tensor<i32>
    }) : (tensor<8x4xi32>) -> tensor<8x4xi32>
    %integers = stablehlo.add %7, %8 : tensor<8x4xi32>
    %id = stablehlo.partition_id : tensor<ui32>
    return %other_devices, %other_reader, %3, %itself, %scalars, %integers, %id : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<f32>, tensor<8x4xi32>, tensor<ui32>
  }
}

// -----

// No partitioner has made these.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @of_the_step
  // CHECK-COUNT-2: "stablehlo.all_reduce"(%{{.*}})
  // CHECK: return
  func.func @of_the_step(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>) -> tensor<8x4xf32> {
    %0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = "stablehlo.all_reduce"(%y) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %2 = stablehlo.add %0, %1 : tensor<8x4xf32>
    return %2 : tensor<8x4xf32>
  }
}

// -----

// A slice of nothing.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @empty
  func.func @empty(%x: tensor<8x4xf32>) -> tensor<0x4xf32> {
    %id = stablehlo.partition_id : tensor<ui32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %offset = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
    // CHECK: "stablehlo.all_reduce"
    // expected-remark @below {{its slices do not match its groups}}
    %sum = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %part = stablehlo.dynamic_slice %sum, %offset, %zero, sizes = [0, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<0x4xf32>
    return %part : tensor<0x4xf32>
  }
}

// -----

// Two sums become one, and what is in the sum of two elements goes with it.

module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @in_a_sum
  // CHECK: "stablehlo.reduce_scatter"
  // CHECK-NOT: "stablehlo.all_reduce"
  // CHECK: return
  func.func @in_a_sum(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>) -> tensor<2x4xf32> {
    // expected-remark @below {{two sums over the same devices that are added become one}}
    // expected-remark @below {{an all-reduce of which each device takes a slice becomes a reduce-scatter}}
    %0 = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = "stablehlo.all_reduce"(%y) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %unread = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%c: tensor<f32>, %d: tensor<f32>):
        %inner = stablehlo.add %c, %d : tensor<f32>
        stablehlo.return %inner : tensor<f32>
      }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %2 = stablehlo.add %0, %1 : tensor<8x4xf32>
    %offsets = stablehlo.constant dense<[0, 2, 4, 6]> : tensor<4xi32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %id = stablehlo.partition_id : tensor<ui32>
    %3 = stablehlo.dynamic_slice %offsets, %id, sizes = [1] : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
    %offset = stablehlo.reshape %3 : (tensor<1xi32>) -> tensor<i32>
    %part = stablehlo.dynamic_slice %2, %offset, %zero, sizes = [2, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
    return %part : tensor<2x4xf32>
  }
}
