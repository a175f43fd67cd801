// The errors of zpp-run for programs that it cannot run.

// RUN: not zpp-run %s 2>&1 | FileCheck %s --check-prefix=ENTRY
// ENTRY: zpp-run: error: expected a function 'main' with a body in the program, but got none
// RUN: not zpp-run %s --entry=declared 2>&1 | FileCheck %s --check-prefix=BODY
// BODY: zpp-run: error: expected a function 'declared' with a body in the program, but got a declaration
// RUN: not zpp-run %s --entry=scalar 2>&1 | FileCheck %s --check-prefix=SCALAR
// SCALAR: error: expected static tensors of {{.*}} in the signature of 'scalar', but got 'i32'
// RUN: not zpp-run %s --entry=identity --mesh=gpu:4 2>&1 | FileCheck %s --check-prefix=MESH
// MESH: zpp-run: error: expected the program's mesh 'gpu:2', but got 'gpu:4'
// RUN: not zpp-run %s --entry=identity --backend=tpu 2>&1 | FileCheck %s --check-prefix=BACKEND
// BACKEND: zpp-run: error: expected one of the back ends 'cpu'{{.*}}, but got 'tpu'
// RUN: not zpp-run %s --entry=identity --compare=gather 2>&1 | FileCheck %s --check-prefix=TYPE
// TYPE: zpp-run: error: expected 'gather' to have the type of 'identity'
// RUN: not zpp-run %s --entry=identity --input=%t.none.npy 2>&1 | FileCheck %s --check-prefix=FILE
// FILE: zpp-run: error: {{.*}}.none.npy: {{[Nn]}}o such file or directory
// RUN: not zpp-run %s --entry=identity --input=%s 2>&1 | FileCheck %s --check-prefix=NPY
// NPY: zpp-run: error: {{.*}}: expected a .npy file of version 1, but got another format
// RUN: not zpp-run %s --entry=identity --input=%S/Inputs/rank.npy 2>&1 | FileCheck %s --check-prefix=ELEMENT
// ELEMENT: zpp-run: error: {{.*}}rank.npy: expected elements of type '<f4', but got '<i4'
// RUN: not zpp-run %s --entry=integers --input=%S/Inputs/rank.npy 2>&1 | FileCheck %s --check-prefix=SHAPE
// SHAPE: zpp-run: error: {{.*}}rank.npy: expected the shape [3] or [2, 3], but got [2, 2]
// RUN: not zpp-run %s --entry=identity --input= --input= 2>&1 | FileCheck %s --check-prefix=COUNT
// COUNT: zpp-run: error: expected at most 1 inputs, but got 2
// RUN: not zpp-run %s --entry=twice --compare=identity 2>&1 | FileCheck %s --check-prefix=BOUND
// BOUND: error: no error bound for this op
// BOUND: zpp-run: error: no error bound for 'twice': give one with --tolerance
// RUN: not zpp-run %s --entry=twice --compare=identity --tolerance=0.9 2>&1 | FileCheck %s --check-prefix=FAILED
// FAILED: result 0: relative L2 error 1.000e+00, bound 9.000e-01: FAILED
// RUN: zpp-run %s --entry=twice --compare=identity --tolerance=1.1 | FileCheck %s --check-prefix=OK
// OK: result 0: relative L2 error 1.000e+00, bound 1.100e+00: ok
// RUN: not zpp-run %s --entry=twice --compare=identity --tolerance=-5 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: zpp-run: error: expected a finite --tolerance of 0 or more, but got -5.00
// RUN: not zpp-run %s --entry=twice --compare=identity --tolerance=nan 2>&1 | FileCheck %s --check-prefix=NAN
// NAN: zpp-run: error: expected a finite --tolerance of 0 or more, but got nan
// RUN: not zpp-run %s --entry=twice --tolerance=1 2>&1 | FileCheck %s --check-prefix=ALONE
// ALONE: zpp-run: error: expected --compare or --expect beside --tolerance, but got neither
// RUN: not zpp-run %s --entry=logical 2>&1 | FileCheck %s --check-prefix=LOGICAL
// RUN: not zpp-opt %s --zero-to-llvm 2>&1 | FileCheck %s --check-prefix=LOGICAL
// LOGICAL: run-invalid.mlir:[[#@LINE+48]]:8: error: expected decomposed IR, but got 'zero.from_local'; run zero-decompose-all-gather and zero-decompose-reduce-scatter first
// LOGICAL: run-invalid.mlir:[[#@LINE+48]]:8: error: expected decomposed IR, but got 'zero.all_gather'; run zero-decompose-all-gather first
// RUN: not zpp-run %s --entry=caller --mesh=gpu:2 2>&1 | FileCheck %s --check-prefix=CALLEE
// CALLEE: run-invalid.mlir:[[#@LINE+36]]:3: error: expected 'declared' to have a body, but got a declaration
// CALLEE: zpp-run: error: cannot lower the program
// A private function is as good as any.
// RUN: zpp-run %s --entry=hidden --compare=identity | FileCheck %s --check-prefix=HIDDEN
// HIDDEN: result 0: relative L2 error 0.000e+00, bound 0.000e+00: ok
// Nothing is written before it is clear what to compare with.
// RUN: rm -f %t.0.npy && not zpp-run %s --entry=identity --output=%t. --expect=%t.none.npy 2>&1 | FileCheck %s --check-prefix=FILE && not ls %t.0.npy 2> /dev/null
// RUN: rm -f %t.0.npy && not zpp-run %s --entry=identity --output=%t. --expect= --expect= 2>&1 | FileCheck %s --check-prefix=RESULTS && not ls %t.0.npy 2> /dev/null
// RESULTS: zpp-run: error: expected at most 1 results, but got 2
// Back ends with memory of their own leave nothing to the host.
// RUN: not zpp-run %s --entry=twice --backend=cuda --mesh=gpu:2 2>&1 | FileCheck %s --check-prefix=HOST
// HOST: run-invalid.mlir:[[#@LINE+14]]:8: error: failed to legalize 'linalg.add' where buffers may be in device memory: it reads or writes them on the host
// HOST: zpp-run: error: cannot lower the program

#mesh = #zero.mesh<"gpu" = 2>
func.func private @declared(tensor<2xf32>)
func.func @scalar(%x: i32) { return }
func.func @identity(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
func.func @integers(%x: tensor<3xi32>) -> tensor<3xi32> {
  return %x : tensor<3xi32>
}
func.func @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = tensor.empty() : tensor<2xf32>
  %1 = linalg.add ins(%x, %x : tensor<2xf32>, tensor<2xf32>)
                  outs(%0 : tensor<2xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}
func.func @gather(%x: tensor<2xf32>) -> tensor<2x2xf32> {
  %0 = tensor.empty() : tensor<2x2xf32>
  %1 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %0
      : tensor<2xf32> into tensor<2x2xf32> -> tensor<2x2xf32>
  return %1 : tensor<2x2xf32>
}
func.func @caller(%x: tensor<2xf32>) {
  func.call @declared(%x) : (tensor<2xf32>) -> ()
  return
}
func.func private @hidden(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
!part = !zero.shard<4xf32, dim 0 = ("gpu") on #mesh>
!whole = !zero.shard<4xf32, dim 0 = (2) on #mesh>
func.func @logical(%x: tensor<2xf32>) -> tensor<4xf32> {
  %0 = zero.from_local %x : tensor<2xf32> to !part
  %1 = zero.all_gather %0 along ["gpu"] : !part to !whole
  %2 = zero.to_local %1 : !whole to tensor<4xf32>
  return %2 : tensor<4xf32>
}
