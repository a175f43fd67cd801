//===- RotateLoops.cpp - Collectives under another iteration (4.1.1) ------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A loop gathers for its next iteration (`getGathers`) and scatters for the one
// before (`getScatters`, `Deferral`). What is gathered, or is to be scattered,
// is carried (`Carried`, `extend`).
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
#include "LocalValues.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Zero/IR/Contracts.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

namespace zpp {
#define GEN_PASS_DEF_ROTATELOOPSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// Casts, slices, broadcasts, and arithmetic of scalars.
bool isCheap(Operation *op) {
  if (op->getNumRegions() > 0 || isCollective(op) ||
      HeavyOps::isHeavyItself(op) ||
      op->getName().getDialectNamespace() != "stablehlo" ||
      isNamed(op, "stablehlo.custom_call"))
    return false;
  return isDataMovement(op) || isNamed(op, "stablehlo.constant") ||
         isNamed(op, "stablehlo.broadcast_in_dim") ||
         llvm::all_of(op->getResultTypes(), [](Type t) {
           auto type = dyn_cast<RankedTensorType>(t);
           return type && type.hasStaticShape() && type.getNumElements() == 1;
         });
}

/// Computes again, elsewhere, what an op in the body of a loop reads.
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

  /// True if `value`, for which isPossible() is true, may differ from one
  /// iteration to another.
  bool changes(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return argumentChanges(argument);
    if (!changing) {
      // Operands come before what reads them: one sweep finds all.
      changing.emplace();
      for (Operation &op : *body)
        if (llvm::any_of(op.getOperands(), [&](Value operand) {
              auto argument = dyn_cast<BlockArgument>(operand);
              return argument ? argumentChanges(argument)
                              : changing->contains(operand.getDefiningOp());
            }))
          changing->insert(&op);
    }
    return changing->contains(value.getDefiningOp());
  }

  /// `value` in the first iteration, computed in front of the loop.
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
  bool argumentChanges(BlockArgument argument) const {
    return argument.getOwner() == body &&
           !isLoopInvariant(loop, argument.getArgNumber());
  }

  static Value getOperand(Value result) {
    return result.getDefiningOp()->getOperand(
        cast<OpResult>(result).getResultNumber());
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
  /// The ops of the body that compute other values in each iteration; found
  /// when it is first asked for.
  std::optional<llvm::DenseSet<Operation *>> changing;
  IRMapping first, next, current;
};

Value createZeros(OpBuilder &builder, Location loc, Type type) {
  OperationState state(loc, "stablehlo.constant");
  state.addTypes(type);
  state.propertiesAttr = builder.getDictionaryAttr(
      builder.getNamedAttr("value", builder.getZeroAttr(type)));
  return builder.create(state)->getResult(0);
}

/// Starts what `start` does on other `inputs`, and waits for it at once.
WaitOp createTransfer(OpBuilder &builder, StartOp start, ValueRange inputs) {
  auto copy = StartOp::create(
      builder, start.getLoc(), start.getOutputs().getTypes(), TypeRange(),
      start.getCallee(), inputs, ValueRange(), start.getOriginsAttr());
  return WaitOp::create(builder, start.getLoc(), copy.getOutputs().getTypes(),
                        TypeRange(), copy.getOutputs(), inputs, ValueRange());
}

/// What a loop carries besides: into the first iteration, and out of each one
/// into the next.
struct Carried {
  SmallVector<Value> init, next;

  /// Returns its number among these.
  size_t add(Value initial, Value value) {
    init.push_back(initial);
    next.push_back(value);
    return init.size() - 1;
  }
};

/// The operand of which `op` overwrites a part, or null: of a
/// dynamic_update_slice, or of a call of a function that is one, as JAX writes
/// it.
OpOperand *getUpdated(Operation *op) {
  if (isNamed(op, "stablehlo.dynamic_update_slice") && op->getNumOperands() > 1)
    return &op->getOpOperand(0);
  auto call = dyn_cast<func::CallOp>(op);
  auto callee = call ? SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
                           call, call.getCalleeAttr())
                     : func::FuncOp();
  if (!callee || callee.isExternal() || !callee.getBody().hasOneBlock())
    return nullptr;
  Block &block = callee.getBody().front();
  if (block.back().getNumOperands() != 1)
    return nullptr;
  Operation *update = block.back().getOperand(0).getDefiningOp();
  if (!update || !isNamed(update, "stablehlo.dynamic_update_slice") ||
      update->getNumOperands() < 2)
    return nullptr;
  auto argument = dyn_cast<BlockArgument>(update->getOperand(0));
  if (!argument || !argument.hasOneUse() ||
      !llvm::all_of(block.without_terminator(), [&](Operation &nested) {
        return &nested == update || isCheap(&nested);
      }))
    return nullptr;
  return &op->getOpOperand(argument.getArgNumber());
}

