//===- FormatOptions.cpp - Wire formats as pass options -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
#include "zpp/Support/Limits.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

FailureOr<QuantAttr> zpp::parseFormat(Operation *op, StringRef format,
                                      int64_t block, int64_t rotate) {
  // Errors are emitted at the location, because an error at an op, here a
  // module, prints the whole op.
  if (format == "none")
    return QuantAttr();
  std::optional<WireFormatKind> kind = symbolizeWireFormatKind(format);
  if (!kind)
    return emitError(op->getLoc(),
                     "expected a format none, i8 or i4, but got '")
           << format << "'";
  QuantAttr quant =
      QuantAttr::getChecked([&] { return emitError(op->getLoc()); },
                            op->getContext(), *kind, block, rotate);
  if (!quant)
    return failure();
  return quant;
}

FailureOr<SmallVector<QuantAttr>> zpp::parseFormats(Operation *op,
                                                    StringRef formats,
                                                    int64_t block,
                                                    int64_t rotate) {
  SmallVector<StringRef> names;
  formats.split(names, ':');
  SmallVector<QuantAttr> quants;
  for (StringRef name : names) {
    FailureOr<QuantAttr> quant = parseFormat(op, name, block, rotate);
    if (failed(quant))
      return failure();
    quants.push_back(*quant);
  }
  return quants;
}

bool zpp::hasFormat(ArrayRef<QuantAttr> quants) {
  return llvm::any_of(quants,
                      [](QuantAttr quant) { return static_cast<bool>(quant); });
}

LogicalResult zpp::checkStages(Operation *op, int64_t stages) {
  if (stages >= 0 && stages <= kMaxStages)
    return success();
  return emitError(op->getLoc(), "expected 1 to ")
         << kMaxStages << " stages, or 0 to choose, but got " << stages;
}
