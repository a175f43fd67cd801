//===- Schedule.cpp - What runs beside what -------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Schedule.h"
#include "zpp/Analysis/Loops/CountedLoop.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "zpp/Analysis/FunctionsWith.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;

static StringRef getName(Operation *op) { return op->getName().getStringRef(); }

//===----------------------------------------------------------------------===//
// Compute
//===----------------------------------------------------------------------===//

bool HeavyOps::isHeavyItself(Operation *op) {
  static const llvm::StringSet<> names = {
      guest::kDotGeneral, guest::kDot,     guest::kConvolution,
      guest::kWhile,      "linalg.matmul", "linalg.batch_matmul"};
  if (names.contains(getName(op)))
    return true;
  // Custom calls that mark shardings compute nothing.
  StringRef target = getCallTarget(op);
  return !target.empty() && target != kStartTarget && target != kWaitTarget &&
         !movesData(op) && !target.starts_with("SPMD");
}

bool HeavyOps::isHeavy(Operation *op) {
  auto call = dyn_cast<func::CallOp>(op);
  if (!call)
    return isHeavyItself(op);
  if (!functions)
    functions = getFunctionsWith(root, isHeavyItself);
  return functions->contains(
      symbols.lookupNearestSymbolFrom(call, call.getCalleeAttr()));
}

SmallVector<Operation *> HeavyOps::getIn(Block &block) {
  SmallVector<Operation *> heavy;
  Operation *largest = nullptr;
  int64_t most = 0;
  for (Operation &op : block) {
    // The last op of the block is its terminator, even if MLIR does not know
    // the op.
    if (&op == &block.back())
      break;
    if (isHeavy(&op))
      heavy.push_back(&op);
    if (isDataMovement(&op) || isCollective(&op) || isStart(&op) ||
        isWait(&op) || op.getNumOperands() == 0 ||
        isa_and_present<zero::ZeroDialect, tensor::TensorDialect>(
            op.getDialect()))
      continue;
    int64_t bytes = addSaturating(getBytes(op.getOperandTypes()),
                                  getBytes(op.getResultTypes()));
    if (bytes > most) {
      most = bytes;
      largest = &op;
    }
  }
  if (heavy.empty() && largest)
    heavy.push_back(largest);
  return heavy;
}

double HeavyOps::getWork(Operation *op) {
  double work = getProductFlops(op);
  auto addBlock = [&](Block &block, double times) {
    for (Operation &nested : block)
      if (isHeavy(&nested))
        work += times * getWork(&nested);
  };
  if (auto call = dyn_cast<func::CallOp>(op)) {
    auto callee = symbols.lookupNearestSymbolFrom<FunctionOpInterface>(
        call, call.getCalleeAttr());
    if (callee && !callee.isExternal())
      addBlock(callee.getFunctionBody().front(), 1);
  } else if (isWhile(op)) {
    Block &body = WhileView(op).getBody();
    std::optional<int64_t> all = getTripCount(&body.front());
    std::optional<int64_t> outer = getTripCount(op);
    addBlock(body, all && outer && *outer > 0 ? *all / *outer : 1);
  }
  return work > 0 ? work
                  : 1.0 + static_cast<double>(
                              addSaturating(getBytes(op->getOperandTypes()),
                                            getBytes(op->getResultTypes())));
}

int64_t zpp::countBefore(ArrayRef<Operation *> ops, Operation *op) {
  return llvm::partition_point(
             ops,
             [&](Operation *other) { return other->isBeforeInBlock(op); }) -
         ops.begin();
}

//===----------------------------------------------------------------------===//
// Starts and waits
//===----------------------------------------------------------------------===//

bool zpp::isStart(Operation *op) {
  return isa<zero::StartOp>(op) || getCallTarget(op) == kStartTarget;
}

bool zpp::isWait(Operation *op) {
  return isa<zero::WaitOp>(op) || getCallTarget(op) == kWaitTarget;
}

/// Returns the number `what` in the configuration of a custom call, which
/// nothing has verified: at most `most`.
static size_t getCount(Operation *call, StringRef what, size_t most) {
  auto config = call->getAttrOfType<DictionaryAttr>("backend_config");
  auto count = config ? config.getAs<IntegerAttr>(what) : IntegerAttr();
  return count && !count.getValue().isNegative()
             ? count.getValue().getLimitedValue(most)
             : 0;
}

