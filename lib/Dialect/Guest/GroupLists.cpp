//===- GroupLists.cpp - Long lists of devices, printed once ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/GroupLists.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

bool zpp::isLongGroupList(Attribute attr) {
  constexpr int64_t kLong = 256;
  auto groups = dyn_cast_or_null<DenseIntElementsAttr>(attr);
  return groups && groups.getNumElements() >= kLong && !groups.isSplat() &&
         groups.getType().getRank() == 2 &&
         groups.getElementType().isInteger(64);
}

void zpp::noteGroupLists(ModuleOp module) {
  llvm::SetVector<Attribute> lists;
  module.walk([&](Operation *op) {
    if (Attribute groups = op->getAttr("replica_groups"))
      if (isLongGroupList(groups))
        lists.insert(groups);
  });
  module->removeAttr(kGroupListsAttr);
  if (!lists.empty())
    module->setAttr(kGroupListsAttr,
                    ArrayAttr::get(module.getContext(), lists.getArrayRef()));
}
