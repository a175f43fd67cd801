//===- Bundle.h - A step and its host functions -----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_ZPP_BUNDLE_BUNDLE_H
#define ZPP_TOOLS_ZPP_BUNDLE_BUNDLE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace zpp {

/// A row of bundle.json.
struct HostFunction {
  std::string name;
  /// The source location of its collectives.
  std::string title;
  /// Bytes of each buffer, in the order of the arguments.
  std::vector<int64_t> inputs;
  std::vector<int64_t> outputs;
  /// The bytes of the workspace, or 0 if it takes none.
  int64_t workspace = 0;
  /// Bytes that a device sends over each tier of the mesh.
  std::vector<int64_t> sent;
  /// The arguments of `main` that are its inputs in its first call, and the
  /// results of `main` that are its outputs; -1 for other values.
  std::vector<int64_t> arguments;
  std::vector<int64_t> results;
};

/// The parts of a rewritten step.
struct Bundle {
  /// Splits `module` into its parts. Emits an error where the parts do not fit
  /// together.
  static mlir::FailureOr<Bundle>
  split(mlir::OwningOpRef<mlir::ModuleOp> module);

  /// Writes `id` to all calls of the step.
  void setId(llvm::StringRef id);
  /// Returns the step in the generic form, as every reader of StableHLO accepts
  /// it.
  std::string getStepText();
  /// Returns the text of bundle.json, with the SHA-256 of the other files and
  /// its own.
  std::string getManifest(
      llvm::ArrayRef<std::pair<llvm::StringRef, std::string>> digests) const;

  mlir::OwningOpRef<mlir::ModuleOp> step;
  /// Without functions if nothing was outlined.
  mlir::OwningOpRef<mlir::ModuleOp> host;
  std::string id;
  std::string mesh;
  std::vector<std::string> tiers;
  std::vector<HostFunction> functions;
};

/// SHA-256 in hexadecimal digits.
std::string getDigest(llvm::StringRef text);

/// Writes the folder `path`. `fill` puts the files into a new folder beside it,
/// which is renamed when it is complete; if anything fails, nothing has
/// changed, and a signal that ends the process waits. An older bundle is
/// replaced. Anything else at `path` is left alone, with an error.
llvm::Error
writeFolder(llvm::StringRef path,
            llvm::function_ref<llvm::Error(llvm::StringRef folder)> fill);

} // namespace zpp

#endif // ZPP_TOOLS_ZPP_BUNDLE_BUNDLE_H
