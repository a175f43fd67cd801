// RUN: zpp-opt %s --zero-decompose-reduce-scatter --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-decompose-reduce-scatter \
// RUN:   --zero-decompose-reduce-scatter --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-decompose-reduce-scatter=stages=3 --split-input-file \
// RUN:   | FileCheck %s --check-prefix=STAGES
// RUN: echo "module {}" | not zpp-opt --zero-decompose-reduce-scatter=stages=-1 \
// RUN:   2>&1 | FileCheck %s --check-prefix=INVALID
// RUN: echo "module {}" | not zpp-opt --zero-decompose-reduce-scatter=stages=4611686018427387904 \
// RUN:   2>&1 | FileCheck %s --check-prefix=MANY

// INVALID: error: expected 1 to 1024 stages, or 0 to choose, but got -1
// MANY: error: expected 1 to 1024 stages, or 0 to choose, but got 4611686018427387904

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!middle = !zero.shard<256x64xf32, dim 0 = (2, "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @two_hops
// STAGES-LABEL: func @two_hops
func.func @two_hops(%g: tensor<256x64xbf16>) -> tensor<32x64xbf16> {
  // CHECK: %[[RECEIVED:.*]] = zero.all_to_all %arg0 along ["gpu"] on #mesh slices <dim = 0, factors = [2, 4], chunk = [1]> wire <i8, block = 128>
  // CHECK-SAME: {zpp.origin = {id = 3 : i64}} : tensor<256x64xbf16> into tensor<4x64x64xf32>
  // CHECK: %[[HOP:.*]] = zero.reduce sum %[[RECEIVED]] {{.*}} -> tensor<64x64xf32>
  // CHECK: %[[RECEIVED:.*]] = zero.all_to_all %[[HOP]] along ["node"] on #mesh slices <dim = 0, factors = [2], chunk = [0]> wire <i4, block = 128>
  // CHECK: %[[SUM:.*]] = zero.reduce sum %[[RECEIVED]] {{.*}} -> tensor<32x64xbf16>
  // CHECK: return %[[SUM]]

  // Each stage takes its part of every unit of 32 rows through all hops.
  // STAGES: zero.all_to_all %arg0 {{.*}} stage = 0 of 3> {{.*}} -> tensor<4x22x64xf32>
  // STAGES: zero.all_to_all {{.*}} -> tensor<2x11x64xf32>
  // STAGES: %[[FIRST:.*]] = zero.reduce {{.*}} -> tensor<11x64xbf16>
  // STAGES: zero.all_to_all %arg0 {{.*}} stage = 1 of 3>
  // STAGES: %[[SECOND:.*]] = zero.reduce {{.*}} -> tensor<11x64xbf16>
  // STAGES: zero.all_to_all %arg0 {{.*}} stage = 2 of 3> {{.*}} -> tensor<4x20x64xf32>
  // STAGES: %[[THIRD:.*]] = zero.reduce {{.*}} -> tensor<10x64xbf16>
  // STAGES: tensor.concat dim(0) %[[FIRST]], %[[SECOND]], %[[THIRD]]
  %0 = zero.from_local %g : tensor<256x64xbf16> to !whole
  %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 128> {zpp.origin = {id = 3}} : !whole to !middle
  %2 = zero.reduce_scatter sum %1 along ["node"] wire <i4, block = 128> {zpp.origin = {id = 3}} : !middle to !primary
  %3 = zero.to_local %2 : !primary to tensor<32x64xbf16>
  return %3 : tensor<32x64xbf16>
}

// -----

// One hop without a wire format keeps the element type; a padded dim that is not
// the first; fewer stages than asked for where a unit has no more rows.

#mesh = #zero.mesh<"node" = 1, "gpu" = 3>
!primary = !zero.shard<5x4xf16, dim 1 = ("gpu") on #mesh>
!whole = !zero.shard<5x4xf16, dim 1 = (3) on #mesh>

// CHECK-LABEL: func @one_hop
// STAGES-LABEL: func @one_hop
func.func @one_hop(%g: tensor<5x4xf16>) -> tensor<5x2xf16> {
  // CHECK: zero.all_to_all %arg0 along ["gpu"] on #mesh slices <dim = 1, factors = [3], chunk = [0]> into {{.*}} -> tensor<3x5x2xf16>
  // CHECK: zero.reduce mean {{.*}} -> tensor<5x2xf16>
  // STAGES: stage = 0 of 2> {{.*}} -> tensor<3x5x1xf16>
  // STAGES: stage = 1 of 2>
  // STAGES: tensor.concat dim(1)
  %0 = zero.from_local %g : tensor<5x4xf16> to !whole
  %1 = zero.reduce_scatter mean %0 along ["gpu"] : !whole to !primary
  %2 = zero.to_local %1 : !primary to tensor<5x2xf16>
  return %2 : tensor<5x2xf16>
}

// -----

// Chunks are numbered in the order of the hop's axes, not of the dim.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<64xf32, dim 0 = ("gpu", "node") on #mesh>
!middle = !zero.shard<64xf32, dim 0 = ("gpu", 2) on #mesh>
!whole = !zero.shard<64xf32, dim 0 = (4, 2) on #mesh>

// CHECK-LABEL: func @order
func.func @order(%g: tensor<64xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = zero.from_local %g : tensor<64xf32> to !whole
  // CHECK: along ["gpu"] on #mesh slices <dim = 0, factors = [4, 2], chunk = [0]>
  // CHECK: along ["node"] on #mesh slices <dim = 0, factors = [2], chunk = [0]>
  %1 = zero.reduce_scatter sum %0 along ["gpu"] : !whole to !middle
  %2 = zero.reduce_scatter sum %1 along ["node"] : !middle to !primary
  %3 = zero.to_local %2 : !primary to tensor<8xf32>
  // CHECK: along ["node", "gpu"] on #mesh slices <dim = 0, factors = [4, 2], chunk = [1, 0]>
  %4 = zero.reduce_scatter sum %0 along ["node", "gpu"] : !whole to !primary
  %5 = zero.to_local %4 : !primary to tensor<8xf32>
  return %3, %5 : tensor<8xf32>, tensor<8xf32>
}

// -----

// A sum between two hops that something else reads too.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<64xf32, dim 0 = ("node", "gpu") on #mesh>
!middle = !zero.shard<64xf32, dim 0 = (2, "gpu") on #mesh>
!whole = !zero.shard<64xf32, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @kept_sum
func.func @kept_sum(%g: tensor<64xf32>) -> (tensor<16xf32>, tensor<8xf32>) {
  // CHECK: zero.all_to_all %arg0 along ["gpu"]
  // CHECK: %[[HOP:.*]] = zero.reduce sum {{.*}} -> tensor<16xf32>
  // CHECK: zero.all_to_all %[[HOP]] along ["node"]
  // CHECK: %[[SUM:.*]] = zero.reduce sum {{.*}} -> tensor<8xf32>
  // CHECK: return %[[HOP]], %[[SUM]]
  %0 = zero.from_local %g : tensor<64xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["gpu"] : !whole to !middle
  %2 = zero.to_local %1 : !middle to tensor<16xf32>
  %3 = zero.reduce_scatter sum %1 along ["node"] : !middle to !primary
  %4 = zero.to_local %3 : !primary to tensor<8xf32>
  return %2, %4 : tensor<16xf32>, tensor<8xf32>
}

// -----

// A scatter that was left alone stays one collective. An empty tensor is not
// cut.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<8xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<8xf32, dim 0 = (2, 4) on #mesh>
!empty = !zero.shard<0xf32, dim 0 = ("node", "gpu") on #mesh>
!empty_whole = !zero.shard<0xf32, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @stays
// STAGES-LABEL: func @stays
func.func @stays(%g: tensor<8xf32>, %e: tensor<0xf32>) -> (tensor<1xf32>, tensor<0xf32>) {
  // CHECK: zero.reduce_scatter sum
  // CHECK-NOT: zero.all_to_all %arg0
  // STAGES: zero.reduce_scatter sum
  %0 = zero.from_local %g : tensor<8xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["node", "gpu"] {zpp.reason = "too small"} : !whole to !primary
  %2 = zero.to_local %1 : !primary to tensor<1xf32>
  // STAGES: zero.all_to_all %arg1
  // STAGES-NOT: zero.all_to_all
  %3 = zero.from_local %e : tensor<0xf32> to !empty_whole
  %4 = zero.reduce_scatter sum %3 along ["node", "gpu"] : !empty_whole to !empty
  %5 = zero.to_local %4 : !empty to tensor<0xf32>
  return %2, %5 : tensor<1xf32>, tensor<0xf32>
}

// -----

// HSDP: what is scattered within the node is summed between nodes. A stage is a
// part of the rows that a device has in the end, and encodes its own sum.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<192x8xf32, dim 0 = (4, 2) on #mesh>
!scattered = !zero.shard<192x8xf32, dim 0 = ("gpu", 2) on #mesh>
!piece = !zero.shard<192x8xf32, dim 0 = ("gpu", "node") on #mesh>
!sent = !zero.shard<192x8xf32, dim 0 = ("gpu", "node") on #mesh, #zero.quant<i8, block = 32>>
!read = !zero.shard<192x8xf32, dim 0 = ("gpu", 2) on #mesh, #zero.quant<i8, block = 32>>

// CHECK-LABEL: func @with_gather
// STAGES-LABEL: func @with_gather
func.func @with_gather(%g: tensor<192x8xf32>) -> tensor<48x8xf32> {
  // CHECK: %[[HOP:.*]] = zero.all_to_all %arg0 along ["gpu"] on #{{.*}} slices <dim = 0, factors = [4, 2], chunk = [0]>
  // CHECK-NOT: zero.all_to_all %arg0
  // CHECK: zero.encode {{.*}} to <192x8xf32, dim 0 = ("gpu", "node")
  // CHECK-NOT: zero.encode
  // STAGES: zero.all_to_all %arg0 along ["gpu"] on #{{.*}} slices <dim = 0, factors = [4], chunk = [0], stage = 0 of 3>
  // STAGES: zero.reduce sum {{.*}} -> tensor<16x8xf32>
  // STAGES: zero.all_to_all %{{.*}} along ["node"] on #{{.*}} slices <dim = 0, factors = [2], chunk = [0]>
  // STAGES: %[[SUM:.*]] = zero.reduce sum {{.*}} -> tensor<8x8xf32>
  // STAGES: %[[PIECE:.*]] = zero.from_local %[[SUM]] : tensor<8x8xf32> to <64x8xf32, dim 0 = ("gpu", "node")
  // STAGES: zero.encode %[[PIECE]]
  // STAGES: zero.all_gather {{.*}} along ["node"]
  // STAGES: zero.decode
  // STAGES: %[[FIRST:.*]] = zero.to_local {{.*}} to tensor<16x8xf32>
  // STAGES: stage = 1 of 3
  // STAGES: stage = 2 of 3
  // STAGES: %[[ALL:.*]] = tensor.concat dim(0) %[[FIRST]], %{{.*}}, %{{.*}} -> tensor<48x8xf32>
  // STAGES: return %[[ALL]]
  %0 = zero.from_local %g : tensor<192x8xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["gpu"] : !whole to !scattered
  %2 = zero.reduce_scatter sum %1 along ["node"] : !scattered to !piece
  %3 = zero.encode %2 : !piece to !sent
  %4 = zero.all_gather %3 along ["node"] : !sent to !read
  %5 = zero.decode %4 : !read to !scattered
  %6 = zero.to_local %5 : !scattered to tensor<48x8xf32>
  return %6 : tensor<48x8xf32>
}

// -----

// The first hop is part of the sum between nodes: its chunks have no rows of a
// stage in one piece. It is not cut.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<192xf32, dim 0 = (4, 2) on #mesh>
!hop = !zero.shard<192xf32, dim 0 = (4, "node") on #mesh>
!piece = !zero.shard<192xf32, dim 0 = ("gpu", "node") on #mesh>
!scattered = !zero.shard<192xf32, dim 0 = ("gpu", 2) on #mesh>

// STAGES-LABEL: func @gather_of_the_first_hop
func.func @gather_of_the_first_hop(%g: tensor<192xf32>) -> tensor<48xf32> {
  // STAGES: zero.all_to_all %arg0
  // STAGES-NOT: zero.all_to_all %arg0
  // STAGES: zero.all_gather
  %0 = zero.from_local %g : tensor<192xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["node"] : !whole to !hop
  %2 = zero.reduce_scatter sum %1 along ["gpu"] : !hop to !piece
  %3 = zero.all_gather %2 along ["node"] : !piece to !scattered
  %4 = zero.to_local %3 : !scattered to tensor<48xf32>
  return %4 : tensor<48xf32>
}

// -----

// Two decodes read what was gathered: the sum is cut into stages, the gather is
// not.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<192x8xf32, dim 0 = (4, 2) on #mesh>
!hop = !zero.shard<192x8xf32, dim 0 = ("gpu", 2) on #mesh>
!piece = !zero.shard<192x8xf32, dim 0 = ("gpu", "node") on #mesh>
!sent = !zero.shard<192x8xf32, dim 0 = ("gpu", "node") on #mesh, #zero.quant<i8, block = 32>>
!read = !zero.shard<192x8xf32, dim 0 = ("gpu", 2) on #mesh, #zero.quant<i8, block = 32>>

// CHECK-LABEL: func @two_decodes
// STAGES-LABEL: func @two_decodes
// STAGES-COUNT-1: zero.all_gather
// STAGES-NOT: zero.all_gather
// STAGES-COUNT-2: zero.decode
func.func @two_decodes(%g: tensor<192x8xf32>) -> (tensor<48x8xf32>, tensor<48x8xf32>) {
  %0 = zero.from_local %g : tensor<192x8xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["gpu"] : !whole to !hop
  %2 = zero.reduce_scatter sum %1 along ["node"] : !hop to !piece
  %3 = zero.encode %2 : !piece to !sent
  %4 = zero.all_gather %3 along ["node"] : !sent to !read
  %5 = zero.decode %4 : !read to !hop
  %6 = zero.decode %4 : !read to !hop
  %7 = zero.to_local %5 : !hop to tensor<48x8xf32>
  %8 = zero.to_local %6 : !hop to tensor<48x8xf32>
  return %7, %8 : tensor<48x8xf32>, tensor<48x8xf32>
}
