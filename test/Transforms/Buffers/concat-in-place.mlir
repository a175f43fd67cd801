// RUN: zpp-opt %s --zero-concat-in-place --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-bufferize-host --split-input-file | FileCheck %s --check-prefix=BUFFERS

// Each part is inserted where it is made, in that order.
// CHECK-LABEL: func.func @chunks
// CHECK-NEXT:    %[[WHOLE:.*]] = tensor.empty() : tensor<4x112xi8>
// CHECK:         %[[Y:.*]] = zero.quantize %arg1
// CHECK-NEXT:    %[[ONE:.*]] = tensor.insert_slice %[[Y]] into %[[WHOLE]][0, 64] [4, 48] [1, 1]
// CHECK:         %[[X:.*]] = zero.quantize %arg0
// CHECK-NEXT:    %[[TWO:.*]] = tensor.insert_slice %[[X]] into %[[ONE]][0, 0] [4, 64] [1, 1]
// CHECK-NEXT:    return %[[TWO]]

// Made in their place, without a copy and without memory.
// BUFFERS-LABEL: func.func @chunks(
// BUFFERS-SAME:    %[[X:.*]]: memref<4x40xf32>, %[[Y:.*]]: memref<4x24xf32>, %[[OUT:.*]]: memref<4x112xi8> {bufferize.result})
// BUFFERS-NEXT:    %[[AT64:.*]] = memref.subview %[[OUT]][0, 64]
// BUFFERS-NEXT:    zero.quantize %[[Y]] {{.*}} into %[[AT64]]
// BUFFERS-NEXT:    %[[AT0:.*]] = memref.subview %[[OUT]][0, 0]
// BUFFERS-NEXT:    zero.quantize %[[X]] {{.*}} into %[[AT0]]
// BUFFERS-NEXT:    return
func.func @chunks(%x: tensor<4x40xf32>, %y: tensor<4x24xf32>) -> tensor<4x112xi8> {
  %0 = tensor.empty() : tensor<4x48xi8>
  %1 = zero.quantize %y quant <i8, block = 32> into %0
      : tensor<4x24xf32> into tensor<4x48xi8> -> tensor<4x48xi8>
  %2 = tensor.empty() : tensor<4x64xi8>
  %3 = zero.quantize %x quant <i8, block = 64> into %2
      : tensor<4x40xf32> into tensor<4x64xi8> -> tensor<4x64xi8>
  %4 = tensor.concat dim(1) %3, %1
      : (tensor<4x64xi8>, tensor<4x48xi8>) -> tensor<4x112xi8>
  return %4 : tensor<4x112xi8>
}

// -----

// A part that is not computed here is copied, last. A part may occur twice.
// CHECK-LABEL: func.func @arguments
// CHECK:         %[[P:.*]] = zero.reduce
// CHECK-NEXT:    %[[ONE:.*]] = tensor.insert_slice %[[P]] into %{{.*}}[2] [2] [1]
// CHECK-NEXT:    %[[TWO:.*]] = tensor.insert_slice %[[P]] into %[[ONE]][4] [2] [1]
// CHECK-NEXT:    %[[THREE:.*]] = tensor.insert_slice %arg0 into %[[TWO]][0] [2] [1]
// CHECK-NEXT:    return %[[THREE]]
// BUFFERS-LABEL: func.func @arguments
// BUFFERS-COUNT-2: memref.copy
func.func @arguments(%x: tensor<2xf32>, %y: tensor<3x2xf32>) -> tensor<6xf32> {
  %0 = tensor.empty() : tensor<2xf32>
  %1 = zero.reduce sum %y into %0 : tensor<3x2xf32> into tensor<2xf32> -> tensor<2xf32>
  %2 = tensor.concat dim(0) %x, %1, %1
      : (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<6xf32>
  return %2 : tensor<6xf32>
}

// -----

// Unknown sizes are left to upstream.
// CHECK-LABEL: func.func @dynamic
// CHECK:         tensor.concat
func.func @dynamic(%x: tensor<?xf32>, %y: tensor<2xf32>) -> tensor<?xf32> {
  %0 = tensor.concat dim(0) %x, %y : (tensor<?xf32>, tensor<2xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
