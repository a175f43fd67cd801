// A module without anything to do: why, and what to do about it. A rewrite and
// the report after it say so once.

// RUN: split-file %s %t
// RUN: zpp-opt %t/one.mlir --zeropp="mesh=node:2,gpu:4" --zero-report=output=%t/report -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ONE
// RUN: zpp-opt %t/one.mlir --zero-report="mesh=node:2,gpu:4 output=%t/report" -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ONE
// RUN: zpp-opt %t/sharded.mlir --zeropp -o %t/out.mlir 2>&1 | FileCheck %s --check-prefix=SHARDED
// RUN: zpp-opt %t/sharded.mlir --zero-report=output=%t/report -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=SHARDED
// RUN: zpp-opt %t/hlo.mlir --zeropp="mesh=node:2,gpu:4" -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=HLO
// RUN: zpp-opt %t/argument.mlir --zeropp="mesh=node:2,gpu:4" -o %t/out.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=HLO

// HLO: remark: [Missed] no-collectives | {{.*}}the module has no collectives: it is HLO with shardings that XLA has not applied, and does not say for how many devices; give the step as StableHLO, or the HLO that XLA has compiled
// ONE-COUNT-1: remark: [Missed] no-collectives | {{.*}}the module has no collectives: it is for one device; export the step with its arguments on a mesh
// ONE-NOT: remark
// SHARDED: remark: [Missed] no-collectives | {{.*}}the module has no collectives: the step names none, and XLA makes those of its shardings when it compiles the step; the command `zpp rewrite` lets XLA make them first

//--- one.mlir
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

//--- hlo.mlir
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "stablehlo.custom_call"(%x) <{call_target_name = "Sharding"}> {mhlo.sharding = "{devices=[8]<=[8]}"} : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

//--- argument.mlir
func.func @main(%x: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"}) -> tensor<8xf32> {
  return %x : tensor<8xf32>
}

//--- sharded.mlir
module attributes {mhlo.num_partitions = 8 : i32} {
  "sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()
  func.func @main(%w: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"}, {}]>}) -> tensor<8x8xf32> {
    %0 = "stablehlo.dot"(%w, %w) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
}
