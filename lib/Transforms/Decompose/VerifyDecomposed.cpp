//===- VerifyDecomposed.cpp - The contract of decomposed IR ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Zero/IR/Contracts.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_VERIFYDECOMPOSEDPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

namespace {
class VerifyDecomposedPass
    : public zpp::impl::VerifyDecomposedPassBase<VerifyDecomposedPass> {
public:
  using VerifyDecomposedPassBase::VerifyDecomposedPassBase;

  void runOnOperation() override {
    if (failed(zpp::zero::verifyDecomposed(getOperation(), inPlace)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
