// RUN: zpp-opt %s --convert-zero-to-stablehlo | FileCheck %s --implicit-check-not=zero. --implicit-check-not=tensor.
// RUN: zpp-opt %s --convert-zero-to-stablehlo --mlir-print-debuginfo | FileCheck %s --check-prefix=LOC

// test/python/test_lowering.py executes what stands here, on values and shapes of
// all kinds.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

// 15 rows are padded to 8 slices of 2; dims that stay neighbors move as one.
// CHECK-LABEL: func @pack_slices
// CHECK-SAME: (%[[G:.*]]: tensor<15x3xbf16>)
func.func @pack_slices(%g: tensor<15x3xbf16>) -> tensor<4x4x3xbf16> {
  // CHECK-NEXT: %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
  // CHECK-NEXT: %[[PADDED:.*]] = stablehlo.pad %[[G]], %[[ZERO]], low = [0, 0], high = [1, 0], interior = [0, 0]
  // CHECK-NEXT: %[[SLICES:.*]] = stablehlo.reshape %[[PADDED]] : (tensor<16x3xbf16>) -> tensor<2x4x6xbf16>
  // CHECK-NEXT: %[[MOVED:.*]] = stablehlo.transpose %[[SLICES]], dims = [1, 0, 2] : (tensor<2x4x6xbf16>) -> tensor<4x2x6xbf16>
  // CHECK-NEXT: %[[CHUNKS:.*]] = stablehlo.reshape %[[MOVED]] : (tensor<4x2x6xbf16>) -> tensor<4x4x3xbf16>
  // CHECK-NEXT: return %[[CHUNKS]]
  %e = tensor.empty() : tensor<4x4x3xbf16>
  %0 = zero.pack_slices %g slices <dim = 0, factors = [2, 4], chunk = [1]> into %e
      : tensor<15x3xbf16> into tensor<4x4x3xbf16> -> tensor<4x4x3xbf16>
  return %0 : tensor<4x4x3xbf16>
}

// The last stage of three takes the last row of every unit.
// CHECK-LABEL: func @pack_stage
func.func @pack_stage(%g: tensor<5x24x2xf32>) -> tensor<4x5x2x2xf32> {
  // CHECK: stablehlo.reshape %{{.*}} : (tensor<5x24x2xf32>) -> tensor<40x3x2xf32>
  // CHECK-NEXT: stablehlo.slice %{{.*}} [0:40, 2:3, 0:2]
  // CHECK-NEXT: stablehlo.reshape %{{.*}} : (tensor<40x1x2xf32>) -> tensor<10x4x2xf32>
  // CHECK-NEXT: stablehlo.transpose %{{.*}}, dims = [1, 0, 2] : (tensor<10x4x2xf32>) -> tensor<4x10x2xf32>
  // CHECK-NEXT: stablehlo.reshape %{{.*}} : (tensor<4x10x2xf32>) -> tensor<4x5x2x2xf32>
  %e = tensor.empty() : tensor<4x5x2x2xf32>
  %0 = zero.pack_slices %g slices <dim = 1, factors = [2, 4], chunk = [1], stage = 2 of 3> into %e
      : tensor<5x24x2xf32> into tensor<4x5x2x2xf32> -> tensor<4x5x2x2xf32>
  return %0 : tensor<4x5x2x2xf32>
}

// Chunks that are contiguous already are not moved.
// CHECK-LABEL: func @pack_contiguous
func.func @pack_contiguous(%g: tensor<16x3xbf16>) -> tensor<8x2x3xbf16> {
  // CHECK-NEXT: %[[CHUNKS:.*]] = stablehlo.reshape
  // CHECK-NEXT: return %[[CHUNKS]]
  %e = tensor.empty() : tensor<8x2x3xbf16>
  %0 = zero.pack_slices %g slices <dim = 0, factors = [2, 4], chunk = [0, 1]> into %e
      : tensor<16x3xbf16> into tensor<8x2x3xbf16> -> tensor<8x2x3xbf16>
  return %0 : tensor<8x2x3xbf16>
}

// CHECK-LABEL: func @unpack_slices
func.func @unpack_slices(%c: tensor<4x4x3xbf16>) -> tensor<15x3xbf16> {
  // CHECK-NEXT: stablehlo.reshape %{{.*}} : (tensor<4x4x3xbf16>) -> tensor<4x2x6xbf16>
  // CHECK-NEXT: stablehlo.transpose %{{.*}}, dims = [1, 0, 2]
  // CHECK-NEXT: stablehlo.reshape %{{.*}} : (tensor<2x4x6xbf16>) -> tensor<16x3xbf16>
  // CHECK-NEXT: stablehlo.slice %{{.*}} [0:15, 0:3]
  // CHECK-NEXT: return
  %e = tensor.empty() : tensor<15x3xbf16>
  %0 = zero.unpack_slices %c slices <dim = 0, factors = [2, 4], chunk = [1]> into %e
      : tensor<4x4x3xbf16> into tensor<15x3xbf16> -> tensor<15x3xbf16>
  return %0 : tensor<15x3xbf16>
}

//===----------------------------------------------------------------------===//
// Quantization
//===----------------------------------------------------------------------===//

// The difference is taken before the slices, in f32, with what is subnormal as
// zero, and what is held and not finite, too.
// CHECK-LABEL: func @quantize_difference
func.func @quantize_difference(%g: tensor<256x64xbf16>, %h: tensor<256x64xbf16>) -> tensor<4x4160xi8> {
  // CHECK: %[[G:.*]] = stablehlo.convert %arg0 : (tensor<256x64xbf16>) -> tensor<256x64xf32>
  // CHECK: %[[GFLUSHED:.*]] = stablehlo.select %{{.*}}, %{{.*}}, %[[G]]
  // CHECK: %[[H:.*]] = stablehlo.convert %arg1 : (tensor<256x64xbf16>) -> tensor<256x64xf32>
  // CHECK: %[[HFLUSHED:.*]] = stablehlo.select %{{.*}}, %{{.*}}, %[[H]]
  // CHECK: %[[HFINITE:.*]] = stablehlo.select %{{.*}}, %[[HFLUSHED]], %{{.*}}
  // CHECK: %[[D:.*]] = stablehlo.subtract %[[GFLUSHED]], %[[HFINITE]]
  // CHECK: %[[FLUSHED:.*]] = stablehlo.select %{{.*}}, %{{.*}}, %[[D]]
  // CHECK: stablehlo.transpose {{.*}}, dims = [1, 0, 2] : (tensor<2x4x2048xf32>)
  %e = tensor.empty() : tensor<4x4160xi8>
  %0 = zero.quantize_difference %g minus %h quant <i8, block = 128> slices <dim = 0, factors = [2, 4], chunk = [1]> into %e
      : tensor<256x64xbf16>, tensor<256x64xbf16> into tensor<4x4160xi8> -> tensor<4x4160xi8>
  return %0 : tensor<4x4160xi8>
}

