//===- RotateLoops.cpp - Collectives under another iteration (4.1.1) ------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// After this pass, a loop gathers weights for its next iteration (`getGathers`)
// and scatters gradients of the previous one (`getScatters`, `Deferral`). The
// loop carries the gathered weights and the gradients that are still to be
// scattered (`Carried`, `extend`).
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
#include "zpp/Support/Limits.h"
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
      isNamed(op, guest::kCustomCall))
    return false;
  return isDataMovement(op) || isNamed(op, guest::kConstant) ||
         isNamed(op, guest::kBroadcastInDim) ||
         llvm::all_of(op->getResultTypes(), [](Type t) {
           auto type = dyn_cast<RankedTensorType>(t);
           return type && type.hasStaticShape() && type.getNumElements() == 1;
         });
}

/// Recomputes values of a loop's body for another iteration: before the loop
/// for the first one, in the body for the next one.
class Recomputation {
public:
  explicit Recomputation(Operation *loop)
      : loop(loop), body(&loop->getRegion(1).front()) {}

  /// True if `value` depends only on values that the loop carries unchanged and
  /// on scalars, such as the loop's counter, that depend only on such values
  /// themselves.
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

  /// True if `value` may differ between iterations. isPossible(value) must be
  /// true.
  bool changes(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return argumentChanges(argument);
    if (!changing) {
      // Operands come before their readers, so one sweep finds all.
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

  /// The value that `value` has in the first iteration, computed before the
  /// loop.
  Value getFirst(OpBuilder &builder, Value value) {
    return recompute(builder, value, first, [&](BlockArgument argument) {
      return loop->getOperand(argument.getArgNumber());
    });
  }

  /// The value that `value` will have in the next iteration, computed in this
  /// one.
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
      // clone() also maps the results.
      builder.clone(*op, mapping);
      return mapping.lookup(value);
    }
    mapping.map(value, result);
    return result;
  }

  Operation *loop;
  Block *body;
  llvm::DenseMap<Value, bool> known;
  /// The ops of the body whose results differ between iterations; computed on
  /// the first use.
  std::optional<llvm::DenseSet<Operation *>> changing;
  IRMapping first, next, current;
};

/// Starts the function of `start` on other `inputs` and waits for it at once.
WaitOp createTransfer(OpBuilder &builder, StartOp start, ValueRange inputs) {
  auto copy = StartOp::create(
      builder, start.getLoc(), start.getOutputs().getTypes(), TypeRange(),
      start.getCallee(), inputs, ValueRange(), start.getOriginsAttr());
  return WaitOp::create(builder, start.getLoc(), copy.getOutputs().getTypes(),
                        TypeRange(), copy.getOutputs(), inputs, ValueRange());
}

/// Values that the loop is to carry in addition: those that enter the first
/// iteration, and those that each iteration hands to the next one.
struct Carried {
  SmallVector<Value> init, next;

  /// Returns the number of the new value.
  size_t add(Value initial, Value value) {
    init.push_back(initial);
    next.push_back(value);
    return init.size() - 1;
  }
};

