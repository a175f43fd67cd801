// RUN: zpp-opt %s --zero-fuse-quantization --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-fuse-quantization --zero-fuse-quantization \
// RUN:   --split-input-file | FileCheck %s

// Both hops of a gradient: reorder and quantize, dequantize, reduce, reorder and
// quantize again, dequantize and reduce become one op each.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @scatter
func.func @scatter(%g: tensor<256x64xbf16>, %a: tensor<4x64x64xbf16>, %b: tensor<4x4160xi8>, %c: tensor<4x4160xi8>,
                   %d: tensor<4x64x64xf32>, %e: tensor<64x64xf32>, %f: tensor<2x32x64xf32>, %h: tensor<2x1056xi8>,
                   %i: tensor<2x1056xi8>, %j: tensor<2x32x64xf32>, %k: tensor<32x64xbf16>) -> tensor<32x64xbf16> {
  // CHECK-NEXT: %[[SENT:.*]] = zero.quantize %arg0 quant <i8, block = 128> slices <dim = 0, factors = [2, 4], chunk = [1]>
  %0 = zero.pack_slices %g slices <dim = 0, factors = [2, 4], chunk = [1]> into %a : tensor<256x64xbf16> into tensor<4x64x64xbf16> -> tensor<4x64x64xbf16>
  %1 = zero.quantize %0 quant <i8, block = 128> into %b : tensor<4x64x64xbf16> into tensor<4x4160xi8> -> tensor<4x4160xi8>
  // CHECK-NEXT: %[[RECEIVED:.*]] = zero.all_to_all %[[SENT]]
  %2 = zero.all_to_all %1 along ["gpu"] on #mesh into %c : tensor<4x4160xi8> into tensor<4x4160xi8> -> tensor<4x4160xi8>
  // CHECK-NEXT: %[[SENT:.*]] = zero.dequantize_reduce_quantize sum %[[RECEIVED]] quant <i8, block = 128> partial tensor<64x64xf32> to <i4, block = 128> slices <dim = 0, factors = [2], chunk = [0]>
  %3 = zero.dequantize %2 quant <i8, block = 128> into %d : tensor<4x4160xi8> into tensor<4x64x64xf32> -> tensor<4x64x64xf32>
  %4 = zero.reduce sum %3 into %e : tensor<4x64x64xf32> into tensor<64x64xf32> -> tensor<64x64xf32>
  %5 = zero.pack_slices %4 slices <dim = 0, factors = [2], chunk = [0]> into %f : tensor<64x64xf32> into tensor<2x32x64xf32> -> tensor<2x32x64xf32>
  %6 = zero.quantize %5 quant <i4, block = 128> into %h : tensor<2x32x64xf32> into tensor<2x1056xi8> -> tensor<2x1056xi8>
  // CHECK-NEXT: %[[RECEIVED:.*]] = zero.all_to_all %[[SENT]]
  %7 = zero.all_to_all %6 along ["node"] on #mesh into %i : tensor<2x1056xi8> into tensor<2x1056xi8> -> tensor<2x1056xi8>
  // CHECK-NEXT: %[[SUM:.*]] = zero.dequantize_reduce sum %[[RECEIVED]] quant <i4, block = 128>
  // CHECK-NEXT: return %[[SUM]]
  %8 = zero.dequantize %7 quant <i4, block = 128> into %j : tensor<2x1056xi8> into tensor<2x32x64xf32> -> tensor<2x32x64xf32>
  %9 = zero.reduce sum %8 into %k : tensor<2x32x64xf32> into tensor<32x64xbf16> -> tensor<32x64xbf16>
  return %9 : tensor<32x64xbf16>
}

// -----

// A gather: the chunks are read in the order in which they come. Destinations
// that nothing uses any more go.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @gather
func.func @gather(%stacked: tensor<4x2x48xi8>) -> tensor<4x64xbf16> {
  // CHECK-NEXT: %[[EMPTY:.*]] = tensor.empty() : tensor<4x64xbf16>
  // CHECK-NEXT: %[[WHOLE:.*]] = zero.dequantize %arg0 quant <i8, block = 128> slices <dim = 1, factors = [2, 4], chunk = [1, 0]> into %[[EMPTY]]
  // CHECK-NEXT: return %[[WHOLE]]
  %0 = tensor.empty() : tensor<8x48xi8>
  %1 = zero.unpack_slices %stacked slices <dim = 0, factors = [2, 4], chunk = [1]> into %0 : tensor<4x2x48xi8> into tensor<8x48xi8> -> tensor<8x48xi8>
  %2 = tensor.empty() : tensor<8x4x8xbf16>
  %3 = zero.dequantize %1 quant <i8, block = 128> into %2 : tensor<8x48xi8> into tensor<8x4x8xbf16> -> tensor<8x4x8xbf16>
  %4 = tensor.empty() : tensor<4x64xbf16>
  %5 = zero.unpack_slices %3 slices <dim = 1, factors = [2, 4], chunk = [0, 1]> into %4 : tensor<8x4x8xbf16> into tensor<4x64xbf16> -> tensor<4x64xbf16>
  return %5 : tensor<4x64xbf16>
}