/// A scatter of which the loop only stores the result, in a slice of a stack or
/// added to a sum, until it is done.
class Deferral {
public:
  Deferral(Operation *loop, StartOp start)
      : loop(loop), body(loop->getRegion(1).front()), start(start),
        wait(start.getWait()) {}

  StartOp getStart() const { return start; }

  /// Finds what is done with the result. Returns why that cannot be done in the
  /// next iteration as well, or an empty text.
  std::string analyze(Recomputation &inputs) {
    llvm::DenseSet<Value> values(llvm::from_range, wait.getOutputs());
    // Whether zeros that are scattered are zeros until they are stored.
    bool keepsZeros = true, hasSum = false;
    for (Operation *op = wait->getNextNode(); op; op = op->getNextNode()) {
      auto reads = [&](Operation *nested) {
        return llvm::any_of(nested->getOperands(), [&](Value operand) {
          return values.contains(operand);
        });
      };
      if (!reads(op)) {
        // Where regions read it, what becomes of it is not looked at.
        if (op->walk([&](Operation *nested) {
                return reads(nested) ? WalkResult::interrupt()
                                     : WalkResult::advance();
              }).wasInterrupted())
          return kRead;
        continue;
      }
      OpOperand *updated = getUpdated(op);
      if (!updated && (updated = getSum(op, values)))
        hasSum = true;
      ops.push_back(op);
      if (!updated) {
        if (!isMovable(op))
          return kRead;
        keepsZeros &= op->getNumOperands() == 1;
        values.insert_range(op->getResults());
        continue;
      }
      if (!isOwnStack(*updated, op))
        return "what it is stored in is more than stored in the loop";
      stacks[op] = updated->get();
    }
    if (hasSum && !keepsZeros)
      return "zeros would not add zeros to a sum";
    for (Operation *op : ops)
      for (Value operand : op->getOperands()) {
        if (values.contains(operand) || stacks.lookup(op) == operand)
          continue;
        if (!inputs.isPossible(operand))
          return "where it is stored is not known before the loop";
        if (inputs.changes(operand))
          liveIns.insert(operand);
        else if (!isOutside(operand))
          constants.insert(operand);
      }
    auto isZeroable = [](Type type) {
      return cast<RankedTensorType>(type).getElementType().isIntOrFloat();
    };
    if (!llvm::all_of(start.getInputs().getTypes(), isZeroable))
      return "there are no zeros of its type";
    return "";
  }

  bool contains(Operation *op) const { return llvm::is_contained(ops, op); }

  /// Memory that it takes from one iteration into the next one.
  int64_t getCarriedBytes() {
    return getBytes(start.getInputs().getTypes()) +
           getBytes(start.getOutputs().getTypes()) +
           getBytes(ValueRange(liveIns.getArrayRef()).getTypes());
  }

  /// Adds what is to be scattered and where to store it: zeros first, stored
  /// where the result of the first iteration goes. `shared` has the numbers of
  /// what is carried already.
  void carry(OpBuilder &outside, Recomputation &inputs, Carried &carried,
             llvm::MapVector<Value, size_t> &shared) {
    for (Value input : start.getInputs())
      numbers.emplace_back(
          input,
          carried.add(createZeros(outside, start.getLoc(), input.getType()),
                      input));
    for (Value value : liveIns) {
      auto [it, isNew] = shared.try_emplace(value, 0);
      if (isNew)
        it->second = carried.add(inputs.getFirst(outside, value), value);
      numbers.emplace_back(value, it->second);
    }
    for (Value value : constants)
      known.map(value, inputs.getFirst(outside, value));
  }

