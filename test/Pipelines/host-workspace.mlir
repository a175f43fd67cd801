// A workspace whose size is not known is an argument like any other, and a
// public function with a workspace may be called by another one.

// RUN: zpp-opt %s --zero-to-llvm | FileCheck %s

#mesh = #zero.mesh<"gpu" = 4>

// CHECK-LABEL: llvm.func @dynamic
func.func @dynamic(%x: memref<4xf32>, %w: memref<?xi8> {zpp.workspace}) {
  return
}

// CHECK-LABEL: llvm.func @callee
// CHECK:         llvm.call @zpp_rt_workspace
// CHECK-LABEL: llvm.func @callee_on_workspace
func.func @callee(%x: tensor<4x32xf32>) -> tensor<4x32xf32> {
  %b = tensor.empty() : tensor<4x48xi8>
  %f = tensor.empty() : tensor<4x32xf32>
  %0 = zero.quantize %x quant <i8, block = 32> into %b
      : tensor<4x32xf32> into tensor<4x48xi8> -> tensor<4x48xi8>
  %1 = zero.dequantize %0 quant <i8, block = 32> into %f
      : tensor<4x48xi8> into tensor<4x32xf32> -> tensor<4x32xf32>
  return %1 : tensor<4x32xf32>
}

// CHECK-LABEL: llvm.func @caller
// CHECK:         llvm.call @callee_on_workspace
func.func @caller(%x: tensor<4x32xf32>) -> tensor<4x32xf32> {
  %0 = func.call @callee(%x) : (tensor<4x32xf32>) -> tensor<4x32xf32>
  return %0 : tensor<4x32xf32>
}
