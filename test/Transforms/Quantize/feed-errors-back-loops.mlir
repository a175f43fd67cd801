// A loop carries what is kept of hops in its body: a layer per iteration, or what
// the iteration before has kept.
// RUN: zpp-opt %s --zero-feed-errors-back=hops=all --split-input-file --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-feed-errors-back=hops=all --zero-feed-errors-back=hops=all --split-input-file --remarks-filter=none | FileCheck %s
// RUN: zpp-opt %s --zero-feed-errors-back="hops=all start=true" --split-input-file --remarks-filter=none | FileCheck %s --check-prefix=START
// RUN: zpp-opt %s --zero-feed-errors-back=hops=all --split-input-file --remarks-filter=zero-feed-errors-back -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: zpp-opt %S/../../Inputs/fsdp-2x4-scan.mlir --remarks-filter=none \
// RUN:   --zeropp="mesh=node:2,gpu:4 feedback=last tuning.block=32" --zero-report=format=table -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=REPORT

// REPORT: from step to step, a device keeps {{.*}} of what gradients lost in rounding

// Layers, from the last one on: as many slices as iterations. The slice that an
// iteration takes is the one that it leaves.

#mesh = #zero.mesh<"gpu" = 4>

"sdy.mesh"() <{mesh = #sdy.mesh<["gpu"=4]>, sym_name = "mesh"}> : () -> ()

// CHECK: zpp.state = [{kind = "error", type = tensor<6144xbf16>}]
// CHECK-LABEL: func public @layers
// CHECK: ^bb0({{.*}}, %[[FLAT:.*]]: tensor<1536xbf16>):
// CHECK: %[[STACK:.*]] = "stablehlo.reshape"(%[[FLAT]]) : (tensor<1536xbf16>) -> tensor<3x16x32xbf16>
// CHECK: %[[LOOP:.*]]:3 = "stablehlo.while"(%{{.*}}, %{{.*}}, %[[STACK]])
// CHECK: ^bb0(%[[I:.*]]: tensor<i32>, %{{.*}}: tensor<3x4x32xf32>, %[[ERRORS:.*]]: tensor<3x16x32xbf16>):
// CHECK: stablehlo.compare
// CHECK: ^bb0(%[[I:.*]]: tensor<i32>, %{{.*}}: tensor<3x4x32xf32>, %[[ERRORS:.*]]: tensor<3x16x32xbf16>):
// CHECK: %[[ROW:.*]] = "stablehlo.dynamic_slice"(%[[ERRORS]], %[[I]], %[[ZERO:.*]], %[[ZERO]]) <{slice_sizes = array<i64: 1, 16, 32>}>
// CHECK: %[[LAYER:.*]] = "stablehlo.reshape"(%[[ROW]])
// CHECK: %[[WIDE:.*]] = "stablehlo.convert"(%[[LAYER]])
// CHECK: %[[WANTED:.*]] = "stablehlo.add"(%{{.*}}, %[[WIDE]])
// CHECK: zero.quantize %[[WANTED]]
// CHECK: %[[LOST:.*]] = "stablehlo.convert"({{.*}}) : (tensor<16x32xf32>) -> tensor<16x32xbf16>
// CHECK: %[[NEXT:.*]] = "stablehlo.reshape"(%[[LOST]])
// CHECK: %[[LEFT:.*]] = "stablehlo.dynamic_update_slice"(%[[ERRORS]], %[[NEXT]], %[[I]],
// CHECK: "stablehlo.return"({{.*}}, %[[LEFT]])
// CHECK: "stablehlo.reshape"(%[[LOOP]]#2) : (tensor<3x16x32xbf16>) -> tensor<1536xbf16>

// Nothing is added to what the first step sends.
// START-LABEL: func public @layers
// START: %[[ZEROS:.*]] = "stablehlo.broadcast_in_dim"({{.*}}) {{.*}} -> tensor<3x16x32xbf16>
// START: "stablehlo.while"(%{{.*}}, %{{.*}}, %[[ZEROS]])
// START-NOT: "stablehlo.dynamic_slice"
// START: "stablehlo.dynamic_update_slice"({{.*}}) : (tensor<3x16x32xbf16>
// REMARK: what it rounds is added to what the next step sends
func.func public @layers(%gradients: tensor<64x32xf32>) -> tensor<3x16x32xf32> {
  %0 = "sdy.manual_computation"(%gradients) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}, {}]>]>, manual_axes = #sdy<manual_axes{"gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"gpu"}, {}]>]>}> ({
  ^bb0(%g: tensor<16x32xf32>):
    %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %three = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>
    %stack = "stablehlo.constant"() <{value = dense<0.0> : tensor<3x4x32xf32>}> : () -> tensor<3x4x32xf32>
    %1:2 = "stablehlo.while"(%zero, %stack) ({
    ^bb0(%i: tensor<i32>, %s: tensor<3x4x32xf32>):
      %2 = "stablehlo.compare"(%i, %three) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%2) : (tensor<i1>) -> ()
    }, {
    ^bb0(%i: tensor<i32>, %s: tensor<3x4x32xf32>):
      %e0 = tensor.empty() : tensor<4x4x32xf32>
      %2 = zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0]> into %e0 : tensor<16x32xf32> into tensor<4x4x32xf32> -> tensor<4x4x32xf32>
      %e1 = tensor.empty() : tensor<4x80xi8>
      %3 = zero.quantize %2 quant <i4, block = 32> into %e1 : tensor<4x4x32xf32> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e2 = tensor.empty() : tensor<4x80xi8>
      %4 = zero.all_to_all %3 along ["gpu"] on #mesh into %e2 : tensor<4x80xi8> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e3 = tensor.empty() : tensor<4x4x32xf32>
      %5 = zero.dequantize %4 quant <i4, block = 32> into %e3 : tensor<4x80xi8> into tensor<4x4x32xf32> -> tensor<4x4x32xf32>
      %e4 = tensor.empty() : tensor<4x32xf32>
      %6 = zero.reduce sum %5 into %e4 : tensor<4x4x32xf32> into tensor<4x32xf32> -> tensor<4x32xf32>
      %7 = "stablehlo.subtract"(%three, %i) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %8 = "stablehlo.subtract"(%7, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %9 = "stablehlo.reshape"(%6) : (tensor<4x32xf32>) -> tensor<1x4x32xf32>
      %10 = "stablehlo.dynamic_update_slice"(%s, %9, %8, %zero, %zero) : (tensor<3x4x32xf32>, tensor<1x4x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x4x32xf32>
      %11 = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%11, %10) : (tensor<i32>, tensor<3x4x32xf32>) -> ()
    }) : (tensor<i32>, tensor<3x4x32xf32>) -> (tensor<i32>, tensor<3x4x32xf32>)
    "sdy.return"(%1#1) : (tensor<3x4x32xf32>) -> ()
  }) : (tensor<64x32xf32>) -> tensor<3x16x32xf32>
  return %0 : tensor<3x16x32xf32>
}

