//===- Rotation.cpp - Collectives under another iteration (4.1.1) ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A loop that is ahead gathers weights for its next iteration (`getGathers`)
// and scatters gradients of the previous one (`getScatters`, `Deferral`). The
// loop carries the gathered weights and the gradients that are still to be
// scattered (`Carried`).
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
#include "LocalValues.h"
#include "Loops/Deferral.h"
#include "Loops/LoopPlan.h"
#include "Loops/WriteLoops.h"
#include "Schedule/Overlap/Plan.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Support/Limits.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
/// Starts the function of `start` on other `inputs` and waits for it at once.
WaitOp createTransfer(OpBuilder &builder, StartOp start, ValueRange inputs) {
  auto copy = StartOp::create(
      builder, start.getLoc(), start.getOutputs().getTypes(), TypeRange(),
      start.getCallee(), inputs, ValueRange(), start.getOriginsAttr());
  return WaitOp::create(builder, start.getLoc(), copy.getOutputs().getTypes(),
                        TypeRange(), copy.getOutputs(), inputs, ValueRange());
}

/// Rotates one loop.
class LoopRotator {
public:
  LoopRotator(HeavyOps &compute, int64_t prefetchBytes, StringRef pass)
      : compute(compute), prefetchBytes(prefetchBytes), pass(pass) {}

  void rotate(Operation *loop);

private:
  static constexpr const char *kScatteredHere =
      "scattered in the iteration that computes it: ";

  void remarkLeft(StartOp start, const Twine &text) {
    remarkMissed(start, pass, "not-rotated") << text.str();
  }

  void remarkRotated(StartOp start, const char *text) {
    remarkPassed(start, pass, "rotated") << text;
  }

  /// Whether `size` more bytes fit beside `bytes`.
  Decision<> canFit(int64_t bytes, int64_t size) const {
    int64_t total = addSaturating(bytes, size);
    if (total <= budget)
      return Yes();
    return LeftAlone(std::to_string(total) +
                     " bytes would be in flight, more than prefetch-bytes = " +
                     std::to_string(budget));
  }

  /// Returns the gathers that are needed before the first heavy op of the body,
  /// as far as they fit into memory, of which `bytes` are taken.
  SmallVector<StartOp> getGathers(Operation *loop, ShiftedValues &inputs,
                                  int64_t &bytes) {
    Block &body = WhileView(loop).getBody();
    SmallVector<Operation *> heavy = compute.getIn(body);
    SmallVector<StartOp> result;
    for (auto start : body.getOps<StartOp>()) {
      // A gather for the next iteration is not needed in this one.
      if (!hasRole(start, Role::Weight) || heavy.empty() ||
          !isNeededAtOnce(start, heavy.front()))
        continue;
      if (Decision<> decision = canGatherAhead(start, inputs, bytes);
          !decision) {
        remarkLeft(start, "gathered in the iteration that needs it: " +
                              decision.getReason());
        continue;
      }
      bytes += getBytes(start.getOutputs().getTypes());
      result.push_back(start);
    }
    return result;
  }

  /// Whether `start` can gather for the next iteration, beside `bytes`.
  Decision<> canGatherAhead(StartOp start, ShiftedValues &inputs,
                            int64_t bytes) const {
    if (!llvm::all_of(start.getInputs(), [&](Value input) {
          return inputs.isPossible(input) &&
                 llvm::all_of(inputs.getWrites(input), [&](Operation *write) {
                   return followsFrom(write, start.getWait());
                 });
        }))
      return LeftAlone(
          "its operand in the next iteration is not known in this one");
    return canFit(bytes, getBytes(start.getOutputs().getTypes()));
  }

  /// True if `write` writes what `wait` returns to a stack, possibly in another
  /// shape.
  static bool followsFrom(Operation *write, WaitOp wait) {
    Operation *source = write->getOperand(1).getDefiningOp();
    while (source && source != wait && movesData(source) && !isJoin(source))
      source = source->getOperand(0).getDefiningOp();
    return source == wait;
  }