// -----

// Differences, too.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @gather_differences
func.func @gather_differences(%stacked: tensor<4x2x48xi8>, %held: tensor<4x64xbf16>) -> tensor<4x64xbf16> {
  // CHECK-NEXT: %[[EMPTY:.*]] = tensor.empty() : tensor<4x64xbf16>
  // CHECK-NEXT: %[[WHOLE:.*]] = zero.dequantize_add %arg0 plus %arg1 quant <i8, block = 128> slices <dim = 1, factors = [2, 4], chunk = [1, 0]> into %[[EMPTY]]
  // CHECK-NEXT: return %[[WHOLE]]
  %0 = tensor.empty() : tensor<8x48xi8>
  %1 = zero.unpack_slices %stacked slices <dim = 0, factors = [2, 4], chunk = [1]> into %0 : tensor<4x2x48xi8> into tensor<8x48xi8> -> tensor<8x48xi8>
  %2 = tensor.empty() : tensor<4x64xbf16>
  %3 = zero.dequantize_add %1 plus %held quant <i8, block = 128> slices <dim = 1, factors = [2, 4], chunk = [0, 1]> into %2 : tensor<8x48xi8>, tensor<4x64xbf16> into tensor<4x64xbf16> -> tensor<4x64xbf16>
  return %3 : tensor<4x64xbf16>
}

// -----

// Ops with other readers stay. A sum of values that were rounded to bf16 is
// another sum.

// CHECK-LABEL: func @stays
func.func @stays(%g: tensor<64xf32>, %a: tensor<2x32xf32>, %b: tensor<2x48xi8>, %c: tensor<2x32xbf16>, %d: tensor<32xf32>) -> (tensor<2x32xf32>, tensor<2x48xi8>, tensor<32xf32>) {
  // CHECK: %[[PACKED:.*]] = zero.pack_slices
  // CHECK: zero.quantize %[[PACKED]]
  %0 = zero.pack_slices %g slices <dim = 0, factors = [2], chunk = [0]> into %a : tensor<64xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
  %1 = zero.quantize %0 quant <i8, block = 32> into %b : tensor<2x32xf32> into tensor<2x48xi8> -> tensor<2x48xi8>
  // CHECK: %[[VALUES:.*]] = zero.dequantize
  // CHECK: zero.reduce sum %[[VALUES]]
  %2 = zero.dequantize %1 quant <i8, block = 32> into %c : tensor<2x48xi8> into tensor<2x32xbf16> -> tensor<2x32xbf16>
  %3 = zero.reduce sum %2 into %d : tensor<2x32xbf16> into tensor<32xf32> -> tensor<32xf32>
  return %0, %1, %3 : tensor<2x32xf32>, tensor<2x48xi8>, tensor<32xf32>
}

// -----

// Sums of rotated values stay rotated up to the next hop where its slices are
// whole groups of 32 elements. Otherwise they are rotated back and anew.

// CHECK-LABEL: func @rotated
func.func @rotated(%a: tensor<2x80xi8>, %b: tensor<2x48xi8>) -> (tensor<2x48xi8>, tensor<2x32xi8>) {
  // CHECK: zero.dequantize_reduce_quantize sum %arg0 quant <i8, block = 128, rotate = 32> partial tensor<64xf32> to <i8, block = 32, rotate = 32>
  %0 = tensor.empty() : tensor<64xf32>
  %1 = zero.dequantize_reduce sum %a quant <i8, block = 128, rotate = 32> into %0 : tensor<2x80xi8> into tensor<64xf32> -> tensor<64xf32>
  %2 = tensor.empty() : tensor<2x48xi8>
  %3 = zero.quantize %1 quant <i8, block = 32, rotate = 32> slices <dim = 0, factors = [2], chunk = [0]> into %2 : tensor<64xf32> into tensor<2x48xi8> -> tensor<2x48xi8>
  // CHECK: %[[SUM:.*]] = zero.dequantize_reduce sum %arg1 quant <i8, block = 128, rotate = 32>
  // CHECK: zero.quantize %[[SUM]] quant <i8, block = 32, rotate = 32>
  %4 = tensor.empty() : tensor<32xf32>
  %5 = zero.dequantize_reduce sum %b quant <i8, block = 128, rotate = 32> into %4 : tensor<2x48xi8> into tensor<32xf32> -> tensor<32xf32>
  %6 = tensor.empty() : tensor<2x32xi8>
  %7 = zero.quantize %5 quant <i8, block = 32, rotate = 32> slices <dim = 0, factors = [2], chunk = [0]> into %6 : tensor<32xf32> into tensor<2x32xi8> -> tensor<2x32xi8>
  return %3, %7 : tensor<2x48xi8>, tensor<2x32xi8>
}

