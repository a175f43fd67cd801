// Loops whose tensors cannot be updated in place: a new buffer in each
// iteration, freed in the next.

// RUN: zpp-run %s --entry=for --compare=four_times --tolerance=0 | FileCheck %s
// RUN: zpp-run %s --entry=while --compare=four_times --tolerance=0 | FileCheck %s
// RUN: zpp-run %s --entry=nested --compare=unrolled --tolerance=0 | FileCheck %s
// RUN: zpp-run %s --entry=exchange --compare=exchange_unrolled --tolerance=0 | FileCheck %s
// CHECK: result 0: relative L2 error 0.000e+00, bound 0.000e+00: ok

// RUN: zpp-opt %s --zero-to-llvm | FileCheck %s --check-prefix=MEMORY
// MEMORY-LABEL: llvm.func @for(
// MEMORY: ^[[LOOP:bb[0-9]+]](%{{.*}}: i64, %{{.*}}: !llvm.struct<{{.*}}>, %{{.*}}: i1):
// MEMORY: llvm.call @malloc
// MEMORY: llvm.call @free
// MEMORY: llvm.br ^[[LOOP]](

// Memory of devices is all planned ahead.
// RUN: not zpp-opt %s --zero-to-llvm=device-memory 2>&1 | FileCheck %s --check-prefix=DEVICE
// DEVICE: run-loops.mlir:[[#@LINE+9]]:10: error: failed to legalize 'memref.alloc' where buffers may be in device memory: expected memory planned by zero-plan-workspace, but got an allocation

#mesh = #zero.mesh<"gpu" = 2>

func.func @for(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%s = %x) -> tensor<4xf32> {
    %o = tensor.empty() : tensor<4xf32>
    %sum = linalg.add ins(%s, %x : tensor<4xf32>, tensor<4xf32>) outs(%o : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %sum : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
func.func @while(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r:2 = scf.while (%i = %c0, %s = %x) : (index, tensor<4xf32>) -> (index, tensor<4xf32>) {
    %isInside = arith.cmpi slt, %i, %c3 : index
    scf.condition(%isInside) %i, %s : index, tensor<4xf32>
  } do {
  ^bb0(%i: index, %s: tensor<4xf32>):
    %o = tensor.empty() : tensor<4xf32>
    %sum = linalg.add ins(%s, %x : tensor<4xf32>, tensor<4xf32>) outs(%o : tensor<4xf32>) -> tensor<4xf32>
    %next = arith.addi %i, %c1 : index
    scf.yield %next, %sum : index, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}
func.func private @add(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %o = tensor.empty() : tensor<4xf32>
  %sum = linalg.add ins(%x, %y : tensor<4xf32>, tensor<4xf32>) outs(%o : tensor<4xf32>) -> tensor<4xf32>
  return %sum : tensor<4xf32>
}
func.func @four_times(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @add(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = call @add(%0, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = call @add(%1, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// Buffers change places, and the first ones are parts of an argument.
func.func @nested(%x: tensor<2x4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %a0 = tensor.extract_slice %x[0, 0] [1, 4] [1, 1] : tensor<2x4xf32> to tensor<4xf32>
  %b0 = tensor.extract_slice %x[1, 0] [1, 4] [1, 1] : tensor<2x4xf32> to tensor<4xf32>
  %r:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%a = %a0, %b = %b0) -> (tensor<4xf32>, tensor<4xf32>) {
    %q:2 = scf.for %j = %c0 to %i step %c1 iter_args(%c = %a, %d = %b) -> (tensor<4xf32>, tensor<4xf32>) {
      %sum = func.call @add(%c, %d) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      scf.yield %d, %sum : tensor<4xf32>, tensor<4xf32>
    }
    scf.yield %q#1, %q#0 : tensor<4xf32>, tensor<4xf32>
  }
  return %r#0 : tensor<4xf32>
}
func.func @unrolled(%x: tensor<2x4xf32>) -> tensor<4xf32> {
  %a = tensor.extract_slice %x[0, 0] [1, 4] [1, 1] : tensor<2x4xf32> to tensor<4xf32>
  %b = tensor.extract_slice %x[1, 0] [1, 4] [1, 1] : tensor<2x4xf32> to tensor<4xf32>
  %0 = call @add(%b, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = call @add(%0, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = call @add(%a, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// Buffers that are not carried are in the workspace.
func.func private @step(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %0 = tensor.empty() : tensor<2x2xf32>
  %1 = zero.all_to_all %x along ["gpu"] on #mesh into %0
      : tensor<2x2xf32> into tensor<2x2xf32> -> tensor<2x2xf32>
  %2 = tensor.empty() : tensor<2x2xf32>
  %3 = linalg.add ins(%1, %x : tensor<2x2xf32>, tensor<2x2xf32>) outs(%2 : tensor<2x2xf32>) -> tensor<2x2xf32>
  return %3 : tensor<2x2xf32>
}
func.func @exchange(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%s = %x) -> tensor<2x2xf32> {
    %0 = tensor.empty() : tensor<2x2xf32>
    %1 = zero.all_to_all %s along ["gpu"] on #mesh into %0
        : tensor<2x2xf32> into tensor<2x2xf32> -> tensor<2x2xf32>
    %2 = tensor.empty() : tensor<2x2xf32>
    %3 = linalg.add ins(%1, %s : tensor<2x2xf32>, tensor<2x2xf32>) outs(%2 : tensor<2x2xf32>) -> tensor<2x2xf32>
    scf.yield %3 : tensor<2x2xf32>
  }
  return %r : tensor<2x2xf32>
}
func.func @exchange_unrolled(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %0 = call @step(%x) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %1 = call @step(%0) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %2 = call @step(%1) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return %2 : tensor<2x2xf32>
}
