//===- Gathers.cpp - Which gathers are of weights -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RoleFinder.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

using namespace mlir;
using namespace zpp;

/// "step input 3".
static std::string describeInput(BlockArgument input) {
  return "step input " + std::to_string(input.getArgNumber());
}

/// Returns the type of the elements that `op` gathers, if it gathers one tensor
/// of static shape; null otherwise.
static Type getGatheredElement(Operation *op) {
  if (op->getNumOperands() != 1 || op->getNumResults() != 1)
    return {};
  Type part = op->getOperand(0).getType(), whole = op->getResult(0).getType();
  return hasStaticShape(part) && hasStaticShape(whole)
             ? getElementTypeOrSelf(part)
             : Type();
}

/// True if the user names the input as a weight. Tokens are among all.
bool RoleFinder::isDeclared(const Candidate &candidate) const {
  return candidate.input && declared.weights.contains(candidate.input) &&
         !(candidate.isInteger && declared.weights.containsAll());
}

/// The objection of `gather` alone to gathering a weight; `candidate`
/// is filled in where nothing does.
std::optional<Objection> RoleFinder::checkGather(StepCollective &gather,
                                                 Candidate &candidate) {
  Type element = getGatheredElement(gather.op);
  unsigned width =
      element && element.isIntOrFloat() ? element.getIntOrFloatBitWidth() : 0;
  Value operand =
      gather.op->getNumOperands() == 1 ? gather.op->getOperand(0) : Value();
  bool isQuantized = width > 1 && width <= 8 && flow.isMadeOfWeights(operand);
  // What fills whole bytes needs no format to be kept within a node.
  if (isQuantized && width != 8)
    return Objection{Rule::Form,
                     "the step has quantized what it gathers, to " +
                         toText(element) +
                         "; if it gathers first and quantizes then, zpp can "
                         "quantize and keep secondary partitions"};
  candidate.isInteger =
      !isQuantized && width > 0 && width % 8 == 0 && element.isInteger();
  if (!isQuantized && !candidate.isInteger &&
      !(element && zero::isQuantizable(element) &&
        isFloatTensor(gather.op->getResult(0).getType())))
    return Objection{
        Rule::Form,
        "it does not gather one f32, bf16 or f16 tensor of static shape"};
  Provenance provenance = provenances.get(operand);
  candidate.gather = &gather;
  if (provenance.isStepInput)
    candidate.input = cast<BlockArgument>(provenance.root);
  // The base of a QLoRA, for instance, or tokens. Only a layer tells (R16).
  else if (candidate.isInteger)
    candidate.input = getProver().getOnlyInput(operand);
  constexpr StringLiteral isComputed =
      "its operand is computed in the step, not a weight";
  if (candidate.isInteger && !candidate.input)
    return Objection{Rule::Computed, isComputed.str()};
  Type from = candidate.input ? getElementTypeOrSelf(candidate.input.getType())
                              : element;
  if (!candidate.isInteger && candidate.input && !isa<FloatType>(from))
    return Objection{Rule::Input, "it gathers data, not a weight: " +
                                      describeInput(candidate.input) +
                                      " has elements of type " + toText(from)};
  candidate.isCertain = candidate.isInteger ? isDeclared(candidate)
                        : candidate.input ? isDeclared(candidate) ||
                                                flow.isReturned(candidate.input)
                                          : flow.isMadeOfWeights(operand);
  std::optional<Objection> objection = checkState(gather, candidate.slice);
  if (objection || candidate.input || candidate.isCertain)
    return objection;
  computed.push_back(&gather);
  return Objection{Rule::Computed, isComputed.str()};
}

/// True if a result of the step is `value`, cast or rearranged.
static bool isReturned(const ValueGraph &graph, Value value) {
  return llvm::any_of(graph.getResults(), [&](const auto &result) {
    ValueGraph::Node node = result.node;
    while (node >= 0 && graph.getValue(node) != value) {
      ValueGraph::Node source = graph.getPassed(node);
      Operation *op = graph.getOp(node);
      if (source == node)
        source = op && movesData(op) ? graph.getOperand(node, 0) : -1;
      node = source;
    }
    return node >= 0;
  });
}

/// The same for a gather of floating-point inputs, or of what is made of
/// weights; `slice` is filled in.
std::optional<Objection> RoleFinder::checkState(StepCollective &gather,
                                                int64_t &slice) {
  Operation *op = gather.op;
  const ValueGraph::Result *result = flow.getReachedResult(op->getResult(0));
  gather.isState = result != nullptr;
  // What devices have updated in parts, as with ZeRO-1.
  bool isUpdated = result && !provenances.get(op->getOperand(0)).isStepInput &&
                   flow.holdsStepInput(op->getOperand(0)) &&
                   isReturned(graph, op->getResult(0));
  if (result)
    return Objection{
        Rule::State,
        "it gathers state, which is not rounded: result " + result->describe() +
            " of the step is made of it element by element" +
            (isUpdated ? "; updated=i8 sends by how much it has changed" : "")};
  if (std::optional<Objection> objection = checkAxes(gather, "it gathers"))
    return objection;
  slice = provenances.getSliceId(op->getOperand(0), /*inAnyIteration=*/true);
  return {};
}

