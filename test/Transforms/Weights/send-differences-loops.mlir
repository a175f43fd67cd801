// DEFINE: %{keep} = --zero-partition-within-node=between-steps=all
// RUN: zpp-opt %s --zero-plan-loops %{keep} --zero-send-differences=block=32 --remarks-filter=none --split-input-file \
// RUN:   | FileCheck %s --check-prefixes=SPLIT,SENT
// RUN: zpp-opt %s --zero-plan-loops %{keep} --zero-send-differences="block=32 start" --remarks-filter=none --split-input-file \
// RUN:   | FileCheck %s --check-prefixes=SPLIT,BEGUN
// RUN: sed '/zpp.loop/d' %s | zpp-opt %{keep} --remarks-filter=none --split-input-file \
// RUN:   | FileCheck %s --check-prefix=SHORT
// RUN: zpp-opt %s %{keep} --zero-quantize-all-gather=single-only --remarks-filter=none --split-input-file \
// RUN:   | FileCheck %s --check-prefix=WITHIN

// What a loop has left travels within the node as it is.
// WITHIN-NOT: #zero.quant

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<512xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<512xbf16, dim 0 = (2, 4) on #mesh>

// The forward loop takes its layer from the stacks that the step before has
// left, adds the difference, and writes it to them again. The backward loop
// reads what it leaves. Each layer is state by itself. The first step sends whole
// weights and leaves both stacks.

// SPLIT: zpp.state = [{dim = 0 : i64, factors = array<i64: 2, 4, 4, 1>, kind = "own", shape = array<i64: 512>, source = 0 : i64, type = tensor<512xbf16>}, {dim = 0 : i64, factors = array<i64: 2, 0, 4, 1>, kind = "held", shape = array<i64: 512>, source = 0 : i64, type = tensor<1024xbf16>}, {{{.*}}}, {{{.*}}}, {{{.*}}}, {dim = 0 : i64, {{.*}} kind = "held", {{.*}}}]
// SPLIT-LABEL: func.func public @main
// SPLIT: %[[FORWARD:.*]]:4 = stablehlo.while(
// SENT: %[[SENT:.*]] = zero.encode %{{.*}} minus %[[BEFORE:.*]] : {{.*}}#zero.quant<i4, block = 32>
// SENT: %[[MOVED:.*]] = zero.all_gather %[[SENT]] along ["node"] :
// SENT: zero.decode %[[MOVED]] plus
// SENT: zero.decode %[[SENT]] plus %[[BEFORE]]
// SENT: zero.all_gather {{.*}} along ["gpu"]
// BEGUN: zero.all_gather {{.*}} along ["node"] {zpp.keep = 3
// SPLIT: stablehlo.dynamic_slice %[[FORWARD]]#3, %{{.*}}, sizes = [1, 64]
// SPLIT: stablehlo.dynamic_slice %[[FORWARD]]#2, %{{.*}}, sizes = [1, 128]
// SENT: stablehlo.while
// SENT: stablehlo.dynamic_slice %[[FORWARD]]#2,
// SENT-NOT: along ["node"]
// SPLIT: sdy.return {{.*}}
// BEGUN: return {{.*}} : tensor<3x512xbf16>, tensor<4096xbf16>, tensor<512xbf16>, tensor<1024xbf16>, tensor<512xbf16>, tensor<1024xbf16>, tensor<512xbf16>, tensor<1024xbf16>

