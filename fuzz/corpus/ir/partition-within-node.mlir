// RUN: zpp-opt %s --zero-partition-within-node --split-input-file \
// RUN:   --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-partition-within-node --zero-partition-within-node \
// RUN:   --split-input-file --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-partition-within-node --split-input-file \
// RUN:   --verify-diagnostics -o /dev/null
// RUN: zpp-opt %s --zero-partition-within-node=secondary=2 --split-input-file \
// RUN:   --remarks-filter=none | FileCheck %s --check-prefix=PAIR
// RUN: zpp-opt %s --zero-partition-within-node=secondary=node \
// RUN:   --split-input-file --remarks-filter=none \
// RUN:   | FileCheck %s --check-prefix=NODE

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>

func.func @weight(%w: tensor<32x64xf32>, %x: tensor<4xf32>)
    -> (tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<4xf32>) {

  %0 = "stablehlo.convert"(%w) : (tensor<32x64xf32>) -> tensor<32x64xbf16>
  %1 = zero.from_local %0 : tensor<32x64xbf16> to !primary
  %2 = zero.all_gather %1 along ["node", "gpu"] {zpp.origin = {id = 1}} : !primary to !whole
  %3 = zero.to_local %2 : !whole to tensor<256x64xbf16>
  %4:2 = "stablehlo.optimization_barrier"(%0, %x) : (tensor<32x64xbf16>, tensor<4xf32>) -> (tensor<32x64xbf16>, tensor<4xf32>)
  %5 = zero.from_local %4#0 : tensor<32x64xbf16> to !primary
  %6 = zero.all_gather %5 along ["node", "gpu"] {zpp.origin = {id = 2}} : !primary to !whole
  %7 = zero.to_local %6 : !whole to tensor<256x64xbf16>
  return %3, %7, %4#1 : tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>
!primary_i8 = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8, block = 128>>
!whole_i8 = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh, #zero.quant<i8, block = 128>>

func.func @quantized(%w: tensor<32x64xbf16>, %x: tensor<4xf32>)
    -> (tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<4xf32>) {

  %1 = zero.from_local %w : tensor<32x64xbf16> to !primary
  %e1 = zero.encode %1 : !primary to !primary_i8
  %2 = zero.all_gather %e1 along ["node", "gpu"] : !primary_i8 to !whole_i8
  %d1 = zero.decode %2 : !whole_i8 to !whole
  %3 = zero.to_local %d1 : !whole to tensor<256x64xbf16>
  %4:2 = "stablehlo.optimization_barrier"(%w, %x) : (tensor<32x64xbf16>, tensor<4xf32>) -> (tensor<32x64xbf16>, tensor<4xf32>)
  %5 = zero.from_local %4#0 : tensor<32x64xbf16> to !primary
  %e2 = zero.encode %5 : !primary to !primary_i8
  %6 = zero.all_gather %e2 along ["node", "gpu"] : !primary_i8 to !whole_i8
  %d2 = zero.decode %6 : !whole_i8 to !whole
  %7 = zero.to_local %d2 : !whole to tensor<256x64xbf16>
  return %3, %7, %4#1 : tensor<256x64xbf16>, tensor<256x64xbf16>, tensor<4xf32>
}

// -----

#mesh = #zero.mesh<"rack" = 2, "node" = 2, "gpu" = 2>
!primary = !zero.shard<8x64xf32, dim 0 = ("rack", "node", "gpu") on #mesh>
!whole = !zero.shard<8x64xf32, dim 0 = (2, 2, 2) on #mesh>

func.func @three_tiers(%w: tensor<1x64xf32>) -> (tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>) {

  %1 = zero.from_local %w : tensor<1x64xf32> to !primary
  %2 = zero.all_gather %1 along ["rack", "node", "gpu"] : !primary to !whole
  %3 = zero.to_local %2 : !whole to tensor<8x64xf32>
  %4 = zero.all_gather %1 along ["rack", "node", "gpu"] : !primary to !whole
  %5 = zero.to_local %4 : !whole to tensor<8x64xf32>
  %6 = zero.all_gather %1 along ["rack", "node", "gpu"] : !primary to !whole
  %7 = zero.to_local %6 : !whole to tensor<8x64xf32>
  return %3, %5, %7 : tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("gpu", "node") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (4, 2) on #mesh>

func.func @gpu_major(%w: tensor<32x64xbf16>) -> (tensor<256x64xbf16>, tensor<256x64xbf16>) {

  %1 = zero.from_local %w : tensor<32x64xbf16> to !primary
  %2 = zero.all_gather %1 along ["gpu", "node"] : !primary to !whole
  %3 = zero.to_local %2 : !whole to tensor<256x64xbf16>
  %4 = zero.all_gather %1 along ["gpu", "node"] : !primary to !whole
  %5 = zero.to_local %4 : !whole to tensor<256x64xbf16>
  return %3, %5 : tensor<256x64xbf16>, tensor<256x64xbf16>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>
!node_primary = !zero.shard<256x64xbf16, dim 0 = ("gpu") on #mesh>
!node_whole = !zero.shard<256x64xbf16, dim 0 = (4) on #mesh>

func.func @left_alone(%w: tensor<32x64xbf16>, %v: tensor<64x64xbf16>)
    -> (tensor<256x64xbf16>, tensor<256x64xbf16>) {
  %0 = zero.from_local %w : tensor<32x64xbf16> to !primary

  %1 = zero.all_gather %0 along ["node", "gpu"] : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<256x64xbf16>
  %3 = zero.from_local %v : tensor<64x64xbf16> to !node_primary

  %4 = zero.all_gather %3 along ["gpu"] : !node_primary to !node_whole
  %5 = zero.to_local %4 : !node_whole to tensor<256x64xbf16>
  return %2, %5 : tensor<256x64xbf16>, tensor<256x64xbf16>
}

func.func @not_read_late(%w: tensor<32x64xbf16>) -> tensor<256x64xbf16> {
  %0 = zero.from_local %w : tensor<32x64xbf16> to !primary

  %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.forward_only} : !primary to !whole
  %2 = zero.to_local %1 : !whole to tensor<256x64xbf16>
  return %2 : tensor<256x64xbf16>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<5x16xbf16, dim 1 = ("node", "gpu") on #mesh>
!whole = !zero.shard<5x16xbf16, dim 1 = (2, 4) on #mesh>

func.func @loops(%stack: tensor<3x5x2xf32>, %i: tensor<i32>, %y: tensor<5x16xbf16>) -> tensor<5x16xbf16> {

  %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %0:3 = "stablehlo.while"(%i, %stack, %y) ({
  ^bb0(%c: tensor<i32>, %s: tensor<3x5x2xf32>, %a: tensor<5x16xbf16>):
    %t = "stablehlo.compare"(%c, %i) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%t) : (tensor<i1>) -> ()
  }, {
  ^bb0(%c: tensor<i32>, %s: tensor<3x5x2xf32>, %a: tensor<5x16xbf16>):
    %l = "stablehlo.dynamic_slice"(%s, %c, %zero, %zero) <{slice_sizes = array<i64: 1, 5, 2>}> : (tensor<3x5x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x5x2xf32>
    %m = "stablehlo.reshape"(%l) : (tensor<1x5x2xf32>) -> tensor<5x2xf32>
    %n = "stablehlo.convert"(%m) : (tensor<5x2xf32>) -> tensor<5x2xbf16>
    %p = zero.from_local %n : tensor<5x2xbf16> to !primary
    %w = zero.all_gather %p along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %w : !whole to tensor<5x16xbf16>
    "stablehlo.return"(%c, %s, %f) : (tensor<i32>, tensor<3x5x2xf32>, tensor<5x16xbf16>) -> ()
  }) : (tensor<i32>, tensor<3x5x2xf32>, tensor<5x16xbf16>) -> (tensor<i32>, tensor<3x5x2xf32>, tensor<5x16xbf16>)
  %1:3 = "stablehlo.while"(%i, %stack, %0#2) ({
  ^bb0(%c: tensor<i32>, %s: tensor<3x5x2xf32>, %a: tensor<5x16xbf16>):
    %t = "stablehlo.compare"(%c, %i) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%t) : (tensor<i1>) -> ()
  }, {
  ^bb0(%c: tensor<i32>, %s: tensor<3x5x2xf32>, %a: tensor<5x16xbf16>):
    %l = "stablehlo.dynamic_slice"(%s, %c, %zero, %zero) <{slice_sizes = array<i64: 1, 5, 2>}> : (tensor<3x5x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x5x2xf32>
    %m = "stablehlo.reshape"(%l) : (tensor<1x5x2xf32>) -> tensor<5x2xf32>
    %n = "stablehlo.convert"(%m) : (tensor<5x2xf32>) -> tensor<5x2xbf16>
    %p = zero.from_local %n : tensor<5x2xbf16> to !primary
    %w = zero.all_gather %p along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %w : !whole to tensor<5x16xbf16>
    "stablehlo.return"(%c, %s, %f) : (tensor<i32>, tensor<3x5x2xf32>, tensor<5x16xbf16>) -> ()
  }) : (tensor<i32>, tensor<3x5x2xf32>, tensor<5x16xbf16>) -> (tensor<i32>, tensor<3x5x2xf32>, tensor<5x16xbf16>)
  return %1#2 : tensor<5x16xbf16>
}

// -----

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xbf16, dim 0 = (2, 4) on #mesh>

func.func @branches(%w: tensor<2xbf16>, %i: tensor<i32>) -> tensor<16xbf16> {

  %0 = "stablehlo.case"(%i) ({
    %2 = zero.from_local %w : tensor<2xbf16> to !primary

    %3 = zero.all_gather %2 along ["node", "gpu"] : !primary to !whole
    %4 = zero.to_local %3 : !whole to tensor<16xbf16>
    "stablehlo.return"(%4) : (tensor<16xbf16>) -> ()
  }, {
    %2 = zero.from_local %w : tensor<2xbf16> to !primary

    %3 = zero.all_gather %2 along ["node", "gpu"] : !primary to !whole
    %4 = zero.to_local %3 : !whole to tensor<16xbf16>
    "stablehlo.return"(%4) : (tensor<16xbf16>) -> ()
  }) : (tensor<i32>) -> tensor<16xbf16>
  return %0 : tensor<16xbf16>
}
