// RUN: zpp-opt %s --convert-zero-to-runtime | FileCheck %s

// Data that is only moved may have any type of 1, 2, 4 or 8 bytes in memory: a
// predicate takes one, a complex number both of its parts.

#mesh = #zero.mesh<"gpu" = 4>

// Bytes of a chunk, after the axes and their number.
// CHECK-DAG: llvm.mlir.constant(16 : i64)
// CHECK-LABEL: func.func @predicates
// CHECK:         llvm.call @zpp_rt_all_gather
func.func @predicates(%x: memref<16xi1>, %y: memref<4x16xi1>) {
  zero.all_gather_chunks %x along ["gpu"] on #mesh into %y
      : memref<16xi1> into memref<4x16xi1>
  return
}

// CHECK-LABEL: func.func @complex
// CHECK:         llvm.call @zpp_rt_all_gather
func.func @complex(%x: memref<2xcomplex<f32>>, %y: memref<4x2xcomplex<f32>>) {
  zero.all_gather_chunks %x along ["gpu"] on #mesh into %y
      : memref<2xcomplex<f32>> into memref<4x2xcomplex<f32>>
  return
}
