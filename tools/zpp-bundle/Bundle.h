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
  /// Where its collectives come from.
  std::string title;
  /// Bytes of each buffer, in the order of the arguments.
  std::vector<int64_t> inputs;
  std::vector<int64_t> outputs;
  /// Bytes; 0: it takes none.
  int64_t workspace = 0;
  /// Bytes that a device sends over each tier of the mesh.
  std::vector<int64_t> sent;
};

/// What a rewritten step consists of.
struct Bundle {
  /// Takes `module` apart. What does not fit together is an error at its place.
  static mlir::FailureOr<Bundle>
  split(mlir::OwningOpRef<mlir::ModuleOp> module);

  /// Writes `id` to all calls of the step.
  void setId(llvm::StringRef id);
  /// The step in the generic form, as every reader of StableHLO accepts it.
  std::string getStepText();
  /// The text of bundle.json, with the SHA-256 of the other files and its own.
  std::string getManifest(
      llvm::ArrayRef<std::pair<llvm::StringRef, std::string>> digests) const;

  mlir::OwningOpRef<mlir::ModuleOp> step;
  /// Empty if nothing was outlined.
  mlir::OwningOpRef<mlir::ModuleOp> host;
  std::string id;
  std::string mesh;
  std::vector<std::string> tiers;
  std::vector<HostFunction> functions;
};

/// SHA-256 in hexadecimal digits.
std::string getDigest(llvm::StringRef text);

/// Writes the folder `path`. `fill` puts the files into a new folder beside it,
/// which gets the name when it is complete: on failure nothing has changed. An
/// older bundle is replaced; anything else at `path` is left alone, with an
/// error.
llvm::Error
writeFolder(llvm::StringRef path,
            llvm::function_ref<llvm::Error(llvm::StringRef folder)> fill);

} // namespace zpp

#endif // ZPP_TOOLS_ZPP_BUNDLE_BUNDLE_H