// The sum is rounded once, after the values are in their places.
// CHECK-LABEL: func @dequantize_add
func.func @dequantize_add(%b: tensor<4x528xi8>, %h: tensor<77x52xf16>) -> tensor<77x52xf16> {
  // CHECK: %[[VALUES:.*]] = stablehlo.multiply %{{.*}}, %{{.*}} : tensor<4x1001xf32>
  // CHECK-NOT: f16
  // CHECK: %[[H:.*]] = stablehlo.convert %arg1 : (tensor<77x52xf16>) -> tensor<77x52xf32>
  // CHECK: %[[HFLUSHED:.*]] = stablehlo.select %{{.*}}, %{{.*}}, %[[H]]
  // CHECK: %[[HFINITE:.*]] = stablehlo.select %{{.*}}, %[[HFLUSHED]], %{{.*}}
  // CHECK: %[[SUM:.*]] = stablehlo.add %[[HFINITE]], %{{.*}} : tensor<77x52xf32>
  // CHECK: %[[FLUSHED:.*]] = stablehlo.select %{{.*}}, %{{.*}}, %[[SUM]]
  // CHECK: %[[ROUNDED:.*]] = stablehlo.convert %[[FLUSHED]] : (tensor<77x52xf32>) -> tensor<77x52xf16>
  %e = tensor.empty() : tensor<77x52xf16>
  %0 = zero.dequantize_add %b plus %h quant <i4, block = 128> slices <dim = 1, factors = [4], chunk = [0]> into %e
      : tensor<4x528xi8>, tensor<77x52xf16> into tensor<77x52xf16> -> tensor<77x52xf16>
  return %0 : tensor<77x52xf16>
}

// Nothing to compute.
// CHECK-LABEL: func @no_difference
func.func @no_difference(%b: tensor<4x0xi8>, %h: tensor<4x0xf16>) -> tensor<4x0xf16> {
  // CHECK-NOT: stablehlo.{{(add|multiply)}}
  // CHECK: %[[ZERO:.*]] = stablehlo.broadcast_in_dim{{.*}} -> tensor<4x0xf16>
  // CHECK-NEXT: return %[[ZERO]]
  %e = tensor.empty() : tensor<4x0xf16>
  %0 = zero.dequantize_add %b plus %h quant <i4, block = 128> into %e
      : tensor<4x0xi8>, tensor<4x0xf16> into tensor<4x0xf16> -> tensor<4x0xf16>
  return %0 : tensor<4x0xf16>
}

// CHECK-LABEL: func @quantize_i8
// CHECK-SAME: (%[[G:.*]]: tensor<256x64xbf16>)
func.func @quantize_i8(%g: tensor<256x64xbf16>) -> tensor<4x4160xi8> {
  // Slices, blocks, and their largest magnitudes as integers.
  // CHECK: stablehlo.transpose %{{.*}}, dims = [1, 0, 2] : (tensor<2x4x2048xbf16>) -> tensor<4x2x2048xbf16>
  // CHECK-NEXT: %[[BLOCKS:.*]] = stablehlo.reshape %{{.*}} : (tensor<4x2x2048xbf16>) -> tensor<4x32x128xbf16>
  // CHECK-NEXT: %[[X:.*]] = stablehlo.convert %[[BLOCKS]] : (tensor<4x32x128xbf16>) -> tensor<4x32x128xf32>
  // CHECK-NEXT: %[[BITS:.*]] = stablehlo.bitcast_convert %[[X]] : (tensor<4x32x128xf32>) -> tensor<4x32x128xui32>
  // CHECK: %[[MAGNITUDES:.*]] = stablehlo.and %[[BITS]], %{{.*}}
  // CHECK: %[[AMAX:.*]] = stablehlo.reduce(%[[MAGNITUDES]] init: %{{.*}}) applies stablehlo.maximum across dimensions = [2] : (tensor<4x32x128xui32>, tensor<ui32>) -> tensor<4x32xui32>

  // The scale, rounded up; 0 for zeros, NaN for what is not finite.
  // CHECK: dense<0.0078740157480314959> : tensor<f64>
  // CHECK: stablehlo.multiply %{{.*}}, %{{.*}} : tensor<4x32xf64>
  // CHECK: dense<65535> : tensor<ui32>
  // CHECK: dense<4294901760> : tensor<ui32>
  // CHECK: stablehlo.maximum
  // CHECK: dense<2143289344> : tensor<ui32>
  // CHECK: %[[SCALE:.*]] = stablehlo.select %{{.*}}, %{{.*}}, %{{.*}} : tensor<4x32xi1>, tensor<4x32xui32>

  // Codes with the inverse of the stored scale, which is exact to the last bit.
  // CHECK: stablehlo.shift_right_logical %[[SCALE]], %{{.*}}
  // CHECK: stablehlo.divide %{{.*}}, %{{.*}} : tensor<4x32xui32>
  // CHECK: %[[SCALED:.*]] = stablehlo.multiply %[[X]], %{{.*}} : tensor<4x32x128xf32>
  // CHECK: %[[ROUNDED:.*]] = stablehlo.round_nearest_even %[[SCALED]]
  // CHECK: %[[CODES:.*]] = stablehlo.select %{{.*}}, %[[ROUNDED]], %{{.*}}
  // CHECK-NEXT: stablehlo.convert %[[CODES]] : (tensor<4x32x128xf32>) -> tensor<4x32x128xi8>
  // CHECK-NEXT: %[[PAYLOAD:.*]] = stablehlo.reshape

  // Payload and scales together.
  // CHECK: stablehlo.shift_right_logical %[[SCALE]], %{{.*}}
  // CHECK-NEXT: stablehlo.convert %{{.*}} : (tensor<4x32xui32>) -> tensor<4x32xui16>
  // CHECK-NEXT: stablehlo.bitcast_convert %{{.*}} : (tensor<4x32xui16>) -> tensor<4x32x2xi8>
  // CHECK-NEXT: %[[SCALES:.*]] = stablehlo.reshape %{{.*}} : (tensor<4x32x2xi8>) -> tensor<4x64xi8>
  // CHECK-NEXT: %[[WIRE:.*]] = stablehlo.concatenate %[[PAYLOAD]], %[[SCALES]], dim = 1 : (tensor<4x4096xi8>, tensor<4x64xi8>) -> tensor<4x4160xi8>
  // CHECK-NEXT: return %[[WIRE]]
  %e = tensor.empty() : tensor<4x4160xi8>
  %0 = zero.quantize %g quant <i8, block = 128> slices <dim = 0, factors = [2, 4], chunk = [1]> into %e
      : tensor<256x64xbf16> into tensor<4x4160xi8> -> tensor<4x4160xi8>
  return %0 : tensor<4x4160xi8>
}

