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
//   zpp.origin  {id, kind, role, phase, group, weight, model_bytes, trips,
//                before}: the collective before the rewrite
//   zpp.reason  why it was left alone
//   zpp.keep    its result is a secondary partition
//
// They are plain builtin attributes, which StableHLO keeps.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_ORIGIN_H
#define ZPP_ANALYSIS_ORIGIN_H

#include "zpp/Analysis/StepCollectives.h"

namespace zpp {

inline constexpr llvm::StringLiteral kMeshAttr = "zpp.mesh";
inline constexpr llvm::StringLiteral kOriginAttr = "zpp.origin";
inline constexpr llvm::StringLiteral kReasonAttr = "zpp.reason";
inline constexpr llvm::StringLiteral kKeepAttr = "zpp.keep";

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
};

/// The origin of `collective`, the `id`th of the module.
Origin getOrigin(const StepCollective &collective, const Mesh &mesh,
                 int64_t id);
mlir::DictionaryAttr getOriginAttr(mlir::MLIRContext *context,
                                   const Origin &origin);
/// The origin that `op` carries, if any.
std::optional<Origin> getOrigin(mlir::Operation *op);

/// Copies the attributes above, less `zpp.keep`.
void copyOrigin(mlir::Operation *from, mlir::Operation *to);

/// Says why `op` is left alone: a remark of `pass`, and for the report.
void leaveAlone(mlir::Operation *op, llvm::StringRef pass,
                const llvm::Twine &reason);

/// Remarks what `pass` did with `op`.
void remarkRewrite(mlir::Operation *op, llvm::StringRef pass,
                   const llvm::Twine &what);

} // namespace zpp

#endif // ZPP_ANALYSIS_ORIGIN_H
