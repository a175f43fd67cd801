// RUN: zpp-opt %s --zero-decompose-all-gather --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-decompose-all-gather --zero-decompose-all-gather \
// RUN:   --split-input-file | FileCheck %s

// A quantized gather: every unit is packed and quantized, wire chunks travel.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<32x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!sent = !zero.shard<32x64xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8, block = 128>>
!received = !zero.shard<32x64xbf16, dim 0 = (2, 4) on #mesh, #zero.quant<i8, block = 128>>
!whole = !zero.shard<32x64xbf16, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @quantized
func.func @quantized(%w: tensor<4x64xbf16>) -> tensor<32x64xbf16> {
  // CHECK: zero.pack_slices %arg0 slices <dim = 0, factors = [], chunk = []> {{.*}} -> tensor<1x4x64xbf16>
  // CHECK: %[[CODES:.*]] = zero.quantize {{.*}} -> tensor<1x272xi8>
  // CHECK: %[[STACKED:.*]] = zero.all_gather_chunks %[[CODES]] along ["node", "gpu"] on #mesh into {{.*}} {zpp.origin = {id = 5 : i64}} {{.*}} -> tensor<8x1x272xi8>
  // CHECK: %[[ORDERED:.*]] = zero.unpack_slices %[[STACKED]] slices <dim = 0, factors = [2, 4], chunk = [0, 1]> {{.*}} -> tensor<8x272xi8>
  // CHECK: %[[UNITS:.*]] = zero.dequantize %[[ORDERED]] {{.*}} -> tensor<8x4x64xbf16>
  // CHECK: %[[WHOLE:.*]] = zero.unpack_slices %[[UNITS]] slices <dim = 0, factors = [2, 4], chunk = [0, 1]> {{.*}} -> tensor<32x64xbf16>
  // CHECK: return %[[WHOLE]]
  %0 = zero.from_local %w : tensor<4x64xbf16> to !primary
  %1 = zero.encode %0 : !primary to !sent
  %2 = zero.all_gather %1 along ["node", "gpu"] {zpp.origin = {id = 5}} : !sent to !received
  %3 = zero.decode %2 : !received to !whole
  %4 = zero.to_local %3 : !whole to tensor<32x64xbf16>
  return %4 : tensor<32x64xbf16>
}

// -----

// A gather of differences: the ops read what is held as it is.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<32x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!sent = !zero.shard<32x64xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i4, block = 128>>
!received = !zero.shard<32x64xbf16, dim 0 = (2, "gpu") on #mesh, #zero.quant<i4, block = 128>>
!secondary = !zero.shard<32x64xbf16, dim 0 = (2, "gpu") on #mesh>

// CHECK-LABEL: func @differences
func.func @differences(%w: tensor<4x64xbf16>, %own: tensor<4x64xbf16>, %held: tensor<8x64xbf16>) -> tensor<8x64xbf16> {
  // CHECK-NOT: zero.pack_slices
  // CHECK: %[[CODES:.*]] = zero.quantize_difference %arg0 minus %arg1 quant <i4, block = 128> slices <dim = 0, factors = [], chunk = []> {{.*}} -> tensor<1x144xi8>
  // CHECK: %[[STACKED:.*]] = zero.all_gather_chunks %[[CODES]] along ["node"]
  // CHECK: %[[ORDERED:.*]] = zero.unpack_slices %[[STACKED]] slices <dim = 0, factors = [2], chunk = [0]> {{.*}} -> tensor<2x144xi8>
  // CHECK: %[[AFTER:.*]] = zero.dequantize_add %[[ORDERED]] plus %arg2 quant <i4, block = 128> slices <dim = 0, factors = [2], chunk = [0]> {{.*}} -> tensor<8x64xbf16>
  // CHECK: return %[[AFTER]]
  %0 = zero.from_local %w : tensor<4x64xbf16> to !primary
  %1 = zero.from_local %own : tensor<4x64xbf16> to !primary
  %2 = zero.encode %0 minus %1 : !primary to !sent
  %3 = zero.all_gather %2 along ["node"] : !sent to !received
  %4 = zero.from_local %held : tensor<8x64xbf16> to !secondary
  %5 = zero.decode %3 plus %4 : !received to !secondary
  %6 = zero.to_local %5 : !secondary to tensor<8x64xbf16>
  return %6 : tensor<8x64xbf16>
}

