// RUN: zpp-opt %s --zero-reorder-slices --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-reorder-slices --zero-reorder-slices --split-input-file \
// RUN:   | FileCheck %s

// The data for one device becomes contiguous.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @reorder
func.func @reorder(%g: tensor<256x64xbf16>, %init: tensor<4x64x64xf32>) -> tensor<4x64x64xf32> {
  // CHECK: %[[EMPTY:.*]] = tensor.empty() : tensor<4x64x64xbf16>
  // CHECK: %[[PACKED:.*]] = zero.pack_slices %arg0 slices <dim = 0, factors = [2, 4], chunk = [1]> into %[[EMPTY]]
  // CHECK: zero.all_to_all %[[PACKED]] along ["gpu"] on #mesh wire <i8, block = 128> into %arg1 {zpp.origin = {}}
  // CHECK-NOT: zero.pack_slices
  %0 = zero.all_to_all %g along ["gpu"] on #mesh slices <dim = 0, factors = [2, 4], chunk = [1]> wire <i8, block = 128> into %init {zpp.origin = {}} : tensor<256x64xbf16> into tensor<4x64x64xf32> -> tensor<4x64x64xf32>
  return %0 : tensor<4x64x64xf32>
}

// -----

// Padding, a stage, another dim, several axes in another order.

#mesh = #zero.mesh<"rack" = 2, "node" = 2, "gpu" = 3>

// CHECK-LABEL: func @padded
func.func @padded(%g: tensor<2x35xf32>, %init: tensor<6x2x4xf32>) -> tensor<6x2x4xf32> {
  // CHECK: zero.pack_slices {{.*}} slices <dim = 1, factors = [2, 2, 3], chunk = [2, 0], stage = 0 of 2> {{.*}} -> tensor<6x2x4xf32>
  // CHECK: zero.all_to_all {{.*}} along ["gpu", "rack"]
  %0 = zero.all_to_all %g along ["gpu", "rack"] on #mesh slices <dim = 1, factors = [2, 2, 3], chunk = [2, 0], stage = 0 of 2> into %init : tensor<2x35xf32> into tensor<6x2x4xf32> -> tensor<6x2x4xf32>
  return %0 : tensor<6x2x4xf32>
}

// -----

// Nothing to do: chunks that lie together, buffers.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @nothing
// CHECK-NOT: zero.pack_slices
func.func @nothing(%g: tensor<2x8xf32>, %init: tensor<2x8xf32>, %b: memref<16xf32>, %d: memref<2x8xf32>) -> tensor<2x8xf32> {
  %0 = zero.all_to_all %g along ["node"] on #mesh into %init : tensor<2x8xf32> into tensor<2x8xf32> -> tensor<2x8xf32>
  // CHECK: slices <dim = 0, factors = [2], chunk = [0]>
  zero.all_to_all %b along ["node"] on #mesh slices <dim = 0, factors = [2], chunk = [0]> into %d : memref<16xf32> into memref<2x8xf32>
  return %0 : tensor<2x8xf32>
}
