// RUN: zpp-opt %s --zero-plan-workspace --split-input-file --verify-diagnostics
// RUN: not zpp-opt %s --zero-plan-workspace=reuse=some 2>&1 | FileCheck %s
// CHECK: expected one of none, dependent, any, but got 'some'

#mesh = #zero.mesh<"gpu" = 4>
func.func @recursive(%x: memref<4xf32>, %y: memref<4xf32>) {
  zero.all_to_all %x along ["gpu"] on #mesh into %y : memref<4xf32> into memref<4xf32>
  // expected-error@below {{expected no recursion in a function with zero ops, but got a call of 'recursive'}}
  call @recursive(%x, %y) : (memref<4xf32>, memref<4xf32>) -> ()
  return
}
