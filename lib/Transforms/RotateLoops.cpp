//===- RotateLoops.cpp - Gather for the next iteration (4.1.1) ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_ROTATELOOPSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// Computes again, elsewhere, what a gather in the body of a loop reads.
class Recomputation {
public:
  explicit Recomputation(Operation *loop)
      : loop(loop), body(&loop->getRegion(1).front()) {}

  /// True if `value` is a function of what the loop carries unchanged and of
  /// scalars, such as its counter, that are so too.
  bool isPossible(Value value) {
    auto [it, isNew] = known.try_emplace(value, false);
    if (!isNew)
      return it->second;
    bool result;
    if (auto argument = dyn_cast<BlockArgument>(value);
        argument && argument.getOwner() == body) {
      unsigned number = argument.getArgNumber();
      // A counter depends on itself.
      known[value] = true;
      result = isLoopInvariant(loop, number) ||
               (cast<ShapedType>(value.getType()).getRank() == 0 &&
                isPossible(body->back().getOperand(number)));
    } else {
      Operation *op = value.getDefiningOp();
      if (!op || op->getBlock() != body)
        result = !body->getParent()->isAncestor(value.getParentRegion());
      else if (isBarrier(op))
        result = isPossible(getOperand(value));
      else
        result = isCheap(op) && llvm::all_of(op->getOperands(), [&](Value v) {
                   return isPossible(v);
                 });
    }
    return known[value] = result;
  }

  /// `value` before the first iteration, in front of the loop.
  Value getFirst(OpBuilder &builder, Value value) {
    return recompute(builder, value, first, [&](BlockArgument argument) {
      return loop->getOperand(argument.getArgNumber());
    });
  }

  /// `value` of the next iteration, in this one.
  Value getNext(OpBuilder &builder, Value value) {
    return recompute(builder, value, next, [&](BlockArgument argument) {
      unsigned number = argument.getArgNumber();
      if (isLoopInvariant(loop, number))
        return Value(argument);
      return recompute(builder, body->back().getOperand(number), current,
                       [](BlockArgument same) { return Value(same); });
    });
  }

private:
  static Value getOperand(Value result) {
    return result.getDefiningOp()->getOperand(
        cast<OpResult>(result).getResultNumber());
  }

  /// Casts, slices and arithmetic of scalars.
  static bool isCheap(Operation *op) {
    if (op->getNumRegions() > 0 || isCollective(op) || isHeavy(op) ||
        op->getName().getDialectNamespace() != "stablehlo" ||
        op->getName().getStringRef() == "stablehlo.custom_call")
      return false;
    return isDataMovement(op) || llvm::all_of(op->getResultTypes(), [](Type t) {
             auto type = dyn_cast<RankedTensorType>(t);
             return type && type.getNumElements() == 1;
           });
  }

  Value recompute(OpBuilder &builder, Value value, IRMapping &mapping,
                  llvm::function_ref<Value(BlockArgument)> getArgument) {
    if (Value known = mapping.lookupOrNull(value))
      return known;
    Value result;
    auto argument = dyn_cast<BlockArgument>(value);
    Operation *op = value.getDefiningOp();
    if (argument && argument.getOwner() == body) {
      result = getArgument(argument);
    } else if (!op || op->getBlock() != body) {
      result = value;
    } else if (isBarrier(op)) {
      result = recompute(builder, getOperand(value), mapping, getArgument);
    } else {
      for (Value operand : op->getOperands())
        recompute(builder, operand, mapping, getArgument);
      // What is mapped along the way: the clone's results too.
      builder.clone(*op, mapping);
      return mapping.lookup(value);
    }
    mapping.map(value, result);
    return result;
  }

  Operation *loop;
  Block *body;
  llvm::DenseMap<Value, bool> known;
  IRMapping first, next, current;
};

class RotateLoopsPass : public zpp::impl::RotateLoopsPassBase<RotateLoopsPass> {
public:
  using RotateLoopsPassBase::RotateLoopsPassBase;

  void runOnOperation() override {
    if (prefetchBytes < 0) {
      emitError(getOperation().getLoc(),
                "expected a number of bytes to prefetch, but got ")
          << prefetchBytes.getValue();
      return signalPassFailure();
    }
    SmallVector<Operation *> loops;
    getOperation()->walk([&](Operation *op) {
      if (op->getName().getStringRef() == "stablehlo.while")
        loops.push_back(op);
    });
    for (Operation *loop : loops)
      rotate(loop);
  }

private:
  /// The gathers that are needed before anything heavy in the body, as long as
  /// they fit the memory.
  SmallVector<StartOp> getExposed(Operation *loop, Recomputation &inputs) {
    Block &body = loop->getRegion(1).front();
    SmallVector<Operation *> heavy = getHeavyOps(body);
    SmallVector<StartOp> result;
    int64_t bytes = 0;
    for (auto start : body.getOps<StartOp>()) {
      SmallVector<Origin> origins = getStartedOrigins(start);
      bool isWeight =
          !origins.empty() && llvm::all_of(origins, [](const Origin &origin) {
            return origin.role == getRoleName(Role::Weight);
          });
      // What is carried to the next iteration already is not needed in this.
      if (!isWeight || heavy.empty() || !isNeededAtOnce(start, heavy.front()))
        continue;
      int64_t size = getBytes(start.getOutputs().getTypes());
      std::string reason;
      if (!llvm::all_of(start.getInputs(),
                        [&](Value input) { return inputs.isPossible(input); }))
        reason = "what it reads in the next iteration is not known in this one";
      else if (bytes + size > prefetchBytes)
        reason = std::to_string(bytes + size) +
                 " bytes would be in flight, more than prefetch-bytes = " +
                 std::to_string(prefetchBytes);
      if (!reason.empty()) {
        remark::missed(
            start.getLoc(),
            remark::RemarkOpts::name("not-rotated").category(getArgument()))
            << ("gathered in the iteration that needs it: " + reason);
        continue;
      }
      bytes += size;
      result.push_back(start);
    }
    return result;
  }

