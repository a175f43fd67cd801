// What each phase of zeropp leaves to the next one is verified. What one phase
// refuses, another one leaves.

// RUN: split-file %s %t
// RUN: zpp-opt %t/imported.mlir --zero-verify-phase=after=import -o %t/out.mlir
// RUN: zpp-opt %t/imported.mlir -o - | diff %t/out.mlir -
// RUN: zpp-opt %t/imported.mlir --zero-verify-phase=after=weights -o %t/out.mlir
// RUN: not zpp-opt %t/imported.mlir --zero-verify-phase=after=gradients 2>&1 \
// RUN:   | FileCheck %s --check-prefix=SUM
// RUN: not zpp-opt %t/imported.mlir --zero-verify-phase=after=leave 2>&1 \
// RUN:   | FileCheck %s --check-prefix=LEFT
// RUN: zpp-opt %t/encoded.mlir --zero-verify-phase=after=weights -o %t/out.mlir
// RUN: zpp-opt %t/encoded.mlir --zero-verify-phase=after=gradients -o %t/out.mlir
// RUN: not zpp-opt %t/encoded.mlir --zero-verify-phase=after=import 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ENCODED
// RUN: zpp-opt %t/hop.mlir --zero-verify-phase=after=gradients -o %t/out.mlir
// RUN: not zpp-opt %t/hop.mlir --zero-verify-phase=after=import 2>&1 \
// RUN:   | FileCheck %s --check-prefix=WIRE -DPHASE=import
// RUN: not zpp-opt %t/hop.mlir --zero-verify-phase=after=weights 2>&1 \
// RUN:   | FileCheck %s --check-prefix=WIRE -DPHASE=weights
// RUN: not zpp-opt %t/hop.mlir --zero-verify-phase=after=decompose 2>&1 \
// RUN:   | FileCheck %s --check-prefix=HOP
// RUN: not zpp-opt %t/updated.mlir --zero-verify-phase=after=weights 2>&1 \
// RUN:   | FileCheck %s --check-prefix=UPDATED
// RUN: zpp-opt %t/updated.mlir --zero-verify-phase=after=import -o %t/out.mlir
// RUN: zpp-opt %t/decomposed.mlir --zero-verify-phase=after=decompose -o %t/out.mlir
// RUN: not zpp-opt %t/decomposed.mlir --zero-verify-phase=after=import 2>&1 \
// RUN:   | FileCheck %s --check-prefix=DECOMPOSED
// RUN: zpp-opt %t/started.mlir --zero-verify-phase=after=schedule -o %t/out.mlir
// RUN: not zpp-opt %t/started.mlir --zero-verify-phase=after=decompose 2>&1 \
// RUN:   | FileCheck %s --check-prefix=STARTED
// RUN: not zpp-opt %t/unmatched.mlir --zero-verify-phase=after=schedule 2>&1 \
// RUN:   | FileCheck %s --check-prefix=UNMATCHED
// RUN: not zpp-opt %t/planned.mlir --zero-verify-phase=after=schedule 2>&1 \
// RUN:   | FileCheck %s --check-prefix=PLANNED
// RUN: zpp-opt %t/left.mlir --zero-verify-phase=after=leave -o %t/out.mlir
// RUN: not zpp-opt %t/marked.mlir --zero-verify-phase=after=leave 2>&1 \
// RUN:   | FileCheck %s --check-prefix=MARKED
// RUN: not zpp-opt %t/left.mlir --zero-verify-phase=after=lunch 2>&1 \
// RUN:   | FileCheck %s --check-prefix=UNKNOWN

// SUM: error: expected scatters and gathers after gradients, but got 'zero.all_reduce'; run zero-split-all-reduce
// LEFT-COUNT-6: error: expected no zero op after leave, but got 'zero.
// ENCODED: error: expected tensors that are not encoded after import, but got 'zero.encode'
// ENCODED: error: expected tensors that are not encoded after import, but got 'zero.decode'
// WIRE: error: expected scatters without a wire format after [[PHASE]], but got #zero.quant<i4, block = 128>
// HOP: error: expected decomposed IR, but got 'zero.reduce_scatter'; run zero-decompose-reduce-scatter first
// UPDATED: error: expected a decision about updates after weights, but got zpp.updated of 'stablehlo.all_gather'; run zero-send-updates
// DECOMPOSED: error: expected collectives on partitioned tensors after import, but got 'zero.all_gather_chunks'
// STARTED: error: expected no starts and waits after decompose, but got 'zero.start'
// UNMATCHED: error: 'zero.start' op expected 1 zero.wait to read its outputs, but got 0
// MARKED: error: expected no attribute zpp.forward_only after leave, but got one of 'stablehlo.add'
// PLANNED: error: expected loops written as planned after schedule, but got zpp.loop of 'stablehlo.while'; run zero-write-loops
// UNKNOWN: expected one of import, weights, gradients, decompose, schedule, leave, but got 'lunch'

