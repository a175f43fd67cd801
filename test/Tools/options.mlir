// Errors in the command line end in exit code 1, say what was expected and what
// was found, and leave no output file. They do not print the module.

// DEFINE: %{option} =
// DEFINE: %{fails} = rm -f %t.mlir && not zpp-opt %s %{option} \
// DEFINE:   --remarks-filter=none -o %t.mlir 2>&1
// DEFINE: %{no_output} = not ls %t.mlir 2> /dev/null

// REDEFINE: %{option} = --bogus
// RUN: %{fails} | FileCheck %s --check-prefix=ARGUMENT && %{no_output}
// ARGUMENT: Unknown command line argument '--bogus'

// REDEFINE: %{option} = --zeropp=bogus=1
// RUN: %{fails} | FileCheck %s --check-prefix=OPTION && %{no_output}
// OPTION: no such option bogus

// REDEFINE: %{option} = --zeropp=tuning.bogus=1
// RUN: %{fails} | FileCheck %s --check-prefix=TUNING && %{no_output}
// TUNING: no such option tuning.bogus

// REDEFINE: %{option} = --zeropp=tuning.block=abc
// RUN: %{fails} | FileCheck %s --check-prefix=NUMBER && %{no_output}
// NUMBER: for the --tuning.block option: 'abc' value invalid

// REDEFINE: %{option} = --zeropp=tuning.block=100
// RUN: %{fails} | FileCheck %s --check-prefix=BLOCK --implicit-check-not=func && %{no_output}
// BLOCK: options.mlir:0:0: error: expected a block that is a power of two from 32 to 2048, but got 100

// REDEFINE: %{option} = --zeropp=tuning.rotate=64
// RUN: %{fails} | FileCheck %s --check-prefix=ROTATE --implicit-check-not=func && %{no_output}
// ROTATE: options.mlir:0:0: error: expected groups of 0 or 32 elements to rotate, but got 64

// REDEFINE: %{option} = --zeropp=weights=I8
// RUN: %{fails} | FileCheck %s --check-prefix=WEIGHTS --implicit-check-not=func && %{no_output}
// WEIGHTS: options.mlir:0:0: error: expected a format none, i8 or i4, but got 'I8'

// REDEFINE: %{option} = --zeropp=weights=
// RUN: %{fails} | FileCheck %s --check-prefix=EMPTY --implicit-check-not=func && %{no_output}
// REDEFINE: %{option} = --zeropp=gradients=
// RUN: %{fails} | FileCheck %s --check-prefix=EMPTY --implicit-check-not=func && %{no_output}
// REDEFINE: %{option} = --zeropp=gradients=i8:
// RUN: %{fails} | FileCheck %s --check-prefix=EMPTY --implicit-check-not=func && %{no_output}
// EMPTY: error: expected a format none, i8 or i4, but got ''

// REDEFINE: %{option} = --zeropp=gradients=i8:i7
// RUN: %{fails} | FileCheck %s --check-prefix=GRADIENTS --implicit-check-not=func && %{no_output}
// GRADIENTS: error: expected a format none, i8 or i4, but got 'i7'

// REDEFINE: %{option} = --zero-decompose-reduce-scatter=stages=-1
// RUN: %{fails} | FileCheck %s --check-prefix=STAGES --implicit-check-not=func && %{no_output}
// STAGES: error: expected 1 to 1024 stages, or 0 to choose, but got -1

// REDEFINE: %{option} = --zeropp=target=tpu
// RUN: %{fails} | FileCheck %s --check-prefix=TARGET --implicit-check-not=func && %{no_output}
// TARGET: for the --target option: expected one of portable, cuda, but got 'tpu'

// REDEFINE: %{option} = --zeropp=frozen=true
// RUN: %{fails} | FileCheck %s --check-prefix=FROZEN --implicit-check-not=func && %{no_output}
// FROZEN: for the --frozen option: expected one of none, keep, but got 'true'

