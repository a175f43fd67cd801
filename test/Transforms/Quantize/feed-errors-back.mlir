// What is rounded enters and leaves the step as flat tensors over all axes.
// RUN: zpp-opt %s --zero-feed-errors-back --split-input-file --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-feed-errors-back --zero-feed-errors-back --split-input-file --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-feed-errors-back=hops=all --split-input-file --remarks-filter=none | FileCheck %s --check-prefix=ALL
// RUN: zpp-opt %s --zero-feed-errors-back=start=true --split-input-file --remarks-filter=none | FileCheck %s --check-prefix=START
// RUN: zpp-opt %s --zero-feed-errors-back --split-input-file --remarks-filter=zero-feed-errors-back -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: zpp-opt %s --zero-fuse-quantization --zero-feed-errors-back --split-input-file --remarks-filter=zero-feed-errors-back 2>%t.err | FileCheck %s --check-prefix=FUSED
// RUN: FileCheck %s --check-prefix=FUSED-REMARK < %t.err
// RUN: zpp-opt %S/../../Inputs/fsdp-2x4-jax0.10.mlir --remarks-filter=none \
// RUN:   --zeropp="mesh=node:2,gpu:4 feedback=last tuning.block=32" \
// RUN:   | FileCheck %s --check-prefix=STEP
// RUN: zpp-opt %S/../../Inputs/fsdp-2x4-jax0.10.mlir --remarks-filter=none \
// RUN:   --zeropp="mesh=node:2,gpu:4 feedback=all tuning.block=32 target=cuda" \
// RUN:   | FileCheck %s --check-prefix=FFI
// RUN: zpp-opt %S/../../Inputs/fsdp-2x4-jax0.10.mlir --remarks-filter=none \
// RUN:   --zeropp="mesh=node:2,gpu:4 feedback=last tuning.block=32" --zero-report=format=table -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=REPORT
// RUN: echo "module {}" | not zpp-opt --zero-feed-errors-back=hops=first 2>&1 | FileCheck %s --check-prefix=HOPS
// RUN: echo "module {}" | not zpp-opt --zeropp="feedback=some" 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: echo "module {}" | not zpp-opt --zeropp="feedback=last gradients=none" 2>&1 | FileCheck %s --check-prefix=GRADIENTS

// HOPS: error: expected hops as last or all, but got 'first'
// OPTION: for the --feedback option: expected one of none, last, all, but got 'some'
// GRADIENTS: error: expected formats of gradients with feedback=last, which is of what they round, but got gradients=none

// STEP: zpp.state = [{kind = "error", type = tensor<2048xbf16>}
// STEP: func.func public @main({{.*}}: tensor<2048xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"}]>}
// FFI: zpp.state = [{kind = "error"
// FFI: zpp.start
// REPORT-NOT: of weights{{$}}
// REPORT: from step to step, a device keeps 2.0 KiB of what gradients lost in rounding

// REMARK: what it rounds is added to what the next step sends
// REMARK: what it rounds is not fed back: it is not scattered in a manual computation of the step itself, or in loops there, where each piece has a place of its own from step to step

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>

"sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> : () -> ()

// Two hops. The last one quantizes a quarter of the gradient; the pack before it
// is its own.

// CHECK: zpp.state = [{kind = "error", type = tensor<16384xbf16>}]
// CHECK-LABEL: func public @main
// CHECK-SAME: %[[TAKEN:[a-z0-9]+]]: tensor<16384xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"}]>}) -> ({{.*}}tensor<16384xbf16> {sdy.sharding
// CHECK: ^bb0({{.*}}, %[[FLAT:.*]]: tensor<2048xbf16>):
// CHECK: %[[BEFORE:.*]] = "stablehlo.reshape"(%[[FLAT]]) : (tensor<2048xbf16>) -> tensor<64x32xbf16>
// CHECK: zero.quantize {{.*}} quant <i8, block = 128> into
// CHECK: %[[PARTIAL:.*]] = zero.reduce
// CHECK: %[[WIDE:.*]] = "stablehlo.convert"(%[[BEFORE]])
// CHECK: %[[WANTED:.*]] = "stablehlo.add"(%[[PARTIAL]], %[[WIDE]])
// CHECK: %[[SENT:.*]] = zero.quantize %[[WANTED]] quant <i4, block = 128> slices <dim = 0, factors = [2], chunk = [0]>
// CHECK: %[[THERE:.*]] = zero.dequantize %[[SENT]] quant <i4, block = 128> slices <dim = 0, factors = [2], chunk = [0]> {{.*}} -> tensor<64x32xf32>
// CHECK: %[[LOST:.*]] = "stablehlo.subtract"(%[[WANTED]], %[[THERE]])
// CHECK: %[[KEPT:.*]] = "stablehlo.select"(%{{.*}}, %[[LOST]], %{{.*}})
// CHECK: zero.all_to_all %[[SENT]] along ["node"]
// CHECK: "sdy.return"({{.*}}) : (tensor<32x32xf32>, tensor<2048xbf16>) -> ()
// CHECK-NOT: zero.dequantize {{.*}} slices

