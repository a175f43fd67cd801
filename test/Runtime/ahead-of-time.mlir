// An object file instead of a JIT: the shared library that a C program loads on
// all ranks.

// UNSUPPORTED: sanitizer
// RUN: rm -rf %t && mkdir %t
// RUN: zpp-opt %s --zero-decompose-all-gather --zero-fuse-quantization --zero-to-llvm | mlir-translate --mlir-to-llvmir | llc -filetype=obj -relocation-model=pic -o %t/step.o
// RUN: %cxx -shared %t/step.o -o %t/libstep.so -L%zpp_obj/lib -lzpp_rt -Wl,-rpath,%zpp_obj/lib
// RUN: %cxx -x c -std=c99 -pedantic -Wall -Wextra -Wno-missing-field-initializers -Werror -I%zpp_src/include %S/Inputs/ahead-of-time.c -o %t/main -L%t -lstep -L%zpp_obj/lib -lzpp_rt -Wl,-rpath,%zpp_obj/lib -Wl,-rpath,%t -lpthread
// RUN: %t/main | FileCheck %s

#mesh = #zero.mesh<"node" = 2, "gpu" = 3>
!slice = !zero.shard<40xf32, dim 0 = ("node", "gpu") on #mesh>
!slice_q = !zero.shard<40xf32, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8, block = 32>>
!whole_q = !zero.shard<40xf32, dim 0 = (2, 3) on #mesh, #zero.quant<i8, block = 32>>
!whole = !zero.shard<40xf32, dim 0 = (2, 3) on #mesh>

// The C program gives rank r seven values 127 * (r + 1), exact in i8; 40 of
// them exist.
// CHECK: 127 127 127 127 127 127 127 254 254 254 254 254 254 254 381 381 381 381 381 381 381 508 508 508 508 508 508 508 635 635 635 635 635 635 635 762 762 762 762 762
func.func @step(%w: tensor<7xf32>) -> tensor<40xf32> {
  %0 = zero.from_local %w : tensor<7xf32> to !slice
  %1 = zero.encode %0 : !slice to !slice_q
  %2 = zero.all_gather %1 along ["node", "gpu"] : !slice_q to !whole_q
  %3 = zero.decode %2 : !whole_q to !whole
  %4 = zero.to_local %3 : !whole to tensor<40xf32>
  return %4 : tensor<40xf32>
}
