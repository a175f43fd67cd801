// RUN: %python %S/Inputs/many_slices.py 17 > %t.mlir
// RUN: zpp-opt %t.mlir --zero-view-parts | FileCheck %s
// RUN: zpp-opt %t.mlir --zero-view-parts --zero-view-parts | FileCheck %s

// CHECK-LABEL: func.func @parts
// CHECK:         %[[ALL:.*]] = zero.all_gather_chunks
// CHECK-NEXT:    %[[BUFFER:.*]] = bufferization.to_buffer %[[ALL]] read_only : tensor<4x1x1360xi8> to memref<4x1x1360xi8>
// CHECK-NEXT:    %[[VIEW:.*]] = memref.subview %[[BUFFER]][0, 0, 0] [4, 1, 80] [1, 1, 1]
// CHECK-NEXT:    %[[PART:.*]] = bufferization.to_tensor %[[VIEW]] restrict : {{.*}} to tensor<4x80xi8>
// CHECK:         zero.dequantize %[[PART]]
// CHECK-NOT:     tensor.extract_slice
// CHECK:         return

// The buffers are those that bufferization gives alone: views, without copies.
// RUN: zpp-opt %t.mlir --zero-bufferize-host | FileCheck %s --check-prefix=BUFFERS
// BUFFERS-LABEL: func.func @parts
// BUFFERS-NOT:     memref.copy
// BUFFERS:         zero.all_gather_chunks %{{.*}} into %[[ALL:[a-z_0-9]*]] :
// BUFFERS-COUNT-17: memref.subview %[[ALL]][
// BUFFERS-NOT:     memref.copy
// BUFFERS:         return

// As many slices as are left alone, a whole that somebody else reads, and a slice
// that leaves the function stay as they are.
// RUN: %python %S/Inputs/many_slices.py 16 | zpp-opt --zero-view-parts | FileCheck %s --check-prefix=SAME
// RUN: zpp-opt %t.mlir --zero-view-parts=max-slices=17 | FileCheck %s --check-prefix=SAME
// RUN: %python %S/Inputs/many_slices.py 17 whole | zpp-opt --zero-view-parts | FileCheck %s --check-prefix=SAME
// RUN: %python %S/Inputs/many_slices.py 17 slice | zpp-opt --zero-view-parts | FileCheck %s --check-prefix=SAME
// SAME-NOT: bufferization

// In linear time: 2000 slices took 18 seconds.
// RUN: %python %S/Inputs/many_slices.py 8000 > %t.mlir
// RUN: timeout 120 zpp-opt %t.mlir --zero-bufferize-host | FileCheck %s --check-prefix=MANY
// MANY-COUNT-8000: zero.dequantize
