// RUN: zpp-opt %s --zero-results-to-arguments --canonicalize --split-input-file | FileCheck %s

// The argument replaces the allocation for a result, whatever its shape.
// CHECK-LABEL: func.func @reshaped
// CHECK-SAME:    (%arg0: memref<6xf32>, %[[OUT:.*]]: memref<2x3xf32> {bufferize.result})
// CHECK:         %[[FLAT:.*]] = memref.collapse_shape %[[OUT]] {{\[}}[0, 1]] : memref<2x3xf32> into memref<6xf32>
// CHECK-NEXT:    zero.reduce sum %{{.*}} into %[[FLAT]]
// CHECK-NEXT:    return
func.func @reshaped(%x: memref<6xf32>) -> memref<2x3xf32> {
  %in = memref.expand_shape %x [[0, 1]] output_shape [1, 6] : memref<6xf32> into memref<1x6xf32>
  %0 = memref.alloc() : memref<6xf32>
  zero.reduce sum %in into %0 : memref<1x6xf32> into memref<6xf32>
  %1 = memref.expand_shape %0 [[0, 1]] output_shape [2, 3] : memref<6xf32> into memref<2x3xf32>
  return %1 : memref<2x3xf32>
}

// -----

// One buffer is one result; anything else is copied.
// CHECK-LABEL: func.func @copies
// CHECK-SAME:    (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<1x4xf32>, %[[A:.*]]: memref<4xf32> {bufferize.result}, %[[B:.*]]: memref<4xf32> {bufferize.result}, %[[C:.*]]: memref<4xf32> {bufferize.result}) -> f32
// CHECK:         zero.reduce sum %[[Y]] into %[[A]]
// CHECK-NEXT:    memref.copy %[[A]], %[[B]]
// CHECK-NEXT:    memref.copy %[[X]], %[[C]]
// CHECK-NEXT:    return %{{.*}} : f32
func.func @copies(%x: memref<4xf32>, %y: memref<1x4xf32>)
    -> (memref<4xf32>, memref<4xf32>, f32, memref<4xf32>) {
  %c = arith.constant 1.0 : f32
  %0 = memref.alloc() : memref<4xf32>
  zero.reduce sum %y into %0 : memref<1x4xf32> into memref<4xf32>
  return %0, %0, %c, %x : memref<4xf32>, memref<4xf32>, f32, memref<4xf32>
}

// -----

// A call gets memory, which may be that of its caller's result.
// CHECK-LABEL: func.func @caller
// CHECK-SAME:    (%[[X:.*]]: memref<4xf32>, %[[OUT:.*]]: memref<4xf32> {bufferize.result})
// CHECK-NEXT:    %[[TEMPORARY:.*]] = memref.alloc() : memref<4xf32>
// CHECK-NEXT:    %[[S:.*]] = call @callee(%[[X]], %[[TEMPORARY]]) : (memref<4xf32>, memref<4xf32>) -> f32
// CHECK-NEXT:    %{{.*}} = call @callee(%[[TEMPORARY]], %[[OUT]])
// CHECK-NEXT:    return
func.func @caller(%x: memref<4xf32>) -> memref<4xf32> {
  %0:2 = call @callee(%x) : (memref<4xf32>) -> (memref<4xf32>, f32)
  %1:2 = call @callee(%0#0) : (memref<4xf32>) -> (memref<4xf32>, f32)
  return %1#0 : memref<4xf32>
}
// CHECK: func.func private @callee(memref<4xf32>, memref<4xf32> {bufferize.result}) -> f32
func.func private @callee(memref<4xf32>) -> (memref<4xf32>, f32)

// -----

// With two ways out neither is known to allocate the result.
// CHECK-LABEL: func.func @branches
// CHECK:         memref.copy %{{.*}}, %arg2
// CHECK:         memref.copy %{{.*}}, %arg2
func.func @branches(%c: i1, %x: memref<4xf32>) -> memref<4xf32> {
  cf.cond_br %c, ^a, ^b
^a:
  %0 = memref.alloc() : memref<4xf32>
  return %0 : memref<4xf32>
^b:
  return %x : memref<4xf32>
}

// -----

// Results of dynamic size or without contiguous rows are returned as before.
// CHECK-LABEL: func.func @others(%arg0: memref<?xf32>, %arg1: memref<4xf32, strided<[2]>>) -> (memref<?xf32>, memref<4xf32, strided<[2]>>)
// CHECK-NEXT:    return %arg0, %arg1
func.func @others(%x: memref<?xf32>, %y: memref<4xf32, strided<[2]>>)
    -> (memref<?xf32>, memref<4xf32, strided<[2]>>) {
  return %x, %y : memref<?xf32>, memref<4xf32, strided<[2]>>
}
