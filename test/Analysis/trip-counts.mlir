// RUN: zpp-opt %s --zero-import-collectives=weights-of=all --split-input-file \
// RUN:   --verify-diagnostics | FileCheck %s

// How often loops run: from a constant, by a constant, while less than one.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// The bound may be an operand that the loop carries unchanged; a nested loop
// runs once per iteration.
// CHECK-LABEL: func @nested
func.func @nested(%w: tensor<4xf32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %c10 = stablehlo.constant dense<10> : tensor<i32>
  %0:2 = "stablehlo.while"(%c1, %c10) ({
  ^bb0(%i: tensor<i32>, %end: tensor<i32>):
    %more = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %end: tensor<i32>):
    // 1, 4, 7
    // CHECK: zero.all_gather {{.*}} trips = 3
    %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4xf32>) -> tensor<32xf32>
    %2 = stablehlo.while(%j = %c0) : tensor<i32>
    cond {
      %more = stablehlo.compare LT, %j, %c10 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      // CHECK: zero.all_gather {{.*}} trips = 30
      %3 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4xf32>) -> tensor<32xf32>
      %next = stablehlo.add %c1, %j : tensor<i32>
      stablehlo.return %next : tensor<i32>
    }
    %next = stablehlo.add %i, %c3 : tensor<i32>
    stablehlo.return %next, %end : tensor<i32>, tensor<i32>
  }) : (tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>)
  return
}

// A loop that does not run sends nothing.
// CHECK-LABEL: func @never
func.func @never(%w: tensor<4xf32>) {
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %0 = stablehlo.while(%i = %c3) : tensor<i32>
  cond {
    %more = stablehlo.compare LT, %i, %c1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    // CHECK: zero.all_gather {{.*}}before = [0, 0]{{.*}} trips = 0
    %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4xf32>) -> tensor<32xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next : tensor<i32>
  }
  return
}

// -----

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// Everything else counts once, and is said.
// CHECK-LABEL: func @unknown
func.func @unknown(%w: tensor<4xf32>, %n: tensor<i32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c9 = stablehlo.constant dense<9> : tensor<i32>
  // From, to and by what is not constant; another comparison; no count.
  %0 = stablehlo.while(%i = %n) : tensor<i32>
  cond {
    %more = stablehlo.compare LT, %i, %c9 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    // CHECK: trips = 1
    // expected-remark@+1 {{the trip count of a loop around stablehlo.all_gather is not constant; its bytes are counted once}}
    %1 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4xf32>) -> tensor<32xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next : tensor<i32>
  }
  %2 = stablehlo.while(%i = %c0) : tensor<i32>
  cond {
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    // expected-remark@+1 {{the trip count of a loop}}
    %3 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4xf32>) -> tensor<32xf32>
    %next = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %next : tensor<i32>
  }
  %4 = stablehlo.while(%i = %c0) : tensor<i32>
  cond {
    %more = stablehlo.compare LT, %i, %c9 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    // expected-remark@+1 {{the trip count of a loop}}
    %5 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4xf32>) -> tensor<32xf32>
    // Without end.
    %next = stablehlo.add %i, %c0 : tensor<i32>
    stablehlo.return %next : tensor<i32>
  }
  %6 = stablehlo.while(%i = %c9) : tensor<i32>
  cond {
    %more = stablehlo.compare GT, %i, %c0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    // expected-remark@+1 {{the trip count of a loop}}
    %7 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4xf32>) -> tensor<32xf32>
    %next = stablehlo.subtract %i, %c1 : tensor<i32>
    stablehlo.return %next : tensor<i32>
  }
  %8 = stablehlo.while(%i = %c0) : tensor<i32>
  cond {
    %more = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    // expected-remark@+1 {{the trip count of a loop}}
    %9 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4xf32>) -> tensor<32xf32>
    stablehlo.return %i : tensor<i32>
  }
  return
}