SmallVector<RoleFinder::Candidate> RoleFinder::getGathers() {
  SmallVector<Candidate> gathers;
  for (StepCollective &collective : collectives) {
    if (collective.kind != CollectiveKind::AllGather || isRewritten(collective))
      continue;
    Candidate candidate{};
    object(collective, checkGather(collective, candidate));
    if (collective.reason.empty())
      gathers.push_back(candidate);
  }
  return gathers;
}

/// Returns the sums of single numbers: norms, losses, counts.
SmallVector<Value> RoleFinder::getSumsOfScalars() const {
  SmallVector<Value> sums;
  for (const StepCollective &sum : collectives)
    if (sum.kind == CollectiveKind::AllReduce)
      for (Value result : sum.op->getResults())
        if (hasOneElement(result.getType()))
          sums.push_back(result);
  return sums;
}

/// Adds gathers of weights that the step has updated, or moved by a gradient
/// for a while: made of weights, gradients and sums of scalars alone.
void RoleFinder::addUpdatedWeights(SmallVectorImpl<Candidate> &gathers,
                                   Sums sums, const NodeSet &ancestors) {
  if (computed.empty())
    return;
  SmallVector<Value> cuts;
  for (StepCollective *sum : sums)
    if (isGradient(*sum) || sum->rule == Rule::Difference)
      cuts.push_back(sum->op->getResult(0));
  llvm::append_range(cuts, getSumsOfScalars());
  NodeSet dependents = flow.getDependents(cuts);
  SmallVector<Value> operands =
      llvm::map_to_vector(computed, [](StepCollective *gather) {
        return gather->op->getOperand(0);
      });
  SmallVector<BlockArgument> held = flow.getHeldInputs(operands, ancestors);
  for (auto [index, gather] : llvm::enumerate(computed)) {
    if (!held[index] || dependents.contains(operands[index]))
      continue;
    Candidate candidate{gather, held[index], /*isCertain=*/true, 0};
    object(*gather, checkState(*gather, candidate.slice));
    if (gather->reason.empty())
      gathers.push_back(candidate);
  }
}

//===----------------------------------------------------------------------===//
// The choice
//===----------------------------------------------------------------------===//

namespace {
/// Values and the keys (getKeys) of gradients that mirror them.
using Mirrored = llvm::DenseSet<std::pair<Value, int64_t>>;
} // namespace

/// Decides which of the gathers whose inputs may be data are weight gathers, by
/// one function per rule.
class RoleFinder::WeightChoice {
public:
  WeightChoice(RoleFinder &finder, ArrayRef<Candidate> gathers, Sums sums,
               const NodeSet &ancestors)
      : finder(finder), gathers(gathers) {
    readGradients(sums);
    readSlices(ancestors);
    findUpdated();
    askLayers();
  }

  void run() {
    for (const Candidate &candidate : gathers)
      if (std::optional<Objection> objection = check(candidate))
        object(*candidate.gather, std::move(objection));
      else
        accept(candidate);
  }

private:
  /// Knowledge about all gathers of one slice of a weight.
  struct Slice {
    /// It is known to be a weight.
    bool isCertain = false;
    /// A gradient is computed from it.
    bool isUsed = false;
    /// A gradient has it for its partner.
    bool isProven = false;
    /// That gradient is a product.
    bool isContracted = false;
    /// A layer takes it as its weight.
    bool isOfLayer = false;
  };

  const Slice &getSlice(const Candidate &candidate) {
    return slices[candidate.slice];
  }

  /// A gradient whose partner is known belongs to that weight. Of the others,
  /// each weight of their shape that nothing else tells needs one of its own.
  /// What such a weight is only computed from needs a gradient of its own
  /// shape.
  void readGradients(Sums sums) {
    auto add = [&](Mirrored &pairs, const GradientProof &proof,
                   const StepCollective &sum) {
      for (Value weight : proof.weights)
        for (int64_t key : finder.getKeys(sum))
          pairs.insert({weight, key});
    };
    for (StepCollective *sum : sums) {
      auto known = finder.proofs.find(sum);
      const GradientProof *proof =
          known == finder.proofs.end() ? nullptr : &known->second;
      if (proof && isOfWeight(*sum, *proof)) {
        contracted.insert_range(proof->direct);
        add(contractedParts, *proof, *sum);
      }
      if (!finder.isGradient(*sum) && sum->rule != Rule::Difference)
        continue;
      allGradients.push_back(sum->op->getResult(0));
      if (proof && !proof->weights.empty()) {
        partners.insert_range(proof->direct);
        add(mirrored, *proof, *sum);
        continue;
      }
      for (int64_t key : finder.getKeys(*sum))
        ++gradients[key];
    }
  }

