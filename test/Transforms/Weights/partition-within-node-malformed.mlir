// What loops cut out of a stack is gathered of all layers at once, unless the
// stack or the slice is not what StableHLO knows: nothing has verified its ops.

// RUN: sed -e 's/STACK/3x32x64xbf16/; s/INDEX/i32/' %s > %t.mlir
// RUN: zpp-opt %t.mlir --zero-partition-within-node | FileCheck %s --check-prefix=HOISTED
// HOISTED: zero.all_gather {{.*}} along ["node"] {zpp.keep}

// No layers, as many as the caller says, and more than a tensor can have.
// RUN: sed -e 's/STACK/0x32x64xbf16/; s/INDEX/i32/' %s > %t.mlir
// RUN: zpp-opt %t.mlir --zero-partition-within-node 2>&1 | FileCheck %s
// RUN: sed -e 's/STACK/?x32x64xbf16/; s/INDEX/i32/' %s > %t.mlir
// RUN: zpp-opt %t.mlir --zero-partition-within-node 2>&1 | FileCheck %s
// RUN: sed -e 's/STACK/17592186044416x32x64xbf16/; s/INDEX/i32/' %s > %t.mlir
// RUN: zpp-opt %t.mlir --zero-partition-within-node 2>&1 | FileCheck %s --check-prefix=LARGE

// Slices that change the type of elements, that are larger than the stack, and
// that start at something else than a number.
// RUN: sed -e 's/STACK/3x32x64xi64/; s/INDEX/i32/' %s > %t.mlir
// RUN: zpp-opt %t.mlir --zero-partition-within-node 2>&1 | FileCheck %s
// RUN: sed -e 's/STACK/3x16x64xbf16/; s/INDEX/i32/' %s > %t.mlir
// RUN: zpp-opt %t.mlir --zero-partition-within-node 2>&1 | FileCheck %s
// RUN: sed -e 's/STACK/3x32x64xbf16/; s/INDEX/vector<2xi32>/' %s > %t.mlir
// RUN: zpp-opt %t.mlir --zero-partition-within-node 2>&1 | FileCheck %s


// A loop whose region does not take what the loop is given.
// RUN: sed -e '/^!second/s/STACK/1x32x64xbf16/; s/STACK/3x32x64xbf16/; s/INDEX/i32/' %s > %t.mlir
// RUN: zpp-opt %t.mlir --zero-partition-within-node 2>&1 | FileCheck %s --check-prefix=LOOP

// LOOP-COUNT-2: left alone: it is gathered once
// CHECK-COUNT-2: left alone: the regions around the gathers of its weight are not loops over one stack of weights
// CHECK-NOT: zpp.keep
// LARGE-COUNT-2: left alone: the stack of its weights has more elements than a tensor can have
// LARGE-NOT: zpp.keep

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!stack = tensor<STACK>
!second = tensor<STACK>
!index = tensor<INDEX>
!layer = tensor<1x32x64xbf16>
!local = tensor<32x64xbf16>
!primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
!whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>
!full = tensor<256x64xbf16>

func.func @loops(%stack: !stack, %i: !index, %y: !full) -> !full {
  %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> !index
  %0:3 = stablehlo.while(%c = %i, %s = %stack, %a = %y) : !index, !stack, !full
  cond {
    %t = stablehlo.compare LT, %c, %i : (!index, !index) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %l = stablehlo.dynamic_slice %s, %c, %zero, %zero, sizes = [1, 32, 64] : (!stack, !index, !index, !index) -> !layer
    %m = stablehlo.reshape %l : (!layer) -> !local
    %p = zero.from_local %m : !local to !primary
    %w = zero.all_gather %p along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %w : !whole to !full
    stablehlo.return %c, %s, %f : !index, !stack, !full
  }
  %1:3 = "stablehlo.while"(%i, %stack, %0#2) ({
  ^bb0(%c: !index, %s: !stack, %a: !full):
    %t = stablehlo.compare LT, %c, %i : (!index, !index) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  }, {
  ^bb0(%c: !index, %s: !second, %a: !full):
    %l = stablehlo.dynamic_slice %s, %c, %zero, %zero, sizes = [1, 32, 64] : (!second, !index, !index, !index) -> !layer
    %m = stablehlo.reshape %l : (!layer) -> !local
    %p = zero.from_local %m : !local to !primary
    %w = zero.all_gather %p along ["node", "gpu"] : !primary to !whole
    %f = zero.to_local %w : !whole to !full
    stablehlo.return %c, %s, %f : !index, !second, !full
  }) : (!index, !stack, !full) -> (!index, !stack, !full)
  return %1#2 : !full
}
