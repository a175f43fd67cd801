// The module is verified after each pass, or with --verify-each=false at the
// end; nothing is written that does not verify. The input is not verified here,
// which stands for a pass that makes such a module.

// DEFINE: %{option} =
// DEFINE: %{fails} = rm -f %t.mlir && not zpp-opt %s %{option} \
// DEFINE:   --mlir-very-unsafe-disable-verifier-on-parsing -o %t.mlir 2>&1 \
// DEFINE:   | FileCheck %s && not ls %t.mlir 2> /dev/null

// REDEFINE: %{option} = --canonicalize
// RUN: %{fails}
// REDEFINE: %{option} = --canonicalize --verify-each=false
// RUN: %{fails}
// REDEFINE: %{option} = --verify-each=false
// RUN: %{fails}

// RUN: not zpp-opt %s --verify-each=false 2>&1 | FileCheck %s

// CHECK: verify.mlir:[[#@LINE+2]]:3: error: type of return operand 0 ('tensor<4xf32>') doesn't match function result type ('tensor<8xf32>')
func.func @step(%w: tensor<4xf32>) -> tensor<8xf32> {
  return %w : tensor<4xf32>
}
