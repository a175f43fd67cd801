// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=2048 --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=2048 --zero-overlap-collectives=prefetch-bytes=2048 \
// RUN:   --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=2048 --remarks-filter=zero-overlap-collectives --split-input-file -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=REMARK
// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=0 --remarks-filter=zero-overlap-collectives --split-input-file -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=NONE
// RUN: not zpp-opt %s --zero-overlap-collectives=prefetch-bytes=-2 --split-input-file -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=NEGATIVE

// NEGATIVE: error: expected a number of bytes to prefetch, but got -2

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
  func.func @scatter(%x: tensor<16x32xf32>) -> tensor<2x32xf32> {
    %0 = tensor.expand_shape %x [[0, 1], [2]] output_shape [8, 2, 32] : tensor<16x32xf32> into tensor<8x2x32xf32>
    %e = tensor.empty() : tensor<8x2x32xf32>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e : tensor<8x2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %f = tensor.empty() : tensor<2x32xf32>
    %2 = zero.reduce sum %1 into %f : tensor<8x2x32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
    return %2 : tensor<2x32xf32>
  }
}

// One matrix of 2048 bytes may be in flight, so that each starts where the one
// before is needed. The start before a product is tied to what it
// multiplies, the wait too where no other call comes after the last product.
// What only depends on the weight moves with it.

// CHECK: module attributes {zpp.prefetch_bytes = 2048 : i64}
// CHECK-LABEL: func @forward
// CHECK-SAME: (%[[X:.*]]: tensor<4x16xf32>, %[[U:.*]]: tensor<2x32xf32>, %[[V:.*]]: tensor<2x32xbf16>, %[[W:.*]]: tensor<2x32xf32>)
func.func @forward(%x: tensor<4x16xf32>, %u: tensor<2x32xf32>, %v: tensor<2x32xbf16>, %w: tensor<2x32xf32>) -> tensor<4x32xf32> {
  // CHECK-NEXT: %[[CAST:.*]] = stablehlo.convert %[[V]]
  // CHECK-NEXT: %[[A:.*]] = stablehlo.tanh %[[X]]
  // CHECK-NEXT: %[[SU:.*]], %[[A1:.*]] = zero.start @zpp_host::@gather(%[[U]]) ties(%[[A]] : tensor<4x16xf32>) {
  // CHECK-NEXT: %[[SV:.*]], %[[A2:.*]] = zero.start @zpp_host::@gather(%[[CAST]]) ties(%[[A1]] : tensor<4x16xf32>) {
  // CHECK-NEXT: %[[WU:.*]] = zero.wait %[[SU]] from(%[[U]] : tensor<2x32xf32>) :
  // CHECK-NEXT: %[[B:.*]] = "stablehlo.dot_general"(%[[A2]], %[[WU]])
  // CHECK-NEXT: %[[C:.*]] = stablehlo.tanh %[[B]]
  // CHECK-NEXT: %[[SW:.*]], %[[C2:.*]] = zero.start @zpp_host::@gather(%[[W]]) ties(%[[C]] : tensor<4x32xf32>) {
  // CHECK-NEXT: %[[WV:.*]] = zero.wait %[[SV]] from(%[[CAST]] : tensor<2x32xf32>) :
  // CHECK-NEXT: %[[VT:.*]] = stablehlo.transpose %[[WV]]
  // CHECK-NEXT: %[[D:.*]] = "stablehlo.dot_general"(%[[C2]], %[[VT]])
  // CHECK-NEXT: %[[E:.*]] = stablehlo.tanh %[[D]]
  // CHECK-NEXT: %[[WW:.*]], %[[E2:.*]] = zero.wait %[[SW]] from(%[[W]] : tensor<2x32xf32>) ties(%[[E]] : tensor<4x16xf32>) :
  // CHECK-NEXT: "stablehlo.dot_general"(%[[E2]], %[[WW]])
  %0 = zero.start @zpp_host::@gather(%u) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %1 = zero.wait %0 from(%u : tensor<2x32xf32>) : tensor<16x32xf32>
  %2 = stablehlo.convert %v : (tensor<2x32xbf16>) -> tensor<2x32xf32>
  %3 = zero.start @zpp_host::@gather(%2) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %4 = zero.wait %3 from(%2 : tensor<2x32xf32>) : tensor<16x32xf32>
  %5 = stablehlo.transpose %4, dims = [1, 0] : (tensor<16x32xf32>) -> tensor<32x16xf32>
  %6 = zero.start @zpp_host::@gather(%w) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %7 = zero.wait %6 from(%w : tensor<2x32xf32>) : tensor<16x32xf32>
  %8 = stablehlo.tanh %x : tensor<4x16xf32>
  %9 = "stablehlo.dot_general"(%8, %1) : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  %10 = stablehlo.tanh %9 : tensor<4x32xf32>
  %11 = "stablehlo.dot_general"(%10, %5) : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
  %12 = stablehlo.tanh %11 : tensor<4x16xf32>
  %13 = "stablehlo.dot_general"(%12, %7) : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  return %13 : tensor<4x32xf32>
}

