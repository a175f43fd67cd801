// RUN: zpp-opt %s --zero-import-collectives=mesh=node:2,gpu:4 \
// RUN:   --remarks-filter=none --split-input-file | FileCheck %s

// One collective may move a bucket of tensors, as PyTorch/XLA makes it. Roles
// are those of tensors: where one has a role, each gets a collective of its own.

// CHECK-LABEL: func @bucket
func.func @bucket(%w: tensor<32x64xf32>, %v: tensor<2x8xf32>, %n: tensor<1xi32>, %x: tensor<4x256xf32>) -> (tensor<32x64xf32>, tensor<2x8xf32>, tensor<8xi32>) {
  // CHECK: zero.all_gather {{.*}} along ["node", "gpu"] {{.*}}role = "weight"
  // CHECK: zero.all_gather {{.*}} along ["node", "gpu"] {{.*}}role = "weight"
  // CHECK: "stablehlo.all_gather"(%arg2) {{.*}} : (tensor<1xi32>) -> tensor<8xi32>
  %0:3 = "stablehlo.all_gather"(%w, %v, %n) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<32x64xf32>, tensor<2x8xf32>, tensor<1xi32>) -> (tensor<256x64xf32>, tensor<16x8xf32>, tensor<8xi32>)
  %1 = stablehlo.dot_general %x, %0#0, contracting_dims = [1] x [0] : (tensor<4x256xf32>, tensor<256x64xf32>) -> tensor<4x64xf32>
  %2 = stablehlo.dot_general %x, %1, contracting_dims = [0] x [0] : (tensor<4x256xf32>, tensor<4x64xf32>) -> tensor<256x64xf32>
  %3 = stablehlo.dot_general %0#1, %0#1, contracting_dims = [1] x [1] : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x16xf32>
  %4 = stablehlo.dot_general %3, %0#1, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  // CHECK: zero.reduce_scatter sum {{.*}}role = "gradient"
  // CHECK: zero.reduce_scatter sum {{.*}}role = "gradient"
  %5:2 = "stablehlo.reduce_scatter"(%2, %4) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %8 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %8 : tensor<f32>
  }) : (tensor<256x64xf32>, tensor<16x8xf32>) -> (tensor<32x64xf32>, tensor<2x8xf32>)
  %6 = stablehlo.subtract %w, %5#0 : tensor<32x64xf32>
  %7 = stablehlo.subtract %v, %5#1 : tensor<2x8xf32>
  return %6, %7, %0#2 : tensor<32x64xf32>, tensor<2x8xf32>, tensor<8xi32>
}

// -----

// A bucket without weights and gradients stays one.

// CHECK-LABEL: func @no_role
func.func @no_role(%n: tensor<1xi32>, %m: tensor<1x4xi32>) -> (tensor<8xi32>, tensor<8x4xi32>, tensor<i32>, tensor<i32>) {
  // CHECK: %[[GATHERED:.*]]:2 = "stablehlo.all_gather"(%arg0, %arg1) <{all_gather_dim = 0 : i64, replica_groups = {{.*}}> {zpp.origin = {{.*}} : (tensor<1xi32>, tensor<1x4xi32>) -> (tensor<8xi32>, tensor<8x4xi32>)
  %0:2 = "stablehlo.all_gather"(%n, %m) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1xi32>, tensor<1x4xi32>) -> (tensor<8xi32>, tensor<8x4xi32>)
  %1 = stablehlo.reshape %n : (tensor<1xi32>) -> tensor<i32>
  // CHECK: "stablehlo.all_reduce"(%[[SCALAR:.*]], %[[SCALAR]])
  %2:2 = "stablehlo.all_reduce"(%1, %1) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %3 = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %3 : tensor<i32>
  }) : (tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>)
  // CHECK: return %[[GATHERED]]#0, %[[GATHERED]]#1
  return %0#0, %0#1, %2#0, %2#1 : tensor<8xi32>, tensor<8x4xi32>, tensor<i32>, tensor<i32>
}

// -----

