// RUN: zpp-opt %s --zero-report="weights-of=all gradients-of=all" --split-input-file -o /dev/null 2>&1 \
// RUN:   | FileCheck %s
// RUN: zpp-opt %s --zero-report="output=- weights-of=all gradients-of=all" --split-input-file -o /dev/null \
// RUN:   | FileCheck %s
// RUN: zpp-opt %s --zero-report="output=%t.txt weights-of=all gradients-of=all" --split-input-file -o /dev/null \
// RUN:   && FileCheck %s --check-prefix=LAST < %t.txt
// RUN: zpp-opt %s --zero-report="format=json weights-of=all gradients-of=all" --split-input-file -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=JSON
// RUN: zpp-opt %s --zeropp="weights-of=all gradients-of=all" --zero-report="format=json output=-" \
// RUN:   --split-input-file --remarks-filter=none -o /dev/null \
// RUN:   | FileCheck %s --check-prefix=AFTER
// RUN: zpp-opt %s --zero-report="weights-of=all gradients-of=all" --split-input-file 2>/dev/null | FileCheck %s \
// RUN:   --check-prefix=SAME --implicit-check-not=zpp.

// The module stays as it is.
// SAME-COUNT-2: stablehlo.all_reduce

// A kept weight, its gradient and what else there is. A device sends its slice
// of 32 * 64 * 2 bytes to the other node and twice that to its 3 neighbors.

// CHECK: bytes that a device sends per step over each tier of node:2,gpu:4
// CHECK: collective {{.*}} node before after gpu before after location
// CHECK: all_gather weight forward node,gpu 4.0 KiB 4.0 KiB 24.0 KiB 24.0 KiB step.py:3:5
// CHECK: all_gather weight backward node,gpu 4.0 KiB 4.0 KiB 24.0 KiB 24.0 KiB step.py:4:5
// CHECK: reduce_scatter gradient backward node,gpu 8.0 KiB 8.0 KiB 48.0 KiB 48.0 KiB step.py:5:5
// CHECK: all_reduce other backward gpu 0 B 0 B 192 B 192 B
// CHECK: collective_permute other backward 3 B 3 B 3 B 3 B
// CHECK: all_to_all other backward node,gpu 2.0 KiB 2.0 KiB 1.5 KiB 1.5 KiB
// CHECK: total 18.0 KiB 18.0 KiB 97.7 KiB 97.7 KiB
// CHECK: in units of M 4.50 M 4.50 M 4.07 M 4.07 M
// CHECK: M = 32.0 KiB of weights, as they are gathered; secondary partitions keep 0 B per device
// CHECK: left alone:
// CHECK-NEXT: 1 x other all_reduce: it is neither a gather of a weight nor a scatter of a gradient (R1) (first at step.py:6:5)

// JSON: "before": {
// JSON-NEXT: "gpu": 24576,
// JSON-NEXT: "node": 4096
// JSON: "location": "step.py:3:5",
// JSON-NEXT: "phase": "forward",
// JSON-NEXT: "reason": "",
// JSON-NEXT: "rewritten": false,
// JSON-NEXT: "role": "weight",
// JSON-NEXT: "rule": "R15",
// JSON-NEXT: "slower": false,

