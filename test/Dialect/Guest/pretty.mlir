// Each op in the forms that JAX prints. test/python/test_assembly.py compares
// what zpp-opt makes of them with what StableHLO's own dialects make of them.

// RUN: zpp-opt %s --mlir-print-op-generic | FileCheck %s

// What is written is what was read, in this form or in the generic one.
// RUN: grep -v -e "^//" -e "^$" %s > %t.in
// RUN: zpp-opt %s | grep -v "^$" > %t.out
// RUN: diff %t.in %t.out
// RUN: zpp-opt %s --mlir-print-op-generic | zpp-opt | grep -v "^$" > %t.out
// RUN: diff %t.in %t.out

// CHECK: "sdy.mesh"() <{mesh = #sdy.mesh<["x"=2, "y"=4]>, sym_name = "mesh"}> : () -> ()
// CHECK: "stablehlo.abs"(%{{.*}}) : (tensor<2x4xf32>) -> tensor<2x4xf32>
// CHECK: "stablehlo.constant"() <{value = dense<1.000000e+00> : tensor<4xf32>}> : () -> tensor<4xf32>
// CHECK: "stablehlo.exponential"(%{{.*}}) <{result_accuracy = #stablehlo.result_accuracy<ulps = 10, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>}>
// CHECK: "stablehlo.reduce_precision"(%{{.*}}) <{exponent_bits = 5 : i32, mantissa_bits = 2 : i32}>
// CHECK: "stablehlo.compare"(%{{.*}}, %{{.*}}) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction GE>}>
// CHECK: "stablehlo.complex"(%{{.*}}, %{{.*}}) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xcomplex<f32>>
// CHECK: "stablehlo.select"(%{{.*}}, %{{.*}}, %{{.*}}) : (tensor<2x4xi1>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
// CHECK: "stablehlo.slice"(%{{.*}}) <{limit_indices = array<i64: 2, 4>, start_indices = array<i64: 0, 1>, strides = array<i64: 1, 2>}>
// CHECK: "stablehlo.convolution"(%{{.*}}, %{{.*}}) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, feature_group_count = 1 : i64, lhs_dilation = array<i64: 1, 1>, padding = dense<{{\[\[}}1, 1], [1, 2]]> : tensor<2x2xi64>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>], rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: false, false>, window_strides = array<i64: 2, 2>}>
// CHECK: "stablehlo.dot_general"(%{{.*}}, %{{.*}}) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [1], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision DEFAULT>]}> {note}
// CHECK: "stablehlo.custom_call"(%{{.*}}, %{{.*}}) <{api_version = 2 : i32, backend_config = "x", call_target_name = "a b", has_side_effect = true}>
// CHECK: "stablehlo.reduce"(%{{.*}}, %{{.*}}) <{dimensions = array<i64: 0, 1>}> ({
// CHECK-NEXT: ^bb0(%[[A:.*]]: tensor<f32>, %[[B:.*]]: tensor<f32>):
// CHECK-NEXT: %[[SUM:.*]] = "stablehlo.add"(%[[A]], %[[B]])
// CHECK-NEXT: "stablehlo.return"(%[[SUM]])
// CHECK: "sdy.sharding_constraint"(%{{.*}}) <{sharding = #sdy.sharding<@mesh, [{"x"}, {"y":(1)2, ?}p1], replicated={"y":(2)2}>}>
// CHECK: "sdy.manual_computation"(%{{.*}}) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>, manual_axes = #sdy<manual_axes{"x", "y"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>}> ({

