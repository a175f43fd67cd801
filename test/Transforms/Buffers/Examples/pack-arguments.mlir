// What `zero-pack-arguments` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-pack-arguments --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
func.func @host(%rank: !llvm.ptr, %x: memref<4xf32>) {
  return
}

//--- output.mlir
func.func @host(%arg0: !llvm.ptr, %arg1: !llvm.ptr) {
  return
}