  /// Wherever the gradient goes, it is that of a weight. Without the name of a
  /// gradient, in a module that has them, it is none.
  bool isOfWeight(const StepCollective &sum, const GradientProof &proof) {
    return proof.isOfProduct && (proof.kind == GradientProof::Kind::Name ||
                                 (!finder.getProver().hasNames() &&
                                  !finder.besideGradients.contains(&sum)));
  }

  bool isMirrored(const Mirrored &pairs, Value value,
                  const Candidate &candidate) {
    return value &&
           llvm::any_of(finder.getKeys(*candidate.gather), [&](int64_t key) {
             return pairs.contains({value, key});
           });
  }

  void readSlices(const NodeSet &ancestors) {
    for (const Candidate &candidate : gathers) {
      Value whole = candidate.gather->op->getResult(0);
      Slice &slice = slices[candidate.slice];
      slice.isCertain |= candidate.isCertain;
      slice.isUsed |= ancestors.contains(whole);
      for (Value value : {whole, Value(candidate.input)}) {
        slice.isProven |= (value && partners.contains(value)) ||
                          isMirrored(mirrored, value, candidate);
        slice.isContracted |= (value && contracted.contains(value)) ||
                              isMirrored(contractedParts, value, candidate);
      }
    }
    // Integers have no gradients.
    for (const Candidate &candidate : gathers)
      if (!getSlice(candidate).isProven && !candidate.isInteger)
        for (int64_t key : finder.getKeys(*candidate.gather))
          weights[key].insert(candidate.slice);
  }

  void findUpdated() {
    SmallVector<Value> cuts = finder.getSumsOfScalars();
    llvm::append_range(cuts, allGradients);
    updated = finder.flow.getUpdatedBy(allGradients);
    updated.insert_range(finder.flow.getUpdatedOnlyBy(cuts));
    // What a device computes of a gradient with the whole batch is no sum.
    NodeSet products = getTransposedProducts(finder.graph);
    SmallVector<Value> values;
    for (ValueGraph::Node node = 0; node < finder.graph.size(); ++node)
      if (products[node])
        values.push_back(finder.graph.getValue(node));
    updatedAlone = finder.flow.getUpdatedBy(values);
  }

  bool isDeclared(const Candidate &candidate) {
    return finder.isDeclared(candidate);
  }

  /// R7: what the step returns as it came, without a gradient.
  bool isBuffer(const Candidate &candidate) {
    return !getSlice(candidate).isContracted && !isDeclared(candidate) &&
           !finder.getProver()
                .getReturnedSources(candidate.gather->op->getOperand(0))
                .empty();
  }

  /// R7, too: what the step updates with something else than gradients, such
  /// as averages of activations, rows of a batch, or keys of a queue.
  bool isStatistic(const Candidate &candidate) {
    return candidate.input && finder.flow.isReturned(candidate.input) &&
           !getSlice(candidate).isContracted && !isDeclared(candidate) &&
           !updated.contains(candidate.input) && !isBuffer(candidate);
  }

  /// R16: finds what layers take as their weights, where that matters.
  void askLayers() {
    llvm::MapVector<int64_t, SmallVector<GatheredValue>> asked;
    for (const Candidate &candidate : gathers) {
      const Slice &slice = getSlice(candidate);
      Value whole = candidate.gather->op->getResult(0);
      if ((isBuffer(candidate) || isStatistic(candidate) ||
           (!slice.isCertain && slice.isUsed)) &&
          cast<ShapedType>(whole.getType()).getRank() > 1)
        asked[candidate.slice].push_back({whole, candidate.gather->dim});
    }
    if (asked.empty())
      return;
    std::vector<bool> areOfLayers =
        finder.getProver().areLayerWeights(llvm::map_to_vector(
            asked, [](const auto &entry) { return entry.second; }));
    for (auto [entry, isOfLayer] : llvm::zip_equal(asked, areOfLayers))
      slices[entry.first].isOfLayer = isOfLayer;
  }

  std::optional<Objection> check(const Candidate &candidate) {
    if (std::optional<Objection> objection = checkInput(candidate))
      return objection;
    if (std::optional<Objection> objection = checkUse(candidate))
      return objection;
    return checkBuffer(candidate);
  }

