// A converted program under MLIR's own JIT: mlir-runner needs no more than the
// runtime's library. The driver, which makes a world of two ranks and a thread
// for each, is in the LLVM dialect too; pipeline and driver meet in one module.

// UNSUPPORTED: sanitizer
// RUN: zpp-opt %s --zero-decompose-all-gather --zero-fuse-quantization --zero-to-llvm \
// RUN:   | sed -e '/^module/d' -e '/^}$/d' > %t.mlir
// RUN: cat %S/Inputs/mlir-runner.mlir >> %t.mlir
// RUN: mlir-runner %t.mlir --entry-point-result=i32 --shared-libs=%zpp_obj/lib/libzpp_rt.so | FileCheck %s

// Rank r gives 127 (r + 1), exact in i8; both get 127 and 254.
// CHECK: 381

#mesh = #zero.mesh<"gpu" = 2>
!slice = !zero.shard<2xf32, dim 0 = ("gpu") on #mesh>
!slice_q = !zero.shard<2xf32, dim 0 = ("gpu") on #mesh, #zero.quant<i8, block = 32>>
!whole_q = !zero.shard<2xf32, dim 0 = (2) on #mesh, #zero.quant<i8, block = 32>>
!whole = !zero.shard<2xf32, dim 0 = (2) on #mesh>
func.func @step(%w: tensor<1xf32>) -> tensor<2xf32> {
  %0 = zero.from_local %w : tensor<1xf32> to !slice
  %1 = zero.encode %0 : !slice to !slice_q
  %2 = zero.all_gather %1 along ["gpu"] : !slice_q to !whole_q
  %3 = zero.decode %2 : !whole_q to !whole
  %4 = zero.to_local %3 : !whole to tensor<2xf32>
  return %4 : tensor<2xf32>
}
