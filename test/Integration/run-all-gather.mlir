// qwZ and hpZ on all ranks, on a mesh of 1 x 3 and an indivisible dim.

// RUN: zpp-opt %s --zero-decompose-all-gather > %t.naive.mlir
// RUN: zpp-opt %t.naive.mlir --zero-fuse-quantization > %t.fused.mlir
// RUN: zpp-run %t.naive.mlir --entry=quantized --compare=plain | FileCheck %s --check-prefix=QUANTIZED
// RUN: zpp-run %t.fused.mlir --entry=quantized --compare=plain --seed=7 | FileCheck %s --check-prefix=QUANTIZED
// RUN: zpp-run %t.fused.mlir --entry=two_hops --compare=plain --mesh=node:1,gpu:3 | FileCheck %s --check-prefix=EXACT

// Two hops give the bits of one.
// RUN: zpp-run %t.fused.mlir --entry=quantized --output=%t.one
// RUN: zpp-run %t.fused.mlir --entry=quantized_two_hops --output=%t.two
// RUN: diff %t.one0.npy %t.two0.npy

// Tensors without differences to what is held leave it as it is.
// RUN: zpp-run %t.fused.mlir --entry=no_differences --compare=both | FileCheck %s --check-prefix=HELD
// HELD: result 0: relative L2 error 0.000e+00, bound {{.*}}: ok
// HELD: result 1: relative L2 error 0.000e+00, bound {{.*}}: ok
// RUN: zpp-run %t.naive.mlir --entry=differences --output=%t.naive
// RUN: zpp-run %t.fused.mlir --entry=differences --output=%t.differences
// RUN: diff %t.naive0.npy %t.differences0.npy
// RUN: diff %t.naive1.npy %t.differences1.npy

// Arguments from a file: those of rank r in row r, or the same for all.
// RUN: zpp-run %t.fused.mlir --entry=plain --output=%t.plain
// RUN: zpp-run %t.fused.mlir --entry=identity --input=%t.plain0.npy --expect=%t.plain0.npy | FileCheck %s --check-prefix=EXACT
// RUN: zpp-run %t.fused.mlir --entry=quantized --expect=%t.plain0.npy | FileCheck %s --check-prefix=QUANTIZED

// QUANTIZED: result 0: relative L2 error {{[0-9.]+e-0[23]}}, bound {{[0-9.]+e-02}}: ok
// EXACT: result 0: relative L2 error 0.000e+00, bound 0.000e+00: ok

#mesh = #zero.mesh<"node" = 1, "gpu" = 3>
!slice = !zero.shard<5x40xbf16, dim 1 = ("node", "gpu") on #mesh>
!slice_q = !zero.shard<5x40xbf16, dim 1 = ("node", "gpu") on #mesh, #zero.quant<i8, block = 32>>
!node = !zero.shard<5x40xbf16, dim 1 = (1, "gpu") on #mesh>
!node_q = !zero.shard<5x40xbf16, dim 1 = (1, "gpu") on #mesh, #zero.quant<i8, block = 32>>
!whole = !zero.shard<5x40xbf16, dim 1 = (1, 3) on #mesh>
!slice_d = !zero.shard<5x40xbf16, dim 1 = ("node", "gpu") on #mesh, #zero.quant<i4, block = 32>>
!whole_d = !zero.shard<5x40xbf16, dim 1 = (1, 3) on #mesh, #zero.quant<i4, block = 32>>
!whole_q = !zero.shard<5x40xbf16, dim 1 = (1, 3) on #mesh, #zero.quant<i8, block = 32>>

