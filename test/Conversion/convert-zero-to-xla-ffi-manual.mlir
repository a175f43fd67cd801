// RUN: zpp-opt %s --convert-zero-to-xla-ffi | FileCheck %s

// The token leaves one manual computation and enters the next: nothing else
// orders their calls where the second one reads nothing of the first.

#mesh = #zero.mesh<"gpu" = 2>

sdy.mesh @mesh = <["gpu"=2]>

// CHECK-LABEL: func @two
func.func @two(%x: tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  // CHECK-NEXT: %[[FIRST:.*]]:2 = sdy.manual_computation(%arg0)
  // CHECK-SAME: in_shardings=[<@mesh, [{"gpu"}]>]
  // CHECK-SAME: out_shardings=[<@mesh, [{"gpu"}, {}]>, <@mesh, [{"gpu"}]>]
  %r = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"gpu"}]>] out_shardings=[<@mesh, [{"gpu"}, {}]>] manual_axes={"gpu"} (%a: tensor<4xf32>) {
    // CHECK: stablehlo.constant dense<0> : tensor<1xi8>
    // CHECK: @zpp.start(
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    // CHECK: %[[W:.*]]:2 = stablehlo.custom_call @zpp.wait(
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    // CHECK: sdy.return %[[W]]#0, %[[W]]#1
    sdy.return %w : tensor<2x4xf32>
  // CHECK: (tensor<8xf32>) -> (tensor<4x4xf32>, tensor<2xi8>)
  } : (tensor<8xf32>) -> tensor<4x4xf32>
  // CHECK-NEXT: %[[SECOND:.*]] = sdy.manual_computation(%arg0, %[[FIRST]]#1)
  // CHECK-SAME: in_shardings=[<@mesh, [{"gpu"}]>, <@mesh, [{"gpu"}]>]
  %s = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>, manual_axes = #sdy<manual_axes{"gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}, {}]>]>}> ({
  // CHECK-SAME: (%[[A:[^:]+]]: tensor<4xf32>, %[[T:[^:]+]]: tensor<1xi8>)
  ^bb0(%a: tensor<4xf32>):
    // CHECK-NEXT: stablehlo.custom_call @zpp.start(%[[A]], %[[T]])
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    sdy.return %w : tensor<2x4xf32>
  // CHECK: (tensor<8xf32>, tensor<2xi8>) -> tensor<4x4xf32>
  }) : (tensor<8xf32>) -> tensor<4x4xf32>
  // CHECK: return %[[FIRST]]#0, %[[SECOND]]
  return %r, %s : tensor<4x4xf32>, tensor<4x4xf32>
}

// So it does where the second one is in a loop, which carries it.

// CHECK-LABEL: func @loop
func.func @loop(%x: tensor<8xf32>) -> (tensor<4x4xf32>, tensor<8xf32>) {
  // CHECK-NEXT: %[[FIRST:.*]]:2 = sdy.manual_computation(%arg0)
  %r = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"gpu"}]>] out_shardings=[<@mesh, [{"gpu"}, {}]>] manual_axes={"gpu"} (%a: tensor<4xf32>) {
    %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) -> tensor<2x4xf32>
    %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
    sdy.return %w : tensor<2x4xf32>
  } : (tensor<8xf32>) -> tensor<4x4xf32>
  // CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[A:[^ ]+]] = %arg0, %[[T:[^ ]+]] = %[[FIRST]]#1)
  %s = "stablehlo.while"(%x) ({
  ^bb0(%a: tensor<8xf32>):
    %c = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  // CHECK: } do {
  ^bb0(%a: tensor<8xf32>):
    // CHECK-NEXT: %[[M:.*]]:2 = sdy.manual_computation(%[[A]], %[[T]])
    %m = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"gpu"}]>] out_shardings=[<@mesh, [{"gpu"}]>] manual_axes={"gpu"} (%b: tensor<4xf32>) {
      %y = zero.start @zpp_host::@gather(%b) : (tensor<4xf32>) -> tensor<2x4xf32>
      %w = zero.wait %y from(%b : tensor<4xf32>) : tensor<2x4xf32>
      %f = "stablehlo.first"(%w) : (tensor<2x4xf32>) -> tensor<4xf32>
      sdy.return %f : tensor<4xf32>
    } : (tensor<8xf32>) -> tensor<8xf32>
    // CHECK: stablehlo.return %[[M]]#0, %[[M]]#1
    stablehlo.return %m : tensor<8xf32>
  }) : (tensor<8xf32>) -> tensor<8xf32>
  return %r, %s : tensor<4x4xf32>, tensor<8xf32>
}

// A loop around one alone carries it: XLA would move a call out of the loop that
// reads nothing of the iteration.

// CHECK-LABEL: func @alone
func.func @alone(%x: tensor<8xf32>) -> tensor<8xf32> {
  // CHECK: %[[C:.*]] = stablehlo.constant dense<0> : tensor<2xi8>
  // CHECK: stablehlo.while(%[[A:[^ ]+]] = %arg0, %[[T:[^ ]+]] = %[[C]])
  %s = "stablehlo.while"(%x) ({
  ^bb0(%a: tensor<8xf32>):
    %c = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  ^bb0(%a: tensor<8xf32>):
    // CHECK: } do {
    // CHECK-NEXT: %[[M:.*]]:2 = sdy.manual_computation(%[[A]], %[[T]])
    %m = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"gpu"}]>] out_shardings=[<@mesh, [{"gpu"}]>] manual_axes={"gpu"} (%b: tensor<4xf32>) {
      %y = zero.start @zpp_host::@gather(%b) : (tensor<4xf32>) -> tensor<2x4xf32>
      %w = zero.wait %y from(%b : tensor<4xf32>) : tensor<2x4xf32>
      %f = "stablehlo.first"(%w) : (tensor<2x4xf32>) -> tensor<4xf32>
      sdy.return %f : tensor<4xf32>
    } : (tensor<8xf32>) -> tensor<8xf32>
    // CHECK: stablehlo.return %[[M]]#0, %[[M]]#1
    stablehlo.return %m : tensor<8xf32>
  }) : (tensor<8xf32>) -> tensor<8xf32>
  return %s : tensor<8xf32>
}

module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}
