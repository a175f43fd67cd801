//===- Gathers.cpp - Which gathers are of weights -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RoleFinder.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

/// "step input 3".
static std::string describeInput(BlockArgument input) {
  return "step input " + std::to_string(input.getArgNumber());
}

static std::string printType(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

/// True if `op` gathers what is made of weights, with 2 to 8 bits per element.
bool RoleFinder::gathersQuantized(Operation *op) const {
  if (op->getNumOperands() != 1 || op->getNumResults() != 1)
    return false;
  auto result = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  Type element = getElementTypeOrSelf(op->getOperand(0).getType());
  if (!element.isIntOrFloat() || !result || !result.hasStaticShape() ||
      result.getElementType() != element)
    return false;
  unsigned width = element.getIntOrFloatBitWidth();
  return width > 1 && width <= 8 && flow.isMadeOfWeights(op->getOperand(0));
}

/// True for tensors of static shape with elements of 8 bits.
static bool hasBytes(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.hasStaticShape() &&
         tensor.getElementTypeBitWidth() == 8;
}

/// The objection of `gather` alone to gathering a weight; `candidate`
/// is filled in where nothing does.
Objection RoleFinder::checkGather(StepCollective &gather,
                                  Candidate &candidate) {
  Operation *op = gather.op;
  bool isQuantized = gathersQuantized(op);
  // What fills whole bytes needs no format to be kept within a node.
  if (isQuantized && !hasBytes(op->getOperand(0).getType()))
    return {Rule::Form,
            "the step has quantized what it gathers, to " +
                printType(getElementTypeOrSelf(op->getOperand(0).getType())) +
                "; if it gathers first and quantizes then, zpp can quantize "
                "and keep secondary partitions"};
  if (!isQuantized && (op->getNumOperands() != 1 || op->getNumResults() != 1 ||
                       !isFloatTensor(op->getOperand(0).getType()) ||
                       !isFloatTensor(op->getResult(0).getType())))
    return {Rule::Form,
            "it does not gather one f32, bf16 or f16 tensor of static shape"};
  Value operand = op->getOperand(0);
  Provenance provenance = provenances.get(operand);
  candidate.gather = &gather;
  if (provenance.isStepInput) {
    candidate.input = cast<BlockArgument>(provenance.root);
    Type element = getElementTypeOrSelf(candidate.input.getType());
    if (!isa<FloatType>(element))
      return {Rule::Input, "it gathers data, not a weight: " +
                               describeInput(candidate.input) +
                               " has elements of type " + printType(element)};
    candidate.isCertain = declared.weights.contains(candidate.input) ||
                          flow.isReturned(candidate.input);
  } else if (flow.isMadeOfWeights(operand)) {
    candidate.isCertain = true;
  } else {
    if (Objection objection = checkState(gather, candidate.slice))
      return objection;
    computed.push_back(&gather);
    return {Rule::Computed,
            "its operand is computed in the step, not a weight"};
  }
  return checkState(gather, candidate.slice);
}

/// The same for a gather of floating-point inputs, or of what is made of
/// weights; `slice` is filled in.
Objection RoleFinder::checkState(StepCollective &gather, int64_t &slice) {
  Operation *op = gather.op;
  std::optional<StepFlow::StepResult> result =
      flow.getReachedResult(op->getResult(0));
  gather.isState = result.has_value();
  if (result)
    return {Rule::State, "it gathers state, which is not rounded: result " +
                             result->describe() +
                             " of the step is made of it element by element"};
  if (Objection objection = checkAxes(gather, "it gathers"))
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

/// The sums of single numbers: norms, losses, counts.
SmallVector<Value> RoleFinder::getSumsOfScalars() const {
  SmallVector<Value> sums;
  for (const StepCollective &sum : collectives)
    if (sum.kind == CollectiveKind::AllReduce)
      for (Value result : sum.op->getResults())
        if (auto type = dyn_cast<ShapedType>(result.getType());
            type && type.hasStaticShape() && type.getNumElements() == 1)
          sums.push_back(result);
  return sums;
}

/// Adds gathers of weights that the step has updated, or moved by a gradient
/// for a while: made of weights, gradients and sums of scalars alone.
void RoleFinder::addUpdatedWeights(SmallVectorImpl<Candidate> &gathers,
                                   Sums sums,
                                   const StepFlow::ValueSet &ancestors) {
  if (computed.empty())
    return;
  SmallVector<Value> cuts;
  for (StepCollective *sum : sums)
    if (isGradient(*sum) || sum->rule == Rule::Difference)
      cuts.push_back(sum->op->getResult(0));
  llvm::append_range(cuts, getSumsOfScalars());
  StepFlow::ValueSet dependents = flow.getDependents(cuts);
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

/// R16: finds those of `asked` that layers take as their weights.
void RoleFinder::findLayerWeights(ArrayRef<const Candidate *> asked,
                                  llvm::DenseMap<int64_t, Slice> &slices) {
  llvm::MapVector<int64_t, SmallVector<GatheredValue>> unknown;
  for (const Candidate *candidate : asked) {
    Value whole = candidate->gather->op->getResult(0);
    if (cast<ShapedType>(whole.getType()).getRank() > 1)
      unknown[candidate->slice].push_back({whole, candidate->gather->dim});
  }
  if (unknown.empty())
    return;
  SmallVector<SmallVector<GatheredValue>> inputs = llvm::map_to_vector(
      unknown, [](const auto &entry) { return entry.second; });
  std::vector<bool> areOfLayers = getProver().areLayerWeights(inputs);
  for (auto [index, entry] : llvm::enumerate(unknown))
    slices[entry.first].isOfLayer = areOfLayers[index];
}

/// Decides which of the gathers whose inputs may be data are weight gathers,
/// and from which of all of them gradients are computed.
void RoleFinder::chooseWeights(ArrayRef<Candidate> gathers, Sums sums,
                               const StepFlow::ValueSet &ancestors) {
  // A gradient whose partner is known belongs to that weight. Of the others,
  // each weight of their shape that nothing else tells needs one of its own.
  // What such a weight is only computed from needs a gradient of its own shape.
  using Mirrored = llvm::DenseSet<std::pair<Value, int64_t>>;
  llvm::DenseSet<Value> partners, contracted;
  Mirrored mirrored, contractedParts;
  llvm::DenseMap<int64_t, int64_t> gradients;
  SmallVector<Value> allGradients;
  auto addMirrored = [&](Mirrored &pairs, const GradientProof &proof,
                         const StepCollective &sum) {
    for (Value weight : proof.weights)
      for (int64_t key : getKeys(sum))
        pairs.insert({weight, key});
  };
  for (StepCollective *sum : sums) {
    auto proof = proofs.find(sum);
    // Wherever the gradient goes, it is that of a weight. Without the name of a
    // gradient, in a module that has them, it is none.
    if (proof != proofs.end() && proof->second.isOfProduct &&
        (proof->second.kind == GradientProof::Kind::Name ||
         (!getProver().hasNames() && !besideGradients.contains(sum)))) {
      contracted.insert_range(proof->second.direct);
      addMirrored(contractedParts, proof->second, *sum);
    }
    if (!isGradient(*sum) && sum->rule != Rule::Difference)
      continue;
    allGradients.push_back(sum->op->getResult(0));
    if (proof != proofs.end() && !proof->second.weights.empty()) {
      partners.insert_range(proof->second.direct);
      addMirrored(mirrored, proof->second, *sum);
    } else {
      for (int64_t key : getKeys(*sum))
        ++gradients[key];
    }
  }
  llvm::DenseMap<int64_t, llvm::DenseSet<int64_t>> weights;
  llvm::DenseMap<int64_t, Slice> slices;
  auto isMirrored = [&](const Mirrored &pairs, Value value,
                        const Candidate &candidate) {
    return llvm::any_of(getKeys(*candidate.gather), [&](int64_t key) {
      return pairs.contains({value, key});
    });
  };
  for (const Candidate &candidate : gathers) {
    Value whole = candidate.gather->op->getResult(0);
    Slice &slice = slices[candidate.slice];
    slice.isCertain |= candidate.isCertain;
    slice.isUsed |= ancestors.contains(whole);
    auto isOf = [&](const llvm::DenseSet<Value> &values,
                    const Mirrored &parts) {
      return llvm::any_of(
          ArrayRef<Value>{whole, candidate.input}, [&](Value value) {
            return value && (values.contains(value) ||
                             isMirrored(parts, value, candidate));
          });
    };
    slice.isProven |= isOf(partners, mirrored);
    slice.isContracted |= isOf(contracted, contractedParts);
  }
  for (const Candidate &candidate : gathers)
    if (!slices.lookup(candidate.slice).isProven)
      for (int64_t key : getKeys(*candidate.gather))
        weights[key].insert(candidate.slice);
  auto isDeclared = [&](const Candidate &candidate) {
    return candidate.input && declared.weights.contains(candidate.input);
  };
  // R7: what the step returns as it came, without a gradient.
  auto isUnchanged = [&](const Candidate &candidate) {
    return !slices.lookup(candidate.slice).isContracted &&
           !isDeclared(candidate) &&
           !getProver()
                .getReturnedSources(candidate.gather->op->getOperand(0))
                .empty();
  };
  auto getKey = [&](const Candidate &candidate) {
    return *llvm::max_element(
        getKeys(*candidate.gather), [&](int64_t a, int64_t b) {
          return gradients.lookup(a) < gradients.lookup(b);
        });
  };
  // Weights that one activation goes into have one partner, so a gradient may
  // be of either, but not if all gradients update weights that the step
  // returns.
  auto mayHaveGradient = [&](const Candidate &candidate) {
    Value whole = candidate.gather->op->getResult(0);
    return !areAllUpdates &&
           llvm::any_of(getKeys(*candidate.gather), [&](int64_t key) {
             return gradients.lookup(key) > 0 ||
                    mirrored.contains({whole, key}) ||
                    mirrored.contains({candidate.input, key});
           });
  };
  // R7, too: what the step updates with something else, such as averages of
  // activations, rows of a batch, or keys of a queue.
  SmallVector<Value> cuts = getSumsOfScalars();
  llvm::append_range(cuts, allGradients);
  llvm::DenseSet<Value> updated = flow.getUpdatedBy(allGradients);
  updated.insert_range(flow.getUpdatedOnlyBy(cuts));
  auto isStatistic = [&](const Candidate &candidate) {
    return candidate.input && flow.isReturned(candidate.input) &&
           !slices.lookup(candidate.slice).isContracted &&
           !isDeclared(candidate) && !updated.contains(candidate.input) &&
           !isUnchanged(candidate);
  };
  llvm::SmallPtrSet<const Candidate *, 8> buffers, statistics;
  SmallVector<const Candidate *> asked;
  for (const Candidate &candidate : gathers) {
    const Slice &slice = slices[candidate.slice];
    if (isUnchanged(candidate))
      buffers.insert(&candidate);
    else if (isStatistic(candidate))
      statistics.insert(&candidate);
    else if (slice.isCertain || !slice.isUsed)
      continue;
    asked.push_back(&candidate);
  }
  findLayerWeights(asked, slices);
  for (const Candidate &candidate : gathers) {
    StepCollective &gather = *candidate.gather;
    Slice slice = slices.lookup(candidate.slice);
    int64_t key = getKey(candidate);
    // An input that the step does not return has none of the gradients that
    // update what it returns.
    int64_t numGradients = areAllUpdates ? 0 : gradients.lookup(key);
    int64_t numWeights = weights[key].size();
    bool isKnown = slice.isCertain || slice.isProven || slice.isOfLayer;
    if (!isKnown && numGradients == 0)
      object(gather,
             {Rule::Input,
              describeInput(candidate.input) +
                  " seems to be data: no gradient of its shape is reduced, "
                  "nothing that the step returns is made of it element by "
                  "element, and no layer takes it as its weight; weights-of "
                  "names weights"});
    else if (!isKnown && numGradients < numWeights)
      object(gather,
             {Rule::Input, describeInput(candidate.input) +
                               " may be data: " + std::to_string(numWeights) +
                               " inputs of its shape are gathered, but " +
                               std::to_string(numGradients) +
                               " gradients reduced; weights-of names weights"});
    else if (!allGradients.empty() && !slice.isUsed && !isDeclared(candidate))
      object(gather, {Rule::Use, "no gradient is computed from it; weights-of "
                                 "names weights"});
    else if (buffers.contains(&candidate) && !slice.isOfLayer)
      object(gather,
             {Rule::Buffer,
              "it gathers a buffer: the step returns it as it came, and no "
              "layer takes it as its weight; weights-of names weights"});
    // Where no gradient is known, weights may be updated with one that is not:
    // with what is computed from them, as a statistic of a batch is not.
    else if (statistics.contains(&candidate) &&
             !(allGradients.empty() && slice.isOfLayer &&
               flow.isUpdatedFrom(candidate.input, gather.op->getResult(0))))
      object(gather,
             {Rule::Buffer,
              "it gathers a statistic: the step updates it with something else "
              "than gradients; weights-of names weights"});
    else {
      gather.role = Role::Weight;
      bool isTaken = candidate.input && !flow.isReturned(candidate.input) &&
                     !flow.getReachedResult(candidate.input) &&
                     (slice.isOfLayer || isDeclared(candidate)) &&
                     !mayHaveGradient(candidate);
      gather.rule = isDeclared(candidate) ? Rule::Declared
                    : isTaken             ? Rule::Layer
                                          : Rule::Input;
      if (isTaken)
        gather.taken = candidate.input.getArgNumber();
    }
  }
}
