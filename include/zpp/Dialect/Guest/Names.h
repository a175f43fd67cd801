//===- Names.h - Names of guest ops -----------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_NAMES_H
#define ZPP_DIALECT_GUEST_NAMES_H

#include "llvm/ADT/StringRef.h"

namespace zpp::guest {

// StableHLO.
inline constexpr llvm::StringLiteral kAbs = "stablehlo.abs";
inline constexpr llvm::StringLiteral kAdd = "stablehlo.add";
inline constexpr llvm::StringLiteral kBroadcastInDim =
    "stablehlo.broadcast_in_dim";
inline constexpr llvm::StringLiteral kCase = "stablehlo.case";
inline constexpr llvm::StringLiteral kClamp = "stablehlo.clamp";
inline constexpr llvm::StringLiteral kCompare = "stablehlo.compare";
inline constexpr llvm::StringLiteral kComposite = "stablehlo.composite";
inline constexpr llvm::StringLiteral kConstant = "stablehlo.constant";
inline constexpr llvm::StringLiteral kConvert = "stablehlo.convert";
inline constexpr llvm::StringLiteral kConvolution = "stablehlo.convolution";
inline constexpr llvm::StringLiteral kCreateToken = "stablehlo.create_token";
inline constexpr llvm::StringLiteral kCustomCall = "stablehlo.custom_call";
inline constexpr llvm::StringLiteral kDivide = "stablehlo.divide";
inline constexpr llvm::StringLiteral kDot = "stablehlo.dot";
inline constexpr llvm::StringLiteral kDotGeneral = "stablehlo.dot_general";
inline constexpr llvm::StringLiteral kDynamicSlice = "stablehlo.dynamic_slice";
inline constexpr llvm::StringLiteral kDynamicUpdateSlice =
    "stablehlo.dynamic_update_slice";
inline constexpr llvm::StringLiteral kExponential = "stablehlo.exponential";
inline constexpr llvm::StringLiteral kGather = "stablehlo.gather";
inline constexpr llvm::StringLiteral kIf = "stablehlo.if";
inline constexpr llvm::StringLiteral kIota = "stablehlo.iota";
inline constexpr llvm::StringLiteral kMultiply = "stablehlo.multiply";
inline constexpr llvm::StringLiteral kNegate = "stablehlo.negate";
inline constexpr llvm::StringLiteral kPartitionId = "stablehlo.partition_id";
inline constexpr llvm::StringLiteral kReduce = "stablehlo.reduce";
inline constexpr llvm::StringLiteral kReshape = "stablehlo.reshape";
inline constexpr llvm::StringLiteral kReturn = "stablehlo.return";
inline constexpr llvm::StringLiteral kScatter = "stablehlo.scatter";
inline constexpr llvm::StringLiteral kSelect = "stablehlo.select";
inline constexpr llvm::StringLiteral kSlice = "stablehlo.slice";
inline constexpr llvm::StringLiteral kSort = "stablehlo.sort";
inline constexpr llvm::StringLiteral kSubtract = "stablehlo.subtract";
inline constexpr llvm::StringLiteral kTokenType = "!stablehlo.token";
inline constexpr llvm::StringLiteral kTranspose = "stablehlo.transpose";
inline constexpr llvm::StringLiteral kWhile = "stablehlo.while";

// CHLO.
inline constexpr llvm::StringLiteral kTopK = "chlo.top_k";

// Attributes of JAX, and of its modules.
inline constexpr llvm::StringLiteral kNumPartitions = "mhlo.num_partitions";
inline constexpr llvm::StringLiteral kNumReplicas = "mhlo.num_replicas";
/// On modules that were HLO.
inline constexpr llvm::StringLiteral kIsDynamic = "mhlo.is_dynamic";
inline constexpr llvm::StringLiteral kResultInfo = "jax.result_info";
// Arguments that are donated: for a result, and for any.
inline constexpr llvm::StringLiteral kAliasingOutput = "tf.aliasing_output";
inline constexpr llvm::StringLiteral kBufferDonor = "jax.buffer_donor";

// Shardy.
inline constexpr llvm::StringLiteral kSdyManualComputation =
    "sdy.manual_computation";
inline constexpr llvm::StringLiteral kSdyReturn = "sdy.return";
inline constexpr llvm::StringLiteral kSdySharding = "sdy.sharding";
inline constexpr llvm::StringLiteral kSdyShardingConstraint =
    "sdy.sharding_constraint";

} // namespace zpp::guest

#endif // ZPP_DIALECT_GUEST_NAMES_H
