// RUN: zpp-opt %s --convert-zero-to-stablehlo | FileCheck %s --implicit-check-not=tensor.empty

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

func.func @returned() -> tensor<4xf32> {
  %0 = tensor.empty() : tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @exchanged() -> tensor<4x16xi8> {
  %0 = tensor.empty() : tensor<4x16xi8>
  %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %0
      : tensor<4x16xi8> into tensor<4x16xi8> -> tensor<4x16xi8>
  return %1 : tensor<4x16xi8>
}

func.func @reshaped() -> tensor<2x8xf32> {
  %0 = tensor.empty() : tensor<16xf32>
  %1 = tensor.expand_shape %0 [[0, 1]] output_shape [2, 8] : tensor<16xf32> into tensor<2x8xf32>
  return %1 : tensor<2x8xf32>
}
