// Nothing is left alone silently; what is rewritten is said on demand.

// RUN: zpp-opt %s --zeropp=weights-of=all -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --implicit-check-not=Passed
// RUN: zpp-opt %s --zeropp=weights-of=all --remarks-filter=.* -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ALL
// RUN: zpp-opt %s --zeropp=weights-of=all --remarks-filter=none -o /dev/null 2>&1 | count 0
// RUN: zpp-opt %s --zeropp=weights-of=all --remarks-filter-missed=zero-import.* -o /dev/null \
// RUN:   2>&1 | FileCheck %s --check-prefix=IMPORT --implicit-check-not=zero-partition

// CHECK: remarks.mlir:[[#@LINE+15]]:8: remark: [Analysis] unknown-trips | Category:zero-import-collectives | {{.*}}the trip count of a loop around stablehlo.all_reduce is not constant; its bytes are counted once
// CHECK: remark: [Missed] left-alone | Category:zero-import-collectives | {{.*}}stablehlo.all_reduce is left alone: it is neither a gather of a weight
// CHECK: remark: [Missed] left-alone | Category:zero-partition-within-node | {{.*}}zero.all_gather is left alone: it is gathered once
// ALL: [Passed] rewritten | Category:zero-quantize-all-gather | {{.*}}slices of 1024 bytes travel in 272
// IMPORT: Category:zero-import-collectives

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @step(%w: tensor<4x64xf32>, %n: tensor<i32>) -> tensor<f32> {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x64xf32>) -> tensor<32x64xf32>
  %1 = "stablehlo.while"(%n) ({
  ^bb0(%i: tensor<i32>):
    %more = stablehlo.constant dense<false> : tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>):
  %2 = "stablehlo.all_reduce"(%i) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    stablehlo.return %a : tensor<i32>
  }) : (tensor<i32>) -> tensor<i32>
    stablehlo.return %2 : tensor<i32>
  }) : (tensor<i32>) -> tensor<i32>
  %read = stablehlo.dot %0, %0 : (tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<f32>
  return %read : tensor<f32>
}
