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

static SmallVector<Value> getOperands(ArrayRef<StepCollective *> sums) {
  return llvm::map_to_vector(
      sums, [](StepCollective *sum) { return sum->op->getOperand(0); });
}

static SmallVector<Value> getResults(ArrayRef<StepCollective *> sums) {
  return llvm::map_to_vector(
      sums, [](StepCollective *sum) -> Value { return sum->op->getResult(0); });
}

static constexpr StringLiteral kSumsActivations =
    "a gradient is computed from its result: it sums activations";

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
               Operation *op = graph.getOp(node);
               return op &&
                      (isNamed(op, guest::kMultiply) ||
                       isNamed(op, guest::kDivide)) &&
                      llvm::any_of(graph.getOperands(node), isOfRoot);
             });
}

/// The objection of `sum` alone to summing a gradient.
Objection RoleFinder::checkSum(const StepCollective &sum) {
  Operation *op = sum.op;
  bool isScatter = sum.kind == CollectiveKind::ReduceScatter;
  if (op->getNumOperands() != 1 || op->getNumResults() != 1 ||
      !isFloatTensor(op->getOperand(0).getType()) ||
      !isFloatTensor(op->getResult(0).getType()))
    return {Rule::Form,
            isScatter ? "it does not scatter one f32, bf16 or f16 tensor of "
                        "static shape"
                      : "it is neither a gather of a weight nor a scatter of a "
                        "gradient"};
  if (!isSum(op))
    return {Rule::Form, "its reduction is not a sum"};
  if (!sumsTensor(sum))
    return {Rule::Form, "it sums a scalar"};
  if (isBroadcast(sum))
    return {Rule::Form,
            "it broadcasts what one device has, to which the others "
            "add zeros: it sums nothing"};
  if (std::string why = getBits().explain(op->getOperand(0), op->getResult(0));
      !why.empty())
    return {Rule::Bits, "it sums bits, not numbers: " + why};
  if (getProver().isNeverNegative(op->getOperand(0)))
    return {Rule::Sign, "it sums a statistic, not a gradient: no element of "
                        "its operand can be negative"};
  if (flow.holdsStepInput(op->getOperand(0)))
    return {Rule::State,
            "it sums state, not a gradient: its operand is made of an input of "
            "the step element by element" +
                std::string(isOfNorm(sum)
                                ? "; a norm that a weight is divided by is "
                                  "better computed before the gather"
                                : "")};
  return checkAxes(sum, "it sums");
}

/// The proof that `sum` is a gradient, or what it lacks.
Objection RoleFinder::checkProof(StepCollective &sum) {
  constexpr StringLiteral remedy =
      "; if it is a gradient, name its weight in gradients-of";
  if (declared.gradients.containsAll() ||
      declaredUpdates.contains(sum.op->getResult(0))) {
    sum.rule = Rule::Declared;
    return {};
  }
  GradientProof proof = getProver().prove(sum.op);
  using Kind = GradientProof::Kind;
  Objection objection;
  sum.rule = proof.kind == Kind::Name ? Rule::Name : Rule::Partner;
  if (proof.kind == Kind::Statistic)
    objection = {Rule::Partner, "it sums a statistic, not a gradient: " +
                                    proof.why + remedy.str()};
  else if (proof.kind == Kind::None)
    objection = {Rule::Partner, "nothing proves that it sums a gradient: " +
                                    proof.why + remedy.str()};
  else if (proof.kind != Kind::Name && getProver().hasNames() &&
           !proof.followsAutodiff)
    objection = {Rule::Name,
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
    Objection objection = checkProof(*sum);
    if (objection)
      unproven.push_back({sum, std::move(objection)});
    return !unproven.empty() && unproven.back().first == sum;
  });
  return sums;
}

bool RoleFinder::needsUpdate(const StepCollective &sum) const {
  using Kind = GradientProof::Kind;
  auto proof = proofs.find(&sum);
  return proof != proofs.end() &&
         (proof->second.kind == Kind::Reduced ||
          (proof->second.kind == Kind::Partner && prover->hasNames()));
}

