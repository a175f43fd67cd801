//===- ReturnState.cpp - Programs that begin what a step keeps ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Transforms/Attributes.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/DenseSet.h"

namespace zpp {
#define GEN_PASS_DEF_RETURNSTATEPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

/// True for what orders calls of the host.
static bool isToken(Value value) {
  return toText(value.getType()) == guest::kTokenType;
}

namespace {
/// The values and ops of a function that some of its results are computed from.
/// What a loop carries, and what enters and leaves a manual computation, is
/// followed value by value; of other ops with regions, all is needed.
class Needed {
public:
  void add(ValueRange more) {
    push(more);
    while (!worklist.empty())
      visit(worklist.pop_back_val());
  }

  bool contains(Value value) const { return values.contains(value); }
  bool contains(Operation *op) const { return ops.contains(op); }

private:
  void visit(Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    Operation *op =
        argument ? argument.getOwner()->getParentOp() : value.getDefiningOp();
    unsigned number = argument ? argument.getArgNumber()
                               : cast<OpResult>(value).getResultNumber();
    if (!isa<func::FuncOp>(op))
      addOp(op);
    if (WhileView loop = WhileView::get(op))
      push({loop.getInit(number), loop.getNext(number)});
    else if (manuals.contains(op))
      push(argument ? op->getOperand(number)
                    : ManualView(op).getYielded(number));
  }

  /// Adds `op`, those around it, and what it reads whatever is needed of it.
  void addOp(Operation *op) {
    for (; !isa<func::FuncOp>(op) && ops.insert(op).second;
         op = op->getParentOp()) {
      if (WhileView loop = WhileView::get(op)) {
        push(loop.getPredicates());
        pushOthers(op->getOperands());
        pushOthers(op->getResults());
      } else if (manuals.contains(op)) {
        pushOthers(op->getOperands());
        pushOthers(ManualView(op).getYield()->getOperands());
      } else {
        op->walk([&](Operation *inner) {
          ops.insert(inner);
          push(inner->getOperands());
        });
      }
    }
  }

  /// True if zeros, or a new token, can stand for `value` where it is not
  /// needed.
  static bool isReplaceable(Value value) {
    return isToken(value) || (hasStaticShape(value.getType()) &&
                              getElementTypeOrSelf(value).isIntOrFloat());
  }

  /// Adds those that nothing can stand for.
  void pushOthers(ValueRange all) {
    for (Value value : all)
      if (!isReplaceable(value))
        push(value);
  }

  void push(ValueRange more) {
    for (Value value : more)
      if (values.insert(value).second)
        worklist.push_back(value);
  }

  ManualComputations manuals;
  llvm::DenseSet<Value> values;
  llvm::DenseSet<Operation *> ops;
  SmallVector<Value> worklist;
};

class ReturnStatePass : public zpp::impl::ReturnStatePassBase<ReturnStatePass> {
public:
  using ReturnStatePassBase::ReturnStatePassBase;

  void runOnOperation() override {
    auto state = getOperation()->getAttrOfType<ArrayAttr>(kStateAttr);
    if (!state)
      return;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function.isPublic() && function.getBody().hasOneBlock() &&
          function.getNumResults() >= state.size())
        keepLast(function, state.size());
    // Functions that only the others have called.
    OpPassManager dce(ModuleOp::getOperationName());
    dce.addPass(createSymbolDCEPass());
    if (failed(runPipeline(dce, getOperation())))
      signalPassFailure();
  }

private:
  /// Erases all results of `function` but the last `count`, and what only the
  /// others need.
  void keepLast(func::FuncOp function, unsigned count) {
    llvm::BitVector others(function.getNumResults());
    others.set(0, function.getNumResults() - count);
    Block &body = function.getBody().front();
    body.getTerminator()->eraseOperands(others);
    (void)function.eraseResults(others);
    // The step gets the same arguments afterwards.
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      for (StringRef name : {guest::kAliasingOutput, guest::kBufferDonor})
        function.removeArgAttr(i, name);
    Needed needed;
    needed.add(body.getTerminator()->getOperands());
    sweep(body, needed);
    // Nothing of the host is called, so that there is no order.
    llvm::BitVector tokens(function.getNumArguments());
    for (BlockArgument argument : body.getArguments())
      tokens[argument.getArgNumber()] =
          isToken(argument) && argument.use_empty();
    (void)function.eraseArguments(tokens);
  }

  /// Erases the ops of `block` that are not needed.
  void sweep(Block &block, Needed &needed) {
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
      // Terminators of guest dialects are not known to be some.
      if (&op == &block.back())
        continue;
      if (!needed.contains(&op)) {
        op.erase();
      } else if (WhileView loop = WhileView::get(&op)) {
        // Loops may carry what is not needed, as long as nothing computes it.
        replaceOthers(&op, needed);
        for (unsigned i = 0; i < loop.getNumCarried(); ++i)
          if (!needed.contains(loop.getNext(i)))
            loop.setNext(i, loop.getCarried(i));
        sweep(loop.getCondition(), needed);
        sweep(loop.getBody(), needed);
      } else if (isManualComputation(&op)) {
        ManualView manual(&op);
        replaceOthers(&op, needed);
        replaceOthers(manual.getYield(), needed);
        sweep(manual.getBody(), needed);
      }
    }
  }

  /// Has `op` read zeros, or a new token, where it reads what is not needed.
  static void replaceOthers(Operation *op, Needed &needed) {
    OpBuilder builder(op);
    for (OpOperand &operand : op->getOpOperands()) {
      Value value = operand.get();
      bool orders = isToken(value);
      if ((!value.getDefiningOp() && !orders) || needed.contains(value))
        continue;
      operand.set(
          orders ? createOp(builder, value.getLoc(), guest::kCreateToken,
                            ValueRange(), value.getType())
                 : createZeros(builder, value.getLoc(), getTensorType(value)));
      needed.add(operand.get());
    }
  }
};
} // namespace
