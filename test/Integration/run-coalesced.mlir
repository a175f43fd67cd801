// Tensors that share a buffer arrive like those that travel alone: both
// programs give the same bits on all ranks. This includes values that are kept
// between two hops and gathered again, and stages.

// RUN: zpp-opt %s --zero-coalesce-collectives --remarks-filter=none -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: zpp-run %s --entry=gathers --output=%t.alone
// RUN: zpp-run %t.mlir --entry=gathers --output=%t.together
// RUN: diff %t.alone0.npy %t.together0.npy
// RUN: diff %t.alone1.npy %t.together1.npy
// RUN: diff %t.alone2.npy %t.together2.npy
// RUN: diff %t.alone3.npy %t.together3.npy
// RUN: zpp-run %s --entry=scatters --output=%t.alone
// RUN: zpp-run %t.mlir --entry=scatters --output=%t.together
// RUN: diff %t.alone0.npy %t.together0.npy
// RUN: diff %t.alone1.npy %t.together1.npy

// CHECK-LABEL: func @gathers
// CHECK-COUNT-2: zero.all_gather_chunks
// CHECK-NOT: zero.all_gather_chunks
// CHECK-LABEL: func @scatters
// CHECK-COUNT-4: zero.all_to_all
// CHECK-NOT: zero.all_to_all

#mesh = #zero.mesh<"node" = 2, "gpu" = 2>

func.func @gathers(%w: tensor<4x64xbf16>, %v: tensor<3x2xf32>, %b: tensor<5xbf16>)
    -> (tensor<16x64xbf16>, tensor<3x7xf32>, tensor<20xbf16>, tensor<10xbf16>) {
  %e0 = tensor.empty() : tensor<1x272xi8>
  %e1 = tensor.empty() : tensor<2x1x272xi8>
  %e2 = tensor.empty() : tensor<2x272xi8>
  %e3 = tensor.empty() : tensor<2x2x272xi8>
  %e4 = tensor.empty() : tensor<16x64xbf16>
  %0 = zero.quantize %w quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %e0
      : tensor<4x64xbf16> into tensor<1x272xi8> -> tensor<1x272xi8>
  %1 = zero.all_gather_chunks %0 along ["node"] on #mesh into %e1 {zpp.origin = {id = 0, role = "weight"}}
      : tensor<1x272xi8> into tensor<2x1x272xi8> -> tensor<2x1x272xi8>
  %2 = zero.unpack_slices %1 slices <dim = 0, factors = [2], chunk = [0]> into %e2
      : tensor<2x1x272xi8> into tensor<2x272xi8> -> tensor<2x272xi8>
  %3 = zero.all_gather_chunks %2 along ["gpu"] on #mesh into %e3 {zpp.origin = {id = 0, role = "weight"}}
      : tensor<2x272xi8> into tensor<2x2x272xi8> -> tensor<2x2x272xi8>
  %4 = zero.dequantize %3 quant <i8, block = 128> slices <dim = 0, factors = [2, 2], chunk = [1, 0]> into %e4
      : tensor<2x2x272xi8> into tensor<16x64xbf16> -> tensor<16x64xbf16>
  // Cut in dim 1, and padded.
  %v1 = tensor.empty() : tensor<2x3x2xf32>
  %v2 = tensor.empty() : tensor<3x4xf32>
  %v3 = tensor.empty() : tensor<2x3x4xf32>
  %v4 = tensor.empty() : tensor<3x7xf32>
  %5 = zero.all_gather_chunks %v along ["node"] on #mesh into %v1 {zpp.origin = {id = 1, role = "weight"}}
      : tensor<3x2xf32> into tensor<2x3x2xf32> -> tensor<2x3x2xf32>
  %6 = zero.unpack_slices %5 slices <dim = 1, factors = [2], chunk = [0]> into %v2
      : tensor<2x3x2xf32> into tensor<3x4xf32> -> tensor<3x4xf32>
  %7 = zero.all_gather_chunks %6 along ["gpu"] on #mesh into %v3 {zpp.origin = {id = 1, role = "weight"}}
      : tensor<3x4xf32> into tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  %8 = zero.unpack_slices %7 slices <dim = 1, factors = [2, 2], chunk = [1]> into %v4
      : tensor<2x3x4xf32> into tensor<3x7xf32> -> tensor<3x7xf32>
  %b1 = tensor.empty() : tensor<2x5xbf16>
  %b2 = tensor.empty() : tensor<10xbf16>
  %b3 = tensor.empty() : tensor<2x10xbf16>
  %b4 = tensor.empty() : tensor<20xbf16>
  %9 = zero.all_gather_chunks %b along ["node"] on #mesh into %b1 {zpp.origin = {id = 2, role = "weight"}}
      : tensor<5xbf16> into tensor<2x5xbf16> -> tensor<2x5xbf16>
  %10 = zero.unpack_slices %9 slices <dim = 0, factors = [2], chunk = [0]> into %b2
      : tensor<2x5xbf16> into tensor<10xbf16> -> tensor<10xbf16>
  %11 = zero.all_gather_chunks %10 along ["gpu"] on #mesh into %b3 {zpp.origin = {id = 2, role = "weight"}}
      : tensor<10xbf16> into tensor<2x10xbf16> -> tensor<2x10xbf16>
  %12 = zero.unpack_slices %11 slices <dim = 0, factors = [2, 2], chunk = [1]> into %b4
      : tensor<2x10xbf16> into tensor<20xbf16> -> tensor<20xbf16>
  return %4, %8, %12, %10 : tensor<16x64xbf16>, tensor<3x7xf32>, tensor<20xbf16>, tensor<10xbf16>
}

