//===- Sums.cpp - Which sums are of gradients -----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RoleFinder.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/ElementFlow.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

static bool isSumKind(const StepCollective &collective) {
  return collective.kind == CollectiveKind::ReduceScatter ||
         collective.kind == CollectiveKind::AllReduce;
}

/// True if `collective` adds up one tensor of more than one number.
static bool sumsTensor(const StepCollective &collective) {
  Operation *op = collective.op;
  return isSumKind(collective) && op->getNumOperands() == 1 &&
         op->getNumResults() == 1 &&
         isFloatTensor(op->getOperand(0).getType()) &&
         isFloatTensor(op->getResult(0).getType()) && isSum(op) &&
         (collective.kind == CollectiveKind::ReduceScatter ||
          cast<ShapedType>(op->getOperand(0).getType()).getNumElements() != 1);
}

/// True if elements of what `sum` adds up have been divided by a root, as by
/// the norm of a weight.
bool RoleFinder::isOfNorm(const StepCollective &sum) {
  using Node = ValueGraph::Node;
  using Edge = ValueGraph::Edge;
  // Around a norm is a number that keeps it from zero, or a bound of it.
  constexpr unsigned kMostOps = 32;
  auto isOfRoot = [&](Node factor) {
    unsigned numOps = 0;
    return factor >= 0 &&
           graph.walk(
               factor, ValueGraph::Direction::ToSources,
               [&](const Edge &) { return ++numOps < kMostOps; },
               [&](Node node) {
                 Operation *op = graph.getOp(node);
                 return op && llvm::is_contained({"rsqrt", "sqrt", "power"},
                                                 op->getName().stripDialect());
               });
  };
  std::optional<Node> operand = graph.find(sum.op->getOperand(0));
  return operand &&
         graph.walk(
             *operand, ValueGraph::Direction::ToSources,
             [](const Edge &edge) { return edge.isMoved; },
             [&](Node node) {
               return (graph.is(node, guest::kMultiply) ||
                       graph.is(node, guest::kDivide)) &&
                      llvm::any_of(graph.getOperands(node), isOfRoot);
             });
}

/// The objection of `sum` alone to summing a gradient.
std::optional<Objection> RoleFinder::checkSum(const StepCollective &sum) {
  Operation *op = sum.op;
  bool isScatter = sum.kind == CollectiveKind::ReduceScatter;
  if (op->getNumOperands() != 1 || op->getNumResults() != 1 ||
      !isFloatTensor(op->getOperand(0).getType()) ||
      !isFloatTensor(op->getResult(0).getType()))
    return Objection{
        Rule::Form,
        isScatter ? "it does not scatter one f32, bf16 or f16 tensor of "
                    "static shape"
                  : "it is neither a gather of a weight nor a scatter of a "
                    "gradient"};
  if (!isSum(op))
    return Objection{Rule::Form, "its reduction is not a sum"};
  if (!sumsTensor(sum))
    return Objection{Rule::Form, "it sums a scalar"};
  if (isBroadcast(sum))
    return Objection{Rule::Form,
                     "it broadcasts what one device has, to which the others "
                     "add zeros: it sums nothing"};
  if (std::optional<std::string> why =
          getBits().explain(op->getOperand(0), op->getResult(0)))
    return Objection{Rule::Bits, "it sums bits, not numbers: " + *why};
  if (getProver().isNeverNegative(op->getOperand(0)))
    return Objection{Rule::Sign,
                     "it sums a statistic, not a gradient: no element of "
                     "its operand can be negative"};
  if (flow.holdsStepInput(op->getOperand(0)))
    return Objection{
        Rule::State,
        "it sums state, not a gradient: its operand is made of an input of "
        "the step element by element" +
            std::string(isOfNorm(sum)
                            ? "; a norm that a weight is divided by is "
                              "better computed before the gather"
                            : "")};
  return checkAxes(sum, "it sums");
}

/// The proof that `sum` is a gradient, or what it lacks.
std::optional<Objection> RoleFinder::checkProof(StepCollective &sum) {
  constexpr StringLiteral remedy =
      "; if it is a gradient, name its weight in gradients-of";
  if (declared.gradients.containsAll() ||
      declaredUpdates.contains(sum.op->getResult(0))) {
    sum.rule = Rule::Declared;
    return {};
  }
  GradientProof proof = getProver().prove(sum.op);
  using Kind = GradientProof::Kind;
  std::optional<Objection> objection;
  sum.rule = proof.kind == Kind::Name ? Rule::Name : Rule::Partner;
  if (proof.kind == Kind::Statistic)
    objection = Objection{Rule::Partner,
                          "it sums a statistic, not a gradient: " + proof.why +
                              remedy.str()};
  else if (proof.kind == Kind::None)
    objection = Objection{
        Rule::Partner,
        "nothing proves that it sums a gradient: " + proof.why + remedy.str()};
  else if (proof.kind != Kind::Name && getProver().hasNames() &&
           !proof.followsAutodiff)
    objection =
        Objection{Rule::Name,
                  "nothing proves that it sums a gradient: autodiff, which has "
                  "made others here, has made neither it nor what it follows "
                  "from" +
                      remedy.str()};
  proofs[&sum] = std::move(proof);
  return objection;
}

