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

// What an instance and its function call takes the table of names of either.
llvm.mlir.global internal constant @first() : !llvm.struct<(ptr)> {
  %0 = llvm.mlir.undef : !llvm.struct<(ptr)>
  llvm.return %0 : !llvm.struct<(ptr)>
}
llvm.mlir.global internal constant @second() : !llvm.struct<(ptr)> {
  %0 = llvm.mlir.undef : !llvm.struct<(ptr)>
  llvm.return %0 : !llvm.struct<(ptr)>
}
// CHECK-LABEL: func.func @layer_0(%arg0: !llvm.ptr, %arg1: !llvm.ptr) {
// CHECK-NEXT:    %[[TABLE:.*]] = llvm.mlir.addressof @first
// CHECK-NEXT:    call @layer_0_shared(%arg0, %[[TABLE]], %arg1) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
// CHECK-NEXT:    return
// CHECK-LABEL: func.func @layer_1(%arg0: !llvm.ptr, %arg1: !llvm.ptr) {
// CHECK-NEXT:    %[[TABLE:.*]] = llvm.mlir.addressof @second
// CHECK-NEXT:    call @layer_0_shared(%arg0, %[[TABLE]], %arg1)
// CHECK-NEXT:    return
// CHECK-LABEL: func.func private @layer_0_shared(%arg0: !llvm.ptr, %arg1: !llvm.ptr, %arg2: !llvm.ptr)
// CHECK-SAME:    attributes {llvm.linkage = #llvm.linkage<internal>, passthrough = ["noinline"]}
// CHECK:         llvm.getelementptr %arg2[0]
// CHECK:         call @helper(%arg0
func.func @layer_0(%rank: !llvm.ptr, %names: !llvm.ptr, %x: memref<4x2xf32>,
                   %w: memref<256xi8> {zpp.workspace})
    attributes {zpp.names = @first} {
  call @helper(%rank, %x, %w) : (!llvm.ptr, memref<4x2xf32>, memref<256xi8>) -> ()
  return
}
// CHECK-NOT: zero.instance
zero.instance @layer_1 of @layer_0 from [loc("a")] to [loc("b")] {zpp.names = @second}
