//===- StepSignature.cpp - Which result replaces which argument -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/StepSignature.h"

#include "mlir/IR/BuiltinAttributes.h"

using namespace mlir;
using namespace zpp;

StepSignature::StepSignature(func::FuncOp function) : function(function) {
  for (BlockArgument argument : function.getArguments()) {
    auto name = dyn_cast<NameLoc>(argument.getLoc());
    arguments.push_back(name ? name.getName().str() : "");
    size_t begin = arguments.back().find_first_of(".[");
    tails.push_back(
        begin == std::string::npos ? "" : arguments.back().substr(begin));
    if (auto alias = function.getArgAttrOfType<IntegerAttr>(
            argument.getArgNumber(), "tf.aliasing_output"))
      donated[argument.getArgNumber()] = alias.getInt();
  }
  for (unsigned result = 0; result < function.getNumResults(); ++result) {
    auto name =
        function.getResultAttrOfType<StringAttr>(result, "jax.result_info");
    results.push_back(name ? name.str() : "");
  }
}

Type StepSignature::getType(unsigned argument) const {
  return const_cast<func::FuncOp &>(function).getArgument(argument).getType();
}

bool StepSignature::haveOneName(unsigned result, unsigned argument) const {
  return !tails[argument].empty() &&
         StringRef(results[result]).ends_with(tails[argument]);
}

bool StepSignature::mayReplace(unsigned result, unsigned argument) const {
  for (auto [other, paired] : donated)
    if ((other == argument) != (paired == result))
      return false;
  if (haveOneName(result, argument))
    return true;
  for (unsigned other = 0; other < arguments.size(); ++other)
    if (getType(other) == getType(argument) && haveOneName(result, other))
      return false;
  return true;
}

std::optional<unsigned>
StepSignature::getReplaced(unsigned result,
                           ArrayRef<unsigned> candidates) const {
  SmallVector<unsigned> named;
  for (unsigned argument : candidates) {
    if (!mayReplace(result, argument))
      continue;
    if (donated.contains(argument))
      return argument;
    if (haveOneName(result, argument))
      named.push_back(argument);
  }
  return named.size() == 1 ? std::optional(named.front()) : std::nullopt;
}

std::string StepSignature::describeArgument(unsigned argument) const {
  std::string text = std::to_string(argument);
  if (!arguments[argument].empty())
    text += " (" + arguments[argument] + ")";
  return text;
}