// -----

// A hop that rotates and one that does not are two ops, and so are they where
// the sum between them is rounded to less than f32.

// CHECK-LABEL: func @rotated_once
func.func @rotated_once(%a: tensor<2x80xi8>) -> (tensor<2x48xi8>, tensor<2x48xi8>) {
  // CHECK: zero.dequantize_reduce sum %arg0 quant <i8, block = 128, rotate = 32>
  // CHECK: zero.quantize %{{.*}} quant <i8, block = 32> slices
  %0 = tensor.empty() : tensor<64xf32>
  %1 = zero.dequantize_reduce sum %a quant <i8, block = 128, rotate = 32> into %0 : tensor<2x80xi8> into tensor<64xf32> -> tensor<64xf32>
  %2 = tensor.empty() : tensor<2x48xi8>
  %3 = zero.quantize %1 quant <i8, block = 32> slices <dim = 0, factors = [2], chunk = [0]> into %2 : tensor<64xf32> into tensor<2x48xi8> -> tensor<2x48xi8>
  // CHECK: zero.dequantize_reduce sum %arg0 quant <i8, block = 128, rotate = 32> {{.*}} tensor<64xbf16>
  // CHECK: zero.quantize %{{.*}} quant <i8, block = 32, rotate = 32>
  %4 = tensor.empty() : tensor<64xbf16>
  %5 = zero.dequantize_reduce sum %a quant <i8, block = 128, rotate = 32> into %4 : tensor<2x80xi8> into tensor<64xbf16> -> tensor<64xbf16>
  %6 = zero.quantize %5 quant <i8, block = 32, rotate = 32> slices <dim = 0, factors = [2], chunk = [0]> into %2 : tensor<64xbf16> into tensor<2x48xi8> -> tensor<2x48xi8>
  return %3, %6 : tensor<2x48xi8>, tensor<2x48xi8>
}

// -----

// Slices of other chunks than the wire has stay apart.

// CHECK-LABEL: func @other_chunks
// CHECK: zero.dequantize %{{.*}} quant <i8, block = 128> into
// CHECK: zero.unpack_slices
func.func @other_chunks(%x: tensor<8x48xi8>, %d: tensor<8x4x8xbf16>, %e: tensor<4x64xbf16>) -> tensor<4x64xbf16> {
  %0 = zero.dequantize %x quant <i8, block = 128> into %d
      : tensor<8x48xi8> into tensor<8x4x8xbf16> -> tensor<8x4x8xbf16>
  %1 = zero.unpack_slices %0 slices <dim = 1, factors = [1, 4], chunk = [0, 1]> into %e
      : tensor<8x4x8xbf16> into tensor<4x64xbf16> -> tensor<4x64xbf16>
  return %1 : tensor<4x64xbf16>
}

// -----

// Bytes whose rows are not chunks of the wire are reordered first.

// CHECK-LABEL: func @other_rows
// CHECK: zero.unpack_slices %{{.*}} : tensor<2x2x96xi8>
// CHECK: zero.dequantize
func.func @other_rows(%b: tensor<2x2x96xi8>, %o: tensor<8x48xi8>, %d: tensor<8x4x8xbf16>, %e: tensor<4x64xbf16>) -> tensor<4x64xbf16> {
  %0 = zero.unpack_slices %b slices <dim = 0, factors = [2, 4], chunk = [1]> into %o
      : tensor<2x2x96xi8> into tensor<8x48xi8> -> tensor<8x48xi8>
  %1 = zero.dequantize %0 quant <i8, block = 128> into %d
      : tensor<8x48xi8> into tensor<8x4x8xbf16> -> tensor<8x4x8xbf16>
  %2 = zero.unpack_slices %1 slices <dim = 1, factors = [2, 4], chunk = [0, 1]> into %e
      : tensor<8x4x8xbf16> into tensor<4x64xbf16> -> tensor<4x64xbf16>
  return %2 : tensor<4x64xbf16>
}
