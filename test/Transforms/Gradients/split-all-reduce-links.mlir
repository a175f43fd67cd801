// RUN: zpp-opt %s --zero-import-collectives="mesh=node:2,gpu:4 links=node=50gbit,gpu=400gbyte" --zero-split-all-reduce=stages=0 \
// RUN:   --remarks-filter=.* 2>&1 | FileCheck %s --check-prefix=SLOW
// RUN: zpp-opt %s --zero-import-collectives="mesh=node:2,gpu:4 links=node=400gbyte,gpu=400gbyte" --zero-split-all-reduce=stages=0 \
// RUN:   2>&1 | FileCheck %s --check-prefix=FAST
// RUN: zpp-opt %s --zero-split-all-reduce=stages=3 | FileCheck %s --check-prefix=THREE
// RUN: zpp-opt %s --zero-split-all-reduce=stages=3 \
// RUN:   --zero-decompose-reduce-scatter=stages=3 \
// RUN:   | FileCheck %s --check-prefix=DECOMPOSED
// RUN: not zpp-opt %s --zero-split-all-reduce=stages=-1 2>&1 \
// RUN:   | FileCheck %s --check-prefix=NEGATIVE

// NEGATIVE: error: expected 1 to 1024 stages, or 0 to choose, but got -1

// An all-reduce is split where that is faster, and a large one cut into parts
// that travel one after the other, each on its own. What hops would not make
// faster is left to the communication library.

#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!large = !zero.shard<16777216xbf16, dim 0 = () on #mesh>
!small = !zero.shard<8192xbf16, dim 0 = () on #mesh>

// SLOW: zero.all_reduce is left alone: on these links it takes 43 usec, in hops
// SLOW-LABEL: func @step
// SLOW: %[[PART:.*]] = tensor.extract_slice %arg0[0] [{{[0-9]+}}] [1]
// SLOW: zero.from_local %[[PART]]
// SLOW: zero.reduce_scatter sum %{{.*}} along ["gpu"] wire <i8, block = 128>
// SLOW: zero.reduce_scatter sum %{{.*}} along ["node"] wire <i4, block = 128>
// SLOW: tensor.extract_slice %arg0
// SLOW: tensor.concat dim(0)
// SLOW: "stablehlo.all_reduce"(%arg1)

// FAST-LABEL: func @step
// FAST: zpp.reason = "on these links it takes 42 usec, in hops {{[0-9]+}}"

// THREE-LABEL: func @step
// THREE: tensor.extract_slice %arg0[0] [559{{[0-9]+}}] [1]
// THREE: tensor.extract_slice
// THREE: tensor.extract_slice
// THREE-NOT: tensor.extract_slice
// THREE: tensor.concat dim(0) %{{.*}}, %{{.*}}, %{{.*}} :
// What is cut is not cut again.
// DECOMPOSED-COUNT-8: zero.all_to_all
// DECOMPOSED-NOT: zero.all_to_all
func.func @step(%g: tensor<16777216xbf16>, %h: tensor<8192xbf16>) -> (tensor<16777216xbf16>, tensor<8192xbf16>) {
  %0 = zero.from_local %g : tensor<16777216xbf16> to !large
  %1 = zero.all_reduce sum %0 along ["node", "gpu"] : !large
  %2 = zero.to_local %1 : !large to tensor<16777216xbf16>
  %3 = zero.from_local %h : tensor<8192xbf16> to !small
  %4 = zero.all_reduce sum %3 along ["node", "gpu"] : !small
  %5 = zero.to_local %4 : !small to tensor<8192xbf16>
  return %2, %5 : tensor<16777216xbf16>, tensor<8192xbf16>
}
