//===- ImportCollectives.cpp - Import the collectives of a step -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SplitBuckets.h"
#include "StepInliner.h"
#include "mlir/IR/Builders.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Provenance.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/WrittenGroups.h"
#include "zpp/Support/Limits.h"
#include "zpp/Transforms/Attributes.h"
#include "zpp/Transforms/Passes.h"
#include "zpp/Transforms/Report.h"
#include "llvm/ADT/SetVector.h"

namespace zpp {
#define GEN_PASS_DEF_IMPORTCOLLECTIVESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

class ImportCollectivesPass
    : public zpp::impl::ImportCollectivesPassBase<ImportCollectivesPass> {
public:
  using ImportCollectivesPassBase::ImportCollectivesPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<Mesh> stepMesh = getStepMesh(module, mesh);
    if (failed(stepMesh))
      return signalPassFailure();
    FailureOr<Machine> machine =
        Machine::read(module, *stepMesh, links, device);
    FailureOr<Declarations> declared =
        Declarations::parse(module, weightsOf, gradientsOf);
    if (failed(machine) || failed(declared) || failed(inlineStep(module)))
      return signalPassFailure();
    SplitBuckets buckets(module);
    SmallVector<StepCollective> collectives =
        getStepCollectives(module, *stepMesh, *declared);
    // From here on, all that are left alone have a reason.
    AutomaticAxes automatic;
    for (StepCollective &collective : collectives) {
      Decision<> decision = mayImport(collective, automatic);
      collective.reason = decision ? "" : decision.getReason();
    }
    restoreBuckets(buckets, collectives);
    if (collectives.empty() && !module->hasAttr(kMachineAttr))
      remarkNoCollectives(module, getArgument());
    int64_t nextId = 0;
    for (const StepCollective &collective : collectives)
      for (const Origin &origin : getOrigins(collective))
        nextId = std::max(nextId, origin.id + 1);
    // Skip the collectives that an earlier run has classified.
    llvm::erase_if(collectives, [](const StepCollective &collective) {
      return isa<CollectiveOpInterface>(collective.op) ||
             collective.op->hasAttr(kOriginAttr);
    });
    // Change nothing before all checks have passed.
    bool isSound = true;
    for (const StepCollective &collective : collectives)
      if (collective.reason.empty())
        isSound &= succeeded(check(collective));
    if (!isSound)
      return signalPassFailure();

    noteGroupMesh(module);
    machine->set(module);
    module->removeAttr(report::kChoicesAttr);
    // A plan that the module brings is none of this run.
    module.walk([](Operation *op) { op->removeDiscardableAttr(kLoopAttr); });
    setTaken(module, collectives);
    module.walk([&](Operation *op) {
      if (getCallTarget(op) == "ragged_all_to_all" && !op->hasAttr(kReasonAttr))
        leaveAlone(op, getArgument(),
                   "only the data say how much it exchanges");
    });
    auto meshAttr = MeshAttr::get(&getContext(), *stepMesh);
    SmallVector<Value> inputs = getInputs(collectives);
    for (auto [collective, input] : llvm::zip_equal(collectives, inputs)) {
      Origin origin = getOrigin(collective, *stepMesh, nextId++);
      if (auto sent = dyn_cast_or_null<DenseI64ArrayAttr>(
              collective.op->removeAttr(kSentAttr)))
        origin.before = sent.asArrayRef().vec();
      describe(collective, origin);
      if (updated && collective.isState)
        collective.op->setAttr(kUpdatedAttr, UnitAttr::get(&getContext()));
      else if (!collective.reason.empty())
        leaveAlone(collective.op, getArgument(), collective.reason);
      else if (collective.kind == CollectiveKind::AllToAll)
        collective.op->setLoc(
            getNamedLocation(collective.op, collective.role, Value()));
      else
        import(collective, input, meshAttr);
    }
  }

private:
  /// Writes down what the collective is before the rewrite.
  void describe(const StepCollective &collective, const Origin &origin) {
    Operation *op = collective.op;
    op->setAttr(kOriginAttr, getOriginAttr(&getContext(), origin));
    if (!collective.trips)
      remarkAnalysis(op, getArgument(), "unknown-trips")
          << ("the trip count of a loop around " +
              op->getName().getStringRef() +
              " is not constant; its bytes are counted once")
                 .str();
  }

