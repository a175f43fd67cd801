// RUN: zpp-opt %s --canonicalize | FileCheck %s

#mesh = #zero.mesh<"rack" = 1, "node" = 2, "gpu" = 4>

// CHECK-LABEL: func @to_local_of_from_local
// CHECK-SAME: %[[W:.*]]: tensor<8xf32>
func.func @to_local_of_from_local(%w: tensor<8xf32>) -> tensor<8xf32> {
  // CHECK-NEXT: return %[[W]]
  %0 = zero.from_local %w : tensor<8xf32> to !zero.shard<16xf32, dim 0 = ("node") on #mesh>
  %1 = zero.to_local %0 : !zero.shard<16xf32, dim 0 = ("node") on #mesh> to tensor<8xf32>
  return %1 : tensor<8xf32>
}

// CHECK-LABEL: func @from_local_of_to_local
// CHECK-SAME: %[[P:.*]]: !zero.shard
func.func @from_local_of_to_local(%p: !zero.shard<16xf32, dim 0 = ("node") on #mesh>)
    -> !zero.shard<16xf32, dim 0 = ("node") on #mesh> {
  // CHECK-NEXT: return %[[P]]
  %0 = zero.to_local %p : !zero.shard<16xf32, dim 0 = ("node") on #mesh> to tensor<8xf32>
  %1 = zero.from_local %0 : tensor<8xf32> to !zero.shard<16xf32, dim 0 = ("node") on #mesh>
  return %1 : !zero.shard<16xf32, dim 0 = ("node") on #mesh>
}

// The same local tensor as parts of another partitioned tensor: not a copy.
// CHECK-LABEL: func @other_placement
func.func @other_placement(%p: !zero.shard<16xf32, dim 0 = ("node") on #mesh>)
    -> !zero.shard<32xf32, dim 0 = ("gpu") on #mesh> {
  // CHECK: zero.to_local
  // CHECK: zero.from_local
  %0 = zero.to_local %p : !zero.shard<16xf32, dim 0 = ("node") on #mesh> to tensor<8xf32>
  %1 = zero.from_local %0 : tensor<8xf32> to !zero.shard<32xf32, dim 0 = ("gpu") on #mesh>
  return %1 : !zero.shard<32xf32, dim 0 = ("gpu") on #mesh>
}

// CHECK-LABEL: func @gather_over_one_device
// CHECK-SAME: %[[W:.*]]: tensor<2xf32>
func.func @gather_over_one_device(%w: tensor<2xf32>) -> tensor<2xf32> {
  // CHECK-NEXT: return %[[W]]
  %0 = zero.from_local %w : tensor<2xf32> to !zero.shard<16xf32, dim 0 = ("rack", "node", "gpu") on #mesh>
  %1 = zero.all_gather %0 along ["rack"]
      : !zero.shard<16xf32, dim 0 = ("rack", "node", "gpu") on #mesh> to
        !zero.shard<16xf32, dim 0 = (1, "node", "gpu") on #mesh>
  %2 = zero.to_local %1 : !zero.shard<16xf32, dim 0 = (1, "node", "gpu") on #mesh> to tensor<2xf32>
  return %2 : tensor<2xf32>
}

// CHECK-LABEL: func @scatter_over_one_device
// CHECK-SAME: %[[G:.*]]: tensor<16xf32>
func.func @scatter_over_one_device(%g: tensor<16xf32>) -> tensor<16xf32> {
  // CHECK-NEXT: return %[[G]]
  %0 = zero.from_local %g : tensor<16xf32> to !zero.shard<16xf32, dim 0 = (1) on #mesh>
  %1 = zero.reduce_scatter mean %0 along ["rack"]
      : !zero.shard<16xf32, dim 0 = (1) on #mesh> to !zero.shard<16xf32, dim 0 = ("rack") on #mesh>
  %2 = zero.to_local %1 : !zero.shard<16xf32, dim 0 = ("rack") on #mesh> to tensor<16xf32>
  return %2 : tensor<16xf32>
}

// Rounding to the wire's format and to the result's type is part of the values.
// CHECK-LABEL: func @scatter_rounds
func.func @scatter_rounds(%g: !zero.shard<16xf16, dim 0 = (1) on #mesh>) ->
    (!zero.shard<16xf16, dim 0 = ("rack") on #mesh>, !zero.shard<16xf32, dim 0 = ("rack") on #mesh>) {
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["rack"] wire
  %0 = zero.reduce_scatter sum %g along ["rack"] wire <i8, block = 32>
      : !zero.shard<16xf16, dim 0 = (1) on #mesh> to !zero.shard<16xf16, dim 0 = ("rack") on #mesh>
  // CHECK: zero.reduce_scatter sum %{{.*}} along ["rack"] :
  %1 = zero.reduce_scatter sum %g along ["rack"]
      : !zero.shard<16xf16, dim 0 = (1) on #mesh> to !zero.shard<16xf32, dim 0 = ("rack") on #mesh>
  return %0, %1 : !zero.shard<16xf16, dim 0 = ("rack") on #mesh>, !zero.shard<16xf32, dim 0 = ("rack") on #mesh>
}

// The part is padded (3 slices of 4), the whole is not.
// CHECK-LABEL: func @gather_drops_padding
func.func @gather_drops_padding(%p: !zero.shard<10xf32, dim 0 = (3, "rack") on #mesh>)
    -> !zero.shard<10xf32, dim 0 = (3, 1) on #mesh> {
  // CHECK: zero.all_gather
  %0 = zero.all_gather %p along ["rack"]
      : !zero.shard<10xf32, dim 0 = (3, "rack") on #mesh> to !zero.shard<10xf32, dim 0 = (3, 1) on #mesh>
  return %0 : !zero.shard<10xf32, dim 0 = (3, 1) on #mesh>
}

// CHECK-LABEL: func @gather_over_more
func.func @gather_over_more(%p: !zero.shard<16xf32, dim 0 = ("node") on #mesh>)
    -> !zero.shard<16xf32, dim 0 = (2) on #mesh> {
  // CHECK: zero.all_gather
  %0 = zero.all_gather %p along ["node"]
      : !zero.shard<16xf32, dim 0 = ("node") on #mesh> to !zero.shard<16xf32, dim 0 = (2) on #mesh>
  return %0 : !zero.shard<16xf32, dim 0 = (2) on #mesh>
}
