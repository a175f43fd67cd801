// RUN: zpp-opt %s --convert-zero-to-runtime --split-input-file | FileCheck %s

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// Descriptors are constants with the fields of zpp_rt.h: struct_size, name,
// element_type (BF16), format, block, then the slices: outer, unit, inner,
// extent, factors, chunk_factors, stage, stages; the stride of chunks, 0; last
// the elements of a rotated group.
// CHECK:       llvm.mlir.global internal constant @[[NAME:.*]]("step.py:12:3\00")
// CHECK:       llvm.mlir.global internal constant @[[FACTORS:.*]](dense<[2, 4]> : tensor<2xi64>)
// CHECK:       llvm.mlir.global internal constant @[[CHUNK:.*]](dense<1> : tensor<1xi64>)
// CHECK:       llvm.mlir.global internal constant @[[DESC:zpp_rt_quantize_desc]]()
// CHECK-SAME:    !llvm.struct<(i64, ptr, i64, i64, i64, i64, i64, i64, i64, ptr, i64, ptr, i64, i64, i64, i64, i64)>
// CHECK:         constant(136 : i64)
// CHECK:         addressof @[[NAME]]
// CHECK:         constant(1 : i64)
// CHECK:         constant(4 : i64)
// CHECK:         constant(256 : i64)
// CHECK:         constant(1 : i64)
// CHECK:         constant(8 : i64)
// CHECK:         constant(7 : i64)
// CHECK:         constant(61 : i64)
// CHECK:         addressof @[[FACTORS]]
// CHECK:         constant(2 : i64)
// CHECK:         addressof @[[CHUNK]]
// CHECK:         constant(1 : i64)
// CHECK:         constant(1 : i64)
// CHECK:         constant(3 : i64)
// CHECK:         constant(0 : i64)
// CHECK:         constant(32 : i64)
// CHECK:       llvm.func @zpp_rt_quantize(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32

// CHECK-LABEL: func.func @quantize
// CHECK-SAME:    (%[[RANK:.*]]: !llvm.ptr, %[[X:.*]]: memref<61x7xbf16>, %[[Y:.*]]: memref<4x48xi8>)
func.func @quantize(%x: memref<61x7xbf16>, %y: memref<4x48xi8>) {
  // CHECK-DAG: %[[XINDEX:.*]] = memref.extract_aligned_pointer_as_index %[[X]]
  // CHECK-DAG: %[[XINT:.*]] = arith.index_cast %[[XINDEX]] : index to i64
  // CHECK-DAG: %[[XPTR:.*]] = llvm.inttoptr %[[XINT]]
  // CHECK-DAG: %[[YINDEX:.*]] = memref.extract_aligned_pointer_as_index %[[Y]]
  // CHECK-DAG: %[[YINT:.*]] = arith.index_cast %[[YINDEX]] : index to i64
  // CHECK-DAG: %[[YPTR:.*]] = llvm.inttoptr %[[YINT]]
  // CHECK-DAG: %[[D:.*]] = llvm.mlir.addressof @[[DESC]]
  // CHECK: llvm.call @zpp_rt_quantize(%[[RANK]], %[[D]], %[[XPTR]], %[[YPTR]])
  // CHECK-NOT: zero.
  zero.quantize %x quant <i4, block = 256, rotate = 32>
      slices <dim = 0, factors = [2, 4], chunk = [1], stage = 1 of 3> into %y
      : memref<61x7xbf16> into memref<4x48xi8> loc("step.py":12:3)
  return
}

// -----

