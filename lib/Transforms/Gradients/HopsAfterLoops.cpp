//===- HopsAfterLoops.cpp - What a step sends after its loops -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gradients/HopsAfterLoops.h"

#include "Gradients/Accumulate/GradientSum.h"
#include "Gradients/SumOfStacks.h"
#include "Loops/LoopPlan.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// Returns the one reader of `value`; null if there are more, or none.
static Operation *getOnlyUser(Value value) {
  return value.hasOneUse() ? *value.user_begin() : nullptr;
}

/// True for ops that pass on one value: casts, shape changes, and those between
/// hops.
static bool passesOn(Operation *op) {
  return isa<EncodeOp, DecodeOp>(op) || (movesData(op) && !isJoin(op));
}

/// True if `value` is there only when an inner loop or a collective of XLA's
/// has ended: little compute is left that could hide what is sent of it.
static bool comesLate(Value value) {
  Operation *op = value.getDefiningOp();
  while (op) {
    std::optional<unsigned> scaled = getScaledOperand(op);
    if (!scaled && (!movesData(op) || isJoin(op)))
      break;
    op = op->getOperand(scaled.value_or(0)).getDefiningOp();
  }
  return op && (isWhile(op) || getGuestCollective(op));
}

/// Returns the value that each iteration of `loop` adds to carried value
/// `number`; null if it does something else with that.
static Value getAdded(WhileView loop, unsigned number) {
  BlockArgument carried = loop.getCarried(number);
  Operation *add = findCarriedAddition(loop, number);
  if (!add || getOnlyUser(carried) != add)
    return {};
  return add->getOperand(add->getOperand(0) == carried ? 1 : 0);
}

/// Returns the hops that `value` takes in its block as the only reader of it
/// asks for, after casts, shape changes and products with a number; none if
/// there is another reader.
static OuterHops findHopsOf(Value value) {
  OuterHops hops;
  while (Operation *user = getOnlyUser(value)) {
    if (user->getBlock() != value.getParentBlock())
      break;
    if (isa<ReduceScatterOp, AllGatherOp>(user))
      hops.ops.push_back(user);
    else if (!passesOn(user) && !getScaledOperand(user))
      break;
    value = user->getResult(0);
  }
  return hops;
}

/// True if the sum that `hop` sends is what `loop` leaves of carried value
/// `number`, and if a loop over layers in its last iteration, whose stack is
/// `added`, could send each layer.
static bool canSendLayers(WhileView loop, unsigned number, Value added,
                          Operation *hop, ProvenanceAnalysis &provenances) {
  std::optional<SumOfStacks> sum = SumOfStacks::find(hop);
  if (!sum || sum->getSum() != loop.getResult(number))
    return false;
  std::optional<StackOfLayers> stack = findStack(added, provenances);
  return stack &&
         sum->canSendInLoop(stack->getNumLayers(), loop.getOperation());
}

/// Has the loop whose stack is the last one of the sum that `hop` sends send
/// each layer, and returns its hops; null if there is no such loop.
static Operation *sendLayers(Operation *hop) {
  std::optional<SumOfStacks> sum = SumOfStacks::find(hop);
  Operation *add = sum ? sum->getSum().getDefiningOp() : nullptr;
  if (!isAddition(add) || add->getBlock() != hop->getBlock())
    return nullptr;
  // Valid until something changes.
  ProvenanceAnalysis provenances;
  for (unsigned last : {0, 1}) {
    std::optional<StackOfLayers> stack =
        findStack(add->getOperand(last), provenances);
    Value earlier = add->getOperand(1 - last);
    if (stack && isDefinedBefore(earlier, stack->loop.getOperation()) &&
        sum->canSendInLoop(stack->getNumLayers(), stack->loop.getOperation()))
      return sum->sendInLoop(*stack, earlier);
  }
  return nullptr;
}

namespace {
/// Moves the first hops of sums up to where the last gradient of each is there.
/// A step writes its sums at the end of an iteration and sends them after the
/// loop; behind a scatter within the node, their place in the code decides when
/// they start.
class HopMover {
public:
  explicit HopMover(Block &block) : block(block) {
    for (Operation &op : block) {
      places[&op] = {static_cast<int64_t>(last.size()), 0};
      last.push_back(&op);
    }
  }

  /// Moves `hop` and what makes its operand of gradients and of what a loop has
  /// added up.
  void move(Operation *hop) {
    for (Value operand : hop->getOperands())
      moveSource(operand.getDefiningOp());
    moveBehindOperands(hop);
  }

private:
  /// The number of an op that has not moved, and 0; or of the one that it was
  /// moved behind, and its position among those.
  using Place = std::pair<int64_t, int64_t>;

  void moveSource(Operation *op) {
    if (!op || op->getBlock() != &block ||
        !(passesOn(op) || isAddition(op) || getScaledOperand(op) ||
          (op->getNumResults() == 1 && getSplat(op->getResult(0)))) ||
        !seen.insert(op).second)
      return;
    for (Value operand : op->getOperands())
      moveSource(operand.getDefiningOp());
    moveBehindOperands(op);
  }

  /// Constants, and what is made of them and of values from outside alone, move
  /// behind the block's first op.
  void moveBehindOperands(Operation *op) {
    Place latest = {0, 0};
    for (Value operand : op->getOperands())
      if (Operation *source = operand.getDefiningOp();
          source && source->getBlock() == &block)
        latest = std::max(latest, places.at(source));
    Operation *&previous = last[latest.first];
    if (op == previous)
      return;
    op->moveAfter(previous);
    previous = op;
    places[op] = {latest.first, ++numMoves};
  }

  Block &block;
  llvm::DenseMap<Operation *, Place> places;
  /// By number: the last op that stands there.
  std::vector<Operation *> last;
  llvm::DenseSet<Operation *> seen;
  int64_t numMoves = 0;
};
} // namespace

std::vector<HopsAfterLoop>
zpp::zero::findHopsAfter(WhileView loop, ProvenanceAnalysis &provenances) {
  std::vector<HopsAfterLoop> found;
  for (unsigned number : llvm::seq(loop.getNumCarried())) {
    Value added = getAdded(loop, number);
    if (!added)
      continue;
    OuterHops hops = findHopsOf(loop.getResult(number));
    if (hops.ops.empty())
      continue;
    bool isLate =
        comesLate(added) &&
        !canSendLayers(loop, number, added, hops.ops.front(), provenances);
    found.push_back({std::move(hops), isLate});
  }
  return found;
}

void zpp::zero::moveHopsUp(ArrayRef<HopsAfterLoop> all) {
  llvm::MapVector<Block *, SmallVector<Operation *>> moved;
  for (const HopsAfterLoop &each : all) {
    if (each.isLate)
      continue;
    Operation *first = each.hops.ops.front();
    Operation *layer = sendLayers(first);
    first = layer ? layer : first;
    moved[first->getBlock()].push_back(first);
  }
  for (const auto &[block, hops] : moved) {
    HopMover mover(*block);
    for (Operation *hop : hops)
      mover.move(hop);
    ProvenanceAnalysis provenances;
    if (WhileView loop = WhileView::get(block->getParentOp()))
      (void)planLayers(loop, provenances);
  }
}