ValueRange zpp::getOutputs(Operation *op) {
  if (auto start = dyn_cast<zero::StartOp>(op))
    return start.getOutputs();
  if (auto wait = dyn_cast<zero::WaitOp>(op))
    return wait.getOutputs();
  return op->getResults().take_front(
      getCount(op, "outputs", op->getNumResults()));
}

ValueRange zpp::getInputs(Operation *op) {
  if (auto start = dyn_cast<zero::StartOp>(op))
    return start.getInputs();
  return ValueRange(op->getOperands())
      .take_front(getCount(op, "inputs", op->getNumOperands()));
}

std::optional<unsigned> zpp::getOverwrittenInput(Operation *start,
                                                 unsigned output) {
  auto config = start->getAttrOfType<DictionaryAttr>("backend_config");
  Attribute found = config ? config.get("in_place") : Attribute();
  // Pairs of an input and an output. StableHLO's portable form makes a tensor
  // of an array.
  SmallVector<int64_t> pairs;
  if (auto array = dyn_cast_or_null<DenseI64ArrayAttr>(found))
    llvm::append_range(pairs, array.asArrayRef());
  else if (auto tensor = dyn_cast_or_null<DenseIntElementsAttr>(found);
           tensor && tensor.getElementType().isInteger(64))
    llvm::append_range(pairs, tensor.getValues<int64_t>());
  auto numInputs = static_cast<int64_t>(getInputs(start).size());
  for (size_t i = 0; i + 1 < pairs.size(); i += 2)
    if (pairs[i + 1] == output && pairs[i] >= 0 && pairs[i] < numInputs)
      return pairs[i];
  return std::nullopt;
}

Operation *zpp::getWait(Operation *start) {
  for (Value output : getOutputs(start))
    for (Operation *user : output.getUsers())
      if (isWait(user))
        return user;
  return nullptr;
}

SmallVector<Origin> zpp::getStartedOrigins(Operation *start) {
  StepCollective exchange;
  exchange.start = start;
  SmallVector<Origin> all;
  while (true) {
    SmallVector<Origin> origins = getOrigins(exchange);
    if (origins.empty())
      return all;
    llvm::append_range(all, origins);
    ++exchange.index;
  }
}

bool zpp::hasRole(Operation *start, Role role) {
  return hasRole(getStartedOrigins(start), role);
}

//===----------------------------------------------------------------------===//
// The schedule
//===----------------------------------------------------------------------===//

std::string zpp::describeOp(Operation *op) {
  std::string text = op->getName().getStringRef().str();
  if (std::string where = getFileLocation(op->getLoc()); !where.empty())
    text += " at " + where;
  return text;
}

/// Returns the next op that is neither start nor wait.
static Operation *getNextCompute(Operation *op) {
  while ((op = op->getNextNode()))
    if (!isStart(op) && !isWait(op))
      break;
  return op;
}

namespace {
/// The schedule of one block.
class BlockSchedule {
public:
  BlockSchedule(Block &block, int64_t budget, HeavyOps &heavy,
                ProvenanceAnalysis &provenances,
                SmallVectorImpl<ScheduleEvent> &events)
      : block(block), budget(budget), heavy(heavy), provenances(provenances),
        events(events) {}

  void run(int64_t &nextTransfer) {
    llvm::SmallPtrSet<Operation *, 16> heavyOps;
    if (llvm::any_of(block, [](Operation &op) { return isStart(&op); }))
      heavyOps.insert_range(heavy.getIn(block));
    for (Operation &op : block) {
      if (heavyOps.contains(&op)) {
        ++numHeavy;
        settle();
      }
      if (isStart(&op))
        addStart(&op, nextTransfer++);
      else if (isWait(&op))
        addWait(&op, heavyOps);
      for (Region &region : op.getRegions())
        for (Block &nested : region)
          BlockSchedule(nested, budget, heavy, provenances, events)
              .run(nextTransfer);
    }
  }

private:
  struct Begun {
    ScheduleEvent event;
    int64_t bytes, numHeavy;
  };

