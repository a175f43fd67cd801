// RUN: zpp-opt %s --zero-plan-workspace=all-functions --verify-diagnostics

// The bytes of the element overflow before those of the buffer do.
func.func @vectors() {
  // expected-error@below {{expected a buffer of at most 281474976710656 bytes, but got 'memref<4xvector<9223372036854775807xf32>>'}}
  %0 = memref.alloc() : memref<4xvector<9223372036854775807xf32>>
  memref.dealloc %0 : memref<4xvector<9223372036854775807xf32>>
  return
}