  /// Moves `ops` of `body`, and those that they follow from, to its begin. They
  /// must not depend on others.
  static void moveToBegin(ArrayRef<Operation *> ops, Block &body) {
    llvm::SetVector<Operation *> moved;
    for (Operation *op : ops) {
      // Operands come before their readers.
      BackwardSliceOptions options;
      options.filter = [&](Operation *other) {
        return other->getBlock() == &body;
      };
      options.inclusive = true;
      (void)getBackwardSlice(op, &moved, options);
    }
    Operation *first = &body.front();
    for (Operation *op : moved)
      op->moveBefore(first);
  }

  /// A scatter, and when its gradient is there.
  struct Candidate {
    Deferral deferral;
    /// Whether it can be deferred.
    Decision<> isPossible;
    /// The bytes of its gradients, and the part of the iteration's compute that
    /// comes before they are complete.
    double bytes, ready;
    /// Whether nothing heavy is computed in the iteration at all, and whether
    /// what is computed after it there is too short.
    bool isWithoutCompute, isLate = false;
  };

  /// Returns the scatters that the compute after them in their iteration does
  /// not hide, as far as the loop only stores their results and they fit into
  /// memory, of which `bytes` are taken.
  std::vector<Deferral> getScatters(Operation *loop, ShiftedValues &inputs,
                                    int64_t &bytes) {
    Block &body = WhileView(loop).getBody();
    std::vector<Candidate> candidates = getCandidates(loop, inputs);
    std::vector<Candidate *> late;
    llvm::DenseSet<Operation *> deferred;
    for (Candidate &candidate : candidates) {
      StartOp start = candidate.deferral.getStart();
      // One that follows from another one is deferred with it.
      if (deferred.contains(start))
        continue;
      if (Decision<> decision = mayDefer(candidate, body); !decision) {
        remarkLeft(start, kScatteredHere + decision.getReason());
        continue;
      }
      deferred.insert_range(candidate.deferral.getOps());
      late.push_back(&candidate);
    }
    // The last ones have the least compute after them, so they come first
    // where not all fit.
    llvm::SmallPtrSet<Candidate *, 8> fitting;
    deferred.clear();
    for (Candidate *candidate : llvm::reverse(late)) {
      const Deferral &deferral = candidate->deferral;
      auto isDeferred = [&](Operation *op) { return deferred.contains(op); };
      Decision<> decision = canFit(bytes, deferral.getCarriedBytes());
      if (llvm::any_of(deferral.getOps(), isDeferred))
        decision = LeftAlone("its result is stored with that of a later one, "
                             "which is deferred");
      if (!decision) {
        for (StartOp start : deferral.getStarts())
          remarkLeft(start, kScatteredHere + decision.getReason());
        continue;
      }
      bytes += deferral.getCarriedBytes();
      deferred.insert_range(deferral.getOps());
      fitting.insert(candidate);
    }
    std::vector<Deferral> result;
    for (Candidate *candidate : late)
      if (fitting.contains(candidate))
        result.push_back(std::move(candidate->deferral));
    return result;
  }

  /// All scatters of the loop that have not been placed yet.
  std::vector<Candidate> getCandidates(Operation *loop, ShiftedValues &inputs) {
    Block &body = WhileView(loop).getBody();
    SmallVector<Operation *> heavy = compute.getIn(body);
    std::vector<Candidate> candidates;
    for (auto start : body.getOps<StartOp>()) {
      // A start with ties has been placed already.
      if (!hasRole(start, Role::Gradient) || !start.getTies().empty())
        continue;
      Deferral deferral(loop, start);
      Decision<> isPossible = deferral.analyze(inputs);
      SmallVector<Value> data(deferral.getData());
      if (!isPossible)
        llvm::append_range(data, start.getInputs());
      Operation *last = getLastSource(std::move(data), body);
      double all = 0, after = 0;
      for (Operation *op : heavy) {
        if (deferral.contains(op))
          continue;
        double work = compute.getWork(op);
        all += work;
        if (!last || last->isBeforeInBlock(op))
          after += work;
      }
      candidates.push_back(
          {std::move(deferral), std::move(isPossible),
           static_cast<double>(getBytes(start.getInputs().getTypes())),
           all > 0 ? 1 - after / all : 1, /*isWithoutCompute=*/all == 0});
    }
    findLate(candidates);
    return candidates;
  }

