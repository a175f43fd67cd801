//===- Roles.cpp - What the collectives of a step are for -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Roles.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Provenance.h"
#include "zpp/Analysis/StepFlow.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/ElementFlow.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/PartitionSlice.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace zpp;

StringRef zpp::getRoleName(Role role) {
  switch (role) {
  case Role::Weight:
    return "weight";
  case Role::Gradient:
    return "gradient";
  case Role::Update:
    return "update";
  case Role::Other:
    return "other";
  }
  llvm_unreachable("unknown role");
}

StringRef zpp::getPhaseName(Phase phase) {
  return phase == Phase::Forward ? "forward" : "backward";
}

static bool isFloatTensor(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.hasStaticShape() &&
         zero::isQuantizable(tensor.getElementType());
}

namespace {
/// The whole tensor of a gather or scatter, without dims of size 1.
struct WholeTensor {
  WholeTensor(const StepCollective &collective, RankedTensorType whole) {
    for (int64_t dim = 0; dim < whole.getRank(); ++dim)
      if (whole.getDimSize(dim) != 1 || dim == collective.dim)
        dims.push_back({dim, whole.getDimSize(dim), dim == collective.dim});
  }

  /// A key that a gather and the scatter of its gradient share.
  std::string getKey(ArrayRef<AxisRef> axes) const {
    std::string key;
    llvm::raw_string_ostream os(key);
    for (const AxisRef &axis : axes)
      os << axis.name << ":" << axis.preSize << ":" << axis.size << ",";
    for (const Dim &dim : dims)
      os << (dim.isPartitioned ? "|" : "x") << dim.size;
    return key;
  }

  /// Permutes the dims from the operand of `op` to its result or back; false if
  /// `op` is not a cast, a transpose or the like.
  bool
  follow(Operation *op,
         llvm::function_ref<std::optional<int64_t>(Operation *, int64_t)> map) {
    // Without dims, any op would be a cast, also one without results.
    if (dims.empty())
      return false;
    SmallVector<Dim> moved(dims);
    for (Dim &dim : moved) {
      std::optional<int64_t> index = map(op, dim.index);
      if (!index)
        return false;
      dim.index = *index;
    }
    llvm::sort(moved,
               [](const Dim &a, const Dim &b) { return a.index < b.index; });
    dims = std::move(moved);
    return true;
  }

private:
  struct Dim {
    int64_t index;
    int64_t size;
    bool isPartitioned;
  };
  SmallVector<Dim> dims;
};
} // namespace

/// The keys of a gather or a scatter. A scatter mirrors a gather if they share
/// a key: their shapes are equal either at the collective or where the weight
/// is stored, since XLA's partitioner leaves transposes after scatters.
static SmallVector<std::string>
getMirrorKeys(const StepCollective &collective) {
  bool isGather = collective.kind == CollectiveKind::AllGather;
  Value whole =
      isGather ? collective.op->getResult(0) : collective.op->getOperand(0);
  WholeTensor tensor(collective, cast<RankedTensorType>(whole.getType()));
  SmallVector<std::string> keys{tensor.getKey(collective.axes)};
  if (isGather) {
    Operation *op = collective.op->getOperand(0).getDefiningOp();
    while (op && tensor.follow(op, getOperandDim))
      op = op->getOperand(0).getDefiningOp();
  } else {
    Value value = collective.op->getResult(0);
    while (value.hasOneUse() &&
           tensor.follow(*value.user_begin(), getResultDim))
      value = value.user_begin()->getResult(0);
  }
  if (std::string key = tensor.getKey(collective.axes); key != keys[0])
    keys.push_back(key);
  return keys;
}

namespace {
/// Numbers weights in the order of their first gathers.
class WeightNumbering {
public:
  explicit WeightNumbering(ProvenanceAnalysis &provenance)
      : provenance(provenance) {}

