// RUN: zpp-opt %s --convert-zero-to-stablehlo | FileCheck %s --implicit-check-not=tensor.empty

// A tensor.empty that is more than a destination may hold anything: it becomes
// zeros.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @returned
// CHECK:         %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<f32>
// CHECK:         %[[ZEROS:.*]] = stablehlo.broadcast_in_dim %[[ZERO]]
// CHECK:         return %[[ZEROS]] : tensor<4xf32>
func.func @returned() -> tensor<4xf32> {
  %0 = tensor.empty() : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func @exchanged
// CHECK:         %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i8>
// CHECK:         %[[ZEROS:.*]] = stablehlo.broadcast_in_dim %[[ZERO]]{{.*}} -> tensor<4x16xi8>
// CHECK:         "stablehlo.all_to_all"(%[[ZEROS]])
func.func @exchanged() -> tensor<4x16xi8> {
  %0 = tensor.empty() : tensor<4x16xi8>
  %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %0
      : tensor<4x16xi8> into tensor<4x16xi8> -> tensor<4x16xi8>
  return %1 : tensor<4x16xi8>
}

// CHECK-LABEL: func @reshaped
// CHECK:         %[[ZEROS:.*]] = stablehlo.broadcast_in_dim
// CHECK:         stablehlo.reshape %[[ZEROS]]
func.func @reshaped() -> tensor<2x8xf32> {
  %0 = tensor.empty() : tensor<16xf32>
  %1 = tensor.expand_shape %0 [[0, 1]] output_shape [2, 8] : tensor<16xf32> into tensor<2x8xf32>
  return %1 : tensor<2x8xf32>
}

// CHECK-LABEL: func @complex
// CHECK: %[[ZERO:.*]] = stablehlo.constant dense<(0.000000e+00,0.000000e+00)> : tensor<complex<f32>>
// CHECK: %[[ZEROS:.*]] = stablehlo.broadcast_in_dim %[[ZERO]]
// CHECK: return %[[ZEROS]] : tensor<4xcomplex<f32>>
func.func @complex() -> tensor<4xcomplex<f32>> {
  %0 = tensor.empty() : tensor<4xcomplex<f32>>
  return %0 : tensor<4xcomplex<f32>>
}