// ALL: zpp.state = [{kind = "error", type = tensor<65536xbf16>}, {kind = "error", type = tensor<16384xbf16>}]
// ALL: zero.quantize %{{.*}} quant <i8, block = 128> slices
// ALL: zero.quantize %{{.*}} quant <i4, block = 128> slices

// START: zpp.state = [{kind = "error", type = tensor<16384xbf16>}]
// START: func.func public @main(%{{[a-z0-9]+}}: tensor<2048x32xbf16>) -> (tensor<256x32xf32>, tensor<16384xbf16>
// START-NOT: "stablehlo.add"
// START: "stablehlo.subtract"
func.func public @main(%gradient: tensor<2048x32xbf16>) -> tensor<256x32xf32> {
  %0 = "sdy.manual_computation"(%gradient) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>]>, manual_axes = #sdy<manual_axes{"node", "gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {}]>]>}> ({
  ^bb0(%g: tensor<256x32xbf16>):
    %e0 = tensor.empty() : tensor<4x64x32xbf16>
    %1 = zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0]> into %e0 : tensor<256x32xbf16> into tensor<4x64x32xbf16> -> tensor<4x64x32xbf16>
    %e1 = tensor.empty() : tensor<4x2080xi8>
    %2 = zero.quantize %1 quant <i8, block = 128> into %e1 : tensor<4x64x32xbf16> into tensor<4x2080xi8> -> tensor<4x2080xi8>
    %e2 = tensor.empty() : tensor<4x2080xi8>
    %3 = zero.all_to_all %2 along ["gpu"] on #mesh into %e2 : tensor<4x2080xi8> into tensor<4x2080xi8> -> tensor<4x2080xi8>
    %e3 = tensor.empty() : tensor<4x64x32xf32>
    %4 = zero.dequantize %3 quant <i8, block = 128> into %e3 : tensor<4x2080xi8> into tensor<4x64x32xf32> -> tensor<4x64x32xf32>
    %e4 = tensor.empty() : tensor<64x32xf32>
    %5 = zero.reduce sum %4 into %e4 : tensor<4x64x32xf32> into tensor<64x32xf32> -> tensor<64x32xf32>
    %e5 = tensor.empty() : tensor<2x32x32xf32>
    %6 = zero.pack_slices %5 slices <dim = 0, factors = [2], chunk = [0]> into %e5 : tensor<64x32xf32> into tensor<2x32x32xf32> -> tensor<2x32x32xf32>
    %e6 = tensor.empty() : tensor<2x528xi8>
    %7 = zero.quantize %6 quant <i4, block = 128> into %e6 : tensor<2x32x32xf32> into tensor<2x528xi8> -> tensor<2x528xi8>
    %e7 = tensor.empty() : tensor<2x528xi8>
    %8 = zero.all_to_all %7 along ["node"] on #mesh into %e7 : tensor<2x528xi8> into tensor<2x528xi8> -> tensor<2x528xi8>
    %e8 = tensor.empty() : tensor<2x32x32xf32>
    %9 = zero.dequantize %8 quant <i4, block = 128> into %e8 : tensor<2x528xi8> into tensor<2x32x32xf32> -> tensor<2x32x32xf32>
    %e9 = tensor.empty() : tensor<32x32xf32>
    %10 = zero.reduce sum %9 into %e9 : tensor<2x32x32xf32> into tensor<32x32xf32> -> tensor<32x32xf32>
    "sdy.return"(%10) : (tensor<32x32xf32>) -> ()
  }) : (tensor<2048x32xbf16>) -> tensor<256x32xf32>
  return %0 : tensor<256x32xf32>
}

// -----

// Stages read the same tensor: each keeps what it has packed.