  /// Stores at the end of each iteration what the one before has left.
  /// `extended` is the loop, which carries more from its operand `first` on.
  void rewrite(Operation *extended, size_t first) {
    IRMapping before;
    for (auto [value, number] : numbers) {
      before.map(value, body.getArgument(first + number));
      known.map(body.getArgument(first + number),
                extended->getResult(first + number));
    }
    SmallVector<Value> carried = llvm::map_to_vector(
        start.getInputs(), [&](Value input) { return before.lookup(input); });
    start.getInputsMutable().assign(carried);
    wait.getInputsMutable().assign(carried);
    wait->moveBefore(&body.back());
    for (Operation *op : ops) {
      op->moveBefore(&body.back());
      for (OpOperand &operand : op->getOpOperands())
        if (liveIns.contains(operand.get()))
          operand.set(before.lookup(operand.get()));
    }
  }

  /// Starts at the beginning of each iteration, and does it all once more
  /// behind the loop, where the last result is stored just before that is read.
  void finish(Operation *extended) {
    start->moveBefore(&body.front());
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
    SmallVector<Value> last = llvm::map_to_vector(
        start.getInputs(), [&](Value input) { return known.lookup(input); });
    WaitOp copy = createTransfer(builder, start, last);
    known.map(wait.getOutputs(), copy.getOutputs());
    SmallVector<Operation *> copies;
    for (Operation *op : ops) {
      llvm::for_each(op->getOperands(), map);
      copies.push_back(builder.clone(*op, known));
      if (Value stack = stacks.lookup(op))
        known.lookup(stack).replaceAllUsesExcept(copies.back()->getResult(0),
                                                 copies.back());
    }
    for (Operation *op : llvm::reverse(copies)) {
      Operation *reader = nullptr;
      for (Operation *user : op->getUsers()) {
        user = op->getBlock()->findAncestorOpInBlock(*user);
        if (!reader || user->isBeforeInBlock(reader))
          reader = user;
      }
      if (reader)
        op->moveBefore(reader);
    }
  }

private:
  static constexpr const char *kRead =
      "its result is more than stored in the iteration that computes it";

  /// Casts, shapes and arithmetic that a gradient goes through until it is
  /// stored.
  static bool isMovable(Operation *op) {
    static const llvm::StringSet<> names = {"stablehlo.add",
                                            "stablehlo.subtract",
                                            "stablehlo.multiply",
                                            "stablehlo.divide",
                                            "stablehlo.negate",
                                            "stablehlo.select",
                                            "stablehlo.broadcast_in_dim"};
    return names.contains(op->getName().getStringRef()) ||
           (movesData(op) && isCheap(op));
  }

  /// The number under which the loop carries the result of `op` into its next
  /// iteration, if nothing else reads it.
  std::optional<unsigned> getYielded(Operation *op) const {
    if (op->getNumResults() != 1 || !op->getResult(0).hasOneUse())
      return std::nullopt;
    OpOperand &use = *op->getResult(0).use_begin();
    if (use.getOwner() != &body.back())
      return std::nullopt;
    return use.getOperandNumber();
  }

  /// The sum of all iterations that `op` adds to, or null.
  OpOperand *getSum(Operation *op, const llvm::DenseSet<Value> &values) const {
    std::optional<unsigned> number = getYielded(op);
    if (!number || !isNamed(op, "stablehlo.add") || op->getNumOperands() != 2)
      return nullptr;
    for (OpOperand &operand : op->getOpOperands())
      if (operand.get() == body.getArgument(*number) &&
          values.contains(op->getOperand(1 - operand.getOperandNumber())))
        return &operand;
    return nullptr;
  }

  /// True if the loop does nothing with `updated` but to carry what `op` makes
  /// of it.
  bool isOwnStack(OpOperand &updated, Operation *op) const {
    std::optional<unsigned> number = getYielded(op);
    return number && updated.get() == body.getArgument(*number) &&
           updated.get().hasOneUse() &&
           loop->getRegion(0).front().getArgument(*number).use_empty();
  }

  /// True if `value` is there in front of the loop, or carried unchanged.
  bool isOutside(Value value) const {
    return isa<BlockArgument>(value) || value.getParentBlock() != &body;
  }

  Operation *loop;
  Block &body;
  StartOp start;
  WaitOp wait;
  /// What is done with the result, in order.
  SmallVector<Operation *> ops;
  /// What those of `ops` update that store it.
  llvm::DenseMap<Operation *, Value> stacks;
  /// What else `ops` read in the body: other values in each iteration, or not.
  llvm::SetVector<Value> liveIns, constants;
  /// What is carried, and its number.
  SmallVector<std::pair<Value, size_t>> numbers;
  /// Values of the body, and what they are behind the loop.
  IRMapping known;
};

