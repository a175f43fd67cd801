// Paths from a stack of weights to the gather of a layer whose sizes and strides
// are not those of any real stack.

// RUN: split-file %s %t

// Loops that cut one stack in different ways: all layers are gathered at once
// where the index counts that far. An index of eight bits does not count to 200.
// RUN: sed -e 's/INDEX/i16/g' %t/layers.mlir | zpp-opt --zero-partition-within-node | FileCheck %s --check-prefix=HOISTED
// RUN: sed -e 's/INDEX/i8/g' %t/layers.mlir | zpp-opt --zero-partition-within-node 2>&1 | FileCheck %s --check-prefix=NARROW
// HOISTED: zero.all_gather {{.*}} along ["node"] {zpp.keep}
// HOISTED: dense<100> : tensor<i16>
// NARROW: left alone
// NARROW-NOT: zpp.keep

// RUN: zpp-opt %t/others.mlir --zero-partition-within-node --split-input-file 2>&1 | FileCheck %s
// CHECK-COUNT-4: left alone
// CHECK-NOT: zpp.keep

//--- layers.mlir

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

func.func @layers(%w: tensor<200x2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<INDEX>
  %c1 = stablehlo.constant dense<1> : tensor<INDEX>
  %c100 = stablehlo.constant dense<100> : tensor<INDEX>
  %s0 = stablehlo.slice %w [0:100, 0:2] : (tensor<200x2xf32>) -> tensor<100x2xf32>
  %0:2 = stablehlo.while(%i = %c0, %h = %x) : tensor<INDEX>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c100 : (tensor<INDEX>, tensor<INDEX>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %a = stablehlo.dynamic_slice %s0, %i, %c0, sizes = [1, 2] : (tensor<100x2xf32>, tensor<INDEX>, tensor<INDEX>) -> tensor<1x2xf32>
    %b = stablehlo.reshape %a : (tensor<1x2xf32>) -> tensor<2xf32>
    %c = zero.from_local %b : tensor<2xf32> to !primary
    %d = zero.all_gather %c along ["node", "gpu"] : !primary to !whole
    %e = zero.to_local %d : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %e : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<INDEX>
    stablehlo.return %next, %y : tensor<INDEX>, tensor<16xf32>
  }
  %s1 = stablehlo.slice %w [100:200, 0:2] : (tensor<200x2xf32>) -> tensor<100x2xf32>
  %1:2 = stablehlo.while(%i = %c0, %h = %0#1) : tensor<INDEX>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c100 : (tensor<INDEX>, tensor<INDEX>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %a = stablehlo.dynamic_slice %s1, %i, %c0, sizes = [1, 2] : (tensor<100x2xf32>, tensor<INDEX>, tensor<INDEX>) -> tensor<1x2xf32>
    %b = stablehlo.reshape %a : (tensor<1x2xf32>) -> tensor<2xf32>
    %c = zero.from_local %b : tensor<2xf32> to !primary
    %d = zero.all_gather %c along ["node", "gpu"] : !primary to !whole
    %e = zero.to_local %d : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %e : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<INDEX>
    stablehlo.return %next, %y : tensor<INDEX>, tensor<16xf32>
  }
  %s2 = stablehlo.slice %w [50:150, 0:2] : (tensor<200x2xf32>) -> tensor<100x2xf32>
  %2:2 = stablehlo.while(%i = %c0, %h = %1#1) : tensor<INDEX>, tensor<16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %c100 : (tensor<INDEX>, tensor<INDEX>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %a = stablehlo.dynamic_slice %s2, %i, %c0, sizes = [1, 2] : (tensor<100x2xf32>, tensor<INDEX>, tensor<INDEX>) -> tensor<1x2xf32>
    %b = stablehlo.reshape %a : (tensor<1x2xf32>) -> tensor<2xf32>
    %c = zero.from_local %b : tensor<2xf32> to !primary
    %d = zero.all_gather %c along ["node", "gpu"] : !primary to !whole
    %e = zero.to_local %d : !whole to tensor<16xf32>
    %y = stablehlo.multiply %h, %e : tensor<16xf32>
    %next = stablehlo.add %i, %c1 : tensor<INDEX>
    stablehlo.return %next, %y : tensor<INDEX>, tensor<16xf32>
  }
  return %2#1 : tensor<16xf32>
}

