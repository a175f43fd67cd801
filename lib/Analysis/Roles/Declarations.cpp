//===- Declarations.cpp - What the user says of arguments -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "zpp/Analysis/Roles/Roles.h"

using namespace mlir;
using namespace zpp;

/// Returns the function of the module whose arguments are the inputs of the
/// step.
static func::FuncOp getStep(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPublic() && !function.isExternal())
      return function;
  return {};
}

FailureOr<NamedArguments>
NamedArguments::parse(ModuleOp module, StringRef option, StringRef text) {
  NamedArguments named;
  named.all = text == "all";
  if (text.empty() || named.all)
    return named;
  func::FuncOp step = getStep(module);
  unsigned count = step ? step.getNumArguments() : 0;
  for (StringRef part : llvm::split(text, ',')) {
    auto [firstText, lastText] = part.split('-');
    unsigned first, last;
    if (firstText.trim().getAsInteger(10, first) ||
        (part.contains('-') ? lastText : firstText)
            .trim()
            .getAsInteger(10, last) ||
        last < first)
      return emitError(module.getLoc(), "expected ")
             << option
             << " to be 'all' or argument numbers and ranges, as 0,3-7, but "
                "got '"
             << text << "'";
    if (last >= count)
      return emitError(module.getLoc(), "expected arguments of the step below ")
             << count << " in " << option << ", but got " << last;
    for (unsigned number = first; number <= last; ++number)
      named.numbers.insert(number);
  }
  return named;
}

FailureOr<Declarations> Declarations::parse(ModuleOp module,
                                            StringRef weightsOf,
                                            StringRef gradientsOf) {
  FailureOr<NamedArguments> weights =
      NamedArguments::parse(module, "weights-of", weightsOf);
  FailureOr<NamedArguments> gradients =
      NamedArguments::parse(module, "gradients-of", gradientsOf);
  if (failed(weights) || failed(gradients))
    return failure();
  return Declarations{*weights, *gradients};
}