func.func @plain(%w: tensor<5x14xbf16>) -> tensor<5x40xbf16> {
  %0 = zero.from_local %w : tensor<5x14xbf16> to !slice
  %1 = zero.all_gather %0 along ["node", "gpu"] : !slice to !whole
  %2 = zero.to_local %1 : !whole to tensor<5x40xbf16>
  return %2 : tensor<5x40xbf16>
}
func.func @two_hops(%w: tensor<5x14xbf16>) -> tensor<5x40xbf16> {
  %0 = zero.from_local %w : tensor<5x14xbf16> to !slice
  %1 = zero.all_gather %0 along ["node"] : !slice to !node
  %2 = zero.all_gather %1 along ["gpu"] : !node to !whole
  %3 = zero.to_local %2 : !whole to tensor<5x40xbf16>
  return %3 : tensor<5x40xbf16>
}
func.func @quantized(%w: tensor<5x14xbf16>) -> tensor<5x40xbf16> {
  %0 = zero.from_local %w : tensor<5x14xbf16> to !slice
  %1 = zero.encode %0 : !slice to !slice_q
  %2 = zero.all_gather %1 along ["node", "gpu"] : !slice_q to !whole_q
  %3 = zero.decode %2 : !whole_q to !whole
  %4 = zero.to_local %3 : !whole to tensor<5x40xbf16>
  return %4 : tensor<5x40xbf16>
}
func.func @quantized_two_hops(%w: tensor<5x14xbf16>) -> tensor<5x40xbf16> {
  %0 = zero.from_local %w : tensor<5x14xbf16> to !slice
  %1 = zero.encode %0 : !slice to !slice_q
  %2 = zero.all_gather %1 along ["node"] : !slice_q to !node_q
  %3 = zero.all_gather %2 along ["gpu"] : !node_q to !whole_q
  %4 = zero.decode %3 : !whole_q to !whole
  %5 = zero.to_local %4 : !whole to tensor<5x40xbf16>
  return %5 : tensor<5x40xbf16>
}
// What weights=i4:delta moves: all devices add what the owner has sent to what
// they hold, the owner too.
func.func @differences(%w: tensor<5x14xbf16>, %own: tensor<5x14xbf16>, %held: tensor<5x40xbf16>) -> (tensor<5x40xbf16>, tensor<5x14xbf16>) {
  %0 = zero.from_local %w : tensor<5x14xbf16> to !slice
  %1 = zero.from_local %own : tensor<5x14xbf16> to !slice
  %2 = zero.encode %0 minus %1 : !slice to !slice_d
  %3 = zero.all_gather %2 along ["node", "gpu"] : !slice_d to !whole_d
  %4 = zero.from_local %held : tensor<5x40xbf16> to !whole
  %5 = zero.decode %3 plus %4 : !whole_d to !whole
  %6 = zero.to_local %5 : !whole to tensor<5x40xbf16>
  %7 = zero.decode %2 plus %1 : !slice_d to !slice
  %8 = zero.to_local %7 : !slice to tensor<5x14xbf16>
  return %6, %8 : tensor<5x40xbf16>, tensor<5x14xbf16>
}
// Nothing has changed since: what is held stays.
func.func @no_differences(%w: tensor<5x14xbf16>, %held: tensor<5x40xbf16>) -> (tensor<5x40xbf16>, tensor<5x14xbf16>) {
  %0 = zero.from_local %w : tensor<5x14xbf16> to !slice
  %1 = zero.encode %0 minus %0 : !slice to !slice_d
  %2 = zero.all_gather %1 along ["node", "gpu"] : !slice_d to !whole_d
  %3 = zero.from_local %held : tensor<5x40xbf16> to !whole
  %4 = zero.decode %2 plus %3 : !whole_d to !whole
  %5 = zero.to_local %4 : !whole to tensor<5x40xbf16>
  %6 = zero.decode %1 plus %0 : !slice_d to !slice
  %7 = zero.to_local %6 : !slice to tensor<5x14xbf16>
  return %5, %7 : tensor<5x40xbf16>, tensor<5x14xbf16>
}
func.func @both(%w: tensor<5x14xbf16>, %held: tensor<5x40xbf16>) -> (tensor<5x40xbf16>, tensor<5x14xbf16>) {
  return %held, %w : tensor<5x40xbf16>, tensor<5x14xbf16>
}
func.func @identity(%w: tensor<5x40xbf16>) -> tensor<5x40xbf16> {
  return %w : tensor<5x40xbf16>
}
