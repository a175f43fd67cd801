//===- Machine.h - The machine that a step runs on --------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The import writes down once what is known of the machine, as an attribute of
// the module. All passes that ask how long something takes read it there.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_MACHINE_H
#define ZPP_ANALYSIS_MACHINE_H

#include "mlir/IR/BuiltinOps.h"
#include "zpp/Support/DeviceModel.h"
#include "zpp/Support/LinkModel.h"

namespace zpp {

/// An attribute of a module with a word for each thing that is known: `mesh`,
/// the tiers such as "node:2,gpu:4", `links`, their speeds, and `device`.
inline constexpr llvm::StringLiteral kMachineAttr = "zpp.machine";

/// Returns the word `name` of the machine of `module`, or nothing.
llvm::StringRef getMachineWord(mlir::Operation *module, llvm::StringRef name);

class Machine {
public:
  /// Returns the machine of `module`; of one without the attribute, nothing is
  /// known. Emits an error for a word that does not parse.
  static mlir::FailureOr<Machine> get(mlir::ModuleOp module);

  /// Returns the machine with the tiers of `mesh` that words describe. `links`
  /// has speeds, such as "node=50gbit,gpu=400gbyte", or names a file with a
  /// line "links=..." as `zpp-perf --calibrate` prints it; "none" is for
  /// unknown ones. Where a word is empty, that of `module` counts.
  static mlir::FailureOr<Machine> read(mlir::ModuleOp module, const Mesh &mesh,
                                       llvm::StringRef links,
                                       llvm::StringRef device);

  /// Writes it down.
  void set(mlir::ModuleOp module) const;

  /// Returns what is known of the links between the tiers of `mesh`: nothing
  /// for a mesh with tiers of other names.
  std::optional<LinkModel> findLinks(const Mesh &mesh) const;
  /// The same; where nothing is known, links as many machines have them.
  LinkModel getLinks(const Mesh &mesh) const;

  const std::optional<DeviceModel> &findDevice() const { return device; }
  /// The same; where nothing is known, a device as fast as many.
  DeviceModel getDevice() const;

private:
  /// As the attribute has them.
  std::string meshWord, linksWord, deviceWord;
  std::optional<DeviceModel> device;
};

} // namespace zpp

#endif // ZPP_ANALYSIS_MACHINE_H
