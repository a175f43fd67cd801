
// RUN: zpp-run %s --entry=slices --compare=apart | FileCheck %s --check-prefix=OK
// RUN: zpp-run %s --entry=concat --compare=apart | FileCheck %s --check-prefix=OK
// RUN: zpp-run %s --entry=through_columns --compare=apart | FileCheck %s --check-prefix=OK
// RUN: zpp-run %s --entry=reduced --compare=reduced_apart | FileCheck %s --check-prefix=OK
// RUN: zpp-opt %s --zero-bufferize-host | FileCheck %s

// RUN: zpp-run %s --entry=slices --output=%t.slices
// RUN: zpp-run %s --entry=concat --output=%t.concat
// RUN: diff %t.slices0.npy %t.concat0.npy
// RUN: diff %t.slices1.npy %t.concat1.npy

#mesh = #zero.mesh<"gpu" = 4>

func.func @slices(%a: tensor<4x40xf32>, %b: tensor<4x8x3xbf16>)
    -> (tensor<4x40xf32>, tensor<4x8x3xbf16>) {
  %send = tensor.empty() : tensor<4x112xi8>
  %0 = tensor.extract_slice %send[0, 0] [4, 64] [1, 1] : tensor<4x112xi8> to tensor<4x64xi8>
  %1 = zero.quantize %a quant <i8, block = 64> into %0
      : tensor<4x40xf32> into tensor<4x64xi8> -> tensor<4x64xi8>
  %2 = tensor.insert_slice %1 into %send[0, 0] [4, 64] [1, 1] : tensor<4x64xi8> into tensor<4x112xi8>
  %3 = tensor.extract_slice %2[0, 64] [4, 48] [1, 1] : tensor<4x112xi8> to tensor<4x48xi8>
  %4 = zero.quantize %b quant <i8, block = 32> into %3
      : tensor<4x8x3xbf16> into tensor<4x48xi8> -> tensor<4x48xi8>
  %5 = tensor.insert_slice %4 into %2[0, 64] [4, 48] [1, 1] : tensor<4x48xi8> into tensor<4x112xi8>
  %e = tensor.empty() : tensor<4x112xi8>
  %6 = zero.all_to_all %5 along ["gpu"] on #mesh into %e
      : tensor<4x112xi8> into tensor<4x112xi8> -> tensor<4x112xi8>
  %7 = tensor.extract_slice %6[0, 0] [4, 64] [1, 1] : tensor<4x112xi8> to tensor<4x64xi8>
  %8 = tensor.extract_slice %6[0, 64] [4, 48] [1, 1] : tensor<4x112xi8> to tensor<4x48xi8>
  %ea = tensor.empty() : tensor<4x40xf32>
  %9 = zero.dequantize %7 quant <i8, block = 64> into %ea
      : tensor<4x64xi8> into tensor<4x40xf32> -> tensor<4x40xf32>
  %eb = tensor.empty() : tensor<4x8x3xbf16>
  %10 = zero.dequantize %8 quant <i8, block = 32> into %eb
      : tensor<4x48xi8> into tensor<4x8x3xbf16> -> tensor<4x8x3xbf16>
  return %9, %10 : tensor<4x40xf32>, tensor<4x8x3xbf16>
}
func.func @concat(%a: tensor<4x40xf32>, %b: tensor<4x8x3xbf16>)
    -> (tensor<4x40xf32>, tensor<4x8x3xbf16>) {
  %0 = tensor.empty() : tensor<4x64xi8>
  %1 = zero.quantize %a quant <i8, block = 64> into %0
      : tensor<4x40xf32> into tensor<4x64xi8> -> tensor<4x64xi8>
  %2 = tensor.empty() : tensor<4x48xi8>
  %3 = zero.quantize %b quant <i8, block = 32> into %2
      : tensor<4x8x3xbf16> into tensor<4x48xi8> -> tensor<4x48xi8>
  %4 = tensor.concat dim(1) %1, %3 : (tensor<4x64xi8>, tensor<4x48xi8>) -> tensor<4x112xi8>
  %e = tensor.empty() : tensor<4x112xi8>
  %5 = zero.all_to_all %4 along ["gpu"] on #mesh into %e
      : tensor<4x112xi8> into tensor<4x112xi8> -> tensor<4x112xi8>
  %6 = tensor.extract_slice %5[0, 0] [4, 64] [1, 1] : tensor<4x112xi8> to tensor<4x64xi8>
  %7 = tensor.extract_slice %5[0, 64] [4, 48] [1, 1] : tensor<4x112xi8> to tensor<4x48xi8>
  %ea = tensor.empty() : tensor<4x40xf32>
  %8 = zero.dequantize %6 quant <i8, block = 64> into %ea
      : tensor<4x64xi8> into tensor<4x40xf32> -> tensor<4x40xf32>
  %eb = tensor.empty() : tensor<4x8x3xbf16>
  %9 = zero.dequantize %7 quant <i8, block = 32> into %eb
      : tensor<4x48xi8> into tensor<4x8x3xbf16> -> tensor<4x8x3xbf16>
  return %8, %9 : tensor<4x40xf32>, tensor<4x8x3xbf16>
}

