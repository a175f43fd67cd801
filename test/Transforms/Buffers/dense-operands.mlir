// RUN: zpp-opt %s --zero-dense-operands | FileCheck %s

#mesh = #zero.mesh<"gpu" = 4>

// An exchange sends and receives one piece; chunks and dense parts stay.
// CHECK-LABEL: func.func @exchange
// CHECK:         %[[IN:.*]] = memref.alloc() : memref<4x8xi8>
// CHECK-NEXT:    memref.copy %arg0, %[[IN]]
// CHECK-NEXT:    %[[OUT:.*]] = memref.alloc() : memref<4x8xi8>
// CHECK-NEXT:    zero.all_to_all %[[IN]] along ["gpu"] on #{{.*}} into %[[OUT]]
// CHECK-NEXT:    memref.copy %[[OUT]], %arg1
// CHECK-NEXT:    zero.dequantize %arg2
// CHECK-NEXT:    zero.reduce sum %arg4 into
// CHECK-NEXT:    return
func.func @exchange(%x: memref<4x8xi8, strided<[16, 1]>>, %y: memref<4x8xi8, strided<[32, 1], offset: 8>>,
                    %q: memref<4x32xi8, strided<[64, 1]>>, %d: memref<4x8xf32>,
                    %s: memref<4x2xf32, strided<[2, 1], offset: 6>>, %r: memref<2xf32>) {
  zero.all_to_all %x along ["gpu"] on #mesh into %y
      : memref<4x8xi8, strided<[16, 1]>> into memref<4x8xi8, strided<[32, 1], offset: 8>>
  zero.dequantize %q quant <i8, block = 32> into %d
      : memref<4x32xi8, strided<[64, 1]>> into memref<4x8xf32>
  zero.reduce sum %s into %r : memref<4x2xf32, strided<[2, 1], offset: 6>> into memref<2xf32>
  return
}
