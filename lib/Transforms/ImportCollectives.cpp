//===- ImportCollectives.cpp - Import the collectives of a step -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_IMPORTCOLLECTIVESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// Inlines calls so that every collective of the step, and everything between a
/// step input and a gather, lies in the step's own regions: a function that
/// serves several layers has no one meaning for its collectives.
class StepInliner {
public:
  StepInliner(ModuleOp module, const Mesh &mesh)
      : module(module), symbols(module), mesh(mesh) {}

  void run() {
    for (auto function : module.getOps<func::FuncOp>())
      if (function.isPublic())
        inlineCollectives(function);
    eraseUncalled();
    // The operand of a gather may come out of a helper (a dynamic index).
    SmallVector<Operation *> gathers;
    module.walk([&](Operation *op) {
      std::optional<CollectiveView> view = getCollective(op, mesh);
      if (view && view->kind == CollectiveKind::AllGather)
        gathers.push_back(op);
    });
    for (Operation *gather : gathers)
      while (true) {
        Provenance provenance = getProvenance(gather->getOperand(0));
        auto *call =
            llvm::find_if(provenance.path, llvm::IsaPred<func::CallOp>);
        if (!provenance.isStepInput || call == provenance.path.end() ||
            !inlineCall(cast<func::CallOp>(*call)))
          break;
      }
    eraseUncalled();
  }

private:
  /// True if the function or one that it calls has a collective.
  bool hasCollective(func::FuncOp function) {
    auto [it, isNew] = known.try_emplace(function, false);
    if (!isNew)
      return it->second;
    bool found = false;
    function.walk([&](Operation *op) {
      if (auto call = dyn_cast<func::CallOp>(op)) {
        if (auto callee = symbols.lookup<func::FuncOp>(call.getCallee()))
          found |= hasCollective(callee);
        return;
      }
      found |= getCollective(op, mesh).has_value();
    });
    return known[function] = found;
  }

  void inlineCollectives(func::FuncOp function) {
    SmallVector<func::CallOp> calls;
    function.walk([&](func::CallOp call) { calls.push_back(call); });
    for (func::CallOp call : calls) {
      auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
      if (!callee || callee == function || !callee.isPrivate() ||
          !hasCollective(callee))
        continue;
      // Innermost first, so that each callee is done when it is copied.
      if (inlined.insert(callee).second)
        inlineCollectives(callee);
      inlineCall(call);
    }
  }

  bool inlineCall(func::CallOp call) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    if (!callee || callee.isExternal() || !callee.getBody().hasOneBlock())
      return false;
    OpBuilder builder(call);
    IRMapping mapping;
    Block &body = callee.getBody().front();
    mapping.map(body.getArguments(), call.getOperands());
    for (Operation &op : body.without_terminator())
      builder.clone(op, mapping);
    for (auto [result, value] : llvm::zip_equal(
             call.getResults(), body.getTerminator()->getOperands()))
      result.replaceAllUsesWith(mapping.lookupOrDefault(value));
    call.erase();
    inlined.insert(callee);
    return true;
  }

  /// Erases private functions that nothing refers to any more.
  void eraseUncalled() {
    for (auto function :
         llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
      if (!inlined.contains(function) || !function.isPrivate())
        continue;
      if (SymbolTable::symbolKnownUseEmpty(function, module)) {
        inlined.erase(function);
        symbols.erase(function);
      }
    }
  }

  ModuleOp module;
  SymbolTable symbols;
  const Mesh &mesh;
  llvm::DenseMap<func::FuncOp, bool> known;
  llvm::DenseSet<func::FuncOp> inlined;
};

class ImportCollectivesPass
    : public zpp::impl::ImportCollectivesPassBase<ImportCollectivesPass> {
public:
  using ImportCollectivesPassBase::ImportCollectivesPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<Mesh> stepMesh = getStepMesh(module, mesh);
    if (failed(stepMesh))
      return signalPassFailure();
    StepInliner(module, *stepMesh).run();
    SmallVector<StepCollective> collectives =
        getStepCollectives(module, *stepMesh);
    // Nothing is changed before everything is known to be sound.
    if (failed(checkGroups(collectives)))
      return signalPassFailure();

    module->setAttr(kMeshAttr, StringAttr::get(&getContext(), stepMesh->str()));
    auto meshAttr = MeshAttr::get(&getContext(), *stepMesh);
    for (auto [id, collective] : llvm::enumerate(collectives)) {
      Operation *op = collective.op;
      op->setAttr(
          kOriginAttr,
          getOriginAttr(&getContext(), getOrigin(collective, *stepMesh, id)));
      if (!collective.trips)
        remark::analysis(
            op->getLoc(),
            remark::RemarkOpts::name("unknown-trips").category(getArgument()))
            << ("the trip count of a loop around " +
                op->getName().getStringRef() +
                " is not constant; its bytes are counted once")
                   .str();
      if (std::string reason = getReason(collective); !reason.empty())
        leaveAlone(op, getArgument(), reason);
      else
        import(collective, meshAttr);
    }
  }

private:
  /// Groups of weights and gradients must be a product over tiers.
  LogicalResult checkGroups(ArrayRef<StepCollective> collectives) {
    LogicalResult result = success();
    for (const StepCollective &collective : collectives)
      if (collective.role != Role::Other && !collective.groupError.empty())
        result = collective.op->emitError("in the groups of a ")
                 << getRoleName(collective.role)
                 << " collective: " << collective.groupError;
    return result;
  }

  /// Why the collective is left alone, or empty.
  std::string getReason(const StepCollective &collective) {
    if (collective.role == Role::Other)
      return collective.reason;
    if (collective.role == Role::Weight && !weights)
      return "gathers of weights are to stay as they are";
    if (collective.role == Role::Gradient && !gradients)
      return "scatters of gradients are to stay as they are";
    if (collective.axes.empty())
      return "its groups have one device each";
    return "";
  }

  void import(const StepCollective &collective, MeshAttr meshAttr) {
    Operation *op = collective.op;
    OpBuilder builder(op);
    Location loc = op->getLoc();
    bool isGather = collective.kind == CollectiveKind::AllGather;
    Value operand = op->getOperand(0), result = op->getResult(0);
    auto whole =
        cast<RankedTensorType>((isGather ? result : operand).getType());

    Mesh plain = meshAttr.getMesh();
    SmallVector<FactorAttr> partitioned, held;
    for (const AxisRef &axis : collective.axes) {
      partitioned.push_back(FactorAttr::getPartitioned(
          AxisRefAttr::get(&getContext(), plain, axis)));
      held.push_back(FactorAttr::getWhole(&getContext(), axis.size));
    }
    auto primary = ShardType::get(&getContext(), whole, collective.dim,
                                  partitioned, meshAttr, QuantAttr());
    auto full = primary.withFactors(held);
    ArrayAttr along = getAxesAttr(&getContext(), plain, collective.axes);

    Value shard =
        FromLocalOp::create(builder, loc, isGather ? primary : full, operand);
    Operation *imported;
    if (isGather)
      imported = AllGatherOp::create(builder, loc, full, shard, along);
    else
      imported = ReduceScatterOp::create(builder, loc, primary, ReduceKind::Sum,
                                         shard, along, QuantAttr());
    copyOrigin(op, imported);
    result.replaceAllUsesWith(ToLocalOp::create(builder, loc, result.getType(),
                                                imported->getResult(0)));
    op->erase();
  }
};

} // namespace
