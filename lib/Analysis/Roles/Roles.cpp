//===- Roles.cpp - What the collectives of a step are for -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Roles/Roles.h"
#include "zpp/Analysis/Loops/CountedLoop.h"

#include "RoleFinder.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Roles/Divisions.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/BlockQuant.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/StringExtras.h"

#include <numeric>

using namespace mlir;
using namespace zpp;

StringRef zpp::getRoleName(Role role) {
  static constexpr llvm::StringLiteral names[] = {
      "weight", "gradient", "moment", "exchange", "update", "other"};
  return names[static_cast<unsigned>(role)];
}

StringRef zpp::getPhaseName(Phase phase) {
  return phase == Phase::Forward ? "forward" : "backward";
}

std::string StepCollective::explain() const {
  return rule == Rule::None ? reason
                            : reason + " (" + getRuleName(rule).str() + ")";
}

bool zpp::isFloatTensor(Type type) {
  return hasStaticShape(type) &&
         zero::isQuantizable(getElementTypeOrSelf(type));
}

bool zpp::isRewritten(const StepCollective &collective) {
  return isa<zero::CollectiveOpInterface>(collective.op);
}

bool zpp::covers(ArrayRef<AxisRef> axes, const AxisRef &ref) {
  return llvm::any_of(axes, [&](const AxisRef &axis) {
    return axis.name == ref.name && axis.preSize <= ref.preSize &&
           ref.preSize * ref.size <= axis.preSize * axis.size;
  });
}

//===----------------------------------------------------------------------===//
// Data
//===----------------------------------------------------------------------===//

RoleFinder::RoleFinder(ModuleOp module, const Mesh &mesh,
                       const Declarations &declared,
                       MutableArrayRef<StepCollective> collectives)
    : mesh(mesh), declared(declared), collectives(collectives),
      gathered(findGatheredInputs()),
      splitInputs(findSplitInputs(module, mesh)), graph(module),
      flow(
          graph,
          [&](BlockArgument input) { return declared.weights.contains(input); },
          [&](BlockArgument input) { return isData(input); }) {
  findDataAxes();
}

bool RoleFinder::isData(BlockArgument input) const {
  return splitInputs.contains(input) && !declared.weights.contains(input) &&
         !gathered.contains(input);
}

void RoleFinder::run() {
  SmallVector<Candidate> gathers = getGathers();
  SmallVector<StepCollective *> sums = getSums();
  NodeSet ancestors = chooseGradients(gathers, sums);
  addUpdatedWeights(gathers, sums, ancestors);
  chooseWeights(gathers, sums, ancestors);
  chooseMoments(ancestors);
  chooseExchanges(ancestors);
  keepExact();
  numberWeights(ancestors);
  setPhases();
}

/// Returns the inputs of the step that are gathered.
llvm::DenseSet<Value> RoleFinder::findGatheredInputs() {
  llvm::DenseSet<Value> inputs;
  for (const StepCollective &collective : collectives)
    if (collective.kind == CollectiveKind::AllGather)
      inputs.insert(provenances.get(collective.op->getOperand(0)).root);
  return inputs;
}

static bool isInteger(Value input) {
  return getElementTypeOrSelf(input.getType()).isInteger();
}