  /// R4.
  std::optional<Objection> checkInput(const Candidate &candidate) {
    const Slice &slice = getSlice(candidate);
    if (slice.isCertain || slice.isProven || slice.isOfLayer)
      return {};
    if (candidate.isInteger)
      return Objection{
          Rule::Input,
          "it gathers data, not a weight: " + describeInput(candidate.input) +
              " has elements of type " +
              toText(getElementTypeOrSelf(candidate.input.getType())) +
              ", and no layer takes it as its weight; weights-of names "
              "weights"};
    // Of all keys, the one with the most gradients counts. An input that the
    // step does not return has none of those that update what it returns.
    int64_t key = *llvm::max_element(
        finder.getKeys(*candidate.gather), [&](int64_t a, int64_t b) {
          return gradients.lookup(a) < gradients.lookup(b);
        });
    int64_t numGradients = finder.areAllUpdates ? 0 : gradients.lookup(key);
    int64_t numWeights = weights[key].size();
    if (numGradients == 0)
      return Objection{
          Rule::Input,
          describeInput(candidate.input) +
              " seems to be data: no gradient of its shape is reduced, "
              "nothing that the step returns is made of it element by "
              "element, and no layer takes it as its weight; weights-of "
              "names weights"};
    if (numGradients < numWeights)
      return Objection{Rule::Input,
                       describeInput(candidate.input) +
                           " may be data: " + std::to_string(numWeights) +
                           " inputs of its shape are gathered, but " +
                           std::to_string(numGradients) +
                           " gradients reduced; weights-of names weights"};
    return {};
  }

  /// R6.
  std::optional<Objection> checkUse(const Candidate &candidate) {
    if (allGradients.empty() || getSlice(candidate).isUsed ||
        isDeclared(candidate))
      return {};
    return Objection{
        Rule::Use, "no gradient is computed from it; weights-of names weights"};
  }

  /// True if the step updates a layer's weight with a gradient that no sum
  /// shows: by the name of autodiff, or, where no gradient is known, with what
  /// is computed from it, as a statistic of a batch is not.
  bool isTrained(const Candidate &candidate) {
    return updatedAlone.contains(candidate.input) ||
           (allGradients.empty() &&
            finder.flow.isUpdatedFrom(candidate.input,
                                      candidate.gather->op->getResult(0)));
  }

  /// R7.
  std::optional<Objection> checkBuffer(const Candidate &candidate) {
    bool isOfLayer = getSlice(candidate).isOfLayer;
    if (isBuffer(candidate) && !isOfLayer)
      return Objection{
          Rule::Buffer,
          "it gathers a buffer: the step returns it as it came, and no "
          "layer takes it as its weight; weights-of names weights"};
    if (isStatistic(candidate) && !(isOfLayer && isTrained(candidate)))
      return Objection{
          Rule::Buffer,
          "it gathers a statistic: the step updates it with something else "
          "than gradients; weights-of names weights"};
    return {};
  }

  /// True if a gradient may be that of `candidate`: weights that one activation
  /// goes into have one partner, but not if all gradients update weights that
  /// the step returns.
  bool mayHaveGradient(const Candidate &candidate) {
    Value whole = candidate.gather->op->getResult(0);
    return !finder.areAllUpdates &&
           (isMirrored(mirrored, whole, candidate) ||
            isMirrored(mirrored, candidate.input, candidate) ||
            llvm::any_of(finder.getKeys(*candidate.gather), [&](int64_t key) {
              return gradients.lookup(key) > 0;
            }));
  }

  void accept(const Candidate &candidate) {
    StepCollective &gather = *candidate.gather;
    gather.role = Role::Weight;
    bool isTaken = candidate.input &&
                   !finder.flow.isReturned(candidate.input) &&
                   !finder.flow.getReachedResult(candidate.input) &&
                   (getSlice(candidate).isOfLayer || isDeclared(candidate)) &&
                   (candidate.isInteger || !mayHaveGradient(candidate));
    gather.rule = isDeclared(candidate)            ? Rule::Declared
                  : isTaken || candidate.isInteger ? Rule::Layer
                                                   : Rule::Input;
    if (isTaken)
      gather.taken = candidate.input.getArgNumber();
  }

  RoleFinder &finder;
  ArrayRef<Candidate> gathers;
  llvm::DenseMap<int64_t, Slice> slices;
  /// The partners of gradients, and of all sums that are proven.
  llvm::DenseSet<Value> partners, contracted;
  Mirrored mirrored, contractedParts;
  SmallVector<Value> allGradients;
  /// By key: gradients without a known partner, and slices that may have one.
  llvm::DenseMap<int64_t, int64_t> gradients;
  llvm::DenseMap<int64_t, llvm::DenseSet<int64_t>> weights;
  /// The inputs that gradients update, and that products with the name of
  /// autodiff do.
  llvm::DenseSet<Value> updated, updatedAlone;
};

void RoleFinder::chooseWeights(ArrayRef<Candidate> gathers, Sums sums,
                               const NodeSet &ancestors) {
  WeightChoice(*this, gathers, sums, ancestors).run();
}