func.func @through_columns(%a: tensor<4x40xf32>, %b: tensor<4x8x3xbf16>)
    -> (tensor<4x40xf32>, tensor<4x8x3xbf16>) {
  %0 = tensor.empty() : tensor<4x64xi8>
  %1 = zero.quantize %a quant <i8, block = 64> into %0
      : tensor<4x40xf32> into tensor<4x64xi8> -> tensor<4x64xi8>
  %2 = tensor.empty() : tensor<4x48xi8>
  %3 = zero.quantize %b quant <i8, block = 32> into %2
      : tensor<4x8x3xbf16> into tensor<4x48xi8> -> tensor<4x48xi8>
  %4 = tensor.concat dim(1) %1, %3 : (tensor<4x64xi8>, tensor<4x48xi8>) -> tensor<4x112xi8>
  %5 = tensor.extract_slice %4[0, 0] [4, 64] [1, 1] : tensor<4x112xi8> to tensor<4x64xi8>
  %6 = tensor.extract_slice %4[0, 64] [4, 48] [1, 1] : tensor<4x112xi8> to tensor<4x48xi8>
  %7 = tensor.empty() : tensor<4x64xi8>
  %8 = zero.all_to_all %5 along ["gpu"] on #mesh into %7
      : tensor<4x64xi8> into tensor<4x64xi8> -> tensor<4x64xi8>
  %9 = tensor.empty() : tensor<4x48xi8>
  %10 = zero.all_to_all %6 along ["gpu"] on #mesh into %9
      : tensor<4x48xi8> into tensor<4x48xi8> -> tensor<4x48xi8>
  %11 = tensor.empty() : tensor<4x40xf32>
  %12 = zero.dequantize %8 quant <i8, block = 64> into %11
      : tensor<4x64xi8> into tensor<4x40xf32> -> tensor<4x40xf32>
  %13 = tensor.empty() : tensor<4x8x3xbf16>
  %14 = zero.dequantize %10 quant <i8, block = 32> into %13
      : tensor<4x48xi8> into tensor<4x8x3xbf16> -> tensor<4x8x3xbf16>
  return %12, %14 : tensor<4x40xf32>, tensor<4x8x3xbf16>
}
func.func @apart(%a: tensor<4x40xf32>, %b: tensor<4x8x3xbf16>)
    -> (tensor<4x40xf32>, tensor<4x8x3xbf16>) {
  %0 = tensor.empty() : tensor<4x40xf32>
  %1 = zero.all_to_all %a along ["gpu"] on #mesh into %0
      : tensor<4x40xf32> into tensor<4x40xf32> -> tensor<4x40xf32>
  %2 = tensor.empty() : tensor<4x8x3xbf16>
  %3 = zero.all_to_all %b along ["gpu"] on #mesh into %2
      : tensor<4x8x3xbf16> into tensor<4x8x3xbf16> -> tensor<4x8x3xbf16>
  return %1, %3 : tensor<4x40xf32>, tensor<4x8x3xbf16>
}

