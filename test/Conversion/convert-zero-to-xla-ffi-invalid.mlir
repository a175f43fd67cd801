// RUN: zpp-opt %s --convert-zero-to-xla-ffi --split-input-file --verify-diagnostics

// Only functions of the host module are in a bundle.

func.func private @f(tensor<4xf32>) -> tensor<4xf32>
func.func @not_on_the_host(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{failed to legalize 'zero.start': expected a function of @zpp_host, but got @f}}
  %y = zero.start @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %w = zero.wait %y from(%x : tensor<4xf32>) : tensor<4xf32>
  return %w : tensor<4xf32>
}