#mesh = #zero.mesh<"gpu" = 4>

"sdy.mesh"() <{mesh = #sdy.mesh<["gpu"=4]>, sym_name = "mesh"}> : () -> ()

// FUSED-REMARK: what it rounds is not fed back: it packs one stage of a tensor of several
// FUSED-LABEL: func public @stages
// FUSED-COUNT-2: zero.quantize {{.*}} stage = {{[01]}} of 2
// FUSED-NOT: zero.dequantize

// CHECK: zpp.state = [{kind = "error", type = tensor<4096xbf16>}, {kind = "error", type = tensor<4096xbf16>}]
// CHECK-LABEL: func public @stages
// CHECK-COUNT-2: zero.dequantize {{.*}} quant <i4, block = 32> into {{.*}} -> tensor<4x8x32xf32>
func.func public @stages(%gradient: tensor<256x32xf32>) -> (tensor<32x32xi8>, tensor<32x32xi8>) {
  %0:2 = "sdy.manual_computation"(%gradient) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}, {}]>]>, manual_axes = #sdy<manual_axes{"gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}, {}]>, <@mesh, [{"gpu"}, {}]>]>}> ({
  ^bb0(%g: tensor<64x32xf32>):
    %e0 = tensor.empty() : tensor<4x8x32xf32>
    %1 = zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0], stage = 0 of 2> into %e0 : tensor<64x32xf32> into tensor<4x8x32xf32> -> tensor<4x8x32xf32>
    %2 = zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0], stage = 1 of 2> into %e0 : tensor<64x32xf32> into tensor<4x8x32xf32> -> tensor<4x8x32xf32>
    %e1 = tensor.empty() : tensor<4x144xi8>
    %3 = zero.quantize %1 quant <i4, block = 32> into %e1 : tensor<4x8x32xf32> into tensor<4x144xi8> -> tensor<4x144xi8>
    %4 = zero.quantize %2 quant <i4, block = 32> into %e1 : tensor<4x8x32xf32> into tensor<4x144xi8> -> tensor<4x144xi8>
    %5 = zero.all_to_all %3 along ["gpu"] on #mesh into %e1 : tensor<4x144xi8> into tensor<4x144xi8> -> tensor<4x144xi8>
    %6 = zero.all_to_all %4 along ["gpu"] on #mesh into %e1 : tensor<4x144xi8> into tensor<4x144xi8> -> tensor<4x144xi8>
    %7 = "stablehlo.slice"(%5) <{limit_indices = array<i64: 4, 64>, start_indices = array<i64: 0, 0>, strides = array<i64: 1, 1>}> : (tensor<4x144xi8>) -> tensor<4x64xi8>
    %8 = "stablehlo.slice"(%6) <{limit_indices = array<i64: 4, 64>, start_indices = array<i64: 0, 0>, strides = array<i64: 1, 1>}> : (tensor<4x144xi8>) -> tensor<4x64xi8>
    %9 = "stablehlo.reshape"(%7) : (tensor<4x64xi8>) -> tensor<8x32xi8>
    %10 = "stablehlo.reshape"(%8) : (tensor<4x64xi8>) -> tensor<8x32xi8>
    "sdy.return"(%9, %10) : (tensor<8x32xi8>, tensor<8x32xi8>) -> ()
  }) : (tensor<256x32xf32>) -> (tensor<32x32xi8>, tensor<32x32xi8>)
  return %0#0, %0#1 : tensor<32x32xi8>, tensor<32x32xi8>
}

// -----

// Not in a step, and nothing that a sum sends.

#mesh = #zero.mesh<"gpu" = 4>

// CHECK-NOT: zpp.state
// CHECK-LABEL: func @no_step
// CHECK-NOT: stablehlo
func.func @no_step(%g: tensor<4x64xf32>, %e: tensor<4x48xi8>) -> (tensor<4x48xi8>, tensor<4x48xi8>) {
  %0 = zero.quantize %g quant <i4, block = 32> into %e : tensor<4x64xf32> into tensor<4x48xi8> -> tensor<4x48xi8>
  %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e : tensor<4x48xi8> into tensor<4x48xi8> -> tensor<4x48xi8>
  %2 = zero.quantize %g quant <i4, block = 32> into %e : tensor<4x64xf32> into tensor<4x48xi8> -> tensor<4x48xi8>
  return %1, %2 : tensor<4x48xi8>, tensor<4x48xi8>
}