  /// The number of the weight that `gather` gathers, and whether this is its
  /// first gather.
  std::pair<int64_t, bool> insert(Operation *gather) {
    Value operand = gather->getOperand(0);
    // Gathers in different loops with the same key gather the same weight. In
    // one block, slices of other iterations are other weights, numbered in
    // order.
    int64_t shared = provenance.getSliceId(operand, /*inAnyIteration=*/true);
    llvm::MapVector<int64_t, int64_t> &slices =
        inBlock[{gather->getBlock(), shared}];
    int64_t slice = provenance.getSliceId(operand, /*inAnyIteration=*/false);
    int64_t number = slices.try_emplace(slice, slices.size()).first->second;
    auto [weight, isNew] =
        weights.try_emplace({shared, number}, weights.size());
    return {weight->second, isNew};
  }

private:
  ProvenanceAnalysis &provenance;
  llvm::DenseMap<std::pair<Block *, int64_t>, llvm::MapVector<int64_t, int64_t>>
      inBlock;
  llvm::DenseMap<std::pair<int64_t, int64_t>, int64_t> weights;
};
} // namespace

/// Forward and backward loops may cut one stack of weights into overlapping
/// slices, if the number of layers is not a multiple of scan's `unroll`. All
/// weights of an input together have at most the bytes of the input. `roots`
/// has the input of each gather, `inLoops` those that loops cut.
static void limitModelBytes(ArrayRef<StepCollective *> gathers,
                            ArrayRef<Value> roots,
                            const llvm::DenseSet<Value> &inLoops) {
  llvm::DenseMap<Value, int64_t> left;
  llvm::DenseMap<int64_t, int64_t> known;
  for (auto [gather, root] : llvm::zip_equal(gathers, roots)) {
    auto [weight, isNew] = known.try_emplace(gather->weight, 0);
    auto type = dyn_cast<RankedTensorType>(root.getType());
    auto part = cast<ShapedType>(gather->op->getOperand(0).getType());
    if (isNew && type && type.hasStaticShape() && getBytes(part) > 0) {
      auto whole = cast<ShapedType>(gather->op->getResult(0).getType());
      // Outside of a manual computation an input is whole; inside it is the
      // part of one device.
      Operation *manual = gather->op->getParentOp();
      while (manual && !isNamed(manual, guest::kSdyManualComputation))
        manual = manual->getParentOp();
      bool isWhole = manual && !ManualView(manual).contains(root);
      int64_t devices = isWhole ? 1 : getBytes(whole) / getBytes(part);
      int64_t all = multiplySaturating(
          getBytes(type.clone(whole.getElementType())), devices);
      auto [bytes, isFirst] = left.try_emplace(root, all);
      // What has been gathered before, in other slices, is gathered again.
      if (bytes->second == 0 && inLoops.contains(root))
        gather->phase = Phase::Backward;
      weight->second = std::min(gather->modelBytes, bytes->second);
      bytes->second -= weight->second;
    } else if (isNew) {
      weight->second = gather->modelBytes;
    }
    gather->modelBytes = weight->second;
  }
}

//===----------------------------------------------------------------------===//
// Named weights
//===----------------------------------------------------------------------===//

/// The function of the module whose arguments are the inputs of the step.
static func::FuncOp getStep(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPublic() && !function.isExternal())
      return function;
  return {};
}

FailureOr<NamedWeights> NamedWeights::parse(ModuleOp module, StringRef text) {
  NamedWeights weights;
  weights.all = text == "all";
  if (text.empty() || weights.all)
    return weights;
  func::FuncOp step = getStep(module);
  unsigned count = step ? step.getNumArguments() : 0;
  for (StringRef part : llvm::split(text, ',')) {
    auto [firstText, lastText] = part.split('-');
    unsigned first, last;
    if (firstText.trim().getAsInteger(10, first) ||
        (part.contains('-') ? lastText : firstText)
            .trim()
            .getAsInteger(10, last) ||
        last < first)
      return emitError(
                 module.getLoc(),
                 "expected weights-of to be 'all' or argument numbers and "
                 "ranges, as 0,3-7, but got '")
             << text << "'";
    if (last >= count)
      return emitError(module.getLoc(), "expected arguments of the step below ")
             << count << " in weights-of, but got " << last;
    for (unsigned number = first; number <= last; ++number)
      weights.numbers.insert(number);
  }
  return weights;
}

