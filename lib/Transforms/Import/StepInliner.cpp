//===- StepInliner.cpp - One region for the whole step --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepInliner.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Analysis/Collectives.h"
#include "zpp/Analysis/FunctionsWith.h"
#include "zpp/Analysis/Provenance.h"
#include "zpp/Dialect/Guest/Calls.h"
#include "zpp/Dialect/Guest/ShardyBorders.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

/// The maximal number of ops that inlining may add to a module.
static constexpr int64_t kMostInlinedOps = 1 << 20;

static bool isGather(Operation *op) {
  return isCollective(op) && op->getName().stripDialect() == "all_gather";
}

/// Returns the calls through which the operand of `gather` comes from an input
/// of the step: for instance of a helper that computes a dynamic index.
static SmallVector<func::CallOp>
getSourceCalls(Operation *gather, ProvenanceAnalysis &provenances) {
  SmallVector<func::CallOp> calls;
  Value operand = gather->getOperand(0);
  if (provenances.get(operand).isStepInput)
    for (Operation *op : provenances.getPath(operand))
      if (auto call = dyn_cast<func::CallOp>(op))
        calls.push_back(call);
  return calls;
}

/// True if `function` only reads or writes a part of a tensor of floats, like
/// the helpers that JAX makes for indices. Weights and gradients are floats.
static bool isIndexing(func::FuncOp function) {
  constexpr size_t kMostOps = 16;
  if (function.isExternal() || !function.getBody().hasOneBlock())
    return false;
  Block &body = function.getBody().front();
  if (body.getOperations().size() > kMostOps)
    return false;
  bool indexesFloats = llvm::any_of(body, [](Operation &op) {
    return (isNamed(&op, guest::kDynamicSlice) ||
            isNamed(&op, guest::kDynamicUpdateSlice)) &&
           op.getNumOperands() > 0 &&
           isa<FloatType>(getElementTypeOrSelf(op.getOperand(0)));
  });
  if (!indexesFloats)
    return false;
  return llvm::all_of(body.without_terminator(), [](Operation &op) {
    return movesData(&op) || isNamed(&op, guest::kConstant) ||
           isNamed(&op, guest::kDynamicUpdateSlice) ||
           (isElementwise(&op) &&
            llvm::all_of(op.getResultTypes(), hasOneElement));
  });
}

/// True if `function` has loops or products, as the functions that an older JAX
/// makes of bodies of loops have. Others are helpers.
static bool isPartOfModel(func::FuncOp function) {
  return containsOp(function, [](Operation *op) {
    return isWhile(op) || getProductFlops(op) > 0;
  });
}

/// How often each symbol is referenced.
using UseCounts = llvm::DenseMap<StringAttr, int64_t>;

/// nullopt if that is not known.
static std::optional<UseCounts> countUses(ModuleOp module) {
  std::optional<SymbolTable::UseRange> uses =
      SymbolTable::getSymbolUses(&module.getBodyRegion());
  if (!uses)
    return std::nullopt;
  UseCounts counts;
  for (const SymbolTable::SymbolUse &use : *uses)
    ++counts[use.getSymbolRef().getRootReference()];
  return counts;
}

namespace {
class StepInliner {
public:
  explicit StepInliner(ModuleOp module) : module(module), symbols(module) {}

  LogicalResult run() {
    withCollectives = getFunctionsWith(module, isCollective);
    if (failed(verifySize()))
      return failure();
    for (auto function : module.getOps<func::FuncOp>())
      if (function.isPublic())
        inlineCollectives(function);
    eraseUncalled();
    SmallVector<Operation *> gathers;
    module.walk([&](Operation *op) {
      if (isGather(op))
        gathers.push_back(op);
    });
    while (inlineSourceCalls(gathers)) {
    }
    inlineInLoops();
    return success();
  }

private:
  /// Inlines helpers for indices, and parts of the model that are called once,
  /// in loops of the step: what a loop adds up, or leaves to another one, goes
  /// through them.
  void inlineInLoops() {
    SmallVector<func::CallOp> calls;
    do {
      for (func::CallOp call : calls)
        inlineCall(call);
      // They would count as callers of what they call.
      eraseUncalled();
      calls.clear();
      std::optional<UseCounts> counts = countUses(module);
      for (auto function : module.getOps<func::FuncOp>()) {
        if (!withCollectives.contains(function))
          continue;
        function.walk([&](Operation *loop) {
          if (!isWhile(loop))
            return;
          for (auto call : WhileView(loop).getBody().getOps<func::CallOp>()) {
            auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
            if (callee && callee.isPrivate() && canInline(callee) &&
                (isIndexing(callee) ||
                 (counts && callee != function &&
                  counts->lookup(callee.getSymNameAttr()) == 1 &&
                  isPartOfModel(callee))))
              calls.push_back(call);
          }
        });
      }
    } while (!calls.empty());
  }

  /// Inlines the calls that compute the operands of `gathers`. Returns false if
  /// there are none left. Inlining invalidates the analysis, so each round has
  /// a new one; the next round finds calls in what this one has inlined.
  bool inlineSourceCalls(ArrayRef<Operation *> gathers) {
    ProvenanceAnalysis provenances;
    llvm::SetVector<func::CallOp> calls;
    for (Operation *gather : gathers)
      calls.insert_range(getSourceCalls(gather, provenances));
    bool hasInlined = false;
    for (func::CallOp call : calls)
      hasInlined |= inlineCall(call);
    return hasInlined;
  }

