// Temporary buffers of functions, their callees and loops in one workspace;
// copies with strides.

// RUN: zpp-run %s --entry=twice --compare=identity | FileCheck %s
// RUN: zpp-run %s --entry=columns --compare=twice --tolerance=0 | FileCheck %s
// RUN: zpp-run %s --entry=public_callee --compare=twice --tolerance=0 | FileCheck %s
// CHECK: result 0: relative L2 error 0.000e+00, bound 0.000e+00: ok

// Nothing is left to malloc.
// RUN: zpp-opt %s --zero-to-llvm | FileCheck %s --check-prefix=MEMORY
// MEMORY-NOT: @malloc
// MEMORY-NOT: @free

#mesh = #zero.mesh<"gpu" = 2>

func.func @identity(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  return %x : tensor<2x3x4xf32>
}
// Exchanged twice everything is back.
func.func private @once(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %0 = tensor.empty() : tensor<2x3x4xf32>
  %1 = zero.all_to_all %x along ["gpu"] on #mesh into %0
      : tensor<2x3x4xf32> into tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  %2 = tensor.empty() : tensor<2x3x4xf32>
  %3 = zero.all_to_all %1 along ["gpu"] on #mesh into %2
      : tensor<2x3x4xf32> into tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  %4 = tensor.empty() : tensor<2x3x4xf32>
  %5 = zero.all_to_all %3 along ["gpu"] on #mesh into %4
      : tensor<2x3x4xf32> into tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  return %5 : tensor<2x3x4xf32>
}
func.func @twice(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %0 = tensor.empty() : tensor<2x3x4xf32>
  %1 = zero.all_to_all %x along ["gpu"] on #mesh into %0
      : tensor<2x3x4xf32> into tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  %2 = tensor.empty() : tensor<2x3x4xf32>
  %3 = zero.all_to_all %1 along ["gpu"] on #mesh into %2
      : tensor<2x3x4xf32> into tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  return %3 : tensor<2x3x4xf32>
}
func.func @public_callee(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %0 = func.call @once(%x) : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %1 = func.call @twice(%0) : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %2 = func.call @once(%1) : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %2 : tensor<2x3x4xf32>
}

// Parts that lie apart in both dims: the copies are calls in a loop.
func.func @columns(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %e = tensor.empty() : tensor<2x3x4xf32>
  %0 = tensor.extract_slice %x[0, 0, 0] [2, 2, 3] [1, 1, 1] : tensor<2x3x4xf32> to tensor<2x2x3xf32>
  %1 = tensor.extract_slice %x[0, 2, 0] [2, 1, 4] [1, 1, 1] : tensor<2x3x4xf32> to tensor<2x1x4xf32>
  %2 = tensor.extract_slice %x[0, 0, 3] [2, 2, 1] [1, 1, 1] : tensor<2x3x4xf32> to tensor<2x2x1xf32>
  %3 = func.call @part(%0) : (tensor<2x2x3xf32>) -> tensor<2x2x3xf32>
  %4 = tensor.insert_slice %3 into %e[0, 0, 0] [2, 2, 3] [1, 1, 1] : tensor<2x2x3xf32> into tensor<2x3x4xf32>
  %5 = tensor.insert_slice %1 into %4[0, 2, 0] [2, 1, 4] [1, 1, 1] : tensor<2x1x4xf32> into tensor<2x3x4xf32>
  %6 = tensor.insert_slice %2 into %5[0, 0, 3] [2, 2, 1] [1, 1, 1] : tensor<2x2x1xf32> into tensor<2x3x4xf32>
  return %6 : tensor<2x3x4xf32>
}
func.func private @part(%x: tensor<2x2x3xf32>) -> tensor<2x2x3xf32> {
  %0 = tensor.empty() : tensor<2x2x3xf32>
  %1 = zero.all_to_all %x along ["gpu"] on #mesh into %0
      : tensor<2x2x3xf32> into tensor<2x2x3xf32> -> tensor<2x2x3xf32>
  %2 = tensor.empty() : tensor<2x2x3xf32>
  %3 = zero.all_to_all %1 along ["gpu"] on #mesh into %2
      : tensor<2x2x3xf32> into tensor<2x2x3xf32> -> tensor<2x2x3xf32>
  return %3 : tensor<2x2x3xf32>
}
