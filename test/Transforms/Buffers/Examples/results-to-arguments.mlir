// What `zero-results-to-arguments` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-results-to-arguments --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
func.func @copy(%x: memref<4xf32>) -> memref<4xf32> {
  %0 = memref.alloc() : memref<4xf32>
  memref.copy %x, %0 : memref<4xf32> to memref<4xf32>
  return %0 : memref<4xf32>
}

//--- output.mlir
func.func @copy(%arg0: memref<4xf32>,
    %arg1: memref<4xf32> {bufferize.result}) {
  memref.copy %arg0, %arg1 : memref<4xf32> to memref<4xf32>
  return
}
