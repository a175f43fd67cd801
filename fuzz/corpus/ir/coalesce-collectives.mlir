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

// RUN: zpp-opt %s --zero-coalesce-collectives --convert-zero-to-stablehlo --remarks-filter=none --split-input-file \
// RUN:   | FileCheck %s --check-prefix=PORTABLE

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

func.func @gathers(%w: tensor<4x64xbf16>, %v: tensor<2x64xbf16>, %b: tensor<4xbf16>, %x: tensor<f32>)
    -> (tensor<32x64xbf16>, tensor<16x64xbf16>, tensor<32xbf16>, tensor<32x64xbf16>, tensor<16x64xbf16>, tensor<32xbf16>) {

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
  %14:4 = "stablehlo.optimization_barrier"(%x, %2, %6, %11) : (tensor<f32>, tensor<2x272xi8>, tensor<8xbf16>, tensor<2x144xi8>)
      -> (tensor<f32>, tensor<2x272xi8>, tensor<8xbf16>, tensor<2x144xi8>)
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

#mesh = #zero.mesh<"node" = 2, "gpu" = 2>

func.func @scatters(%g: tensor<16x64xf32>, %h: tensor<8xbf16>) -> (tensor<4x64xf32>, tensor<2xbf16>) {

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

func.func @apart(%g: tensor<2x528xi8>, %h: tensor<2x528xi8>, %x: tensor<4x4xf32>)
    -> (tensor<2x528xi8>, tensor<2x528xi8>, tensor<2x528xi8>, tensor<4x4xf32>) {

  %e = tensor.empty() : tensor<2x528xi8>
  %0 = zero.all_to_all %g along ["gpu"] on #mesh into %e {zpp.origin = {id = 0, role = "gradient"}}
      : tensor<2x528xi8> into tensor<2x528xi8> -> tensor<2x528xi8>
  %1 = "stablehlo.dot_general"(%x, %x) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = zero.all_to_all %h along ["gpu"] on #mesh into %e {zpp.origin = {id = 1, role = "gradient"}}
      : tensor<2x528xi8> into tensor<2x528xi8> -> tensor<2x528xi8>
  %3 = "stablehlo.negate"(%2) : (tensor<2x528xi8>) -> tensor<2x528xi8>
  %4 = zero.all_to_all %3 along ["gpu"] on #mesh into %e {zpp.origin = {id = 2, role = "gradient"}}
      : tensor<2x528xi8> into tensor<2x528xi8> -> tensor<2x528xi8>
  return %0, %2, %4, %1 : tensor<2x528xi8>, tensor<2x528xi8>, tensor<2x528xi8>, tensor<4x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 2>

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
  %4 = "stablehlo.optimization_barrier"(%1) : (tensor<2x528xi8>) -> tensor<2x528xi8>
  %5 = zero.all_gather_chunks %4 along ["gpu"] on #mesh into %e3 {zpp.origin = {id = 2, role = "weight"}}
      : tensor<2x528xi8> into tensor<2x2x528xi8> -> tensor<2x2x528xi8>
  %6 = zero.dequantize %5 quant <i8, block = 128> slices <dim = 0, factors = [2, 2], chunk = [1, 0]> into %e4
      : tensor<2x2x528xi8> into tensor<32x64xbf16> -> tensor<32x64xbf16>
  return %1, %3, %6 : tensor<2x528xi8>, tensor<2x16xi8>, tensor<32x64xbf16>
}

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
  %4 = "stablehlo.optimization_barrier"(%1) : (tensor<2x272xi8>) -> tensor<2x272xi8>
  %5 = zero.all_gather_chunks %4 along ["gpu"] on #mesh into %e3 {zpp.origin = {id = 2, role = "weight"}}
      : tensor<2x272xi8> into tensor<2x2x272xi8> -> tensor<2x2x272xi8>
  return %3, %5 : tensor<2x272xi8>, tensor<2x2x272xi8>
}