// -----

// Micro-batches, as many as the step says: what one keeps, the next one adds,
// also in the first step.

#mesh = #zero.mesh<"gpu" = 4>

"sdy.mesh"() <{mesh = #sdy.mesh<["gpu"=4]>, sym_name = "mesh"}> : () -> ()

// CHECK: zpp.state = [{kind = "error", type = tensor<2048xbf16>}]
// CHECK-LABEL: func public @micro_batches
// CHECK: %[[LOOP:.*]]:3 = "stablehlo.while"
// CHECK: ^bb0({{.*}}, %{{.*}}: tensor<16x32xbf16>):
// CHECK: ^bb0({{.*}}, %[[ERROR:.*]]: tensor<16x32xbf16>):
// CHECK-NOT: dynamic_slice
// CHECK: %[[WIDE:.*]] = "stablehlo.convert"(%[[ERROR]])
// CHECK: "stablehlo.add"(%{{.*}}, %[[WIDE]])
// CHECK: %[[LOST:.*]] = "stablehlo.convert"({{.*}}) : (tensor<16x32xf32>) -> tensor<16x32xbf16>
// CHECK: "stablehlo.return"({{.*}}, %[[LOST]])
// CHECK: "stablehlo.reshape"(%[[LOOP]]#2)

// START-LABEL: func public @micro_batches
// START: %[[ZEROS:.*]] = "stablehlo.broadcast_in_dim"({{.*}}) {{.*}} -> tensor<16x32xbf16>
// START: "stablehlo.while"(%{{.*}}, %{{.*}}, %[[ZEROS]])
// START: ^bb0
// START: ^bb0({{.*}}, %[[ERROR:.*]]: tensor<16x32xbf16>):
// START: "stablehlo.convert"(%[[ERROR]])
// REMARK: what it rounds is added to what the next step sends
func.func public @micro_batches(%gradients: tensor<64x32xf32>, %count: tensor<i32>) -> tensor<16x32xf32> {
  %0 = "sdy.manual_computation"(%gradients, %count) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}, {}]>, <@mesh, []>]>, manual_axes = #sdy<manual_axes{"gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}, {}]>]>}> ({
  ^bb0(%g: tensor<16x32xf32>, %end: tensor<i32>):
    %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %none = "stablehlo.constant"() <{value = dense<0.0> : tensor<4x32xf32>}> : () -> tensor<4x32xf32>
    %1:2 = "stablehlo.while"(%zero, %none) ({
    ^bb0(%i: tensor<i32>, %s: tensor<4x32xf32>):
      %2 = "stablehlo.compare"(%i, %end) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%2) : (tensor<i1>) -> ()
    }, {
    ^bb0(%i: tensor<i32>, %s: tensor<4x32xf32>):
      %e0 = tensor.empty() : tensor<4x4x32xf32>
      %2 = zero.pack_slices %g slices <dim = 0, factors = [4], chunk = [0]> into %e0 : tensor<16x32xf32> into tensor<4x4x32xf32> -> tensor<4x4x32xf32>
      %e1 = tensor.empty() : tensor<4x80xi8>
      %3 = zero.quantize %2 quant <i4, block = 32> into %e1 : tensor<4x4x32xf32> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e2 = tensor.empty() : tensor<4x80xi8>
      %4 = zero.all_to_all %3 along ["gpu"] on #mesh into %e2 : tensor<4x80xi8> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e3 = tensor.empty() : tensor<4x4x32xf32>
      %5 = zero.dequantize %4 quant <i4, block = 32> into %e3 : tensor<4x80xi8> into tensor<4x4x32xf32> -> tensor<4x4x32xf32>
      %e4 = tensor.empty() : tensor<4x32xf32>
      %6 = zero.reduce sum %5 into %e4 : tensor<4x4x32xf32> into tensor<4x32xf32> -> tensor<4x32xf32>
      %7 = "stablehlo.add"(%s, %6) : (tensor<4x32xf32>, tensor<4x32xf32>) -> tensor<4x32xf32>
      %11 = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%11, %7) : (tensor<i32>, tensor<4x32xf32>) -> ()
    }) : (tensor<i32>, tensor<4x32xf32>) -> (tensor<i32>, tensor<4x32xf32>)
    "sdy.return"(%1#1) : (tensor<4x32xf32>) -> ()
  }) : (tensor<64x32xf32>, tensor<i32>) -> tensor<16x32xf32>
  return %0 : tensor<16x32xf32>
}

