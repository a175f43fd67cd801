// RUN: zpp-opt %s --split-input-file --zero-accumulate-gradients=group=4 \
// RUN:   --remarks-filter=none | FileCheck %s

// StableHLO is not registered here, so nobody has verified its ops. What has
// types that it does not permit is no sum and no layer of a stack: it stays.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!inner = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// CHECK-LABEL: func @sum
// CHECK: zero.reduce_scatter {{.*}} along ["node"]
// CHECK: zero.reduce_scatter {{.*}} along ["node"]
// CHECK: stablehlo.add {{.*}}
func.func @sum(%x: tensor<32xf32>, %y: tensor<32xf32>, %z: tensor<4xi24>) -> tensor<4xf32> {
  %0 = zero.from_local %x : tensor<32xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 32> : !whole to !inner
  %2 = zero.reduce_scatter sum %1 along ["node"] wire <i4, block = 32> : !inner to !own
  %3 = zero.to_local %2 : !own to tensor<4xf32>
  %4 = zero.from_local %y : tensor<32xf32> to !whole
  %5 = zero.reduce_scatter sum %4 along ["gpu"] wire <i8, block = 32> : !whole to !inner
  %6 = zero.reduce_scatter sum %5 along ["node"] wire <i4, block = 32> : !inner to !own
  %7 = zero.to_local %6 : !own to tensor<4xf32>
  %8 = stablehlo.add %3, %7 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi24>
  %9 = stablehlo.add %8, %3 : (tensor<4xi24>, tensor<4xf32>) -> tensor<4xf32>
  return %9 : tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!inner = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// CHECK-LABEL: func @stack
// CHECK: stablehlo.while(
// CHECK: zero.reduce_scatter {{.*}} along ["node"]
// CHECK: stablehlo.dynamic_update_slice
// CHECK: stablehlo.while(
// CHECK: zero.reduce_scatter {{.*}} along ["node"]
// CHECK: stablehlo.dynamic_update_slice
// CHECK: stablehlo.add
// CHECK: return
func.func @stack(%x: tensor<32xf32>, %y: tensor<32xf32>) -> tensor<3x4xf32> {
  %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<vector<2xf32>>
  %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<vector<2xf32>>
  %three = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<vector<2xf32>>
  %none = stablehlo.constant dense<0.0> : tensor<3x4xf32>
  %a:2 = stablehlo.while(%i = %zero, %s = %none) : tensor<vector<2xf32>>, tensor<3x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<vector<2xf32>>, tensor<vector<2xf32>>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %0 = zero.from_local %x : tensor<32xf32> to !whole
    %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 32> : !whole to !inner
    %2 = zero.reduce_scatter sum %1 along ["node"] wire <i4, block = 32> : !inner to !own
    %3 = zero.to_local %2 : !own to tensor<4xf32>
    %4 = stablehlo.reshape %3 : (tensor<4xf32>) -> tensor<1x4xf32>
    %5 = stablehlo.dynamic_update_slice %s, %4, %i, %zero : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<vector<2xf32>>, tensor<vector<2xf32>>) -> tensor<3x4xf32>
    %n = stablehlo.add %i, %one : tensor<vector<2xf32>>
    stablehlo.return %n, %5 : tensor<vector<2xf32>>, tensor<3x4xf32>
  }
  %b:2 = stablehlo.while(%i = %zero, %s = %none) : tensor<vector<2xf32>>, tensor<3x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<vector<2xf32>>, tensor<vector<2xf32>>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %0 = zero.from_local %y : tensor<32xf32> to !whole
    %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 32> : !whole to !inner
    %2 = zero.reduce_scatter sum %1 along ["node"] wire <i4, block = 32> : !inner to !own
    %3 = zero.to_local %2 : !own to tensor<4xf32>
    %4 = stablehlo.reshape %3 : (tensor<4xf32>) -> tensor<1x4xf32>
    %5 = stablehlo.dynamic_update_slice %s, %4, %i, %zero : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<vector<2xf32>>, tensor<vector<2xf32>>) -> tensor<3x4xf32>
    %n = stablehlo.add %i, %one : tensor<vector<2xf32>>
    stablehlo.return %n, %5 : tensor<vector<2xf32>>, tensor<3x4xf32>
  }
  %sum = stablehlo.add %a#1, %b#1 : tensor<3x4xf32>
  return %sum : tensor<3x4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!inner = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// A loop whose value begins with another type than it has.

