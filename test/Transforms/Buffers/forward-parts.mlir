// RUN: zpp-opt %s --zero-forward-parts --split-input-file | FileCheck %s
// RUN: zpp-opt %S/Inputs/concatenation.mlir --zero-bufferize-host | FileCheck %s --check-prefix=HOST

// From tensors: in the memory of the result, without a copy and without memory.
// HOST-LABEL: func.func @chunks(
// HOST-SAME:    %[[X:.*]]: memref<4x40xf32>, %[[Y:.*]]: memref<4x24xf32>, %[[OUT:.*]]: memref<4x112xi8> {bufferize.result})
// HOST-NEXT:    %[[AT64:.*]] = memref.subview %[[OUT]][0, 64]
// HOST-NEXT:    zero.quantize %[[Y]] {{.*}} into %[[AT64]]
// HOST-NEXT:    %[[AT0:.*]] = memref.subview %[[OUT]][0, 0]
// HOST-NEXT:    zero.quantize %[[X]] {{.*}} into %[[AT0]]
// HOST-NEXT:    return


// Each op writes to its place in the whole, whatever their order.
// CHECK-LABEL: func.func @forwarded(
// CHECK-SAME:    %[[X:.*]]: memref<4x40xf32>, %[[Y:.*]]: memref<4x24xf32>)
// CHECK-NEXT:    %[[WHOLE:.*]] = memref.alloc() {{.*}}: memref<4x112xi8>
// CHECK-NEXT:    %[[AT64:.*]] = memref.subview %[[WHOLE]][0, 64] [4, 48]
// CHECK-NEXT:    zero.quantize %[[Y]] {{.*}} into %[[AT64]]
// CHECK-NEXT:    %[[AT0:.*]] = memref.subview %[[WHOLE]][0, 0] [4, 64]
// CHECK-NEXT:    zero.quantize %[[X]] {{.*}} into %[[AT0]]
// CHECK-NEXT:    return %[[WHOLE]]
func.func @forwarded(%x: memref<4x40xf32>, %y: memref<4x24xf32>) -> memref<4x112xi8> {
  %b = memref.alloc() {alignment = 64 : i64} : memref<4x48xi8>
  zero.quantize %y quant <i8, block = 32> into %b
      : memref<4x24xf32> into memref<4x48xi8>
  %a = memref.alloc() {alignment = 64 : i64} : memref<4x64xi8>
  zero.quantize %x quant <i8, block = 64> into %a
      : memref<4x40xf32> into memref<4x64xi8>
  %whole = memref.alloc() {alignment = 64 : i64} : memref<4x112xi8>
  %0 = memref.subview %whole[0, 0] [4, 64] [1, 1]
      : memref<4x112xi8> to memref<4x64xi8, strided<[112, 1]>>
  memref.copy %a, %0 : memref<4x64xi8> to memref<4x64xi8, strided<[112, 1]>>
  %1 = memref.subview %whole[0, 64] [4, 48] [1, 1]
      : memref<4x112xi8> to memref<4x48xi8, strided<[112, 1], offset: 64>>
  memref.copy %b, %1 : memref<4x48xi8> to memref<4x48xi8, strided<[112, 1], offset: 64>>
  return %whole : memref<4x112xi8>
}

// -----

// An argument, and a buffer that is needed later, are copied.
// CHECK-LABEL: func.func @copied
// CHECK:         zero.reduce sum %arg1 into %[[P:.*]] :
// CHECK-NEXT:    %[[WHOLE:.*]] = memref.alloc() : memref<4xf32>
// CHECK-NEXT:    %[[AT0:.*]] = memref.subview %[[WHOLE]][0]
// CHECK-NEXT:    memref.copy %arg0, %[[AT0]]
// CHECK-NEXT:    %[[AT2:.*]] = memref.subview %[[WHOLE]][2]
// CHECK-NEXT:    memref.copy %[[P]], %[[AT2]]
func.func @copied(%x: memref<2xf32>, %y: memref<3x2xf32>) -> (memref<4xf32>, memref<2xf32>) {
  %p = memref.alloc() : memref<2xf32>
  zero.reduce sum %y into %p : memref<3x2xf32> into memref<2xf32>
  %whole = memref.alloc() : memref<4xf32>
  %0 = memref.subview %whole[0] [2] [1] : memref<4xf32> to memref<2xf32, strided<[1]>>
  memref.copy %x, %0 : memref<2xf32> to memref<2xf32, strided<[1]>>
  %1 = memref.subview %whole[2] [2] [1] : memref<4xf32> to memref<2xf32, strided<[1], offset: 2>>
  memref.copy %p, %1 : memref<2xf32> to memref<2xf32, strided<[1], offset: 2>>
  return %whole, %p : memref<4xf32>, memref<2xf32>
}

// -----

