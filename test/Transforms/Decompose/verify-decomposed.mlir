// Decomposed IR is as it was. Starts and waits are a schedule, which is
// decomposed too, but not in place.

// RUN: zpp-opt %s --zero-verify-decomposed -o %t.mlir
// RUN: zpp-opt %s -o - | diff %t.mlir -
// RUN: not zpp-opt %s --zero-verify-decomposed=in-place -o %t.none.mlir 2>&1 \
// RUN:   | FileCheck %s && not ls %t.none.mlir 2> /dev/null

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
module @zpp_host {
  func.func @gather(%x: tensor<4xf32>) -> tensor<4x4xf32> {
    %e = tensor.empty() : tensor<4x4xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e
        : tensor<4xf32> into tensor<4x4xf32> -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}

// CHECK: verify-decomposed.mlir:[[#@LINE+2]]:8: error: expected no starts and waits, but got 'zero.start', which zero-outline-collectives creates
func.func @step(%x: tensor<4xf32>) -> tensor<4x4xf32> {
  %0 = zero.start @zpp_host::@gather(%x) {origins = [{id = 3}]}
      : (tensor<4xf32>) -> tensor<4x4xf32>
  // CHECK: verify-decomposed.mlir:[[#@LINE+1]]:8: error: expected no starts and waits, but got 'zero.wait'
  %1 = zero.wait %0 from(%x : tensor<4xf32>) : tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
