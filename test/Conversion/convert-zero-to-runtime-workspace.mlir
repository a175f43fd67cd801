// RUN: zpp-opt %s --convert-zero-to-runtime=allocate-workspaces | FileCheck %s
// Calls that pass a workspace on get no other one.
// RUN: zpp-opt %s --zero-plan-workspace --convert-zero-to-runtime=allocate-workspaces | FileCheck %s

#mesh = #zero.mesh<"gpu" = 4>

// A public function asks the runtime, and returns where there is no memory.
// CHECK-LABEL: func.func @public(%arg0: !llvm.ptr, %arg1: memref<3xf32>, %arg2: memref<4x3xf32>) {
// CHECK:         %[[SLOT:.*]] = llvm.alloca
// CHECK:         %[[BYTES:.*]] = llvm.mlir.constant(512 : i64)
// CHECK:         %[[STATUS:.*]] = llvm.call @zpp_rt_workspace(%arg0, %{{.*}}, %{{.*}}) : (!llvm.ptr, i64, !llvm.ptr) -> i32
// CHECK:         %[[DATA:.*]] = llvm.load
// CHECK:         %[[BUFFER:.*]] = builtin.unrealized_conversion_cast %{{.*}} to memref<512xi8>
// CHECK:         %[[OK:.*]] = llvm.icmp "eq" %[[STATUS]]
// CHECK:         cf.cond_br %[[OK]], ^[[BODY:.*]], ^[[EXIT:.*]]
// CHECK:       ^[[BODY]]:
// CHECK:         memref.view %[[BUFFER]]
// CHECK:         call @private(%arg0, %{{.*}}, %{{.*}}, %[[BUFFER]])
// CHECK:         return
// CHECK:       ^[[EXIT]]:
// CHECK:         return
func.func @public(%x: memref<3xf32>, %y: memref<4x3xf32>,
                  %w: memref<512xi8> {zpp.workspace}) {
  %c0 = arith.constant 0 : index
  %0 = memref.view %w[%c0][] : memref<512xi8> to memref<3xf32>
  func.call @private(%0, %y, %w) : (memref<3xf32>, memref<4x3xf32>, memref<512xi8>) -> ()
  return
}
// A private one keeps its argument.
// CHECK-LABEL: func.func private @private(%arg0: !llvm.ptr, %arg1: memref<3xf32>, %arg2: memref<4x3xf32>, %arg3: memref<512xi8> {zpp.workspace})
func.func private @private(%x: memref<3xf32>, %y: memref<4x3xf32>,
                           %w: memref<512xi8> {zpp.workspace}) {
  zero.all_gather_chunks %x along ["gpu"] on #mesh into %y
      : memref<3xf32> into memref<4x3xf32>
  return
}

// One that others call has both: the runtime would give them the same memory.
// CHECK-LABEL: func.func @both(%arg0: !llvm.ptr, %arg1: memref<3xf32>, %arg2: memref<4x3xf32>) {
// CHECK:         call @zpp_rt_workspace
// CHECK:         call @both_on_workspace(%arg0, %arg1, %arg2, %{{.*}}) : (!llvm.ptr, memref<3xf32>, memref<4x3xf32>, memref<256xi8>) -> ()
// CHECK-LABEL: func.func private @both_on_workspace(%arg0: !llvm.ptr, %arg1: memref<3xf32>, %arg2: memref<4x3xf32>, %arg3: memref<256xi8> {zpp.workspace})
func.func @both(%x: memref<3xf32>, %y: memref<4x3xf32>,
                %w: memref<256xi8> {zpp.workspace}) {
  zero.all_gather_chunks %x along ["gpu"] on #mesh into %y
      : memref<3xf32> into memref<4x3xf32>
  return
}
// CHECK-LABEL: func.func @caller(%arg0: !llvm.ptr, %arg1: memref<3xf32>, %arg2: memref<4x3xf32>) {
// CHECK:         %[[BUFFER:.*]] = builtin.unrealized_conversion_cast
// CHECK:         call @both_on_workspace(%arg0, %arg1, %arg2, %[[BUFFER]])
func.func @caller(%x: memref<3xf32>, %y: memref<4x3xf32>,
                  %w: memref<256xi8> {zpp.workspace}) {
  func.call @both(%x, %y, %w) : (memref<3xf32>, memref<4x3xf32>, memref<256xi8>) -> ()
  return
}