module @forms attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  sdy.mesh @"a mesh" = <["x x"=2]>
  sdy.mesh @maximal = <[], device_ids=[3]>
  sdy.mesh @permuted = <["x"=2, "y"=2], device_ids=[0, 2, 1, 3]> {note}
  func.func @main(%arg0: tensor<2x4xf32>, %arg1: tensor<2x4xi32>, %arg2: tensor<2x4xi1>, %arg3: tensor<2x4xcomplex<f32>>, %arg4: tensor<?x4xf32>, %arg5: tensor<f32>, %arg6: tensor<i1>, %arg7: tensor<i32>, %arg8: tensor<2xi64>, %arg9: !stablehlo.token, %arg10: tensor<4x4xf32>, %arg11: tensor<1x3x8x8xf32>, %arg12: tensor<4x3x3x3xf32>, %arg13: tensor<8xcomplex<f32>>, %arg14: tensor<2xui64>, %arg15: tuple<tensor<2x4xf32>, tensor<i32>>, %arg16: tensor<8x4xf32>, %arg17: tensor<2x4x8xf32>, %arg18: tensor<2xi64>, %arg19: tensor<4xf32>) {
    %0 = stablehlo.abs %arg0 : tensor<2x4xf32>
    %1 = stablehlo.cbrt %arg0 : tensor<2x4xf32>
    %2 = stablehlo.ceil %arg0 : tensor<2x4xf32>
    %3 = stablehlo.cosine %arg0 : tensor<2x4xf32>
    %4 = stablehlo.exponential %arg0 : tensor<2x4xf32>
    %5 = stablehlo.exponential_minus_one %arg0 : tensor<2x4xf32>
    %6 = stablehlo.floor %arg0 : tensor<2x4xf32>
    %7 = stablehlo.log %arg0 : tensor<2x4xf32>
    %8 = stablehlo.log_plus_one %arg0 : tensor<2x4xf32>
    %9 = stablehlo.logistic %arg0 : tensor<2x4xf32>
    %10 = stablehlo.negate %arg0 : tensor<2x4xf32>
    %11 = stablehlo.round_nearest_afz %arg0 : tensor<2x4xf32>
    %12 = stablehlo.round_nearest_even %arg0 : tensor<2x4xf32>
    %13 = stablehlo.rsqrt %arg0 : tensor<2x4xf32>
    %14 = stablehlo.sign %arg0 : tensor<2x4xf32>
    %15 = stablehlo.sine %arg0 : tensor<2x4xf32>
    %16 = stablehlo.sqrt %arg0 : tensor<2x4xf32>
    %17 = stablehlo.tan %arg0 : tensor<2x4xf32>
    %18 = stablehlo.tanh %arg0 : tensor<2x4xf32>
    %19 = stablehlo.count_leading_zeros %arg1 : tensor<2x4xi32>
    %20 = stablehlo.not %arg1 : tensor<2x4xi32>
    %21 = stablehlo.popcnt %arg1 : tensor<2x4xi32>
    %22 = stablehlo.add %arg0, %arg0 : tensor<2x4xf32>
    %23 = stablehlo.atan2 %arg0, %arg0 : tensor<2x4xf32>
    %24 = stablehlo.divide %arg0, %arg0 : tensor<2x4xf32>
    %25 = stablehlo.maximum %arg0, %arg0 : tensor<2x4xf32>
    %26 = stablehlo.minimum %arg0, %arg0 : tensor<2x4xf32>
    %27 = stablehlo.multiply %arg0, %arg0 : tensor<2x4xf32>
    %28 = stablehlo.power %arg0, %arg0 : tensor<2x4xf32>
    %29 = stablehlo.remainder %arg0, %arg0 : tensor<2x4xf32>
    %30 = stablehlo.subtract %arg0, %arg0 : tensor<2x4xf32>
    %31 = stablehlo.and %arg1, %arg1 : tensor<2x4xi32>
    %32 = stablehlo.or %arg1, %arg1 : tensor<2x4xi32>
    %33 = stablehlo.shift_left %arg1, %arg1 : tensor<2x4xi32>
    %34 = stablehlo.shift_right_arithmetic %arg1, %arg1 : tensor<2x4xi32>
    %35 = stablehlo.shift_right_logical %arg1, %arg1 : tensor<2x4xi32>
    %36 = stablehlo.xor %arg1, %arg1 : tensor<2x4xi32>
    %37 = chlo.acos %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %38 = chlo.acosh %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %39 = chlo.asin %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %40 = chlo.asinh %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %41 = chlo.atan %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %42 = chlo.atanh %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %43 = chlo.bessel_i1e %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %44 = chlo.conj %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %45 = chlo.cosh %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %46 = chlo.digamma %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %47 = chlo.erf %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %48 = chlo.erf_inv %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %49 = chlo.erfc %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %50 = chlo.lgamma %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %51 = chlo.sinh %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %52 = chlo.square %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %53 = chlo.tan %arg0 : tensor<2x4xf32> -> tensor<2x4xf32>
    %54 = chlo._asin_acos_kernel %arg3 : tensor<2x4xcomplex<f32>> -> tensor<2x4xcomplex<f32>>
    %55 = chlo.is_inf %arg0 : tensor<2x4xf32> -> tensor<2x4xi1>
    %56 = chlo.is_neg_inf %arg0 : tensor<2x4xf32> -> tensor<2x4xi1>
    %57 = chlo.is_pos_inf %arg0 : tensor<2x4xf32> -> tensor<2x4xi1>
    %58 = chlo.broadcast_add %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %59 = chlo.broadcast_atan2 %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %60 = chlo.broadcast_divide %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %61 = chlo.broadcast_maximum %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %62 = chlo.broadcast_minimum %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %63 = chlo.broadcast_multiply %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %64 = chlo.broadcast_power %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %65 = chlo.broadcast_remainder %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %66 = chlo.broadcast_subtract %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %67 = chlo.broadcast_next_after %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %68 = chlo.broadcast_polygamma %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %69 = chlo.broadcast_zeta %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %70 = chlo.broadcast_and %arg1, %arg1 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %71 = chlo.broadcast_or %arg1, %arg1 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %72 = chlo.broadcast_xor %arg1, %arg1 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %73 = chlo.broadcast_shift_left %arg1, %arg1 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %74 = chlo.broadcast_shift_right_arithmetic %arg1, %arg1 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %75 = chlo.broadcast_shift_right_logical %arg1, %arg1 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %76 = chlo.next_after %arg0, %arg0 : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<2x4xf32>
    %77 = chlo.polygamma %arg0, %arg0 : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<2x4xf32>
    %78 = chlo.zeta %arg0, %arg0 : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<2x4xf32>
    %79 = chlo.mulhi %arg1, %arg1 : tensor<2x4xi32>, tensor<2x4xi32> -> tensor<2x4xi32>
    %80 = chlo.broadcast_add %arg0, %arg5 {broadcast_dimensions = array<i64>} : (tensor<2x4xf32>, tensor<f32>) -> tensor<2x4xf32>
    %81 = chlo.broadcast_compare %arg0, %arg0 {comparison_direction = #chlo<comparison_direction LT>} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xi1>
    %82 = chlo.broadcast_complex %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xcomplex<f32>>
    %83 = chlo.broadcast_select %arg2, %arg0, %arg0 : (tensor<2x4xi1>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %84 = chlo.constant dense<[1, 2]> : tensor<2xi32>
    %85 = chlo.constant {note = "a"} dense<1.000000e+00> : tensor<f32>
    %86 = "chlo.constant_like"(%arg0) <{value = 1.000000e+00 : f32}> : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %values, %indices = chlo.top_k(%arg0, k = 2) : tensor<2x4xf32> -> (tensor<2x2xf32>, tensor<2x2xi32>)
    %87 = "chlo.ragged_dot"(%arg16, %arg17, %arg18) <{precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>], ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}> : (tensor<8x4xf32>, tensor<2x4x8xf32>, tensor<2xi64>) -> tensor<8x8xf32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<4xf32>
    %c = stablehlo.constant dense<[1, 2, 3]> : tensor<3xui8>
    %c_0 = stablehlo.constant dense<true> : tensor<i1>
    %cst_1 = stablehlo.constant dense<(1.000000e+00,2.000000e+00)> : tensor<2xcomplex<f32>>
    %cst_2 = stablehlo.constant {mhlo.frontend_attributes = {a = "b"}} dense<5.000000e-01> : tensor<2xf8E4M3FN>
    %c_3 = stablehlo.constant dense<1> : tensor<2xi4>
    %cst_4 = stablehlo.constant dense<> : tensor<0xf32>
    %88 = stablehlo.create_token : !stablehlo.token
    %89 = stablehlo.after_all %arg9, %arg9 : !stablehlo.token
    %90 = stablehlo.after_all  : !stablehlo.token
    %91 = stablehlo.dynamic_iota %arg8, dim = 0 : (tensor<2xi64>) -> tensor<?x?xi32>
    %92 = stablehlo.iota dim = 1 : tensor<2x4xi32>
    %93 = stablehlo.iota dim = 0 {mhlo.sharding = "{replicated}"} : tensor<2x4xi32>
    %94 = stablehlo.partition_id : tensor<ui32>
    %95 = stablehlo.replica_id : tensor<ui32>
    %96 = stablehlo.abs %arg3 : (tensor<2x4xcomplex<f32>>) -> tensor<2x4xf32>
    %97 = stablehlo.add %arg0, %arg0 {note} : tensor<2x4xf32>
    %98 = stablehlo.add %arg4, %arg0 : (tensor<?x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %99 = stablehlo.convert %arg0 : (tensor<2x4xf32>) -> tensor<2x4xbf16>
    %100 = stablehlo.convert %arg0 : tensor<2x4xf32>
    %101 = stablehlo.exponential %arg0 {result_accuracy = #stablehlo.result_accuracy<ulps = 10, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<2x4xf32>
    %102 = stablehlo.exponential %arg0 {result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<HIGHEST>>} : tensor<2x4xf32>
    %103 = stablehlo.exponential %arg0 : tensor<2x4xf32>
    %104 = stablehlo.imag %arg3 : (tensor<2x4xcomplex<f32>>) -> tensor<2x4xf32>
    %105 = stablehlo.real %arg3 : (tensor<2x4xcomplex<f32>>) -> tensor<2x4xf32>
    %106 = stablehlo.imag %arg0 : tensor<2x4xf32>
    %107 = stablehlo.is_finite %arg0 : (tensor<2x4xf32>) -> tensor<2x4xi1>
    %108 = stablehlo.reduce_precision %arg0, format = e5m2 : tensor<2x4xf32>
    %109 = stablehlo.reduce_precision %arg0, format = e8m10 {note = 1 : i32} : tensor<2x4xf32>
    %110 = stablehlo.clamp %arg5, %arg0, %arg5 : (tensor<f32>, tensor<2x4xf32>, tensor<f32>) -> tensor<2x4xf32>
    %111 = stablehlo.clamp %arg0, %arg0, %arg0 : tensor<2x4xf32>
    %112 = stablehlo.compare EQ, %arg0, %arg0 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xi1>
    %113 = stablehlo.compare GE, %arg0, %arg0, FLOAT : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xi1>
    %114 = stablehlo.compare LT, %arg1, %arg1, SIGNED {note} : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi1>
    %115 = stablehlo.compare NE, %arg0, %arg0, TOTALORDER : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xi1>
    %116 = stablehlo.complex %arg0, %arg0 : tensor<2x4xcomplex<f32>>
    %117 = stablehlo.select %arg2, %arg0, %arg0 : tensor<2x4xi1>, tensor<2x4xf32>
    %118 = stablehlo.select %arg6, %arg0, %arg0 : tensor<i1>, tensor<2x4xf32>
    %119 = stablehlo.select %arg2, %arg4, %arg0 : (tensor<2x4xi1>, tensor<?x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %120 = stablehlo.bitcast_convert %arg0 : (tensor<2x4xf32>) -> tensor<2x4xi32>
    %121 = stablehlo.broadcast %arg5, sizes = [2, 3] : (tensor<f32>) -> tensor<2x3xf32>
    %122 = stablehlo.broadcast_in_dim %arg5, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
    %123 = stablehlo.broadcast_in_dim %arg0, dims = [0, 2] : (tensor<2x4xf32>) -> tensor<2x3x4xf32>
    %124 = stablehlo.concatenate %arg0, %arg0, dim = 1 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x8xf32>
    %125 = stablehlo.concatenate %arg0, dim = 0 : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %126 = stablehlo.dynamic_broadcast_in_dim %arg5, %arg8, dims = [] : (tensor<f32>, tensor<2xi64>) -> tensor<?x?xf32>
    %127 = stablehlo.dynamic_broadcast_in_dim %arg0, %arg8, dims = [0, 1] {known_expanding_dimensions = array<i64: 0>, known_nonexpanding_dimensions = array<i64: 1>} : (tensor<2x4xf32>, tensor<2xi64>) -> tensor<?x?xf32>
    %128 = stablehlo.dynamic_pad %arg0, %arg5, %arg8, %arg8, %arg8 : (tensor<2x4xf32>, tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>
    %129 = stablehlo.dynamic_reshape %arg0, %arg8 : (tensor<2x4xf32>, tensor<2xi64>) -> tensor<?x?xf32>
    %130 = stablehlo.dynamic_slice %arg0, %arg7, %arg7, sizes = [1, 2] : (tensor<2x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
    %131 = stablehlo.dynamic_update_slice %arg0, %arg0, %arg7, %arg7 : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
    %132 = stablehlo.get_dimension_size %arg4, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
    %133 = stablehlo.set_dimension_size %arg0, %arg7, dim = 0 : (tensor<2x4xf32>, tensor<i32>) -> tensor<?x4xf32, #stablehlo.bounds<2, ?>>
    %134 = stablehlo.pad %arg0, %arg5, low = [0, 1], high = [2, -1], interior = [0, 0] : (tensor<2x4xf32>, tensor<f32>) -> tensor<4x4xf32>
    %135 = stablehlo.real_dynamic_slice %arg0, %arg8, %arg8, %arg8 : (tensor<2x4xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>
    %136 = stablehlo.reshape %arg0 : (tensor<2x4xf32>) -> tensor<8xf32>
    %137 = stablehlo.reverse %arg0, dims = [0, 1] : tensor<2x4xf32>
    %138 = stablehlo.slice %arg0 [0:2, 1:4:2] : (tensor<2x4xf32>) -> tensor<2x2xf32>
    %139 = stablehlo.slice %arg5 [] : (tensor<f32>) -> tensor<f32>
    %140 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<2x4xf32>) -> tensor<4x2xf32>
    %141 = stablehlo.cholesky %arg10, lower = true : tensor<4x4xf32>
    %142 = stablehlo.cholesky %arg10 : tensor<4x4xf32>
    %143 = stablehlo.cholesky %arg10 : tensor<4x4xf32>
    %144 = stablehlo.convolution(%arg11, %arg12) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [2, 2], pad = [[1, 1], [1, 2]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x4x5xf32>
    %145 = stablehlo.convolution(%arg11, %arg12) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
    %146 = stablehlo.dot %arg10, %arg10 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %147 = stablehlo.dot %arg10, %arg10, precision = [DEFAULT, HIGHEST] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %148 = stablehlo.dot_general %arg10, %arg10, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %149 = stablehlo.dot_general %arg10, %arg10, contracting_dims = [] x [] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4x4x4xf32>
    %150 = stablehlo.dot_general %arg10, %arg10, batching_dims = [0] x [1], contracting_dims = [1] x [0], precision = [HIGH, DEFAULT] {note} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4xf32>
    %151 = stablehlo.dot_general %arg10, %arg10, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %152 = stablehlo.dot_general %arg10, %arg10, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT], algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %153 = stablehlo.einsum %arg10, %arg10, config = "ab,bc->ac" : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %154 = stablehlo.unary_einsum %arg10, config = "ab->a" : (tensor<4x4xf32>) -> tensor<4xf32>
    %155 = stablehlo.fft %arg13, type = FFT, length = [8] : (tensor<8xcomplex<f32>>) -> tensor<8xcomplex<f32>>
    %156 = stablehlo.rng %arg5, %arg5, %arg8, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<?x?xf32>
    %output_state, %output = stablehlo.rng_bit_generator %arg14, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)
    %157 = stablehlo.composite "acme.gelu" %arg0, %arg0 {composite_attributes = {approximate = true}, decomposition = @callee, version = 1 : i32} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %158 = stablehlo.composite "acme.gelu" %arg0, %arg0 {decomposition = @callee} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %159 = stablehlo.composite "acme.none"  {decomposition = @nothing} : () -> tensor<f32>
    %160 = stablehlo.custom_call @Sharding(%arg0) {mhlo.sharding = "{devices=[2,1]<=[2]}"} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %161:2 = stablehlo.custom_call @"a b"(%arg0, %arg0) {api_version = 2 : i32, backend_config = "x", has_side_effect = true} : (tensor<2x4xf32>, tensor<2x4xf32>) -> (tensor<1xf32>, tensor<2xf32>)
    %162 = stablehlo.custom_call @target() {api_version = 4 : i32, backend_config = {a = 1 : i32}, called_computations = [@callee, @callee]} : () -> tensor<2x4xf32>
    %163 = stablehlo.custom_call @target(%arg0) {operand_layouts = [dense<[1, 0]> : tensor<2xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 0]> : tensor<2xindex>]} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %164 = stablehlo.get_tuple_element %arg15[1] : (tuple<tensor<2x4xf32>, tensor<i32>>) -> tensor<i32>
    %165 = stablehlo.tuple %arg0, %arg7 : tuple<tensor<2x4xf32>, tensor<i32>>
    %166 = stablehlo.tuple  : tuple<>
    %167:2 = stablehlo.optimization_barrier %arg0, %arg7 : tensor<2x4xf32>, tensor<i32>
    %168 = stablehlo.optimization_barrier {note} %arg0 : tensor<2x4xf32>
    stablehlo.optimization_barrier()
    %169 = stablehlo.reduce(%arg0 init: %arg5) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x4xf32>, tensor<f32>) -> tensor<f32>
    %170 = stablehlo.reduce(%arg0 init: %arg5) applies stablehlo.maximum across dimensions = [] {note} : (tensor<2x4xf32>, tensor<f32>) -> tensor<2x4xf32>
    %171 = stablehlo.reduce(%arg2 init: %arg6) applies stablehlo.and across dimensions = [1] : (tensor<2x4xi1>, tensor<i1>) -> tensor<2xi1>
    %172:2 = stablehlo.reduce(%arg0 init: %arg5), (%arg1 init: %arg7) across dimensions = [1] : (tensor<2x4xf32>, tensor<2x4xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
     reducer(%arg20: tensor<f32>, %arg22: tensor<f32>) (%arg21: tensor<i32>, %arg23: tensor<i32>)  {
      %191 = stablehlo.maximum %arg20, %arg22 : tensor<f32>
      %192 = stablehlo.minimum %arg21, %arg23 : tensor<i32>
      stablehlo.return %191, %192 : tensor<f32>, tensor<i32>
    }
    %173 = stablehlo.reduce(%arg0 init: %arg5) across dimensions = [1] : (tensor<2x4xf32>, tensor<f32>) -> tensor<2xf32>
     reducer(%arg20: tensor<f32>, %arg21: tensor<f32>)  {
      %191 = stablehlo.add %arg21, %arg20 : tensor<f32>
      stablehlo.return %191 : tensor<f32>
    }
    %174 = stablehlo.reduce(%arg0 init: %arg5) across dimensions = [1] : (tensor<2x4xf32>, tensor<f32>) -> tensor<2xf32>
     reducer(%arg20: tensor<f32>, %arg21: tensor<f32>)  {
      %191 = stablehlo.subtract %arg20, %arg21 : tensor<f32>
      stablehlo.return %191 : tensor<f32>
    }
    %175:2 = stablehlo.while(%iterArg = %arg7, %iterArg_6 = %arg0) : tensor<i32>, tensor<2x4xf32>
    cond {
      %c_7 = stablehlo.constant dense<4> : tensor<i32>
      %191 = stablehlo.compare LT, %iterArg, %c_7 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %191 : tensor<i1>
    } do {
      %c_7 = stablehlo.constant dense<1> : tensor<i32>
      %191 = stablehlo.add %iterArg, %c_7 : tensor<i32>
      stablehlo.return %191, %iterArg_6 : tensor<i32>, tensor<2x4xf32>
    }
    %176 = stablehlo.while(%iterArg = %arg7) : tensor<i32> attributes {mhlo.note = "a"}
    cond {
      %c_6 = stablehlo.constant dense<true> : tensor<i1>
      stablehlo.return %c_6 : tensor<i1>
    } do {
      %191 = func.call @callk(%iterArg) : (tensor<i32>) -> tensor<i32>
      stablehlo.return %191 : tensor<i32>
    }
    %177 = "stablehlo.case"(%arg7) ({
      stablehlo.return %arg0 : tensor<2x4xf32>
    }, {
      %191 = stablehlo.negate %arg0 : tensor<2x4xf32>
      stablehlo.return %191 : tensor<2x4xf32>
    }) : (tensor<i32>) -> tensor<2x4xf32>
    %178 = "stablehlo.if"(%arg6) ({
      stablehlo.return %arg0 : tensor<2x4xf32>
    }, {
      stablehlo.return %arg0 : tensor<2x4xf32>
    }) : (tensor<i1>) -> tensor<2x4xf32>
    "stablehlo.if"(%arg6) ({
      stablehlo.return 
    }, {
      stablehlo.return 
    }) : (tensor<i1>) -> ()
    %179 = "stablehlo.sort"(%arg0) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%arg20: tensor<f32>, %arg21: tensor<f32>):
      %191 = stablehlo.compare LT, %arg20, %arg21, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %191 : tensor<i1>
    }) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %180 = "stablehlo.all_gather"(%arg0) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<2x4xf32>) -> tensor<4x4xf32>
    %output_5, %batch_mean, %batch_var = "stablehlo.batch_norm_training"(%arg0, %arg19, %arg19) <{epsilon = 1.000000e-03 : f32, feature_index = 1 : i64}> : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>)
    %grad_operand, %grad_scale, %grad_offset = "stablehlo.batch_norm_grad"(%arg0, %arg19, %arg19, %arg19, %arg0) <{epsilon = 1.000000e-03 : f32, feature_index = 1 : i64}> : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>)
    %181 = sdy.constant dense<1.000000e+00> : tensor<f32>
    %182 = sdy.sharding_constraint %arg0 <@mesh, [{"x"}, {"y":(1)2, ?}p1], replicated={"y":(2)2}> : tensor<2x4xf32>
    %183 = sdy.sharding_constraint %arg0 <mesh<["a"=2]>, [{?}, {}]> {note} : tensor<2x4xf32>
    %184 = sdy.reshard %arg0 <@"a mesh", [{}, {"x x"}]> : tensor<2x4xf32>
    sdy.sharding_group %arg0 group_id=3 : tensor<2x4xf32>
    %185 = sdy.propagation_barrier %arg0 allowed_direction=NONE : tensor<2x4xf32>
    %186 = sdy.propagation_barrier %arg0 allowed_direction=FORWARD : tensor<2x4xf32>
    %187 = sdy.propagation_barrier %arg0 allowed_direction=BACKWARD : tensor<2x4xf32>
    %188 = sdy.named_computation<"block">(%arg0) in_shardings=[<@mesh, [{}, {}]>] out_shardings=[<@mesh, [{}, {}]>] (%arg20: tensor<2x4xf32>) {
      sdy.return %arg20 : tensor<2x4xf32>
    } : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %189:2 = sdy.named_computation<"block">(%arg0, %arg7) (%arg20: tensor<2x4xf32>, %arg21: tensor<i32>) {
      sdy.return %arg20, %arg21 : tensor<2x4xf32>, tensor<i32>
    } : (tensor<2x4xf32>, tensor<i32>) -> (tensor<2x4xf32>, tensor<i32>)
    %190 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x", "y"} (%arg20: tensor<1x4xf32>) {
      %191 = stablehlo.negate %arg20 : tensor<1x4xf32>
      sdy.return %191 : tensor<1x4xf32>
    } : (tensor<2x4xf32>) -> tensor<2x4xf32>
    sdy.manual_computation() in_shardings=[] out_shardings=[] manual_axes={} () {
      sdy.return
    } : () -> ()
    return
  }
  func.func @shardy(%arg0: tensor<2x4xf32>) {
    %0 = sdy.sharding_constraint %arg0 <@mesh, [{"x"}, {}]> : tensor<2x4xf32>
    %1 = sdy.all_gather [{"x"}, {}] %0 out_sharding=<@mesh, [{}, {}]> : tensor<2x4xf32>
    %2 = sdy.all_slice [{}, {"y":(1)2}] %0 out_sharding=<@mesh, [{"x"}, {"y":(1)2}]> : tensor<2x4xf32>
    %3 = sdy.all_to_all [{"x"}: 0->1] %0 out_sharding=<@mesh, [{}, {"x"}]> : tensor<2x4xf32>
    %4 = sdy.sharding_constraint %arg0 <@mesh, [{"x"}, {}]> : tensor<2x4xf32>
    %5 = sdy.collective_permute %4 out_sharding=<@mesh, [{"y":(1)2}, {}]> : tensor<2x4xf32>
    %6 = sdy.all_reduce {"y"} %0 out_sharding=<@mesh, [{"x"}, {}]> : tensor<2x4xf32>
    %7 = sdy.reduce_scatter [{}, {"y":(1)2}] %0 out_sharding=<@mesh, [{"x"}, {"y":(1)2}]> : tensor<2x4xf32>
    %8 = stablehlo.negate %1 : tensor<2x4xf32>
    %9 = sdy.data_flow_edge %8 sharding=<@mesh, [{}, {}]> : tensor<2x4xf32>
    %10 = stablehlo.negate %3 : tensor<2x4xf32>
    %11 = sdy.data_flow_edge %10 : tensor<2x4xf32>
    return
  }
  func.func private @callee(tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.func private @nothing() -> tensor<f32>
  func.func private @callk(tensor<i32>) -> tensor<i32>
}

