// RUN: zpp-opt %s --zero-outline-collectives --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-outline-collectives --zero-outline-collectives \
// RUN:   --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-outline-collectives --split-input-file -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=REMARK

// Two layers share the function of their gathers, of which the second one has
// an instance with its own locations. The secondary partition is a result of
// the forward one and the argument of the backward one. Origins stand at the
// starts.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

// CHECK-LABEL: func @layers
// CHECK-SAME: %[[W:.*]]: tensor<4x64xbf16>, %[[V:.*]]: tensor<4x64xbf16>
func.func @layers(%w: tensor<4x64xbf16>, %v: tensor<4x64xbf16>) -> (tensor<32x64xbf16>, tensor<32x64xbf16>, tensor<32x64xbf16>) {
  // CHECK-NEXT: %[[S:.*]]:2 = zero.start @zpp_host::@zpp_collective_0(%[[W]]) {origins = [{{{.*}}id = 7 : i64{{.*}}}, {{{.*}}id = 7 : i64{{.*}}}]}
  // CHECK-SAME: (tensor<4x64xbf16>) -> (tensor<2x1x272xi8>, tensor<32x64xbf16>)
  // CHECK-NEXT: %[[R:.*]]:2 = zero.wait %[[S]]#0, %[[S]]#1 from(%[[W]] : tensor<4x64xbf16>)
  %e0 = tensor.empty() : tensor<1x272xi8>
  %e1 = tensor.empty() : tensor<2x1x272xi8>
  %e2 = tensor.empty() : tensor<4x2x1x272xi8>
  %e3 = tensor.empty() : tensor<32x64xbf16>
  %0 = zero.quantize %w quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %e0
      : tensor<4x64xbf16> into tensor<1x272xi8> -> tensor<1x272xi8>
  %1 = zero.all_gather_chunks %0 along ["node"] on #mesh into %e1 {zpp.keep, zpp.origin = {id = 7}}
      : tensor<1x272xi8> into tensor<2x1x272xi8> -> tensor<2x1x272xi8>
  %2 = zero.all_gather_chunks %1 along ["gpu"] on #mesh into %e2 {zpp.origin = {id = 7}}
      : tensor<2x1x272xi8> into tensor<4x2x1x272xi8> -> tensor<4x2x1x272xi8>
  %3 = zero.dequantize %2 quant <i8, block = 128> slices <dim = 0, factors = [2, 4], chunk = [1, 0]> into %e3
      : tensor<4x2x1x272xi8> into tensor<32x64xbf16> -> tensor<32x64xbf16>
  // CHECK-NEXT: %[[T:.*]]:2 = zero.start @zpp_host::@zpp_collective_1(%[[V]]) {origins = [{{{.*}}id = 8 : i64{{.*}}}, {{{.*}}id = 8 : i64{{.*}}}]}
  // CHECK-NEXT: %[[Q:.*]]:2 = zero.wait %[[T]]#0, %[[T]]#1
  %4 = zero.quantize %v quant <i8, block = 128> slices <dim = 0, factors = [], chunk = []> into %e0
      : tensor<4x64xbf16> into tensor<1x272xi8> -> tensor<1x272xi8>
  %5 = zero.all_gather_chunks %4 along ["node"] on #mesh into %e1 {zpp.keep, zpp.origin = {id = 8}}
      : tensor<1x272xi8> into tensor<2x1x272xi8> -> tensor<2x1x272xi8>
  %6 = zero.all_gather_chunks %5 along ["gpu"] on #mesh into %e2 {zpp.origin = {id = 8}}
      : tensor<2x1x272xi8> into tensor<4x2x1x272xi8> -> tensor<4x2x1x272xi8>
  %7 = zero.dequantize %6 quant <i8, block = 128> slices <dim = 0, factors = [2, 4], chunk = [1, 0]> into %e3
      : tensor<4x2x1x272xi8> into tensor<32x64xbf16> -> tensor<32x64xbf16>
  // CHECK-NEXT: %[[K:.*]]:2 = stablehlo.optimization_barrier %[[R]]#0, %[[Q]]#0
  %8:2 = stablehlo.optimization_barrier %1, %5 : tensor<2x1x272xi8>, tensor<2x1x272xi8>
  // CHECK-NEXT: %[[U:.*]] = zero.start @zpp_host::@zpp_collective_2(%[[K]]#0) {origins = [{{{.*}}id = 9 : i64{{.*}}}]}
  // CHECK-NEXT: %[[P:.*]] = zero.wait %[[U]] from(%[[K]]#0
  %9 = zero.all_gather_chunks %8#0 along ["gpu"] on #mesh into %e2 {zpp.origin = {id = 9}}
      : tensor<2x1x272xi8> into tensor<4x2x1x272xi8> -> tensor<4x2x1x272xi8>
  %10 = zero.dequantize %9 quant <i8, block = 128> slices <dim = 0, factors = [2, 4], chunk = [1, 0]> into %e3
      : tensor<4x2x1x272xi8> into tensor<32x64xbf16> -> tensor<32x64xbf16>
  // CHECK-NEXT: return %[[R]]#1, %[[Q]]#1, %[[P]]
  return %3, %7, %10 : tensor<32x64xbf16>, tensor<32x64xbf16>, tensor<32x64xbf16>
}