// Padded elements have code 0, as the gap after 501 bytes of payload has.
// CHECK-LABEL: func @quantize_i4
func.func @quantize_i4(%g: tensor<4x1001xf32>) -> tensor<4x528xi8> {
  // CHECK: stablehlo.pad %{{.*}}, %{{.*}}, low = {{.*}}, high = [0, 23]
  // CHECK: dense<0.14285714285714285> : tensor<f64>
  // CHECK: %[[CODES:.*]] = stablehlo.reshape %{{.*}} : (tensor<4x8x128xi8>) -> tensor<4x1024xi8>
  // CHECK-NEXT: %[[LOW:.*]] = stablehlo.slice %[[CODES]] [0:4, 0:1024:2]
  // CHECK-NEXT: %[[HIGH:.*]] = stablehlo.slice %[[CODES]] [0:4, 1:1024:2]
  // CHECK: dense<15> : tensor<i8>
  // CHECK: %[[MASKED:.*]] = stablehlo.and %[[LOW]], %{{.*}}
  // CHECK: %[[SHIFTED:.*]] = stablehlo.shift_left %[[HIGH]], %{{.*}}
  // CHECK: %[[PAYLOAD:.*]] = stablehlo.or %[[MASKED]], %[[SHIFTED]]
  // CHECK: stablehlo.concatenate %[[PAYLOAD]], %{{.*}}, dim = 1 : (tensor<4x512xi8>, tensor<4x16xi8>) -> tensor<4x528xi8>
  %e = tensor.empty() : tensor<4x528xi8>
  %0 = zero.quantize %g quant <i4, block = 128> into %e
      : tensor<4x1001xf32> into tensor<4x528xi8> -> tensor<4x528xi8>
  return %0 : tensor<4x528xi8>
}

// A lone block is as long as its chunk; the gaps are filled.
// CHECK-LABEL: func @quantize_short
func.func @quantize_short(%g: tensor<2x5xf16>) -> tensor<2x32xi8> {
  // CHECK: stablehlo.reshape %{{.*}} : (tensor<2x5xf16>) -> tensor<2x1x5xf16>
  // CHECK: stablehlo.pad %{{.*}}, %{{.*}}, low = {{.*}}, high = [0, 11]
  // CHECK: stablehlo.pad %{{.*}}, %{{.*}}, low = {{.*}}, high = [0, 14]
  // CHECK: stablehlo.concatenate %{{.*}}, %{{.*}}, dim = 1 : (tensor<2x16xi8>, tensor<2x16xi8>) -> tensor<2x32xi8>
  %e = tensor.empty() : tensor<2x32xi8>
  %0 = zero.quantize %g quant <i8, block = 128> into %e
      : tensor<2x5xf16> into tensor<2x32xi8> -> tensor<2x32xi8>
  return %0 : tensor<2x32xi8>
}

// CHECK-LABEL: func @dequantize_i8
func.func @dequantize_i8(%b: tensor<2x2x1024xi8>) -> tensor<4x1001xbf16> {
  // CHECK-NEXT: %[[B:.*]] = stablehlo.reshape %{{.*}} : (tensor<2x2x1024xi8>) -> tensor<4x1024xi8>
  // CHECK-NEXT: %[[CODES:.*]] = stablehlo.slice %[[B]] [0:4, 0:1001
  // CHECK-NEXT: %[[STORED:.*]] = stablehlo.slice %[[B]] [0:4, 1008:1024
  // CHECK-NEXT: stablehlo.reshape %[[STORED]] : (tensor<4x16xi8>) -> tensor<4x8x2xi8>
  // CHECK-NEXT: stablehlo.bitcast_convert %{{.*}} : (tensor<4x8x2xi8>) -> tensor<4x8xui16>
  // CHECK-NEXT: stablehlo.convert %{{.*}} : (tensor<4x8xui16>) -> tensor<4x8xui32>
  // CHECK: stablehlo.shift_left %{{.*}}, %{{.*}} : tensor<4x8xui32>
  // CHECK-NEXT: stablehlo.bitcast_convert %{{.*}} : (tensor<4x8xui32>) -> tensor<4x8xf32>
  // CHECK-NEXT: stablehlo.broadcast_in_dim %{{.*}}, dims = [0, 1] : (tensor<4x8xf32>) -> tensor<4x8x128xf32>
  // CHECK-NEXT: stablehlo.reshape
  // CHECK-NEXT: %[[SCALES:.*]] = stablehlo.slice %{{.*}} [{{[0-9]+}}:4, {{[0-9]+}}:1001
  // CHECK-NEXT: %[[VALUES:.*]] = stablehlo.convert %[[CODES]] : (tensor<4x1001xi8>) -> tensor<4x1001xf32>
  // CHECK-NEXT: %[[SCALED:.*]] = stablehlo.multiply %[[VALUES]], %[[SCALES]]
  // CHECK-NEXT: stablehlo.reduce_precision %[[SCALED]], format = e8m7
  // CHECK-NEXT: stablehlo.convert %{{.*}} : (tensor<4x1001xf32>) -> tensor<4x1001xbf16>
  // CHECK-NEXT: return
  %e = tensor.empty() : tensor<4x1001xbf16>
  %0 = zero.dequantize %b quant <i8, block = 128> into %e
      : tensor<2x2x1024xi8> into tensor<4x1001xbf16> -> tensor<4x1001xbf16>
  return %0 : tensor<4x1001xbf16>
}

