//===- Table.cpp - How ops of guests are written --------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/Assembly.h"

#include "llvm/ADT/STLExtras.h"

#include <vector>

using namespace mlir;
using namespace zpp;

// Forms that many ops share.
static constexpr StringLiteral kUnary = " %@attrs : @same";
static constexpr StringLiteral kBinary = " %, %@attrs : @same";
static constexpr StringLiteral kOperands = " %*@attrs : @function";
static constexpr StringLiteral kType = "@attrs : @uniform";
static constexpr StringLiteral kArrow = " %@attrs : @arrow";
static constexpr StringLiteral kBinaryArrow = " %, %@attrs : @arrow";
static constexpr StringLiteral kBroadcast = " %, %@attrs : @function";

// Attributes that many ops share.
#define ACCURACY                                                               \
  "result_accuracy = #stablehlo.result_accuracy<mode = "                       \
  "#stablehlo.result_accuracy_mode<DEFAULT>>"
#define PRECISION "precision_config: enums precision"
#define GROUPS "replica_groups, channel_handle"
#define GLOBAL_GROUPS GROUPS ", use_global_device_ids"
#define BATCH_NORM "epsilon, feature_index"
#define WINDOW                                                                 \
  "window_strides: form, padding: form, lhs_dilation: form, "                  \
  "rhs_dilation: form, window_reversal: form, "
#define CONVOLUTION                                                            \
  "dimension_numbers: text conv<*>, feature_group_count, "                     \
  "batch_group_count, precision_config"
#define SHARDINGS                                                              \
  "in_shardings: text sharding_per_value<*>, "                                 \
  "out_shardings: text sharding_per_value<*>"
#define OUT_SHARDING "out_sharding: text sharding*"
#define INTO " out_sharding=$out_sharding@attrs : @uniform"
#define REDUCTIONS "sum|max|min"

/// The ops that compute each element of their result from those at its place.
static constexpr GuestOp kElementwise[] = {
    // One operand.
    {"stablehlo.abs", "", kUnary},
    {"stablehlo.cbrt", ACCURACY, kUnary},
    {"stablehlo.ceil", "", kUnary},
    {"stablehlo.convert", "", kUnary},
    {"stablehlo.cosine", ACCURACY, kUnary},
    {"stablehlo.count_leading_zeros", "", kUnary},
    {"stablehlo.exponential", ACCURACY, kUnary},
    {"stablehlo.exponential_minus_one", ACCURACY, kUnary},
    {"stablehlo.floor", "", kUnary},
    {"stablehlo.imag", "", kUnary},
    {"stablehlo.is_finite", "", kOperands},
    {"stablehlo.log", ACCURACY, kUnary},
    {"stablehlo.log_plus_one", ACCURACY, kUnary},
    {"stablehlo.logistic", ACCURACY, kUnary},
    {"stablehlo.negate", "", kUnary},
    {"stablehlo.not", "", kUnary},
    {"stablehlo.popcnt", "", kUnary},
    {"stablehlo.real", "", kUnary},
    {"stablehlo.reduce_precision", "exponent_bits: form, mantissa_bits: form",
     " %, format = @bits@attrs : @same"},
    {"stablehlo.round_nearest_afz", "", kUnary},
    {"stablehlo.round_nearest_even", "", kUnary},
    {"stablehlo.rsqrt", ACCURACY, kUnary},
    {"stablehlo.sign", "", kUnary},
    {"stablehlo.sine", ACCURACY, kUnary},
    {"stablehlo.sqrt", ACCURACY, kUnary},
    {"stablehlo.tan", ACCURACY, kUnary},
    {"stablehlo.tanh", ACCURACY, kUnary},
    {"stablehlo.uniform_dequantize", "", kUnary},
    {"stablehlo.uniform_quantize", "", kUnary},

    // Several operands.
    {"stablehlo.add", "", kBinary},
    {"stablehlo.and", "", kBinary},
    {"stablehlo.atan2", "", kBinary},
    {"stablehlo.clamp", "", " %, %, %@attrs : @same"},
    {"stablehlo.compare",
     "comparison_direction: enum comparison_direction, "
     "compare_type: enum comparison_type",
     " $comparison_direction, %, %{, $compare_type}@attrs : @function"},
    {"stablehlo.complex", "", " %, %@attrs : @complex"},
    {"stablehlo.divide", "", kBinary},
    {"stablehlo.map", "dimensions", ""},
    {"stablehlo.maximum", "", kBinary},
    {"stablehlo.minimum", "", kBinary},
    {"stablehlo.multiply", "", kBinary},
    {"stablehlo.or", "", kBinary},
    {"stablehlo.power", "", kBinary},
    {"stablehlo.remainder", "", kBinary},
    {"stablehlo.select", "", " %, %, %@attrs : @select"},
    {"stablehlo.shift_left", "", kBinary},
    {"stablehlo.shift_right_arithmetic", "", kBinary},
    {"stablehlo.shift_right_logical", "", kBinary},
    {"stablehlo.subtract", "", kBinary},
    {"stablehlo.xor", "", kBinary},
};

