//===- ReorderSlices.cpp - Contiguous chunks, right placement (3.3.3) -----===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_REORDERSLICESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class ReorderSlicesPass
    : public zpp::impl::ReorderSlicesPassBase<ReorderSlicesPass> {
public:
  void runOnOperation() override {
    getOperation().walk([](AllToAllOp exchange) {
      SlicesAttr slices = exchange.getSlicesAttr();
      auto type = dyn_cast<RankedTensorType>(exchange.getInput().getType());
      if (!slices || !type)
        return;
      OpBuilder builder(exchange);
      auto packed = RankedTensorType::get(slices.getChunkShape(type.getShape()),
                                          type.getElementType());
      exchange.getInputMutable().assign(createLocal<PackSlicesOp>(
          builder, exchange.getLoc(), packed, exchange.getInput(), slices));
      exchange.removeSlicesAttr();
    });
  }
};
} // namespace