  /// Returns the arguments of the step that collectives gather, or whose
  /// gradients they sum; null where that is no argument.
  static SmallVector<Value> getInputs(ArrayRef<StepCollective> collectives) {
    ProvenanceAnalysis provenances;
    SmallVector<Value> inputs;
    for (const StepCollective &collective : collectives) {
      Value &input = inputs.emplace_back(collective.argument);
      if (collective.kind != CollectiveKind::AllGather ||
          collective.op->getNumOperands() == 0)
        continue;
      Provenance from = provenances.get(collective.op->getOperand(0));
      if (from.isStepInput)
        input = from.root;
    }
    return inputs;
  }

  static void setTaken(ModuleOp module, ArrayRef<StepCollective> collectives) {
    llvm::SmallSetVector<int64_t, 8> taken;
    for (const StepCollective &collective : collectives)
      if (collective.taken)
        taken.insert(*collective.taken);
    if (!taken.empty())
      module->setAttr(kTakenAttr, DenseI64ArrayAttr::get(module.getContext(),
                                                         taken.getArrayRef()));
  }

  /// Makes each bucket of which no part is imported one collective again, with
  /// the reasons of its parts.
  static void restoreBuckets(SplitBuckets &buckets,
                             SmallVector<StepCollective> &collectives) {
    llvm::SmallDenseSet<Operation *> imported;
    for (const StepCollective &collective : collectives)
      if (collective.reason.empty())
        imported.insert(collective.op);
    llvm::DenseMap<Operation *, Operation *> wholes;
    for (const SplitBuckets::Bucket &bucket :
         buckets.restore([&](Operation *op) { return imported.contains(op); }))
      for (Operation *part : bucket.parts)
        wholes[part] = bucket.whole;
    if (wholes.empty())
      return;
    llvm::DenseMap<Operation *, size_t> known;
    SmallVector<StepCollective> all;
    for (StepCollective &collective : collectives) {
      Operation *whole = wholes.lookup(collective.op);
      if (!whole) {
        all.push_back(std::move(collective));
        continue;
      }
      auto [it, isFirst] = known.try_emplace(whole, all.size());
      if (isFirst) {
        all.push_back(std::move(collective));
        all.back().op = whole;
        continue;
      }
      StepCollective &first = all[it->second];
      if (!StringRef(first.reason).contains(collective.reason))
        first.reason += "; " + collective.reason;
      // One op has one role.
      if (first.role != collective.role || first.weight != collective.weight) {
        first.role = Role::Other;
        first.weight = -1;
        first.modelBytes = 0;
      }
    }
    collectives = std::move(all);
  }

  /// Checks what import relies on: groups that are a product over tiers, and a
  /// whole tensor of as many parts as the group has devices.
  static LogicalResult check(const StepCollective &collective) {
    Operation *op = collective.op;
    if (collective.kind == CollectiveKind::AllReduce) {
      Type operand = op->getOperand(0).getType();
      Type result = op->getResult(0).getType();
      if (operand != result)
        return op->emitError("expected a result of ")
               << operand << ", but got " << result;
      return success();
    }
    if (!collective.groupError.empty())
      return op->emitError("in the groups of a ")
             << getRoleName(collective.role)
             << " collective: " << collective.groupError;
    RankedTensorType whole = getTensorType(op->getOperand(0));
    RankedTensorType part = getTensorType(op->getResult(0));
    if (collective.kind == CollectiveKind::AllGather)
      std::swap(whole, part);
    int64_t dim = collective.dim;
    // zero-quantize-exchanges checks those.
    if (collective.kind == CollectiveKind::AllToAll)
      return success();
    if (dim < 0 || dim >= part.getRank())
      return op->emitError("expected a dim of ") << part << ", but got " << dim;
    SmallVector<int64_t> shape(part.getShape());
    shape[dim] =
        multiplySaturating(shape[dim], zpp::numDevices(collective.axes));
    if (RankedTensorType expected = part.clone(shape); whole != expected)
      return op->emitError("expected the parts ")
             << part << " of " << zpp::numDevices(collective.axes)
             << " devices to make " << expected << ", but got " << whole;
    return success();
  }

  /// True if `zero` ops may have the tensors of `op` (docs/reliability.md).
  static bool fitsShards(Operation *op) {
    auto fits = [](Type type) {
      int64_t elements = 1;
      for (int64_t size : cast<ShapedType>(type).getShape())
        elements = multiplySaturating(elements, size);
      return elements <= kMaxElements;
    };
    return fits(op->getOperand(0).getType()) &&
           fits(op->getResult(0).getType());
  }