// REDEFINE: %{option} = --zeropp=start=
// RUN: %{fails} | FileCheck %s --check-prefix=START --implicit-check-not=func && %{no_output}
// START: for the --start option: expected one of none, frozen, all, but got ''

// REDEFINE: %{option} = --zeropp=tuning.coalesce-bytes=-5
// RUN: %{fails} | FileCheck %s --check-prefix=COALESCE --implicit-check-not=func && %{no_output}
// COALESCE: error: expected a number of bytes to coalesce, but got -5

// REDEFINE: %{option} = --zeropp=tuning.prefetch-bytes=-5
// RUN: %{fails} | FileCheck %s --check-prefix=PREFETCH --implicit-check-not=func && %{no_output}
// PREFETCH: error: expected a number of bytes to prefetch, but got -5

// REDEFINE: %{option} = --zeropp=mesh=node:2,gpu
// RUN: %{fails} | FileCheck %s --check-prefix=MESH --implicit-check-not=func && %{no_output}
// MESH: error: in mesh 'node:2,gpu': expected NAME:SIZE, but got 'gpu'

// REDEFINE: %{option} = --zeropp=mesh=node:2,gpu:0
// RUN: %{fails} | FileCheck %s --check-prefix=SIZE --implicit-check-not=func && %{no_output}
// SIZE: error: in mesh 'node:2,gpu:0': expected a positive size for axis 'gpu', but got '0'

// REDEFINE: %{option} = --zeropp=mesh=node:2,gpu:2
// RUN: %{fails} | FileCheck %s --check-prefix=DEVICES --implicit-check-not=func && %{no_output}
// DEVICES: error: expected a mesh of 8 devices, on which the module runs, but got 'node:2,gpu:2' of 4

// One tier; tiers of other names and sizes; parts of the module's own axes.
// REDEFINE: %{option} = --zeropp=mesh=a:8
// RUN: zpp-opt %s %{option} --remarks-filter=none -o /dev/null
// REDEFINE: %{option} = --zero-import-collectives=mesh=rack:4,socket:2
// RUN: zpp-opt %s %{option} -o - | FileCheck %s --check-prefix=CUT
// CUT: zero.all_gather {{.*}} along ["rack", "socket"]
// REDEFINE: %{option} = --zero-import-collectives=mesh=node:2,socket:2,gpu:2
// RUN: zpp-opt %s %{option} -o - | FileCheck %s --check-prefix=PART
// PART: zero.all_gather {{.*}} along ["node", "socket", "gpu"]

// A tier with the name of an axis is this axis, wherever it stands.
// REDEFINE: %{option} = --zeropp=mesh=gpu:4,node:2
// RUN: zpp-opt %s %{option} --zero-report=mesh=gpu:4,node:2 --remarks-filter=none -o - 2>&1 | FileCheck %s --check-prefix=ORDER
// ORDER: over each tier of gpu:4@1,node:2@4
// ORDER: zpp.machine = {mesh = "gpu:4@1,node:2@4"}
// REDEFINE: %{option} = --zero-import-collectives=mesh=node:4,gpu:2
// RUN: %{fails} | FileCheck %s --check-prefix=AXIS --implicit-check-not=func && %{no_output}
// AXIS: error: expected 'node:2', an axis of the module's mesh 'node:2,gpu:4', but got 'node:4' in 'node:4,gpu:2'; a tier that is no axis needs another name

// REDEFINE: %{option} = --zeropp=weights-of=2-1
// RUN: %{fails} | FileCheck %s --check-prefix=WEIGHTS-OF --implicit-check-not=func && %{no_output}
// WEIGHTS-OF: error: expected weights-of to be 'all' or argument numbers and ranges, as 0,3-7, but got '2-1'
// REDEFINE: %{option} = --zero-report=weights-of=0,1
// RUN: %{fails} | FileCheck %s --check-prefix=WEIGHTS-OF-RANGE --implicit-check-not=func && %{no_output}
// WEIGHTS-OF-RANGE: error: expected arguments of the step below 1 in weights-of, but got 1

