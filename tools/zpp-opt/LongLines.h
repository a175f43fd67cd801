//===- LongLines.h - Diagnostics of long lines ------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_ZPP_OPT_LONGLINES_H
#define ZPP_TOOLS_ZPP_OPT_LONGLINES_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

namespace zpp::tools {

/// Lines of programs can have a list of all devices. MLIR prints a line with
/// each diagnostic; this prints the part of it that the diagnostic is about.
class LongLines {
public:
  LongLines(llvm::StringRef file, llvm::StringRef text);

  /// Takes over diagnostics of `context` about long lines, until it is
  /// destroyed. `config` says which are shown.
  void handle(mlir::MLIRContext *context,
              const mlir::MlirOptMainConfig &config) const;

private:
  mlir::LogicalResult print(const mlir::Diagnostic &diagnostic,
                            bool showNotes) const;
  /// Prints the text of one diagnostic or note, and its line.
  void print(mlir::FileLineColLoc place,
             const mlir::Diagnostic &diagnostic) const;
  /// Returns the line of the input that `place` names, or nothing.
  llvm::StringRef getLine(mlir::FileLineColLoc place) const;

  llvm::StringRef file;
  std::vector<llvm::StringRef> lines;
};

} // namespace zpp::tools

#endif // ZPP_TOOLS_ZPP_OPT_LONGLINES_H
