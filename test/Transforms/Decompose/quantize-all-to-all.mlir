// RUN: zpp-opt %s --zero-quantize-all-to-all --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-quantize-all-to-all --zero-quantize-all-to-all \
// RUN:   --split-input-file | FileCheck %s

// Codes and scales of a chunk travel together.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @quantize
func.func @quantize(%g: tensor<4x64x64xbf16>) -> tensor<4x64x64xf32> {
  // 64 * 64 codes and 32 scales of 2 bytes.
  // CHECK: %[[SENT:.*]] = zero.quantize %arg0 quant <i8, block = 128> into {{.*}} -> tensor<4x4160xi8>
  // CHECK: %[[MOVED:.*]] = zero.all_to_all %[[SENT]] along ["gpu"] on #mesh into {{.*}} {zpp.origin = {id = 3 : i64}, zpp.reason = "r"} : tensor<4x4160xi8> into tensor<4x4160xi8>
  // CHECK: %[[RESULT:.*]] = zero.dequantize %[[MOVED]] quant <i8, block = 128> into {{.*}} -> tensor<4x64x64xf32>
  // CHECK-NOT: tensor.empty
  // CHECK: return %[[RESULT]]
  %init = tensor.empty() : tensor<4x64x64xf32>
  %0 = zero.all_to_all %g along ["gpu"] on #mesh wire <i8, block = 128> into %init {zpp.origin = {id = 3}, zpp.reason = "r"} : tensor<4x64x64xbf16> into tensor<4x64x64xf32> -> tensor<4x64x64xf32>
  return %0 : tensor<4x64x64xf32>
}

// -----

// Slices that are not reordered before are quantized in their order.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @slices
func.func @slices(%g: tensor<101xf16>, %init: tensor<8x13xf32>) -> tensor<8x13xf32> {
  // 13 codes of 4 bits, padded to 16 bytes, and one scale.
  // CHECK: zero.quantize %arg0 quant <i4, block = 32> slices <dim = 0, factors = [8], chunk = [0]> {{.*}} -> tensor<8x32xi8>
  %0 = zero.all_to_all %g along ["node", "gpu"] on #mesh slices <dim = 0, factors = [8], chunk = [0]> wire <i4, block = 32> into %init : tensor<101xf16> into tensor<8x13xf32> -> tensor<8x13xf32>
  return %0 : tensor<8x13xf32>
}

// -----

// Nothing to do: no wire format, buffers.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @nothing
// CHECK-NOT: zero.quantize
func.func @nothing(%g: tensor<2x8xf32>, %init: tensor<2x8xf32>, %b: memref<2x8xf32>, %d: memref<2x8xf32>) -> tensor<2x8xf32> {
  %0 = zero.all_to_all %g along ["node"] on #mesh into %init : tensor<2x8xf32> into tensor<2x8xf32> -> tensor<2x8xf32>
  zero.all_to_all %b along ["node"] on #mesh wire <i8, block = 32> into %d : memref<2x8xf32> into memref<2x8xf32>
  return %0 : tensor<2x8xf32>
}