// CHECK-LABEL: func @carried
// CHECK: "stablehlo.while"(
// CHECK: zero.reduce_scatter {{.*}} along ["node"]
// CHECK: stablehlo.return
// CHECK-NEXT: })
func.func @carried(%x: tensor<32xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %a:2 = "stablehlo.while"(%zero, %zero) ({
  ^bb0(%i: tensor<i32>, %s: tensor<4xf32>):
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %s: tensor<4xf32>):
    %0 = zero.from_local %x : tensor<32xf32> to !whole
    %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 32> : !whole to !inner
    %2 = zero.reduce_scatter sum %1 along ["node"] wire <i4, block = 32> : !inner to !own
    %3 = zero.to_local %2 : !own to tensor<4xf32>
    %4 = stablehlo.add %s, %3 : tensor<4xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %4 : tensor<i32>, tensor<4xf32>
  }) : (tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<4xf32>)
  return %a#1 : tensor<4xf32>
}

// -----

// A stack of more elements than a type may have.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<32xf32, dim 0 = (2, 4) on #mesh>
!inner = !zero.shard<32xf32, dim 0 = (2, "gpu") on #mesh>
!own = !zero.shard<32xf32, dim 0 = ("node", "gpu") on #mesh>

// CHECK-LABEL: func @large
// CHECK: stablehlo.while(
// CHECK: zero.reduce_scatter {{.*}} along ["node"]
// CHECK: stablehlo.dynamic_update_slice
// CHECK: stablehlo.while(
// CHECK: zero.reduce_scatter {{.*}} along ["node"]
// CHECK: stablehlo.dynamic_update_slice
// CHECK: stablehlo.add
// CHECK: return
func.func @large(%x: tensor<32xf32>, %y: tensor<32xf32>) -> tensor<9223372036854775807x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %none = "stablehlo.constant"() <{value = dense<0.0> : tensor<4xf32>}> : () -> tensor<9223372036854775807x4xf32>
  %a:2 = stablehlo.while(%i = %zero, %s = %none) : tensor<i32>, tensor<9223372036854775807x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %0 = zero.from_local %x : tensor<32xf32> to !whole
    %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 32> : !whole to !inner
    %2 = zero.reduce_scatter sum %1 along ["node"] wire <i4, block = 32> : !inner to !own
    %3 = zero.to_local %2 : !own to tensor<4xf32>
    %4 = stablehlo.reshape %3 : (tensor<4xf32>) -> tensor<1x4xf32>
    %5 = stablehlo.dynamic_update_slice %s, %4, %i, %zero : (tensor<9223372036854775807x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<9223372036854775807x4xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %5 : tensor<i32>, tensor<9223372036854775807x4xf32>
  }
  %b:2 = stablehlo.while(%i = %zero, %s = %none) : tensor<i32>, tensor<9223372036854775807x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %0 = zero.from_local %y : tensor<32xf32> to !whole
    %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 32> : !whole to !inner
    %2 = zero.reduce_scatter sum %1 along ["node"] wire <i4, block = 32> : !inner to !own
    %3 = zero.to_local %2 : !own to tensor<4xf32>
    %4 = stablehlo.reshape %3 : (tensor<4xf32>) -> tensor<1x4xf32>
    %5 = stablehlo.dynamic_update_slice %s, %4, %i, %zero : (tensor<9223372036854775807x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<9223372036854775807x4xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %5 : tensor<i32>, tensor<9223372036854775807x4xf32>
  }
  %sum = stablehlo.add %a#1, %b#1 : tensor<9223372036854775807x4xf32>
  return %sum : tensor<9223372036854775807x4xf32>
}
