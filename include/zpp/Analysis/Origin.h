//===- Origin.h - What a rewritten collective comes from --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Discardable attributes that tie each collective of the output to the one of
// the input that it stands for:
//
//   zpp.origin   {id, kind, role, phase, group, weight, model_bytes, trips,
//                 before}: the collective before the rewrite; where several
//                 travel in one buffer, an array of such, each with the `share`
//                 of bytes in a chunk that is its own
//   zpp.reason   why it was left alone
//   zpp.keep     its result is a secondary partition
//   zpp.forward_only  of a gather: zero-regather has found that the backward
//                pass does not read it; not in the output
//   zpp.source   {properties, attributes}: those of the StableHLO op from which
//                it was imported and which, neither quantized nor split nor
//                joined, it is to become again; not in the output
//   zpp.origins  of a start: the origins of the exchanges in its function, with
//                their reasons. What several starts share has none of its own.
//
// They are plain builtin attributes, which StableHLO keeps.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_ORIGIN_H
#define ZPP_ANALYSIS_ORIGIN_H

#include "zpp/Analysis/Roles.h"

namespace zpp {

inline constexpr llvm::StringLiteral kOriginAttr = "zpp.origin";
inline constexpr llvm::StringLiteral kOriginsAttr = "zpp.origins";
inline constexpr llvm::StringLiteral kReasonAttr = "zpp.reason";
inline constexpr llvm::StringLiteral kKeepAttr = "zpp.keep";
inline constexpr llvm::StringLiteral kForwardOnlyAttr = "zpp.forward_only";
inline constexpr llvm::StringLiteral kSourceAttr = "zpp.source";

/// What `zpp.origin` holds.
struct Origin {
  int64_t id;
  std::string kind;
  std::string role;
  std::string phase;
  /// Axes of the groups, or empty.
  std::string group;
  /// See StepCollective.
  int64_t weight;
  int64_t modelBytes;
  /// Executions per step; unknown counts as once.
  int64_t trips;
  /// Bytes a device sends per step over each axis of the mesh.
  std::vector<int64_t> before;
  /// Bytes of a chunk that are its own; 0 for all of it.
  int64_t share = 0;
  /// Why it was left alone, or empty.
  std::string reason;
};

/// The origin of `collective`, the `id`th of the module.
Origin getOrigin(const StepCollective &collective, const Mesh &mesh,
                 int64_t id);
mlir::DictionaryAttr getOriginAttr(mlir::MLIRContext *context,
                                   const Origin &origin);
/// The origin that `op` carries, if it carries one.
std::optional<Origin> getOrigin(mlir::Operation *op);
/// The origins that `op` carries: several where it moves what several
/// collectives moved.
llvm::SmallVector<Origin> getOrigins(mlir::Operation *op);
/// The origins that `collective` carries, or its start for it.
llvm::SmallVector<Origin> getOrigins(const StepCollective &collective);
/// For the `zpp.origins` of a start: the origin of the exchange `op` with its
/// reason, which are removed from it, as is its source.
mlir::Attribute takeOrigin(mlir::Operation *op);

/// Copies `zpp.origin` and `zpp.reason`.
void copyOrigin(mlir::Operation *from, mlir::Operation *to);

/// Makes `op`, of StableHLO, the source of `imported`.
void setSource(mlir::Operation *op, mlir::Operation *imported);
/// Copies the source, to an op that does the same.
void copySource(mlir::Operation *from, mlir::Operation *to);
/// Gives `to`, an op of the same name as the source of `from`, all attributes
/// of that source, if `from` has one.
void restoreSource(mlir::Operation *from, mlir::Operation *to);

/// Says why `op` is left alone: a remark of `pass`, and for the report.
void leaveAlone(mlir::Operation *op, llvm::StringRef pass,
                const llvm::Twine &reason);

/// Remarks what `pass` did with `op`.
void remarkRewrite(mlir::Operation *op, llvm::StringRef pass,
                   const llvm::Twine &what);

} // namespace zpp

#endif // ZPP_ANALYSIS_ORIGIN_H