//===----------------------------------------------------------------------===//
// Finding roles
//===----------------------------------------------------------------------===//

/// "step input 3".
static std::string describeInput(BlockArgument input) {
  return "step input " + std::to_string(input.getArgNumber());
}

/// True if an axis of `axes` contains all of `ref`.
static bool covers(ArrayRef<AxisRef> axes, const AxisRef &ref) {
  return llvm::any_of(axes, [&](const AxisRef &axis) {
    return axis.name == ref.name && axis.preSize <= ref.preSize &&
           ref.preSize * ref.size <= axis.preSize * axis.size;
  });
}

namespace {
class RoleFinder {
public:
  RoleFinder(ModuleOp module, const Mesh &mesh, const NamedWeights &named,
             MutableArrayRef<StepCollective> collectives)
      : named(named), collectives(collectives), gathered(findGatheredInputs()),
        splitInputs(findSplitInputs(module, mesh)),
        flow(
            module, [&](BlockArgument input) { return named.contains(input); },
            [&](BlockArgument input) {
              return splitInputs.contains(input) && !named.contains(input) &&
                     !gathered.contains(input);
            }) {
    findDataAxes();
  }

  void run() {
    SmallVector<Candidate> gathers = getGathers();
    SmallVector<StepCollective *> sums = getSums();
    StepFlow::ValueSet ancestors = chooseGradients(gathers, sums);
    addUpdatedWeights(gathers, sums, ancestors);
    chooseWeights(gathers, sums, ancestors);
    numberWeights(ancestors);
    setPhases();
  }

private:
  /// A gather that may be a weight gather.
  struct Candidate {
    StepCollective *gather;
    /// The input that it gathers, or null if its operand is computed from
    /// several inputs.
    BlockArgument input;
    /// True if the input is known to be a weight, even if no scatter mirrors
    /// the gather.
    bool isCertain;
    int64_t slice;
  };

  using SplitInputs = llvm::MapVector<Value, std::vector<AxisRef>>;

  /// The inputs of the step that are gathered.
  llvm::DenseSet<Value> findGatheredInputs() {
    llvm::DenseSet<Value> inputs;
    for (const StepCollective &collective : collectives)
      if (collective.kind == CollectiveKind::AllGather)
        inputs.insert(provenances.get(collective.op->getOperand(0)).root);
    return inputs;
  }

  static bool isInteger(Value input) {
    return getElementTypeOrSelf(input.getType()).isInteger();
  }

  /// The inputs of the step that manual computations split, and the axes that
  /// split them.
  SplitInputs findSplitInputs(ModuleOp module, const Mesh &mesh) {
    SplitInputs result;
    module.walk([&](Operation *op) {
      if (!isNamed(op, guest::kSdyManualComputation))
        return;
      OperandShardings shardings(op);
      for (OpOperand &operand : op->getOpOperands()) {
        Provenance provenance = provenances.get(operand.get());
        if (!provenance.isStepInput ||
            !isa<ShapedType>(operand.get().getType()))
          continue;
        const ReplicaGroups *groups =
            shardings.getGroups(operand.getOperandNumber());
        std::string error;
        if (std::optional<std::vector<AxisRef>> axes =
                groups ? mesh.factorGroups(*groups, error) : std::nullopt)
          llvm::append_range(result[provenance.root], *axes);
      }
    });
    return result;
  }