// CHECK-LABEL: func @dequantize_i4
func.func @dequantize_i4(%b: tensor<4x528xi8>) -> tensor<77x52xf32> {
  // CHECK: %[[TOP:.*]] = stablehlo.constant dense<[4, 0]> : tensor<2xi8>
  // CHECK: %[[SHIFTS:.*]] = stablehlo.broadcast_in_dim %[[TOP]], dims = [2] : (tensor<2xi8>) -> tensor<4x501x2xi8>
  // CHECK-NEXT: stablehlo.shift_left %{{.*}}, %[[SHIFTS]]
  // CHECK: stablehlo.shift_right_arithmetic
  // CHECK: stablehlo.slice %{{.*}} [{{[0-9]+}}:4, {{[0-9]+}}:1001{{.*}} : (tensor<4x1002xi8>) -> tensor<4x1001xi8>
  // CHECK: stablehlo.multiply %{{.*}}, %{{.*}} : tensor<4x1001xf32>
  // CHECK: stablehlo.transpose %{{.*}}, dims = [1, 0, 2] : (tensor<4x77x13xf32>) -> tensor<77x4x13xf32>
  // CHECK: stablehlo.reshape %{{.*}} : (tensor<77x4x13xf32>) -> tensor<77x52xf32>
  %e = tensor.empty() : tensor<77x52xf32>
  %0 = zero.dequantize %b quant <i4, block = 128> slices <dim = 1, factors = [4], chunk = [0]> into %e
      : tensor<4x528xi8> into tensor<77x52xf32> -> tensor<77x52xf32>
  return %0 : tensor<77x52xf32>
}

// CHECK-LABEL: func @empty
func.func @empty(%g: tensor<2x0xf32>) -> tensor<2x0xi8> {
  // CHECK-NEXT: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i8>
  // CHECK-NEXT: %[[NONE:.*]] = stablehlo.broadcast_in_dim %[[ZERO]], dims = [] : (tensor<i8>) -> tensor<2x0xi8>
  // CHECK-NEXT: return %[[NONE]]
  %e = tensor.empty() : tensor<2x0xi8>
  %0 = zero.quantize %g quant <i8, block = 128> into %e : tensor<2x0xf32> into tensor<2x0xi8> -> tensor<2x0xi8>
  return %0 : tensor<2x0xi8>
}

//===----------------------------------------------------------------------===//
// Reduction
//===----------------------------------------------------------------------===//

// In order, in f32, with one rounding; a mean of three is a correct quotient.
// CHECK-LABEL: func @mean
func.func @mean(%c: tensor<3x5x7xbf16>) -> tensor<5x7xbf16> {
  // CHECK-NEXT: %[[X:.*]] = stablehlo.convert %{{.*}} : (tensor<3x5x7xbf16>) -> tensor<3x5x7xf32>
  // CHECK-NEXT: %[[S0:.*]] = stablehlo.slice %[[X]] [0:1, 0:5, 0:7
  // CHECK-NEXT: %[[S1:.*]] = stablehlo.slice %[[X]] [1:2, 0:5, 0:7
  // CHECK-NEXT: %[[A1:.*]] = stablehlo.add %[[S0]], %[[S1]]
  // CHECK-NEXT: %[[S2:.*]] = stablehlo.slice %[[X]] [2:3, 0:5, 0:7
  // CHECK-NEXT: %[[A2:.*]] = stablehlo.add %[[A1]], %[[S2]]
  // CHECK-NEXT: %[[WIDE:.*]] = stablehlo.convert %[[A2]] : (tensor<1x5x7xf32>) -> tensor<1x5x7xf64>
  // CHECK: dense<0.33333333333333331> : tensor<f64>
  // CHECK: stablehlo.multiply %[[WIDE]], %{{.*}} : tensor<1x5x7xf64>
  // CHECK-NEXT: stablehlo.convert %{{.*}} : (tensor<1x5x7xf64>) -> tensor<1x5x7xf32>
  // CHECK-NEXT: stablehlo.reduce_precision
  // CHECK-NEXT: stablehlo.convert %{{.*}} : (tensor<1x5x7xf32>) -> tensor<1x5x7xbf16>
  // CHECK-NEXT: stablehlo.reshape
  // CHECK-NEXT: return
  %e = tensor.empty() : tensor<5x7xbf16>
  %0 = zero.reduce mean %c into %e : tensor<3x5x7xbf16> into tensor<5x7xbf16> -> tensor<5x7xbf16>
  return %0 : tensor<5x7xbf16>
}