// If copies overlap, the last one wins, so it is not made earlier.
// CHECK-LABEL: func.func @overlapping
// CHECK:         memref.copy %arg0
// CHECK:         memref.copy
func.func @overlapping(%x: memref<2xf32>, %y: memref<3x2xf32>) -> memref<3xf32> {
  %p = memref.alloc() : memref<2xf32>
  zero.reduce sum %y into %p : memref<3x2xf32> into memref<2xf32>
  %whole = memref.alloc() : memref<3xf32>
  %0 = memref.subview %whole[0] [2] [1] : memref<3xf32> to memref<2xf32, strided<[1]>>
  memref.copy %x, %0 : memref<2xf32> to memref<2xf32, strided<[1]>>
  %1 = memref.subview %whole[1] [2] [1] : memref<3xf32> to memref<2xf32, strided<[1], offset: 1>>
  memref.copy %p, %1 : memref<2xf32> to memref<2xf32, strided<[1], offset: 1>>
  return %whole : memref<3xf32>
}

// -----

// A part that is written in another block, here several times, stays there.
// CHECK-LABEL: func.func @loop
// CHECK:         scf.for
// CHECK:         memref.copy
func.func @loop(%n: index, %y: memref<3x2xf32>) -> memref<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = memref.alloc() : memref<2xf32>
  scf.for %i = %c0 to %n step %c1 {
    zero.reduce sum %y into %p : memref<3x2xf32> into memref<2xf32>
  }
  %whole = memref.alloc() : memref<4xf32>
  %0 = memref.subview %whole[0] [2] [1] : memref<4xf32> to memref<2xf32, strided<[1]>>
  memref.copy %p, %0 : memref<2xf32> to memref<2xf32, strided<[1]>>
  return %whole : memref<4xf32>
}

// -----

// Others may read a part in its place. Memory that nothing is written to, the
// padding of a row, is not copied.
// CHECK-LABEL: func.func @read
// CHECK-NOT:     memref.copy
// CHECK:         %[[WHOLE:.*]] = memref.alloc() : memref<1x68xi8>
// CHECK-NEXT:    %[[AT0:.*]] = memref.subview %[[WHOLE]][0, 0] [1, 64]
// CHECK-NEXT:    zero.quantize %arg0 {{.*}} into %[[AT0]]
// CHECK-NOT:     memref.copy
// CHECK:         zero.all_gather_chunks %[[WHOLE]]
// CHECK-NEXT:    zero.dequantize %[[AT0]]
#mesh = #zero.mesh<"gpu" = 2>
func.func @read(%x: memref<1x40xf32>, %all: memref<2x1x68xi8>, %own: memref<1x40xf32>) {
  %a = memref.alloc() : memref<1x64xi8>
  zero.quantize %x quant <i8, block = 64> into %a
      : memref<1x40xf32> into memref<1x64xi8>
  %padding = memref.alloc() : memref<1x4xi8>
  %whole = memref.alloc() : memref<1x68xi8>
  %0 = memref.subview %whole[0, 0] [1, 64] [1, 1]
      : memref<1x68xi8> to memref<1x64xi8, strided<[68, 1]>>
  memref.copy %a, %0 : memref<1x64xi8> to memref<1x64xi8, strided<[68, 1]>>
  %1 = memref.subview %whole[0, 64] [1, 4] [1, 1]
      : memref<1x68xi8> to memref<1x4xi8, strided<[68, 1], offset: 64>>
  memref.copy %padding, %1 : memref<1x4xi8> to memref<1x4xi8, strided<[68, 1], offset: 64>>
  zero.all_gather_chunks %whole along ["gpu"] on #mesh into %all
      : memref<1x68xi8> into memref<2x1x68xi8>
  zero.dequantize %a quant <i8, block = 64> into %own
      : memref<1x64xi8> into memref<1x40xf32>
  return
}

// -----

// A part is not read where something else may be by then.
// CHECK-LABEL: func.func @overwritten
// CHECK:         zero.reduce sum %arg1 into %[[P:.*]] :
// CHECK:         memref.copy %[[P]]
func.func @overwritten(%x: memref<2x2xf32>, %y: memref<3x2xf32>, %z: memref<3x2x2xf32>, %out: memref<2xf32>, %packed: memref<2x1xf32>) {
  %p = memref.alloc() : memref<2xf32>
  zero.reduce sum %y into %p : memref<3x2xf32> into memref<2xf32>
  %whole = memref.alloc() : memref<2x2xf32>
  %0 = memref.subview %whole[0, 0] [1, 2] [1, 1] : memref<2x2xf32> to memref<2xf32, strided<[1]>>
  memref.copy %p, %0 : memref<2xf32> to memref<2xf32, strided<[1]>>
  zero.reduce sum %whole into %out : memref<2x2xf32> into memref<2xf32>
  zero.reduce sum %z into %whole : memref<3x2x2xf32> into memref<2x2xf32>
  zero.pack_slices %p slices <dim = 0, factors = [2], chunk = [0]> into %packed
      : memref<2xf32> into memref<2x1xf32>
  return
}