/// True if `sum` is that of a gradient, whatever it is made of besides.
bool RoleFinder::isProven(const StepCollective &sum) {
  using Kind = GradientProof::Kind;
  Kind kind = getProver().prove(sum.op).kind;
  return kind == Kind::Name ||
         (kind == Kind::Partner && !getProver().hasNames());
}

/// Returns the sums that may sum gradients. The others get their reasons.
SmallVector<StepCollective *> RoleFinder::getSums() {
  SmallVector<StepCollective *> sums;
  declaredUpdates = flow.getUpdatesOf(
      [&](BlockArgument input) { return declared.gradients.contains(input); });
  for (StepCollective &collective : collectives) {
    if (!isSumKind(collective) || isRewritten(collective))
      continue;
    object(collective, checkSum(collective));
    if (isGradient(collective))
      sums.push_back(&collective);
    else if (collective.rule == Rule::State && isProven(collective))
      operandsWithState.push_back(collective.op->getOperand(0));
  }
  // Those without a proof get their reasons last: where a sum goes may say
  // more.
  llvm::erase_if(sums, [&](StepCollective *sum) {
    std::optional<Objection> objection = checkProof(*sum);
    if (objection)
      unproven.push_back({sum, std::move(*objection)});
    return objection.has_value();
  });
  return sums;
}

/// R14: what two sums differ by, or a sum and an earlier one, has the errors of
/// both, however little is left of them. Both stay exact.
void RoleFinder::keepDifferences(ArrayRef<StepCollective *> chosen) {
  SmallVector<StepCollective *> all;
  for (StepCollective &collective : collectives)
    if (sumsTensor(collective) && !isRewritten(collective))
      all.push_back(&collective);
  SmallVector<Operation *> ops =
      llvm::map_to_vector(all, [](StepCollective *sum) { return sum->op; });
  llvm::SmallDenseSet<Operation *> asked;
  for (StepCollective *sum : chosen)
    asked.insert(sum->op);
  for (const GradientDifference &difference : getProver().getDifferences(
           ops, [&](Operation *op) { return asked.contains(op); })) {
    SmallVector<Operation *> points = getPoints(difference);
    // Numbers that are taken at one point may be of several batches.
    if (difference.isOfNumbers && points.empty())
      continue;
    bool isKept = difference.sums.empty();
    for (size_t index : difference.sums) {
      StepCollective *sum = all[index];
      if (!asked.contains(sum->op) || sum->rule == Rule::Declared)
        continue;
      isKept = true;
      std::string what =
          difference.isToState
              ? "it is subtracted from an earlier gradient or an "
                "average of such, which the step holds, or that "
                "from it"
              : "it is subtracted from another sum, or that from "
                "it";
      if (difference.isOfNumbers)
        what = "it is subtracted from another sum in numbers that are made of "
               "both";
      if (sum->reason.empty())
        object(*sum, Objection{Rule::Difference,
                               what + ": what is left has the errors of both; "
                                      "gradients-of names gradients"});
    }
    if (isKept)
      atPoints.insert_range(points);
  }
}

/// R14, too: gradients at two points that are close to each other differ by
/// less than what rounding makes of either point. So what is gathered for one
/// of the two alone stays exact, and its counterpart.
SmallVector<Operation *>
RoleFinder::getPoints(const GradientDifference &difference) {
  using Point = llvm::DenseMap<int64_t, SmallVector<Operation *>>;
  SmallVector<Operation *> found;
  std::array<Point, 2> points;
  for (auto [point, gathers] : llvm::zip_equal(points, difference.points))
    for (Value gather : gathers) {
      Operation *op = gather.getDefiningOp();
      point[provenances.getSliceId(op->getOperand(0), /*inAnyIteration=*/true)]
          .push_back(op);
    }
  if (difference.rows > 1)
    for (Value gather : difference.points[0])
      if (cast<ShapedType>(gather.getType()).getDimSize(0) == difference.rows)
        found.push_back(gather.getDefiningOp());
  for (int side : {0, 1}) {
    llvm::DenseSet<Type> counterparts;
    for (const auto &[slice, gathers] : points[1 - side])
      if (!points[side].contains(slice))
        counterparts.insert(gathers.front()->getResult(0).getType());
    for (const auto &[slice, gathers] : points[side])
      if (!points[1 - side].contains(slice) &&
          counterparts.contains(gathers.front()->getResult(0).getType()))
        llvm::append_range(found, gathers);
  }
  return found;
}

