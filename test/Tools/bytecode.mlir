// Bytecode with ops of guests could not be read by anyone. Ops of zero can.

// RUN: rm -f %t.mlirbc && not zpp-opt %s --emit-bytecode -o %t.mlirbc 2>&1 | FileCheck %s
// RUN: not ls %t.mlirbc
// CHECK: bytecode.mlir:[[#@LINE+8]]:8: error: expected ops of registered dialects for --emit-bytecode, but got 'stablehlo.negate'; write text, and convert it: zpp convert FILE --to bytecode -o FILE.mlirbc

// RUN: echo 'func.func @f() { return }' | zpp-opt --emit-bytecode -o %t.mlirbc
// RUN: mlir-opt %t.mlirbc | FileCheck %s --check-prefix=READ
// READ: func.func @f()

func.func @main(%w: tensor<4xf32>) -> tensor<4xf32> {
  // A comment, so that the op is on a line of its own.
  %g = stablehlo.negate %w : tensor<4xf32>
  return %g : tensor<4xf32>
}