func.func @scatters(%g: tensor<16x64xf32>, %h: tensor<8xf32>) -> (tensor<4x64xf32>, tensor<2xf32>) {
  %e0 = tensor.empty() : tensor<2x272xi8>
  %e1 = tensor.empty() : tensor<2x80xi8>
  %e2 = tensor.empty() : tensor<2x64xf32>
  %f0 = tensor.empty() : tensor<2x2xf32>
  %f1 = tensor.empty() : tensor<2xf32>
  %f2 = tensor.empty() : tensor<2x1xf32>
  %f3 = tensor.empty() : tensor<1xf32>
  %q0 = zero.quantize %g quant <i8, block = 128> slices <dim = 0, factors = [2, 2], chunk = [1], stage = 0 of 2> into %e0
      : tensor<16x64xf32> into tensor<2x272xi8> -> tensor<2x272xi8>
  %a0 = zero.all_to_all %q0 along ["gpu"] on #mesh into %e0 {zpp.origin = {id = 0, role = "gradient"}}
      : tensor<2x272xi8> into tensor<2x272xi8> -> tensor<2x272xi8>
  %r0 = zero.dequantize_reduce_quantize sum %a0 quant <i8, block = 128> partial tensor<4x64xf32> to <i4, block = 128>
      slices <dim = 0, factors = [2], chunk = [0]> into %e1 : tensor<2x272xi8> into tensor<2x80xi8> -> tensor<2x80xi8>
  %b0 = zero.all_to_all %r0 along ["node"] on #mesh into %e1 {zpp.origin = {id = 0, role = "gradient"}}
      : tensor<2x80xi8> into tensor<2x80xi8> -> tensor<2x80xi8>
  %c0 = zero.dequantize_reduce sum %b0 quant <i4, block = 128> into %e2 : tensor<2x80xi8> into tensor<2x64xf32> -> tensor<2x64xf32>
  %q1 = zero.quantize %g quant <i8, block = 128> slices <dim = 0, factors = [2, 2], chunk = [1], stage = 1 of 2> into %e0
      : tensor<16x64xf32> into tensor<2x272xi8> -> tensor<2x272xi8>
  %a1 = zero.all_to_all %q1 along ["gpu"] on #mesh into %e0 {zpp.origin = {id = 0, role = "gradient"}}
      : tensor<2x272xi8> into tensor<2x272xi8> -> tensor<2x272xi8>
  %r1 = zero.dequantize_reduce_quantize sum %a1 quant <i8, block = 128> partial tensor<4x64xf32> to <i4, block = 128>
      slices <dim = 0, factors = [2], chunk = [0]> into %e1 : tensor<2x272xi8> into tensor<2x80xi8> -> tensor<2x80xi8>
  %b1 = zero.all_to_all %r1 along ["node"] on #mesh into %e1 {zpp.origin = {id = 0, role = "gradient"}}
      : tensor<2x80xi8> into tensor<2x80xi8> -> tensor<2x80xi8>
  %c1 = zero.dequantize_reduce sum %b1 quant <i4, block = 128> into %e2 : tensor<2x80xi8> into tensor<2x64xf32> -> tensor<2x64xf32>
  %g2 = tensor.concat dim(0) %c0, %c1 : (tensor<2x64xf32>, tensor<2x64xf32>) -> tensor<4x64xf32>
  %p0 = zero.pack_slices %h slices <dim = 0, factors = [2, 2], chunk = [1], stage = 0 of 2> into %f0
      : tensor<8xf32> into tensor<2x2xf32> -> tensor<2x2xf32>
  %x0 = zero.all_to_all %p0 along ["gpu"] on #mesh into %f0 {zpp.origin = {id = 1, role = "gradient"}}
      : tensor<2x2xf32> into tensor<2x2xf32> -> tensor<2x2xf32>
  %y0 = zero.reduce sum %x0 into %f1 : tensor<2x2xf32> into tensor<2xf32> -> tensor<2xf32>
  %z0 = zero.pack_slices %y0 slices <dim = 0, factors = [2], chunk = [0]> into %f2
      : tensor<2xf32> into tensor<2x1xf32> -> tensor<2x1xf32>
  %u0 = zero.all_to_all %z0 along ["node"] on #mesh into %f2 {zpp.origin = {id = 1, role = "gradient"}}
      : tensor<2x1xf32> into tensor<2x1xf32> -> tensor<2x1xf32>
  %v0 = zero.reduce sum %u0 into %f3 : tensor<2x1xf32> into tensor<1xf32> -> tensor<1xf32>
  %p1 = zero.pack_slices %h slices <dim = 0, factors = [2, 2], chunk = [1], stage = 1 of 2> into %f0
      : tensor<8xf32> into tensor<2x2xf32> -> tensor<2x2xf32>
  %x1 = zero.all_to_all %p1 along ["gpu"] on #mesh into %f0 {zpp.origin = {id = 1, role = "gradient"}}
      : tensor<2x2xf32> into tensor<2x2xf32> -> tensor<2x2xf32>
  %y1 = zero.reduce sum %x1 into %f1 : tensor<2x2xf32> into tensor<2xf32> -> tensor<2xf32>
  %z1 = zero.pack_slices %y1 slices <dim = 0, factors = [2], chunk = [0]> into %f2
      : tensor<2xf32> into tensor<2x1xf32> -> tensor<2x1xf32>
  %u1 = zero.all_to_all %z1 along ["node"] on #mesh into %f2 {zpp.origin = {id = 1, role = "gradient"}}
      : tensor<2x1xf32> into tensor<2x1xf32> -> tensor<2x1xf32>
  %v1 = zero.reduce sum %u1 into %f3 : tensor<2x1xf32> into tensor<1xf32> -> tensor<1xf32>
  %h2 = tensor.concat dim(0) %v0, %v1 : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  return %g2, %h2 : tensor<4x64xf32>, tensor<2xf32>
}
