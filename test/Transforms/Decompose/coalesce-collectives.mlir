// RUN: zpp-opt %s --zero-coalesce-collectives --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-coalesce-collectives --zero-coalesce-collectives --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-coalesce-collectives=bytes=100 --remarks-filter=none --split-input-file \
// RUN:   | FileCheck %s --check-prefix=SMALL
// RUN: zpp-opt %s --zero-coalesce-collectives=bytes=280 --remarks-filter=none --split-input-file \
// RUN:   | FileCheck %s --check-prefix=ALIKE
// RUN: zpp-opt %s --zero-coalesce-collectives --remarks-filter=zero-coalesce-collectives --split-input-file -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=REMARK
// RUN: not zpp-opt %s --zero-coalesce-collectives=bytes=-1 --split-input-file -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=NEGATIVE
// Both back ends take what comes out.
// RUN: zpp-opt %s --zero-coalesce-collectives --convert-zero-to-stablehlo --remarks-filter=none --split-input-file \
// RUN:   | FileCheck %s --check-prefix=PORTABLE

// NEGATIVE: error: expected a number of bytes to coalesce, but got -1

// Two matrices in wire chunks and a vector as it is: one exchange per hop, each
// row 272 + 144 + 8 bytes and padding. What is kept between the hops crosses the
// barrier in one piece, and is what the backward gather sends.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @gathers
// CHECK-SAME: (%[[W:.*]]: tensor<4x64xbf16>, %[[V:.*]]: tensor<2x64xbf16>, %[[B:.*]]: tensor<4xbf16>, %[[X:.*]]: tensor<f32>)
func.func @gathers(%w: tensor<4x64xbf16>, %v: tensor<2x64xbf16>, %b: tensor<4xbf16>, %x: tensor<f32>)
    -> (tensor<32x64xbf16>, tensor<16x64xbf16>, tensor<32xbf16>, tensor<32x64xbf16>, tensor<16x64xbf16>, tensor<32xbf16>) {
  // CHECK: %[[QW:.*]] = zero.quantize %[[W]] {{.*}} -> tensor<1x272xi8>
  // CHECK: %[[QV:.*]] = zero.quantize %[[V]] {{.*}} -> tensor<1x144xi8>
  // CHECK: %[[PB:.*]] = zero.pack_slices %[[B]] slices <dim = 0, factors = [], chunk = []> {{.*}} -> tensor<1x8xi8>
  // CHECK: %[[PAD:.*]] = tensor.empty() : tensor<1x8xi8>
  // CHECK: %[[SENT:.*]] = tensor.concat dim(1) %[[QW]], %[[QV]], %[[PB]], %[[PAD]] : {{.*}} -> tensor<1x432xi8>
  // CHECK: %[[NODE:.*]] = zero.all_gather_chunks %[[SENT]] along ["node"] on #mesh into
  // CHECK-SAME: {zpp.keep, zpp.origin = [{{{.*}}id = 0 : i64{{.*}}share = 272 : i64{{.*}}}, {{{.*}}id = 1 : i64{{.*}}share = 144 : i64{{.*}}}, {{{.*}}id = 2 : i64{{.*}}reason = "it is small"{{.*}}share = 16 : i64{{.*}}}]}
  // CHECK: %[[KEPT:.*]] = zero.unpack_slices %[[NODE]] slices <dim = 0, factors = [2], chunk = [0]> {{.*}} -> tensor<2x432xi8>
  // CHECK: %[[GPU:.*]] = zero.all_gather_chunks %[[KEPT]] along ["gpu"]
  // CHECK-SAME: -> tensor<4x2x432xi8>
  // CHECK-DAG: %[[SW:.*]] = tensor.extract_slice %[[GPU]][0, 0, 0] [4, 2, 272] [1, 1, 1]
  // CHECK-DAG: %[[SV:.*]] = tensor.extract_slice %[[GPU]][0, 0, 272] [4, 2, 144] [1, 1, 1]
  // CHECK-DAG: %[[SB:.*]] = tensor.extract_slice %[[GPU]][0, 0, 416] [4, 2, 8] [1, 1, 1]
  // CHECK-DAG: zero.unpack_slices %[[SB]] slices <dim = 0, factors = [2, 4], chunk = [1, 0]> {{.*}} : tensor<4x2x8xi8> into tensor<32xbf16>
  // CHECK-DAG: zero.dequantize %[[SW]] {{.*}} -> tensor<32x64xbf16>
  // CHECK-DAG: zero.dequantize %[[SV]] {{.*}} -> tensor<16x64xbf16>
  // CHECK: %[[CROSSED:.*]]:2 = stablehlo.optimization_barrier %[[X]], %[[KEPT]]
  // CHECK: zero.all_gather_chunks %[[CROSSED]]#1 along ["gpu"]
  // CHECK-NOT: zero.all_gather_chunks

  // With a limit the first matrix alone fills a buffer.
  // SMALL: zero.all_gather_chunks {{.*}} : tensor<1x272xi8> into
  // SMALL: tensor.concat {{.*}} -> tensor<1x160xi8>
  // SMALL: zero.all_gather_chunks

  // A kept buffer is gathered again as the first time, although a device then
  // sends twice as much.
  // ALIKE-LABEL: func @gathers
  // ALIKE-COUNT-3: zero.all_gather_chunks
  // ALIKE-NOT: zero.all_gather_chunks
  // ALIKE: return

  // PORTABLE-COUNT-3: "stablehlo.all_gather"
  // PORTABLE-NOT: "stablehlo.all_gather"

  // REMARK: [Passed] coalesced | Category:zero-coalesce-collectives | {{.*}}Remark="travel together: 3 tensors in rows of 432 bytes"
  %e0 = tensor.empty() : tensor<1x272xi8>
  %e1 = tensor.empty() : tensor<2x1x272xi8>
  %e2 = tensor.empty() : tensor<2x272xi8>
  %e3 = tensor.empty() : tensor<4x2x272xi8>
  %e4 = tensor.empty() : tensor<32x64xbf16>
  %0 = zero.quantize %w quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %e0
      : tensor<4x64xbf16> into tensor<1x272xi8> -> tensor<1x272xi8>
  %1 = zero.all_gather_chunks %0 along ["node"] on #mesh into %e1 {zpp.keep, zpp.origin = {id = 0, role = "weight"}}
      : tensor<1x272xi8> into tensor<2x1x272xi8> -> tensor<2x1x272xi8>
  %2 = zero.unpack_slices %1 slices <dim = 0, factors = [2], chunk = [0]> into %e2
      : tensor<2x1x272xi8> into tensor<2x272xi8> -> tensor<2x272xi8>
  %3 = zero.all_gather_chunks %2 along ["gpu"] on #mesh into %e3 {zpp.origin = {id = 0, role = "weight"}}
      : tensor<2x272xi8> into tensor<4x2x272xi8> -> tensor<4x2x272xi8>
  %4 = zero.dequantize %3 quant <i8, block = 128> slices <dim = 0, factors = [2, 4], chunk = [1, 0]> into %e4
      : tensor<4x2x272xi8> into tensor<32x64xbf16> -> tensor<32x64xbf16>
  // A vector between the matrices goes after them.
  %b1 = tensor.empty() : tensor<2x4xbf16>
  %b2 = tensor.empty() : tensor<8xbf16>
  %b3 = tensor.empty() : tensor<4x8xbf16>
  %b4 = tensor.empty() : tensor<32xbf16>
  %5 = zero.all_gather_chunks %b along ["node"] on #mesh into %b1 {zpp.keep, zpp.origin = {id = 2, role = "weight"}, zpp.reason = "it is small"}
      : tensor<4xbf16> into tensor<2x4xbf16> -> tensor<2x4xbf16>
  %6 = zero.unpack_slices %5 slices <dim = 0, factors = [2], chunk = [0]> into %b2
      : tensor<2x4xbf16> into tensor<8xbf16> -> tensor<8xbf16>
  %7 = zero.all_gather_chunks %6 along ["gpu"] on #mesh into %b3 {zpp.origin = {id = 2, role = "weight"}}
      : tensor<8xbf16> into tensor<4x8xbf16> -> tensor<4x8xbf16>
  %8 = zero.unpack_slices %7 slices <dim = 0, factors = [2, 4], chunk = [1]> into %b4
      : tensor<4x8xbf16> into tensor<32xbf16> -> tensor<32xbf16>
  %v0 = tensor.empty() : tensor<1x144xi8>
  %v1 = tensor.empty() : tensor<2x1x144xi8>
  %v2 = tensor.empty() : tensor<2x144xi8>
  %v3 = tensor.empty() : tensor<4x2x144xi8>
  %v4 = tensor.empty() : tensor<16x64xbf16>
  %9 = zero.quantize %v quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %v0
      : tensor<2x64xbf16> into tensor<1x144xi8> -> tensor<1x144xi8>
  %10 = zero.all_gather_chunks %9 along ["node"] on #mesh into %v1 {zpp.keep, zpp.origin = {id = 1, role = "weight"}}
      : tensor<1x144xi8> into tensor<2x1x144xi8> -> tensor<2x1x144xi8>
  %11 = zero.unpack_slices %10 slices <dim = 0, factors = [2], chunk = [0]> into %v2
      : tensor<2x1x144xi8> into tensor<2x144xi8> -> tensor<2x144xi8>
  %12 = zero.all_gather_chunks %11 along ["gpu"] on #mesh into %v3 {zpp.origin = {id = 1, role = "weight"}}
      : tensor<2x144xi8> into tensor<4x2x144xi8> -> tensor<4x2x144xi8>
  %13 = zero.dequantize %12 quant <i8, block = 128> slices <dim = 0, factors = [2, 4], chunk = [1, 0]> into %v4
      : tensor<4x2x144xi8> into tensor<16x64xbf16> -> tensor<16x64xbf16>
  %14:4 = stablehlo.optimization_barrier %x, %2, %6, %11 : tensor<f32>, tensor<2x272xi8>, tensor<8xbf16>, tensor<2x144xi8>
  %15 = zero.all_gather_chunks %14#1 along ["gpu"] on #mesh into %e3 {zpp.origin = {id = 3, role = "weight"}}
      : tensor<2x272xi8> into tensor<4x2x272xi8> -> tensor<4x2x272xi8>
  %16 = zero.dequantize %15 quant <i8, block = 128> slices <dim = 0, factors = [2, 4], chunk = [1, 0]> into %e4
      : tensor<4x2x272xi8> into tensor<32x64xbf16> -> tensor<32x64xbf16>
  %17 = zero.all_gather_chunks %14#2 along ["gpu"] on #mesh into %b3 {zpp.origin = {id = 4, role = "weight"}}
      : tensor<8xbf16> into tensor<4x8xbf16> -> tensor<4x8xbf16>
  %18 = zero.unpack_slices %17 slices <dim = 0, factors = [2, 4], chunk = [1]> into %b4
      : tensor<4x8xbf16> into tensor<32xbf16> -> tensor<32xbf16>
  %19 = zero.all_gather_chunks %14#3 along ["gpu"] on #mesh into %v3 {zpp.origin = {id = 5, role = "weight"}}
      : tensor<2x144xi8> into tensor<4x2x144xi8> -> tensor<4x2x144xi8>
  %20 = zero.dequantize %19 quant <i8, block = 128> slices <dim = 0, factors = [2, 4], chunk = [1, 0]> into %v4
      : tensor<4x2x144xi8> into tensor<16x64xbf16> -> tensor<16x64xbf16>
  "stablehlo.use"(%14#0) : (tensor<f32>) -> ()
  return %4, %13, %8, %16, %20, %18 : tensor<32x64xbf16>, tensor<16x64xbf16>, tensor<32xbf16>, tensor<32x64xbf16>, tensor<16x64xbf16>, tensor<32xbf16>
}

// -----

// Gradients, quantized and not: fused ops read and write slices of the buffers.
// Tensors with a product between them travel apart, and so does one that
// depends on another.

#mesh = #zero.mesh<"node" = 2, "gpu" = 2>

// CHECK-LABEL: func @scatters
// PORTABLE-LABEL: func @scatters
func.func @scatters(%g: tensor<16x64xf32>, %h: tensor<8xbf16>) -> (tensor<4x64xf32>, tensor<2xbf16>) {
  // CHECK: %[[Q:.*]] = zero.quantize %arg0 {{.*}} -> tensor<2x528xi8>
  // CHECK: %[[P:.*]] = zero.pack_slices %arg1 slices <dim = 0, factors = [2, 2], chunk = [1]> {{.*}} : tensor<8xbf16> into tensor<2x8xi8>
  // CHECK: tensor.concat dim(1) %[[Q]], %[[P]], %{{.*}} -> tensor<2x544xi8>
  // CHECK: %[[A:.*]] = zero.all_to_all {{.*}} along ["gpu"]
  // CHECK-DAG: %[[AQ:.*]] = tensor.extract_slice %[[A]][0, 0] [2, 528] [1, 1]
  // CHECK-DAG: %[[AP:.*]] = tensor.extract_slice %[[A]][0, 528] [2, 8] [1, 1]
  // CHECK: %[[AF:.*]] = zero.unpack_slices %[[AP]] slices <dim = 0, factors = [2], chunk = [0]> {{.*}} : tensor<2x8xi8> into tensor<2x4xbf16>
  // CHECK: zero.dequantize_reduce_quantize sum %[[AQ]]
  // CHECK: zero.reduce sum %[[AF]]
  // CHECK: zero.all_to_all {{.*}} along ["node"]
  // CHECK-NOT: zero.all_to_all
  %e0 = tensor.empty() : tensor<2x528xi8>
  %e1 = tensor.empty() : tensor<2x144xi8>
  %e2 = tensor.empty() : tensor<4x64xf32>
  %0 = zero.quantize %g quant <i8, block = 128> slices <dim = 0, factors = [2, 2], chunk = [1]> into %e0
      : tensor<16x64xf32> into tensor<2x528xi8> -> tensor<2x528xi8>
  %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e0 {zpp.origin = {id = 0, role = "gradient"}}
      : tensor<2x528xi8> into tensor<2x528xi8> -> tensor<2x528xi8>
  %2 = zero.dequantize_reduce_quantize sum %1 quant <i8, block = 128> partial tensor<8x64xf32> to <i4, block = 128>
      slices <dim = 0, factors = [2], chunk = [0]> into %e1 : tensor<2x528xi8> into tensor<2x144xi8> -> tensor<2x144xi8>
  %3 = zero.all_to_all %2 along ["node"] on #mesh into %e1 {zpp.origin = {id = 0, role = "gradient"}}
      : tensor<2x144xi8> into tensor<2x144xi8> -> tensor<2x144xi8>
  %4 = zero.dequantize_reduce sum %3 quant <i4, block = 128> into %e2 : tensor<2x144xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %f0 = tensor.empty() : tensor<2x4xbf16>
  %f1 = tensor.empty() : tensor<4xf32>
  %f2 = tensor.empty() : tensor<2x2xf32>
  %f3 = tensor.empty() : tensor<2xbf16>
  %5 = zero.pack_slices %h slices <dim = 0, factors = [2, 2], chunk = [1]> into %f0
      : tensor<8xbf16> into tensor<2x4xbf16> -> tensor<2x4xbf16>
  %6 = zero.all_to_all %5 along ["gpu"] on #mesh into %f0 {zpp.origin = {id = 1, role = "gradient"}}
      : tensor<2x4xbf16> into tensor<2x4xbf16> -> tensor<2x4xbf16>
  %7 = zero.reduce sum %6 into %f1 : tensor<2x4xbf16> into tensor<4xf32> -> tensor<4xf32>
  %8 = zero.pack_slices %7 slices <dim = 0, factors = [2], chunk = [0]> into %f2
      : tensor<4xf32> into tensor<2x2xf32> -> tensor<2x2xf32>
  %9 = zero.all_to_all %8 along ["node"] on #mesh into %f2 {zpp.origin = {id = 1, role = "gradient"}}
      : tensor<2x2xf32> into tensor<2x2xf32> -> tensor<2x2xf32>
  %10 = zero.reduce sum %9 into %f3 : tensor<2x2xf32> into tensor<2xbf16> -> tensor<2xbf16>
  return %4, %10 : tensor<4x64xf32>, tensor<2xbf16>
}

// CHECK-LABEL: func @apart
func.func @apart(%g: tensor<2x528xi8>, %h: tensor<2x528xi8>, %x: tensor<4x4xf32>)
    -> (tensor<2x528xi8>, tensor<2x528xi8>, tensor<2x528xi8>, tensor<4x4xf32>) {
  // CHECK-NOT: tensor.concat
  // CHECK: return
  // REMARK: [Missed] not-coalesced | Category:zero-coalesce-collectives | {{.*}}Remark="travels alone: it depends on a tensor that it would travel with"
  %e = tensor.empty() : tensor<2x528xi8>
  %0 = zero.all_to_all %g along ["gpu"] on #mesh into %e {zpp.origin = {id = 0, role = "gradient"}}
      : tensor<2x528xi8> into tensor<2x528xi8> -> tensor<2x528xi8>
  %1 = "stablehlo.dot_general"(%x, %x) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = zero.all_to_all %h along ["gpu"] on #mesh into %e {zpp.origin = {id = 1, role = "gradient"}}
      : tensor<2x528xi8> into tensor<2x528xi8> -> tensor<2x528xi8>
  %3 = stablehlo.negate %2 : tensor<2x528xi8>
  %4 = zero.all_to_all %3 along ["gpu"] on #mesh into %e {zpp.origin = {id = 2, role = "gradient"}}
      : tensor<2x528xi8> into tensor<2x528xi8> -> tensor<2x528xi8>
  return %0, %2, %4, %1 : tensor<2x528xi8>, tensor<2x528xi8>, tensor<2x528xi8>, tensor<4x4xf32>
}

// -----

// A row of what is kept has a little more than is needed again: it is sent as it
// is, also for one tensor alone. Of a row of which half is needed, that half is.

#mesh = #zero.mesh<"node" = 2, "gpu" = 2>

// CHECK-LABEL: func @not_needed
// CHECK: %[[NODE:.*]] = zero.all_gather_chunks {{.*}} along ["node"] {{.*}}id = 0 {{.*}}share = 528 {{.*}}id = 1 {{.*}}share = 16 {{.*}} -> tensor<2x1x544xi8>
// CHECK: %[[KEPT:.*]] = zero.unpack_slices %[[NODE]]
// CHECK: %[[CROSSED:.*]] = stablehlo.optimization_barrier %[[KEPT]]
// CHECK: zero.all_gather_chunks %[[CROSSED]] along ["gpu"] {{.*}}id = 2 {{.*}}share = 544
// CHECK: %[[SLICE:.*]] = tensor.extract_slice {{.*}}[0, 0, 0] [2, 2, 528] [1, 1, 1]
// CHECK: zero.dequantize %[[SLICE]]
// REMARK: travels with the tensors that were kept with it, in rows of 544 bytes
func.func @not_needed(%w: tensor<1x528xi8>, %v: tensor<1x16xi8>) -> (tensor<2x528xi8>, tensor<2x16xi8>, tensor<32x64xbf16>) {
  %e1 = tensor.empty() : tensor<2x1x528xi8>
  %e2 = tensor.empty() : tensor<2x528xi8>
  %e3 = tensor.empty() : tensor<2x2x528xi8>
  %e4 = tensor.empty() : tensor<32x64xbf16>
  %f1 = tensor.empty() : tensor<2x1x16xi8>
  %f2 = tensor.empty() : tensor<2x16xi8>
  %0 = zero.all_gather_chunks %w along ["node"] on #mesh into %e1 {zpp.keep, zpp.origin = {id = 0, role = "weight"}}
      : tensor<1x528xi8> into tensor<2x1x528xi8> -> tensor<2x1x528xi8>
  %1 = zero.unpack_slices %0 slices <dim = 0, factors = [2], chunk = [0]> into %e2
      : tensor<2x1x528xi8> into tensor<2x528xi8> -> tensor<2x528xi8>
  %2 = zero.all_gather_chunks %v along ["node"] on #mesh into %f1 {zpp.origin = {id = 1, role = "weight"}}
      : tensor<1x16xi8> into tensor<2x1x16xi8> -> tensor<2x1x16xi8>
  %3 = zero.unpack_slices %2 slices <dim = 0, factors = [2], chunk = [0]> into %f2
      : tensor<2x1x16xi8> into tensor<2x16xi8> -> tensor<2x16xi8>
  %4 = stablehlo.optimization_barrier %1 : tensor<2x528xi8>
  %5 = zero.all_gather_chunks %4 along ["gpu"] on #mesh into %e3 {zpp.origin = {id = 2, role = "weight"}}
      : tensor<2x528xi8> into tensor<2x2x528xi8> -> tensor<2x2x528xi8>
  %6 = zero.dequantize %5 quant <i8, block = 128> slices <dim = 0, factors = [2, 2], chunk = [1, 0]> into %e4
      : tensor<2x2x528xi8> into tensor<32x64xbf16> -> tensor<32x64xbf16>
  return %1, %3, %6 : tensor<2x528xi8>, tensor<2x16xi8>, tensor<32x64xbf16>
}

// What is unpacked is less than what was received, the rest being padding: it does
// not join others.
// CHECK-LABEL: func @padded
// CHECK: zero.all_gather_chunks %arg0 {{.*}} -> tensor<2x1x528xi8>
// CHECK: zero.all_gather_chunks %arg1 {{.*}} -> tensor<2x1x16xi8>
// CHECK: zero.unpack_slices {{.*}} -> tensor<1x16xi8>
func.func @padded(%w: tensor<1x528xi8>, %v: tensor<1x16xi8>) -> (tensor<2x528xi8>, tensor<1x16xi8>) {
  %e1 = tensor.empty() : tensor<2x1x528xi8>
  %e2 = tensor.empty() : tensor<2x528xi8>
  %f1 = tensor.empty() : tensor<2x1x16xi8>
  %f2 = tensor.empty() : tensor<1x16xi8>
  %0 = zero.all_gather_chunks %w along ["node"] on #mesh into %e1 {zpp.origin = {id = 0, role = "weight"}}
      : tensor<1x528xi8> into tensor<2x1x528xi8> -> tensor<2x1x528xi8>
  %1 = zero.unpack_slices %0 slices <dim = 0, factors = [2], chunk = [0]> into %e2
      : tensor<2x1x528xi8> into tensor<2x528xi8> -> tensor<2x528xi8>
  %2 = zero.all_gather_chunks %v along ["node"] on #mesh into %f1 {zpp.origin = {id = 1, role = "weight"}}
      : tensor<1x16xi8> into tensor<2x1x16xi8> -> tensor<2x1x16xi8>
  %3 = zero.unpack_slices %2 slices <dim = 0, factors = [2], chunk = [0]> into %f2
      : tensor<2x1x16xi8> into tensor<1x16xi8> -> tensor<1x16xi8>
  return %1, %3 : tensor<2x528xi8>, tensor<1x16xi8>
}

// Wire chunks, and tensors of elements of three types: bytes go together.
// CHECK-LABEL: func @elements
// CHECK: zero.all_gather_chunks {{.*}}share = 528 {{.*}}share = 32 {{.*}}share = 16 {{.*}}share = 16 {{.*}} -> tensor<2x1x592xi8>
// CHECK-NOT: zero.all_gather_chunks
// CHECK: return
func.func @elements(%w: tensor<1x528xi8>, %v: tensor<8xf32>, %u: tensor<8xbf16>, %t: tensor<8xf16>) -> (tensor<2x528xi8>, tensor<16xf32>, tensor<16xbf16>, tensor<16xf16>) {
  %e1 = tensor.empty() : tensor<2x1x528xi8>
  %e2 = tensor.empty() : tensor<2x528xi8>
  %f1 = tensor.empty() : tensor<2x8xf32>
  %f2 = tensor.empty() : tensor<16xf32>
  %g1 = tensor.empty() : tensor<2x8xbf16>
  %g2 = tensor.empty() : tensor<16xbf16>
  %h1 = tensor.empty() : tensor<2x8xf16>
  %h2 = tensor.empty() : tensor<16xf16>
  %0 = zero.all_gather_chunks %w along ["node"] on #mesh into %e1 {zpp.origin = {id = 0, role = "weight"}}
      : tensor<1x528xi8> into tensor<2x1x528xi8> -> tensor<2x1x528xi8>
  %1 = zero.unpack_slices %0 slices <dim = 0, factors = [2], chunk = [0]> into %e2
      : tensor<2x1x528xi8> into tensor<2x528xi8> -> tensor<2x528xi8>
  %2 = zero.all_gather_chunks %v along ["node"] on #mesh into %f1 {zpp.origin = {id = 1, role = "weight"}}
      : tensor<8xf32> into tensor<2x8xf32> -> tensor<2x8xf32>
  %3 = zero.unpack_slices %2 slices <dim = 0, factors = [2], chunk = [0]> into %f2 : tensor<2x8xf32> into tensor<16xf32> -> tensor<16xf32>
  %4 = zero.all_gather_chunks %u along ["node"] on #mesh into %g1 {zpp.origin = {id = 2, role = "weight"}}
      : tensor<8xbf16> into tensor<2x8xbf16> -> tensor<2x8xbf16>
  %5 = zero.unpack_slices %4 slices <dim = 0, factors = [2], chunk = [0]> into %g2 : tensor<2x8xbf16> into tensor<16xbf16> -> tensor<16xbf16>
  %6 = zero.all_gather_chunks %t along ["node"] on #mesh into %h1 {zpp.origin = {id = 3, role = "weight"}}
      : tensor<8xf16> into tensor<2x8xf16> -> tensor<2x8xf16>
  %7 = zero.unpack_slices %6 slices <dim = 0, factors = [2], chunk = [0]> into %h2 : tensor<2x8xf16> into tensor<16xf16> -> tensor<16xf16>
  return %1, %3, %5, %7 : tensor<2x528xi8>, tensor<16xf32>, tensor<16xbf16>, tensor<16xf16>
}

// CHECK-LABEL: func @half_needed
// CHECK: zero.all_gather_chunks {{.*}} -> tensor<2x1x544xi8>
// CHECK: %[[HALF:.*]] = tensor.extract_slice %{{.*}}[0, 0] [2, 272] [1, 1]
// CHECK: %[[CROSSED:.*]] = stablehlo.optimization_barrier %[[HALF]]
// CHECK: zero.all_gather_chunks %[[CROSSED]] along ["gpu"] {{.*}} -> tensor<2x2x272xi8>
func.func @half_needed(%w: tensor<1x272xi8>, %v: tensor<1x272xi8>) -> (tensor<2x272xi8>, tensor<2x2x272xi8>) {
  %e1 = tensor.empty() : tensor<2x1x272xi8>
  %e2 = tensor.empty() : tensor<2x272xi8>
  %e3 = tensor.empty() : tensor<2x2x272xi8>
  %0 = zero.all_gather_chunks %w along ["node"] on #mesh into %e1 {zpp.keep, zpp.origin = {id = 0, role = "weight"}}
      : tensor<1x272xi8> into tensor<2x1x272xi8> -> tensor<2x1x272xi8>
  %1 = zero.unpack_slices %0 slices <dim = 0, factors = [2], chunk = [0]> into %e2
      : tensor<2x1x272xi8> into tensor<2x272xi8> -> tensor<2x272xi8>
  %2 = zero.all_gather_chunks %v along ["node"] on #mesh into %e1 {zpp.origin = {id = 1, role = "weight"}}
      : tensor<1x272xi8> into tensor<2x1x272xi8> -> tensor<2x1x272xi8>
  %3 = zero.unpack_slices %2 slices <dim = 0, factors = [2], chunk = [0]> into %e2
      : tensor<2x1x272xi8> into tensor<2x272xi8> -> tensor<2x272xi8>
  %4 = stablehlo.optimization_barrier %1 : tensor<2x272xi8>
  %5 = zero.all_gather_chunks %4 along ["gpu"] on #mesh into %e3 {zpp.origin = {id = 2, role = "weight"}}
      : tensor<2x272xi8> into tensor<2x2x272xi8> -> tensor<2x2x272xi8>
  return %3, %5 : tensor<2x272xi8>, tensor<2x2x272xi8>
}

// -----

// A gather whose reader takes other chunks than those of the devices travels
// alone.

#mesh = #zero.mesh<"gpu" = 2>

// CHECK-LABEL: func @other_chunks
// CHECK-COUNT-2: zero.all_gather_chunks
func.func @other_chunks(%a: tensor<4x64xbf16>, %b: tensor<5xbf16>) -> (tensor<8x64xbf16>, tensor<10xbf16>) {
  %0 = tensor.empty() : tensor<1x272xi8>
  %1 = tensor.empty() : tensor<2x1x272xi8>
  %2 = tensor.empty() : tensor<8x64xbf16>
  %3 = zero.quantize %a quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %0
      : tensor<4x64xbf16> into tensor<1x272xi8> -> tensor<1x272xi8>
  %4 = zero.all_gather_chunks %3 along ["gpu"] on #mesh into %1 {zpp.origin = {id = 0, role = "weight"}}
      : tensor<1x272xi8> into tensor<2x1x272xi8> -> tensor<2x1x272xi8>
  %5 = zero.dequantize %4 quant <i8, block = 128> slices <dim = 0, factors = [2], chunk = [0]> into %2
      : tensor<2x1x272xi8> into tensor<8x64xbf16> -> tensor<8x64xbf16>
  %6 = tensor.empty() : tensor<2x5xbf16>
  %7 = tensor.empty() : tensor<10xbf16>
  %8 = zero.all_gather_chunks %b along ["gpu"] on #mesh into %6 {zpp.origin = {id = 1, role = "weight"}}
      : tensor<5xbf16> into tensor<2x5xbf16> -> tensor<2x5xbf16>
  %9 = zero.unpack_slices %8 slices <dim = 0, factors = [1], chunk = [0]> into %7
      : tensor<2x5xbf16> into tensor<10xbf16> -> tensor<10xbf16>
  return %5, %9 : tensor<8x64xbf16>, tensor<10xbf16>
}