// REMARK: [Passed] scheduled | Category:zero-overlap-collectives | {{.*}}Remark="gather starts before stablehlo.dot_general at {{.*}}, waits before stablehlo.dot_general at {{.*}}, under 1 heavy ops; 2048 bytes in flight"
// NONE: [Missed] exposed | Category:zero-overlap-collectives | {{.*}}Remark="gather starts before stablehlo.dot_general at {{.*}}, waits before stablehlo.dot_general at {{.*}}, under 0 heavy ops; 2048 bytes in flight: nothing heavy is computed between its input and its use"
// NONE: under 0 heavy ops; 2048 bytes in flight: more in flight would exceed prefetch-bytes = 0

// -----

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
  func.func @scatter(%x: tensor<16x32xf32>) -> tensor<2x32xf32> {
    %0 = tensor.expand_shape %x [[0, 1], [2]] output_shape [8, 2, 32] : tensor<16x32xf32> into tensor<8x2x32xf32>
    %e = tensor.empty() : tensor<8x2x32xf32>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e : tensor<8x2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %f = tensor.empty() : tensor<2x32xf32>
    %2 = zero.reduce sum %1 into %f : tensor<8x2x32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
    return %2 : tensor<2x32xf32>
  }
}

// A gather of what another one keeps starts before the barrier, which the value
// no longer crosses, and after the wait of the first.