  /// Finds the scatters that would not end with the iteration if they took the
  /// links as long as it computes, one after the other. On slower links the
  /// others wait anyway, and what is deferred fills the time until the first
  /// gradient is there; on faster ones nothing is left to wait for.
  static void findLate(std::vector<Candidate> &candidates) {
    double total = 0;
    std::vector<Candidate *> ordered;
    for (Candidate &candidate : candidates) {
      total += candidate.bytes;
      ordered.push_back(&candidate);
    }
    llvm::sort(ordered, [](const Candidate *a, const Candidate *b) {
      return std::make_pair(a->ready, a) < std::make_pair(b->ready, b);
    });
    constexpr double kRounding = 1e-9;
    double end = 0;
    for (Candidate *candidate : ordered) {
      end = std::max(end, candidate->ready) + candidate->bytes / total;
      candidate->isLate = end > 1 + kRounding;
    }
  }

  /// Whether the scatter is left to the next iteration, or why it stays in its
  /// own.
  Decision<> mayDefer(const Candidate &candidate, Block &body) const {
    if (!candidate.isLate)
      return LeftAlone("what is computed after it there hides it");
    if (!candidate.isPossible)
      return candidate.isPossible;
    if (candidate.isWithoutCompute)
      return LeftAlone("the loop computes nothing heavy");
    // Without a first iteration nothing would overwrite the zeros. Without a
    // second one there is nothing to hide under.
    ProvenanceAnalysis provenances;
    std::optional<int64_t> iterations =
        getIterations(WhileView(body.getParentOp()), provenances);
    if (!iterations)
      return LeftAlone("it is not known whether the loop has a next iteration");
    if (*iterations < 2)
      return LeftAlone("the loop has no next iteration");
    return Yes();
  }

