// RUN: zpp-opt %s --zero-plan-loops --zero-write-loops=staying --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-plan-loops --zero-write-loops=staying --zero-plan-loops --zero-write-loops=staying --remarks-filter=none --split-input-file | FileCheck %s
// RUN: zpp-opt %s --zero-plan-loops --zero-write-loops=staying --remarks-filter=zero-write-loops --split-input-file -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=REMARK
// RUN: zpp-opt %s --zero-plan-loops --zero-write-loops="staying prefetch-bytes=2047" --remarks-filter=zero-write-loops --split-input-file 2>&1 \
// RUN:   | FileCheck %s --check-prefix=NONE
// RUN: not zpp-opt %s --zero-write-loops=prefetch-bytes=-1 --split-input-file -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=NEGATIVE

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}

func.func @layers(%x: tensor<32x16xf32>, %w: tensor<3x2x32xf32>) -> tensor<32x16xf32> {

  %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
  %two = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : () -> tensor<i32>
  %three = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>
  %r:3 = "stablehlo.while"(%zero, %x, %w) ({

  ^bb0(%i: tensor<i32>, %a: tensor<32x16xf32>, %s: tensor<3x2x32xf32>):
    %c = "stablehlo.compare"(%i, %three) : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%c) : (tensor<i1>) -> ()
  }, {

  ^bb0(%i: tensor<i32>, %a: tensor<32x16xf32>, %s: tensor<3x2x32xf32>):

    %l = "stablehlo.subtract"(%two, %i) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %0 = "stablehlo.dynamic_slice"(%s, %l, %zero, %zero) <{slice_sizes = array<i64: 1, 2, 32>}>
        : (tensor<3x2x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
    %1 = "stablehlo.reshape"(%0) : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
    %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
    %3 = zero.wait %2 from(%1 : tensor<2x32xf32>) : tensor<16x32xf32>
    %4 = "stablehlo.transpose"(%3) <{permutation = array<i64: 1, 0>}> : (tensor<16x32xf32>) -> tensor<32x16xf32>
    %5 = "stablehlo.dot_general"(%4, %a) : (tensor<32x16xf32>, tensor<32x16xf32>) -> tensor<16x16xf32>
    %6 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
    %7 = zero.wait %6 from(%1 : tensor<2x32xf32>) : tensor<16x32xf32>
    %8 = "stablehlo.dot_general"(%7, %5) : (tensor<16x32xf32>, tensor<16x16xf32>) -> tensor<32x16xf32>
    %n = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "stablehlo.return"(%n, %8, %s) : (tensor<i32>, tensor<32x16xf32>, tensor<3x2x32xf32>) -> ()
  }) : (tensor<i32>, tensor<32x16xf32>, tensor<3x2x32xf32>) -> (tensor<i32>, tensor<32x16xf32>, tensor<3x2x32xf32>)
  return %r#1 : tensor<32x16xf32>
}

// -----

#mesh = #zero.mesh<"gpu" = 8>
module @zpp_host {
  func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
    %e = tensor.empty() : tensor<8x2x32xf32>
    %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e : tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
    %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}

func.func @computed(%x: tensor<2x32xf32>) -> tensor<2x32xf32> {

  %r = "stablehlo.while"(%x) ({
  ^bb0(%a: tensor<2x32xf32>):
    %true = "stablehlo.constant"() <{value = dense<true> : tensor<i1>}> : () -> tensor<i1>
    "stablehlo.return"(%true) : (tensor<i1>) -> ()
  }, {
  ^bb0(%a: tensor<2x32xf32>):
    %0 = zero.start @zpp_host::@gather(%a) {origins = [{role = "weight"}]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
    %1 = zero.wait %0 from(%a : tensor<2x32xf32>) : tensor<16x32xf32>
    %2 = "stablehlo.dot_general"(%a, %1) : (tensor<2x32xf32>, tensor<16x32xf32>) -> tensor<2x32xf32>
    "stablehlo.return"(%2) : (tensor<2x32xf32>) -> ()
  }) : (tensor<2x32xf32>) -> tensor<2x32xf32>
  return %r : tensor<2x32xf32>
}
