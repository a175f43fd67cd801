//===- Origin.h - What a rewritten collective comes from --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What links each collective of the output to the one of the input that it
// replaces. docs/architecture.md has the attributes, and who reads them.
//
//   zpp.origin   {id, kind, role, rule, phase, group, weight, model_bytes,
//                 trips, before, gets, lacks, floor, block}: the collective
//                 before the rewrite, what it gets from options that not all
//                 can have, why it lacks others, and the narrowest format that
//                 it may have. If several travel in one buffer, an array of
//                 these, each with its `share` of the bytes of a chunk
//   zpp.source   {properties, attributes} of the StableHLO op from which it was
//                imported. If it is neither quantized nor split nor joined, it
//                becomes this op again
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_ORIGIN_H
#define ZPP_ANALYSIS_ORIGIN_H

#include "mlir/IR/BuiltinAttributes.h"
#include "zpp/Analysis/Roles/Roles.h"
#include "zpp/Support/Decision.h"

namespace zpp {

inline constexpr llvm::StringLiteral kOriginAttr = "zpp.origin";
inline constexpr llvm::StringLiteral kOriginsAttr = "zpp.origins";
inline constexpr llvm::StringLiteral kReasonAttr = "zpp.reason";
inline constexpr llvm::StringLiteral kKeepAttr = "zpp.keep";
inline constexpr llvm::StringLiteral kForwardOnlyAttr = "zpp.forward_only";
inline constexpr llvm::StringLiteral kUpdatedAttr = "zpp.updated";
inline constexpr llvm::StringLiteral kSourceAttr = "zpp.source";

/// The narrowest format in which a collective may travel; None is no format at
/// all. The later ones allow less.
enum class Floor { Any, I8, None };

/// The contents of `zpp.origin`.
struct Origin {
  int64_t id;
  /// nullopt if missing or unknown.
  std::optional<CollectiveKind> kind;
  std::optional<Role> role;
  std::optional<Phase> phase;
  /// The rule of docs/rules.md that decided about the role; may be empty.
  std::string rule;
  /// The axes of the groups, or empty.
  std::string group;
  /// See StepCollective.
  int64_t weight;
  int64_t modelBytes;
  /// The number of executions per step; 1 if unknown.
  int64_t trips;
  /// The bytes that a device sends per step over each axis of the mesh.
  std::vector<int64_t> before;
  /// Its bytes in a chunk; 0 for the whole chunk.
  int64_t share = 0;
  /// The reason why it was left alone, or empty.
  std::string reason;
  /// Words below: what options did for it.
  std::vector<std::string> gets;
  /// By such a word, why an option did nothing for it; null if there is none.
  mlir::DictionaryAttr lacks;
  /// See LeftAlone::isSlower.
  bool isSlower = false;
  /// The format that zero-set-floors was asked for, or none where `exact` says
  /// why elements are never rounded.
  Floor floor = Floor::Any;
  mlir::StringAttr exact;
  /// See StepCollective.
  int64_t block = 0;
  /// See StepCollective.
  bool isConditional = false;
};

/// Words for what options do for some collectives: their weight's secondary
/// partition is kept, it sends differences, its gradient is added up before it
/// is sent, its weight does not change and is sent in the first step only, it
/// sends an update.
inline constexpr llvm::StringLiteral kGetsSecondary = "secondary";
inline constexpr llvm::StringLiteral kGetsDifferences = "differences";
inline constexpr llvm::StringLiteral kGetsAccumulate = "accumulate";
inline constexpr llvm::StringLiteral kGetsFrozen = "frozen";
inline constexpr llvm::StringLiteral kGetsUpdate = "update";

/// Returns the words of the attribute; empty for nullopt.
llvm::StringRef getKindName(std::optional<CollectiveKind> kind);
llvm::StringRef getRoleName(std::optional<Role> role);
llvm::StringRef getPhaseName(std::optional<Phase> phase);
/// "i8" or "none"; empty for any format.
llvm::StringRef getFloorName(Floor floor);
/// The floor of that name; nullopt for other words.
std::optional<Floor> parseFloor(llvm::StringRef name);

/// Returns the origin of `collective`, which is number `id` in the module.
Origin getOrigin(const StepCollective &collective, const Mesh &mesh,
                 int64_t id);
mlir::DictionaryAttr getOriginAttr(mlir::MLIRContext *context,
                                   const Origin &origin);
/// Returns the origin that `op` carries, if any.
std::optional<Origin> getOrigin(mlir::Operation *op);
/// Returns the origins that `op` carries: several if it replaces several
/// collectives.
llvm::SmallVector<Origin> getOrigins(mlir::Operation *op);
/// Returns the origins of `collective`, which its op or its start carries.
llvm::SmallVector<Origin> getOrigins(const StepCollective &collective);
/// True if there are any.
bool hasOrigin(const StepCollective &collective);
/// Returns the floor of what `op` replaces: if it replaces several collectives,
/// of the one that allows least.
Floor getFloor(mlir::Operation *op);
/// Returns the most elements that a block may have of what `op` replaces; 0 for
/// any number.
int64_t getLargestBlock(mlir::Operation *op);
/// Why what `origins` tell of, whose floor is None, is not quantized.
std::string getFloorReason(llvm::ArrayRef<Origin> origins);
/// Removes the origin, the reason and the source of the exchange `op`, and
/// returns the first two for the `zpp.origins` of a start.
mlir::Attribute takeOrigin(mlir::Operation *op);

/// Returns the location of the collective `op`, with a name that leads back to
/// it if it has an origin, such as "weight #3 params['w']": the runtime
/// measures what it does to which. `input` is the argument of the step that it
/// moves, or null.
mlir::Location getNamedLocation(mlir::Operation *op, Role role,
                                mlir::Value input);

/// Copies `zpp.origin` and `zpp.reason`.
void copyOrigin(mlir::Operation *from, mlir::Operation *to);

/// Adds `what` to what the origins of `op` get.
void addGets(mlir::Operation *op, llvm::StringRef what);
/// Adds to the origins of `op` why they lack `what`.
void addLacks(mlir::Operation *op, llvm::StringRef what,
              const llvm::Twine &why);

/// Records `op`, of StableHLO, as the source of `imported`.
void setSource(mlir::Operation *op, mlir::Operation *imported);
/// Copies the source to an op that does the same.
void copySource(mlir::Operation *from, mlir::Operation *to);
/// If `from` has a source, gives `to`, an op of the same name as the source,
/// all its attributes.
void restoreSource(mlir::Operation *from, mlir::Operation *to);

/// Records the reason why `op` is left alone, in a remark of `pass` and for the
/// report; with a word of `kGets...` for what it lacks, if there is one.
void leaveAlone(mlir::Operation *op, llvm::StringRef pass, const LeftAlone &why,
                llvm::StringRef lacks = {});
void leaveAlone(mlir::Operation *op, llvm::StringRef pass,
                const llvm::Twine &reason);

/// Returns why a module without collectives has none, and what to do about it.
std::string getWhyNoCollectives(mlir::ModuleOp module);
/// Emits a remark of `pass` that says so.
void remarkNoCollectives(mlir::ModuleOp module, llvm::StringRef pass);

/// Emits a remark on what `pass` did with `op`.
void remarkRewrite(mlir::Operation *op, llvm::StringRef pass,
                   const llvm::Twine &what);

/// True if there are `origins`, and all have `role`.
bool hasRole(llvm::ArrayRef<Origin> origins, Role role);

} // namespace zpp

#endif // ZPP_ANALYSIS_ORIGIN_H