  void addStart(Operation *start, int64_t number) {
    ScheduleEvent event;
    event.op = start;
    event.isStart = true;
    event.transfer = number;
    if (getStartedFunction(start))
      event.function = getStartedCallee(start).getLeafReference().str();
    SmallVector<Origin> origins = getStartedOrigins(start);
    llvm::DenseSet<int64_t> ids;
    for (const Origin &origin : origins)
      ids.insert(origin.id);
    event.numCollectives = ids.size();
    if (!origins.empty()) {
      event.role = origins.front().role;
      event.phase = origins.front().phase;
    }
    event.location = getFileLocation(start->getLoc());
    if (Operation *next = getNextCompute(start))
      event.before = describeOp(next);
    event.trips = getTripCount(start, provenances).value_or(1);
    bool isGather = event.role == Role::Weight;
    int64_t bytes = getBytes(getOutputs(start).getTypes());
    if (!isGather)
      bytes = addSaturating(bytes, getBytes(getInputs(start).getTypes()));
    event.bytesInFlight = bytes;
    inFlight[isGather] = addSaturating(inFlight[isGather], bytes);
    unsettled.push_back(events.size());
    events.push_back(event);
    if (Operation *wait = getWait(start))
      begun[wait] = {event, bytes, numHeavy};
  }

  /// Called before a heavy op: transfers that have been started and not waited
  /// for are in flight under it.
  void settle() {
    for (size_t index : unsettled) {
      ScheduleEvent &event = events[index];
      bool isGather = event.role == Role::Weight;
      int64_t total = inFlight[isGather];
      event.isMisplaced =
          budget >= 0 && total > budget && total > event.bytesInFlight;
      if (event.isMisplaced)
        event.flag = "started too early: more in flight than may be";
      event.bytesInFlight = std::max(total, event.bytesInFlight);
    }
    unsettled.clear();
  }

  void addWait(Operation *wait,
               const llvm::SmallPtrSetImpl<Operation *> &heavyOps) {
    auto it = begun.find(wait);
    if (it == begun.end())
      return;
    ScheduleEvent event = it->second.event;
    event.op = wait;
    event.isStart = false;
    bool isGather = event.role == Role::Weight;
    inFlight[isGather] -= it->second.bytes;
    event.bytesInFlight = 0;
    event.heavyOps = numHeavy - it->second.numHeavy;
    event.flag = "";
    if (Operation *next = getNextCompute(wait))
      event.before = describeOp(next);
    event.isMisplaced =
        isGather && event.heavyOps > 0 && isEarly(wait, heavyOps);
    if (event.heavyOps == 0)
      event.flag = "nothing heavy to hide under";
    else if (event.isMisplaced)
      event.flag = "waited for too early: it is needed later";
    events.push_back(event);
  }

  /// True if there is a heavy op between `wait` and the first reader of its
  /// results.
  bool isEarly(Operation *wait,
               const llvm::SmallPtrSetImpl<Operation *> &heavyOps) {
    Operation *reader = nullptr;
    for (Value output : getOutputs(wait))
      for (Operation *user : output.getUsers())
        if (Operation *op = block.findAncestorOpInBlock(*user);
            op && (!reader || op->isBeforeInBlock(reader)))
          reader = op;
    for (Operation *op = wait; reader && op != reader; op = op->getNextNode())
      if (heavyOps.contains(op))
        return true;
    return false;
  }

  Block &block;
  int64_t budget;
  HeavyOps &heavy;
  ProvenanceAnalysis &provenances;
  SmallVectorImpl<ScheduleEvent> &events;
  llvm::DenseMap<Operation *, Begun> begun;
  /// The starts since the last heavy op.
  SmallVector<size_t> unsettled;
  int64_t numHeavy = 0;
  /// The bytes of gradients and of weights.
  int64_t inFlight[2] = {0, 0};
};
} // namespace

SmallVector<ScheduleEvent> zpp::getSchedule(ModuleOp module) {
  SmallVector<ScheduleEvent> events;
  auto budget = module->getAttrOfType<IntegerAttr>(kPrefetchAttr);
  int64_t nextTransfer = 0;
  HeavyOps heavy(module);
  ProvenanceAnalysis provenances;
  BlockSchedule(*module.getBody(), budget ? budget.getInt() : -1, heavy,
                provenances, events)
      .run(nextTransfer);
  return events;
}
