//===- Passages.cpp - Partitions that pass between computations -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Secondary/Rewrite.h"

#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

Value Passage::getValueIn(Operation *computation) {
  if (computation == from)
    return local;
  UnrealizedConversionCastOp &entry = entries[computation];
  if (!entry) {
    auto builder = OpBuilder::atBlockBegin(&ManualView(computation).getBody());
    entry = UnrealizedConversionCastOp::create(builder, local.getLoc(),
                                               local.getType(), ValueRange());
  }
  return entry.getResult(0);
}

void zpp::zero::openPassages(ModuleOp module,
                             MutableArrayRef<Passage> passages) {
  llvm::SetVector<Operation *> affected;
  for (Passage &passage : passages)
    if (!passage.entries.empty()) {
      affected.insert(passage.from);
      for (auto &[computation, entry] : passage.entries)
        affected.insert(computation);
    }
  if (affected.empty())
    return;
  // A computation is rebuilt after those whose results it reads.
  SmallVector<Operation *> computations;
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (affected.contains(op))
      computations.push_back(op);
  });
  llvm::DenseMap<Passage *, Value> outside;
  for (Operation *computation : computations) {
    Block &body = ManualView(computation).getBody();
    auto builder = OpBuilder(body.getTerminator());
    SmallVector<Passage *> leaving, entering;
    SmallVector<Value> results, operands;
    for (Passage &passage : passages) {
      RankedTensorType type = getTensorType(passage.local);
      if (passage.from == computation && !passage.entries.empty()) {
        leaving.push_back(&passage);
        results.push_back(createReshape(builder, passage.local.getLoc(),
                                        passage.local, type.getNumElements()));
      } else if (passage.entries.contains(computation)) {
        entering.push_back(&passage);
        operands.push_back(outside.lookup(&passage));
      }
    }
    int64_t devices = getNumDevices(module).value_or(1);
    size_t numResults = computation->getNumResults();
    size_t numOperands = computation->getNumOperands();
    ManualView extended =
        extendManualComputation(computation, operands, results, devices);
    for (auto [index, passage] : llvm::enumerate(leaving))
      outside[passage] = extended->getResult(numResults + index);
    builder.setInsertionPointToStart(&body);
    for (auto [index, passage] : llvm::enumerate(entering)) {
      UnrealizedConversionCastOp entry = passage->entries[computation];
      Value flat = body.getArgument(numOperands + index);
      entry.getResult(0).replaceAllUsesWith(
          createReshape(builder, flat.getLoc(), flat,
                        getTensorType(entry.getResult(0)).getShape()));
      entry.erase();
    }
  }
}