  /// Returns the last op of `body` that computes one of `values`, apart from
  /// casts, shape changes and transfers; null if none does.
  static Operation *getLastSource(SmallVector<Value> values, Block &body) {
    Operation *last = nullptr;
    while (!values.empty()) {
      Operation *op = values.pop_back_val().getDefiningOp();
      if (!op || op->getBlock() != &body)
        continue;
      if (auto wait = dyn_cast<WaitOp>(op))
        llvm::append_range(values, wait.getInputs());
      else if (movesData(op) && op->getNumOperands() > 0)
        values.push_back(op->getOperand(0));
      else if (!last || last->isBeforeInBlock(op))
        last = op;
    }
    return last;
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

  /// Returns the bytes that the loop of `body` may carry: one layer's weights,
  /// and its gradients. With them go counters, a few bytes each, for which a
  /// MiB more is enough.
  int64_t getBudget(Block &body) const {
    if (prefetchBytes != kChooseBudget)
      return prefetchBytes;
    std::vector<int64_t> gathers, scatters;
    for (auto start : body.getOps<StartOp>()) {
      int64_t size = getBytes(start.getOutputs().getTypes());
      if (hasRole(start, Role::Weight))
        gathers.push_back(size);
      else if (hasRole(start, Role::Gradient))
        scatters.push_back(
            addSaturating(size, getBytes(start.getInputs().getTypes())));
    }
    int64_t layer = addSaturating(getLayerBytes(gathers, /*isLoop=*/true),
                                  getLayerBytes(scatters, /*isLoop=*/true));
    return std::max(kLeastBudget, addSaturating(layer, 1 << 20));
  }

  /// Gathers for the first iteration before `loop`, and in each iteration for
  /// the next one. Returns the writes to stacks that this reads.
  SmallVector<Operation *> gatherAhead(Operation *loop,
                                       ArrayRef<StartOp> gathers,
                                       ShiftedValues &inputs,
                                       Carried &carried) {
    OpBuilder outside(loop);
    OpBuilder builder = OpBuilder::atBlockBegin(&WhileView(loop).getBody());
    SmallVector<Operation *> writes;
    for (StartOp start : gathers) {
      SmallVector<Value> first =
          llvm::map_to_vector(start.getInputs(), [&](Value input) {
            return inputs.getFirst(outside, input);
          });
      WaitOp ahead = createTransfer(outside, start, first);
      SmallVector<Value> next =
          llvm::map_to_vector(start.getInputs(), [&](Value input) {
            llvm::append_range(writes, inputs.getWrites(input));
            return inputs.getNext(builder, input);
          });
      WaitOp wait = createTransfer(builder, start, next);
      for (auto [initial, value] :
           llvm::zip_equal(ahead.getOutputs(), wait.getOutputs()))
        carried.add(initial, value);
      remarkRotated(start,
                    "gathered in the iteration before the one that needs it");
    }
    return writes;
  }

  /// Replaces what `gathers` return by what the loop carries from its operand
  /// `first` on. `writes` come first, so that what this iteration has gathered
  /// is in the stacks before the next one reads them.
  static void replaceGathers(ArrayRef<StartOp> gathers, size_t first,
                             ArrayRef<Operation *> writes, Block &body) {
    for (StartOp start : gathers)
      for (Value value : start.getWait().getOutputs())
        value.replaceAllUsesWith(body.getArgument(first++));
    moveToBegin(writes, body);
    for (StartOp start : gathers) {
      SmallVector<Value> values(start.getInputs());
      start.getWait().erase();
      start.erase();
      eraseIfDead(values);
    }
  }

  /// Lets each iteration of `loop`, which carries the values of `scatters` from
  /// its operand `first` on, scatter for the one before.
  void deferScatters(WhileView loop, size_t first,
                     MutableArrayRef<Deferral> scatters,
                     ShiftedValues &inputs) {
    Block &body = loop.getBody();
    llvm::DenseSet<Operation *> deferred;
    for (const Deferral &scatter : scatters)
      deferred.insert_range(scatter.getOps());
    Operation *front = &*llvm::find_if_not(
        body, [&](Operation &op) { return deferred.contains(&op); });
    SmallVector<Operation *> heavy = compute.getIn(body);
    llvm::erase_if(heavy, [&](Operation *op) { return deferred.contains(op); });
    for (Deferral &scatter : scatters)
      scatter.rewrite(loop.getOperation(), first, front, heavy, inputs);
    // Each one is inserted directly after the loop, before those inserted
    // earlier.
    for (Deferral &scatter : llvm::reverse(scatters))
      scatter.finish(loop.getOperation());
  }

  HeavyOps &compute;
  int64_t prefetchBytes;
  StringRef pass;
  /// The bytes that the loop that is rotated may have in flight.
  int64_t budget = 0;
};
} // namespace

void LoopRotator::rotate(Operation *loop) {
  ShiftedValues inputs(loop);
  ShiftedValues weights(loop, /*readsStacks=*/true);
  Block &body = WhileView(loop).getBody();
  budget = getBudget(body);
  int64_t bytes = 0;
  SmallVector<StartOp> gathers = getGathers(loop, weights, bytes);
  std::vector<Deferral> scatters = getScatters(loop, inputs, bytes);
  if (gathers.empty() && scatters.empty())
    return;
  Carried carried;
  SmallVector<Operation *> writes =
      gatherAhead(loop, gathers, weights, carried);
  OpBuilder outside(loop);
  llvm::MapVector<Value, size_t> shared;
  for (Deferral &scatter : scatters) {
    scatter.carry(outside, inputs, carried, shared);
    for (StartOp start : scatter.getStarts())
      remarkRotated(start, "scattered in the iteration after the one that "
                           "computes it; the first one scatters zeros");
  }
  size_t first = loop->getNumOperands();
  WhileView extended = extendLoop(loop, carried.init);
  extended.addNext(carried.next);
  deferScatters(extended, first, scatters, inputs);
  replaceGathers(gathers, first, writes, body);
}

void zpp::rotateLoop(WhileView loop, HeavyOps &compute, int64_t prefetchBytes,
                     StringRef pass) {
  LoopRotator(compute, prefetchBytes, pass).rotate(loop.getOperation());
}
