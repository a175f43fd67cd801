// qgZ on all ranks: what every pass leaves computes the same slices, within the
// bound that follows from the formats.

// The naive form, then fused, then in stages.
// RUN: zpp-opt %s --zero-decompose-reduce-scatter --zero-reorder-slices --zero-quantize-all-to-all > %t.naive.mlir
// RUN: zpp-opt %t.naive.mlir --zero-fuse-quantization > %t.fused.mlir
// RUN: zpp-opt %s --zero-decompose-reduce-scatter=stages=3 --zero-reorder-slices --zero-quantize-all-to-all --zero-fuse-quantization > %t.staged.mlir
// RUN: zpp-run %t.naive.mlir --entry=hierarchical --compare=direct | FileCheck %s --check-prefix=EXACT
// RUN: zpp-run %t.fused.mlir --entry=hierarchical --compare=direct | FileCheck %s --check-prefix=EXACT
// RUN: zpp-run %t.staged.mlir --entry=hierarchical --compare=direct | FileCheck %s --check-prefix=EXACT
// RUN: zpp-run %t.naive.mlir --entry=quantized --compare=direct | FileCheck %s --check-prefix=QUANTIZED
// RUN: zpp-run %t.fused.mlir --entry=quantized --compare=direct | FileCheck %s --check-prefix=QUANTIZED
// RUN: zpp-run %t.staged.mlir --entry=quantized --compare=direct | FileCheck %s --check-prefix=QUANTIZED
// RUN: zpp-run %t.fused.mlir --entry=mean --compare=mean_direct | FileCheck %s --check-prefix=QUANTIZED

// The bound of i4 holds for any data; here the error is far below.
// RUN: zpp-run %t.fused.mlir --entry=mixed --compare=direct --tolerance=0.15 | FileCheck %s --check-prefix=MIXED
// RUN: zpp-run %t.fused.mlir --entry=mixed --compare=direct | FileCheck %s --check-prefix=MIXED

// Fusing changes no bit.
// RUN: zpp-run %t.naive.mlir --entry=quantized --output=%t.naive
// RUN: zpp-run %t.fused.mlir --entry=quantized --output=%t.fused
// RUN: diff %t.naive0.npy %t.fused0.npy

// Rotated: where slices are whole groups, they stay rotated, and otherwise not.
// RUN: zpp-run %t.naive.mlir --entry=rotated --compare=direct | FileCheck %s --check-prefix=QUANTIZED
// RUN: zpp-run %t.fused.mlir --entry=rotated --compare=direct | FileCheck %s --check-prefix=QUANTIZED
// RUN: zpp-run %t.staged.mlir --entry=rotated --compare=direct | FileCheck %s --check-prefix=QUANTIZED
// RUN: zpp-run %t.fused.mlir --entry=rotated_groups --compare=direct_groups | FileCheck %s --check-prefix=QUANTIZED
// RUN: zpp-run %t.staged.mlir --entry=rotated_groups --compare=direct_groups | FileCheck %s --check-prefix=QUANTIZED
// RUN: FileCheck %s --check-prefix=GROUPS < %t.fused.mlir
// GROUPS-LABEL: func @rotated(
// GROUPS-NOT: dequantize_reduce_quantize
// GROUPS-LABEL: func @rotated_groups
// GROUPS-COUNT-2: dequantize_reduce_quantize
// GROUPS: zero.dequantize_reduce sum {{.*}} rotate = 32

// Slices in the wrong order do not pass.
// RUN: not zpp-run %t.fused.mlir --entry=swapped --compare=direct 2>&1 | FileCheck %s --check-prefix=WRONG

// Only the order of additions differs: a slice in the wrong place would show.
// EXACT: result 0: relative L2 error {{[0-9.]+e-0[789]}}, bound {{[0-9.]+e-0[67]}}: ok
// QUANTIZED: result 0: relative L2 error {{[0-9.]+e-0[23]}}, bound {{[0-9.]+e-01}}: ok
// MIXED: result 0: relative L2 error {{[0-9.]+e-02}}, bound {{.*}}: ok
// WRONG: result 0: relative L2 error {{[0-9.]+e[+]00}}, bound {{[0-9.]+e-0[67]}}: FAILED
// WRONG: zpp-run: error: results differ by more than the bound

#mesh = #zero.mesh<"rack" = 2, "node" = 2, "gpu" = 2>
!whole = !zero.shard<61x7xf32, dim 0 = (2, 2, 2) on #mesh>
!gpu = !zero.shard<61x7xf32, dim 0 = (2, 2, "gpu") on #mesh>
!node = !zero.shard<61x7xf32, dim 0 = (2, "node", "gpu") on #mesh>
!slice = !zero.shard<61x7xf32, dim 0 = ("rack", "node", "gpu") on #mesh>
!swapped = !zero.shard<61x7xf32, dim 0 = ("gpu", "node", "rack") on #mesh>
!wide_whole = !zero.shard<96x32xf32, dim 0 = (2, 2, 2) on #mesh>
!wide_gpu = !zero.shard<96x32xf32, dim 0 = (2, 2, "gpu") on #mesh>
!wide_node = !zero.shard<96x32xf32, dim 0 = (2, "node", "gpu") on #mesh>
!wide_slice = !zero.shard<96x32xf32, dim 0 = ("rack", "node", "gpu") on #mesh>