// What is held comes between input and output.
// CHECK-LABEL: func.func @differences
// CHECK-SAME:    (%[[RANK:.*]]: !llvm.ptr, %[[X:.*]]: memref<4x8xbf16>, %[[H:.*]]: memref<4x8xbf16>, %[[B:.*]]: memref<4x32xi8>)
func.func @differences(%x: memref<4x8xbf16>, %h: memref<4x8xbf16>, %b: memref<4x32xi8>) {
  // CHECK: %[[XINDEX:.*]] = memref.extract_aligned_pointer_as_index %[[X]]
  // CHECK: %[[XINT:.*]] = arith.index_cast %[[XINDEX]]
  // CHECK: %[[XPTR:.*]] = llvm.inttoptr %[[XINT]]
  // CHECK: %[[HINDEX:.*]] = memref.extract_aligned_pointer_as_index %[[H]]
  // CHECK: %[[HINT:.*]] = arith.index_cast %[[HINDEX]]
  // CHECK: %[[HPTR:.*]] = llvm.inttoptr %[[HINT]]
  // CHECK: %[[BINDEX:.*]] = memref.extract_aligned_pointer_as_index %[[B]]
  // CHECK: %[[BINT:.*]] = arith.index_cast %[[BINDEX]]
  // CHECK: %[[BPTR:.*]] = llvm.inttoptr %[[BINT]]
  // CHECK: llvm.call @zpp_rt_quantize_difference(%[[RANK]], %{{.*}}, %[[XPTR]], %[[HPTR]], %[[BPTR]])
  zero.quantize_difference %x minus %h quant <i8, block = 32> into %b
      : memref<4x8xbf16>, memref<4x8xbf16> into memref<4x32xi8>
  // CHECK: llvm.call @zpp_rt_dequantize_add(%[[RANK]], %{{.*}}, %{{.*}}, %[[SAME:.*]], %{{.*}})
  zero.dequantize_add %b plus %h quant <i8, block = 32> into %h
      : memref<4x32xi8>, memref<4x8xbf16> into memref<4x8xbf16>
  return
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// Axes: name, pre_size, size. A fused location stands for its first part, a
// name for what it names.
// CHECK:       llvm.mlir.global internal constant @[[NAME:.*]]("gather at step.py:7:1\00")
// CHECK:       llvm.mlir.global internal constant @[[NODE:.*]]("node\00")
// CHECK:       llvm.mlir.global internal constant @[[GPU:.*]]("gpu\00")
// CHECK:       llvm.mlir.global internal constant @[[AXES:zpp_rt_axes]]() {{.*}} !llvm.struct<(ptr, i64, i64, ptr, i64, i64)>
// CHECK:         addressof @[[NODE]]
// CHECK:         constant(1 : i64)
// CHECK:         constant(2 : i64)
// CHECK:         addressof @[[GPU]]
// CHECK:         constant(2 : i64)
// CHECK:         constant(2 : i64)
// CHECK:       llvm.mlir.global internal constant @[[MESH:.*]]("node:2,gpu:4\00")
// CHECK:       llvm.mlir.global internal constant @zpp_rt_exchange_desc() {{.*}} !llvm.struct<(i64, ptr, ptr, i64, i64, ptr)>
// CHECK:         constant(48 : i64)
// CHECK:         addressof @[[NAME]]
// CHECK:         addressof @[[AXES]]
// CHECK:         constant(2 : i64)
// CHECK:         constant(12 : i64)
// CHECK:         addressof @[[MESH]]
// CHECK:       llvm.func @zpp_rt_all_gather_chunks
// The second op shares strings and the entry point.
// CHECK-NOT:   "node\00"
// CHECK-NOT:   llvm.func @zpp_rt_all_gather_chunks

// Callers get the rank too and pass it on; others do not.
// CHECK-LABEL: func.func @gather(%arg0: !llvm.ptr, %arg1: memref<3xf32>, %arg2: memref<4x3xf32>)
func.func @gather(%x: memref<3xf32>, %y: memref<4x3xf32>) {
  // CHECK-COUNT-2: llvm.call @zpp_rt_all_gather_chunks(%arg0,
  zero.all_gather_chunks %x along ["node", "gpu":(2)2] on #mesh into %y
      : memref<3xf32> into memref<4x3xf32>
      loc(fused["gather"("step.py":7:1), "other.py":1:1])
  zero.all_gather_chunks %x along ["node", "gpu":(2)2] on #mesh into %y
      : memref<3xf32> into memref<4x3xf32>
  return
}
// CHECK-LABEL: func.func @indirect_caller(%arg0: !llvm.ptr,
// CHECK:         call @caller(%arg0, %arg1, %arg2)
func.func @indirect_caller(%x: memref<3xf32>, %y: memref<4x3xf32>) {
  func.call @caller(%x, %y) : (memref<3xf32>, memref<4x3xf32>) -> ()
  return
}
// CHECK-LABEL: func.func @caller(%arg0: !llvm.ptr,
// CHECK:         call @gather(%arg0, %arg1, %arg2) : (!llvm.ptr, memref<3xf32>, memref<4x3xf32>) -> ()
func.func @caller(%x: memref<3xf32>, %y: memref<4x3xf32>) {
  func.call @gather(%x, %y) : (memref<3xf32>, memref<4x3xf32>) -> ()
  return
}
// CHECK-LABEL: func.func @unrelated(%arg0: memref<3xf32>)
func.func @unrelated(%x: memref<3xf32>) {
  return
}

// -----

// A dense part of a buffer starts at its offset.
// CHECK-LABEL: func.func @offset
// CHECK:         %[[INDEX:.*]] = memref.extract_aligned_pointer_as_index %arg1
// CHECK:         %{{.*}}, %[[OFFSET:.*]], %{{.*}}, %{{.*}} = memref.extract_strided_metadata %arg1
// CHECK:         %[[TWO:.*]] = arith.constant 2 : index
// CHECK:         %[[BYTES:.*]] = arith.muli %[[OFFSET]], %[[TWO]]
// CHECK:         arith.addi %[[INDEX]], %[[BYTES]]
func.func @offset(%x: memref<4x8xbf16, strided<[8, 1], offset: ?>>,
                  %y: memref<8xf32>) {
  zero.reduce mean %x into %y
      : memref<4x8xbf16, strided<[8, 1], offset: ?>> into memref<8xf32>
  return
}

// -----

// The other descriptors.
#mesh = #zero.mesh<"gpu" = 4>
// reduce: kind MEAN, 4 sources of 8 elements BF16, format NONE, into F32.
// CHECK:       @zpp_rt_reduce_desc()
// CHECK:         constant(88 : i64)
// CHECK:         constant(1 : i64)
// CHECK:         constant(4 : i64)
// CHECK:         constant(8 : i64)
// CHECK:         constant(1 : i64)
// CHECK:         constant(0 : i64)
// CHECK:         constant(0 : i64)
// CHECK:         constant(0 : i64)
// dequantize_reduce: kind SUM, 4 sources, 8 elements, i8 in blocks of 32, into
// F16; sources without gaps, rotated back.
// CHECK:       @zpp_rt_reduce_desc_{{.*}}() {{.*}}(i64, ptr, i64, i64, i64, i64, i64, i64, i64, i64, i64)
// CHECK:         constant(88 : i64)
// CHECK:         constant(0 : i64)
// CHECK:         constant(4 : i64)
// CHECK:         constant(8 : i64)
// CHECK:         constant(0 : i64)
// CHECK:         constant(8 : i64)
// CHECK:         constant(32 : i64)
// CHECK:         constant(2 : i64)
// CHECK:         constant(0 : i64)
// CHECK:         constant(32 : i64)
// CHECK:       @zpp_rt_reduce_quantize_desc
// CHECK:         constant(168 : i64)
// CHECK:       @zpp_rt_pack_desc
// CHECK:         constant(112 : i64)
// CHECK-LABEL: func.func @others
// CHECK: llvm.call @zpp_rt_reduce(
// CHECK: llvm.call @zpp_rt_dequantize_reduce(
// CHECK: llvm.call @zpp_rt_dequantize_reduce_quantize(
// CHECK: llvm.call @zpp_rt_pack_slices(
// CHECK: llvm.call @zpp_rt_unpack_slices(
// CHECK: llvm.call @zpp_rt_dequantize(
// CHECK: llvm.call @zpp_rt_all_to_all(
func.func @others(%a: memref<4x8xbf16>, %b: memref<8xf32>, %w: memref<4x32xi8>,
                  %h: memref<8xf16>, %v: memref<2x32xi8>, %p: memref<4x2xf32>,
                  %x: memref<4x8xf32>, %w2: memref<4x32xi8>) {
  zero.reduce mean %a into %b : memref<4x8xbf16> into memref<8xf32>
  zero.dequantize_reduce sum %w quant <i8, block = 32, rotate = 32> into %h
      : memref<4x32xi8> into memref<8xf16>
  zero.dequantize_reduce_quantize sum %w quant <i8, block = 32>
      partial tensor<8xf32> to <i4, block = 32>
      slices <dim = 0, factors = [2], chunk = [0]> into %v
      : memref<4x32xi8> into memref<2x32xi8>
  zero.pack_slices %b slices <dim = 0, factors = [4], chunk = [0]> into %p
      : memref<8xf32> into memref<4x2xf32>
  zero.unpack_slices %p slices <dim = 0, factors = [4], chunk = [0]> into %b
      : memref<4x2xf32> into memref<8xf32>
  zero.dequantize %w quant <i8, block = 32> into %x
      : memref<4x32xi8> into memref<4x8xf32>
  zero.all_to_all %w along ["gpu"] on #mesh into %w2
      : memref<4x32xi8> into memref<4x32xi8>
  return
}

// -----

// Chunks that lie apart: the stride in bytes is the last field; where both
// sides have one, the source's comes first. Chunks may be numbered by several
// dims that count on.
// CHECK:       @zpp_rt_quantize_desc()
// CHECK:         insertvalue %{{.*}}[14]
// CHECK-NEXT:    constant(112 : i64)
// CHECK-NEXT:    insertvalue %{{.*}}[15]
// CHECK:       @zpp_rt_quantize_desc_{{.*}}()
// CHECK:         insertvalue %{{.*}}[14]
// CHECK-NEXT:    constant(128 : i64)
// CHECK-NEXT:    insertvalue %{{.*}}[15]
// CHECK:       @zpp_rt_reduce_quantize_desc()
// CHECK:         insertvalue %{{.*}}[18]
// CHECK-NEXT:    constant(224 : i64)
// CHECK-NEXT:    insertvalue %{{.*}}[19]
// CHECK-NEXT:    constant(96 : i64)
// CHECK-NEXT:    insertvalue %{{.*}}[20]
// CHECK:       @zpp_rt_pack_desc()
// CHECK:         insertvalue %{{.*}}[12]
// CHECK-NEXT:    constant(40 : i64)
// CHECK-NEXT:    insertvalue %{{.*}}[13]
// CHECK:       @zpp_rt_reduce_desc()
// CHECK:         insertvalue %{{.*}}[8]
// CHECK-NEXT:    constant(40 : i64)
// CHECK-NEXT:    insertvalue %{{.*}}[9]
// CHECK-LABEL: func.func @strides
func.func @strides(%x: memref<4x8xf32>, %q: memref<4x32xi8, strided<[112, 1], offset: 64>>,
                   %g: memref<2x2x32xi8, strided<[256, 128, 1]>>,
                   %d: memref<4x32xi8, strided<[224, 1]>>, %e: memref<2x32xi8, strided<[96, 1]>>,
                   %v: memref<8xf32>, %p: memref<4x2xf32, strided<[10, 1]>>, %s: memref<2xf32>) {
  zero.quantize %x quant <i8, block = 32> into %q
      : memref<4x8xf32> into memref<4x32xi8, strided<[112, 1], offset: 64>>
  zero.dequantize %g quant <i8, block = 32> into %x
      : memref<2x2x32xi8, strided<[256, 128, 1]>> into memref<4x8xf32>
  zero.dequantize_reduce_quantize sum %d quant <i8, block = 32>
      partial tensor<8xf32> to <i8, block = 32>
      slices <dim = 0, factors = [2], chunk = [0]> into %e
      : memref<4x32xi8, strided<[224, 1]>> into memref<2x32xi8, strided<[96, 1]>>
  zero.pack_slices %v slices <dim = 0, factors = [4], chunk = [0]> into %p
      : memref<8xf32> into memref<4x2xf32, strided<[10, 1]>>
  zero.reduce sum %p into %s
      : memref<4x2xf32, strided<[10, 1]>> into memref<2xf32>
  return
}

// -----

// Copies in functions that take the rank are the runtime's: of one piece, of
// rows, and of rows in loops.
#mesh = #zero.mesh<"gpu" = 4>
// rows, row_bytes, source_stride, dest_stride
// CHECK:       @[[DENSE_DESC:zpp_rt_copy_desc]]()
// CHECK:         llvm.mlir.constant(48 : i64)
// CHECK:         llvm.mlir.addressof @zpp_rt_string
// CHECK:         llvm.mlir.constant(1 : i64)
// CHECK:         llvm.mlir.constant(96 : i64)
// CHECK:         llvm.mlir.constant(96 : i64)
// CHECK:         llvm.mlir.constant(96 : i64)
// CHECK:       @[[ROWS_DESC:zpp_rt_copy_desc_[0-9]+]]()
// CHECK:         llvm.mlir.constant(48 : i64)
// CHECK:         llvm.mlir.addressof @zpp_rt_string
// CHECK:         llvm.mlir.constant(4 : i64)
// CHECK:         llvm.mlir.constant(24 : i64)
// CHECK:         llvm.mlir.constant(24 : i64)
// CHECK:         llvm.mlir.constant(32 : i64)
// CHECK-LABEL: func.func @copies(%arg0: !llvm.ptr,
// CHECK-SAME:    %[[A:.*]]: memref<4x6xf32>, %[[B:.*]]: memref<4x6xf32>, %[[C:.*]]: memref<4x6xf32, strided<[8, 1], offset: 2>>,
func.func @copies(%a: memref<4x6xf32>, %b: memref<4x6xf32>,
                  %c: memref<4x6xf32, strided<[8, 1], offset: 2>>,
                  %d: memref<5x4x3x2xi16, strided<[1000, 8, 100, 1]>>,
                  %e: memref<5x4x3x2xi16>,
                  %u: memref<4x6xf32, strided<[?, 1]>>) {
  // CHECK: %[[DENSE:.*]] = llvm.mlir.addressof @[[DENSE_DESC]] : !llvm.ptr
  // CHECK: llvm.call @zpp_rt_copy_rows(%arg0, %[[DENSE]], %{{.*}}, %{{.*}})
  memref.copy %a, %b : memref<4x6xf32> to memref<4x6xf32>
  // CHECK: %[[ROWS:.*]] = llvm.mlir.addressof @[[ROWS_DESC]] : !llvm.ptr
  // CHECK: llvm.call @zpp_rt_copy_rows(%arg0, %[[ROWS]], %{{.*}}, %{{.*}})
  memref.copy %a, %c : memref<4x6xf32> to memref<4x6xf32, strided<[8, 1], offset: 2>>
  // 5 x 4 x 3 rows of 4 bytes: one call for each 4, the two others being loops.
  // CHECK-NOT: memref.copy
  // CHECK: scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step
  // CHECK:   %[[TI:.*]] = llvm.mul %[[I]], %{{.*}}
  // CHECK:   llvm.getelementptr %{{.*}}[%[[TI]]]
  // CHECK:   scf.for
  // CHECK:     llvm.call @zpp_rt_copy_rows(
  memref.copy %d, %e : memref<5x4x3x2xi16, strided<[1000, 8, 100, 1]>> to memref<5x4x3x2xi16>
  // Strides that are not known are left to the host.
  // CHECK: memref.copy
  memref.copy %u, %a : memref<4x6xf32, strided<[?, 1]>> to memref<4x6xf32>
  zero.all_to_all %a along ["gpu"] on #mesh into %b
      : memref<4x6xf32> into memref<4x6xf32>
  return
}
// CHECK-LABEL: func.func @host_copies(%arg0: memref<4xf32>
// CHECK:         memref.copy
func.func @host_copies(%a: memref<4xf32>, %b: memref<4xf32>) {
  memref.copy %a, %b : memref<4xf32> to memref<4xf32>
  return
}