  /// Finds the axes along which devices have different data: those that split
  /// inputs other than weights.
  void findDataAxes() {
    std::vector<AxisRef> ofFloats;
    for (auto &[value, axes] : splitInputs) {
      auto input = cast<BlockArgument>(value);
      if (!flow.getReachedResult(input) && !named.contains(input) &&
          !gathered.contains(input))
        llvm::append_range(isInteger(input) ? dataAxes : ofFloats, axes);
    }
    // Inputs that are not floating-point, such as tokens and labels, are
    // certainly data.
    if (dataAxes.empty())
      dataAxes = std::move(ofFloats);
  }

  /// The axes of `collective` along which all devices have the same data, such
  /// as "tensor, expert". Empty if there are none, or if nothing is known about
  /// data.
  std::string getOtherAxes(const StepCollective &collective) const {
    std::string text;
    llvm::raw_string_ostream os(text);
    llvm::ListSeparator separator;
    if (!dataAxes.empty())
      for (const AxisRef &axis : collective.axes)
        if (!covers(dataAxes, axis))
          os << separator << axis.name;
    return text;
  }

  //===--------------------------------------------------------------------===//
  // Gathers
  //===--------------------------------------------------------------------===//

  /// True if `value` is made of weights, with 2 to 8 bits per element.
  bool isQuantizedWeight(Value value) const {
    Type element = getElementTypeOrSelf(value.getType());
    if (!element.isIntOrFloat())
      return false;
    unsigned width = element.getIntOrFloatBitWidth();
    return width > 1 && width <= 8 && flow.isMadeOfWeights(value);
  }

  /// The reason why `gather` alone shows that it does not gather a weight, or
  /// empty; `candidate` is then filled in.
  std::string getReason(StepCollective &gather, Candidate &candidate) {
    Operation *op = gather.op;
    if (op->getNumOperands() == 1 && isQuantizedWeight(op->getOperand(0)))
      return "the step has quantized what it gathers, to " +
             printType(getElementTypeOrSelf(op->getOperand(0).getType())) +
             "; if it gathers first and quantizes then, zpp can quantize and "
             "keep secondary partitions";
    if (op->getNumOperands() != 1 || op->getNumResults() != 1 ||
        !isFloatTensor(op->getOperand(0).getType()) ||
        !isFloatTensor(op->getResult(0).getType()))
      return "it does not gather one f32, bf16 or f16 tensor of static shape";
    Value operand = op->getOperand(0);
    Provenance provenance = provenances.get(operand);
    candidate.gather = &gather;
    if (provenance.isStepInput) {
      candidate.input = cast<BlockArgument>(provenance.root);
      Type element = getElementTypeOrSelf(candidate.input.getType());
      if (!isa<FloatType>(element))
        return "it gathers data, not a weight: " +
               describeInput(candidate.input) + " has elements of type " +
               printType(element);
      candidate.isCertain =
          named.contains(candidate.input) || flow.isReturned(candidate.input);
    } else if (flow.isMadeOfWeights(operand)) {
      candidate.isCertain = true;
    } else {
      std::string reason = getReason(gather, candidate.slice);
      if (!reason.empty())
        return reason;
      computed.push_back(&gather);
      return "its operand is computed in the step, not a weight";
    }
    return getReason(gather, candidate.slice);
  }

  /// The same for a gather of floating-point inputs, or of what is made of
  /// weights; `slice` is filled in.
  std::string getReason(StepCollective &gather, int64_t &slice) {
    Operation *op = gather.op;
    std::optional<StepFlow::StepResult> result =
        flow.getReachedResult(op->getResult(0));
    gather.isState = result.has_value();
    if (result)
      return "it gathers state, which is not rounded: result " +
             result->describe() +
             " of the step is made of it element by element";
    if (std::string axes = getOtherAxes(gather); !axes.empty())
      return "it gathers along " + axes +
             ", where all devices have the same data: it belongs to another "
             "kind of parallelism";
    slice = provenances.getSliceId(op->getOperand(0), /*inAnyIteration=*/true);
    return "";
  }