class RotateLoopsPass : public zpp::impl::RotateLoopsPassBase<RotateLoopsPass> {
public:
  using RotateLoopsPassBase::RotateLoopsPassBase;

  void runOnOperation() override {
    if (failed(verifyPrefetchBytes(getOperation(), prefetchBytes)) ||
        failed(zero::verifySchedule(getOperation())))
      return signalPassFailure();
    HeavyOps heavy(getOperation());
    compute = &heavy;
    SmallVector<Operation *> loops;
    getOperation()->walk([&](Operation *op) {
      if (isWhile(op))
        loops.push_back(op);
    });
    for (Operation *loop : loops)
      rotate(loop);
    compute = nullptr;
  }

private:
  /// True if `start` moves nothing but what has `role`.
  static bool hasRole(StartOp start, Role role) {
    SmallVector<Origin> origins = getStartedOrigins(start);
    return !origins.empty() && llvm::all_of(origins, [&](const Origin &origin) {
      return origin.role == getRoleName(role);
    });
  }

  void remarkLeft(StartOp start, const Twine &text) {
    remark::missed(
        start.getLoc(),
        remark::RemarkOpts::name("not-rotated").category(getArgument()))
        << text.str();
  }

  /// Why `size` bytes do not fit beside `bytes`, or empty.
  std::string getExcess(int64_t bytes, int64_t size) const {
    if (bytes + size <= prefetchBytes)
      return "";
    return std::to_string(bytes + size) +
           " bytes would be in flight, more than prefetch-bytes = " +
           std::to_string(prefetchBytes);
  }

  /// The gathers that are needed before anything heavy in the body, as long as
  /// they fit the memory, of which `bytes` are taken.
  SmallVector<StartOp> getGathers(Operation *loop, Recomputation &inputs,
                                  int64_t &bytes) {
    Block &body = loop->getRegion(1).front();
    SmallVector<Operation *> heavy = compute->getIn(body);
    SmallVector<StartOp> result;
    for (auto start : body.getOps<StartOp>()) {
      // What is carried to the next iteration already is not needed in this.
      if (!hasRole(start, Role::Weight) || heavy.empty() ||
          !isNeededAtOnce(start, heavy.front()))
        continue;
      int64_t size = getBytes(start.getOutputs().getTypes());
      std::string reason = getFewIterations(body);
      if (!llvm::all_of(start.getInputs(),
                        [&](Value input) { return inputs.isPossible(input); }))
        reason = "what it reads in the next iteration is not known in this one";
      if (reason.empty())
        reason = getExcess(bytes, size);
      if (!reason.empty()) {
        remarkLeft(start, "gathered in the iteration that needs it: " + reason);
        continue;
      }
      bytes += size;
      result.push_back(start);
    }
    return result;
  }

  /// The scatters after whose gradients nothing heavy is computed in the body,
  /// as long as the loop does nothing but store their results, and they fit the
  /// memory, of which `bytes` are taken.
  std::vector<Deferral> getScatters(Operation *loop, Recomputation &inputs,
                                    int64_t &bytes) {
    Block &body = loop->getRegion(1).front();
    SmallVector<Operation *> heavy = compute->getIn(body);
    std::vector<Deferral> result;
    for (auto start : body.getOps<StartOp>()) {
      // What is tied has its place.
      if (!hasRole(start, Role::Gradient) || !start.getTies().empty())
        continue;
      Deferral deferral(loop, start);
      std::string reason = getReason(deferral, heavy, inputs);
      if (reason.empty())
        reason = getExcess(bytes, deferral.getCarriedBytes());
      if (!reason.empty()) {
        remarkLeft(start,
                   "scattered in the iteration that computes it: " + reason);
        continue;
      }
      bytes += deferral.getCarriedBytes();
      result.push_back(std::move(deferral));
    }
    return result;
  }