//--- planned.mlir
func.func @step(%x: tensor<2xf32>) -> tensor<2xf32> {
  %more = stablehlo.constant dense<false> : tensor<i1>
  %0 = stablehlo.while(%y = %x) : tensor<2xf32>
  attributes {zpp.loop = {first = 1 : i64}}
  cond {
    stablehlo.return %more : tensor<i1>
  } do {
    stablehlo.return %y : tensor<2xf32>
  }
  return %0 : tensor<2xf32>
}

//--- imported.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>
!part = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!sum = !zero.shard<16xf32, dim 0 = () on #mesh>
func.func @step(%w: tensor<2xf32>, %g: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %0 = zero.from_local %w : tensor<2xf32> to !part
  %1 = zero.all_gather %0 along ["node", "gpu"] : !part to !whole
  %2 = zero.to_local %1 : !whole to tensor<16xf32>
  %3 = zero.from_local %g : tensor<16xf32> to !sum
  %4 = zero.all_reduce sum %3 along ["node", "gpu"] : !sum
  %5 = zero.to_local %4 : !sum to tensor<16xf32>
  return %2, %5 : tensor<16xf32>, tensor<16xf32>
}

//--- encoded.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!part = !zero.shard<1024xf32, dim 0 = ("node", "gpu") on #mesh>
!sent = !zero.shard<1024xf32, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8, block = 128>>
!came = !zero.shard<1024xf32, dim 0 = (2, 4) on #mesh, #zero.quant<i8, block = 128>>
!whole = !zero.shard<1024xf32, dim 0 = (2, 4) on #mesh>
func.func @step(%w: tensor<128xf32>) -> tensor<1024xf32> {
  %0 = zero.from_local %w : tensor<128xf32> to !part
  %1 = zero.encode %0 : !part to !sent
  %2 = zero.all_gather %1 along ["node", "gpu"] : !sent to !came
  %3 = zero.decode %2 : !came to !whole
  %4 = zero.to_local %3 : !whole to tensor<1024xf32>
  return %4 : tensor<1024xf32>
}

//--- hop.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<1024xf32, dim 0 = (2, 4) on #mesh>
!part = !zero.shard<1024xf32, dim 0 = ("node", "gpu") on #mesh>
func.func @step(%g: tensor<1024xf32>) -> tensor<128xf32> {
  %0 = zero.from_local %g : tensor<1024xf32> to !whole
  %1 = zero.reduce_scatter sum %0 along ["node", "gpu"] wire <i4, block = 128> : !whole to !part
  %2 = zero.to_local %1 : !part to tensor<128xf32>
  return %2 : tensor<128xf32>
}

//--- updated.mlir
func.func @step(%w: tensor<4xf32>) -> tensor<8xf32> {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> {zpp.updated} : (tensor<4xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

//--- decomposed.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>
!part = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
func.func @step(%x: tensor<4xf32>, %g: tensor<16xf32>) -> (tensor<4x4xf32>, tensor<2xf32>) {
  %e = tensor.empty() : tensor<4x4xf32>
  %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
      : tensor<4xf32> into tensor<4x4xf32> -> tensor<4x4xf32>
  // It was left alone.
  %1 = zero.from_local %g : tensor<16xf32> to !whole
  %2 = zero.reduce_scatter sum %1 along ["node", "gpu"] {zpp.reason = "it is small"} : !whole to !part
  %3 = zero.to_local %2 : !part to tensor<2xf32>
  return %0, %3 : tensor<4x4xf32>, tensor<2xf32>
}

//--- started.mlir
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<4x4xf32> {
    %e = tensor.empty() : tensor<4x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<4x4xf32> -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}
func.func @step(%x: tensor<4xf32>) -> tensor<4x4xf32> {
  %0 = zero.start @zpp_host::@gather(%x) {origins = [{id = 3}]}
      : (tensor<4xf32>) -> tensor<4x4xf32>
  %1 = zero.wait %0 from(%x : tensor<4xf32>) : tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}

//--- unmatched.mlir
module @zpp_host {
  func.func @same(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}
func.func @step(%x: tensor<4xf32>) {
  %0 = zero.start @zpp_host::@same(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

//--- left.mlir
func.func @step(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
// What runs beside the step stays.
module @zpp_host {
  func.func @copy(%x: memref<4xf32>, %y: memref<4x4xf32>) {
    zero.all_gather_chunks %x along ["gpu"] on #zero.mesh<"gpu" = 4> into %y
        : memref<4xf32> into memref<4x4xf32>
    return
  }
}

//--- marked.mlir
func.func @step(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x {zpp.forward_only} : tensor<4xf32>
  return %0 : tensor<4xf32>
}
