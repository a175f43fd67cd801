
// RUN: zpp-opt %s --zero-view-parts
// RUN: zpp-opt %s --zero-bufferize-host
#mesh = #zero.mesh<"gpu" = 4>
func.func @parts(%x: tensor<1x1360xi8>) -> (tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>) {
  %e = tensor.empty() : tensor<4x1x1360xi8>
  %all = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<1x1360xi8> into tensor<4x1x1360xi8> -> tensor<4x1x1360xi8>
  %s0 = tensor.extract_slice %all[0, 0, 0] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e0 = tensor.empty() : tensor<4x64xf32>
  %y0 = zero.dequantize %s0 quant <i8, block = 64> into %e0 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s1 = tensor.extract_slice %all[0, 0, 80] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e1 = tensor.empty() : tensor<4x64xf32>
  %y1 = zero.dequantize %s1 quant <i8, block = 64> into %e1 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s2 = tensor.extract_slice %all[0, 0, 160] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e2 = tensor.empty() : tensor<4x64xf32>
  %y2 = zero.dequantize %s2 quant <i8, block = 64> into %e2 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s3 = tensor.extract_slice %all[0, 0, 240] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e3 = tensor.empty() : tensor<4x64xf32>
  %y3 = zero.dequantize %s3 quant <i8, block = 64> into %e3 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s4 = tensor.extract_slice %all[0, 0, 320] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e4 = tensor.empty() : tensor<4x64xf32>
  %y4 = zero.dequantize %s4 quant <i8, block = 64> into %e4 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s5 = tensor.extract_slice %all[0, 0, 400] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e5 = tensor.empty() : tensor<4x64xf32>
  %y5 = zero.dequantize %s5 quant <i8, block = 64> into %e5 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s6 = tensor.extract_slice %all[0, 0, 480] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e6 = tensor.empty() : tensor<4x64xf32>
  %y6 = zero.dequantize %s6 quant <i8, block = 64> into %e6 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s7 = tensor.extract_slice %all[0, 0, 560] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e7 = tensor.empty() : tensor<4x64xf32>
  %y7 = zero.dequantize %s7 quant <i8, block = 64> into %e7 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s8 = tensor.extract_slice %all[0, 0, 640] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e8 = tensor.empty() : tensor<4x64xf32>
  %y8 = zero.dequantize %s8 quant <i8, block = 64> into %e8 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s9 = tensor.extract_slice %all[0, 0, 720] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e9 = tensor.empty() : tensor<4x64xf32>
  %y9 = zero.dequantize %s9 quant <i8, block = 64> into %e9 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s10 = tensor.extract_slice %all[0, 0, 800] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e10 = tensor.empty() : tensor<4x64xf32>
  %y10 = zero.dequantize %s10 quant <i8, block = 64> into %e10 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s11 = tensor.extract_slice %all[0, 0, 880] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e11 = tensor.empty() : tensor<4x64xf32>
  %y11 = zero.dequantize %s11 quant <i8, block = 64> into %e11 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s12 = tensor.extract_slice %all[0, 0, 960] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e12 = tensor.empty() : tensor<4x64xf32>
  %y12 = zero.dequantize %s12 quant <i8, block = 64> into %e12 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s13 = tensor.extract_slice %all[0, 0, 1040] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e13 = tensor.empty() : tensor<4x64xf32>
  %y13 = zero.dequantize %s13 quant <i8, block = 64> into %e13 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s14 = tensor.extract_slice %all[0, 0, 1120] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e14 = tensor.empty() : tensor<4x64xf32>
  %y14 = zero.dequantize %s14 quant <i8, block = 64> into %e14 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s15 = tensor.extract_slice %all[0, 0, 1200] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e15 = tensor.empty() : tensor<4x64xf32>
  %y15 = zero.dequantize %s15 quant <i8, block = 64> into %e15 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  %s16 = tensor.extract_slice %all[0, 0, 1280] [4, 1, 80] [1, 1, 1] : tensor<4x1x1360xi8> to tensor<4x80xi8>
  %e16 = tensor.empty() : tensor<4x64xf32>
  %y16 = zero.dequantize %s16 quant <i8, block = 64> into %e16 : tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
  return %y0, %y1, %y2, %y3, %y4, %y5, %y6, %y7, %y8, %y9, %y10, %y11, %y12, %y13, %y14, %y15, %y16 : tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>
}