// REDEFINE: %{option} = --zeropp=secondary=tpu
// RUN: %{fails} | FileCheck %s --check-prefix=TIER && %{no_output}
// TIER: error: expected a tier of the mesh node:2,gpu:4 or a group size as the secondary partition, but got 'tpu'

// REDEFINE: %{option} = --zeropp=secondary=0
// RUN: %{fails} | FileCheck %s --check-prefix=ZERO && %{no_output}
// ZERO: error: expected a tier of the mesh node:2,gpu:4 or a group size as the secondary partition, but got '0'

// REDEFINE: %{option} = --zeropp=secondary=3
// RUN: %{fails} | FileCheck %s --check-prefix=GROUP && %{no_output}
// GROUP: error: expected a secondary group size that divides the 8 devices of a weight's group on node:2,gpu:4, but got 3

// REDEFINE: %{option} = --zero-report=format=xml
// RUN: %{fails} | FileCheck %s --check-prefix=FORMAT --implicit-check-not=func && %{no_output}
// FORMAT: expected one of table, json, but got 'xml'

// REDEFINE: %{option} = --zero-report=output=%t.none/report
// RUN: %{fails} | FileCheck %s --check-prefix=REPORT --implicit-check-not=func && %{no_output}
// REPORT: error: cannot write the report to '{{.*}}.none/report': No such file or directory

// REDEFINE: %{option} = --zero-report=output=/dev/full
// RUN: %{fails} | FileCheck %s --check-prefix=FULL --implicit-check-not=func && %{no_output}
// FULL: error: cannot write the report to '/dev/full': No space left on device

// REDEFINE: %{option} = --zeropp --zero-report=mesh=rack:4,gpu:2
// RUN: %{fails} | FileCheck %s --check-prefix=OTHER --implicit-check-not=func && %{no_output}
// OTHER: error: expected the mesh of the rewrite, "node:2,gpu:4", but got 'rack:4,gpu:2'

// RUN: not zpp-opt %s --zeropp --remarks-filter=none -o %t.none/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=OUTPUT
// OUTPUT: cannot write '{{.*}}.none/out.mlir': No such file or directory

// RUN: echo // before > %t.mlir && zpp-opt %s --remarks-filter=none -o /dev/stdout >> %t.mlir
// RUN: FileCheck %s --check-prefix=BEHIND --input-file=%t.mlir && rm %t.mlir
// BEHIND:      // before
// BEHIND-NEXT: module

// RUN: not zpp-opt %s --zeropp --remarks-filter=none -o /dev/full 2>&1 \
// RUN:   | FileCheck %s --check-prefix=DISK
// DISK: cannot write '/dev/full': No space left on device

// A file that is there stays as it is.
// RUN: echo old > %t.old.mlir
// RUN: not zpp-opt %s --zeropp=tuning.block=100 --remarks-filter=none -o %t.old.mlir
// RUN: grep -x old %t.old.mlir

// RUN: not zpp-opt %t.none.mlir --zeropp 2>&1 | FileCheck %s --check-prefix=INPUT
// INPUT: cannot open input file '{{.*}}none.mlir': No such file or directory

// RUN: echo '"builtin.module"() ({' | not zpp-opt --zeropp -o %t.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=MALFORMED && %{no_output}
// MALFORMED: <stdin>:1:22: error: expected operation name in quotes

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @step(%w: tensor<4x64xf32>) -> (tensor<f32>, tensor<f32>, tensor<4x64xf32>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x64xf32>) -> tensor<32x64xf32>
  %1 = stablehlo.optimization_barrier %w : tensor<4x64xf32>
  %2 = "stablehlo.all_gather"(%1) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x64xf32>) -> tensor<32x64xf32>
  %read = stablehlo.dot %0, %0 : (tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<f32>
  %read1 = stablehlo.dot %2, %2 : (tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<f32>
  %new = stablehlo.negate %w : tensor<4x64xf32>
  return %read, %read1, %new : tensor<f32>, tensor<f32>, tensor<4x64xf32>
}
