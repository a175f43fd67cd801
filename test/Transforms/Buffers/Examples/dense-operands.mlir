// What `zero-dense-operands` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-dense-operands --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"gpu" = 4>
func.func @exchange(%x: memref<4x8xi8, strided<[16, 1]>>, %y: memref<4x8xi8,
    strided<[32, 1], offset: 8>>) {
  zero.all_to_all %x along ["gpu"] on #mesh into %y : memref<4x8xi8,
      strided<[16, 1]>> into memref<4x8xi8, strided<[32, 1], offset: 8>>
  return
}

//--- output.mlir
#mesh = #zero.mesh<"gpu" = 4>
func.func @exchange(%arg0: memref<4x8xi8, strided<[16, 1]>>, %arg1:
    memref<4x8xi8, strided<[32, 1], offset: 8>>) {
  %alloc = memref.alloc() : memref<4x8xi8>
  memref.copy %arg0, %alloc : memref<4x8xi8, strided<[16, 1]>> to
      memref<4x8xi8>
  %alloc_0 = memref.alloc() : memref<4x8xi8>
  zero.all_to_all %alloc along ["gpu"] on #mesh into %alloc_0 :
      memref<4x8xi8> into memref<4x8xi8>
  memref.copy %alloc_0, %arg1 : memref<4x8xi8> to memref<4x8xi8,
      strided<[32, 1], offset: 8>>
  return
}