static constexpr GuestOp kOthers[] = {
    // Values without operands.
    {"stablehlo.constant", "value: form", "@constant"},
    {"stablehlo.create_token", "", kType},
    {"stablehlo.dynamic_iota", "iota_dimension: i64",
     " %, dim = $iota_dimension@attrs : @function"},
    {"stablehlo.iota", "iota_dimension: i64",
     " dim = $iota_dimension@attrs : @uniform"},
    {"stablehlo.partition_id", "", kType},
    {"stablehlo.replica_id", "", kType},

    // Shapes and elements.
    {"stablehlo.bitcast_convert", "", kOperands},
    {"stablehlo.broadcast", "broadcast_sizes: ints",
     " %, sizes = $broadcast_sizes@attrs : @function"},
    {"stablehlo.broadcast_in_dim", "broadcast_dimensions: ints",
     " %, dims = $broadcast_dimensions@attrs : @function"},
    {"stablehlo.concatenate", "dimension: i64",
     " @list dim = $dimension@attrs : @function"},
    {"stablehlo.dynamic_broadcast_in_dim",
     "broadcast_dimensions: ints, known_expanding_dimensions, "
     "known_nonexpanding_dimensions",
     " %, %, dims = $broadcast_dimensions@attrs : @function"},
    {"stablehlo.dynamic_gather", "dimension_numbers, indices_are_sorted", ""},
    {"stablehlo.dynamic_pad", "", kOperands},
    {"stablehlo.dynamic_reshape", "", kOperands},
    {"stablehlo.dynamic_slice", "slice_sizes: ints",
     " @list sizes = $slice_sizes@attrs : @function"},
    {"stablehlo.dynamic_update_slice", "", kOperands},
    {"stablehlo.gather", "dimension_numbers, slice_sizes, indices_are_sorted",
     ""},
    {"stablehlo.get_dimension_size", "dimension: i64",
     " %, dim = $dimension@attrs : @function"},
    {"stablehlo.pad",
     "edge_padding_low: ints, edge_padding_high: ints, interior_padding: ints",
     " %, %, low = $edge_padding_low, high = $edge_padding_high, "
     "interior = $interior_padding@attrs : @function"},
    {"stablehlo.real_dynamic_slice", "", kOperands},
    {"stablehlo.reshape", "", kOperands},
    {"stablehlo.reverse", "dimensions: ints",
     " %, dims = $dimensions@attrs : @same"},
    {"stablehlo.scatter",
     "scatter_dimension_numbers, indices_are_sorted, unique_indices", ""},
    {"stablehlo.set_dimension_size", "dimension: i64",
     " %, %, dim = $dimension@attrs : @function"},
    {"stablehlo.slice",
     "start_indices: form, limit_indices: form, strides: form",
     " % @ranges@attrs : @function"},
    {"stablehlo.torch_index_select", "dim, batch_dims", ""},
    {"stablehlo.transpose", "permutation: ints",
     " %, dims = $permutation@attrs : @function"},

    // Products, and what else computes with whole tensors.
    {"stablehlo.batch_norm_grad", BATCH_NORM, "",
     "grad_operand, grad_scale, grad_offset"},
    {"stablehlo.batch_norm_inference", BATCH_NORM, ""},
    {"stablehlo.batch_norm_training", BATCH_NORM, "",
     "output, batch_mean, batch_var"},
    {"stablehlo.cholesky", "lower: bool = false",
     " %{, lower = $lower}@attrs : @same"},
    {"stablehlo.convolution", WINDOW CONVOLUTION,
     "(%*) dim_numbers = $dimension_numbers, window = @window@attrs : "
     "@function"},
    {"stablehlo.dot", PRECISION,
     " %, %{, precision = $precision_config}@attrs : @function"},
    {"stablehlo.dot_general",
     "dot_dimension_numbers: form, " PRECISION
     ", algorithm: text dot_algorithm*",
     " %, %, @dot{, precision = $precision_config}{, algorithm = $algorithm}"
     "@attrs : @function"},
    {"stablehlo.dynamic_conv",
     "window_strides, lhs_dilation, rhs_dilation, window_reversal, "
     "dimension_numbers, feature_group_count, batch_group_count, "
     "precision_config",
     ""},
    {"stablehlo.einsum", "einsum_config: string",
     " %, %, config = $einsum_config@attrs : @function"},
    {"stablehlo.fft", "fft_type: enum fft_type, fft_length: ints",
     " %, type = $fft_type, length = $fft_length@attrs : @function"},
    {"stablehlo.rng", "rng_distribution: enum rng_distribution",
     " %, %, %, distribution = $rng_distribution@attrs : @function"},
    {"stablehlo.rng_bit_generator", "rng_algorithm: enum rng_algorithm",
     " %, algorithm = $rng_algorithm@attrs : @function",
     "output_state, output"},
    {"stablehlo.triangular_solve",
     "left_side, lower, unit_diagonal, transpose_a", ""},
    {"stablehlo.unary_einsum", "einsum_config: string",
     " %, config = $einsum_config@attrs : @function"},

    // Regions.
    {"stablehlo.case", "", ""},
    {"stablehlo.if", "", ""},
    {"stablehlo.reduce", "dimensions: form", "@reduce"},
    {"stablehlo.reduce_window",
     "window_dimensions, window_strides, base_dilations, window_dilations, "
     "padding",
     ""},
    {"stablehlo.return", "", " %*@attrs{ : @types}"},
    {"stablehlo.select_and_scatter",
     "window_dimensions, window_strides, padding", ""},
    {"stablehlo.sort", "dimension, is_stable", ""},
    {"stablehlo.while", "", "@while"},

    // Collectives and other ways out of the program.
    {"stablehlo.after_all", "", " %*@attrs : @same"},
    {"stablehlo.all_gather", "all_gather_dim, " GLOBAL_GROUPS, ""},
    {"stablehlo.all_reduce", GLOBAL_GROUPS, ""},
    {"stablehlo.all_to_all",
     "split_dimension, concat_dimension, split_count, " GROUPS, ""},
    {"stablehlo.async_done", "", ""},
    {"stablehlo.async_start", "", ""},
    {"stablehlo.collective_broadcast", GROUPS ", has_dynamic_root", ""},
    {"stablehlo.collective_permute", "source_target_pairs, channel_handle", ""},
    {"stablehlo.collective_reduce", GLOBAL_GROUPS ", has_dynamic_root", ""},
    {"stablehlo.composite",
     "name: string, composite_attributes = {}, decomposition, "
     "version = 0 : i32",
     " $name %*@attrs : @function"},
    {"stablehlo.cross-replica-sum", "replica_groups", ""},
    {"stablehlo.custom_call",
     "call_target_name: symbol, has_side_effect = false, backend_config, "
     "api_version = 1 : i32, called_computations = [], operand_layouts, "
     "result_layouts, output_operand_aliases = [], result_tilings",
     " $call_target_name(%*)@attrs : @function"},
    {"stablehlo.get_tuple_element", "index: i32",
     " %[$index]@attrs : @function"},
    {"stablehlo.infeed", "infeed_config, layout", ""},
    {"stablehlo.optimization_barrier", "", "@barrier"},
    {"stablehlo.outfeed", "outfeed_config", ""},
    {"stablehlo.recv", "channel_handle, is_host_transfer, source_target_pairs",
     ""},
    {"stablehlo.reduce_scatter", "scatter_dimension, " GLOBAL_GROUPS, ""},
    {"stablehlo.send", "channel_handle, is_host_transfer, source_target_pairs",
     ""},
    {"stablehlo.tuple", "", " %*@attrs : @tuple"},

    // CHLO.
    {"chlo._asin_acos_kernel", "", kArrow},
    {"chlo.acos", "", kArrow},
    {"chlo.acosh", "", kArrow},
    {"chlo.asin", "", kArrow},
    {"chlo.asinh", "", kArrow},
    {"chlo.atan", "", kArrow},
    {"chlo.atanh", "", kArrow},
    {"chlo.bessel_i1e", "", kArrow},
    {"chlo.broadcast_add", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_and", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_atan2", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_compare",
     "broadcast_dimensions, comparison_direction, compare_type", kBroadcast},
    {"chlo.broadcast_complex", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_divide", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_maximum", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_minimum", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_multiply", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_next_after", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_or", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_polygamma", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_power", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_remainder", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_select", "", " %, %, %@attrs : @function"},
    {"chlo.broadcast_shift_left", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_shift_right_arithmetic", "broadcast_dimensions",
     kBroadcast},
    {"chlo.broadcast_shift_right_logical", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_subtract", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_xor", "broadcast_dimensions", kBroadcast},
    {"chlo.broadcast_zeta", "broadcast_dimensions", kBroadcast},
    {"chlo.conj", "", kArrow},
    {"chlo.constant", "value: form", "@constant"},
    {"chlo.constant_like", "value", ""},
    {"chlo.cosh", "", kArrow},
    {"chlo.digamma", "", kArrow},
    {"chlo.erf", "", kArrow},
    {"chlo.erf_inv", "", kArrow},
    {"chlo.erfc", "", kArrow},
    {"chlo.is_inf", "", kArrow},
    {"chlo.is_neg_inf", "", kArrow},
    {"chlo.is_pos_inf", "", kArrow},
    {"chlo.lgamma", "", kArrow},
    {"chlo.mulhi", "", kBinaryArrow},
    {"chlo.next_after", "", kBinaryArrow},
    {"chlo.polygamma", "", kBinaryArrow},
    {"chlo.ragged_dot", "ragged_dot_dimension_numbers, precision_config", ""},
    {"chlo.sinh", "", kArrow},
    {"chlo.square", "", kArrow},
    {"chlo.tan", "", kArrow},
    {"chlo.top_k", "k: i64, is_stable: bool = true",
     "(%, k = $k{, is_stable = $is_stable})@attrs : @arrow", "values, indices"},
    {"chlo.zeta", "", kBinaryArrow},

    // Shardy.
    {"sdy.all_gather",
     "gathering_axes: text list_of_axis_ref_lists*, " OUT_SHARDING,
     " $gathering_axes %" INTO},
    {"sdy.all_reduce",
     "reduction_axes: text axis_ref_list*, reduction_op: case " REDUCTIONS
     " = 0 : i32, " OUT_SHARDING,
     "{ $reduction_op} $reduction_axes %" INTO},
    {"sdy.all_slice",
     "slicing_axes: text list_of_axis_ref_lists*, " OUT_SHARDING,
     " $slicing_axes %" INTO},
    {"sdy.all_to_all", "params: text all_to_all_param_list*, " OUT_SHARDING,
     " $params %" INTO},
    {"sdy.collective_permute", OUT_SHARDING, " %" INTO},
    {"sdy.constant", "value: form", "@constant"},
    {"sdy.data_flow_edge", "sharding: text sharding*",
     " %{ sharding=$sharding}@attrs : @uniform"},
    {"sdy.func_data_flow_edge", "", " %@attrs : @uniform"},
    {"sdy.manual_computation", SHARDINGS ", manual_axes: text manual_axes*",
     "(%*) in_shardings=$in_shardings out_shardings=$out_shardings "
     "manual_axes=$manual_axes @region@attrs : @function"},
    {"sdy.mesh", "sym_name: symbol, mesh: text mesh*",
     " $sym_name = $mesh@attrs"},
    {"sdy.named_computation", "name: string, " SHARDINGS,
     "<$name>(%*){ in_shardings=$in_shardings}"
     "{ out_shardings=$out_shardings} @region@attrs : @function"},
    {"sdy.propagation_barrier",
     "allowed_direction: case NONE|FORWARD|BACKWARD|BOTH",
     " % allowed_direction=$allowed_direction@attrs : @uniform"},
    {"sdy.reduce_scatter",
     "reduce_scatter_axes: text list_of_axis_ref_lists*, reduction_op: "
     "case " REDUCTIONS " = 0 : i32, " OUT_SHARDING,
     "{ $reduction_op} $reduce_scatter_axes %" INTO},
    {"sdy.replicated_to_unreduced", "axes: text axis_ref_list*, " OUT_SHARDING,
     " $axes %" INTO},
    {"sdy.reshard", "sharding: text sharding*",
     " % $sharding@attrs : @uniform"},
    {"sdy.return", "", "@attrs{ %* : @types}"},
    {"sdy.sharded_to_unreduced",
     "axes: text list_of_axis_ref_lists*, " OUT_SHARDING, " $axes %" INTO},
    {"sdy.sharding_constraint", "sharding: text sharding*",
     " % $sharding@attrs : @uniform"},
    {"sdy.sharding_group", "group_id: i64",
     " % group_id=$group_id@attrs : @types"},
};

ArrayRef<GuestOp> zpp::getElementwiseOps() { return kElementwise; }

ArrayRef<GuestOp> zpp::getGuestOps() {
  static const std::vector<GuestOp> ops = [] {
    std::vector<GuestOp> all(std::begin(kElementwise), std::end(kElementwise));
    llvm::append_range(all, kOthers);
    return all;
  }();
  return ops;
}
