//===- RemovedOrigins.cpp - Collectives that are gone ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RemovedOrigins.h"
#include "mlir/IR/BuiltinOps.h"
#include "zpp/Analysis/Location.h"

using namespace mlir;
using namespace zpp;

void zpp::recordRemoved(Operation *op) {
  auto module = op->getParentOfType<ModuleOp>();
  Builder builder(op->getContext());
  SmallVector<Attribute> all;
  if (auto before = module->getAttrOfType<ArrayAttr>(kOriginAttr))
    llvm::append_range(all, before);
  for (const Origin &origin : getOrigins(op)) {
    NamedAttrList attrs(getOriginAttr(op->getContext(), origin));
    attrs.set("location", builder.getStringAttr(getFileLocation(op->getLoc())));
    all.push_back(attrs.getDictionary(op->getContext()));
  }
  if (!all.empty())
    module->setAttr(kOriginAttr, builder.getArrayAttr(all));
}
