// The pretty form of StableHLO cannot be read without StableHLO: the error says
// where it stands and how to get the generic one. Nothing is written.

// RUN: rm -f %t.out
// RUN: not zpp-opt %s -o %t.out 2>&1 | FileCheck %s
// RUN: not ls %t.out

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: pretty-form.mlir:[[@LINE+1]]:8: error: custom op '{{[a-z.]+}}' expected the generic form "stablehlo.add"(...), but got the pretty form of 'stablehlo.add'; convert it first: zpp convert {{.*}}pretty-form.mlir -o generic.mlir
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
