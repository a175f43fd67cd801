// A quantized all-reduce on all ranks: every pass leaves the same sum.

// DEFINE: %{passes} = --zero-reorder-slices --zero-quantize-all-to-all --zero-decompose-all-gather
// RUN: zpp-opt %s --zero-split-all-reduce="block=32 formats=i8:i8" --zero-decompose-reduce-scatter %{passes} > %t.naive.mlir
// RUN: zpp-opt %t.naive.mlir --zero-fuse-quantization > %t.fused.mlir
// RUN: zpp-opt %s --zero-split-all-reduce="block=32 formats=none:none reduced=none" --zero-decompose-reduce-scatter %{passes} --zero-fuse-quantization > %t.exact.mlir
// RUN: zpp-opt %s --zero-split-all-reduce="block=32 formats=i8:i4" --zero-decompose-reduce-scatter %{passes} --zero-fuse-quantization > %t.mixed.mlir
// RUN: zpp-run %t.exact.mlir --entry=reduced --compare=direct | FileCheck %s --check-prefix=EXACT
// RUN: zpp-run %t.naive.mlir --entry=reduced --compare=direct --tolerance=0.05 | FileCheck %s --check-prefix=QUANTIZED
// RUN: zpp-run %t.fused.mlir --entry=reduced --compare=direct --tolerance=0.05 | FileCheck %s --check-prefix=QUANTIZED
// RUN: zpp-run %t.mixed.mlir --entry=reduced --compare=direct --tolerance=0.15 | FileCheck %s --check-prefix=MIXED
// RUN: zpp-run %t.fused.mlir --entry=hsdp --compare=direct_slice --tolerance=0.05 | FileCheck %s --check-prefix=QUANTIZED

// Fusing changes no bit.
// RUN: zpp-run %t.naive.mlir --entry=reduced --output=%t.naive
// RUN: zpp-run %t.fused.mlir --entry=reduced --output=%t.fused
// RUN: diff %t.naive0.npy %t.fused0.npy

// EXACT: result 0: relative L2 error {{[0-9.]+e-0[789]}}
// QUANTIZED: result 0: relative L2 error {{[0-9.]+e-0[23]}}, {{.*}}: ok
// MIXED: result 0: relative L2 error {{[0-9.]+e-0[12]}}, {{.*}}: ok

#mesh = #zero.mesh<"rack" = 2, "node" = 2, "gpu" = 2>
!local = !zero.shard<427xf32, dim 0 = () on #mesh>
!whole = !zero.shard<427xf32, dim 0 = (2, 2, 2) on #mesh>
!slice = !zero.shard<427xf32, dim 0 = ("rack", "node", "gpu") on #mesh>
!whole4 = !zero.shard<64x7xf32, dim 0 = (2) on #mesh>
!slice4 = !zero.shard<64x7xf32, dim 0 = ("gpu") on #mesh>
!full = !zero.shard<64x7xf32, dim 0 = (2, 2, 2) on #mesh>
!full_gpu = !zero.shard<64x7xf32, dim 0 = ("gpu", 2, 2) on #mesh>
!full_slice = !zero.shard<64x7xf32, dim 0 = ("gpu", "rack", "node") on #mesh>
!part = !zero.shard<32x7xf32, dim 0 = () on #mesh>

func.func @direct(%g: tensor<427xf32>) -> tensor<427xf32> {
  %0 = zero.from_local %g : tensor<427xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["rack", "node", "gpu"] : !whole to !slice
  %2 = zero.all_gather %1 along ["rack", "node", "gpu"] : !slice to !whole
  %3 = zero.to_local %2 : !whole to tensor<427xf32>
  return %3 : tensor<427xf32>
}
func.func @reduced(%g: tensor<427xf32>) -> tensor<427xf32> {
  %0 = zero.from_local %g : tensor<427xf32> to !local
  %1 = zero.all_reduce sum %0 along ["rack", "node", "gpu"] : !local
  %2 = zero.to_local %1 : !local to tensor<427xf32>
  return %2 : tensor<427xf32>
}
func.func @direct_slice(%g: tensor<64x7xf32>) -> tensor<32x7xf32> {
  %0 = zero.from_local %g : tensor<64x7xf32> to !full
  %1 = zero.reduce_scatter sum %0 along ["gpu", "rack", "node"] : !full to !full_slice
  %2 = zero.all_gather %1 along ["rack", "node"] : !full_slice to !full_gpu
  %3 = zero.to_local %2 : !full_gpu to tensor<32x7xf32>
  return %3 : tensor<32x7xf32>
}
func.func @hsdp(%g: tensor<64x7xf32>) -> tensor<32x7xf32> {
  %0 = zero.from_local %g : tensor<64x7xf32> to !whole4
  %1 = zero.reduce_scatter sum %0 along ["gpu"] : !whole4 to !slice4
  %2 = zero.to_local %1 : !slice4 to tensor<32x7xf32>
  %3 = zero.from_local %2 : tensor<32x7xf32> to !part
  %4 = zero.all_reduce sum %3 along ["rack", "node"] : !part
  %5 = zero.to_local %4 : !part to tensor<32x7xf32>
  return %5 : tensor<32x7xf32>
}
