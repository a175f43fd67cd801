// What `zero-forward-parts` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-forward-parts --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
func.func @join(%x: memref<4x40xf32>, %y: memref<4x24xf32>) ->
    memref<4x112xi8> {
  %a = memref.alloc() : memref<4x64xi8>
  zero.quantize %x quant <i8, block = 64> into %a : memref<4x40xf32> into
      memref<4x64xi8>
  %b = memref.alloc() : memref<4x48xi8>
  zero.quantize %y quant <i8, block = 32> into %b : memref<4x24xf32> into
      memref<4x48xi8>
  %whole = memref.alloc() : memref<4x112xi8>
  %0 = memref.subview %whole[0, 0] [4, 64] [1, 1] : memref<4x112xi8> to
      memref<4x64xi8, strided<[112, 1]>>
  memref.copy %a, %0 : memref<4x64xi8> to memref<4x64xi8, strided<[112, 1]>>
  %1 = memref.subview %whole[0, 64] [4, 48] [1, 1] : memref<4x112xi8> to
      memref<4x48xi8, strided<[112, 1], offset: 64>>
  memref.copy %b, %1 : memref<4x48xi8> to memref<4x48xi8, strided<[112, 1],
      offset: 64>>
  return %whole : memref<4x112xi8>
}

//--- output.mlir
func.func @join(%arg0: memref<4x40xf32>, %arg1: memref<4x24xf32>) ->
    memref<4x112xi8> {
  %alloc = memref.alloc() : memref<4x112xi8>
  %subview = memref.subview %alloc[0, 0] [4, 64] [1, 1] : memref<4x112xi8>
      to memref<4x64xi8, strided<[112, 1]>>
  zero.quantize %arg0 quant <i8, block = 64> into %subview :
      memref<4x40xf32> into memref<4x64xi8, strided<[112, 1]>>
  %subview_0 = memref.subview %alloc[0, 64] [4, 48] [1, 1] :
      memref<4x112xi8> to memref<4x48xi8, strided<[112, 1], offset: 64>>
  zero.quantize %arg1 quant <i8, block = 32> into %subview_0 :
      memref<4x24xf32> into memref<4x48xi8, strided<[112, 1], offset: 64>>
  return %alloc : memref<4x112xi8>
}
