// Updates of replicated weights on all ranks, as zero-send-updates sends them:
// hop by hop, from the slow tier inwards, the same bits arrive as in one hop,
// with one kernel for the difference and one for the sum, and without.

// RUN: zpp-opt %s --zero-decompose-all-gather > %t.naive.mlir
// RUN: zpp-opt %t.naive.mlir --zero-fuse-quantization > %t.fused.mlir
// RUN: zpp-run %t.naive.mlir --entry=one_hop --output=%t.one
// RUN: zpp-run %t.naive.mlir --entry=hop_by_hop --output=%t.naive
// RUN: zpp-run %t.fused.mlir --entry=hop_by_hop --output=%t.fused
// RUN: diff %t.one0.npy %t.naive0.npy
// RUN: diff %t.one0.npy %t.fused0.npy

// If nothing has changed, what is held stays.
// RUN: zpp-run %t.fused.mlir --entry=unchanged --compare=held | FileCheck %s
// CHECK: result 0: relative L2 error 0.000e+00, bound {{.*}}: ok

#mesh = #zero.mesh<"node" = 2, "gpu" = 3>
!slice = !zero.shard<30x40xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<30x40xf32, dim 0 = (2, 3) on #mesh>
!slice_q = !zero.shard<30x40xf32, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8, block = 32>>
!between_q = !zero.shard<30x40xf32, dim 0 = (2, "gpu") on #mesh, #zero.quant<i8, block = 32>>
!whole_q = !zero.shard<30x40xf32, dim 0 = (2, 3) on #mesh, #zero.quant<i8, block = 32>>

func.func @one_hop(%new: tensor<5x40xf32>, %own: tensor<5x40xf32>, %held: tensor<30x40xf32>) -> tensor<30x40xf32> {
  %0 = zero.from_local %new : tensor<5x40xf32> to !slice
  %1 = zero.from_local %own : tensor<5x40xf32> to !slice
  %2 = zero.encode %0 minus %1 : !slice to !slice_q
  %3 = zero.all_gather %2 along ["node", "gpu"] : !slice_q to !whole_q
  %4 = zero.from_local %held : tensor<30x40xf32> to !whole
  %5 = zero.decode %3 plus %4 : !whole_q to !whole
  %6 = zero.to_local %5 : !whole to tensor<30x40xf32>
  return %6 : tensor<30x40xf32>
}
func.func @hop_by_hop(%new: tensor<5x40xf32>, %own: tensor<5x40xf32>, %held: tensor<30x40xf32>) -> tensor<30x40xf32> {
  %0 = zero.from_local %new : tensor<5x40xf32> to !slice
  %1 = zero.from_local %own : tensor<5x40xf32> to !slice
  %2 = zero.encode %0 minus %1 : !slice to !slice_q
  %3 = zero.all_gather %2 along ["node"] : !slice_q to !between_q
  %4 = zero.all_gather %3 along ["gpu"] : !between_q to !whole_q
  %5 = zero.from_local %held : tensor<30x40xf32> to !whole
  %6 = zero.decode %4 plus %5 : !whole_q to !whole
  %7 = zero.to_local %6 : !whole to tensor<30x40xf32>
  return %7 : tensor<30x40xf32>
}
func.func @unchanged(%own: tensor<5x40xf32>, %held: tensor<30x40xf32>) -> tensor<30x40xf32> {
  %0 = zero.from_local %own : tensor<5x40xf32> to !slice
  %1 = zero.encode %0 minus %0 : !slice to !slice_q
  %2 = zero.all_gather %1 along ["node"] : !slice_q to !between_q
  %3 = zero.all_gather %2 along ["gpu"] : !between_q to !whole_q
  %4 = zero.from_local %held : tensor<30x40xf32> to !whole
  %5 = zero.decode %3 plus %4 : !whole_q to !whole
  %6 = zero.to_local %5 : !whole to tensor<30x40xf32>
  return %6 : tensor<30x40xf32>
}
func.func @held(%own: tensor<5x40xf32>, %held: tensor<30x40xf32>) -> tensor<30x40xf32> {
  return %held : tensor<30x40xf32>
}
