//===- StepSignature.cpp - Which result replaces which argument -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/StepSignature.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "zpp/Dialect/Guest/Names.h"

using namespace mlir;
using namespace zpp;

bool zpp::isReplicatedArgument(func::FuncOp function, unsigned argument) {
  auto parts = function->getParentOfType<ModuleOp>()->getAttrOfType<ArrayAttr>(
      "mhlo.spmd_parameters_shardings");
  auto text = parts && function.isPublic() && argument < parts.size()
                  ? dyn_cast<StringAttr>(parts[argument])
                  : StringAttr();
  return text && text.getValue() == "{replicated}";
}

StepSignature::StepSignature(func::FuncOp function) : function(function) {
  for (BlockArgument argument : function.getArguments()) {
    unsigned number = argument.getArgNumber();
    auto name = dyn_cast<NameLoc>(argument.getLoc());
    arguments.push_back(name ? name.getName().str() : "");
    StringRef text = arguments.back();
    if (StringRef tail =
            text.drop_front(std::min(text.find_first_of(".["), text.size()));
        !tail.empty())
      tails[tail].push_back(number);
    if (auto alias = function.getArgAttrOfType<IntegerAttr>(
            number, guest::kAliasingOutput)) {
      donated[number] = alias.getInt();
      taken[alias.getInt()] = number;
    }
  }
  for (unsigned result = 0; result < function.getNumResults(); ++result) {
    auto name =
        function.getResultAttrOfType<StringAttr>(result, guest::kResultInfo);
    results.push_back(name ? name.str() : "");
  }
}

Type StepSignature::getType(unsigned argument) const {
  return const_cast<func::FuncOp &>(function).getArgument(argument).getType();
}

SmallVector<unsigned> StepSignature::getNamesakes(unsigned result) const {
  SmallVector<unsigned> found;
  StringRef name = results[result];
  for (size_t begin = name.find_first_of(".["); begin != StringRef::npos;
       begin = name.find_first_of(".[", begin + 1)) {
    auto it = tails.find(name.drop_front(begin));
    if (it != tails.end())
      llvm::append_range(found, it->second);
  }
  return found;
}

bool StepSignature::mayReplace(unsigned result, unsigned argument) const {
  auto given = donated.find(argument);
  auto used = taken.find(result);
  if ((given != donated.end() && given->second != result) ||
      (used != taken.end() && used->second != argument))
    return false;
  bool isOther = false;
  for (unsigned namesake : getNamesakes(result)) {
    if (namesake == argument)
      return true;
    isOther |= getType(namesake) == getType(argument);
  }
  return !isOther;
}

std::optional<unsigned> StepSignature::getReplaced(
    unsigned result, llvm::function_ref<bool(unsigned)> isCandidate) const {
  auto used = taken.find(result);
  SmallVector<unsigned> found;
  if (used != taken.end())
    found.push_back(used->second);
  else
    found = getNamesakes(result);
  llvm::erase_if(found, [&](unsigned argument) {
    return !isCandidate(argument) || !mayReplace(result, argument);
  });
  return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

std::string StepSignature::describeArgument(unsigned argument) const {
  std::string text = std::to_string(argument);
  if (!arguments[argument].empty())
    text += " (" + arguments[argument] + ")";
  return text;
}
