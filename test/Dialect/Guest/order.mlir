// UNSUPPORTED: registered-ops
// RUN: zpp-opt %s --split-input-file --verify-diagnostics

// In regions of guests values are defined before they are used, as in those of
// StableHLO's own dialect.

func.func @backwards(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.while"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    %t = "stablehlo.constant"() <{value = dense<true> : tensor<i1>}> : () -> tensor<i1>
    "stablehlo.return"(%t) : (tensor<i1>) -> ()
  }, {
  ^bb0(%a: tensor<4xf32>):
    // expected-error@+1 {{'stablehlo.negate' op expected operand #0 to be defined before it is used}}
    %b = "stablehlo.negate"(%c) : (tensor<4xf32>) -> tensor<4xf32>
    // expected-note@+1 {{it is defined here}}
    %c = "stablehlo.negate"(%a) : (tensor<4xf32>) -> tensor<4xf32>
    "stablehlo.return"(%b) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
