// RUN: zpp-opt %s --zero-pack-arguments | FileCheck %s

// CHECK-LABEL: func.func @zpp_collective_0(%arg0: !llvm.ptr, %arg1: !llvm.ptr) {
// CHECK:         %[[X:.*]] = llvm.getelementptr %arg1[0] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
// CHECK-NEXT:    %[[DATA:.*]] = llvm.load %[[X]]
// CHECK:         llvm.insertvalue %[[DATA]], %{{.*}}[1]
// CHECK:         %[[BUFFER:.*]] = builtin.unrealized_conversion_cast %{{.*}} to memref<4x2xf32>
// CHECK-NOT:     llvm.getelementptr %arg1[1]
// CHECK:         llvm.getelementptr %arg1[2]
// CHECK:         call @helper(%arg0, %[[BUFFER]], %{{.*}})
func.func @zpp_collective_0(%rank: !llvm.ptr, %x: memref<4x2xf32>,
                            %unused: memref<2xf32> {bufferize.result},
                            %w: memref<256xi8> {zpp.workspace}) {
  call @helper(%rank, %x, %w) : (!llvm.ptr, memref<4x2xf32>, memref<256xi8>) -> ()
  return
}
// CHECK-LABEL: func.func private @helper(%arg0: !llvm.ptr, %arg1: memref<4x2xf32>, %arg2: memref<256xi8>)
// CHECK-SAME:    attributes {llvm.linkage = #llvm.linkage<internal>}
func.func private @helper(%rank: !llvm.ptr, %x: memref<4x2xf32>, %w: memref<256xi8>) {
  return
}
