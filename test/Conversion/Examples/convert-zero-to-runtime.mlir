// What `convert-zero-to-runtime` makes of input.mlir is output.mlir.
// RUN: split-file %s %t
// RUN: zpp-opt %t/output.mlir -o %t/expected.mlir
// RUN: zpp-opt %t/input.mlir --convert-zero-to-runtime --remarks-filter=none | diff %t/expected.mlir -

//--- input.mlir
#mesh = #zero.mesh<"gpu" = 2>
func.func @exchange(%x: memref<2x64xi8>, %y: memref<2x64xi8>) {
  zero.all_to_all %x along ["gpu"] on #mesh into %y : memref<2x64xi8> into
      memref<2x64xi8> loc("step.py":12:3)
  return
}

//--- output.mlir
llvm.mlir.global internal constant @zpp_rt_string("step.py:12:3\00")
    {addr_space = 0 : i32}
llvm.mlir.global internal constant @zpp_rt_string_0("gpu\00") {addr_space =
    0 : i32}
llvm.mlir.global internal constant @zpp_rt_axes() {addr_space = 0 : i32} :
    !llvm.struct<(ptr, i64, i64)> {
  %0 = llvm.mlir.undef : !llvm.struct<(ptr, i64, i64)>
  %1 = llvm.mlir.addressof @zpp_rt_string_0 : !llvm.ptr
  %2 = llvm.insertvalue %1, %0[0] : !llvm.struct<(ptr, i64, i64)>
  %3 = llvm.mlir.constant(1 : i64) : i64
  %4 = llvm.insertvalue %3, %2[1] : !llvm.struct<(ptr, i64, i64)>
  %5 = llvm.mlir.constant(2 : i64) : i64
  %6 = llvm.insertvalue %5, %4[2] : !llvm.struct<(ptr, i64, i64)>
  llvm.return %6 : !llvm.struct<(ptr, i64, i64)>
}
llvm.mlir.global internal constant @zpp_rt_string_1("gpu:2\00") {addr_space
    = 0 : i32}
llvm.mlir.global internal constant @zpp_rt_exchange_desc() {addr_space = 0 :
    i32} : !llvm.struct<(i64, ptr, ptr, i64, i64, ptr)> {
  %0 = llvm.mlir.undef : !llvm.struct<(i64, ptr, ptr, i64, i64, ptr)>
  %1 = llvm.mlir.constant(48 : i64) : i64
  %2 = llvm.insertvalue %1, %0[0] : !llvm.struct<(i64, ptr, ptr, i64, i64,
      ptr)>
  %3 = llvm.mlir.addressof @zpp_rt_string : !llvm.ptr
  %4 = llvm.insertvalue %3, %2[1] : !llvm.struct<(i64, ptr, ptr, i64, i64,
      ptr)>
  %5 = llvm.mlir.addressof @zpp_rt_axes : !llvm.ptr
  %6 = llvm.insertvalue %5, %4[2] : !llvm.struct<(i64, ptr, ptr, i64, i64,
      ptr)>
  %7 = llvm.mlir.constant(1 : i64) : i64
  %8 = llvm.insertvalue %7, %6[3] : !llvm.struct<(i64, ptr, ptr, i64, i64,
      ptr)>
  %9 = llvm.mlir.constant(64 : i64) : i64
  %10 = llvm.insertvalue %9, %8[4] : !llvm.struct<(i64, ptr, ptr, i64, i64,
      ptr)>
  %11 = llvm.mlir.addressof @zpp_rt_string_1 : !llvm.ptr
  %12 = llvm.insertvalue %11, %10[5] : !llvm.struct<(i64, ptr, ptr, i64,
      i64, ptr)>
  llvm.return %12 : !llvm.struct<(i64, ptr, ptr, i64, i64, ptr)>
}
llvm.func @zpp_rt_all_to_all(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) ->
    i32
func.func @exchange(%arg0: !llvm.ptr, %arg1: memref<2x64xi8>, %arg2:
    memref<2x64xi8>) {
  %intptr = memref.extract_aligned_pointer_as_index %arg1 : memref<2x64xi8>
      -> index
  %0 = arith.index_cast %intptr : index to i64
  %1 = llvm.inttoptr %0 : i64 to !llvm.ptr
  %intptr_0 = memref.extract_aligned_pointer_as_index %arg2 :
      memref<2x64xi8> -> index
  %2 = arith.index_cast %intptr_0 : index to i64
  %3 = llvm.inttoptr %2 : i64 to !llvm.ptr
  %4 = llvm.mlir.addressof @zpp_rt_exchange_desc : !llvm.ptr
  %5 = llvm.call @zpp_rt_all_to_all(%arg0, %4, %1, %3) : (!llvm.ptr,
      !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
  return
}
