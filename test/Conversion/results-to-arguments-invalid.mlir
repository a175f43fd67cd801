// RUN: zpp-opt %s --zero-results-to-arguments --split-input-file --verify-diagnostics

// expected-error@below {{expected dense buffers of static shape as results of 'f', but got 'memref<?xf32>'}}
func.func @f(%x: memref<?xf32>) -> memref<?xf32> {
  return %x : memref<?xf32>
}

// -----

// expected-error@below {{expected dense buffers of static shape as results of 'f', but got 'memref<4xf32, strided<[2]>>'}}
func.func private @f() -> memref<4xf32, strided<[2]>>