// CHECK: module @zpp_host
// CHECK-NEXT: func.func @zpp_collective_0(%[[X:.*]]: tensor<4x64xbf16>) -> (tensor<2x1x272xi8>, tensor<32x64xbf16>)
// CHECK-NEXT: %[[A:.*]] = tensor.empty
// CHECK-NEXT: %[[B:.*]] = zero.quantize %[[X]] {{.*}} into %[[A]]
// CHECK-NEXT: %[[C:.*]] = tensor.empty
// CHECK-NEXT: %[[KEPT:.*]] = zero.all_gather_chunks %[[B]] along ["node"] {{.*}} into %[[C]] {zpp.keep} :
// CHECK: zero.all_gather_chunks %[[KEPT]] along ["gpu"] {{.*}} into %{{[0-9]+}} :
// CHECK: %[[WHOLE:.*]] = zero.dequantize
// CHECK-NEXT: return %[[KEPT]], %[[WHOLE]]
// CHECK: zero.instance @zpp_collective_1 of @zpp_collective_0 from
// CHECK: func.func @zpp_collective_2
// CHECK-NOT: func.func

// REMARK-NOT: layers

// -----

// The sources of gathers make no difference between their functions.

#mesh = #zero.mesh<"gpu" = 2>

// CHECK-LABEL: func @sources
func.func @sources(%v: tensor<32xf32>, %w: tensor<32xf32>) -> (tensor<2x32xf32>, tensor<2x32xf32>) {
  // CHECK: zero.start @zpp_host::@zpp_collective_0
  // CHECK: zero.start @zpp_host::@zpp_collective_1
  %e = tensor.empty() : tensor<2x32xf32>
  %0 = zero.all_gather_chunks %v along ["gpu"] on #mesh into %e {zpp.source = {attributes = {}, properties = {channel = 1}}}
      : tensor<32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
  %1 = zero.all_gather_chunks %w along ["gpu"] on #mesh into %e {zpp.source = {attributes = {}, properties = {channel = 2}}}
      : tensor<32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
  return %0, %1 : tensor<2x32xf32>, tensor<2x32xf32>
}

// CHECK: module @zpp_host
// CHECK-NOT: zpp.source

// -----

// Stages join in one function; a loop's body is a block of its own.

#mesh = #zero.mesh<"gpu" = 2>

// CHECK-LABEL: func @stages
func.func @stages(%g: tensor<4x32xf32>) -> tensor<2x32xf32> {
  // CHECK: stablehlo.while(
  %r = stablehlo.while(%a = %g) : tensor<4x32xf32>
  cond {
    %true = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %true : tensor<i1>
  } do {
    // CHECK: zero.start @zpp_host::@zpp_collective_0
    // CHECK-NEXT: zero.wait
    %e = tensor.empty() : tensor<2x1x32xf32>
    %f = tensor.empty() : tensor<1x32xf32>
    %0 = zero.pack_slices %a slices <dim = 0, factors = [2], chunk = [0], stage = 0 of 2> into %e
        : tensor<4x32xf32> into tensor<2x1x32xf32> -> tensor<2x1x32xf32>
    %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e {zpp.origin = {id = 1}}
        : tensor<2x1x32xf32> into tensor<2x1x32xf32> -> tensor<2x1x32xf32>
    %2 = zero.reduce sum %1 into %f : tensor<2x1x32xf32> into tensor<1x32xf32> -> tensor<1x32xf32>
    %3 = zero.pack_slices %a slices <dim = 0, factors = [2], chunk = [0], stage = 1 of 2> into %e
        : tensor<4x32xf32> into tensor<2x1x32xf32> -> tensor<2x1x32xf32>
    %4 = zero.all_to_all %3 along ["gpu"] on #mesh into %e {zpp.origin = {id = 1}}
        : tensor<2x1x32xf32> into tensor<2x1x32xf32> -> tensor<2x1x32xf32>
    %5 = zero.reduce sum %4 into %f : tensor<2x1x32xf32> into tensor<1x32xf32> -> tensor<1x32xf32>
    %6 = tensor.concat dim(0) %2, %5 : (tensor<1x32xf32>, tensor<1x32xf32>) -> tensor<2x32xf32>
    %7 = stablehlo.concatenate %6, %6, dim = 0 : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<4x32xf32>
    stablehlo.return %7 : tensor<4x32xf32>
  }
  %s = stablehlo.slice %r [0:2, 0:32] : (tensor<4x32xf32>) -> tensor<2x32xf32>
  return %s : tensor<2x32xf32>
}
// CHECK: module @zpp_host
// CHECK-NEXT: func.func @zpp_collective_0(%{{.*}}: tensor<4x32xf32>) -> tensor<2x32xf32>
// CHECK: tensor.concat

