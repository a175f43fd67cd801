// RUN: zpp-opt %s --zero-plan-workspace --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-plan-workspace=reuse=any --split-input-file | FileCheck %s --check-prefix=ANY
// RUN: zpp-opt %s --zero-plan-workspace=reuse=none --split-input-file | FileCheck %s --check-prefix=NONE
// RUN: zpp-opt %s --zero-plan-workspace=all-functions --split-input-file | FileCheck %s --check-prefix=ALL

#mesh = #zero.mesh<"gpu" = 4>

// Three hops of one chain alternate between two places.
// CHECK-LABEL: func.func @chain
// CHECK-SAME:    %arg2: memref<768xi8> {zpp.workspace})
// CHECK:         %[[C512:.*]] = arith.constant 512 : index
// CHECK-NEXT:    memref.view %arg2[%[[C512]]][] : memref<768xi8> to memref<4x16xi8>
// CHECK:         %[[C0:.*]] = arith.constant 0 : index
// CHECK-NEXT:    memref.view %arg2[%[[C0]]][] : memref<768xi8> to memref<4x100xi8>
// CHECK:         %[[AGAIN:.*]] = arith.constant 512 : index
// CHECK-NEXT:    memref.view %arg2[%[[AGAIN]]][] : memref<768xi8> to memref<4x20xi8>
// NONE-LABEL: func.func @chain
// NONE-SAME:    memref<1024xi8> {zpp.workspace})
func.func @chain(%x: memref<4x16xi8>, %y: memref<4x4xi8>) {
  %0 = memref.alloc() : memref<4x16xi8>
  zero.all_to_all %x along ["gpu"] on #mesh into %0 : memref<4x16xi8> into memref<4x16xi8>
  %1 = memref.alloc() : memref<4x100xi8>
  call @widen(%0, %1) : (memref<4x16xi8>, memref<4x100xi8>) -> ()
  %2 = memref.alloc() : memref<4x20xi8>
  call @shrink(%1, %2) : (memref<4x100xi8>, memref<4x20xi8>) -> ()
  %3 = memref.subview %2[0, 8] [4, 4] [1, 1] : memref<4x20xi8> to memref<4x4xi8, strided<[20, 1], offset: 8>>
  memref.copy %3, %y : memref<4x4xi8, strided<[20, 1], offset: 8>> to memref<4x4xi8>
  return
}
func.func private @widen(memref<4x16xi8>, memref<4x100xi8>)
func.func private @shrink(memref<4x100xi8>, memref<4x20xi8>)

// -----

#mesh = #zero.mesh<"gpu" = 4>

