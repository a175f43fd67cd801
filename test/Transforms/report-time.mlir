// RUN: zpp-opt %s --split-input-file -o /dev/null \
// RUN:   --zero-report="device=100tflops,1000gbyte links=node=8gbit,gpu=800gbit format=json timeline=true" 2>&1 \
// RUN:   | FileCheck %s
// RUN: zpp-opt %s --split-input-file -o /dev/null \
// RUN:   --zero-report="device=100tflops,1000gbyte links=node=8gbit,gpu=800gbit" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=TABLE
// RUN: zpp-opt %s --split-input-file -o /dev/null \
// RUN:   --zero-report="device=100tflops,1000gbyte compute-scale=2 format=json links=node=8gbit,gpu=800gbit" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=TWICE
// Without a device there is no prediction.
// RUN: zpp-opt %s --split-input-file -o /dev/null --zero-report 2>&1 \
// RUN:   | FileCheck %s --check-prefix=NONE --implicit-check-not=predicted
// NONE: bytes that a device sends
// RUN: not zpp-opt %s --split-input-file --zero-report=device=h300 -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=DEVICE
// DEVICE: error: expected a device (v100, {{.*}}) or NUMBERtflops,NUMBERgbyte, but got 'h300'
// RUN: not zpp-opt %s --split-input-file --zero-report="device=h200 compute-scale=-1" -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=SCALE
// SCALE: error: expected a positive scale of compute, but got -1
// RUN: not zpp-opt %s --split-input-file --zero-report="device=h200 links=node=8gbit" -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=LINKS
// LINKS: error: in links 'node=8gbit': expected a link for tier 'gpu', but got none

// Two gathers of 512 KiB shards of weights, each of which one product needs.
// A ring of 4 devices takes 3 steps; the 2 devices of a node share its way out:
// 3 * 512 KiB / 2 at 1 GB/s are 786 usec, and 15 + 14 + 2 * 3.4 usec of latency
// make 822. A product of 2 * 1024^3 operations takes 36 usec at 60 % of the
// peak. The second gather begins as the first product does, and hides 36 usec:
// no schedule is shorter.
// Then there are three matrices of 2 MiB: of both gathers, and the product.

// CHECK:      "time": {
// CHECK-NEXT: "bound_by": {
// CHECK-NEXT:   "compute": 35.
// CHECK-NEXT:   "node": 1644.
// CHECK-NEXT: },
// CHECK-NEXT: "bound_usec": 1680.
// CHECK:      "busy_usec": {
// CHECK-NEXT:   "gpu": {{1644\.[0-9]+}}
// CHECK-NEXT:   "node": {{1644\.[0-9]+}}
// CHECK:      "compute_usec": 71.58
// CHECK-NEXT: "exposed_usec": 1608.
// CHECK-NEXT: "flops": 4294967296,
// CHECK-NEXT: "peak_bytes": 9437184,
// CHECK-NEXT: "state_bytes": 3145728,
// CHECK:      "tasks": [
// CHECK-NEXT:   [
// CHECK-NEXT:     "node",
// CHECK-NEXT:     0,
// CHECK-NEXT:     {{1644\.[0-9]+}},
// CHECK-NEXT:     "other"
// CHECK-NEXT:   ],
// CHECK-NEXT:   [
// CHECK-NEXT:     "compute",
// CHECK-NEXT:     {{822\.[0-9]+}},
// CHECK:        "compute"
// CHECK:        "compute",
// CHECK-NEXT:     {{1644\.[0-9]+}},
// CHECK:      "unknown_loops": 0,
// CHECK-NEXT: "usec": 1680.2

// TABLE:      predicted step: 1.7 ms, of which compute 0.1 ms and exposed communication 1.6 ms; links busy node 1.6 ms, gpu 1.6 ms
// TABLE-NEXT: 0.0 % above the bound of any schedule, 1.7 ms: compute 0.0 ms, node 1.6 ms
// TABLE-NEXT: a device holds 3.0 MiB of arguments, and about 9.0 MiB at the peak
// TABLE-NOT:  unknown number
// TWICE:      "compute_usec": 143.16
"builtin.module"() ({
  sdy.mesh @mesh = <["node"=2, "gpu"=2]>
  func.func public @main(%x: tensor<1024x1024xbf16>, %a: tensor<256x1024xbf16>, %b: tensor<256x1024xbf16>) -> tensor<1024x1024xbf16> {
    %0 = "stablehlo.all_gather"(%a) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}> : (tensor<256x1024xbf16>) -> tensor<1024x1024xbf16>
    %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0] : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    %2 = "stablehlo.all_gather"(%b) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}> : (tensor<256x1024xbf16>) -> tensor<1024x1024xbf16>
    %3 = stablehlo.dot_general %1, %2, contracting_dims = [1] x [0] : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    func.return %3 : tensor<1024x1024xbf16>
  }
}) {mhlo.num_partitions = 4 : i32} : () -> ()

// -----

// Operations of a convolution, and of a product in a loop of 6 iterations.

// CHECK: "flops": 5705728,
// CHECK: "unknown_loops": 0
"builtin.module"() ({
  sdy.mesh @mesh = <["node"=2, "gpu"=2]>
  func.func public @main(%x: tensor<4x10x10x8xbf16>, %k: tensor<5x5x8x16xbf16>, %w: tensor<64x64xbf16>) -> tensor<64x64xbf16> {
    %c = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x10x10x8xbf16>, tensor<5x5x8x16xbf16>) -> tensor<4x10x10x16xbf16>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %six = stablehlo.constant dense<6> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %0:2 = stablehlo.while(%i = %zero, %v = %w) : tensor<i32>, tensor<64x64xbf16>
    cond {
      %less = stablehlo.compare LT, %i, %six : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %p = stablehlo.dot_general %v, %w, contracting_dims = [1] x [0] : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
      stablehlo.return %next, %p : tensor<i32>, tensor<64x64xbf16>
    }
    func.return %0#1 : tensor<64x64xbf16>
  }
}) {mhlo.num_partitions = 4 : i32} : () -> ()

// -----

// A loop whose end is an input counts once, and the report says so.

// CHECK: "flops": 524288,
// CHECK: "unknown_loops": 1
// TABLE: loops of an unknown number of iterations, which count once: 1
"builtin.module"() ({
  sdy.mesh @mesh = <["node"=2, "gpu"=2]>
  func.func public @main(%n: tensor<i32>, %w: tensor<64x64xbf16>) -> tensor<64x64xbf16> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %0:2 = stablehlo.while(%i = %zero, %v = %w) : tensor<i32>, tensor<64x64xbf16>
    cond {
      %less = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %p = stablehlo.dot_general %v, %w, contracting_dims = [1] x [0] : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
      stablehlo.return %next, %p : tensor<i32>, tensor<64x64xbf16>
    }
    func.return %0#1 : tensor<64x64xbf16>
  }
}) {mhlo.num_partitions = 4 : i32} : () -> ()
