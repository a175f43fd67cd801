// RUN: zpp-opt %s --split-input-file --verify-diagnostics

// An op that always has the generic form.
func.func @generic(%x: tensor<4xf32>, %y: tensor<1xi32>) {
  // expected-error@+1 {{expected the generic form "stablehlo.gather"(...), but got a pretty form of 'stablehlo.gather', which zpp does not know}}
  %0 = stablehlo.gather %x, %y : (tensor<4xf32>, tensor<1xi32>) -> tensor<1xf32>
  return
}

// -----

func.func @unknown(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected the generic form "chlo.what"(...), but got a pretty form of 'chlo.what', which zpp does not know}}
  chlo.what %x : tensor<4xf32>
  return
}

// -----

func.func @twice(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected 'permutation' once, but got it twice}}
  %0 = stablehlo.transpose %x, dims = [0] {permutation = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @word(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{expected 'dims'}}
  %0 = stablehlo.transpose %x, dim = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @comma(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{expected no ',' before this}}
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0], kind = 1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @bits(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected bits as in e5m2, but got f8}}
  %0 = stablehlo.reduce_precision %x, format = f8 : tensor<4xf32>
  return
}

// -----

func.func @window(%x: tensor<1x3x8x8xf32>, %y: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{expected stride, pad, lhs_dilate, rhs_dilate or reverse, but got strides}}
  %0 = stablehlo.convolution(%x, %y) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {strides = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @padding(%x: tensor<1x3x8x8xf32>, %y: tensor<4x3x3x3xf32>) {
  // expected-error@+1 {{expected 2 numbers, but got 3}}
  %0 = stablehlo.convolution(%x, %y) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {pad = [[0, 0, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  return
}

// -----

func.func @complex(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected a tensor of complex elements, but got 'tensor<4xf32>'}}
  %0 = stablehlo.complex %x, %x : tensor<4xf32>
  return
}

// -----

func.func @reducer(%x: tensor<4xf32>, %y: tensor<f32>) {
  // expected-error@+1 {{expected a commutative op of stablehlo, but got stablehlo.subtract}}
  %0 = stablehlo.reduce(%x init: %y) applies stablehlo.subtract across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @inputs(%x: tensor<4xf32>, %y: tensor<f32>) {
  // expected-error@+1 {{expected a type of an input}}
  %0 = stablehlo.reduce(%x init: %y) applies stablehlo.add across dimensions = [0] : () -> tensor<f32>
  return
}

// -----

func.func @token(%x: !stablehlo.token, %y: tensor<f32>) {
  // expected-error@+1 {{expected a tensor, but got '!stablehlo.token'}}
  %0 = stablehlo.reduce(%x init: %y) applies stablehlo.add across dimensions = [0] : (!stablehlo.token, tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @types(%x: tensor<4xf32>, %y: tensor<i32>) {
  // expected-error@+1 {{expected 2 types, but got 1}}
  %0 = stablehlo.while(%a = %x, %b = %y) : tensor<4xf32> cond {
    stablehlo.return %x : tensor<4xf32>
  } do {
    stablehlo.return %x : tensor<4xf32>
  }
  return
}

// -----

func.func @operands(%x: tensor<4xf32>) {
  // expected-error@+1 {{number of operands and types do not match: got 1 operands and 2 types}}
  %0 = stablehlo.reshape %x : (tensor<4xf32>, tensor<i32>) -> tensor<4xf32>
  return
}

// -----

func.func @sharding(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected an attribute in brackets}}
  %0 = sdy.sharding_constraint %x @mesh : tensor<4xf32>
  return
}

// -----

func.func @direction(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected one of NONE, FORWARD, BACKWARD, BOTH}}
  %0 = sdy.propagation_barrier %x allowed_direction=SIDEWAYS : tensor<4xf32>
  return
}

// -----

func.func @number(%x: tuple<tensor<f32>>) {
  // expected-error@+1 {{integer value too large}}
  %0 = stablehlo.get_tuple_element %x[3000000000] : (tuple<tensor<f32>>) -> tensor<f32>
  return
}