//===----------------------------------------------------------------------===//
// The choice
//===----------------------------------------------------------------------===//

/// Decides which of the sums that may be of gradients are, by one function per
/// rule.
class RoleFinder::GradientChoice {
public:
  GradientChoice(RoleFinder &finder, ArrayRef<Candidate> gathers, Sums sums)
      : finder(finder), flow(finder.flow), sums(sums) {
    llvm::DenseSet<int64_t> keys;
    for (const Candidate &candidate : gathers)
      keys.insert_range(finder.getKeys(*candidate.gather));
    for (StepCollective *sum : sums)
      if (mirrorsWeight(*sum, keys))
        mirrors.insert(sum);
    findUpdates();
    for (StepCollective *sum : sums)
      if (isBeside(*sum))
        finder.besideGradients.insert(sum);
  }

  /// Returns what the gradients are computed from.
  NodeSet run() {
    SmallVector<StepCollective *> chosen, rest;
    for (StepCollective *sum : sums)
      (updatesWeight(sum) ? chosen : rest).push_back(sum);
    // Or the step keeps it for another time: but not what is computed from
    // gradients.
    statistics = flow.getDescendants(llvm::map_to_vector(chosen, getResult));
    for (StepCollective *sum : rest)
      if (std::optional<Objection> objection = checkGoal(sum))
        object(*sum, std::move(objection));
      else
        chosen.push_back(sum);
    finder.keepDifferences(chosen);
    choose(chosen);
    NodeSet ancestors =
        flow.getAncestors(llvm::map_to_vector(chosen, getOperand));
    if (finder.unproven.empty())
      return ancestors;
    NodeSet moves = getMovesOfUnproven();
    for (auto &[sum, lacking] : finder.unproven) {
      std::optional<Objection> objection;
      if (ancestors.contains(getResult(sum)))
        objection = sumsActivations();
      else if (!updatesWeight(sum))
        objection = checkGoal(sum);
      if (objection && objection->rule == Rule::Goal &&
          moves.contains(getResult(sum)))
        objection.reset();
      object(*sum, objection ? *objection : lacking);
    }
    return ancestors;
  }

private:
  using Kind = GradientProof::Kind;

  /// Returns by what the inputs are updated that sums without a proof are
  /// computed from: it may be gradients, and lacks nothing but the proof.
  NodeSet getMovesOfUnproven() const {
    SmallVector<Value> operands;
    for (auto &[sum, lacking] : finder.unproven)
      operands.push_back(getOperand(sum));
    return flow.getUpdates(flow.getAncestors(operands), {}).moved;
  }

  static Value getOperand(StepCollective *sum) {
    return sum->op->getOperand(0);
  }
  static Value getResult(StepCollective *sum) { return sum->op->getResult(0); }

  /// Returns what is proven of `sum`, of which the user declares nothing; or
  /// null.
  const GradientProof *getProof(const StepCollective &sum) const {
    auto proof = finder.proofs.find(&sum);
    return proof == finder.proofs.end() ? nullptr : &proof->second;
  }

  /// True if the weight whose gradient `sum` may be is gathered, or if it is
  /// one that all devices have, by the names of autodiff. Where the partner of
  /// the sum is not known, any gather of its shape counts.
  bool mirrorsWeight(const StepCollective &sum,
                     const llvm::DenseSet<int64_t> &keys) {
    const GradientProof *proof = getProof(sum);
    if (proof && !proof->weights.empty()) {
      if (llvm::any_of(proof->weights, [&](Value weight) {
            Operation *op = weight.getDefiningOp();
            return op ? getGuestCollective(op) == CollectiveKind::AllGather
                      : proof->kind == Kind::Name;
          }))
        return true;
      if (proof->kind == Kind::Partner)
        return false;
    }
    return llvm::any_of(finder.getKeys(sum),
                        [&](int64_t key) { return keys.contains(key); });
  }

  void findUpdates() {
    NodeSet ofAll = flow.getAncestors(llvm::map_to_vector(sums, getOperand));
    SmallVector<Value> inFlight;
    for (auto [gather, held] : llvm::zip_equal(
             finder.computed,
             flow.getHeldInputs(
                 llvm::map_to_vector(finder.computed, getOperand), ofAll)))
      if (held && ofAll.contains(getResult(gather)))
        inFlight.push_back(getOperand(gather));
    updates = flow.getUpdates(ofAll, inFlight);
  }

