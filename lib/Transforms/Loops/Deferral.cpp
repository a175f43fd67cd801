//===- Deferral.cpp - Scatters left to the next iteration -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loops/Deferral.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Guest/Calls.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

static constexpr const char *kRead =
    "the iteration that computes it does more with its result than store it";
static constexpr const char *kUsed =
    "the loop uses the tensor that it is stored in for other purposes";
static constexpr const char *kPlace =
    "the place where it is stored is not known before the loop";

//===----------------------------------------------------------------------===//
// What ops do
//===----------------------------------------------------------------------===//

/// Returns the operand of which `op` overwrites a part, or null. `op` is a
/// dynamic_update_slice or, as JAX writes it, a call of a function that
/// contains one.
static OpOperand *getUpdated(Operation *op) {
  if (isNamed(op, guest::kDynamicUpdateSlice) && op->getNumOperands() > 1)
    return &op->getOpOperand(0);
  func::FuncOp callee = getCallee(op);
  if (!callee)
    return nullptr;
  Block &block = callee.getBody().front();
  if (block.back().getNumOperands() != 1)
    return nullptr;
  Operation *update = block.back().getOperand(0).getDefiningOp();
  if (!update || !isNamed(update, guest::kDynamicUpdateSlice) ||
      update->getNumOperands() < 2)
    return nullptr;
  auto argument = dyn_cast<BlockArgument>(update->getOperand(0));
  if (!argument || !argument.hasOneUse() ||
      !llvm::all_of(block.without_terminator(), [&](Operation &nested) {
        return &nested == update || mayRepeat(&nested, Effort::Scalars);
      }))
    return nullptr;
  return &op->getOpOperand(argument.getArgNumber());
}

/// True for casts, shape changes, arithmetic and reads of slices.
static bool isMovable(Operation *op) {
  static const llvm::StringSet<> names = {
      guest::kAbs,      guest::kAdd,    guest::kSubtract,
      guest::kMultiply, guest::kDivide, guest::kNegate,
      guest::kCompare,  guest::kSelect, guest::kBroadcastInDim};
  return names.contains(op->getName().getStringRef()) ||
         (movesData(op) && mayRepeat(op, Effort::Scalars));
}

/// True for a tensor whose elements can be zeros.
static bool hasZeros(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape() && type.getElementType().isIntOrFloat();
}

/// Returns the number of the carried value that the result of `op` becomes in
/// the next iteration, if nothing else reads the result.
std::optional<unsigned> Deferral::getYielded(Operation *op) const {
  if (op->getNumResults() != 1 || !op->getResult(0).hasOneUse())
    return std::nullopt;
  OpOperand &use = *op->getResult(0).use_begin();
  if (use.getOwner() != &body.back())
    return std::nullopt;
  return use.getOperandNumber();
}

/// True if `operand` of a deferred op says which slice it reads or overwrites.
bool Deferral::isIndex(OpOperand &operand) const {
  Operation *op = operand.getOwner();
  unsigned number = operand.getOperandNumber();
  if (isNamed(op, guest::kDynamicSlice))
    return number >= 1;
  if (isNamed(op, guest::kDynamicUpdateSlice))
    return number >= 2;
  if (!isa<func::CallOp>(op))
    return false;
  // A function takes the tensor that it updates, gradients, and indices.
  return !values.contains(operand.get()) || isIntegerScalar(operand.get());
}

//===----------------------------------------------------------------------===//
// What to defer
//===----------------------------------------------------------------------===//

/// Whether `op` can be done in the next iteration.
Decision<> Deferral::canDefer(Operation *op) const {
  auto decide = [](bool isFine, const char *reason) {
    return isFine ? Decision<>(Yes()) : LeftAlone(reason);
  };
  if (op->getBlock() != &body)
    return LeftAlone(kRead);
  if (auto other = dyn_cast<StartOp>(op))
    return decide(hasRole(other, Role::Gradient) && other.getTies().empty(),
                  kRead);
  if (auto wait = dyn_cast<WaitOp>(op))
    return decide(wait.getTies().empty(), kRead);
  if (OpOperand *stack = getUpdated(op)) {
    std::optional<unsigned> number = getYielded(op);
    return decide(number && stack->get() == body.getArgument(*number), kUsed);
  }
  return decide(isMovable(op), kRead);
}