// -----

// Two hops. Between them a device holds a unit of each node; the second hop puts
// the gpus' units between them. What is kept stays marked.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<5x64xf32, dim 1 = ("node", "gpu") on #mesh>
!secondary = !zero.shard<5x64xf32, dim 1 = (2, "gpu") on #mesh>
!whole = !zero.shard<5x64xf32, dim 1 = (2, 4) on #mesh>

// CHECK-LABEL: func @two_hops
func.func @two_hops(%w: tensor<5x8xf32>) -> (tensor<5x16xf32>, tensor<5x64xf32>) {
  // CHECK: zero.all_gather_chunks %arg0 along ["node"] on #mesh into {{.*}} {zpp.keep} {{.*}} -> tensor<2x5x8xf32>
  // CHECK: %[[KEPT:.*]] = zero.unpack_slices {{.*}} slices <dim = 1, factors = [2], chunk = [0]> {{.*}} -> tensor<5x16xf32>
  // CHECK: zero.all_gather_chunks %[[KEPT]] along ["gpu"] {{.*}} -> tensor<4x5x16xf32>
  // CHECK: %[[WHOLE:.*]] = zero.unpack_slices {{.*}} slices <dim = 1, factors = [2, 4], chunk = [1]> {{.*}} -> tensor<5x64xf32>
  // CHECK: return %[[KEPT]], %[[WHOLE]]
  %0 = zero.from_local %w : tensor<5x8xf32> to !primary
  %1 = zero.all_gather %0 along ["node"] {zpp.keep} : !primary to !secondary
  %2 = zero.to_local %1 : !secondary to tensor<5x16xf32>
  %3 = zero.all_gather %1 along ["gpu"] : !secondary to !whole
  %4 = zero.to_local %3 : !whole to tensor<5x64xf32>
  return %2, %4 : tensor<5x16xf32>, tensor<5x64xf32>
}

// -----

// The exchange keeps the source of the gather.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<5x64xf32, dim 1 = ("node", "gpu") on #mesh>
!whole = !zero.shard<5x64xf32, dim 1 = (2, 4) on #mesh>

// CHECK-LABEL: func @imported
func.func @imported(%w: tensor<5x8xf32>) -> tensor<5x64xf32> {
  // CHECK: zero.all_gather_chunks %arg0 {{.*}} {zpp.reason = "fast", zpp.source = {attributes = {}}}
  %0 = zero.from_local %w : tensor<5x8xf32> to !primary
  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.reason = "fast", zpp.source = {attributes = {}}} : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<5x64xf32>
  return %2 : tensor<5x64xf32>
}

// -----

// Axes in another order than the dim's factors; padding is dropped at the end.

#mesh = #zero.mesh<"node" = 2, "gpu" = 3>
!primary = !zero.shard<10xf16, dim 0 = ("gpu", "node") on #mesh>
!whole = !zero.shard<10xf16, dim 0 = (3, 2) on #mesh>

// CHECK-LABEL: func @padded
func.func @padded(%w: tensor<2xf16>) -> tensor<10xf16> {
  // CHECK: zero.all_gather_chunks %arg0 along ["node", "gpu"] {{.*}} -> tensor<6x2xf16>
  // CHECK: zero.unpack_slices {{.*}} slices <dim = 0, factors = [3, 2], chunk = [1, 0]> {{.*}} -> tensor<10xf16>
  %0 = zero.from_local %w : tensor<2xf16> to !primary
  %1 = zero.all_gather %0 along ["node", "gpu"] : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<10xf16>
  return %2 : tensor<10xf16>
}

// -----

// Partitioned tensors that cross a function's border stay partitioned there.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

// CHECK-LABEL: func @border
func.func @border(%p: !primary) -> !whole {
  // CHECK: %[[LOCAL:.*]] = zero.to_local %arg0
  // CHECK: zero.all_gather_chunks %[[LOCAL]]
  // CHECK: %[[RESULT:.*]] = zero.from_local
  // CHECK: return %[[RESULT]]
  %0 = zero.all_gather %p along ["node", "gpu"] : !primary to !whole
  return %0 : !whole
}
