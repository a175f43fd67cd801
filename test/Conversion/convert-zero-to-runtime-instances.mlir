// RUN: zpp-opt %s --convert-zero-to-runtime=device-memory | FileCheck %s
// RUN: zpp-opt %s --zero-host-to-llvm | FileCheck %s --check-prefix=LLVM

// Instances have one function, which copies each descriptor and puts the name
// from a table of the caller there. Operations at one location have one name.
// One whose location does not tell, and one that the instance does not replace,
// have what they have in the function.

// CHECK-DAG: @[[FIRST:.*]]("weight #1 at step.py:3:7\00")
// CHECK-DAG: @[[BOTH:.*]]("step.py:8:1\00")

// CHECK:      llvm.mlir.global internal constant @[[NAMES:zpp_rt_names]]()
// CHECK-SAME:   !llvm.struct<(ptr, ptr, ptr)>
// CHECK:        addressof @[[FIRST]]
// CHECK:        addressof @[[BOTH]]
// CHECK:        llvm.mlir.zero
// CHECK:      @[[SECOND:.*]]("weight #9 at step.py:3:7\00")
// CHECK:      llvm.mlir.global internal constant @[[NEXT:zpp_rt_names_.*]]()
// CHECK-SAME:   !llvm.struct<(ptr, ptr, ptr)>
// CHECK:        addressof @[[SECOND]]
// CHECK:        addressof @[[BOTH]]
// CHECK:        llvm.mlir.zero

// CHECK-LABEL: func.func @layer_0
// CHECK-SAME:    (%[[RANK:.*]]: !llvm.ptr, %[[TABLE:.*]]: !llvm.ptr, %{{.*}}: memref<4xf32>, %{{.*}}: memref<2x4xf32>, %{{.*}}: memref<4xf32>)
// CHECK-SAME:    zpp.names = @[[NAMES]]
// CHECK:         %[[WORDS:.*]] = llvm.mlir.constant([[#]] : i64)
// CHECK:         %[[COPY:.*]] = llvm.alloca %[[WORDS]] x i64
// CHECK:         %[[DESC:.*]] = llvm.mlir.addressof @zpp_rt_exchange_desc
// CHECK-NEXT:    "llvm.intr.memcpy.inline"(%[[COPY]], %[[DESC]]) <{isVolatile = false, len = 48 : i64}>
// CHECK-NEXT:    %[[PLACE:.*]] = llvm.getelementptr %[[TABLE]][0] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
// CHECK-NEXT:    %[[NAME:.*]] = llvm.load %[[PLACE]]
// CHECK-NEXT:    %[[FIELD:.*]] = llvm.getelementptr %[[COPY]][8] : (!llvm.ptr) -> !llvm.ptr, i8
// CHECK-NEXT:    llvm.store %[[NAME]], %[[FIELD]]
// CHECK-NEXT:    llvm.call @zpp_rt_all_gather_chunks(%[[RANK]], %[[COPY]],
// CHECK:         llvm.getelementptr %[[TABLE]][1]
// CHECK:         llvm.call @zpp_rt_reduce(%[[RANK]], %[[COPY]],
// CHECK:         llvm.getelementptr %[[TABLE]][0]
// CHECK:         llvm.call @zpp_rt_all_gather_chunks(%[[RANK]], %[[COPY]],
// CHECK:         llvm.getelementptr %[[TABLE]][2]
// CHECK:         llvm.call @zpp_rt_copy_rows(%[[RANK]], %[[COPY]],
// CHECK:       zero.instance @layer_1 of @layer_0
// CHECK-SAME:    {zpp.names = @[[NEXT]]}

// LLVM: llvm.func @layer_0(%[[RANK:.*]]: !llvm.ptr, %[[BUFFERS:.*]]: !llvm.ptr)
// LLVM:   %[[NAMES:.*]] = llvm.mlir.addressof @zpp_rt_names
// LLVM:   llvm.call @layer_0_shared(%[[RANK]], %[[NAMES]], %[[BUFFERS]])
// LLVM: llvm.func @layer_1(
// LLVM:   llvm.call @layer_0_shared(
// LLVM: llvm.func internal @layer_0_shared(
// LLVM-SAME: passthrough = ["noinline"]

// A function without instances has its names in its descriptors.
// CHECK-LABEL: func.func @other
// CHECK-NOT:     llvm.alloca
// CHECK:         llvm.call @zpp_rt_reduce
// CHECK:         return

#mesh = #zero.mesh<"node" = 2>
func.func @layer_0(%x: memref<4xf32>, %y: memref<2x4xf32>, %z: memref<4xf32>) {
  zero.all_gather_chunks %x along ["node"] on #mesh into %y
      : memref<4xf32> into memref<2x4xf32> loc("weight #1"("step.py":3:7))
  zero.reduce sum %y into %z : memref<2x4xf32> into memref<4xf32> loc("step.py":8:1)
  zero.all_gather_chunks %z along ["node"] on #mesh into %y
      : memref<4xf32> into memref<2x4xf32> loc("weight #1"("step.py":3:7))
  memref.copy %z, %x : memref<4xf32> to memref<4xf32> loc(unknown)
  return
}
zero.instance @layer_1 of @layer_0 from [loc("weight #1"("step.py":3:7))]
    to [loc("weight #9"("step.py":3:7))] loc("weight #9"("step.py":3:7))
func.func @other(%y: memref<2x4xf32>, %z: memref<4xf32>) {
  zero.reduce sum %y into %z : memref<2x4xf32> into memref<4xf32>
  return
}