// -----

// The step says which layer an iteration is of.

#mesh = #zero.mesh<"gpu" = 4>

"sdy.mesh"() <{mesh = #sdy.mesh<["gpu"=4]>, sym_name = "mesh"}> : () -> ()

// CHECK-NOT: zpp.state
// CHECK-LABEL: func public @order
// CHECK-NOT: bf16
// REMARK: what it rounds is not fed back: the loop stores it at an index that does not follow from the number of the iteration alone
func.func public @order(%gradients: tensor<64x32xf32>, %order_: tensor<3xi32>) -> tensor<3x16x32xf32> {
  %0 = "sdy.manual_computation"(%gradients, %order_) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}, {}]>, <@mesh, []>]>, manual_axes = #sdy<manual_axes{"gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"gpu"}, {}]>]>}> ({
  ^bb0(%g: tensor<16x32xf32>, %order: tensor<3xi32>):
    %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %three = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>
    %stack = "stablehlo.constant"() <{value = dense<0.0> : tensor<3x4x32xf32>}> : () -> tensor<3x4x32xf32>
    %none = "stablehlo.constant"() <{value = dense<0.0> : tensor<4x32xf32>}> : () -> tensor<4x32xf32>
    %1:3 = "stablehlo.while"(%zero, %stack, %none) ({
    ^bb0(%i: tensor<i32>, %s: tensor<3x4x32xf32>, %last: tensor<4x32xf32>):
      %2 = "stablehlo.compare"(%i, %three) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%2) : (tensor<i1>) -> ()
    }, {
    ^bb0(%i: tensor<i32>, %s: tensor<3x4x32xf32>, %last: tensor<4x32xf32>):
      %e1 = tensor.empty() : tensor<4x80xi8>
      %3 = zero.quantize %g quant <i4, block = 32> slices <dim = 0, factors = [4], chunk = [0]> into %e1 : tensor<16x32xf32> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e2 = tensor.empty() : tensor<4x80xi8>
      %4 = zero.all_to_all %3 along ["gpu"] on #mesh into %e2 : tensor<4x80xi8> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e3 = tensor.empty() : tensor<4x4x32xf32>
      %5 = zero.dequantize %4 quant <i4, block = 32> into %e3 : tensor<4x80xi8> into tensor<4x4x32xf32> -> tensor<4x4x32xf32>
      %e4 = tensor.empty() : tensor<4x32xf32>
      %6 = zero.reduce sum %5 into %e4 : tensor<4x4x32xf32> into tensor<4x32xf32> -> tensor<4x32xf32>
      %7 = "stablehlo.dynamic_slice"(%order, %i) <{slice_sizes = array<i64: 1>}> : (tensor<3xi32>, tensor<i32>) -> tensor<1xi32>
      %8 = "stablehlo.reshape"(%7) : (tensor<1xi32>) -> tensor<i32>
      %9 = "stablehlo.reshape"(%6) : (tensor<4x32xf32>) -> tensor<1x4x32xf32>
      %10 = "stablehlo.dynamic_update_slice"(%s, %9, %8, %zero, %zero) : (tensor<3x4x32xf32>, tensor<1x4x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x4x32xf32>
      %12 = "stablehlo.add"(%last, %none) : (tensor<4x32xf32>, tensor<4x32xf32>) -> tensor<4x32xf32>
      %11 = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%11, %10, %12) : (tensor<i32>, tensor<3x4x32xf32>, tensor<4x32xf32>) -> ()
    }) : (tensor<i32>, tensor<3x4x32xf32>, tensor<4x32xf32>) -> (tensor<i32>, tensor<3x4x32xf32>, tensor<4x32xf32>)
    "sdy.return"(%1#1) : (tensor<3x4x32xf32>) -> ()
  }) : (tensor<64x32xf32>, tensor<3xi32>) -> tensor<3x16x32xf32>
  return %0 : tensor<3x16x32xf32>
}