/// True if the weight whose gradient `sum` may be is gathered, or if it is one
/// that all devices have, by the names of autodiff. Where the partner of the
/// sum is not known, any gather of its shape counts.
bool RoleFinder::mirrorsWeight(const StepCollective &sum,
                               const llvm::DenseSet<int64_t> &gatherKeys) {
  using Kind = GradientProof::Kind;
  auto proof = proofs.find(&sum);
  if (proof != proofs.end() && !proof->second.weights.empty()) {
    bool isNamed = proof->second.kind == Kind::Name;
    if (llvm::any_of(proof->second.weights, [&](Value weight) {
          Operation *op = weight.getDefiningOp();
          return op ? getGuestCollective(op) == CollectiveKind::AllGather
                    : isNamed;
        }))
      return true;
    if (proof->second.kind == Kind::Partner)
      return false;
  }
  return llvm::any_of(getKeys(sum),
                      [&](int64_t key) { return gatherKeys.contains(key); });
}

/// True if weights are updated with others of `sums`, and none is with `sum`.
/// Without names, a product of what a layer reads and what later ones make of
/// it has a partner as well.
bool RoleFinder::isBesideGradients(const StepCollective &sum, Sums sums,
                                   const StepFlow::Updates &updates) {
  auto isPartOfUpdate = [&](const StepCollective &of) {
    return updates.contributing.contains(of.op->getResult(0));
  };
  auto proof = proofs.find(&sum);
  return !getProver().hasNames() && updates.hasUpdates &&
         proof != proofs.end() &&
         proof->second.kind == GradientProof::Kind::Partner &&
         !isPartOfUpdate(sum) && llvm::any_of(sums, [&](StepCollective *other) {
           return isPartOfUpdate(*other);
         });
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
        object(*sum, {Rule::Difference,
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

/// Returns the argument of the step of which `sum` is proven to be a gradient;
/// null if that is none, or one of several, or if its weight is gathered in
/// another shape: the product with it is not the partner, then.
BlockArgument RoleFinder::getArgument(const StepCollective &sum,
                                      const GradientProof &proof) {
  llvm::SmallDenseSet<Value> inputs;
  for (Value weight : proof.direct) {
    Operation *op = weight.getDefiningOp();
    bool isGathered = op && getGuestCollective(op);
    if (isGathered && sum.kind == CollectiveKind::ReduceScatter) {
      auto keys = mirrorKeys.find(op);
      if (keys == mirrorKeys.end() ||
          llvm::none_of(getKeys(sum), [&](int64_t key) {
            return llvm::is_contained(keys->second, key);
          }))
        return {};
    }
    Provenance from = provenances.get(isGathered ? op->getOperand(0) : weight);
    if (!from.isStepInput)
      return {};
    inputs.insert(from.root);
  }
  return inputs.size() == 1 ? cast<BlockArgument>(*inputs.begin())
                            : BlockArgument();
}

/// Decides which of `sums` are ones of gradients; the others get their reasons.
/// Returns what the gradients are computed from.
NodeSet RoleFinder::chooseGradients(ArrayRef<Candidate> gathers, Sums sums) {
  llvm::DenseSet<int64_t> gatherKeys;
  for (const Candidate &candidate : gathers)
    gatherKeys.insert_range(getKeys(*candidate.gather));
  llvm::SmallDenseSet<StepCollective *> mirrors;
  for (StepCollective *sum : sums)
    if (mirrorsWeight(*sum, gatherKeys))
      mirrors.insert(sum);

  NodeSet ofAll = flow.getAncestors(getOperands(sums));
  SmallVector<Value> inFlight;
  for (StepCollective *gather : computed)
    if (ofAll.contains(gather->op->getResult(0)))
      inFlight.push_back(gather->op->getOperand(0));
  SmallVector<BlockArgument> held = flow.getHeldInputs(inFlight, ofAll);
  for (size_t index = inFlight.size(); index-- > 0;)
    if (!held[index])
      inFlight.erase(inFlight.begin() + index);
  StepFlow::Updates updates = flow.getUpdates(ofAll, inFlight);

  for (StepCollective *sum : sums)
    if (isBesideGradients(*sum, sums, updates))
      besideGradients.insert(sum);

  // A weight is updated with it, or it mirrors a gather and weights depend
  // on it. What only divides is no gradient: rounded to zero, it would make
  // the update infinite.
  auto divides = [&](StepCollective *sum) {
    Value result = sum->op->getResult(0);
    return updates.movedOrDivided.contains(result) &&
           !updates.moved.contains(result);
  };
  auto updatesWeight = [&](StepCollective *sum) {
    Value result = sum->op->getResult(0);
    if (divides(sum) || besideGradients.contains(sum))
      return false;
    if (needsUpdate(*sum) && updates.hasUpdates)
      return updates.moved.contains(result);
    return updates.moved.contains(result) ||
           (mirrors.contains(sum) &&
            (!updates.hasUpdates || updates.contributing.contains(result) ||
             updates.accumulated.contains(result)));
  };
  SmallVector<StepCollective *> chosen, rest;
  for (StepCollective *sum : sums)
    (updatesWeight(sum) ? chosen : rest).push_back(sum);
  // Or the step keeps it for another time: but not what is computed from
  // gradients.
  NodeSet statistics = flow.getDescendants(getResults(chosen));
  auto checkGoal = [&](StepCollective *sum) -> Objection {
    Value result = sum->op->getResult(0);
    if (divides(sum))
      return {Rule::Divisor,
              "it sums a statistic, not a gradient: weights are updated only "
              "with what is divided by it"};
    const ValueGraph::Result *reached = flow.getReachedResult(result);
    if (!reached)
      return {Rule::Goal, "it mirrors no weight gather, and no result of the "
                          "step is made of it element by element"};
    if (besideGradients.contains(sum))
      return {Rule::Goal,
              "it sums no gradient: weights are updated with other sums, and "
              "none is with it; gradients-of names gradients"};
    bool isKept = updates.hasUpdates ? updates.accumulated.contains(result) &&
                                           updates.contributing.contains(result)
                                     : updates.accumulated.contains(result) ||
                                           updates.returned.contains(result);
    if (isKept && !statistics.contains(result) &&
        !(needsUpdate(*sum) && updates.hasUpdates))
      return {};
    return {Rule::Goal, "it sums no gradient: result " + reached->describe() +
                            " of the step, which is made of it, is no weight "
                            "that a gradient is computed from"};
  };
  for (StepCollective *sum : rest) {
    Objection objection = checkGoal(sum);
    if (!objection)
      chosen.push_back(sum);
    else
      object(*sum, std::move(objection));
  }
  keepDifferences(chosen);

  NodeSet ancestors = flow.getAncestors(getOperands(chosen));
  // Also where the gradient itself stays as it is.
  SmallVector<Value> operands = getOperands(chosen);
  llvm::append_range(operands, operandsWithState);
  for (StepCollective *sum : sums)
    if (auto proof = proofs.find(sum);
        proof != proofs.end() &&
        proof->second.kind == GradientProof::Kind::Name)
      operands.push_back(sum->op->getOperand(0));
  NodeSet used = flow.getAncestors(operands);
  NodeSet beside = flow.getAncestorsBeside(operands, used);
  for (StepCollective *sum : chosen) {
    // Where a gradient is computed from an updated weight, it is computed
    // from the gradient of that.
    Value result = sum->op->getResult(0);
    if (!sum->reason.empty())
      continue;
    if (used.contains(result) &&
        !(mirrors.contains(sum) && updates.moved.contains(result) &&
          !beside.contains(result))) {
      object(*sum, {Rule::Activations, kSumsActivations.str()});
      continue;
    }
    sum->role = Role::Gradient;
    if (auto proof = proofs.find(sum); proof != proofs.end())
      sum->argument = getArgument(*sum, proof->second);
  }
  areAllUpdates =
      updates.hasUpdates && llvm::all_of(chosen, [&](StepCollective *sum) {
        return !isGradient(*sum) ||
               updates.moved.contains(sum->op->getResult(0));
      });
  for (auto &[sum, lacking] : unproven) {
    Objection objection;
    if (ancestors.contains(sum->op->getResult(0)))
      objection = {Rule::Activations, kSumsActivations.str()};
    else if (!updatesWeight(sum))
      objection = checkGoal(sum);
    object(*sum, objection ? std::move(objection) : std::move(lacking));
  }
  return ancestors;
}