/// Finds what follows from the scatter, up to the carried values that this
/// updates. Returns whether all of it can be deferred.
Decision<> Deferral::findOps() {
  ops.push_back(start);
  members.insert(start);
  values.insert_range(start->getResults());
  for (size_t next = 0; next < values.size(); ++next)
    for (OpOperand &use : values[next].getUses()) {
      Operation *op = use.getOwner();
      if (op == &body.back()) {
        updated.insert(use.getOperandNumber());
        continue;
      }
      if (members.contains(op))
        continue;
      if (Decision<> decision = canDefer(op); !decision)
        return decision;
      members.insert(op);
      ops.push_back(op);
      values.insert_range(op->getResults());
    }
  for (unsigned number : updated) {
    BlockArgument carried = body.getArgument(number);
    if (!WhileView(loop).getConditionArgument(number).use_empty() ||
        !llvm::all_of(carried.getUsers(),
                      [&](Operation *op) { return members.contains(op); }))
      return LeftAlone(kUsed);
    values.insert(carried);
  }
  llvm::sort(ops,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return Yes();
}

/// Defers casts to larger types as well: the loop then carries what is cast.
void Deferral::addCasts(ShiftedValues &inputs) {
  auto getWidth = [](Value value) {
    return getElementTypeOrSelf(value.getType()).getIntOrFloatBitWidth();
  };
  SmallVector<Operation *> casts;
  for (Operation *op : ops)
    for (Value operand : op->getOperands()) {
      Operation *cast = operand.getDefiningOp();
      if (!isa<StartOp, WaitOp>(op) && cast && cast->getBlock() == &body &&
          isNamed(cast, guest::kConvert) && movesData(cast) &&
          operand.hasOneUse() && !members.contains(cast) && hasZeros(operand) &&
          hasZeros(cast->getOperand(0)) &&
          getWidth(cast->getOperand(0)) < getWidth(operand) &&
          !inputs.isPossible(operand))
        casts.push_back(cast);
    }
  for (Operation *cast : casts) {
    ops.push_back(cast);
    members.insert(cast);
    values.insert(cast->getResult(0));
  }
  llvm::sort(ops,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
}

/// True if the ops only add to carried value `number`.
bool Deferral::isSum(unsigned number) const {
  Value sum = body.getArgument(number);
  Operation *add = body.back().getOperand(number).getDefiningOp();
  return sum.hasOneUse() && isNamed(add, guest::kAdd) &&
         add->getNumOperands() == 2 && getYielded(add) == number &&
         llvm::is_contained(add->getOperands(), sum) &&
         llvm::all_of(add->getOperands(),
                      [&](Value operand) { return values.contains(operand); });
}

/// Whether the ops do no more with the carried values that they update than to
/// overwrite a slice or to add.
Decision<> Deferral::checkUpdates() const {
  for (unsigned number : updated) {
    Value value = body.getArgument(number);
    Value next = body.back().getOperand(number);
    Operation *op = next.getDefiningOp();
    // Nothing has verified the types.
    if (!op || !members.contains(op) || !hasZeros(value) ||
        next.getType() != value.getType() ||
        next.getType() != loop->getResult(number).getType())
      return LeftAlone(kUsed);
    bool isReplaced = getUpdated(op) ? value.hasOneUse() : value.use_empty();
    if (!isReplaced && !isSum(number))
      return LeftAlone(kUsed);
  }
  return Yes();
}

/// Finds what else the ops read. Returns whether it can be there in the next
/// iteration.
Decision<> Deferral::findOperands(ShiftedValues &inputs) {
  for (Operation *op : ops)
    for (OpOperand &operand : op->getOpOperands()) {
      Value value = operand.get();
      if (values.contains(value)) {
        if (isIndex(operand))
          return LeftAlone(kPlace);
      } else if (!isa<StartOp, WaitOp>(op) && inputs.isPossible(value)) {
        if (inputs.changes(value))
          liveIns.insert(value);
        else if (!isOutside(value))
          constants.insert(value);
      } else if (isIndex(operand)) {
        return LeftAlone(kPlace);
      } else if (!hasZeros(value)) {
        return LeftAlone("its type has no zero");
      } else {
        data.insert(value);
      }
    }
  return Yes();
}

/// True if sums stay as they are in the first iteration, in which all data are
/// zeros.
bool Deferral::keepsSums() const {
  llvm::DenseSet<Value> zeros(llvm::from_range, data);
  for (Operation *op : ops)
    if (llvm::all_of(op->getOperands(),
                     [&](Value value) { return zeros.contains(value); }) &&
        (op->getNumOperands() == 1 || isNamed(op, guest::kAdd) ||
         isa<StartOp, WaitOp>(op)))
      zeros.insert_range(op->getResults());
  return llvm::all_of(updated, [&](unsigned number) {
    Operation *op = body.back().getOperand(number).getDefiningOp();
    if (getUpdated(op) || !isSum(number))
      return true;
    return llvm::all_of(op->getOperands(), [&](Value operand) {
      return operand == body.getArgument(number) || zeros.contains(operand);
    });
  });
}

void Deferral::findLevels() {
  for (Operation *op : ops) {
    unsigned level = 0;
    for (Value operand : op->getOperands())
      if (Operation *source = operand.getDefiningOp())
        level = std::max(level, levels.lookup(source));
    if (isa<StartOp>(op))
      numLevels = std::max(numLevels, level + 1);
    if (isa<WaitOp>(op))
      ++level;
    levels[op] = level;
  }
}

Decision<> Deferral::analyze(ShiftedValues &inputs) {
  if (Decision<> decision = findOps(); !decision)
    return decision;
  addCasts(inputs);
  if (Decision<> decision = checkUpdates(); !decision)
    return decision;
  if (Decision<> decision = findOperands(inputs); !decision)
    return decision;
  if (!keepsSums())
    return LeftAlone("scattering zeros would not leave the sum as it is");
  findLevels();
  return Yes();
}

SmallVector<StartOp> Deferral::getStarts() const {
  SmallVector<StartOp> starts;
  for (Operation *op : ops)
    if (auto other = dyn_cast<StartOp>(op))
      starts.push_back(other);
  return starts;
}

int64_t Deferral::getCarriedBytes() const {
  int64_t bytes =
      addSaturating(getBytes(ValueRange(data.getArrayRef()).getTypes()),
                    getBytes(ValueRange(liveIns.getArrayRef()).getTypes()));
  for (StartOp other : getStarts())
    bytes = addSaturating(bytes, getBytes(other.getOutputs().getTypes()));
  return bytes;
}

/// True if `value` is defined before the loop or carried unchanged.
bool Deferral::isOutside(Value value) const {
  return isa<BlockArgument>(value) || value.getParentBlock() != &body;
}

//===----------------------------------------------------------------------===//
// The rewrite
//===----------------------------------------------------------------------===//

void Deferral::carry(OpBuilder &outside, ShiftedValues &inputs,
                     Carried &carried, llvm::MapVector<Value, size_t> &shared) {
  for (Value value : data)
    numbers.emplace_back(
        value, carried.add(createConstant(outside, start.getLoc(),
                                          outside.getZeroAttr(value.getType())),
                           value));
  for (Value value : liveIns) {
    auto [it, isNew] = shared.try_emplace(value, 0);
    if (isNew)
      it->second = carried.add(inputs.getFirst(outside, value), value);
    numbers.emplace_back(value, it->second);
  }
  for (Value value : constants)
    known.map(value, inputs.getFirst(outside, value));
}

void Deferral::rewrite(Operation *extended, size_t first, Operation *front,
                       ArrayRef<Operation *> heavy, ShiftedValues &inputs) {
  IRMapping before;
  for (auto [value, number] : numbers) {
    before.map(value, body.getArgument(first + number));
    known.map(body.getArgument(first + number),
              extended->getResult(first + number));
  }
  OpBuilder builder(front);
  for (Operation *op : ops) {
    unsigned level = levels.lookup(op);
    Operation *place = &body.back();
    if (level == 0)
      place = front;
    else if (level < numLevels && !heavy.empty())
      place = heavy[level * heavy.size() / numLevels];
    for (OpOperand &operand : op->getOpOperands()) {
      Value value = operand.get();
      if (Value carried = before.lookupOrNull(value))
        operand.set(carried);
      else if (place != &body.back() && constants.contains(value)) {
        operand.set(inputs.getAgain(builder, value));
        known.map(operand.get(), known.lookup(value));
      }
    }
    op->moveBefore(place);
  }
}

void Deferral::finish(Operation *extended) {
  OpBuilder builder(extended->getContext());
  builder.setInsertionPointAfter(extended);
  auto map = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner() != &body || known.contains(value))
      return;
    unsigned number = argument.getArgNumber();
    known.map(value, isLoopInvariant(extended, number)
                         ? extended->getOperand(number)
                         : extended->getResult(number));
  };
  SmallVector<Operation *> copies;
  for (Operation *op : ops) {
    llvm::for_each(op->getOperands(), map);
    copies.push_back(builder.clone(*op, known));
  }
  llvm::DenseSet<Operation *> isCopy(llvm::from_range, copies);
  for (unsigned number : updated)
    extended->getResult(number).replaceUsesWithIf(
        known.lookup(body.back().getOperand(number)),
        [&](OpOperand &use) { return !isCopy.contains(use.getOwner()); });
  // Scatters start at once, and what they need is computed at once.
  llvm::DenseSet<Operation *> isEarly;
  for (Operation *op : llvm::reverse(copies)) {
    Operation *reader = nullptr;
    bool feedsStart = isa<StartOp>(op);
    for (Operation *user : op->getUsers()) {
      feedsStart |= isEarly.contains(user);
      user = op->getBlock()->findAncestorOpInBlock(*user);
      if (!reader || user->isBeforeInBlock(reader))
        reader = user;
    }
    if (feedsStart)
      isEarly.insert(op);
    else if (reader && !isa<WaitOp>(op))
      op->moveBefore(reader);
  }
}