// -----

// The step says how many layers there are.

#mesh = #zero.mesh<"gpu" = 4>

"sdy.mesh"() <{mesh = #sdy.mesh<["gpu"=4]>, sym_name = "mesh"}> : () -> ()

// CHECK-NOT: zpp.state
// CHECK-LABEL: func public @count
// CHECK-NOT: bf16
// REMARK: what it rounds is not fed back: the loop does not count its iterations from 0 to a constant, and each has a place of its own for it
func.func public @count(%gradients: tensor<64x32xf32>, %count_: tensor<i32>) -> tensor<3x16x32xf32> {
  %0 = "sdy.manual_computation"(%gradients, %count_) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}, {}]>, <@mesh, []>]>, manual_axes = #sdy<manual_axes{"gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"gpu"}, {}]>]>}> ({
  ^bb0(%g: tensor<16x32xf32>, %count: tensor<i32>):
    %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %three = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>
    %stack = "stablehlo.constant"() <{value = dense<0.0> : tensor<3x4x32xf32>}> : () -> tensor<3x4x32xf32>
    %none = "stablehlo.constant"() <{value = dense<0.0> : tensor<4x32xf32>}> : () -> tensor<4x32xf32>
    %1:3 = "stablehlo.while"(%zero, %stack, %none) ({
    ^bb0(%i: tensor<i32>, %s: tensor<3x4x32xf32>, %last: tensor<4x32xf32>):
      %2 = "stablehlo.compare"(%i, %count) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%2) : (tensor<i1>) -> ()
    }, {
    ^bb0(%i: tensor<i32>, %s: tensor<3x4x32xf32>, %last: tensor<4x32xf32>):
      %e1 = tensor.empty() : tensor<4x80xi8>
      %3 = zero.quantize %g quant <i4, block = 32> slices <dim = 0, factors = [4], chunk = [0]> into %e1 : tensor<16x32xf32> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e2 = tensor.empty() : tensor<4x80xi8>
      %4 = zero.all_to_all %3 along ["gpu"] on #mesh into %e2 : tensor<4x80xi8> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e3 = tensor.empty() : tensor<4x4x32xf32>
      %5 = zero.dequantize %4 quant <i4, block = 32> into %e3 : tensor<4x80xi8> into tensor<4x4x32xf32> -> tensor<4x4x32xf32>
      %e4 = tensor.empty() : tensor<4x32xf32>
      %6 = zero.reduce sum %5 into %e4 : tensor<4x4x32xf32> into tensor<4x32xf32> -> tensor<4x32xf32>
      %9 = "stablehlo.reshape"(%6) : (tensor<4x32xf32>) -> tensor<1x4x32xf32>
      %10 = "stablehlo.dynamic_update_slice"(%s, %9, %i, %zero, %zero) : (tensor<3x4x32xf32>, tensor<1x4x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x4x32xf32>
      %12 = "stablehlo.add"(%last, %none) : (tensor<4x32xf32>, tensor<4x32xf32>) -> tensor<4x32xf32>
      %11 = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%11, %10, %12) : (tensor<i32>, tensor<3x4x32xf32>, tensor<4x32xf32>) -> ()
    }) : (tensor<i32>, tensor<3x4x32xf32>, tensor<4x32xf32>) -> (tensor<i32>, tensor<3x4x32xf32>, tensor<4x32xf32>)
    "sdy.return"(%1#1) : (tensor<3x4x32xf32>) -> ()
  }) : (tensor<64x32xf32>, tensor<i32>) -> tensor<3x16x32xf32>
  return %0 : tensor<3x16x32xf32>
}

