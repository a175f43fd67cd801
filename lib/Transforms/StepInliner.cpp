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
#include "zpp/Analysis/StepCollectives.h"

using namespace mlir;
using namespace zpp;

namespace {
class StepInliner {
public:
  StepInliner(ModuleOp module, const Mesh &mesh)
      : module(module), symbols(module), mesh(mesh) {}

  void run() {
    for (auto function : module.getOps<func::FuncOp>())
      if (function.isPublic())
        inlineCollectives(function);
    eraseUncalled();
    // The operand of a gather may come out of a helper (a dynamic index).
    SmallVector<Operation *> gathers;
    module.walk([&](Operation *op) {
      std::optional<CollectiveView> view = getCollective(op, mesh);
      if (view && view->kind == CollectiveKind::AllGather)
        gathers.push_back(op);
    });
    for (Operation *gather : gathers)
      while (true) {
        Provenance provenance = getProvenance(gather->getOperand(0));
        auto *call =
            llvm::find_if(provenance.path, llvm::IsaPred<func::CallOp>);
        if (!provenance.isStepInput || call == provenance.path.end() ||
            !inlineCall(cast<func::CallOp>(*call)))
          break;
      }
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
      found |= getCollective(op, mesh).has_value();
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
    for (auto function :
         llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
      if (!inlined.contains(function) || !function.isPrivate())
        continue;
      if (SymbolTable::symbolKnownUseEmpty(function, module)) {
        inlined.erase(function);
        symbols.erase(function);
      }
    }
  }

  ModuleOp module;
  SymbolTable symbols;
  const Mesh &mesh;
  llvm::DenseMap<func::FuncOp, bool> known;
  llvm::DenseSet<func::FuncOp> inlined, active;
};
} // namespace

void zpp::inlineStep(ModuleOp module, const Mesh &mesh) {
  StepInliner(module, mesh).run();
}
