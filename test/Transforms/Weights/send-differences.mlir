// What is kept enters and leaves the step as flat tensors over all axes.
// RUN: zpp-opt %S/../../Inputs/fsdp-2x4-jax0.10.mlir --remarks-filter=none \
// RUN:   --zeropp="mesh=node:2,gpu:4 weights=i4:delta tuning.block=32" \
// RUN:   | FileCheck %s --check-prefix=TAKES
// RUN: zpp-opt %S/../../Inputs/fsdp-2x4-jax0.10.mlir --remarks-filter=none \
// RUN:   --zeropp="mesh=node:2,gpu:4 weights=i4:delta tuning.block=32 start=all" \
// RUN:   | FileCheck %s --check-prefix=STARTS
// RUN: zpp-opt %S/../../Inputs/fsdp-2x4-jax0.10.mlir --remarks-filter=none \
// RUN:   --zeropp="mesh=node:2,gpu:4 weights=i4:delta tuning.block=32 target=cuda" \
// RUN:   | FileCheck %s --check-prefix=FFI
// RUN: zpp-opt %s --zero-send-differences=block=32 2>&1 | FileCheck %s
// What is kept does not depend on floors.
// RUN: zpp-opt %S/../../Inputs/fsdp-2x4-jax0.10.mlir --remarks-filter=.*differences \
// RUN:   --zeropp="mesh=node:2,gpu:4 weights=i4:delta tuning.block=32 floors=0=none,3=i8" -o %t.floors 2>&1 \
// RUN:   | FileCheck %s --check-prefix=WHOLE
// RUN: zpp-opt %S/../../Inputs/fsdp-2x4-jax0.10.mlir --remarks-filter=none \
// RUN:   --zeropp="mesh=node:2,gpu:4 weights=i4:delta tuning.block=32" -o %t.given
// RUN: grep -o "zpp.state = .*" %t.floors > %t.floors.state
// RUN: grep -o "zpp.state = .*" %t.given | diff - %t.floors.state
// RUN: FileCheck %s --input-file=%t.floors --check-prefix=FLOORS
// RUN: echo "module {}" | not zpp-opt --zeropp="weights=i4:delta secondary=none" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=SECONDARY
// RUN: echo "module {}" | not zpp-opt --zeropp="weights=i4:sum" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=KIND
// RUN: echo "module {}" | not zpp-opt --zero-send-differences=format=none 2>&1 \
// RUN:   | FileCheck %s --check-prefix=NONE

// SECONDARY: error: expected a secondary partition with weights=i4:delta, which is what differences are taken to, but got secondary=none
// KIND: error: expected weights as none, i8, i4, i8:delta or i4:delta, but got 'i4:sum'
// NONE: error: expected a format i8 or i4 of differences, but got none

// The embedding is gathered once and has a partition nevertheless.
// The state says which elements of a weight a device keeps: of itself one of 2 x 4
// slices, and of a GPU in all nodes two of them.
// TAKES: zpp.state = [{dim = 0 : i64, factors = array<i64: 2, 4, 4, 1>, kind = "own", shape = array<i64: 32, 16>, source = {{[0-9]+}} : i64, type = tensor<512xbf16>}, {dim = 0 : i64, factors = array<i64: 2, 0, 4, 1>, kind = "held", shape = array<i64: 32, 16>, source = {{[0-9]+}} : i64, type = tensor<1024xbf16>}, {dim = 0 : i64, factors = array<i64: 2, 4, 4, 1>, kind = "own", shape = array<i64: 16, 48>, source = {{[0-9]+}} : i64, type = tensor<768xbf16>}
// TAKES: func.func public @main({{.*}}, %{{[a-z0-9]+}}: tensor<512xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"}]>}, %{{[a-z0-9]+}}: tensor<1024xbf16>
// TAKES: call @zero_quantize_difference{{.*}}xbf16>, tensor<{{.*}}xbf16>) -> tensor<{{.*}}xi8>
// TAKES: "stablehlo.all_gather"{{.*}}xi8>
// TAKES: call @zero_dequantize_add{{.*}}xi8>, tensor<{{.*}}xbf16>) -> tensor<{{.*}}xbf16>
// Within the node, what is held travels as it is.
// TAKES: "stablehlo.all_gather"{{.*}}(tensor<1x{{.*}}xbf16>)

// STARTS: zpp.state = [{dim = 0 : i64, factors = array<i64: 2, 4, 4, 1>, kind = "own", shape = array<i64: 32, 16>, source = {{[0-9]+}} : i64, type = tensor<512xbf16>}
// STARTS-NOT: %{{[a-z0-9]+}}: tensor<512xbf16> {sdy.sharding
// STARTS: "stablehlo.all_gather"{{.*}}zpp.keep{{.*}}xbf16>

// WHOLE: zero.all_gather is not quantized: floors has it travel unquantized
// WHOLE-NOT: zero.all_gather is not quantized
// FLOORS: "stablehlo.all_gather"{{.*}}zpp.keep, zpp.origin = {{.*}}floor = "none"{{.*}}id = 0 : i64{{.*}}xbf16>
// FLOORS: call @zero_quantize_difference{{.*}}xbf16>) -> tensor<{{.*}}xi8>
// FLOORS: "stablehlo.all_gather"{{.*}}floor = "i8"{{.*}}id = 3 : i64{{.*}}xi8>

// FFI: zpp.state
// FFI: zpp.start

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!secondary = !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #mesh>

// CHECK: zero.all_gather is left alone: what is held of it cannot become an argument of the step: it is not gathered in a manual computation of the step itself
// CHECK-LABEL: func @no_step
// Whole values travel, in int8.
// CHECK: %[[SENT:.*]] = zero.encode %{{.*}} to {{.*}}#zero.quant<i8, block = 32>
// CHECK: %[[MOVED:.*]] = zero.all_gather %[[SENT]] along ["node"] {zpp.keep
// CHECK: zero.decode %[[MOVED]]
func.func @no_step(%w: tensor<32x64xbf16>) -> tensor<64x64xbf16> {
  %0 = zero.from_local %w : tensor<32x64xbf16> to !primary
  %1 = zero.all_gather %0 along ["node"] {zpp.keep} : !primary to !secondary
  %2 = zero.to_local %1 : !secondary to tensor<64x64xbf16>
  return %2 : tensor<64x64xbf16>
}