// SHORT-LABEL: func.func public @main
// SHORT: zero.all_gather {{.*}} along ["node"] {zpp.keep}
// SHORT: stablehlo.while
// SHORT-NOT: along ["node"]
// SHORT-LABEL: func.func public @main
sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func public @main(%w: tensor<3x512xbf16>, %y: tensor<4096xbf16>) -> (tensor<3x512xbf16>, tensor<4096xbf16>) {
  %0:2 = "sdy.manual_computation"(%w, %y) <{
      in_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"node", "gpu"}]>, <@mesh, [{"node", "gpu"}]>]>,
      manual_axes = #sdy<manual_axes{"node", "gpu"}>,
      out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"node", "gpu"}]>, <@mesh, [{"node", "gpu"}]>]>}> ({
  ^bb0(%a: tensor<3x64xbf16>, %x: tensor<512xbf16>):
    %c0 = stablehlo.constant dense<0> : tensor<i32>
    %c1 = stablehlo.constant dense<1> : tensor<i32>
    %c2 = stablehlo.constant dense<2> : tensor<i32>
    %c3 = stablehlo.constant dense<3> : tensor<i32>
    %f:2 = stablehlo.while(%i = %c0, %h = %x) : tensor<i32>, tensor<512xbf16>
    attributes {zpp.loop = {layers = 3 : i64}}
    cond {
      %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %0 = stablehlo.dynamic_slice %a, %i, %c0, sizes = [1, 64] : (tensor<3x64xbf16>, tensor<i32>, tensor<i32>) -> tensor<1x64xbf16>
      %1 = stablehlo.reshape %0 : (tensor<1x64xbf16>) -> tensor<64xbf16>
      %2 = zero.from_local %1 : tensor<64xbf16> to !primary
      %3 = zero.all_gather %2 along ["node", "gpu"] : !primary to !whole
      %4 = zero.to_local %3 : !whole to tensor<512xbf16>
      %5 = stablehlo.multiply %h, %4 : tensor<512xbf16>
      %n = stablehlo.add %i, %c1 : tensor<i32>
      stablehlo.return %n, %5 : tensor<i32>, tensor<512xbf16>
    }
    %b:2 = stablehlo.while(%i = %c0, %h = %f#1) : tensor<i32>, tensor<512xbf16>
    cond {
      %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %j = stablehlo.subtract %c2, %i : tensor<i32>
      %0 = stablehlo.dynamic_slice %a, %j, %c0, sizes = [1, 64] : (tensor<3x64xbf16>, tensor<i32>, tensor<i32>) -> tensor<1x64xbf16>
      %1 = stablehlo.reshape %0 : (tensor<1x64xbf16>) -> tensor<64xbf16>
      %2 = zero.from_local %1 : tensor<64xbf16> to !primary
      %3 = zero.all_gather %2 along ["node", "gpu"] : !primary to !whole
      %4 = zero.to_local %3 : !whole to tensor<512xbf16>
      %5 = stablehlo.multiply %h, %4 : tensor<512xbf16>
      %n = stablehlo.add %i, %c1 : tensor<i32>
      stablehlo.return %n, %5 : tensor<i32>, tensor<512xbf16>
    }
    %u = stablehlo.add %a, %a : tensor<3x64xbf16>
    sdy.return %u, %b#1 : tensor<3x64xbf16>, tensor<512xbf16>
  }) : (tensor<3x512xbf16>, tensor<4096xbf16>) -> (tensor<3x512xbf16>, tensor<4096xbf16>)
  return %0#0, %0#1 : tensor<3x512xbf16>, tensor<4096xbf16>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<512xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<512xbf16, dim 0 = (2, 4) on #mesh>

// Weights that the step does not change are gathered in front of the loop,
// where zero-keep-frozen can leave the gather out.

sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func public @main(%w: tensor<3x512xbf16>, %y: tensor<4096xbf16>) -> (tensor<3x512xbf16>, tensor<4096xbf16>) {
  %0:2 = "sdy.manual_computation"(%w, %y) <{
      in_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"node", "gpu"}]>, <@mesh, [{"node", "gpu"}]>]>,
      manual_axes = #sdy<manual_axes{"node", "gpu"}>,
      out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"node", "gpu"}]>, <@mesh, [{"node", "gpu"}]>]>}> ({
  ^bb0(%a: tensor<3x64xbf16>, %x: tensor<512xbf16>):
    %c0 = stablehlo.constant dense<0> : tensor<i32>
    %c1 = stablehlo.constant dense<1> : tensor<i32>
    %c2 = stablehlo.constant dense<2> : tensor<i32>
    %c3 = stablehlo.constant dense<3> : tensor<i32>
    %f:2 = stablehlo.while(%i = %c0, %h = %x) : tensor<i32>, tensor<512xbf16>
    attributes {zpp.loop = {layers = 3 : i64}}
    cond {
      %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %0 = stablehlo.dynamic_slice %a, %i, %c0, sizes = [1, 64] : (tensor<3x64xbf16>, tensor<i32>, tensor<i32>) -> tensor<1x64xbf16>
      %1 = stablehlo.reshape %0 : (tensor<1x64xbf16>) -> tensor<64xbf16>
      %2 = zero.from_local %1 : tensor<64xbf16> to !primary
      %3 = zero.all_gather %2 along ["node", "gpu"] : !primary to !whole
      %4 = zero.to_local %3 : !whole to tensor<512xbf16>
      %5 = stablehlo.multiply %h, %4 : tensor<512xbf16>
      %n = stablehlo.add %i, %c1 : tensor<i32>
      stablehlo.return %n, %5 : tensor<i32>, tensor<512xbf16>
    }
    %b:2 = stablehlo.while(%i = %c0, %h = %f#1) : tensor<i32>, tensor<512xbf16>
    cond {
      %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %j = stablehlo.subtract %c2, %i : tensor<i32>
      %0 = stablehlo.dynamic_slice %a, %j, %c0, sizes = [1, 64] : (tensor<3x64xbf16>, tensor<i32>, tensor<i32>) -> tensor<1x64xbf16>
      %1 = stablehlo.reshape %0 : (tensor<1x64xbf16>) -> tensor<64xbf16>
      %2 = zero.from_local %1 : tensor<64xbf16> to !primary
      %3 = zero.all_gather %2 along ["node", "gpu"] : !primary to !whole
      %4 = zero.to_local %3 : !whole to tensor<512xbf16>
      %5 = stablehlo.multiply %h, %4 : tensor<512xbf16>
      %n = stablehlo.add %i, %c1 : tensor<i32>
      stablehlo.return %n, %5 : tensor<i32>, tensor<512xbf16>
    }
    sdy.return %a, %b#1 : tensor<3x64xbf16>, tensor<512xbf16>
  }) : (tensor<3x512xbf16>, tensor<4096xbf16>) -> (tensor<3x512xbf16>, tensor<4096xbf16>)
  return %0#0, %0#1 : tensor<3x512xbf16>, tensor<4096xbf16>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<512xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<512xbf16, dim 0 = (2, 4) on #mesh>

// A loop with an op of the dialect in a region stays a loop, and so do its stacks.

// SHORT-LABEL: func.func public @inner
// SPLIT-LABEL: func.func public @inner
// SPLIT-NOT: concatenate
// SPLIT: return {{.*}} tensor<1536xbf16>, tensor<3072xbf16>
sdy.mesh @mesh = <["node"=2, "gpu"=4]>
func.func public @inner(%w: tensor<3x512xbf16>, %y: tensor<4096xbf16>) -> (tensor<3x512xbf16>, tensor<4096xbf16>) {
  %0:2 = "sdy.manual_computation"(%w, %y) <{
      in_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"node", "gpu"}]>, <@mesh, [{"node", "gpu"}]>]>,
      manual_axes = #sdy<manual_axes{"node", "gpu"}>,
      out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"node", "gpu"}]>, <@mesh, [{"node", "gpu"}]>]>}> ({
  ^bb0(%a: tensor<3x64xbf16>, %x: tensor<512xbf16>):
    %c0 = stablehlo.constant dense<0> : tensor<i32>
    %c1 = stablehlo.constant dense<1> : tensor<i32>
    %c2 = stablehlo.constant dense<2> : tensor<i32>
    %c3 = stablehlo.constant dense<3> : tensor<i32>
    %f:2 = stablehlo.while(%i = %c0, %h = %x) : tensor<i32>, tensor<512xbf16>
    attributes {zpp.loop = {layers = 3 : i64}}
    cond {
      %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %0 = stablehlo.dynamic_slice %a, %i, %c0, sizes = [1, 64] : (tensor<3x64xbf16>, tensor<i32>, tensor<i32>) -> tensor<1x64xbf16>
      %1 = stablehlo.reshape %0 : (tensor<1x64xbf16>) -> tensor<64xbf16>
      %2 = zero.from_local %1 : tensor<64xbf16> to !primary
      %3 = zero.all_gather %2 along ["node", "gpu"] : !primary to !whole
      %4 = zero.to_local %3 : !whole to tensor<512xbf16>
      %q = "stablehlo.case"(%i) ({
        %6 = zero.from_local %h : tensor<512xbf16> to !whole
        %7 = zero.reduce_scatter sum %6 along ["node", "gpu"] : !whole to !primary
        %8 = zero.to_local %7 : !primary to tensor<64xbf16>
        stablehlo.return %8 : tensor<64xbf16>
      }) : (tensor<i32>) -> tensor<64xbf16>
      %5 = stablehlo.multiply %h, %4 : tensor<512xbf16>
      %n = stablehlo.add %i, %c1 : tensor<i32>
      stablehlo.return %n, %5 : tensor<i32>, tensor<512xbf16>
    }
    %b:2 = stablehlo.while(%i = %c0, %h = %f#1) : tensor<i32>, tensor<512xbf16>
    cond {
      %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %j = stablehlo.subtract %c2, %i : tensor<i32>
      %0 = stablehlo.dynamic_slice %a, %j, %c0, sizes = [1, 64] : (tensor<3x64xbf16>, tensor<i32>, tensor<i32>) -> tensor<1x64xbf16>
      %1 = stablehlo.reshape %0 : (tensor<1x64xbf16>) -> tensor<64xbf16>
      %2 = zero.from_local %1 : tensor<64xbf16> to !primary
      %3 = zero.all_gather %2 along ["node", "gpu"] : !primary to !whole
      %4 = zero.to_local %3 : !whole to tensor<512xbf16>
      %5 = stablehlo.multiply %h, %4 : tensor<512xbf16>
      %n = stablehlo.add %i, %c1 : tensor<i32>
      stablehlo.return %n, %5 : tensor<i32>, tensor<512xbf16>
    }
    %u = stablehlo.add %a, %a : tensor<3x64xbf16>
    sdy.return %u, %b#1 : tensor<3x64xbf16>, tensor<512xbf16>
  }) : (tensor<3x512xbf16>, tensor<4096xbf16>) -> (tensor<3x512xbf16>, tensor<4096xbf16>)
  return %0#0, %0#1 : tensor<3x512xbf16>, tensor<4096xbf16>
}
