// Buffers may be in memory that the host cannot reach.

// RUN: zpp-opt %s --convert-zero-to-runtime=device-memory --split-input-file --verify-diagnostics | FileCheck %s

// All functions take the rank, and copies are the runtime's.
// CHECK-LABEL: func.func @identity(%arg0: !llvm.ptr, %arg1: memref<4xf32>, %arg2: memref<4xf32>)
// CHECK:         llvm.call @zpp_rt_copy_rows(%arg0,
func.func @identity(%x: memref<4xf32>, %y: memref<4xf32>) {
  memref.copy %x, %y : memref<4xf32> to memref<4xf32>
  return
}
// Scalars and control flow are no data.
// CHECK-LABEL: func.func @choose(%arg0: !llvm.ptr, %arg1: i1,
// CHECK:         scf.if
// CHECK:           func.call @identity(%arg0,
func.func @choose(%c: i1, %x: memref<4xf32>, %y: memref<4xf32>) {
  scf.if %c {
    func.call @identity(%x, %y) : (memref<4xf32>, memref<4xf32>) -> ()
  }
  return
}
// A constant is in the host's memory, which copies can read.
memref.global "private" constant @ones : memref<2x2xf32> = dense<1.0>
// CHECK-LABEL: func.func @constant
// CHECK:         memref.get_global
// CHECK:         llvm.call @zpp_rt_copy_rows(
func.func @constant(%y: memref<2xf32, strided<[2]>>) {
  %0 = memref.get_global @ones : memref<2x2xf32>
  %1 = memref.subview %0[1, 0] [1, 2] [1, 1] : memref<2x2xf32> to memref<2xf32, strided<[1], offset: 2>>
  memref.copy %1, %y : memref<2xf32, strided<[1], offset: 2>> to memref<2xf32, strided<[2]>>
  return
}

// -----

func.func @computes(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error@below {{failed to legalize 'linalg.exp' where buffers may be in device memory: it reads or writes them on the host}}
  linalg.exp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

func.func @loads(%x: memref<4xf32>, %c: i1) -> f32 {
  %c0 = arith.constant 0 : index
  %r = scf.if %c -> f32 {
    // expected-error@below {{failed to legalize 'memref.load' where buffers may be in device memory: it reads or writes them on the host}}
    %0 = memref.load %x[%c0] : memref<4xf32>
    scf.yield %0 : f32
  } else {
    %0 = arith.constant 0.0 : f32
    scf.yield %0 : f32
  }
  return %r : f32
}

// -----

func.func @allocates(%n: index, %x: memref<4xf32>) {
  // expected-error@below {{failed to legalize 'memref.alloc' where buffers may be in device memory: expected memory planned by zero-plan-workspace, but got an allocation}}
  %0 = memref.alloc(%n) : memref<?xf32>
  return
}

// -----

func.func private @unknown(memref<4xf32>)
func.func @calls(%x: memref<4xf32>) {
  // expected-error@below {{failed to legalize 'func.call' where buffers may be in device memory: expected a callee with a body, but got 'unknown'}}
  func.call @unknown(%x) : (memref<4xf32>) -> ()
  return
}

// -----

memref.global "private" constant @ones : memref<4xf32> = dense<1.0>
func.func @uses_constant(%y: memref<f32>) {
  // expected-error@below {{failed to legalize 'memref.get_global' where buffers may be in device memory: expected a constant that is copied, but got another use}}
  %0 = memref.get_global @ones : memref<4xf32>
  %1 = memref.expand_shape %0 [[0, 1]] output_shape [4, 1] : memref<4xf32> into memref<4x1xf32>
  %2 = memref.collapse_shape %1 [[0, 1]] : memref<4x1xf32> into memref<4xf32>
  zero.reduce sum %2 into %y : memref<4xf32> into memref<f32>
  return
}

// -----

func.func @dynamic(%x: memref<4x4xf32, strided<[?, 1]>>, %y: memref<4x4xf32>) {
  // expected-error@below {{failed to legalize 'memref.copy': expected buffers of static shape and strides within 2^63 bytes, with elements of 1, 2, 4 or 8 bytes, but got 'memref<4x4xf32, strided<[?, 1]>>' and 'memref<4x4xf32>'}}
  memref.copy %x, %y : memref<4x4xf32, strided<[?, 1]>> to memref<4x4xf32>
  return
}

// -----

func.func @far(%x: memref<2x2xf32, strided<[4611686018427387904, 1]>>, %y: memref<2x2xf32>) {
  // expected-error@below {{failed to legalize 'memref.copy': expected buffers of static shape and strides within 2^63 bytes, with elements of 1, 2, 4 or 8 bytes, but got 'memref<2x2xf32, strided<[4611686018427387904, 1]>>' and 'memref<2x2xf32>'}}
  memref.copy %x, %y : memref<2x2xf32, strided<[4611686018427387904, 1]>> to memref<2x2xf32>
  return
}

// -----

func.func private @f(%x: memref<4xf32>) {
  return
}
// expected-error@below {{failed to legalize 'zero.instance': expected a public function on device memory, but got 'f'}}
zero.instance @g of @f from [] to []
