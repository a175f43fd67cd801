// RUN: zpp-opt %s --zero-write-loops --verify-diagnostics

// A plan that nothing could write is an error, at each loop.

func.func @word(%x: tensor<2xf32>) -> tensor<2xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<3> : tensor<i32>
  // expected-error@below {{expected as zpp.loop a plan by which 'stablehlo.while' can be written, but got {behind}}}
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<2xf32>
  attributes {zpp.loop = {behind}}
  cond {
    %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %a : tensor<i32>, tensor<2xf32>
  }
  return %r#1 : tensor<2xf32>
}

func.func @two(%x: tensor<2xf32>) -> tensor<2xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<3> : tensor<i32>
  // expected-error@below {{expected as zpp.loop a plan by which 'stablehlo.while' can be written, but got {last = 2 : i64}}}
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<2xf32>
  attributes {zpp.loop = {last = 2 : i64}}
  cond {
    %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %a : tensor<i32>, tensor<2xf32>
  }
  return %r#1 : tensor<2xf32>
}

func.func @part(%x: tensor<2xf32>) -> tensor<2xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<3> : tensor<i32>
  // expected-error@below {{expected as zpp.loop a plan by which 'stablehlo.while' can be written, but got {last = 1 : i64, layers = 1 : i64}}}
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<2xf32>
  attributes {zpp.loop = {last = 1 : i64, layers = 1 : i64}}
  cond {
    %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %a : tensor<i32>, tensor<2xf32>
  }
  return %r#1 : tensor<2xf32>
}

func.func @nothing(%x: tensor<2xf32>) -> tensor<2xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<3> : tensor<i32>
  // expected-error@below {{expected as zpp.loop a plan by which 'stablehlo.while' can be written, but got {}}}
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<2xf32>
  attributes {zpp.loop = {}}
  cond {
    %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %a : tensor<i32>, tensor<2xf32>
  }
  return %r#1 : tensor<2xf32>
}

// expected-error@below {{expected as zpp.loop a plan by which 'func.func' can be written, but got {layers = 1 : i64}}}
func.func private @none() attributes {zpp.loop = {layers = 1 : i64}}

func.func @unknown(%x: tensor<2xf32>, %end: tensor<i32>) -> tensor<2xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  // expected-error@below {{expected as zpp.loop a plan by which 'stablehlo.while' can be written, but got {layers = 3 : i64}}}
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<2xf32>
  attributes {zpp.loop = {layers = 3 : i64}}
  cond {
    %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %a : tensor<i32>, tensor<2xf32>
  }
  return %r#1 : tensor<2xf32>
}
