// Weights that the step returns as they came are state; the others are not.
// RUN: zpp-opt %s --zero-partition-within-node=between-steps=frozen --zero-keep-frozen --remarks-filter=none | FileCheck %s --check-prefix=TAKES
// RUN: zpp-opt %s --zero-partition-within-node=between-steps=frozen --zero-keep-frozen=start=true --remarks-filter=none | FileCheck %s --check-prefix=STARTS
// RUN: zpp-opt %s --zero-partition-within-node=between-steps=frozen --zero-keep-frozen --remarks-filter=zero-keep-frozen -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: not zpp-opt %s --zero-partition-within-node=between-steps=some 2>&1 | FileCheck %s --check-prefix=SOME
// RUN: echo "module {}" | not zpp-opt --zeropp="frozen=keep secondary=none" 2>&1 | FileCheck %s --check-prefix=SECONDARY
// RUN: echo "module {}" | not zpp-opt --zeropp="frozen=yes" 2>&1 | FileCheck %s --check-prefix=FROZEN
// RUN: echo "module {}" | not zpp-opt --zeropp="start=true" 2>&1 | FileCheck %s --check-prefix=START

// SOME: expected one of none, frozen, all, but got 'some'
// SECONDARY: error: expected a secondary partition with frozen=keep, which is what is kept, but got secondary=none
// FROZEN: for the --frozen option: expected one of none, keep, but got 'yes'
// START: for the --start option: expected one of none, frozen, all, but got 'true'

// REMARK: what it moves does not change: it is sent in the first step and kept

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>

sdy.mesh @mesh = <["node"=2, "gpu"=4]>

// Argument 0 is result 1. It is gathered once, and kept nevertheless. Argument
// 1 is updated, and of argument 2 another sharding is returned.

// TAKES: zpp.state = [{arguments = array<i64: 0>, kind = "frozen", results = array<i64: 1>, type = tensor<32768xbf16>}]
// TAKES: func.func public @main(%{{.*}}: tensor<256x64xf32>, %{{.*}}: tensor<256x64xf32>, %{{.*}}: tensor<256x256xbf16>, %[[TAKEN:.*]]: tensor<32768xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"}]>}) -> ({{.*}}tensor<32768xbf16> {sdy.sharding
// TAKES: sdy.manual_computation(%{{.*}}, %{{.*}}, %{{.*}}, %[[TAKEN]])
// TAKES-SAME: ({{.*}}, %[[FLAT:[^:]+]]: tensor<4096xbf16>)
// TAKES: %[[HELD:.*]] = stablehlo.reshape %[[FLAT]] : (tensor<4096xbf16>) -> tensor<64x64xbf16>
// TAKES-NOT: along ["node"]
// TAKES: %[[SHARD:.*]] = zero.from_local %[[HELD]]
// TAKES: zero.all_gather %[[SHARD]] along ["gpu"]
// TAKES-COUNT-2: along ["node", "gpu"]
// TAKES: %[[SAME:.*]] = stablehlo.reshape %[[HELD]] : (tensor<64x64xbf16>) -> tensor<4096xbf16>
// TAKES: sdy.return {{.*}}, %[[SAME]]

// STARTS: zpp.state = [{arguments = array<i64: 0>, kind = "frozen", results = array<i64: 1>, type = tensor<32768xbf16>}]
// STARTS: func.func public @main(%{{.*}}: tensor<256x64xf32>, %{{.*}}: tensor<256x64xf32>, %{{.*}}: tensor<256x256xbf16>) -> ({{.*}}tensor<32768xbf16> {sdy.sharding
// STARTS: %[[KEPT:.*]] = zero.all_gather {{.*}} along ["node"] :
// STARTS: zero.all_gather %[[KEPT]] along ["gpu"]
func.func public @main(%frozen: tensor<256x64xf32>, %updated: tensor<256x64xf32>, %moved: tensor<256x256xbf16>) -> (tensor<256x64xf32>, tensor<256x64xf32>, tensor<256x256xbf16>, tensor<2048x64xbf16>) {
  %0:4 = sdy.manual_computation(%frozen, %updated, %moved) in_shardings=[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>] out_shardings=[<@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>, <@mesh, [{"gpu", "node"}, {}]>, <@mesh, [{"node", "gpu"}, {}]>] manual_axes={"node", "gpu"} (%a: tensor<32x64xf32>, %b: tensor<32x64xf32>, %c: tensor<32x256xbf16>) {
    %2 = stablehlo.convert %a : (tensor<32x64xf32>) -> tensor<32x64xbf16>
    %3 = zero.from_local %2 : tensor<32x64xbf16> to !primary
    %4 = zero.all_gather %3 along ["node", "gpu"] : !primary to !whole
    %5 = zero.to_local %4 : !whole to tensor<256x64xbf16>
    %6 = stablehlo.convert %b : (tensor<32x64xf32>) -> tensor<32x64xbf16>
    %7 = zero.from_local %6 : tensor<32x64xbf16> to !primary
    %8 = zero.all_gather %7 along ["node", "gpu"] : !primary to !whole
    %9 = zero.to_local %8 : !whole to tensor<256x64xbf16>
    %10 = stablehlo.slice %c [0:32, 0:64] : (tensor<32x256xbf16>) -> tensor<32x64xbf16>
    %11 = zero.from_local %10 : tensor<32x64xbf16> to !primary
    %12 = zero.all_gather %11 along ["node", "gpu"] : !primary to !whole
    %13 = zero.to_local %12 : !whole to tensor<256x64xbf16>
    %14 = stablehlo.add %5, %9 : tensor<256x64xbf16>
    %15 = stablehlo.add %14, %13 : tensor<256x64xbf16>
    %16 = stablehlo.add %b, %b : tensor<32x64xf32>
    sdy.return %16, %a, %c, %15 : tensor<32x64xf32>, tensor<32x64xf32>, tensor<32x256xbf16>, tensor<256x64xbf16>
  } : (tensor<256x64xf32>, tensor<256x64xf32>, tensor<256x256xbf16>) -> (tensor<256x64xf32>, tensor<256x64xf32>, tensor<256x256xbf16>, tensor<2048x64xbf16>)
  return %0#0, %0#1, %0#2, %0#3 : tensor<256x64xf32>, tensor<256x64xf32>, tensor<256x256xbf16>, tensor<2048x64xbf16>
}