func.func @direct(%g: tensor<61x7xf32>) -> tensor<8x7xf32> {
  %0 = zero.from_local %g : tensor<61x7xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["rack", "node", "gpu"] : !whole to !slice
  %2 = zero.to_local %1 : !slice to tensor<8x7xf32>
  return %2 : tensor<8x7xf32>
}
func.func @hierarchical(%g: tensor<61x7xf32>) -> tensor<8x7xf32> {
  %0 = zero.from_local %g : tensor<61x7xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["gpu"] : !whole to !gpu
  %2 = zero.reduce_scatter sum %1 along ["node"] : !gpu to !node
  %3 = zero.reduce_scatter sum %2 along ["rack"] : !node to !slice
  %4 = zero.to_local %3 : !slice to tensor<8x7xf32>
  return %4 : tensor<8x7xf32>
}
func.func @quantized(%g: tensor<61x7xf32>) -> tensor<8x7xf32> {
  %0 = zero.from_local %g : tensor<61x7xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 32> : !whole to !gpu
  %2 = zero.reduce_scatter sum %1 along ["node"] wire <i8, block = 64> : !gpu to !node
  %3 = zero.reduce_scatter sum %2 along ["rack"] wire <i8, block = 32> : !node to !slice
  %4 = zero.to_local %3 : !slice to tensor<8x7xf32>
  return %4 : tensor<8x7xf32>
}
func.func @rotated(%g: tensor<61x7xf32>) -> tensor<8x7xf32> {
  %0 = zero.from_local %g : tensor<61x7xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 32, rotate = 32> : !whole to !gpu
  %2 = zero.reduce_scatter sum %1 along ["node"] wire <i8, block = 64, rotate = 32> : !gpu to !node
  %3 = zero.reduce_scatter sum %2 along ["rack"] wire <i8, block = 32, rotate = 32> : !node to !slice
  %4 = zero.to_local %3 : !slice to tensor<8x7xf32>
  return %4 : tensor<8x7xf32>
}
func.func @rotated_groups(%g: tensor<96x32xf32>) -> tensor<12x32xf32> {
  %0 = zero.from_local %g : tensor<96x32xf32> to !wide_whole
  %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 32, rotate = 32> : !wide_whole to !wide_gpu
  %2 = zero.reduce_scatter sum %1 along ["node"] wire <i8, block = 64, rotate = 32> : !wide_gpu to !wide_node
  %3 = zero.reduce_scatter sum %2 along ["rack"] wire <i8, block = 32, rotate = 32> : !wide_node to !wide_slice
  %4 = zero.to_local %3 : !wide_slice to tensor<12x32xf32>
  return %4 : tensor<12x32xf32>
}
func.func @direct_groups(%g: tensor<96x32xf32>) -> tensor<12x32xf32> {
  %0 = zero.from_local %g : tensor<96x32xf32> to !wide_whole
  %1 = zero.reduce_scatter sum %0 along ["rack", "node", "gpu"] : !wide_whole to !wide_slice
  %2 = zero.to_local %1 : !wide_slice to tensor<12x32xf32>
  return %2 : tensor<12x32xf32>
}
func.func @mixed(%g: tensor<61x7xf32>) -> tensor<8x7xf32> {
  %0 = zero.from_local %g : tensor<61x7xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 32> : !whole to !gpu
  %2 = zero.reduce_scatter sum %1 along ["rack", "node"] wire <i4, block = 32> : !gpu to !slice
  %3 = zero.to_local %2 : !slice to tensor<8x7xf32>
  return %3 : tensor<8x7xf32>
}
func.func @mean_direct(%g: tensor<61x7xf32>) -> tensor<8x7xf32> {
  %0 = zero.from_local %g : tensor<61x7xf32> to !whole
  %1 = zero.reduce_scatter mean %0 along ["rack", "node", "gpu"] : !whole to !slice
  %2 = zero.to_local %1 : !slice to tensor<8x7xf32>
  return %2 : tensor<8x7xf32>
}
func.func @mean(%g: tensor<61x7xf32>) -> tensor<8x7xf32> {
  %0 = zero.from_local %g : tensor<61x7xf32> to !whole
  %1 = zero.reduce_scatter mean %0 along ["gpu"] wire <i8, block = 32> : !whole to !gpu
  %2 = zero.reduce_scatter mean %1 along ["node"] wire <i8, block = 64> : !gpu to !node
  %3 = zero.reduce_scatter mean %2 along ["rack"] wire <i8, block = 32> : !node to !slice
  %4 = zero.to_local %3 : !slice to tensor<8x7xf32>
  return %4 : tensor<8x7xf32>
}
func.func @swapped(%g: tensor<61x7xf32>) -> tensor<8x7xf32> {
  %0 = zero.from_local %g : tensor<61x7xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["gpu", "node", "rack"] : !whole to !swapped
  %2 = zero.to_local %1 : !swapped to tensor<8x7xf32>
  return %2 : tensor<8x7xf32>
}