  /// True if weights are updated with others of `sums`, and none is with `sum`.
  /// Without names, a product of what a layer reads and what later ones make of
  /// it has a partner as well.
  bool isBeside(const StepCollective &sum) {
    auto isPartOfUpdate = [&](const StepCollective &of) {
      return updates.contributing.contains(of.op->getResult(0));
    };
    const GradientProof *proof = getProof(sum);
    return !finder.getProver().hasNames() && updates.hasUpdates && proof &&
           proof->kind == Kind::Partner && !isPartOfUpdate(sum) &&
           llvm::any_of(sums, [&](StepCollective *other) {
             return isPartOfUpdate(*other);
           });
  }

  /// True if a weight must be updated with `sum`: what is known of it holds for
  /// some statistics too.
  bool needsUpdate(const StepCollective &sum) const {
    const GradientProof *proof = getProof(sum);
    return updates.hasUpdates && proof &&
           (proof->kind == Kind::Reduced ||
            (proof->kind == Kind::Partner && finder.getProver().hasNames()));
  }

  /// R11: true if a weight is updated with `sum`, or if it mirrors a gather and
  /// weights depend on it.
  bool updatesWeight(StepCollective *sum) {
    Value result = getResult(sum);
    if (divides(sum) || finder.besideGradients.contains(sum))
      return false;
    if (needsUpdate(*sum) || updates.moved.contains(result))
      return updates.moved.contains(result);
    return mirrors.contains(sum) &&
           (!updates.hasUpdates || updates.contributing.contains(result) ||
            updates.accumulated.contains(result));
  }

  /// R12: what only divides is no gradient: rounded to zero, it would make the
  /// update infinite.
  bool divides(StepCollective *sum) {
    return updates.movedOrDivided.contains(getResult(sum)) &&
           !updates.moved.contains(getResult(sum));
  }

  /// R11 and R12, of a sum with which no weight is updated.
  std::optional<Objection> checkGoal(StepCollective *sum) {
    Value result = getResult(sum);
    if (divides(sum))
      return Objection{
          Rule::Divisor,
          "it sums a statistic, not a gradient: weights are updated only "
          "with what is divided by it"};
    const ValueGraph::Result *reached = flow.getReachedResult(result);
    if (!reached)
      return Objection{Rule::Goal,
                       "it mirrors no weight gather, and no result of the "
                       "step is made of it element by element"};
    if (finder.besideGradients.contains(sum))
      return Objection{
          Rule::Goal,
          "it sums no gradient: weights are updated with other sums, and "
          "none is with it; gradients-of names gradients"};
    bool isKept = updates.hasUpdates ? updates.accumulated.contains(result) &&
                                           updates.contributing.contains(result)
                                     : updates.accumulated.contains(result) ||
                                           updates.returned.contains(result);
    if (isKept && !statistics.contains(result) && !needsUpdate(*sum))
      return {};
    return Objection{Rule::Goal,
                     "it sums no gradient: result " + reached->describe() +
                         " of the step, which is made of it, is no weight "
                         "that a gradient is computed from"};
  }

  /// R13.
  static Objection sumsActivations() {
    return Objection{
        Rule::Activations,
        "a gradient is computed from its result: it sums activations"};
  }

  /// Gives those of `chosen` their role that R14 and R13 leave it.
  void choose(ArrayRef<StepCollective *> chosen) {
    // Also where the gradient itself stays as it is.
    SmallVector<Value> operands = llvm::map_to_vector(chosen, getOperand);
    llvm::append_range(operands, finder.operandsWithState);
    for (StepCollective *sum : sums)
      if (const GradientProof *proof = getProof(*sum);
          proof && proof->kind == Kind::Name)
        operands.push_back(getOperand(sum));
    NodeSet used = flow.getAncestors(operands);
    NodeSet beside = flow.getAncestorsBeside(operands, used);
    for (StepCollective *sum : chosen) {
      // Where a gradient is computed from an updated weight, it is computed
      // from the gradient of that.
      Value result = getResult(sum);
      if (!sum->reason.empty())
        continue;
      if (used.contains(result) &&
          !(mirrors.contains(sum) && updates.moved.contains(result) &&
            !beside.contains(result))) {
        object(*sum, sumsActivations());
        continue;
      }
      sum->role = Role::Gradient;
      if (const GradientProof *proof = getProof(*sum))
        sum->argument = finder.getArgument(*sum, *proof);
    }
    finder.areAllUpdates =
        updates.hasUpdates && llvm::all_of(chosen, [&](StepCollective *sum) {
          return !finder.isGradient(*sum) ||
                 updates.moved.contains(getResult(sum));
        });
  }

  RoleFinder &finder;
  const StepFlow &flow;
  Sums sums;
  /// Those that mirror the gather of a weight.
  llvm::SmallDenseSet<StepCollective *> mirrors;
  StepFlow::Updates updates;
  /// Values computed from sums with which weights are updated.
  NodeSet statistics;
};

NodeSet RoleFinder::chooseGradients(ArrayRef<Candidate> gathers, Sums sums) {
  return GradientChoice(*this, gathers, sums).run();
}