func.func @reduced(%a: tensor<16xf32>, %b: tensor<8x3xf32>) -> (tensor<4xf32>, tensor<2x3xf32>) {
  %0 = tensor.empty() : tensor<4x32xi8>
  %1 = zero.quantize %a quant <i8, block = 32> slices <dim = 0, factors = [4], chunk = [0]> into %0
      : tensor<16xf32> into tensor<4x32xi8> -> tensor<4x32xi8>
  %2 = tensor.empty() : tensor<4x32xi8>
  %3 = zero.quantize %b quant <i8, block = 32> slices <dim = 0, factors = [4], chunk = [0]> into %2
      : tensor<8x3xf32> into tensor<4x32xi8> -> tensor<4x32xi8>
  %4 = tensor.concat dim(1) %1, %3 : (tensor<4x32xi8>, tensor<4x32xi8>) -> tensor<4x64xi8>
  %e = tensor.empty() : tensor<4x64xi8>
  %5 = zero.all_to_all %4 along ["gpu"] on #mesh into %e
      : tensor<4x64xi8> into tensor<4x64xi8> -> tensor<4x64xi8>
  %6 = tensor.extract_slice %5[0, 0] [4, 32] [1, 1] : tensor<4x64xi8> to tensor<4x32xi8>
  %7 = tensor.extract_slice %5[0, 32] [4, 32] [1, 1] : tensor<4x64xi8> to tensor<4x32xi8>
  %ea = tensor.empty() : tensor<4xf32>
  %8 = zero.dequantize_reduce sum %6 quant <i8, block = 32> into %ea
      : tensor<4x32xi8> into tensor<4xf32> -> tensor<4xf32>
  %eb = tensor.empty() : tensor<2x3xf32>
  %9 = zero.dequantize_reduce sum %7 quant <i8, block = 32> into %eb
      : tensor<4x32xi8> into tensor<2x3xf32> -> tensor<2x3xf32>
  return %8, %9 : tensor<4xf32>, tensor<2x3xf32>
}
func.func @reduced_apart(%a: tensor<16xf32>, %b: tensor<8x3xf32>) -> (tensor<4xf32>, tensor<2x3xf32>) {
  %0 = tensor.empty() : tensor<4x4xf32>
  %1 = zero.pack_slices %a slices <dim = 0, factors = [4], chunk = [0]> into %0
      : tensor<16xf32> into tensor<4x4xf32> -> tensor<4x4xf32>
  %2 = tensor.empty() : tensor<4x2x3xf32>
  %3 = zero.pack_slices %b slices <dim = 0, factors = [4], chunk = [0]> into %2
      : tensor<8x3xf32> into tensor<4x2x3xf32> -> tensor<4x2x3xf32>
  %4 = tensor.empty() : tensor<4x4xf32>
  %5 = zero.all_to_all %1 along ["gpu"] on #mesh into %4
      : tensor<4x4xf32> into tensor<4x4xf32> -> tensor<4x4xf32>
  %6 = tensor.empty() : tensor<4x2x3xf32>
  %7 = zero.all_to_all %3 along ["gpu"] on #mesh into %6
      : tensor<4x2x3xf32> into tensor<4x2x3xf32> -> tensor<4x2x3xf32>
  %8 = tensor.empty() : tensor<4xf32>
  %9 = zero.reduce sum %5 into %8 : tensor<4x4xf32> into tensor<4xf32> -> tensor<4xf32>
  %10 = tensor.empty() : tensor<2x3xf32>
  %11 = zero.reduce sum %7 into %10 : tensor<4x2x3xf32> into tensor<2x3xf32> -> tensor<2x3xf32>
  return %9, %11 : tensor<4xf32>, tensor<2x3xf32>
}