  static std::string printType(Type type) {
    std::string text;
    llvm::raw_string_ostream(text) << type;
    return text;
  }

  SmallVector<Candidate> getGathers() {
    SmallVector<Candidate> gathers;
    for (StepCollective &collective : collectives) {
      if (collective.kind != CollectiveKind::AllGather ||
          isRewritten(collective))
        continue;
      Candidate candidate{};
      collective.reason = getReason(collective, candidate);
      if (collective.reason.empty())
        gathers.push_back(candidate);
    }
    return gathers;
  }

  /// Decides which of the gathers whose inputs may be data are weight gathers,
  /// and from which of all of them gradients are computed.
  void chooseWeights(ArrayRef<Candidate> gathers,
                     ArrayRef<StepCollective *> sums,
                     const StepFlow::ValueSet &ancestors) {
    // For each shape, the number of gradient sums minus the number of known
    // weights. Each other weight needs a gradient of its own.
    llvm::DenseMap<int64_t, int64_t> gradients;
    for (StepCollective *sum : sums)
      if (sum->reason.empty())
        for (int64_t key : getKeys(*sum))
          ++gradients[key];
    llvm::DenseMap<int64_t, llvm::DenseSet<int64_t>> weights;
    llvm::DenseMap<int64_t, std::pair<bool, bool>> slices;
    for (const Candidate &candidate : gathers) {
      auto &[isCertain, isUsed] = slices[candidate.slice];
      isCertain |= candidate.isCertain;
      isUsed |= ancestors.contains(candidate.gather->op->getResult(0));
      for (int64_t key : getKeys(*candidate.gather))
        weights[key].insert(candidate.slice);
    }
    bool hasGradients = llvm::any_of(
        sums, [](StepCollective *sum) { return sum->reason.empty(); });
    for (const Candidate &candidate : gathers) {
      StepCollective &gather = *candidate.gather;
      auto [isCertain, isUsed] = slices.lookup(candidate.slice);
      SmallVector<int64_t, 2> keys = getKeys(gather);
      int64_t key = *llvm::max_element(keys, [&](int64_t a, int64_t b) {
        return gradients.lookup(a) < gradients.lookup(b);
      });
      int64_t numGradients = gradients.lookup(key);
      int64_t numWeights = weights[key].size();
      bool isNamed = candidate.input && named.contains(candidate.input);
      if (!isCertain && numGradients == 0)
        gather.reason =
            describeInput(candidate.input) +
            " seems to be data: no gradient of its shape is reduced, and the "
            "step does not return it updated; weights-of names weights";
      else if (!isCertain && numGradients < numWeights)
        gather.reason = describeInput(candidate.input) +
                        " may be data: " + std::to_string(numWeights) +
                        " inputs of its shape are gathered, but " +
                        std::to_string(numGradients) +
                        " gradients reduced; weights-of names weights";
      else if (hasGradients && !isUsed && !isNamed)
        gather.reason = "no gradient is computed from it; weights-of names "
                        "weights";
      else
        gather.role = Role::Weight;
    }
  }

  //===--------------------------------------------------------------------===//
  // Sums
  //===--------------------------------------------------------------------===//

  /// The reason why `sum` alone shows that it does not sum a gradient, or
  /// empty.
  std::string getReason(const StepCollective &sum) {
    Operation *op = sum.op;
    bool isScatter = sum.kind == CollectiveKind::ReduceScatter;
    if (op->getNumOperands() != 1 || op->getNumResults() != 1 ||
        !isFloatTensor(op->getOperand(0).getType()) ||
        !isFloatTensor(op->getResult(0).getType()))
      return isScatter ? "it does not scatter one f32, bf16 or f16 tensor of "
                         "static shape"
                       : "it is neither a gather of a weight nor a scatter "
                         "of a gradient";
    if (!isSum(op))
      return "its reduction is not a sum";
    auto type = cast<ShapedType>(op->getOperand(0).getType());
    if (!isScatter && type.getNumElements() == 1)
      return "it sums a scalar";
    if (isNeverNegative(op->getOperand(0)))
      return "it sums a statistic, not a gradient: no element of its operand "
             "can be negative";
    if (flow.holdsStepInput(op->getOperand(0)))
      return "it sums state, not a gradient: its operand is made of an input "
             "of the step element by element";
    if (std::string axes = getOtherAxes(sum); !axes.empty())
      return "it sums along " + axes +
             ", where all devices have the same data: it belongs to another "
             "kind of parallelism";
    return "";
  }

