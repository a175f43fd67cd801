// The prediction survives ops that nothing has verified, and sums that 64 bits do
// not hold.

// RUN: zpp-opt %s --zero-report="mesh=node:2,gpu:4 device=h100 format=json output=-" -o /dev/null | FileCheck %s
// CHECK: "peak_bytes": 9223372036854775807
// CHECK-NOT: -{{[0-9]}}

// Of a function without a body, nothing is known.
func.func private @elsewhere(tensor<4x8xf32>) -> tensor<4x8xf32>

// They call each other, for ever.
func.func @ping(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = func.call @pong(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
func.func @pong(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = func.call @ping(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

func.func @starts(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = "zero.start"(%x) <{callee = @elsewhere, operandSegmentSizes = array<i32: 1, 0>, resultSegmentSizes = array<i32: 1, 0>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "zero.wait"(%0, %x) <{operandSegmentSizes = array<i32: 1, 1, 0>, resultSegmentSizes = array<i32: 1, 0>}> : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

func.func @main(%w: tensor<4x8xf32>, %x: tensor<16x32xf32>, %h: tensor<1152921504606846975xf32>, %i: tensor<1152921504606846975xf32>, %j: tensor<1152921504606846975xf32>) -> tensor<4x8xf32> {
  %0 = stablehlo.dynamic_update_slice  : () -> tensor<4x8xf32>
  %1 = "stablehlo.dynamic_slice"() : () -> tensor<4x8xf32>
  %2 = stablehlo.dynamic_update_slice %h, %h : (tensor<1152921504606846975xf32>, tensor<1152921504606846975xf32>) -> tensor<1152921504606846975xf32>
  %3:2 = stablehlo.custom_call @zpp.start(%w) {backend_config = {inputs = 7 : i64, outputs = 7 : i64}} : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  %4:2 = stablehlo.custom_call @zpp.wait(%3#0) {backend_config = {inputs = -1 : i64, outputs = 9 : i64}} : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  %5 = stablehlo.custom_call @zpp.wait() : () -> tensor<4x8xf32>
  %6 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %8 = "stablehlo.all_gather"(%w) : (tensor<4x8xf32>) -> tensor<32x8xf32>
  %9 = "stablehlo.all_reduce"() : () -> tensor<32x8xf32>
  %7 = stablehlo.dot %x, %6 : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  return %4#1 : tensor<4x8xf32>
}
