//===- FormatOptions.cpp - Wire formats as pass options -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

FailureOr<QuantAttr> zpp::parseFormat(Operation *op, StringRef format,
                                      int64_t block) {
  // Errors at the op, a module, do not print all of it.
  if (format == "none")
    return QuantAttr();
  std::optional<WireFormatKind> kind = symbolizeWireFormatKind(format);
  if (!kind)
    return emitError(op->getLoc(),
                     "expected a format none, i8 or i4, but got '")
           << format << "'";
  QuantAttr quant = QuantAttr::getChecked(
      [&] { return emitError(op->getLoc()); }, op->getContext(), *kind, block);
  if (!quant)
    return failure();
  return quant;
}

FailureOr<SmallVector<QuantAttr>>
zpp::parseFormats(Operation *op, StringRef formats, int64_t block) {
  SmallVector<StringRef> names;
  formats.split(names, ':');
  SmallVector<QuantAttr> quants;
  for (StringRef name : names) {
    FailureOr<QuantAttr> quant = parseFormat(op, name, block);
    if (failed(quant))
      return failure();
    quants.push_back(*quant);
  }
  return quants;
}

FailureOr<std::optional<LinkModel>>
zpp::parseLinks(Operation *op, StringRef links, const Mesh &mesh) {
  if (links.empty())
    return std::optional<LinkModel>();
  std::string error;
  std::optional<LinkModel> model = LinkModel::parse(links.str(), mesh, error);
  if (!model)
    return emitError(op->getLoc(), "in links '") << links << "': " << error;
  return model;
}