  /// Whether the collective is imported, or why it is left alone.
  Decision<> mayImport(const StepCollective &collective,
                       AutomaticAxes &automatic) {
    if (collective.role == Role::Other)
      return LeftAlone(collective.explain());
    if (collective.role == Role::Moment && !moments)
      return LeftAlone("it moves a gradient or momentum, which products "
                       "contract before it updates a weight, or this update; "
                       "moments=i8 rounds what is sent (R19)");
    if (collective.role == Role::Exchange && !exchanges)
      return LeftAlone(
          "it exchanges rows with experts; exchanges=i8 rounds what "
          "is sent (R20)");
    if (collective.role == Role::Weight && !weights)
      return LeftAlone("gathers of weights are to stay as they are");
    bool isAllReduce = collective.kind == CollectiveKind::AllReduce;
    if (collective.role == Role::Gradient && !gradients)
      return LeftAlone(isAllReduce
                           ? "all-reduces of gradients are to stay as they are"
                           : "scatters of gradients are to stay as they are");
    bool becomesAllToAll = isAllReduce ||
                           collective.kind == CollectiveKind::ReduceScatter ||
                           collective.kind == CollectiveKind::AllToAll;
    if (isAllReduce && !collective.groupError.empty())
      return LeftAlone(collective.groupError);
    if (const std::string &axes = automatic.get(collective.op); !axes.empty())
      return LeftAlone("its manual computation leaves the axes " + axes +
                       " to the partitioner");
    // A gather can use device ids, but an all-to-all only ids of replicas or of
    // partitions.
    ModuleCopies copies = getModuleCopies(getOperation());
    if (becomesAllToAll && copies.replicas > 1 && copies.partitions > 1)
      return LeftAlone(
          "the module has " + std::to_string(copies.replicas) +
          " replicas of " + std::to_string(copies.partitions) +
          " partitions each, over which StableHLO has no all-to-all");
    if (cast<ShapedType>(collective.op->getOperand(0).getType())
            .getNumElements() == 0)
      return LeftAlone("its tensor is empty");
    if (!fitsShards(collective.op))
      return LeftAlone("its tensor has 2^57 elements or more");
    if (collective.axes.empty() && collective.groupError.empty())
      return LeftAlone("its groups have one device each");
    return Yes();
  }

  void import(const StepCollective &collective, Value input,
              MeshAttr meshAttr) {
    Operation *op = collective.op;
    OpBuilder builder(op);
    // Everything that becomes of the collective has this name.
    Location loc = getNamedLocation(op, collective.role, input);
    bool isGather = collective.kind == CollectiveKind::AllGather;
    bool isAllReduce = collective.kind == CollectiveKind::AllReduce;
    Value operand = op->getOperand(0), result = op->getResult(0);
    auto whole = getTensorType(isGather ? result : operand);

    Mesh plain = meshAttr.getMesh();
    SmallVector<FactorAttr> partitioned, held;
    for (const AxisRef &axis : collective.axes) {
      partitioned.push_back(FactorAttr::getPartitioned(
          AxisRefAttr::get(&getContext(), plain, axis)));
      held.push_back(FactorAttr::getWhole(&getContext(), axis.size));
    }
    // What is reduced to everyone is split into pieces later.
    if (isAllReduce)
      partitioned.clear();
    auto primary =
        ShardType::get(&getContext(), whole, isAllReduce ? 0 : collective.dim,
                       partitioned, meshAttr, QuantAttr());
    auto full = isAllReduce ? primary : primary.withFactors(held);
    ArrayAttr along = getAxesAttr(&getContext(), plain, collective.axes);

    Value shard =
        FromLocalOp::create(builder, loc, isGather ? primary : full, operand);
    Operation *imported;
    if (isGather)
      imported = AllGatherOp::create(builder, loc, full, shard, along);
    else if (isAllReduce)
      imported =
          AllReduceOp::create(builder, loc, ReduceKind::Sum, shard, along);
    else
      imported = ReduceScatterOp::create(builder, loc, primary, ReduceKind::Sum,
                                         shard, along, QuantAttr());
    copyOrigin(op, imported);
    if (op->getName().getDialectNamespace() == "stablehlo")
      setSource(op, imported);
    result.replaceAllUsesWith(ToLocalOp::create(builder, loc, result.getType(),
                                                imported->getResult(0)));
    op->erase();
  }
};

} // namespace