// -----

// The next iteration stores it.

#mesh = #zero.mesh<"gpu" = 4>

"sdy.mesh"() <{mesh = #sdy.mesh<["gpu"=4]>, sym_name = "mesh"}> : () -> ()

// CHECK-NOT: zpp.state
// CHECK-LABEL: func public @handed_on
// CHECK-NOT: bf16
// REMARK: what it rounds is not fed back: the loop hands it to its next iteration, which may use it for anything
func.func public @handed_on(%gradients: tensor<64x32xf32>) -> tensor<3x16x32xf32> {
  %0 = "sdy.manual_computation"(%gradients) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}, {}]>]>, manual_axes = #sdy<manual_axes{"gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"gpu"}, {}]>]>}> ({
  ^bb0(%g: tensor<16x32xf32>):
    %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %three = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>
    %stack = "stablehlo.constant"() <{value = dense<0.0> : tensor<3x4x32xf32>}> : () -> tensor<3x4x32xf32>
    %none = "stablehlo.constant"() <{value = dense<0.0> : tensor<4x32xf32>}> : () -> tensor<4x32xf32>
    %1:3 = "stablehlo.while"(%zero, %stack, %none) ({
    ^bb0(%i: tensor<i32>, %s: tensor<3x4x32xf32>, %last: tensor<4x32xf32>):
      %2 = "stablehlo.compare"(%i, %three) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%2) : (tensor<i1>) -> ()
    }, {
    ^bb0(%i: tensor<i32>, %s: tensor<3x4x32xf32>, %last: tensor<4x32xf32>):
      %e1 = tensor.empty() : tensor<4x80xi8>
      %3 = zero.quantize %g quant <i4, block = 32> slices <dim = 0, factors = [4], chunk = [0]> into %e1 : tensor<16x32xf32> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e2 = tensor.empty() : tensor<4x80xi8>
      %4 = zero.all_to_all %3 along ["gpu"] on #mesh into %e2 : tensor<4x80xi8> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e3 = tensor.empty() : tensor<4x4x32xf32>
      %5 = zero.dequantize %4 quant <i4, block = 32> into %e3 : tensor<4x80xi8> into tensor<4x4x32xf32> -> tensor<4x4x32xf32>
      %e4 = tensor.empty() : tensor<4x32xf32>
      %6 = zero.reduce sum %5 into %e4 : tensor<4x4x32xf32> into tensor<4x32xf32> -> tensor<4x32xf32>
      %12 = "stablehlo.negate"(%6) : (tensor<4x32xf32>) -> tensor<4x32xf32>
      %9 = "stablehlo.reshape"(%last) : (tensor<4x32xf32>) -> tensor<1x4x32xf32>
      %10 = "stablehlo.dynamic_update_slice"(%s, %9, %i, %zero, %zero) : (tensor<3x4x32xf32>, tensor<1x4x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x4x32xf32>
      %11 = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%11, %10, %12) : (tensor<i32>, tensor<3x4x32xf32>, tensor<4x32xf32>) -> ()
    }) : (tensor<i32>, tensor<3x4x32xf32>, tensor<4x32xf32>) -> (tensor<i32>, tensor<3x4x32xf32>, tensor<4x32xf32>)
    "sdy.return"(%1#1) : (tensor<3x4x32xf32>) -> ()
  }) : (tensor<64x32xf32>) -> tensor<3x16x32xf32>
  return %0 : tensor<3x16x32xf32>
}

