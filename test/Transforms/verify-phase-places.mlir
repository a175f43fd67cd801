// After the schedule, no more is in flight under compute than may be, but for
// one transfer alone, and weights are waited for where they are needed.

// RUN: split-file %s %t
// RUN: sed 's/LIMIT/2048/' %t/two.mlir | zpp-opt --zero-verify-phase=after=schedule -o /dev/null
// RUN: sed 's/LIMIT/1024/' %t/two.mlir | not zpp-opt --zero-verify-phase=after=schedule -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=TWO
// Nothing is known of a limit.
// RUN: sed 's/attributes {.*LIMIT.*} {/{/' %t/two.mlir | zpp-opt --zero-verify-phase=after=schedule -o /dev/null
// RUN: zpp-opt %t/one.mlir --zero-verify-phase=after=schedule -o /dev/null
// RUN: not zpp-opt %t/early.mlir --zero-verify-phase=after=schedule -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=EARLY

// TWO-COUNT-2: error: expected at most 1024 bytes in flight, but got 2048
// TWO-NOT: error:
// EARLY: error: expected a wait where weights are needed, but got one with a heavy op in between
// EARLY-NOT: error:

//--- two.mlir
#mesh = #zero.mesh<"gpu" = 4>
module attributes {zpp.prefetch_bytes = LIMIT : i64} {
module @zpp_host {
  func.func @gather(%x: tensor<4x16xf32>) -> tensor<16x16xf32> {
    %e = tensor.empty() : tensor<4x4x16xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<4x16xf32> into tensor<4x4x16xf32> -> tensor<4x4x16xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<4x4x16xf32> into tensor<16x16xf32>
    return %1 : tensor<16x16xf32>
  }
}
func.func @step(%u: tensor<4x16xf32>, %v: tensor<4x16xf32>, %x: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %0 = zero.start @zpp_host::@gather(%u) {origins = [{id = 0, role = "weight"}]} : (tensor<4x16xf32>) -> tensor<16x16xf32>
  %1 = zero.start @zpp_host::@gather(%v) {origins = [{id = 1, role = "weight"}]} : (tensor<4x16xf32>) -> tensor<16x16xf32>
  %2 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %3 = zero.wait %0 from(%u : tensor<4x16xf32>) : tensor<16x16xf32>
  %4 = stablehlo.dot_general %2, %3, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %5 = zero.wait %1 from(%v : tensor<4x16xf32>) : tensor<16x16xf32>
  %6 = stablehlo.dot_general %4, %5, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %6 : tensor<16x16xf32>
}
}

//--- one.mlir
#mesh = #zero.mesh<"gpu" = 4>
module attributes {zpp.prefetch_bytes = 512 : i64} {
module @zpp_host {
  func.func @gather(%x: tensor<4x16xf32>) -> tensor<16x16xf32> {
    %e = tensor.empty() : tensor<4x4x16xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<4x16xf32> into tensor<4x4x16xf32> -> tensor<4x4x16xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<4x4x16xf32> into tensor<16x16xf32>
    return %1 : tensor<16x16xf32>
  }
}
func.func @step(%u: tensor<4x16xf32>, %x: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %0 = zero.start @zpp_host::@gather(%u) {origins = [{id = 0, role = "weight"}]} : (tensor<4x16xf32>) -> tensor<16x16xf32>
  %1 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %2 = zero.wait %0 from(%u : tensor<4x16xf32>) : tensor<16x16xf32>
  %3 = stablehlo.dot_general %1, %2, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %3 : tensor<16x16xf32>
}
}

//--- early.mlir
#mesh = #zero.mesh<"gpu" = 4>
module attributes {zpp.prefetch_bytes = 2048 : i64} {
module @zpp_host {
  func.func @gather(%x: tensor<4x16xf32>) -> tensor<16x16xf32> {
    %e = tensor.empty() : tensor<4x4x16xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<4x16xf32> into tensor<4x4x16xf32> -> tensor<4x4x16xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<4x4x16xf32> into tensor<16x16xf32>
    return %1 : tensor<16x16xf32>
  }
}
func.func @step(%u: tensor<4x16xf32>, %x: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %0 = zero.start @zpp_host::@gather(%u) {origins = [{id = 0, role = "weight"}]} : (tensor<4x16xf32>) -> tensor<16x16xf32>
  %1 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %2 = zero.wait %0 from(%u : tensor<4x16xf32>) : tensor<16x16xf32>
  %3 = stablehlo.dot_general %1, %1, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %4 = stablehlo.dot_general %3, %2, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %4 : tensor<16x16xf32>
}
}
