// RUN: zpp-opt %s --zero-decompose-all-gather --convert-zero-to-stablehlo --split-input-file | FileCheck %s

// Compilers without Shardy do not know meshes. Those go that nothing names, by
// a symbol or in the text of an attribute. JAX asks for `mesh` where there are any.

#mesh = #zero.mesh<"gpu" = 4>
!slice = !zero.shard<4xf32, dim 0 = ("gpu") on #mesh>
!whole = !zero.shard<4xf32, dim 0 = (4) on #mesh>

// CHECK-LABEL: module @some
module @some attributes {zpp.note = "as on @\22a mesh\22, and nowhere else"} {
  // CHECK-NEXT: sdy.mesh @"a mesh"
  // CHECK-NEXT: sdy.mesh @mesh
  // CHECK-NEXT: sdy.mesh @named
  // CHECK-NEXT: sdy.mesh @of_a_call
  // CHECK-NEXT: sdy.mesh @of_a_symbol
  // CHECK-NEXT: func.func
  sdy.mesh @"a mesh" = <["gpu"=4]>
  sdy.mesh @mesh = <["gpu"=4]>
  sdy.mesh @named = <["gpu"=4]>
  sdy.mesh @name = <["gpu"=4]>
  sdy.mesh @of_a_call = <["gpu"=4]>
  sdy.mesh @of_a_symbol = <["gpu"=4]>
  func.func @main(%w: tensor<1xf32> {sdy.sharding = #sdy.sharding<@named, [{"gpu"}]>}) -> tensor<4xf32> {
    "stablehlo.use"() {mesh = @of_a_call, axis = @of_a_symbol::@gpu} : () -> ()
    %0 = zero.from_local %w : tensor<1xf32> to !slice
    %1 = zero.all_gather %0 along ["gpu"] : !slice to !whole
    %2 = zero.to_local %1 : !whole to tensor<4xf32>
    return %2 : tensor<4xf32>
  }
}

// -----

// A module in which nothing is converted stays as it is.

// CHECK-LABEL: module @none
module @none {
  // CHECK-NEXT: sdy.mesh @mesh
  sdy.mesh @mesh = <["gpu"=4]>
}