// -----

// A product with what changes may put it anywhere.

#mesh = #zero.mesh<"gpu" = 4>

"sdy.mesh"() <{mesh = #sdy.mesh<["gpu"=4]>, sym_name = "mesh"}> : () -> ()

// CHECK-NOT: zpp.state
// CHECK-LABEL: func public @mixed
// CHECK-NOT: bf16
// REMARK: what it rounds is not fed back: the loop computes with it and with what changes from iteration to iteration, which may choose where it goes
func.func public @mixed(%gradients: tensor<64x32xf32>) -> tensor<3x16x32xf32> {
  %0 = "sdy.manual_computation"(%gradients) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}, {}]>]>, manual_axes = #sdy<manual_axes{"gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"gpu"}, {}]>]>}> ({
  ^bb0(%g: tensor<16x32xf32>):
    %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %three = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>
    %stack = "stablehlo.constant"() <{value = dense<0.0> : tensor<3x4x32xf32>}> : () -> tensor<3x4x32xf32>
    %none = "stablehlo.constant"() <{value = dense<0.0> : tensor<4x32xf32>}> : () -> tensor<4x32xf32>
    %1:3 = "stablehlo.while"(%zero, %stack, %none) ({
    ^bb0(%i: tensor<i32>, %s: tensor<3x4x32xf32>, %last: tensor<4x32xf32>):
      %2 = "stablehlo.compare"(%i, %three) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%2) : (tensor<i1>) -> ()
    }, {
    ^bb0(%i: tensor<i32>, %s: tensor<3x4x32xf32>, %last: tensor<4x32xf32>):
      %e1 = tensor.empty() : tensor<4x80xi8>
      %3 = zero.quantize %g quant <i4, block = 32> slices <dim = 0, factors = [4], chunk = [0]> into %e1 : tensor<16x32xf32> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e2 = tensor.empty() : tensor<4x80xi8>
      %4 = zero.all_to_all %3 along ["gpu"] on #mesh into %e2 : tensor<4x80xi8> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e3 = tensor.empty() : tensor<4x4x32xf32>
      %5 = zero.dequantize %4 quant <i4, block = 32> into %e3 : tensor<4x80xi8> into tensor<4x4x32xf32> -> tensor<4x4x32xf32>
      %e4 = tensor.empty() : tensor<4x32xf32>
      %6 = zero.reduce sum %5 into %e4 : tensor<4x4x32xf32> into tensor<4x32xf32> -> tensor<4x32xf32>
      %7 = "stablehlo.convert"(%i) : (tensor<i32>) -> tensor<f32>
      %8 = "stablehlo.dot_general"(%7, %6) : (tensor<f32>, tensor<4x32xf32>) -> tensor<3x4x32xf32>
      %10 = "stablehlo.add"(%s, %8) : (tensor<3x4x32xf32>, tensor<3x4x32xf32>) -> tensor<3x4x32xf32>
      %12 = "stablehlo.add"(%last, %none) : (tensor<4x32xf32>, tensor<4x32xf32>) -> tensor<4x32xf32>
      %11 = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%11, %10, %12) : (tensor<i32>, tensor<3x4x32xf32>, tensor<4x32xf32>) -> ()
    }) : (tensor<i32>, tensor<3x4x32xf32>, tensor<4x32xf32>) -> (tensor<i32>, tensor<3x4x32xf32>, tensor<4x32xf32>)
    "sdy.return"(%1#1) : (tensor<3x4x32xf32>) -> ()
  }) : (tensor<64x32xf32>) -> tensor<3x16x32xf32>
  return %0 : tensor<3x16x32xf32>
}