  /// True if what `start` gathers is read, if only through casts and shapes, by
  /// `first` or something before it.
  static bool isNeededAtOnce(StartOp start, Operation *first) {
    llvm::DenseSet<Value> values(llvm::from_range,
                                 start.getWait().getOutputs());
    for (Operation *op = start.getWait()->getNextNode(); op;
         op = op->getNextNode()) {
      if (llvm::any_of(op->getOperands(),
                       [&](Value operand) { return values.contains(operand); }))
        values.insert_range(op->getResults());
      if (op == first)
        return values.contains(op->getResult(0));
      if (op == &start->getBlock()->back())
        return false;
    }
    return false;
  }

  void rotate(Operation *loop) {
    if (loop->getNumRegions() != 2 || !loop->getRegion(1).hasOneBlock() ||
        loop->getRegion(1).front().empty() ||
        loop->getRegion(1).front().back().getNumOperands() !=
            loop->getNumOperands())
      return;
    Recomputation inputs(loop);
    SmallVector<StartOp> starts = getExposed(loop, inputs);
    if (starts.empty())
      return;
    Block &body = loop->getRegion(1).front();

    // Those of the first iteration, in front of the loop.
    OpBuilder outside(loop);
    SmallVector<Value> carried;
    for (StartOp start : starts) {
      SmallVector<Value> first =
          llvm::map_to_vector(start.getInputs(), [&](Value input) {
            return inputs.getFirst(outside, input);
          });
      llvm::append_range(carried, clone(outside, start, first).getOutputs());
    }
    // Those of the next one, in this one.
    OpBuilder builder = OpBuilder::atBlockBegin(&body);
    SmallVector<Value> next;
    SmallVector<std::pair<Value, Value>> replacements;
    for (StartOp start : starts) {
      SmallVector<Value> values =
          llvm::map_to_vector(start.getInputs(), [&](Value input) {
            return inputs.getNext(builder, input);
          });
      WaitOp wait = start.getWait();
      WaitOp ahead = clone(builder, start, values);
      llvm::append_range(next, ahead.getOutputs());
      for (Value output : wait.getOutputs())
        replacements.emplace_back(output, Value());
      remark::passed(
          start.getLoc(),
          remark::RemarkOpts::name("rotated").category(getArgument()))
          << "gathered in the iteration before the one that needs it";
    }
    Operation *extended = extend(outside, loop, carried, next);
    Block &extendedBody = extended->getRegion(1).front();
    size_t firstCarried = extendedBody.getNumArguments() - replacements.size();
    for (auto [index, replacement] : llvm::enumerate(replacements))
      replacement.first.replaceAllUsesWith(
          extendedBody.getArgument(firstCarried + index));
    for (StartOp start : starts) {
      SmallVector<Value> values(start.getInputs());
      start.getWait().erase();
      start.erase();
      llvm::erase_if(values, [](Value value) { return !value.use_empty(); });
      for (Value value : values)
        eraseIfDead(value);
    }
  }

  static WaitOp clone(OpBuilder &builder, StartOp start, ValueRange inputs) {
    auto copy = StartOp::create(
        builder, start.getLoc(), start.getOutputs().getTypes(), TypeRange(),
        start.getCallee(), inputs, ValueRange(), start.getOriginsAttr());
    return WaitOp::create(builder, start.getLoc(), copy.getOutputs().getTypes(),
                          TypeRange(), copy.getOutputs(), inputs, ValueRange());
  }

  /// `loop` with more that it carries: `init` into the first iteration, `next`
  /// out of each one.
  static Operation *extend(OpBuilder &builder, Operation *loop, ValueRange init,
                           ValueRange next) {
    OperationState state(loop->getLoc(), loop->getName());
    state.addOperands(loop->getOperands());
    state.addOperands(init);
    state.addTypes(ValueRange(state.operands).getTypes());
    state.propertiesAttr = loop->getPropertiesAsAttribute();
    state.addAttributes(loop->getDiscardableAttrDictionary().getValue());
    for (Region &region : loop->getRegions())
      state.addRegion()->takeBody(region);
    Operation *extended = builder.create(state);
    for (Region &region : extended->getRegions())
      for (Value value : init)
        region.addArgument(value.getType(), value.getLoc());
    Operation &terminator = extended->getRegion(1).front().back();
    terminator.insertOperands(terminator.getNumOperands(), next);
    loop->replaceAllUsesWith(
        extended->getResults().take_front(loop->getNumResults()));
    loop->erase();
    return extended;
  }
};
} // namespace