/// The operand of which `op` overwrites a part, or null. `op` is a
/// dynamic_update_slice or, as JAX writes it, a call of a function that
/// contains one.
OpOperand *getUpdated(Operation *op) {
  if (isNamed(op, guest::kDynamicUpdateSlice) && op->getNumOperands() > 1)
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
  if (!update || !isNamed(update, guest::kDynamicUpdateSlice) ||
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

/// A scatter whose result the loop only stores: in a slice of a stack, or added
/// to a sum.
class Deferral {
public:
  Deferral(Operation *loop, StartOp start)
      : loop(loop), body(loop->getRegion(1).front()), start(start),
        wait(start.getWait()) {}

  StartOp getStart() const { return start; }

  /// Finds the ops that process the result. Returns the reason if they cannot
  /// be moved to the next iteration, otherwise an empty string.
  std::string analyze(Recomputation &inputs) {
    llvm::DenseSet<Value> values(llvm::from_range, wait.getOutputs());
    // True as long as the ops between scatter and store map zeros to zeros.
    bool keepsZeros = true, hasSum = false;
    for (Operation *op = wait->getNextNode(); op; op = op->getNextNode()) {
      auto reads = [&](Operation *nested) {
        return llvm::any_of(nested->getOperands(), [&](Value operand) {
          return values.contains(operand);
        });
      };
      if (!reads(op)) {
        // Readers in nested regions are not analyzed.
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
        return "the loop uses the tensor that it is stored in for other "
               "purposes";
      stacks[op] = updated->get();
    }
    if (hasSum && !keepsZeros)
      return "scattering zeros would not leave the sum as it is";
    for (Operation *op : ops)
      for (Value operand : op->getOperands()) {
        if (values.contains(operand) || stacks.lookup(op) == operand)
          continue;
        if (!inputs.isPossible(operand))
          return "the place where it is stored is not known before the loop";
        if (inputs.changes(operand))
          liveIns.insert(operand);
        else if (!isOutside(operand))
          constants.insert(operand);
      }
    auto isZeroable = [](Type type) {
      return cast<RankedTensorType>(type).getElementType().isIntOrFloat();
    };
    if (!llvm::all_of(start.getInputs().getTypes(), isZeroable))
      return "its type has no zero";
    return "";
  }

  bool contains(Operation *op) const { return llvm::is_contained(ops, op); }

  /// The memory that is live from one iteration to the next.
  int64_t getCarriedBytes() {
    return addSaturating(
        addSaturating(getBytes(start.getInputs().getTypes()),
                      getBytes(start.getOutputs().getTypes())),
        getBytes(ValueRange(liveIns.getArrayRef()).getTypes()));
  }

  /// Adds to `carried` what is to be scattered and where to store the result.
  /// The loop starts with zeros, which are stored where the result of the first
  /// iteration goes. `shared` has the numbers of values that are already
  /// carried.
  void carry(OpBuilder &outside, Recomputation &inputs, Carried &carried,
             llvm::MapVector<Value, size_t> &shared) {
    for (Value input : start.getInputs())
      numbers.emplace_back(
          input,
          carried.add(createConstant(outside, start.getLoc(),
                                     outside.getZeroAttr(input.getType())),
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

  /// Stores the result of the previous iteration's gradient at the end of each
  /// iteration. `extended` is the loop, which carries the additional values
  /// from its operand `first` on.
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

  /// Moves the start to the beginning of each iteration. Scatters and stores
  /// the last gradient behind the loop; the store comes just before the first
  /// reader.
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
      "the iteration that computes it does more with its result than store it";

  /// True for casts, shape changes and arithmetic between a scatter and the
  /// store of its result.
  static bool isMovable(Operation *op) {
    static const llvm::StringSet<> names = {
        guest::kAdd,    guest::kSubtract, guest::kMultiply,      guest::kDivide,
        guest::kNegate, guest::kSelect,   guest::kBroadcastInDim};
    return names.contains(op->getName().getStringRef()) ||
           (movesData(op) && isCheap(op));
  }

  /// The number of the carried value that the result of `op` becomes in the
  /// next iteration, if nothing else reads the result.
  std::optional<unsigned> getYielded(Operation *op) const {
    if (op->getNumResults() != 1 || !op->getResult(0).hasOneUse())
      return std::nullopt;
    OpOperand &use = *op->getResult(0).use_begin();
    if (use.getOwner() != &body.back())
      return std::nullopt;
    return use.getOperandNumber();
  }

  /// The operand of `op` that is a sum over iterations, or null.
  OpOperand *getSum(Operation *op, const llvm::DenseSet<Value> &values) const {
    std::optional<unsigned> number = getYielded(op);
    if (!number || !isNamed(op, guest::kAdd) || op->getNumOperands() != 2)
      return nullptr;
    for (OpOperand &operand : op->getOpOperands())
      if (operand.get() == body.getArgument(*number) &&
          values.contains(op->getOperand(1 - operand.getOperandNumber())))
        return &operand;
    return nullptr;
  }

  /// True if the loop does nothing with `updated` except carry what `op` makes
  /// of it.
  bool isOwnStack(OpOperand &updated, Operation *op) const {
    std::optional<unsigned> number = getYielded(op);
    return number && updated.get() == body.getArgument(*number) &&
           updated.get().hasOneUse() &&
           loop->getRegion(0).front().getArgument(*number).use_empty();
  }

  /// True if `value` is defined before the loop or carried unchanged.
  bool isOutside(Value value) const {
    return isa<BlockArgument>(value) || value.getParentBlock() != &body;
  }

  Operation *loop;
  Block &body;
  StartOp start;
  WaitOp wait;
  /// The ops that process the result, in order.
  SmallVector<Operation *> ops;
  /// For each of `ops` that stores the result, the value that it updates.
  llvm::DenseMap<Operation *, Value> stacks;
  /// Other values of the body that `ops` read: those that differ between
  /// iterations, and those that do not.
  llvm::SetVector<Value> liveIns, constants;
  /// The carried values and their numbers.
  SmallVector<std::pair<Value, size_t>> numbers;
  /// Maps values of the body to their values behind the loop.
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

  /// The reason why `size` more bytes do not fit beside `bytes`, or empty.
  std::string getExcess(int64_t bytes, int64_t size) const {
    int64_t total = addSaturating(bytes, size);
    if (total <= prefetchBytes)
      return "";
    return std::to_string(total) +
           " bytes would be in flight, more than prefetch-bytes = " +
           std::to_string(prefetchBytes);
  }

  /// The gathers that are needed before the first heavy op of the body, as far
  /// as they fit into memory, of which `bytes` are taken.
  SmallVector<StartOp> getGathers(Operation *loop, Recomputation &inputs,
                                  int64_t &bytes) {
    Block &body = loop->getRegion(1).front();
    SmallVector<Operation *> heavy = compute->getIn(body);
    SmallVector<StartOp> result;
    for (auto start : body.getOps<StartOp>()) {
      // A gather for the next iteration is not needed in this one.
      if (!hasRole(start, Role::Weight) || heavy.empty() ||
          !isNeededAtOnce(start, heavy.front()))
        continue;
      int64_t size = getBytes(start.getOutputs().getTypes());
      std::string reason = getFewIterations(body);
      if (!llvm::all_of(start.getInputs(),
                        [&](Value input) { return inputs.isPossible(input); }))
        reason = "its operand in the next iteration is not known in this one";
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

  /// The scatters whose gradients are computed after the last heavy op of the
  /// body, as far as the loop only stores their results and they fit into
  /// memory, of which `bytes` are taken.
  std::vector<Deferral> getScatters(Operation *loop, Recomputation &inputs,
                                    int64_t &bytes) {
    Block &body = loop->getRegion(1).front();
    SmallVector<Operation *> heavy = compute->getIn(body);
    std::vector<Deferral> result;
    for (auto start : body.getOps<StartOp>()) {
      // A start with ties has been placed already.
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
    // The op that completes its inputs.
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
    // Without a first iteration nothing would overwrite the zeros. Without a
    // second one there is nothing to hide under.
    std::optional<int64_t> iterations = getIterations(body);
    if (!iterations)
      return "it is not known whether the loop has a next iteration";
    if (*iterations < 2)
      return "the loop has no next iteration";
    return getFewIterations(body);
  }

  /// The reason why `body` has too few iterations to pay for one more
  /// collective, or empty.
  std::string getFewIterations(Block &body) const {
    std::optional<int64_t> iterations = getIterations(body);
    if (!iterations || *iterations >= minTrips)
      return "";
    return "one more collective is too much for a loop of " +
           std::to_string(*iterations) +
           " iterations, with min-trips = " + std::to_string(minTrips);
  }

  /// The op of `body` that computes `value`, apart from casts and shape
  /// changes, or null.
  static Operation *getSource(Value value, Block &body) {
    Operation *op = value.getDefiningOp();
    while (op && op->getBlock() == &body && movesData(op)) {
      value = op->getOperand(0);
      op = value.getDefiningOp();
    }
    return op && op->getBlock() == &body ? op : nullptr;
  }

  /// The number of iterations of the loop of `body`, if it is known.
  static std::optional<int64_t> getIterations(Block &body) {
    std::optional<int64_t> all = getTripCount(&body.front());
    std::optional<int64_t> outer = getTripCount(body.getParentOp());
    if (!all || !outer || *outer < 1)
      return std::nullopt;
    return *all / *outer;
  }

  /// True if `first`, or an op before it, reads what `start` gathers, possibly
  /// through casts and shape changes.
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
      // Gather for the first iteration before the loop.
      SmallVector<Value> first =
          llvm::map_to_vector(start.getInputs(), [&](Value input) {
            return inputs.getFirst(outside, input);
          });
      WaitOp ahead = createTransfer(outside, start, first);
      // Gather for the next iteration in each one.
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
          << "scattered in the iteration after the one that computes it; the "
             "first one scatters zeros";
    }
    size_t first = loop->getNumOperands();
    Operation *extended = extendLoop(loop, carried.init);
    body.back().insertOperands(first, carried.next);
    for (Deferral &scatter : scatters)
      scatter.rewrite(extended, first);
    // Each one is inserted directly behind the loop, before those inserted
    // earlier.
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

  /// Set while the pass runs.
  HeavyOps *compute = nullptr;
};
} // namespace
