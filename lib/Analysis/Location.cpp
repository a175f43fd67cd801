//===- Location.cpp - Where an op comes from, as text ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Location.h"

using namespace mlir;
using namespace zpp;

FileLineColLoc zpp::findFileLocation(Location loc) {
  FileLineColLoc file;
  loc->walk([&](Location nested) {
    file = dyn_cast<FileLineColLoc>(nested);
    return file ? WalkResult::interrupt() : WalkResult::advance();
  });
  return file;
}

std::string zpp::getFileLocation(Location loc) {
  FileLineColLoc file = findFileLocation(loc);
  if (!file)
    return "";
  return (file.getFilename().getValue() + ":" + Twine(file.getLine()) + ":" +
          Twine(file.getColumn()))
      .str();
}

std::string zpp::describeLocation(Location loc) {
  if (auto file = dyn_cast<FileLineColRange>(loc))
    return (file.getFilename().getValue() + ":" + Twine(file.getStartLine()) +
            ":" + Twine(file.getStartColumn()))
        .str();
  if (auto name = dyn_cast<NameLoc>(loc)) {
    std::string child = describeLocation(name.getChildLoc());
    return child.empty() ? name.getName().str()
                         : name.getName().str() + " at " + child;
  }
  if (auto call = dyn_cast<CallSiteLoc>(loc))
    return describeLocation(call.getCallee());
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location part : fused.getLocations())
      if (std::string text = describeLocation(part); !text.empty())
        return text;
  return "";
}