// CHECK-LABEL: func @again
func.func @again(%x: tensor<4x16xf32>, %w: tensor<2x32xf32>, %k: tensor<2x32xf32>) -> (tensor<4x32xf32>, tensor<2x32xf32>) {
  // CHECK: %[[S:.*]], %[[A0:.*]] = zero.start @zpp_host::@gather(%arg1) ties(
  // CHECK-NEXT: %[[AGAIN:.*]], %[[A:.*]] = zero.start @zpp_host::@gather(%arg2) ties(%[[A0]] :
  // CHECK-NEXT: zero.wait %[[S]]
  // CHECK-NEXT: %[[B:.*]] = "stablehlo.dot_general"(%[[A]],
  // CHECK-NEXT: %[[C:.*]] = stablehlo.optimization_barrier %[[B]] : tensor<4x32xf32>
  // CHECK-NEXT: %[[W:.*]], %[[C2:.*]] = zero.wait %[[AGAIN]] from(%arg2 : tensor<2x32xf32>) ties(%[[C]] :
  // CHECK-NEXT: "stablehlo.dot_general"(%[[C2]], %[[W]])
  // CHECK: return %{{.*}}, %arg2
  %a = stablehlo.tanh %x : tensor<4x16xf32>
  %0 = zero.start @zpp_host::@gather(%w) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %1 = zero.wait %0 from(%w : tensor<2x32xf32>) : tensor<16x32xf32>
  %2 = "stablehlo.dot_general"(%a, %1) : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  %3:2 = stablehlo.optimization_barrier %2, %k : tensor<4x32xf32>, tensor<2x32xf32>
  %4 = zero.start @zpp_host::@gather(%3#1) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %5 = zero.wait %4 from(%3#1 : tensor<2x32xf32>) : tensor<16x32xf32>
  %6 = "stablehlo.dot_general"(%3#0, %5) : (tensor<4x32xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  return %6, %k : tensor<4x32xf32>, tensor<2x32xf32>
}

// -----

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
  func.func @scatter(%x: tensor<16x32xf32>) -> tensor<2x32xf32> {
    %0 = tensor.expand_shape %x [[0, 1], [2]] output_shape [8, 2, 32] : tensor<16x32xf32> into tensor<8x2x32xf32>
    %e = tensor.empty() : tensor<8x2x32xf32>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e : tensor<8x2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %f = tensor.empty() : tensor<2x32xf32>
    %2 = zero.reduce sum %1 into %f : tensor<8x2x32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
    return %2 : tensor<2x32xf32>
  }
}

// A scatter starts when its gradient is available, before the product that
// follows, and is waited for at the end; the third one makes room by a wait for
// the first one. Ops on the result alone move with the wait, with their
// constants. A gradient that is read only after a wait is tied through it, so
// that XLA cannot compute it later.

// CHECK-LABEL: func @backward
func.func @backward(%x: tensor<16x4xf32>, %y: tensor<4x32xf32>, %w: tensor<32x32xf32>)
    -> (tensor<2x32xf32>, tensor<2x32xf32>, tensor<2x32xf32>, tensor<4x32xf32>) {
  // CHECK: %[[Y:.*]] = stablehlo.tanh %arg1
  // CHECK-NEXT: %[[G0:.*]] = "stablehlo.dot_general"(%arg0, %[[Y]])
  // CHECK-NEXT: %[[S0:.*]], %[[Y1:.*]] = zero.start @zpp_host::@scatter(%[[G0]]) ties(%[[Y]] :
  // CHECK-NEXT: %[[Z:.*]] = "stablehlo.dot_general"(%[[Y1]], %arg2)
  // CHECK-NEXT: %[[G1:.*]] = "stablehlo.dot_general"(%arg0, %[[Z]])
  // CHECK-NEXT: %[[W0:.*]], %[[Z0:.*]]:2 = zero.wait %[[S0]] from(%[[G0]] : tensor<16x32xf32>) ties(%[[Z]], %[[G1]] :
  // CHECK-NEXT: %[[C:.*]] = stablehlo.constant
  // CHECK-NEXT: %[[M:.*]] = stablehlo.multiply %[[W0]], %[[C]]
  // CHECK-NEXT: %[[S1:.*]], %[[Z1:.*]] = zero.start @zpp_host::@scatter(%[[Z0]]#1) ties(%[[Z0]]#0 :
  // CHECK-NEXT: %[[A:.*]] = "stablehlo.dot_general"(%[[Z1]], %arg2)
  // CHECK-NEXT: %[[G2:.*]] = "stablehlo.dot_general"(%arg0, %[[A]])
  // CHECK-NEXT: %[[W1:.*]], %[[G3:.*]] = zero.wait %[[S1]] from(%[[Z0]]#1 : tensor<16x32xf32>) ties(%[[G2]] :
  // CHECK-NEXT: %[[S2:.*]] = zero.start @zpp_host::@scatter(%[[G3]])
  // CHECK-NEXT: zero.wait %[[S2]]
  // CHECK-NEXT: return %[[M]],
  %a = stablehlo.tanh %y : tensor<4x32xf32>
  %0 = "stablehlo.dot_general"(%x, %a) : (tensor<16x4xf32>, tensor<4x32xf32>) -> tensor<16x32xf32>
  %1 = "stablehlo.dot_general"(%a, %w) : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %2 = "stablehlo.dot_general"(%x, %1) : (tensor<16x4xf32>, tensor<4x32xf32>) -> tensor<16x32xf32>
  %3 = "stablehlo.dot_general"(%1, %w) : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
  %4 = "stablehlo.dot_general"(%x, %3) : (tensor<16x4xf32>, tensor<4x32xf32>) -> tensor<16x32xf32>
  %5 = zero.start @zpp_host::@scatter(%0) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
  %6 = zero.wait %5 from(%0 : tensor<16x32xf32>) : tensor<2x32xf32>
  %c = stablehlo.constant dense<2.0> : tensor<2x32xf32>
  %7 = stablehlo.multiply %6, %c : tensor<2x32xf32>
  %8 = zero.start @zpp_host::@scatter(%2) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
  %9 = zero.wait %8 from(%2 : tensor<16x32xf32>) : tensor<2x32xf32>
  %10 = zero.start @zpp_host::@scatter(%4) {origins = [{role = "gradient"}]} : (tensor<16x32xf32>) -> tensor<2x32xf32>
  %11 = zero.wait %10 from(%4 : tensor<16x32xf32>) : tensor<2x32xf32>
  return %7, %9, %11, %3 : tensor<2x32xf32>, tensor<2x32xf32>, tensor<2x32xf32>, tensor<4x32xf32>
}

// REMARK: scatter starts before stablehlo.dot_general at {{.*}}, waits before stablehlo.dot_general at {{.*}}, under 2 heavy ops; 2304 bytes in flight
// REMARK: [Missed] exposed {{.*}}scatter starts before func.return at {{.*}}, waits before func.return at {{.*}}, under 0 heavy ops; 2304 bytes in flight: nothing heavy is computed after its gradient

// -----

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
  func.func @scatter(%x: tensor<16x32xf32>) -> tensor<2x32xf32> {
    %0 = tensor.expand_shape %x [[0, 1], [2]] output_shape [8, 2, 32] : tensor<16x32xf32> into tensor<8x2x32xf32>
    %e = tensor.empty() : tensor<8x2x32xf32>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e : tensor<8x2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %f = tensor.empty() : tensor<2x32xf32>
    %2 = zero.reduce sum %1 into %f : tensor<8x2x32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
    return %2 : tensor<2x32xf32>
  }
}