  /// The sums that may sum gradients. The others get their reasons.
  SmallVector<StepCollective *> getSums() {
    SmallVector<StepCollective *> sums;
    for (StepCollective &collective : collectives) {
      bool isScatter = collective.kind == CollectiveKind::ReduceScatter;
      if ((!isScatter && collective.kind != CollectiveKind::AllReduce) ||
          isRewritten(collective))
        continue;
      collective.reason = getReason(collective);
      if (collective.reason.empty())
        sums.push_back(&collective);
    }
    return sums;
  }

  /// Decides which of `sums` are ones of gradients; the others get their
  /// reasons. Returns what the gradients are computed from.
  StepFlow::ValueSet chooseGradients(ArrayRef<Candidate> gathers,
                                     ArrayRef<StepCollective *> sums) {
    auto getOperands = [](ArrayRef<StepCollective *> sums) {
      return llvm::map_to_vector(
          sums, [](StepCollective *sum) { return sum->op->getOperand(0); });
    };
    llvm::DenseSet<int64_t> gatherKeys;
    for (const Candidate &candidate : gathers)
      gatherKeys.insert_range(getKeys(*candidate.gather));
    llvm::SmallDenseSet<StepCollective *> mirrors;
    for (StepCollective *sum : sums)
      if (llvm::any_of(getKeys(*sum),
                       [&](int64_t key) { return gatherKeys.contains(key); }))
        mirrors.insert(sum);

    StepFlow::ValueSet ofAll = flow.getAncestors(getOperands(sums));
    SmallVector<Value> inFlight;
    for (StepCollective *gather : computed)
      if (ofAll.contains(gather->op->getResult(0)))
        inFlight.push_back(gather->op->getOperand(0));
    SmallVector<BlockArgument> held = flow.getHeldInputs(inFlight, ofAll);
    for (size_t index = inFlight.size(); index-- > 0;)
      if (!held[index])
        inFlight.erase(inFlight.begin() + index);
    StepFlow::Updates updates = flow.getUpdates(ofAll, inFlight);

    // A weight is updated with it, or it mirrors a gather and weights depend
    // on it. What only divides is no gradient: rounded to zero, it would make
    // the update infinite.
    auto divides = [&](StepCollective *sum) {
      Value result = sum->op->getResult(0);
      return updates.movedOrDivided.contains(result) &&
             !updates.moved.contains(result);
    };
    auto isGradient = [&](StepCollective *sum) {
      Value result = sum->op->getResult(0);
      if (divides(sum))
        return false;
      return updates.moved.contains(result) ||
             (mirrors.contains(sum) &&
              (!updates.hasUpdates || updates.contributing.contains(result) ||
               updates.accumulated.contains(result)));
    };
    SmallVector<StepCollective *> chosen, rest;
    for (StepCollective *sum : sums)
      (isGradient(sum) ? chosen : rest).push_back(sum);
    // Or the step keeps it for another time: but not what is computed from
    // gradients.
    StepFlow::ValueSet statistics = flow.getDescendants(getResults(chosen));
    for (StepCollective *sum : rest) {
      Value result = sum->op->getResult(0);
      bool isKept = updates.hasUpdates
                        ? updates.accumulated.contains(result) &&
                              updates.contributing.contains(result)
                        : updates.accumulated.contains(result) ||
                              updates.returned.contains(result);
      std::optional<StepFlow::StepResult> reached =
          flow.getReachedResult(result);
      if (divides(sum))
        sum->reason = "it sums a statistic, not a gradient: weights are "
                      "updated only with what is divided by it";
      else if (!reached)
        sum->reason = "it mirrors no weight gather, and no result of the step "
                      "is made of it element by element";
      else if (isKept && !statistics.contains(result))
        chosen.push_back(sum);
      else
        sum->reason = "it sums no gradient: result " + reached->describe() +
                      " of the step, which is made of it, is no weight that a "
                      "gradient is computed from";
    }

    StepFlow::ValueSet ancestors = flow.getAncestors(getOperands(chosen));
    for (StepCollective *sum : chosen) {
      // Where a gradient is computed from an updated weight, it is computed
      // from the gradient of that.
      Value result = sum->op->getResult(0);
      if (ancestors.contains(result) &&
          !(mirrors.contains(sum) && updates.moved.contains(result)))
        sum->reason = "a gradient is computed from its result: it sums "
                      "activations";
      else
        sum->role = Role::Gradient;
    }
    return ancestors;
  }