  std::string getReason(Deferral &deferral, ArrayRef<Operation *> heavy,
                        Recomputation &inputs) const {
    StartOp start = deferral.getStart();
    Block &body = *start->getBlock();
    // Where what it scatters is there.
    Operation *last = nullptr;
    for (Value input : start.getInputs()) {
      Operation *op = getSource(input, body);
      if (op && (!last || last->isBeforeInBlock(op)))
        last = op;
    }
    std::string reason = deferral.analyze(inputs);
    if (llvm::any_of(heavy, [&](Operation *op) {
          return !deferral.contains(op) && (!last || last->isBeforeInBlock(op));
        }))
      return "something heavy is computed after it there";
    if (!reason.empty())
      return reason;
    if (llvm::all_of(heavy,
                     [&](Operation *op) { return deferral.contains(op); }))
      return "the loop computes nothing heavy";
    // Without a first iteration nothing would overwrite the zeros, without a
    // second one they would hide nothing.
    std::optional<int64_t> iterations = getIterations(body);
    if (!iterations)
      return "it is not known whether the loop has a next iteration";
    if (*iterations < 2)
      return "the loop has no next iteration";
    return getFewIterations(body);
  }

  /// Why one more collective than `body` has iterations is too many, or empty.
  std::string getFewIterations(Block &body) const {
    std::optional<int64_t> iterations = getIterations(body);
    if (!iterations || *iterations >= minTrips)
      return "";
    return "one more than the loop's " + std::to_string(*iterations) +
           " would send too much, with min-trips = " + std::to_string(minTrips);
  }

  /// What computes `value` in `body`, before casts and shapes, or null.
  static Operation *getSource(Value value, Block &body) {
    Operation *op = value.getDefiningOp();
    while (op && op->getBlock() == &body && movesData(op)) {
      value = op->getOperand(0);
      op = value.getDefiningOp();
    }
    return op && op->getBlock() == &body ? op : nullptr;
  }

  /// How often `body` is executed for each time that its loop is.
  static std::optional<int64_t> getIterations(Block &body) {
    std::optional<int64_t> all = getTripCount(&body.front());
    std::optional<int64_t> outer = getTripCount(body.getParentOp());
    if (!all || !outer || *outer < 1)
      return std::nullopt;
    return *all / *outer;
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
    Recomputation inputs(loop);
    int64_t bytes = 0;
    SmallVector<StartOp> gathers = getGathers(loop, inputs, bytes);
    std::vector<Deferral> scatters = getScatters(loop, inputs, bytes);
    if (gathers.empty() && scatters.empty())
      return;
    Block &body = loop->getRegion(1).front();
    OpBuilder outside(loop);
    OpBuilder builder = OpBuilder::atBlockBegin(&body);
    Carried carried;
    SmallVector<Value> gathered;
    for (StartOp start : gathers) {
      // Those of the first iteration, in front of the loop.
      SmallVector<Value> first =
          llvm::map_to_vector(start.getInputs(), [&](Value input) {
            return inputs.getFirst(outside, input);
          });
      WaitOp ahead = createTransfer(outside, start, first);
      // Those of the next one, in this one.
      SmallVector<Value> next =
          llvm::map_to_vector(start.getInputs(), [&](Value input) {
            return inputs.getNext(builder, input);
          });
      WaitOp wait = createTransfer(builder, start, next);
      for (auto [initial, value] :
           llvm::zip_equal(ahead.getOutputs(), wait.getOutputs()))
        carried.add(initial, value);
      llvm::append_range(gathered, start.getWait().getOutputs());
      remark::passed(
          start.getLoc(),
          remark::RemarkOpts::name("rotated").category(getArgument()))
          << "gathered in the iteration before the one that needs it";
    }
    llvm::MapVector<Value, size_t> shared;
    for (Deferral &scatter : scatters) {
      scatter.carry(outside, inputs, carried, shared);
      remark::passed(
          scatter.getStart().getLoc(),
          remark::RemarkOpts::name("rotated").category(getArgument()))
          << "scattered in the iteration after the one that computes it, zeros "
             "in the first one";
    }
    size_t first = loop->getNumOperands();
    Operation *extended = extendLoop(loop, carried.init);
    body.back().insertOperands(first, carried.next);
    for (Deferral &scatter : scatters)
      scatter.rewrite(extended, first);
    // Each goes in front of the others.
    for (Deferral &scatter : llvm::reverse(scatters))
      scatter.finish(extended);
    for (auto [index, value] : llvm::enumerate(gathered))
      value.replaceAllUsesWith(body.getArgument(first + index));
    for (StartOp start : gathers) {
      SmallVector<Value> values(start.getInputs());
      start.getWait().erase();
      start.erase();
      eraseIfDead(values);
    }
  }

  /// While the pass runs.
  HeavyOps *compute = nullptr;
};
} // namespace