// -----

// Readers of a part of the results move after the rest of the chain.

#mesh = #zero.mesh<"gpu" = 2>

// CHECK-LABEL: func @dependents
func.func @dependents(%x: tensor<32xf32>) -> (tensor<2x32xf32>, tensor<2x2x32xf32>) {
  // CHECK-NEXT: zero.start
  // CHECK-NEXT: %[[R:.*]]:2 = zero.wait
  // CHECK-NEXT: %[[N:.*]] = stablehlo.negate %[[R]]#0
  // CHECK-NEXT: return %[[N]], %[[R]]#1
  %e = tensor.empty() : tensor<2x32xf32>
  %f = tensor.empty() : tensor<2x2x32xf32>
  %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
  %1 = stablehlo.negate %0 : tensor<2x32xf32>
  %2 = zero.all_gather_chunks %0 along ["gpu"] on #mesh into %f : tensor<2x32xf32> into tensor<2x2x32xf32> -> tensor<2x2x32xf32>
  return %1, %2 : tensor<2x32xf32>, tensor<2x2x32xf32>
}

// -----

// Chains that stay, and the reasons.

#mesh = #zero.mesh<"gpu" = 2>

// CHECK-LABEL: func @stay
// CHECK-NOT: zero.start
func.func @stay(%x: tensor<32xf32>, %y: tensor<64xf32>, %z: tensor<2x32xf32>, %c: tensor<i32>) -> tensor<2x32xf32> {
  %e = tensor.empty() : tensor<2x32xf32>
  %f = tensor.empty() : tensor<4x32xf32>
  %g = tensor.empty() : tensor<32xf32>
  // REMARK: [Missed] not-outlined | Category:zero-outline-collectives | {{.*}}Remark="stays in the graph: it sends nothing quantized"
  %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e {zpp.reason = "it is small"}
      : tensor<32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
  // REMARK: stays in the graph: one of its operands depends on one of its results
  %1 = zero.all_to_all %z along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
  %2 = stablehlo.negate %1 : tensor<2x32xf32>
  %3 = tensor.concat dim(0) %1, %2 : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<4x32xf32>
  // REMARK: stays in the graph: it is not decomposed
  %4 = zero.all_to_all %y along ["gpu"] on #mesh slices <dim = 0, factors = [2], chunk = [0]> into %e
      : tensor<64xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
  // REMARK: stays in the graph: it is in a region of stablehlo.case
  %5 = "stablehlo.case"(%c) ({
    %6 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
    stablehlo.return %6 : tensor<2x32xf32>
  }) : (tensor<i32>) -> tensor<2x32xf32>
  // A local op without an exchange has nothing to run beside.
  %7 = zero.reduce sum %5 into %g : tensor<2x32xf32> into tensor<32xf32> -> tensor<32xf32>
  "stablehlo.use"(%0, %3, %4, %7) : (tensor<2x32xf32>, tensor<4x32xf32>, tensor<2x32xf32>, tensor<32xf32>) -> ()
  return %5 : tensor<2x32xf32>
}

// -----

// A function without results would have nothing to wait for.

#mesh = #zero.mesh<"gpu" = 2>

// CHECK-LABEL: func @unused
// CHECK-NOT: zero.start
// CHECK: zero.all_gather_chunks
func.func @unused(%x: tensor<32xf32>) {
  %e = tensor.empty() : tensor<2x32xf32>
  // REMARK: stays in the graph: nothing reads its result
  %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
  return
}

// -----

// Starts give tensors of static shapes.

#mesh = #zero.mesh<"gpu" = 2>

// CHECK-LABEL: func @dynamic
// CHECK-NOT: zero.start
// CHECK: zero.all_gather_chunks
func.func @dynamic(%x: tensor<32xf32>, %n: index) -> (tensor<?x32xf32>, tensor<4x32xf32>) {
  %e = tensor.empty() : tensor<2x32xf32>
  // REMARK: stays in the graph: a tensor that it reads or makes has no static shape
  %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e {zpp.origin = {id = 0}} : tensor<32xf32> into tensor<2x32xf32> -> tensor<2x32xf32>
  %1 = tensor.concat dim(0) %0, %0 : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<?x32xf32>
  %2 = stablehlo.negate %1 : (tensor<?x32xf32>) -> tensor<4x32xf32>
  return %1, %2 : tensor<?x32xf32>, tensor<4x32xf32>
}