// Two stages keep their own buffers, although the first is over before the
// second begins in program order: nothing makes the second wait for it.
// CHECK-LABEL: func.func @stages
// CHECK-SAME:    memref<1024xi8> {zpp.workspace})
// ANY-LABEL: func.func @stages
// ANY-SAME:    memref<512xi8> {zpp.workspace})
func.func @stages(%x: memref<8xf32>, %y: memref<4xf32>) {
  %0 = memref.alloc() : memref<4x1xf32>
  zero.pack_slices %x slices <dim = 0, factors = [4], chunk = [0], stage = 0 of 2> into %0
      : memref<8xf32> into memref<4x1xf32>
  %1 = memref.alloc() : memref<4x1xf32>
  zero.all_to_all %0 along ["gpu"] on #mesh into %1 : memref<4x1xf32> into memref<4x1xf32>
  %2 = memref.subview %y[0] [1] [1] : memref<4xf32> to memref<1xf32, strided<[1]>>
  zero.reduce sum %1 into %2 : memref<4x1xf32> into memref<1xf32, strided<[1]>>
  %3 = memref.alloc() : memref<4x1xf32>
  zero.pack_slices %x slices <dim = 0, factors = [4], chunk = [0], stage = 1 of 2> into %3
      : memref<8xf32> into memref<4x1xf32>
  %4 = memref.alloc() : memref<4x1xf32>
  zero.all_to_all %3 along ["gpu"] on #mesh into %4 : memref<4x1xf32> into memref<4x1xf32>
  %5 = memref.subview %y[1] [1] [1] : memref<4xf32> to memref<1xf32, strided<[1], offset: 1>>
  zero.reduce sum %4 into %5 : memref<4x1xf32> into memref<1xf32, strided<[1], offset: 1>>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

// A callee's workspace is a part of its caller's. Two calls of which one needs
// the other use the same part, two others have their own.
// CHECK-LABEL: func.func @dependent_calls
// CHECK-SAME:    %arg2: memref<768xi8> {zpp.workspace})
// CHECK:         %[[C512:.*]] = arith.constant 512 : index
// CHECK-NEXT:    memref.view %arg2[%[[C512]]][] : memref<768xi8> to memref<4x1xf32>
// CHECK-NEXT:    %[[C0:.*]] = arith.constant 0 : index
// CHECK-NEXT:    %[[FIRST:.*]] = memref.view %arg2[%[[C0]]][] : memref<768xi8> to memref<512xi8>
// CHECK-NEXT:    call @callee(%arg0, %{{.*}}, %[[FIRST]]) : (memref<4x1xf32>, memref<4x1xf32>, memref<512xi8>) -> ()
// CHECK-NEXT:    %[[AGAIN:.*]] = arith.constant 0 : index
// CHECK-NEXT:    %[[SECOND:.*]] = memref.view %arg2[%[[AGAIN]]][] : memref<768xi8> to memref<512xi8>
// CHECK-NEXT:    call @callee(%{{.*}}, %arg1, %[[SECOND]])
func.func @dependent_calls(%x: memref<4x1xf32>, %y: memref<4x1xf32>) {
  %0 = memref.alloc() : memref<4x1xf32>
  call @callee(%x, %0) : (memref<4x1xf32>, memref<4x1xf32>) -> ()
  call @callee(%0, %y) : (memref<4x1xf32>, memref<4x1xf32>) -> ()
  return
}
// CHECK-LABEL: func.func @independent_calls
// CHECK-SAME:    memref<1024xi8> {zpp.workspace})
// ANY-LABEL: func.func @independent_calls
// ANY-SAME:    memref<512xi8> {zpp.workspace})
func.func @independent_calls(%x: memref<4x1xf32>, %y: memref<4x1xf32>, %z: memref<4x1xf32>) {
  call @callee(%x, %y) : (memref<4x1xf32>, memref<4x1xf32>) -> ()
  call @callee(%x, %z) : (memref<4x1xf32>, memref<4x1xf32>) -> ()
  return
}
// CHECK-LABEL: func.func private @callee
// CHECK-SAME:    memref<512xi8> {zpp.workspace})
func.func private @callee(%x: memref<4x1xf32>, %y: memref<4x1xf32>) {
  %0 = memref.alloc() : memref<4x1xf32>
  zero.all_to_all %x along ["gpu"] on #mesh into %0 : memref<4x1xf32> into memref<4x1xf32>
  %1 = memref.alloc() : memref<4x1xf32>
  zero.all_to_all %0 along ["gpu"] on #mesh into %1 : memref<4x1xf32> into memref<4x1xf32>
  zero.all_to_all %1 along ["gpu"] on #mesh into %y : memref<4x1xf32> into memref<4x1xf32>
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

// In a loop a buffer has one place for all iterations. One from outside lives
// through the loop, whatever the order in its body.
// CHECK-LABEL: func.func @loop
// CHECK-SAME:    memref<512xi8> {zpp.workspace})
// CHECK:         scf.for
// CHECK:           memref.view
// ANY-LABEL: func.func @loop
// ANY-SAME:    memref<512xi8> {zpp.workspace})
func.func @loop(%x: memref<4x1xf32>, %y: memref<4x1xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  %outside = memref.alloc() : memref<4x1xf32>
  scf.for %i = %c0 to %c9 step %c1 {
    zero.all_to_all %x along ["gpu"] on #mesh into %outside : memref<4x1xf32> into memref<4x1xf32>
    %0 = memref.alloc() : memref<4x1xf32>
    zero.all_to_all %x along ["gpu"] on #mesh into %0 : memref<4x1xf32> into memref<4x1xf32>
    zero.all_to_all %0 along ["gpu"] on #mesh into %y : memref<4x1xf32> into memref<4x1xf32>
    %1 = memref.alloc() : memref<4x1xf32>
    zero.all_to_all %y along ["gpu"] on #mesh into %1 : memref<4x1xf32> into memref<4x1xf32>
    zero.all_to_all %1 along ["gpu"] on #mesh into %y : memref<4x1xf32> into memref<4x1xf32>
  }
  return
}

// -----

#mesh = #zero.mesh<"gpu" = 4>

// Allocations that a loop carries, that are returned or that have a dynamic
// size stay.
// CHECK-LABEL: func.func @carried
// CHECK-SAME:    memref<256xi8> {zpp.workspace}) -> memref<4x1xf32> {
// CHECK:         memref.alloc(%arg2)
// CHECK-NEXT:    memref.alloc() : memref<4x1xf32>
// CHECK:         memref.view %arg3
// CHECK:         scf.for
// CHECK-NEXT:      memref.alloc() : memref<4x1xf32>
func.func @carried(%x: memref<4x1xf32>, %y: memref<4x1xf32>, %n: index) -> memref<4x1xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %dynamic = memref.alloc(%n) : memref<?xf32>
  %returned = memref.alloc() : memref<4x1xf32>
  %first = memref.alloc() : memref<4x1xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%old = %first) -> memref<4x1xf32> {
    %new = memref.alloc() : memref<4x1xf32>
    zero.all_to_all %old along ["gpu"] on #mesh into %new : memref<4x1xf32> into memref<4x1xf32>
    scf.yield %new : memref<4x1xf32>
  }
  memref.copy %r, %returned : memref<4x1xf32> to memref<4x1xf32>
  return %returned : memref<4x1xf32>
}

// -----

// A function without zero ops is not the runtime's, unless all are.
// CHECK-LABEL: func.func @host
// CHECK:         memref.alloc
// ALL-LABEL: func.func @host
// ALL-SAME:    memref<256xi8> {zpp.workspace})
func.func @host(%x: memref<4xf32>, %y: memref<4xf32>) {
  %0 = memref.alloc() : memref<4xf32>
  memref.copy %x, %0 : memref<4xf32> to memref<4xf32>
  memref.copy %0, %y : memref<4xf32> to memref<4xf32>
  memref.dealloc %0 : memref<4xf32>
  return
}
