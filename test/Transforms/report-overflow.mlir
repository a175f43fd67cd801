// Numbers that 64 bits do not hold are the largest that they do, and what was
// written into zpp.origin by hand divides by nothing.

// RUN: zpp-opt %s --zero-report="mesh=node:2,gpu:4 format=json output=-" -o /dev/null | FileCheck %s

// CHECK: "gpu": 9223372036854775807
// CHECK-NOT: -{{[0-9]}}

func.func @step(%x: tensor<1152921504606846976x4xf64>, %y: tensor<4xf32>)
    -> (tensor<1152921504606846976x32xf64>, tensor<32xf32>) {
  %0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}>
      : (tensor<1152921504606846976x4xf64>) -> tensor<1152921504606846976x32xf64>
  %1 = "stablehlo.all_gather"(%y) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}>
      {zpp.origin = [{id = 9223372036854775807, share = 0, group = "gpu:(1)0", weight = 0, model_bytes = 64},
                     {id = 1, share = 0, trips = 9223372036854775807}]}
      : (tensor<4xf32>) -> tensor<32xf32>
  return %0, %1 : tensor<1152921504606846976x32xf64>, tensor<32xf32>
}
