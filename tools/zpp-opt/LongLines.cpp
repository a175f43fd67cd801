//===- LongLines.cpp - Diagnostics of long lines --------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LongLines.h"

#include "mlir/IR/MLIRContext.h"
#include "zpp/Analysis/Location.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::tools;

/// Characters of a line that is printed whole.
static constexpr size_t kShown = 240;
/// Characters that are shown in front of the place.
static constexpr size_t kBefore = 40;

static StringRef getWord(DiagnosticSeverity severity) {
  switch (severity) {
  case DiagnosticSeverity::Note:
    return "note";
  case DiagnosticSeverity::Warning:
    return "warning";
  case DiagnosticSeverity::Error:
    return "error";
  case DiagnosticSeverity::Remark:
    return "remark";
  }
  llvm_unreachable("unknown severity");
}

/// Whether diagnostics of `severity` are shown.
static bool isShown(DiagnosticSeverity severity, VerbosityLevel level) {
  return severity == DiagnosticSeverity::Error ||
         (severity == DiagnosticSeverity::Warning &&
          level != VerbosityLevel::ErrorsOnly) ||
         level == VerbosityLevel::ErrorsWarningsAndRemarks;
}

LongLines::LongLines(StringRef file, StringRef text) : file(file) {
  bool isLong = false;
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    lines.push_back(line);
    isLong |= line.size() > kShown;
    text = rest;
  }
  if (!isLong)
    lines.clear();
}

StringRef LongLines::getLine(FileLineColLoc place) const {
  if (!place || place.getFilename() != file || place.getLine() == 0 ||
      place.getLine() > lines.size())
    return "";
  return lines[place.getLine() - 1];
}

void LongLines::handle(MLIRContext *context,
                       const MlirOptMainConfig &config) const {
  if (lines.empty() || config.shouldVerifyDiagnostics())
    return;
  VerbosityLevel level = config.getDiagnosticVerbosityLevel();
  bool showNotes = config.shouldShowNotes();
  context->getDiagEngine().registerHandler(
      [this, level, showNotes](Diagnostic &diagnostic) {
        // The other handlers hide it.
        if (!isShown(diagnostic.getSeverity(), level))
          return failure();
        return print(diagnostic, showNotes);
      });
}

LogicalResult LongLines::print(const Diagnostic &diagnostic,
                               bool showNotes) const {
  FileLineColLoc place = findFileLocation(diagnostic.getLocation());
  if (getLine(place).size() <= kShown)
    return failure();
  print(place, diagnostic);
  if (!showNotes)
    return success();
  for (Diagnostic &note : const_cast<Diagnostic &>(diagnostic).getNotes())
    if (FileLineColLoc at = findFileLocation(note.getLocation()))
      print(at, note);
  return success();
}

void LongLines::print(FileLineColLoc place,
                      const Diagnostic &diagnostic) const {
  llvm::raw_ostream &os = llvm::errs();
  os << place.getFilename().getValue() << ":" << place.getLine() << ":"
     << place.getColumn() << ": " << getWord(diagnostic.getSeverity()) << ": "
     << diagnostic << "\n";
  StringRef line = getLine(place);
  size_t column = place.getColumn() == 0 ? 0 : place.getColumn() - 1;
  if (line.empty() || column >= line.size())
    return;
  size_t begin =
      line.size() > kShown && column > kBefore ? column - kBefore : 0;
  StringRef shown = line.substr(begin, kShown);
  StringRef before = begin > 0 ? "..." : "";
  os << before << shown << (begin + shown.size() < line.size() ? "..." : "")
     << "\n";
  os.indent(before.size() + column - begin) << "^\n";
}
