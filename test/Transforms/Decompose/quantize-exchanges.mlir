// RUN: zpp-opt %s --zero-quantize-exchanges --split-input-file --remarks-filter=none \
// RUN:   | FileCheck %s
// RUN: zpp-opt %s --zero-quantize-exchanges="format=none" --split-input-file \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=NONE
// RUN: zpp-opt %s --zero-quantize-exchanges --split-input-file --remarks-filter=missed \
// RUN:   2>&1 | FileCheck %s --check-prefix=REMARK

// NONE-NOT: zero.all_to_all

// Rows of 96 elements have blocks of 32. The dims along which chunks are cut and
// joined differ.

module attributes {zpp.machine = {mesh = "node:2,gpu:4"}} {
// CHECK-LABEL: func @rows
func.func @rows(%x: tensor<8x4x96xbf16>) -> tensor<1x32x96xbf16> {
  // CHECK: %[[MOVED:.*]] = zero.all_to_all %arg0 along ["node", "gpu"] on #{{.*}} slices <dim = 0, factors = [8], chunk = [0]> wire <i8, block = 32> {{.*}}role = "exchange"{{.*}} : tensor<8x4x96xbf16> into tensor<8x1x4x96xbf16>
  // CHECK: %[[RESULT:.*]] = zero.unpack_slices %[[MOVED]] slices <dim = 1, factors = [8], chunk = [0]> {{.*}} -> tensor<1x32x96xbf16>
  // CHECK: return %[[RESULT]]
  %0 = "stablehlo.all_to_all"(%x) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> {zpp.origin = {id = 0, role = "exchange", block = 32}} : (tensor<8x4x96xbf16>) -> tensor<1x32x96xbf16>
  return %0 : tensor<1x32x96xbf16>
}
}

// -----

// What stays as it is: within a node, with a floor, what does not shrink, what has
// another role or a reason, and chunks that are not what arrives.

module attributes {zpp.machine = {mesh = "node:2,gpu:4"}} {
// CHECK-LABEL: func @left
// CHECK-NOT: zero.all_to_all
// REMARK: its devices share a node, and nothing of it crosses slower links
// REMARK: it is not quantized: floors has it travel unquantized
// REMARK: a chunk of 4 bytes would take 32 quantized
// REMARK: its chunks are not what it receives
// REMARK-NOT: Remark=
func.func @left(%x: tensor<8x4x64xf32>, %small: tensor<8xf32>) -> (tensor<2x16x64xf32>, tensor<1x32x64xf32>, tensor<8xf32>, tensor<8x4x64xf32>, tensor<8x4x64xf32>, tensor<8x4x64xf32>) {
  %0 = "stablehlo.all_to_all"(%x) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 4 : i64, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>}> {zpp.origin = {id = 0, role = "exchange"}} : (tensor<8x4x64xf32>) -> tensor<2x16x64xf32>
  %1 = "stablehlo.all_to_all"(%x) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> {zpp.origin = {floor = "none", id = 1, role = "exchange"}} : (tensor<8x4x64xf32>) -> tensor<1x32x64xf32>
  %2 = "stablehlo.all_to_all"(%small) <{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> {zpp.origin = {id = 2, role = "exchange"}} : (tensor<8xf32>) -> tensor<8xf32>
  %3 = "stablehlo.all_to_all"(%x) <{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> {zpp.origin = {id = 3, role = "other"}} : (tensor<8x4x64xf32>) -> tensor<8x4x64xf32>
  %4 = "stablehlo.all_to_all"(%x) <{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> {zpp.origin = {id = 4, role = "exchange"}, zpp.reason = "r"} : (tensor<8x4x64xf32>) -> tensor<8x4x64xf32>
  %5 = "stablehlo.all_to_all"(%x) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> {zpp.origin = {id = 5, role = "exchange"}} : (tensor<8x4x64xf32>) -> tensor<8x4x64xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<2x16x64xf32>, tensor<1x32x64xf32>, tensor<8xf32>, tensor<8x4x64xf32>, tensor<8x4x64xf32>, tensor<8x4x64xf32>
}
}

// -----

// On known links, time decides.

module attributes {zpp.machine = {mesh = "node:2,gpu:4", links = "node=50gbit,gpu=400gbyte"}} {
// CHECK-LABEL: func @links
// CHECK: zero.all_to_all %arg0
// CHECK-NOT: zero.all_to_all
// REMARK: on these links it takes
func.func @links(%large: tensor<8x1024x1024xf32>, %small: tensor<8x4x64xf32>) -> (tensor<1x8192x1024xf32>, tensor<1x32x64xf32>) {
  %0 = "stablehlo.all_to_all"(%large) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> {zpp.origin = {id = 0, role = "exchange"}} : (tensor<8x1024x1024xf32>) -> tensor<1x8192x1024xf32>
  %1 = "stablehlo.all_to_all"(%small) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> {zpp.origin = {id = 1, role = "exchange"}} : (tensor<8x4x64xf32>) -> tensor<1x32x64xf32>
  return %0, %1 : tensor<1x8192x1024xf32>, tensor<1x32x64xf32>
}
}