  static SmallVector<Value> getResults(ArrayRef<StepCollective *> sums) {
    return llvm::map_to_vector(sums, [](StepCollective *sum) -> Value {
      return sum->op->getResult(0);
    });
  }

  /// Adds gathers of weights that the step has updated, or moved by a gradient
  /// for a while: made of weights, gradients and sums of scalars alone.
  void addUpdatedWeights(SmallVectorImpl<Candidate> &gathers,
                         ArrayRef<StepCollective *> sums,
                         const StepFlow::ValueSet &ancestors) {
    if (computed.empty())
      return;
    SmallVector<Value> cuts;
    for (StepCollective *sum : sums)
      if (sum->reason.empty())
        cuts.push_back(sum->op->getResult(0));
    for (const StepCollective &sum : collectives)
      if (sum.kind == CollectiveKind::AllReduce)
        for (Value result : sum.op->getResults())
          if (auto type = dyn_cast<ShapedType>(result.getType());
              type && type.hasStaticShape() && type.getNumElements() == 1)
            cuts.push_back(result);
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
      gather->reason = getReason(*gather, candidate.slice);
      if (gather->reason.empty())
        gathers.push_back(candidate);
    }
  }

  //===--------------------------------------------------------------------===//
  // All
  //===--------------------------------------------------------------------===//

  /// The keys of getMirrorKeys(), numbered.
  SmallVector<int64_t, 2> getKeys(const StepCollective &collective) {
    auto [it, isNew] = mirrorKeys.try_emplace(collective.op);
    if (isNew)
      for (const std::string &key : getMirrorKeys(collective))
        it->second.push_back(
            keyNumbers.try_emplace(key, keyNumbers.size()).first->second);
    return it->second;
  }

  static bool isRewritten(const StepCollective &collective) {
    return isa<zero::CollectiveOpInterface>(collective.op);
  }

  void numberWeights(const StepFlow::ValueSet &ancestors) {
    SmallVector<StepCollective *> gathers;
    SmallVector<Value> operands;
    for (StepCollective &gather : collectives)
      if (gather.role == Role::Weight) {
        gathers.push_back(&gather);
        operands.push_back(gather.op->getOperand(0));
      }
    // What is computed from a weight is that weight.
    SmallVector<BlockArgument> held = flow.getHeldInputs(operands, ancestors);
    WeightNumbering weights(provenances);
    SmallVector<Value> roots;
    llvm::DenseSet<Value> inLoops;
    for (auto [gather, operand, input] :
         llvm::zip_equal(gathers, operands, held)) {
      bool isNew;
      std::tie(gather->weight, isNew) = weights.insert(gather->op);
      gather->phase = isNew ? Phase::Forward : Phase::Backward;
      gather->modelBytes = getBytes(gather->op->getResult(0).getType());
      Provenance provenance = provenances.get(operand);
      bool isComputed = !provenance.isStepInput && input;
      roots.push_back(isComputed ? input : provenance.root);
      if (provenance.isSliced && gather->trips.value_or(1) > 1)
        inLoops.insert(provenance.root);
      auto root = dyn_cast<ShapedType>(roots.back().getType());
      // A loop over stacked weights gathers the whole stack.
      if ((provenance.isSliced || isComputed) && root &&
          root.hasStaticShape() && gather->trips.value_or(1) > 1)
        gather->modelBytes =
            multiplySaturating(gather->modelBytes, *gather->trips);
    }
    limitModelBytes(gathers, roots, inLoops);
  }