// Without a product, the op on the most data counts. What moves neither weights
// nor gradients stays; so does a block without compute.

// CHECK-LABEL: func @no_product
func.func @no_product(%x: tensor<16x32xf32>, %w: tensor<2x32xf32>) -> (tensor<16x32xf32>, tensor<16x32xf32>) {
  // CHECK-NEXT: stablehlo.tanh
  // CHECK-NEXT: %[[T:.*]] = stablehlo.negate
  // CHECK-NEXT: zero.start {{.*}}ties(%[[T]] :
  // CHECK-NEXT: stablehlo.add
  // CHECK-NEXT: %[[Z:.*]] = stablehlo.negate
  // CHECK-NEXT: zero.wait {{.*}}ties(%[[Z]] :
  // REMARK: [Missed] not-scheduled | Category:zero-overlap-collectives | {{.*}}Remark="stays where it is: it moves no weights and no gradients"
  %a = stablehlo.tanh %x : tensor<16x32xf32>
  %b = stablehlo.negate %a : tensor<16x32xf32>
  %c = stablehlo.add %a, %b : tensor<16x32xf32>
  %0 = zero.start @zpp_host::@gather(%w) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %1 = zero.wait %0 from(%w : tensor<2x32xf32>) : tensor<16x32xf32>
  %d = stablehlo.negate %c : tensor<16x32xf32>
  %e = stablehlo.subtract %d, %1 : tensor<16x32xf32>
  // CHECK: zero.start @zpp_host::@gather(%arg1) :
  // CHECK-NEXT: zero.wait
  %2 = zero.start @zpp_host::@gather(%w) : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %3 = zero.wait %2 from(%w : tensor<2x32xf32>) : tensor<16x32xf32>
  return %e, %3 : tensor<16x32xf32>, tensor<16x32xf32>
}

// CHECK-LABEL: func @no_compute
func.func @no_compute(%w: tensor<2x32xf32>) -> tensor<16x32xf32> {
  // CHECK-NEXT: zero.start @zpp_host::@gather(%arg0) {
  // CHECK-NEXT: zero.wait
  // CHECK-NEXT: return
  %0 = zero.start @zpp_host::@gather(%w) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
  %1 = zero.wait %0 from(%w : tensor<2x32xf32>) : tensor<16x32xf32>
  return %1 : tensor<16x32xf32>
}

// The report of the schedule.
// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=2048 --zero-report="mesh=gpu:8 output=-" \
// RUN:   --remarks-filter=none --split-input-file -o /dev/null | FileCheck %s --check-prefix=TABLE
// RUN: zpp-opt %s --zero-report="mesh=gpu:8 output=-" --remarks-filter=none --split-input-file -o /dev/null \
// RUN:   | FileCheck %s --check-prefix=BEFORE
// RUN: zpp-opt %s --zero-overlap-collectives=prefetch-bytes=2048 --zero-report="mesh=gpu:8 format=json output=-" \
// RUN:   --remarks-filter=none --split-input-file -o /dev/null | FileCheck %s --check-prefix=JSON

// TABLE: schedule, in the order of every rank:
// TABLE-NEXT: start 0: weight, 1 in gather ({{.*}}), before stablehlo.dot_general at {{.*}}, 2.0 KiB in flight{{$}}
// TABLE-NEXT: start 1: weight, 1 in gather ({{.*}}), before stablehlo.dot_general at {{.*}}, 2.0 KiB in flight{{$}}
// TABLE-NEXT: wait 0: weight, 1 in gather ({{.*}}), before stablehlo.dot_general at {{.*}}, under 0 heavy ops [nothing heavy to hide under]
// TABLE-NEXT: start 2: weight
// TABLE-NEXT: wait 1: {{.*}}, under 1 heavy ops{{$}}
// TABLE-NEXT: wait 2: {{.*}}, under 1 heavy ops{{$}}
// TABLE: start 0: gradient, 1 in scatter ({{.*}}), before stablehlo.dot_general at {{.*}}, 2.2 KiB in flight

// BEFORE: start 1: weight
// BEFORE-NEXT: wait 1: weight, {{.*}}under 0 heavy ops [nothing heavy to hide under]

// JSON: "schedule": [
// JSON: "before": "stablehlo.dot_general at {{.*}}",
// JSON-NEXT: "bytes_in_flight": 2048,
// JSON-NEXT: "collectives": 1,
// JSON-NEXT: "event": "start",
// JSON-NEXT: "flag": "",
// JSON-NEXT: "function": "gather",
// JSON: "event": "wait",
// JSON-NEXT: "flag": "nothing heavy to hide under",
// JSON: "heavy_ops": 0,
