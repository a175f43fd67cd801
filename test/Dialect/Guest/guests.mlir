// RUN: zpp-opt %s --mlir-print-op-generic | zpp-opt --mlir-print-op-generic | FileCheck %s

// Ops, types and attributes of dialects that are not here pass through.

// CHECK-LABEL: sym_name = "attributes"
func.func @attributes(%x: tensor<4xf32>, %t: !stablehlo.token) -> tensor<4xi1> {
  // CHECK: "stablehlo.compare"(%{{.*}}, %{{.*}}) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %0 = "stablehlo.compare"(%x, %x) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  // CHECK: "chlo.erf"
  %1 = "chlo.erf"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: "mhlo.topk"(%{{.*}}) {k = 2 : i64}
  %2 = "mhlo.topk"(%x) {k = 2 : i64} : (tensor<4xf32>) -> tensor<2xf32>
  // CHECK: "stablehlo.after_all"(%{{.*}}) : (!stablehlo.token) -> !stablehlo.token
  %3 = "stablehlo.after_all"(%t) : (!stablehlo.token) -> !stablehlo.token
  return %0 : tensor<4xi1>
}

// A call inside a region of a guest's op verifies.
// CHECK-LABEL: sym_name = "regions"
func.func @regions(%x: tensor<8xf32>) -> tensor<8xf32> {
  // CHECK: "sdy.manual_computation"
  // CHECK-SAME: in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>
  %0 = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>, manual_axes = #sdy<manual_axes{"gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>}> ({
  ^bb0(%y: tensor<2xf32>):
    // CHECK: "func.call"(%{{.*}}) <{callee = @callee}>
    %1 = "func.call"(%y) <{callee = @callee}> : (tensor<2xf32>) -> tensor<2xf32>
    "sdy.return"(%1) : (tensor<2xf32>) -> ()
  }) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func private @callee(tensor<2xf32>) -> tensor<2xf32>

// Types of quantized tensors are MLIR's own.
// CHECK-LABEL: sym_name = "quantized"
func.func @quantized(%x: tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4xf32> {
  // CHECK: "stablehlo.uniform_dequantize"(%{{.*}}) : (tensor<4x!quant.uniform<i8:f32, 5.000000e-01:3>>) -> tensor<4xf32>
  %0 = stablehlo.uniform_dequantize %x : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
