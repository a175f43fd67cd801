// The size of a concatenation of parts of unknown sizes is computed, with ops of
// a dialect that no pass has asked for so far.

// RUN: zpp-opt %s --zero-bufferize-host | FileCheck %s
// RUN: zpp-opt %s --zero-to-llvm | FileCheck %s --check-prefix=LLVM

// What is written can be read again.
// RUN: zpp-opt %s --zero-bufferize-host -o %t.mlir
// RUN: zpp-opt %t.mlir -o %t.again.mlir && cmp %t.mlir %t.again.mlir

// CHECK-LABEL: func.func @join
// CHECK:         affine.apply
// CHECK:         memref.alloc
// LLVM-LABEL: llvm.func @join
// LLVM:         llvm.add
func.func @join(%x: tensor<?xf32>, %y: tensor<4xf32>) -> tensor<?xf32> {
  %0 = tensor.concat dim(0) %x, %y : (tensor<?xf32>, tensor<4xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