// CHECK-LABEL: func @mean_of_power_of_two
func.func @mean_of_power_of_two(%c: tensor<2x5xf32>) -> tensor<5xf32> {
  // CHECK-NOT: f64
  // CHECK: %[[SUM:.*]] = stablehlo.add
  // CHECK: dense<5.000000e-01> : tensor<f32>
  // CHECK: stablehlo.multiply %[[SUM]], %{{.*}}
  %e = tensor.empty() : tensor<5xf32>
  %0 = zero.reduce mean %c into %e : tensor<2x5xf32> into tensor<5xf32> -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// CHECK-LABEL: func @sum_to_f16
func.func @sum_to_f16(%c: tensor<1x5xf32>) -> tensor<5xf16> {
  // CHECK-NEXT: stablehlo.convert %{{.*}} : (tensor<1x5xf32>) -> tensor<1x5xf16>
  // CHECK-NEXT: stablehlo.reshape
  // CHECK-NEXT: return
  %e = tensor.empty() : tensor<5xf16>
  %0 = zero.reduce sum %c into %e : tensor<1x5xf32> into tensor<5xf16> -> tensor<5xf16>
  return %0 : tensor<5xf16>
}

//===----------------------------------------------------------------------===//
// Fused ops: what their parts become
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @dequantize_reduce
func.func @dequantize_reduce(%b: tensor<2x80xi8>) -> tensor<8x8xf32> {
  // CHECK: stablehlo.bitcast_convert %{{.*}} : (tensor<2x1x2xi8>) -> tensor<2x1xui16>
  // CHECK: %[[X:.*]] = stablehlo.multiply %{{.*}}, %{{.*}} : tensor<2x64xf32>
  // CHECK-NEXT: %[[S0:.*]] = stablehlo.slice %[[X]]
  // CHECK-NEXT: %[[S1:.*]] = stablehlo.slice %[[X]]
  // CHECK-NEXT: %[[SUM:.*]] = stablehlo.add %[[S0]], %[[S1]]
  // CHECK-NEXT: %[[R:.*]] = stablehlo.reshape %[[SUM]] : (tensor<1x64xf32>) -> tensor<8x8xf32>
  // CHECK-NEXT: return %[[R]]
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = zero.dequantize_reduce sum %b quant <i8, block = 128> into %e
      : tensor<2x80xi8> into tensor<8x8xf32> -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// Rotated sums are rotated back: tiny values to zero, times 1/4, then five
// stages of a + b and, by the signs, a - b or b - a of elements 16, 8, .. 1
// apart. The elements after the last whole group stay.
// CHECK-LABEL: func @dequantize_reduce_rotated
func.func @dequantize_reduce_rotated(%b: tensor<2x96xi8>) -> tensor<70xf32> {
  // CHECK: %[[SUM:.*]] = stablehlo.add %{{.*}}, %{{.*}} : tensor<1x70xf32>
  // CHECK: %[[REST:.*]] = stablehlo.slice %[[SUM]]{{.*}} -> tensor<1x6xf32>
  // CHECK: %[[WHOLE:.*]] = stablehlo.slice %[[SUM]]{{.*}} -> tensor<1x64xf32>
  // CHECK: %[[GROUPS:.*]] = stablehlo.reshape %[[WHOLE]] : (tensor<1x64xf32>) -> tensor<2x32xf32>
  // CHECK: stablehlo.compare {{.*}} : (tensor<2x32xui32>, tensor<2x32xui32>)
  // CHECK: stablehlo.constant dense<2.500000e-01> : tensor<32xf32>
  // CHECK: stablehlo.multiply %[[GROUPS]]
  // CHECK: stablehlo.select %
  // CHECK: %[[FIRST:.*]] = stablehlo.reshape {{.*}} -> tensor<2x1x2x16xf32>
  // CHECK: %[[OTHER:.*]] = stablehlo.reverse %[[FIRST]], dims = [2]
  // CHECK: stablehlo.constant dense<{{\[\[}}1.000000e+00, -1.000000e+00]]> : tensor<1x2xf32>
  // CHECK: stablehlo.add %[[OTHER]]
  // CHECK: -> tensor<2x2x2x8xf32>
  // CHECK: stablehlo.constant dense<{{\[\[}}1.000000e+00, -1.000000e+00], [1.000000e+00, 1.000000e+00]]> : tensor<2x2xf32>
  // CHECK: stablehlo.constant dense<{{\[\[}}1.000000e+00, 1.000000e+00], [1.000000e+00, -1.000000e+00]]> : tensor<2x2xf32>
  // CHECK: -> tensor<2x4x2x4xf32>
  // CHECK: -> tensor<2x8x2x2xf32>
  // CHECK: -> tensor<2x16x2x1xf32>
  // CHECK: stablehlo.concatenate %{{.*}}, %[[REST]]
  %e = tensor.empty() : tensor<70xf32>
  %0 = zero.dequantize_reduce sum %b quant <i8, block = 128, rotate = 32> into %e
      : tensor<2x96xi8> into tensor<70xf32> -> tensor<70xf32>
  return %0 : tensor<70xf32>
}

// CHECK-LABEL: func @dequantize_reduce_quantize
func.func @dequantize_reduce_quantize(%b: tensor<2x80xi8>) -> tensor<2x32xi8> {
  // CHECK: %[[SUM:.*]] = stablehlo.add
  // CHECK-NEXT: %[[PARTIAL:.*]] = stablehlo.reshape %[[SUM]] : (tensor<1x64xf32>) -> tensor<8x2x4xf32>
  // CHECK-NEXT: %[[PACKED:.*]] = stablehlo.transpose %[[PARTIAL]], dims = [1, 0, 2]
  // CHECK-NEXT: stablehlo.reshape %[[PACKED]] : (tensor<2x8x4xf32>) -> tensor<2x1x32xf32>
  // CHECK: stablehlo.round_nearest_even
  // CHECK: stablehlo.concatenate %{{.*}}, %{{.*}}, dim = 1 : (tensor<2x16xi8>, tensor<2x16xi8>) -> tensor<2x32xi8>
  %e = tensor.empty() : tensor<2x32xi8>
  %0 = zero.dequantize_reduce_quantize sum %b quant <i8, block = 128> partial tensor<8x8xf32>
      to <i4, block = 32> slices <dim = 1, factors = [2], chunk = [0]> into %e
      : tensor<2x80xi8> into tensor<2x32xi8> -> tensor<2x32xi8>
  return %0 : tensor<2x32xi8>
}

// A partial sum that is not f32 is rounded in between.
// CHECK-LABEL: func @round_partial
func.func @round_partial(%b: tensor<2x80xi8>) -> tensor<1x48xi8> {
  // CHECK: %[[SUM:.*]] = stablehlo.add
  // CHECK-NEXT: %[[ROUNDED:.*]] = stablehlo.reduce_precision %[[SUM]]
  // CHECK-NEXT: stablehlo.convert %[[ROUNDED]] : (tensor<1x64xf32>) -> tensor<1x64xbf16>
  %e = tensor.empty() : tensor<1x48xi8>
  %0 = zero.dequantize_reduce_quantize sum %b quant <i8, block = 128> partial tensor<8x8xbf16>
      to <i4, block = 32> slices <dim = 1, factors = [], chunk = []> into %e
      : tensor<2x80xi8> into tensor<1x48xi8> -> tensor<1x48xi8>
  return %0 : tensor<1x48xi8>
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @all_to_all
// LOC-LABEL: func @all_to_all
func.func @all_to_all(%b: tensor<4x80xi8>) -> tensor<4x80xi8> {
  // CHECK-NEXT: %[[R:.*]] = "stablehlo.all_to_all"(%{{.*}}) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, concat_dimension = 0 : i64, replica_groups = dense<{{\[\[}}0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, split_count = 4 : i64, split_dimension = 0 : i64}> {zpp.origin = 7 : i64} : (tensor<4x80xi8>) -> tensor<4x80xi8>
  // CHECK-NEXT: return %[[R]]
  // LOC: "stablehlo.all_to_all"{{.*}} loc(#[[ORIGIN:.*]])
  %e = tensor.empty() : tensor<4x80xi8>
  %0 = zero.all_to_all %b along ["gpu"] on #mesh into %e {test.other, zpp.origin = 7 : i64}
      : tensor<4x80xi8> into tensor<4x80xi8> -> tensor<4x80xi8> loc("gradient")
  return %0 : tensor<4x80xi8>
}

// The first axis is the most significant one in a group.
// CHECK-LABEL: func @all_to_all_order
func.func @all_to_all_order(%b: tensor<8x16xi8>) -> tensor<8x16xi8> {
  // CHECK: replica_groups = dense<{{\[\[}}0, 4, 1, 5, 2, 6, 3, 7]]> : tensor<1x8xi64>
  %e = tensor.empty() : tensor<8x16xi8>
  %0 = zero.all_to_all %b along ["gpu", "node"] on #mesh into %e
      : tensor<8x16xi8> into tensor<8x16xi8> -> tensor<8x16xi8>
  return %0 : tensor<8x16xi8>
}

// CHECK-LABEL: func @all_to_all_part
func.func @all_to_all_part(%b: tensor<2x16xi8>) -> tensor<2x16xi8> {
  // CHECK: replica_groups = dense<{{\[\[}}0, 2], [1, 3], [4, 6], [5, 7]]> : tensor<4x2xi64>
  %e = tensor.empty() : tensor<2x16xi8>
  %0 = zero.all_to_all %b along ["gpu":(1)2] on #mesh into %e
      : tensor<2x16xi8> into tensor<2x16xi8> -> tensor<2x16xi8>
  return %0 : tensor<2x16xi8>
}

// CHECK-LABEL: func @all_gather_chunks
func.func @all_gather_chunks(%b: tensor<2x80xi8>) -> tensor<2x2x80xi8> {
  // CHECK-NEXT: %[[ONE:.*]] = stablehlo.reshape %{{.*}} : (tensor<2x80xi8>) -> tensor<1x2x80xi8>
  // CHECK-NEXT: %[[R:.*]] = "stablehlo.all_gather"(%[[ONE]]) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<{{\[\[}}0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>, use_global_device_ids}> {zpp.keep} : (tensor<1x2x80xi8>) -> tensor<2x2x80xi8>
  // CHECK-NEXT: return %[[R]]
  %e = tensor.empty() : tensor<2x2x80xi8>
  %0 = zero.all_gather_chunks %b along ["node"] on #mesh into %e {zpp.keep}
      : tensor<2x80xi8> into tensor<2x2x80xi8> -> tensor<2x2x80xi8>
  return %0 : tensor<2x2x80xi8>
}

// Nothing moves over one device.
// CHECK-LABEL: func @one_device
// CHECK-SAME: (%[[B:.*]]: tensor<1x16xi8>)
func.func @one_device(%b: tensor<1x16xi8>) -> (tensor<1x16xi8>, tensor<1x1x16xi8>) {
  // CHECK-NEXT: %[[STACK:.*]] = stablehlo.reshape %[[B]] : (tensor<1x16xi8>) -> tensor<1x1x16xi8>
  // CHECK-NEXT: return %[[B]], %[[STACK]]
  %e = tensor.empty() : tensor<1x16xi8>
  %f = tensor.empty() : tensor<1x1x16xi8>
  %0 = zero.all_to_all %b along ["node"] on <"node" = 1, "gpu" = 3> into %e
      : tensor<1x16xi8> into tensor<1x16xi8> -> tensor<1x16xi8>
  %1 = zero.all_gather_chunks %b along ["node"] on <"node" = 1, "gpu" = 3> into %f
      : tensor<1x16xi8> into tensor<1x1x16xi8> -> tensor<1x1x16xi8>
  return %0, %1 : tensor<1x16xi8>, tensor<1x1x16xi8>
}

// CHECK-LABEL: func @three_gpus
func.func @three_gpus(%b: tensor<3x16xi8>) -> tensor<3x16xi8> {
  // CHECK: replica_groups = dense<{{\[\[}}0, 1, 2]]> : tensor<1x3xi64>
  %e = tensor.empty() : tensor<3x16xi8>
  %0 = zero.all_to_all %b along ["gpu"] on <"node" = 1, "gpu" = 3> into %e
      : tensor<3x16xi8> into tensor<3x16xi8> -> tensor<3x16xi8>
  return %0 : tensor<3x16xi8>
}

// A scatter that was left alone is one collective, as it came.
// CHECK-LABEL: func @plain_scatter
// CHECK-SAME: (%[[G:.*]]: tensor<3x16xbf16>)
func.func @plain_scatter(%g: tensor<3x16xbf16>) -> tensor<3x2xbf16> {
  // CHECK-NEXT: %[[R:.*]] = "stablehlo.reduce_scatter"(%[[G]]) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<{{\[\[}}0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, scatter_dimension = 1 : i64, use_global_device_ids}> ({
  // CHECK: stablehlo.add %{{.*}}, %{{.*}} : tensor<bf16>
  // CHECK: }) {zpp.origin = 1 : i64} : (tensor<3x16xbf16>) -> tensor<3x2xbf16>
  // CHECK-NEXT: return %[[R]]
  %0 = zero.from_local %g : tensor<3x16xbf16> to !zero.shard<3x16xbf16, dim 1 = (2, 4) on #mesh>
  %1 = zero.reduce_scatter sum %0 along ["node", "gpu"] {zpp.origin = 1 : i64}
      : !zero.shard<3x16xbf16, dim 1 = (2, 4) on #mesh> to !zero.shard<3x16xbf16, dim 1 = ("node", "gpu") on #mesh>
  %2 = zero.to_local %1 : !zero.shard<3x16xbf16, dim 1 = ("node", "gpu") on #mesh> to tensor<3x2xbf16>
  return %2 : tensor<3x2xbf16>
}

// So is one of a part of the axes. Within a node, slices of all nodes are summed.
// CHECK-LABEL: func @plain_inner_hop
// CHECK-SAME: (%[[G:.*]]: tensor<3x16xbf16>)
func.func @plain_inner_hop(%g: tensor<3x16xbf16>) -> tensor<3x4xbf16> {
  // CHECK-NEXT: %[[IN:.*]] = stablehlo.reshape %[[G]] : (tensor<3x16xbf16>) -> tensor<3x2x8xbf16>
  // CHECK-NEXT: %[[R:.*]] = "stablehlo.reduce_scatter"(%[[IN]]) <{{{.*}}replica_groups = dense<{{\[\[}}0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, scatter_dimension = 2 : i64
  // CHECK: }) {zpp.origin = 1 : i64} : (tensor<3x2x8xbf16>) -> tensor<3x2x2xbf16>
  // CHECK-NEXT: %[[OUT:.*]] = stablehlo.reshape %[[R]] : (tensor<3x2x2xbf16>) -> tensor<3x4xbf16>
  // CHECK-NEXT: return %[[OUT]]
  %0 = zero.from_local %g : tensor<3x16xbf16> to !zero.shard<3x16xbf16, dim 1 = (2, 4) on #mesh>
  %1 = zero.reduce_scatter sum %0 along ["gpu"] {zpp.origin = 1 : i64}
      : !zero.shard<3x16xbf16, dim 1 = (2, 4) on #mesh> to !zero.shard<3x16xbf16, dim 1 = (2, "gpu") on #mesh>
  %2 = zero.to_local %1 : !zero.shard<3x16xbf16, dim 1 = (2, "gpu") on #mesh> to tensor<3x4xbf16>
  return %2 : tensor<3x4xbf16>
}

// CHECK-LABEL: func @plain_outer_hop
// CHECK-SAME: (%[[G:.*]]: tensor<3x4xf32>)
func.func @plain_outer_hop(%g: tensor<3x4xf32>) -> tensor<3x2xf32> {
  // CHECK-NEXT: %[[R:.*]] = "stablehlo.reduce_scatter"(%[[G]]) <{{{.*}}replica_groups = dense<{{\[\[}}0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>, scatter_dimension = 1 : i64
  // CHECK: (tensor<3x4xf32>) -> tensor<3x2xf32>
  // CHECK-NEXT: return %[[R]]
  %0 = zero.from_local %g : tensor<3x4xf32> to !zero.shard<3x16xf32, dim 1 = (2, "gpu") on #mesh>
  %1 = zero.reduce_scatter sum %0 along ["node"]
      : !zero.shard<3x16xf32, dim 1 = (2, "gpu") on #mesh> to !zero.shard<3x16xf32, dim 1 = ("node", "gpu") on #mesh>
  %2 = zero.to_local %1 : !zero.shard<3x16xf32, dim 1 = ("node", "gpu") on #mesh> to tensor<3x2xf32>
  return %2 : tensor<3x2xf32>
}

// With a source it is that, and so is a gather with what orders its chunks.
// CHECK-LABEL: func @source_of_scatter
// CHECK-SAME: (%[[G:.*]]: tensor<3x16xbf16>)
func.func @source_of_scatter(%g: tensor<3x16xbf16>) -> tensor<3x2xbf16> {
  // CHECK-NEXT: %[[R:.*]] = "stablehlo.reduce_scatter"(%[[G]]) <{replica_groups = #stablehlo<some groups>, scatter_dimension = 1 : i64}> ({
  // CHECK: stablehlo.add %{{.*}}, %{{.*}} : tensor<bf16>
  // CHECK: }) {mhlo.mark = 2 : i64, zpp.origin = 1 : i64} : (tensor<3x16xbf16>) -> tensor<3x2xbf16>
  // CHECK-NEXT: return %[[R]]
  %0 = zero.from_local %g : tensor<3x16xbf16> to !zero.shard<3x16xbf16, dim 1 = (2, 4) on #mesh>
  %1 = zero.reduce_scatter sum %0 along ["node", "gpu"] {zpp.origin = 1 : i64, zpp.source = {
        attributes = {mhlo.mark = 2 : i64}, properties = {replica_groups = #stablehlo<some groups>, scatter_dimension = 1 : i64}}}
      : !zero.shard<3x16xbf16, dim 1 = (2, 4) on #mesh> to !zero.shard<3x16xbf16, dim 1 = ("node", "gpu") on #mesh>
  %2 = zero.to_local %1 : !zero.shard<3x16xbf16, dim 1 = ("node", "gpu") on #mesh> to tensor<3x2xbf16>
  return %2 : tensor<3x2xbf16>
}

// CHECK-LABEL: func @source_of_gather
// CHECK-SAME: (%[[W:.*]]: tensor<3x2xbf16>)
func.func @source_of_gather(%w: tensor<3x2xbf16>) -> tensor<3x16xbf16> {
  // CHECK-NEXT: %[[R:.*]] = "stablehlo.all_gather"(%[[W]]) <{all_gather_dim = 1 : i64, replica_groups = #stablehlo<some groups>}> {mhlo.mark = 2 : i64, zpp.origin = 1 : i64} : (tensor<3x2xbf16>) -> tensor<3x16xbf16>
  // CHECK-NEXT: return %[[R]]
  %e = tensor.empty() : tensor<8x3x2xbf16>
  %f = tensor.empty() : tensor<3x16xbf16>
  %0 = zero.all_gather_chunks %w along ["node", "gpu"] on #mesh into %e {zpp.origin = 1 : i64, zpp.source = {
        attributes = {mhlo.mark = 2 : i64}, properties = {all_gather_dim = 1 : i64, replica_groups = #stablehlo<some groups>}}}
      : tensor<3x2xbf16> into tensor<8x3x2xbf16> -> tensor<8x3x2xbf16>
  %1 = zero.unpack_slices %0 slices <dim = 1, factors = [2, 4], chunk = [0, 1]> into %f
      : tensor<8x3x2xbf16> into tensor<3x16xbf16> -> tensor<3x16xbf16>
  return %1 : tensor<3x16xbf16>
}

// Chunks that something else reads too are needed as they are.
// CHECK-LABEL: func @source_of_chunks
func.func @source_of_chunks(%w: tensor<3x2xbf16>) -> (tensor<8x3x2xbf16>, tensor<3x16xbf16>) {
  // CHECK: "stablehlo.all_gather"(%{{.*}}) <{all_gather_dim = 0 : i64, {{.*}}dense<{{\[\[}}0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<1x3x2xbf16>) -> tensor<8x3x2xbf16>
  // CHECK: stablehlo.transpose
  %e = tensor.empty() : tensor<8x3x2xbf16>
  %f = tensor.empty() : tensor<3x16xbf16>
  %0 = zero.all_gather_chunks %w along ["node", "gpu"] on #mesh into %e {zpp.source = {
        attributes = {}, properties = {all_gather_dim = 1 : i64, replica_groups = #stablehlo<some groups>}}}
      : tensor<3x2xbf16> into tensor<8x3x2xbf16> -> tensor<8x3x2xbf16>
  %1 = zero.unpack_slices %0 slices <dim = 1, factors = [2, 4], chunk = [0, 1]> into %f
      : tensor<8x3x2xbf16> into tensor<3x16xbf16> -> tensor<3x16xbf16>
  return %0, %1 : tensor<8x3x2xbf16>, tensor<3x16xbf16>
}

//===----------------------------------------------------------------------===//
// Around them
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @concat
func.func @concat(%a: tensor<2x3xf32>, %b: tensor<2x4xf32>) -> tensor<2x7xf32> {
  // CHECK-NEXT: stablehlo.concatenate %{{.*}}, %{{.*}}, dim = 1 : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<2x7xf32>
  %0 = tensor.concat dim(1) %a, %b : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<2x7xf32>
  return %0 : tensor<2x7xf32>
}

// Ops in regions of other ops are lowered where they stand; a reshape of the user
// stays.
// CHECK-LABEL: func @in_region
func.func @in_region(%x: tensor<8x8xf32>) -> tensor<16x4xf32> {
  // CHECK: sdy.manual_computation(
  %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"node", "gpu"}, {}]>] out_shardings=[<@mesh, [{"node", "gpu"}, {}]>] manual_axes={"node", "gpu"} (%y: tensor<1x8xf32>) {
    // CHECK: %[[MINE:.*]] = stablehlo.reshape %{{.*}} : (tensor<1x8xf32>) -> tensor<8xf32>
    // CHECK: stablehlo.reshape %[[MINE]] : (tensor<8xf32>) -> tensor<2x4xf32>
    %1 = stablehlo.reshape %y : (tensor<1x8xf32>) -> tensor<8xf32>
    %e = tensor.empty() : tensor<2x4xf32>
    %2 = zero.pack_slices %1 slices <dim = 0, factors = [2], chunk = [0]> into %e
        : tensor<8xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    // CHECK: sdy.return
    sdy.return %2 : tensor<2x4xf32>
  } : (tensor<8x8xf32>) -> tensor<16x4xf32>
  return %0 : tensor<16x4xf32>
}

// LOC: #[[ORIGIN]] = loc("gradient")

// -----

// Tensors as bytes, and slices of a buffer that they share.

// CHECK-LABEL: func @bytes
func.func @bytes(%g: tensor<8x3xbf16>, %q: tensor<4x16xi8>) -> (tensor<4x32xi8>, tensor<8x3xbf16>, tensor<4x4x4xi8>) {
  // CHECK: %[[BYTES:.*]] = stablehlo.bitcast_convert %arg0 : (tensor<8x3xbf16>) -> tensor<8x3x2xi8>
  // CHECK: %[[ROWS:.*]] = stablehlo.reshape %[[BYTES]] : {{.*}} -> tensor<4x12xi8>
  // CHECK: %[[ALL:.*]] = stablehlo.concatenate %arg1, %[[ROWS]], %{{.*}}{{.*}} -> tensor<4x32xi8>
  %e = tensor.empty() : tensor<4x12xi8>
  %pad = tensor.empty() : tensor<4x4xi8>
  %0 = zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0]> into %e
      : tensor<8x3xbf16> into tensor<4x12xi8> -> tensor<4x12xi8>
  %1 = tensor.concat dim(1) %q, %0, %pad : (tensor<4x16xi8>, tensor<4x12xi8>, tensor<4x4xi8>) -> tensor<4x32xi8>
  // CHECK: %[[SLICE:.*]] = stablehlo.slice %[[ALL]] [0:4, 16:28
  // CHECK: stablehlo.bitcast_convert {{.*}}x2xi8>) -> tensor<{{.*}}xbf16>
  %2 = tensor.extract_slice %1[0, 16] [4, 12] [1, 1] : tensor<4x32xi8> to tensor<4x12xi8>
  %f = tensor.empty() : tensor<8x3xbf16>
  %3 = zero.unpack_slices %2 slices <dim = 0, factors = [4], chunk = [0]> into %f
      : tensor<4x12xi8> into tensor<8x3xbf16> -> tensor<8x3xbf16>
  // CHECK: stablehlo.reshape %arg1 : (tensor<4x16xi8>) -> tensor<4x4x4xi8>
  %4 = tensor.expand_shape %q [[0], [1, 2]] output_shape [4, 4, 4] : tensor<4x16xi8> into tensor<4x4x4xi8>
  return %1, %3, %4 : tensor<4x32xi8>, tensor<8x3xbf16>, tensor<4x4x4xi8>
}
