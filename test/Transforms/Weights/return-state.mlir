// What the state does not need is erased, also in loops and manual computations,
// and also where it has side effects.
// RUN: zpp-opt %s --zero-return-state --split-input-file | FileCheck %s

// A step without state stays as it is.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.negate
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Both results follow from one argument; the step takes the donation.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[W:.*]]: tensor<4xf32> {mhlo.layout_mode = "default"}
// CHECK-SAME: -> (tensor<4xf32> {jax.result_info = "held"})
// CHECK-NOT: custom_call
// CHECK-NOT: negate
// CHECK: %[[SUM:.*]] = stablehlo.add %[[W]], %[[W]]
// CHECK-NEXT: %[[HELD:.*]] = call @used(%[[SUM]])
// CHECK-NEXT: return %[[HELD]]
// CHECK-NOT: func.func private @unused
// CHECK: func.func private @used
module attributes {zpp.state = [{kind = "held", type = tensor<4xf32>}]} {
  func.func @main(%w: tensor<4xf32> {mhlo.layout_mode = "default", tf.aliasing_output = 0 : i32}, %x: tensor<4xf32> {jax.buffer_donor = true})
      -> (tensor<4xf32> {jax.result_info = "loss"}, tensor<4xf32> {jax.result_info = "held"}) {
    %0 = call @unused(%w) : (tensor<4xf32>) -> tensor<4xf32>
    stablehlo.custom_call @print(%0) {has_side_effect = true} : (tensor<4xf32>) -> ()
    %1 = stablehlo.add %w, %w : tensor<4xf32>
    %2 = call @used(%1) : (tensor<4xf32>) -> tensor<4xf32>
    return %0, %2 : tensor<4xf32>, tensor<4xf32>
  }
  func.func private @unused(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.negate %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func private @used(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

// Of what the loop carries, the state needs the counter and the stack. Nothing
// computes the activation, so that it stays zero; there are no zeros of complex
// numbers.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[W:.*]]: tensor<2x4xf32>, %[[X:.*]]: tensor<4xf32>, %[[C:.*]]: tensor<complex<f32>>)
// CHECK-NOT: stablehlo.exponential
// CHECK: %[[ZEROS:.*]] = stablehlo.broadcast_in_dim
// CHECK: %[[TURNED:.*]] = stablehlo.multiply %[[C]], %[[C]]
// CHECK: %[[ZERO:.*]] = stablehlo.broadcast_in_dim
// CHECK: %[[LOOP:.*]]:4 = stablehlo.while(%{{.*}} = %{{.*}}, %[[STACK:[^ ]+]] = %[[ZEROS]], %[[ACT:[^ ]+]] = %[[ZERO]], %[[NUMBER:[^ ]+]] = %[[TURNED]])
// CHECK: } do {
// CHECK-NOT: stablehlo.tanh
// CHECK-NOT: stablehlo.custom_call
// CHECK: %[[NEXT:.*]] = stablehlo.add %[[STACK]], %[[W]]
// CHECK: %[[SQUARE:.*]] = stablehlo.multiply %[[NUMBER]], %[[NUMBER]]
// CHECK: stablehlo.return %{{.*}}, %[[NEXT]], %[[ACT]], %[[SQUARE]]
// CHECK: return %[[LOOP]]#1
module attributes {zpp.state = [{kind = "held", type = tensor<2x4xf32>}]} {
  func.func @main(%w: tensor<2x4xf32>, %x: tensor<4xf32>, %c: tensor<complex<f32>>) -> (tensor<4xf32>, tensor<2x4xf32>) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %f = stablehlo.constant dense<0.0> : tensor<f32>
    %zeros = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
    %e = stablehlo.exponential %x : tensor<4xf32>
    %turned = stablehlo.multiply %c, %c : tensor<complex<f32>>
    %0:4 = stablehlo.while(%i = %zero, %s = %zeros, %a = %e, %n = %turned) : tensor<i32>, tensor<2x4xf32>, tensor<4xf32>, tensor<complex<f32>>
    cond {
      %two = stablehlo.constant dense<2> : tensor<i32>
      %p = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %t = stablehlo.tanh %a : tensor<4xf32>
      stablehlo.custom_call @print(%t) {has_side_effect = true} : (tensor<4xf32>) -> ()
      %sum = stablehlo.add %s, %w : tensor<2x4xf32>
      %square = stablehlo.multiply %n, %n : tensor<complex<f32>>
      stablehlo.return %next, %sum, %t, %square : tensor<i32>, tensor<2x4xf32>, tensor<4xf32>, tensor<complex<f32>>
    }
    return %0#2, %0#1 : tensor<4xf32>, tensor<2x4xf32>
  }
}

// -----

// Zeros enter a manual computation and leave it where nothing is needed. What
// stands in a branch stays as a whole.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[W:.*]]: tensor<8xf32>, %[[P:.*]]: tensor<i32>)
// CHECK-NOT: stablehlo.negate
// CHECK: %[[GLOBAL:.*]] = stablehlo.broadcast_in_dim %{{.*}}, dims = [] : (tensor<f32>) -> tensor<8xf32>
// CHECK: %[[ALL:.*]]:2 = sdy.manual_computation(%[[W]], %[[GLOBAL]], %[[P]])
// CHECK-SAME: (%[[PART:[^:]+]]: tensor<2xf32>, %{{.*}}: tensor<2xf32>, %[[WHICH:[^:]+]]: tensor<i32>)
// CHECK: %[[CASE:.*]] = "stablehlo.case"(%[[WHICH]])
// CHECK: stablehlo.tanh %[[PART]]
// CHECK: stablehlo.sine %[[PART]]
// CHECK-NOT: stablehlo.exponential
// CHECK: %[[LOCAL:.*]] = stablehlo.broadcast_in_dim %{{.*}}, dims = [] : (tensor<f32>) -> tensor<2xf32>
// CHECK: sdy.return %[[LOCAL]], %[[CASE]]
// CHECK: return %[[ALL]]#1
module attributes {zpp.state = [{kind = "held", type = tensor<8xf32>}]} {
  sdy.mesh @mesh = <["gpu"=4]>
  func.func @main(%w: tensor<8xf32>, %p: tensor<i32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %n = stablehlo.negate %w : tensor<8xf32>
    %0:2 = sdy.manual_computation(%w, %n, %p) in_shardings=[<@mesh, [{"gpu"}]>, <@mesh, [{"gpu"}]>, <@mesh, []>] out_shardings=[<@mesh, [{"gpu"}]>, <@mesh, [{"gpu"}]>] manual_axes={"gpu"} (%a: tensor<2xf32>, %b: tensor<2xf32>, %q: tensor<i32>) {
      %e = stablehlo.exponential %b : tensor<2xf32>
      %c = "stablehlo.case"(%q) ({
        %t = stablehlo.tanh %a : tensor<2xf32>
        stablehlo.return %t : tensor<2xf32>
      }, {
        %s = stablehlo.sine %a : tensor<2xf32>
        stablehlo.return %s : tensor<2xf32>
      }) : (tensor<i32>) -> tensor<2xf32>
      sdy.return %e, %c : tensor<2xf32>, tensor<2xf32>
    } : (tensor<8xf32>, tensor<8xf32>, tensor<i32>) -> (tensor<8xf32>, tensor<8xf32>)
    return %0#0, %0#1 : tensor<8xf32>, tensor<8xf32>
  }
}

// -----

// The order of calls of the host needs no token where there are none.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[W:[a-z0-9]*]]: tensor<4xf32>) -> tensor<4xf32>
// CHECK-NOT: custom_call
// CHECK: %[[NEW:.*]] = stablehlo.create_token : !stablehlo.token
// CHECK: sdy.manual_computation(%[[NEW]], %[[W]])
// CHECK-SAME: (%[[TOKEN:[^:]+]]: !stablehlo.token, %[[LOCAL:[^:]+]]: tensor<4xf32>)
// CHECK-NOT: custom_call
// CHECK: %[[SUM:.*]] = stablehlo.add %[[LOCAL]], %[[LOCAL]]
// CHECK: %[[NEXT:.*]] = stablehlo.create_token : !stablehlo.token
// CHECK: sdy.return %[[NEXT]], %[[SUM]]
module attributes {zpp.state = [{kind = "held", type = tensor<4xf32>}]} {
  sdy.mesh @mesh = <["gpu"=1]>
  func.func @main(%t: !stablehlo.token, %w: tensor<4xf32>) -> (!stablehlo.token, tensor<4xf32>) {
    %0:2 = sdy.manual_computation(%t, %w) in_shardings=[<@mesh, []>, <@mesh, [{}]>] out_shardings=[<@mesh, []>, <@mesh, [{}]>] manual_axes={"gpu"} (%token: !stablehlo.token, %local: tensor<4xf32>) {
      %1 = stablehlo.custom_call @print(%token, %local) {has_side_effect = true} : (!stablehlo.token, tensor<4xf32>) -> !stablehlo.token
      %2 = stablehlo.add %local, %local : tensor<4xf32>
      sdy.return %1, %2 : !stablehlo.token, tensor<4xf32>
    } : (!stablehlo.token, tensor<4xf32>) -> (!stablehlo.token, tensor<4xf32>)
    return %0#0, %0#1 : !stablehlo.token, tensor<4xf32>
  }
}
