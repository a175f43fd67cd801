// What `zero-plan-workspace` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --zero-plan-workspace --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
func.func @host(%x: memref<4x256xf32>, %z: memref<4x256xf32>) {
  %0 = memref.alloc() : memref<4x272xi8>
  zero.quantize %x quant <i8, block = 128> into %0 : memref<4x256xf32>
      into memref<4x272xi8>
  zero.dequantize %0 quant <i8, block = 128> into %z : memref<4x272xi8>
      into memref<4x256xf32>
  return
}

//--- output.mlir
func.func @host(%arg0: memref<4x256xf32>, %arg1: memref<4x256xf32>,
    %arg2: memref<1280xi8> {zpp.workspace}) {
  %c0 = arith.constant 0 : index
  %view = memref.view %arg2[%c0][] : memref<1280xi8> to memref<4x272xi8>
  zero.quantize %arg0 quant <i8, block = 128> into %view
      : memref<4x256xf32> into memref<4x272xi8>
  zero.dequantize %view quant <i8, block = 128> into %arg1
      : memref<4x272xi8> into memref<4x256xf32>
  return
}