// A unit is 2048 codes and 16 scales; the secondary partition has one of each
// node. The first hop of the gradient sends 3 chunks of 4096 codes and 32
// scales, the second one of 2048 codes of 4 bits and 16 scales.
// AFTER: "after": {
// AFTER-NEXT: "gpu": 12480,
// AFTER-NEXT: "node": 2080
// AFTER: "rewritten": true
// AFTER: "after": {
// AFTER-NEXT: "gpu": 12480,
// AFTER-NEXT: "node": 0
// AFTER: "after": {
// AFTER-NEXT: "gpu": 12480,
// AFTER-NEXT: "node": 1056
// AFTER: "kind": "reduce_scatter"
// AFTER: "kind": "all_reduce",
// AFTER: "reason": "it is neither a gather of a weight nor a scatter of a gradient (R1)",
// AFTER-NEXT: "rewritten": false
// AFTER: "mesh": {
// AFTER-NEXT: "gpu": 4,
// AFTER-NEXT: "node": 2
// AFTER: "tiers": [
// AFTER-NEXT: "node",
// AFTER-NEXT: "gpu"
// AFTER: "total": {
// AFTER: "after_in_M": {
// AFTER: "before": {
// AFTER-NEXT: "gpu": 100035,
// AFTER-NEXT: "node": 18435
// AFTER: "model_bytes": 32768,
// AFTER-NEXT: "secondary_bytes": 4160

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func @step(%w: tensor<32x64xbf16>, %x: tensor<16xcomplex<f32>>, %p: tensor<3xi1>) -> (tensor<f32>, tensor<32x64xf32>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<32x64xbf16>) -> tensor<256x64xbf16> loc("step.py":3:5)
  %1 = stablehlo.optimization_barrier %w : tensor<32x64xbf16>
  %2 = "stablehlo.all_gather"(%1) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<32x64xbf16>) -> tensor<256x64xbf16> loc("step.py":4:5)
  %3 = stablehlo.dot %2, %2 : (tensor<256x64xbf16>, tensor<256x64xbf16>) -> tensor<256x64xf32>
  %4 = "stablehlo.reduce_scatter"(%3) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %add = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %add : tensor<f32>
  }) : (tensor<256x64xf32>) -> tensor<32x64xf32> loc("step.py":5:5)
  %5 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 3, 2], [4, 5, 6, 7]]> : tensor<2x4xi64>}> ({
  ^bb0(%a: tensor<complex<f32>>, %b: tensor<complex<f32>>):
    stablehlo.return %a : tensor<complex<f32>>
  }) : (tensor<16xcomplex<f32>>) -> tensor<16xcomplex<f32>> loc("step.py":6:5)
  %6 = "stablehlo.collective_permute"(%p) <{source_target_pairs = dense<[[0, 4], [1, 2]]> : tensor<2x2xi64>}> : (tensor<3xi1>) -> tensor<3xi1> loc("step.py":7:5)
  %7 = "stablehlo.all_to_all"(%w) <{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 8 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<32x64xbf16>) -> tensor<32x64xbf16> loc("step.py":8:5)
  %8 = stablehlo.dot %0, %0 : (tensor<256x64xbf16>, tensor<256x64xbf16>) -> tensor<f32>
  return %8, %4 : tensor<f32>, tensor<32x64xf32>
}

// -----

// A function counts as often as it is called, a loop as often as it runs; axes
// that no weight is gathered over have no unit. What is the same is one row.

// CHECK: tier of node:2,tensor:2,gpu:3
// CHECK: {{^}}2 x all_gather weight forward node,gpu 16 B 16 B 0 B 0 B 64 B 64 B
// CHECK-NEXT: all_gather weight backward node,gpu 40 B 40 B 0 B 0 B 160 B 160 B
// CHECK: all_reduce other backward tensor 0 B 0 B 8 B 8 B 0 B 0 B
// CHECK: in units of M 3.50 M 3.50 M - - 3.50 M 3.50 M
// CHECK: M = 96 B

sdy.mesh @mesh = <["node"=2, "tensor"=2, "gpu"=3]>
func.func @calls(%w: tensor<2xf32>, %v: tensor<2xf32>) {
  call @layer(%w) : (tensor<2xf32>) -> ()
  call @layer(%v) : (tensor<2xf32>) -> ()
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %c9 = stablehlo.constant dense<9> : tensor<i32>
  %0 = stablehlo.while(%i = %c0) : tensor<i32>
  cond {
    %more = stablehlo.compare LT, %i, %c9 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    func.call @layer(%w) : (tensor<2xf32>) -> ()
    %next = stablehlo.add %c2, %i : tensor<i32>
    stablehlo.return %next : tensor<i32>
  }
  %1 = "stablehlo.all_reduce"(%w) <{replica_groups = dense<[[0, 3], [1, 4], [2, 5], [6, 9], [7, 10], [8, 11]]> : tensor<6x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %a : tensor<f32>
  }) : (tensor<2xf32>) -> tensor<2xf32>
  return
}
func.func private @layer(%w: tensor<2xf32>) {
  %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "node">, #stablehlo.axis_ref<name = "gpu">]>}> : (tensor<2xf32>) -> tensor<12xf32>
  return
}

// -----

// Nothing to report, and groups whose bytes are not known.

// CHECK: tier of node:2,gpu:2
// CHECK: all_to_all other forward 0 B 0 B 0 B 0 B
// CHECK: in units of M - - - -
// CHECK: 1 x other all_to_all: it is neither a gather of a weight nor a scatter of a gradient; its bytes are not counted: expected groups along axes of mesh 'node:2,gpu:2', but got [0, 3]
// LAST: tier of node:2,gpu:2
// LAST: its bytes are not counted

sdy.mesh @mesh = <["node"=2, "gpu"=2]>
func.func @unknown(%x: tensor<4xf32>) {
  %0 = "stablehlo.all_to_all"(%x) <{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 3], [1, 2]]> : tensor<2x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
  return
}
