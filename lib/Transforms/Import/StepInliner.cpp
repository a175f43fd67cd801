//===- StepInliner.cpp - One region for the whole step --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepInliner.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Analysis/Collectives.h"
#include "zpp/Analysis/Provenance.h"

using namespace mlir;
using namespace zpp;

static bool isGather(Operation *op) {
  return isCollective(op) && op->getName().stripDialect() == "all_gather";
}

/// The call out of which the operand of `gather` comes, or null: a helper, for
/// a dynamic index for instance.
static func::CallOp getSourceCall(Operation *gather) {
  // Inlining changes the module, so that nothing known carries over.
  ProvenanceAnalysis provenances;
  Value operand = gather->getOperand(0);
  SmallVector<Operation *> path = provenances.getPath(operand);
  auto *call = llvm::find_if(path, llvm::IsaPred<func::CallOp>);
  if (!provenances.get(operand).isStepInput || call == path.end())
    return {};
  return cast<func::CallOp>(*call);
}

namespace {
class StepInliner {
public:
  explicit StepInliner(ModuleOp module) : module(module), symbols(module) {}

  void run() {
    for (auto function : module.getOps<func::FuncOp>())
      if (function.isPublic())
        inlineCollectives(function);
    eraseUncalled();
    SmallVector<Operation *> gathers;
    module.walk([&](Operation *op) {
      if (isGather(op))
        gathers.push_back(op);
    });
    for (Operation *gather : gathers)
      while (func::CallOp call = getSourceCall(gather))
        if (!inlineCall(call))
          break;
    eraseUncalled();
  }

private:
  /// True if the function or one that it calls has a collective.
  bool hasCollective(func::FuncOp function) {
    auto [it, isNew] = known.try_emplace(function, false);
    if (!isNew)
      return it->second;
    bool found = false;
    function.walk([&](Operation *op) {
      if (auto call = dyn_cast<func::CallOp>(op)) {
        if (auto callee = symbols.lookup<func::FuncOp>(call.getCallee()))
          found |= hasCollective(callee);
        return;
      }
      found |= isCollective(op);
    });
    return known[function] = found;
  }

  void inlineCollectives(func::FuncOp function) {
    active.insert(function);
    SmallVector<func::CallOp> calls;
    function.walk([&](func::CallOp call) { calls.push_back(call); });
    for (func::CallOp call : calls) {
      auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
      // A function that calls itself, by whatever way, has no end.
      if (!callee || active.contains(callee) || !callee.isPrivate() ||
          !hasCollective(callee))
        continue;
      // Innermost first, so that each callee is done when it is copied.
      if (inlined.insert(callee).second)
        inlineCollectives(callee);
      inlineCall(call);
    }
    active.erase(function);
  }

  bool inlineCall(func::CallOp call) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    if (!callee || callee.isExternal() || !callee.getBody().hasOneBlock())
      return false;
    OpBuilder builder(call);
    IRMapping mapping;
    Block &body = callee.getBody().front();
    mapping.map(body.getArguments(), call.getOperands());
    for (Operation &op : body.without_terminator())
      builder.clone(op, mapping);
    for (auto [result, value] : llvm::zip_equal(
             call.getResults(), body.getTerminator()->getOperands()))
      result.replaceAllUsesWith(mapping.lookupOrDefault(value));
    call.erase();
    inlined.insert(callee);
    return true;
  }

  /// Erases private functions that nothing refers to any more.
  void eraseUncalled() {
    for (bool isErased = true; isErased;) {
      isErased = false;
      // All references at once: one function at a time would be quadratic.
      llvm::DenseSet<StringAttr> used;
      if (std::optional<SymbolTable::UseRange> uses =
              SymbolTable::getSymbolUses(&module.getBodyRegion()))
        for (const SymbolTable::SymbolUse &use : *uses)
          used.insert(use.getSymbolRef().getRootReference());
      else
        return;
      for (auto function :
           llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
        if (!inlined.contains(function) || !function.isPrivate() ||
            used.contains(function.getSymNameAttr()))
          continue;
        inlined.erase(function);
        symbols.erase(function);
        isErased = true;
      }
    }
  }

  ModuleOp module;
  SymbolTable symbols;
  llvm::DenseMap<func::FuncOp, bool> known;
  llvm::DenseSet<func::FuncOp> inlined, active;
};
} // namespace

void zpp::inlineStep(ModuleOp module) { StepInliner(module).run(); }

bool zpp::needsInlining(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>()) {
    bool isPrivate = function.isPrivate();
    WalkResult result = function.walk([&](Operation *op) {
      if (isPrivate ? isCollective(op)
                    : isGather(op) && getSourceCall(op) != nullptr)
        return WalkResult::interrupt();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return true;
  }
  return false;
}