  /// Returns the callee of `call` if it is to be inlined because of its
  /// collectives; otherwise null.
  func::FuncOp getInlinable(func::CallOp call) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    // A recursive function cannot be inlined.
    if (!callee || active.contains(callee) || !callee.isPrivate() ||
        !withCollectives.contains(callee))
      return {};
    return callee;
  }

  static SmallVector<func::CallOp> getCalls(func::FuncOp function) {
    SmallVector<func::CallOp> calls;
    function.walk([&](func::CallOp call) { calls.push_back(call); });
    return calls;
  }

  void inlineCollectives(func::FuncOp function) {
    active.insert(function);
    for (func::CallOp call : getCalls(function)) {
      func::FuncOp callee = getInlinable(call);
      if (!callee)
        continue;
      // Innermost calls first, so that each callee is complete when it is
      // copied.
      if (inlined.insert(callee).second)
        inlineCollectives(callee);
      inlineCall(call);
    }
    active.erase(function);
  }

  /// Returns the number of ops that inlining will add to `function`, or some
  /// number above kMostInlinedOps. Visits functions in the order of
  /// inlineCollectives().
  int64_t countInlined(func::FuncOp function) {
    active.insert(function);
    int64_t added = 0;
    for (func::CallOp call : getCalls(function)) {
      func::FuncOp callee = getInlinable(call);
      if (!callee)
        continue;
      auto [it, isNew] = sizes.try_emplace(callee, 0);
      int64_t size = it->second;
      if (isNew) {
        callee.walk([&](Operation *) { ++size; });
        size += countInlined(callee);
        sizes[callee] = size;
      }
      added = std::min(added + size, kMostInlinedOps + 1);
    }
    active.erase(function);
    return added;
  }

  /// Emits an error if inlining would add too many ops.
  LogicalResult verifySize() {
    int64_t added = 0;
    for (auto function : module.getOps<func::FuncOp>()) {
      if (!function.isPublic())
        continue;
      added += countInlined(function);
      if (added > kMostInlinedOps)
        return emitError(function.getLoc(), "expected functions with "
                                            "collectives that add at most ")
               << kMostInlinedOps << " ops where they are called from @"
               << function.getSymName()
               << ", but got more; give each fewer calls of others";
    }
    return success();
  }

  static bool canInline(func::FuncOp callee) {
    return !callee.isExternal() && callee.getBody().hasOneBlock();
  }

  bool inlineCall(func::CallOp call) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    if (!callee || !canInline(callee))
      return false;
    zpp::inlineCall(call, callee);
    inlined.insert(callee);
    return true;
  }

  /// Erases inlined private functions that are not referenced any more.
  void eraseUncalled() {
    if (inlined.empty())
      return;
    std::optional<UseCounts> counts = countUses(module);
    if (!counts)
      return;
    auto isUncalled = [&](func::FuncOp function) {
      return inlined.contains(function) && function.isPrivate() &&
             counts->lookup(function.getSymNameAttr()) == 0;
    };
    SmallVector<func::FuncOp> worklist;
    for (auto function : module.getOps<func::FuncOp>())
      if (isUncalled(function))
        worklist.push_back(function);
    while (!worklist.empty()) {
      func::FuncOp function = worklist.pop_back_val();
      if (std::optional<SymbolTable::UseRange> own =
              SymbolTable::getSymbolUses(&function.getBody()))
        for (const SymbolTable::SymbolUse &use : *own) {
          StringAttr name = use.getSymbolRef().getRootReference();
          if (--(*counts)[name] > 0)
            continue;
          auto callee = symbols.lookup<func::FuncOp>(name);
          if (callee && callee != function && isUncalled(callee))
            worklist.push_back(callee);
        }
      inlined.erase(function);
      symbols.erase(function);
    }
  }

  ModuleOp module;
  SymbolTable symbols;
  /// Functions that reach a collective.
  llvm::DenseSet<Operation *> withCollectives;
  llvm::DenseMap<func::FuncOp, int64_t> sizes;
  llvm::DenseSet<func::FuncOp> inlined, active;
};
} // namespace

LogicalResult zpp::inlineStep(ModuleOp module) {
  importShardyBorders(module);
  return StepInliner(module).run();
}

bool zpp::needsInlining(ModuleOp module) {
  ProvenanceAnalysis provenances;
  SymbolTableCollection symbols;
  // What inlining is for: collectives of functions, and sums of loops.
  auto isWanted = [&](Operation *op, bool isPrivate) {
    if (isShardyBorder(op))
      return true;
    if (auto call = dyn_cast<func::CallOp>(op);
        call && isWhile(op->getParentOp())) {
      auto callee = symbols.lookupNearestSymbolFrom<func::FuncOp>(
          call, call.getCalleeAttr());
      return callee && isPartOfModel(callee);
    }
    return isPrivate ? isCollective(op)
                     : isGather(op) && !getSourceCalls(op, provenances).empty();
  };
  return llvm::any_of(module.getOps<func::FuncOp>(),
                      [&](func::FuncOp function) {
                        return containsOp(function, [&](Operation *op) {
                          return isWanted(op, function.isPrivate());
                        });
                      });
}