// -----

// A mask puts copies of it into one layer.

#mesh = #zero.mesh<"gpu" = 4>

"sdy.mesh"() <{mesh = #sdy.mesh<["gpu"=4]>, sym_name = "mesh"}> : () -> ()

// CHECK-NOT: zpp.state
// CHECK-LABEL: func public @masked
// CHECK-NOT: bf16
// REMARK: what it rounds is not fed back: the loop computes with it and with what changes from iteration to iteration, which may choose where it goes
func.func public @masked(%gradients: tensor<64x32xf32>, %masks: tensor<3x3x16x32xf32>) -> tensor<3x16x32xf32> {
  %0 = "sdy.manual_computation"(%gradients, %masks) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}, {}]>, <@mesh, [{}, {}, {"gpu"}, {}]>]>, manual_axes = #sdy<manual_axes{"gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"gpu"}, {}]>]>}> ({
  ^bb0(%g: tensor<16x32xf32>, %m: tensor<3x3x4x32xf32>):
    %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %three = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>
    %stack = "stablehlo.constant"() <{value = dense<0.0> : tensor<3x4x32xf32>}> : () -> tensor<3x4x32xf32>
    %1:2 = "stablehlo.while"(%zero, %stack) ({
    ^bb0(%i: tensor<i32>, %s: tensor<3x4x32xf32>):
      %2 = "stablehlo.compare"(%i, %three) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%2) : (tensor<i1>) -> ()
    }, {
    ^bb0(%i: tensor<i32>, %s: tensor<3x4x32xf32>):
      %e1 = tensor.empty() : tensor<4x80xi8>
      %3 = zero.quantize %g quant <i4, block = 32> slices <dim = 0, factors = [4], chunk = [0]> into %e1 : tensor<16x32xf32> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e2 = tensor.empty() : tensor<4x80xi8>
      %4 = zero.all_to_all %3 along ["gpu"] on #mesh into %e2 : tensor<4x80xi8> into tensor<4x80xi8> -> tensor<4x80xi8>
      %e3 = tensor.empty() : tensor<4x4x32xf32>
      %5 = zero.dequantize %4 quant <i4, block = 32> into %e3 : tensor<4x80xi8> into tensor<4x4x32xf32> -> tensor<4x4x32xf32>
      %e4 = tensor.empty() : tensor<4x32xf32>
      %6 = zero.reduce sum %5 into %e4 : tensor<4x4x32xf32> into tensor<4x32xf32> -> tensor<4x32xf32>
      %7 = "stablehlo.broadcast_in_dim"(%6) <{broadcast_dimensions = array<i64: 1, 2>}> : (tensor<4x32xf32>) -> tensor<3x4x32xf32>
      %8 = "stablehlo.dynamic_slice"(%m, %i, %zero, %zero, %zero) <{slice_sizes = array<i64: 1, 3, 4, 32>}> : (tensor<3x3x4x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x3x4x32xf32>
      %9 = "stablehlo.reshape"(%8) : (tensor<1x3x4x32xf32>) -> tensor<3x4x32xf32>
      %10 = "stablehlo.multiply"(%7, %9) : (tensor<3x4x32xf32>, tensor<3x4x32xf32>) -> tensor<3x4x32xf32>
      %11 = "stablehlo.add"(%s, %10) : (tensor<3x4x32xf32>, tensor<3x4x32xf32>) -> tensor<3x4x32xf32>
      %12 = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%12, %11) : (tensor<i32>, tensor<3x4x32xf32>) -> ()
    }) : (tensor<i32>, tensor<3x4x32xf32>) -> (tensor<i32>, tensor<3x4x32xf32>)
    "sdy.return"(%1#1) : (tensor<3x4x32xf32>) -> ()
  }) : (tensor<64x32xf32>, tensor<3x3x16x32xf32>) -> tensor<3x16x32xf32>
  return %0 : tensor<3x16x32xf32>
}