//--- others.mlir

// A slice of a scalar.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

func.func @scalar(%stack: tensor<f32>, %start: tensor<i32>, %x: tensor<16xf32>) -> (tensor<i32>, tensor<16xf32>) {
  %0:2 = stablehlo.while(%i = %start, %h = %x) : tensor<i32>, tensor<16xf32>
  cond {
    %more = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %stack, %i, %start, sizes = [1, 2] : (tensor<f32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x2xf32>) -> tensor<2xf32>
    %3 = zero.from_local %2 : tensor<2xf32> to !primary
    %4 = zero.all_gather %3 along ["node", "gpu"] : !primary to !whole
    %5 = zero.to_local %4 : !whole to tensor<16xf32>
    stablehlo.return %i, %5 : tensor<i32>, tensor<16xf32>
  }
  return %0#0, %0#1 : tensor<i32>, tensor<16xf32>
}

// -----

// No layers of no elements, which become two layers.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<0xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<0xf32, dim 0 = (2, 4) on #mesh>

func.func @empty(%stack: tensor<4x0xf32>, %start: tensor<i32>, %x: tensor<0xf32>) -> (tensor<i32>, tensor<0xf32>) {
  %none = stablehlo.slice %stack [0:0, 0:0] : (tensor<4x0xf32>) -> tensor<0x0xf32>
  %two = stablehlo.reshape %none : (tensor<0x0xf32>) -> tensor<2x0xf32>
  %0:2 = stablehlo.while(%i = %start, %h = %x) : tensor<i32>, tensor<0xf32>
  cond {
    %more = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %two, %i, %start, sizes = [1, 0] : (tensor<2x0xf32>, tensor<i32>, tensor<i32>) -> tensor<1x0xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x0xf32>) -> tensor<0xf32>
    %3 = zero.from_local %2 : tensor<0xf32> to !primary
    %4 = zero.all_gather %3 along ["node", "gpu"] : !primary to !whole
    %5 = zero.to_local %4 : !whole to tensor<0xf32>
    stablehlo.return %i, %5 : tensor<i32>, tensor<0xf32>
  }
  return %0#0, %0#1 : tensor<i32>, tensor<0xf32>
}

// -----

// Strides of slices that take one layer only, whose product 64 bits do not hold.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>

func.func @strides(%stack: tensor<3x2xf32>, %start: tensor<i32>, %x: tensor<16xf32>) -> (tensor<i32>, tensor<16xf32>) {
  %one = stablehlo.slice %stack [0:1:4611686018427387904, 0:2] : (tensor<3x2xf32>) -> tensor<1x2xf32>
  %same = stablehlo.slice %one [0:1:4611686018427387904, 0:2] : (tensor<1x2xf32>) -> tensor<1x2xf32>
  %w = stablehlo.reshape %same : (tensor<1x2xf32>) -> tensor<2xf32>
  %0:2 = stablehlo.while(%i = %start, %h = %x) : tensor<i32>, tensor<16xf32>
  cond {
    %more = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %stack, %i, %start, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x2xf32>) -> tensor<2xf32>
    %3 = zero.from_local %2 : tensor<2xf32> to !primary
    %4 = zero.all_gather %3 along ["node", "gpu"] : !primary to !whole
    %5 = zero.to_local %4 : !whole to tensor<16xf32>
    stablehlo.return %i, %5 : tensor<i32>, tensor<16xf32>
  }
  %6 = zero.from_local %w : tensor<2xf32> to !primary
  %7 = zero.all_gather %6 along ["node", "gpu"] : !primary to !whole
  %8 = zero.to_local %7 : !whole to tensor<16xf32>
  return %0#0, %8 : tensor<i32>, tensor<16xf32>
}