  void setPhases() {
    bool isBackward = false;
    for (StepCollective &collective : collectives) {
      if (collective.role == Role::Weight) {
        isBackward |= collective.phase == Phase::Backward;
        continue;
      }
      if (collective.role == Role::Other) {
        if (collective.reason.empty())
          collective.reason =
              "it is neither a gather of a weight nor a scatter of a "
              "gradient";
        if (!collective.groupError.empty() &&
            collective.kind != CollectiveKind::CollectivePermute)
          collective.reason +=
              "; its bytes are not counted: " + collective.groupError;
      }
      isBackward |= collective.role == Role::Gradient;
      collective.phase = isBackward ? Phase::Backward : Phase::Forward;
    }
  }

  const NamedWeights &named;
  ProvenanceAnalysis provenances;
  MutableArrayRef<StepCollective> collectives;
  llvm::DenseSet<Value> gathered;
  SplitInputs splitInputs;
  StepFlow flow;
  /// Gathers of what the step computes.
  SmallVector<StepCollective *> computed;
  /// The axes along which data differs; empty if nothing is known about data.
  std::vector<AxisRef> dataAxes;
  llvm::DenseMap<Operation *, SmallVector<int64_t, 2>> mirrorKeys;
  llvm::StringMap<int64_t> keyNumbers;
};
} // namespace

SmallVector<StepCollective> zpp::readStepCollectives(ModuleOp module,
                                                     const Mesh &mesh) {
  SmallVector<StepCollective> result;
  CollectiveReader reader(mesh);
  ProvenanceAnalysis provenances;
  auto add = [&](Operation *op, Operation *start, int64_t index) {
    std::optional<CollectiveView> view = reader.read(op);
    if (!view)
      return false;
    // What is in the region of another collective goes with it.
    for (Operation *parent = op->getParentOp(); parent;
         parent = parent->getParentOp())
      if (getGuestCollective(parent))
        return false;
    StepCollective collective;
    static_cast<CollectiveView &>(collective) = std::move(*view);
    collective.start = start;
    collective.index = index;
    collective.trips = provenances.getTripCount(start ? start : op);
    result.push_back(std::move(collective));
    return true;
  };
  // Outlined collectives count where they are started.
  walkStep(module, [&](Operation *op) {
    if (FunctionOpInterface function = getStartedFunction(op)) {
      int64_t index = 0;
      function->walk(
          [&](Operation *exchange) { index += add(exchange, op, index); });
    } else {
      add(op, nullptr, 0);
    }
    return WalkResult::advance();
  });
  return result;
}

void zpp::findRoles(ModuleOp module, const Mesh &mesh,
                    const NamedWeights &named,
                    MutableArrayRef<StepCollective> collectives) {
  RoleFinder(module, mesh, named, collectives).run();
}

SmallVector<StepCollective> zpp::getStepCollectives(ModuleOp module,
                                                    const Mesh &mesh,
                                                    const NamedWeights &named) {
  SmallVector<StepCollective> collectives = readStepCollectives(module, mesh);
  findRoles(module, mesh, named, collectives);
  return collectives;
}