// -----

// Without a loop, the step says which layer it is of.

#mesh = #zero.mesh<"gpu" = 4>

"sdy.mesh"() <{mesh = #sdy.mesh<["gpu"=4]>, sym_name = "mesh"}> : () -> ()

// CHECK-NOT: zpp.state
// CHECK-LABEL: func public @one_of_them
// CHECK-NOT: bf16
// REMARK: what it rounds is not fed back: the step stores it at an index that it computes, which may be another one in the next step
func.func public @one_of_them(%gradients: tensor<64x32xf32>, %number: tensor<i32>) -> tensor<3x16x32xf32> {
  %0 = "sdy.manual_computation"(%gradients, %number) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}, {}]>, <@mesh, []>]>, manual_axes = #sdy<manual_axes{"gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"gpu"}, {}]>]>}> ({
  ^bb0(%g: tensor<16x32xf32>, %at: tensor<i32>):
    %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %stack = "stablehlo.constant"() <{value = dense<0.0> : tensor<3x4x32xf32>}> : () -> tensor<3x4x32xf32>
    %e1 = tensor.empty() : tensor<4x80xi8>
    %3 = zero.quantize %g quant <i4, block = 32> slices <dim = 0, factors = [4], chunk = [0]> into %e1 : tensor<16x32xf32> into tensor<4x80xi8> -> tensor<4x80xi8>
    %e2 = tensor.empty() : tensor<4x80xi8>
    %4 = zero.all_to_all %3 along ["gpu"] on #mesh into %e2 : tensor<4x80xi8> into tensor<4x80xi8> -> tensor<4x80xi8>
    %e3 = tensor.empty() : tensor<4x4x32xf32>
    %5 = zero.dequantize %4 quant <i4, block = 32> into %e3 : tensor<4x80xi8> into tensor<4x4x32xf32> -> tensor<4x4x32xf32>
    %e4 = tensor.empty() : tensor<4x32xf32>
    %6 = zero.reduce sum %5 into %e4 : tensor<4x4x32xf32> into tensor<4x32xf32> -> tensor<4x32xf32>
    %7 = "stablehlo.reshape"(%6) : (tensor<4x32xf32>) -> tensor<1x4x32xf32>
    %8 = "stablehlo.dynamic_update_slice"(%stack, %7, %at, %zero, %zero) : (tensor<3x4x32xf32>, tensor<1x4x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x4x32xf32>
    "sdy.return"(%8) : (tensor<3x4x32xf32>) -> ()
  }) : (tensor<64x32xf32>, tensor<i32>) -> tensor<3x16x32xf32>
  return %0 : tensor<3x16x32xf32>
}
