// A module without anything to do: why, and what to do about it. A rewrite and
// the report after it say so once.

// RUN: split-file %s %t
// RUN: zpp-opt %t/one.mlir --zeropp="mesh=node:2,gpu:4" --zero-report=output=%t/report -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ONE
// RUN: zpp-opt %t/one.mlir --zeropp="mesh=node:2,gpu:4" --zero-report=format=json --remarks-filter=none -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=JSON
// JSON: "no_collectives": "the module has no collectives: it is for one device; export the step with its arguments on a mesh"
// RUN: zpp-opt %t/one.mlir --zero-report="mesh=node:2,gpu:4 output=%t/report" -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ONE
// RUN: zpp-opt %t/sharded.mlir --zeropp -o %t/out.mlir 2>&1 | FileCheck %s --check-prefix=SHARDED
// RUN: zpp-opt %t/hlo.mlir --zeropp="mesh=node:2,gpu:4" -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=SHARDED
// RUN: zpp-opt %t/argument.mlir --zeropp="mesh=node:2,gpu:4" -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=SHARDED
// RUN: zpp-opt %t/replicated.mlir --zero-report=output=%t/report -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=NOTHING
// RUN: zpp-opt %t/local.mlir --zero-report="mesh=node:2,gpu:4 output=%t/report" -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ONE

// A report of shardings that nobody has applied would be of zeros.
// RUN: rm %t/report
// RUN: not zpp-opt %t/sharded.mlir --zero-report=output=%t/report -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=REPORT
// RUN: not zpp-opt %t/hlo.mlir --zero-report="mesh=node:2,gpu:4 output=%t/report" -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=REPORT
// RUN: not ls %t/report

// ONE-COUNT-1: remark: [Missed] no-collectives | {{.*}}the module has no collectives: it is for one device; export the step with its arguments on a mesh
// ONE-NOT: remark
// SHARDED: remark: [Missed] no-collectives | {{.*}}the module has no collectives: it has shardings, of which XLA makes some when it compiles the step; the command `zpp rewrite` lets XLA make them first
// NOTHING: remark: [Missed] no-collectives | {{.*}}the module has no collectives: its 8 devices exchange nothing, and no sharding says that they should
// REPORT: error: expected a module with collectives, but got one with shardings, of which XLA makes some when it compiles the step; the command `zpp report` lets XLA make them first

//--- one.mlir
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

//--- hlo.mlir
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{devices=[8]<=[8]}"} : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

//--- argument.mlir
func.func @main(%x: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) -> tensor<8xf32> {
  return %x : tensor<8xf32>
}

//--- sharded.mlir
module attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["node"=2, "gpu"=4]>
  func.func @main(%w: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"}, {}]>}) -> tensor<8x8xf32> {
    %0 = stablehlo.dot %w, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
}

//--- replicated.mlir
module attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["node"=2, "gpu"=4]>
  func.func @main(%w: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> tensor<8x8xf32> {
    return %w : tensor<8x8xf32>
  }
}

//--- local.mlir
module attributes {mhlo.spmd_parameters_shardings = ["{devices=[8]<=[8]}"]} {
  func.func @main(%x: tensor<1xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) -> tensor<1xf32> {
    return %x : tensor<1xf32>
  }
}