// Weights that the step gathers in fp8 are weights: they are not quantized again,
// but kept within a node.

// CHECK-LABEL: func @fp8
func.func @fp8(%w: tensor<32x64xf32>, %v: tensor<8x64xf32>, %x: tensor<4x256xbf16>) -> (tensor<32x64xf32>, tensor<8x64xf32>) {
  %0 = stablehlo.convert %w : (tensor<32x64xf32>) -> tensor<32x64xf8E4M3FN>
  %1 = stablehlo.convert %v : (tensor<8x64xf32>) -> tensor<8x64xf8E4M3FN>
  // CHECK: zero.all_gather {{.*}}role = "weight"{{.*}}xf8E4M3FN
  // CHECK: zero.all_gather {{.*}}role = "weight"{{.*}}xf8E4M3FN
  %2:2 = "stablehlo.all_gather"(%0, %1) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<32x64xf8E4M3FN>, tensor<8x64xf8E4M3FN>) -> (tensor<256x64xf8E4M3FN>, tensor<64x64xf8E4M3FN>)
  %3 = stablehlo.convert %2#0 : (tensor<256x64xf8E4M3FN>) -> tensor<256x64xbf16>
  %4 = stablehlo.convert %2#1 : (tensor<64x64xf8E4M3FN>) -> tensor<64x64xbf16>
  %5 = stablehlo.dot_general %x, %3, contracting_dims = [1] x [0] : (tensor<4x256xbf16>, tensor<256x64xbf16>) -> tensor<4x64xbf16>
  %6 = stablehlo.dot_general %5, %4, contracting_dims = [1] x [0] : (tensor<4x64xbf16>, tensor<64x64xbf16>) -> tensor<4x64xbf16>
  %7 = stablehlo.dot_general %5, %6, contracting_dims = [0] x [0] : (tensor<4x64xbf16>, tensor<4x64xbf16>) -> tensor<64x64xbf16>
  %8 = stablehlo.dot_general %x, %6, contracting_dims = [0] x [0] : (tensor<4x256xbf16>, tensor<4x64xbf16>) -> tensor<256x64xbf16>
  // CHECK: zero.reduce_scatter sum {{.*}}role = "gradient"
  // CHECK: zero.reduce_scatter sum {{.*}}role = "gradient"
  // CHECK-NOT: reduce_scatter
  %9:2 = "stablehlo.reduce_scatter"(%8, %7) <{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, scatter_dimension = 0 : i64}> ({
  ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
    %14 = stablehlo.add %a, %b : tensor<bf16>
    stablehlo.return %14 : tensor<bf16>
  }) : (tensor<256x64xbf16>, tensor<64x64xbf16>) -> (tensor<32x64xbf16>, tensor<8x64xbf16>)
  %10 = stablehlo.convert %9#0 : (tensor<32x64xbf16>) -> tensor<32x64xf32>
  %11 = stablehlo.convert %9#1 : (tensor<8x64xbf16>) -> tensor<8x64xf32>
  %12 = stablehlo.subtract %w, %10 : tensor<32x64xf32>
  %13 = stablehlo.subtract %v, %11 : tensor<8x64xf32>
  return %12, %13 : tensor<32x64xf32>, tensor<8x64xf32>
}

// -----

// A bucket that stays one says why each of its tensors stays.

// CHECK-LABEL: func @several_reasons
func.func @several_reasons(%n: tensor<1xf64>, %w: tensor<2x8xf32>) -> (tensor<8xf64>, tensor<16x8xf32>) {
  // CHECK: "stablehlo.all_gather"(%arg0, %arg1) {{.*}}role = "other"{{.*}} zpp.reason = "it does not gather one f32, bf16 or f16 tensor of static shape (R1); it gathers state, which is not rounded: result 1
  %0:2 = "stablehlo.all_gather"(%n, %w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<1xf64>, tensor<2x8xf32>) -> (tensor<8xf64>, tensor<16x8xf32>)
  return %0#0, %0#1 : tensor<8xf64>, tensor<16x8xf32>
}