/// Returns the inputs of the step that manual computations split, and the axes
/// that split them.
RoleFinder::SplitInputs RoleFinder::findSplitInputs(ModuleOp module,
                                                    const Mesh &mesh) {
  SplitInputs result;
  module.walk([&](Operation *op) {
    if (!isNamed(op, guest::kSdyManualComputation))
      return;
    OperandShardings shardings(op);
    for (OpOperand &operand : op->getOpOperands()) {
      Provenance provenance = provenances.get(operand.get());
      if (!provenance.isStepInput || !isa<ShapedType>(operand.get().getType()))
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
void RoleFinder::findDataAxes() {
  std::vector<AxisRef> ofFloats;
  for (auto &[value, axes] : splitInputs) {
    auto input = cast<BlockArgument>(value);
    if (!flow.getReachedResult(input) && !declared.weights.contains(input) &&
        !gathered.contains(input))
      llvm::append_range(isInteger(input) ? dataAxes : ofFloats, axes);
  }
  // Inputs that are not floating-point, such as tokens and labels, are
  // certainly data.
  if (dataAxes.empty())
    dataAxes = std::move(ofFloats);
}

/// R2: an objection if all devices have the same data along an axis of
/// `collective`, such as "tensor, expert". None if nothing is known about data.
std::optional<Objection> RoleFinder::checkAxes(const StepCollective &collective,
                                               StringRef verb) const {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::ListSeparator separator;
  if (!dataAxes.empty())
    for (const AxisRef &axis : collective.axes)
      if (!covers(dataAxes, axis))
        os << separator << axis.name;
  if (text.empty())
    return {};
  return Objection{Rule::Axes,
                   (verb + " along " + text +
                    ", where all devices have the same data: it belongs to "
                    "another kind of parallelism")
                       .str()};
}

//===----------------------------------------------------------------------===//
// All
//===----------------------------------------------------------------------===//

GradientProver &RoleFinder::getProver() {
  if (!prover)
    prover = std::make_unique<GradientProver>(
        graph, [&](BlockArgument input) { return isData(input); },
        [&](BlockArgument input) {
          return splitInputs.contains(input) && gathered.contains(input) &&
                 !declared.weights.contains(input) && !flow.isReturned(input);
        });
  return *prover;
}

const Bits &RoleFinder::getBits() {
  if (!bits)
    bits.emplace(graph);
  return *bits;
}

/// Says which collectives move what is never rounded: R1, integers; R17, what
/// is read as another kind of number; R12, weights that divide; R14, the points
/// of a difference of gradients; and R18, stacks of parameters that have no
/// blocks of their own.
void RoleFinder::keepExact() {
  for (StepCollective &collective : collectives) {
    Value operand = collective.op->getNumOperands() == 1
                        ? collective.op->getOperand(0)
                        : Value();
    if (!operand ||
        (collective.role != Role::Weight && collective.role != Role::Gradient &&
         collective.role != Role::Moment && !collective.isState))
      continue;
    std::optional<Objection> why = chooseBlock(collective);
    bool isGather = collective.kind == CollectiveKind::AllGather;
    bool moves = isGather || collective.kind == CollectiveKind::AllToAll;
    if (isGather && getElementTypeOrSelf(operand).isInteger()) {
      if (collective.rule == Rule::Layer || collective.rule == Rule::Declared)
        why = Objection{Rule::Form, "its elements are integers"};
    } else if (std::optional<std::string> bits =
                   moves
                       ? getBits().explain(operand, collective.op->getResult(0))
                       : std::nullopt) {
      why =
          Objection{Rule::Bits, "its elements are bits, not numbers: " + *bits};
    } else if (isGather && isDividedBy(graph, collective.op->getResult(0))) {
      why = Objection{Rule::Divisor,
                      "the step divides by its elements, or takes logarithms "
                      "or roots of them: small ones matter most"};
    } else if (collective.role == Role::Weight &&
               atPoints.contains(collective.op)) {
      why = Objection{
          Rule::Difference,
          "the step subtracts gradients at two points that are close to each "
          "other, of which this is one; gradients-of names gradients"};
    }
    if (why)
      collective.exact =
          why->reason + " (" + getRuleName(why->rule).str() + ")";
  }
}

int64_t zpp::getRowDim(RankedTensorType type) {
  int64_t dim = type.getRank() - 1;
  while (dim > 0 && type.getDimSize(dim) == 1)
    --dim;
  return dim;
}

std::optional<Objection> zpp::chooseRowBlock(StepCollective &collective,
                                             int64_t size, Rule rule) {
  int64_t block = size & -size;
  if (block < kMinBlock)
    return Objection{rule, size < 2
                               ? "its rows have elements of several matrices"
                               : "its rows have " + std::to_string(size) +
                                     " elements, which are no whole blocks"};
  if (block < kMaxBlock)
    collective.block = block;
  return {};
}

/// Chooses blocks for a stack of parameters, if the collective moves one.
/// Objects to any where a device has no whole blocks of each parameter.
std::optional<Objection> RoleFinder::chooseBlock(StepCollective &collective) {
  // A block of those is of one row.
  if (collective.kind == CollectiveKind::AllToAll)
    return {};
  bool isGather = collective.kind == CollectiveKind::AllGather;
  Operation *op = collective.op;
  Value whole = isGather ? op->getResult(0) : op->getOperand(0);
  Value part = isGather ? op->getOperand(0) : op->getResult(0);
  if (!isFloatTensor(whole.getType()) || !isFloatTensor(part.getType()))
    return {};
  if (!stacks)
    stacks.emplace(graph);
  RankedTensorType type = getTensorType(whole);
  RankedTensorType partType = getTensorType(part);
  int64_t own = stacks->getPartSize(whole, type, partType);
  int64_t ofShape = 0;
  // A gradient has the shape of its weight, which is not always known.
  auto isOfAnother = [&](Value weight) {
    Operation *op = weight.getDefiningOp();
    bool isGathered = op && op->getNumOperands() == 1;
    return collective.argument &&
           provenances.get(isGathered ? op->getOperand(0) : weight).root !=
               collective.argument;
  };
  if (!isGather)
    for (Value weight : stacks->getValues())
      if (auto shape = getTensorType(weight).getShape();
          (shape == type.getShape() || shape == partType.getShape()) &&
          !isOfAnother(weight))
        ofShape =
            std::gcd(ofShape, stacks->getPartSize(weight, type, partType));
  int64_t size = std::gcd(own, ofShape);
  if (size == 0)
    return {};
  std::string what = "a device has " + std::to_string(size) +
                     " elements of each " +
                     (own == size || collective.argument
                          ? "of its parameters, which are"
                          : "parameter of a stack of its shape, which are");
  if (collective.kind == CollectiveKind::AllReduce) {
    // Each device sums up a piece.
    int64_t devices = std::max<int64_t>(zpp::numDevices(collective.axes), 1);
    int64_t piece = llvm::divideCeil(type.getNumElements(), devices);
    if (size % piece != 0 && std::gcd(size, piece) < kMinBlock)
      what = "a device sums up pieces of " + std::to_string(piece) +
             " elements of parameters of " + std::to_string(size) +
             ", which have";
    size = std::gcd(size, piece);
  }
  int64_t block = size & -size;
  if (block < kMinBlock)
    return Objection{Rule::Stack, what + " no whole blocks"};
  if (block < kMaxBlock)
    collective.block = block;
  return {};
}

/// Returns the keys of getMirrorKeys(), numbered.
SmallVector<int64_t, 2> RoleFinder::getKeys(const StepCollective &collective) {
  auto [it, isNew] = mirrorKeys.try_emplace(collective.op);
  if (isNew)
    for (const std::string &key : getMirrorKeys(collective))
      it->second.push_back(
          keyNumbers.try_emplace(key, keyNumbers.size()).first->second);
  return it->second;
}

void RoleFinder::setPhases() {
  bool isBackward = false;
  for (StepCollective &collective : collectives) {
    if (collective.role == Role::Weight) {
      isBackward |= collective.phase == Phase::Backward;
      continue;
    }
    if (collective.role == Role::Other) {
      if (collective.reason.empty())
        object(collective,
               Objection{Rule::Form,
                         "it is neither a gather of a weight nor a scatter "
                         "of a gradient"});
      if (!collective.groupError.empty() &&
          collective.kind != CollectiveKind::CollectivePermute)
        collective.reason +=
            "; its bytes are not counted: " + collective.groupError;
    }
    isBackward |= collective.role == Role::Gradient;
    collective.phase = isBackward ? Phase::Backward : Phase::Forward;
  }
}

/// True if `op` is in a branch.
static bool isConditional(Operation *op) {
  for (Operation *parent = op->getParentOp(); parent;
       parent = parent->getParentOp())
    if (isNamed(parent, guest::kIf) || isNamed(parent, guest::kCase))
      return true;
  return false;
}

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
    Operation *site = start ? start : op;
    collective.trips = getTripCount(site, provenances);
    collective.isConditional = isConditional(site);
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
                    const Declarations &declared,
                    MutableArrayRef<StepCollective> collectives) {
  RoleFinder(module, mesh, declared, collectives).run();
}

SmallVector<StepCollective>
zpp::getStepCollectives(ModuleOp module, const Mesh &mesh,
                        const Declarations &declared) {
  SmallVector<StepCollective> collectives = readStepCollectives(module, mesh);
  findRoles(module, mesh, declared, collectives);
  if (declared.isEmpty())
    return collectives;
  // A declaration decides only where the step shows something else.
  SmallVector<StepCollective> shown = readStepCollectives(module, mesh);
  findRoles(module, mesh, Declarations(), shown);
  for (auto [collective, other] : llvm::zip_equal(collectives, shown))
    if (collective.rule == Rule::Declared && other.role == collective.role)
      collective.rule = other.rule;
  return collectives;
}
