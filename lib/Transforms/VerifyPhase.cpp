//===- VerifyPhase.cpp - What a phase leaves to the next one --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Zero/IR/Contracts.h"
#include "zpp/Transforms/Attributes.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_VERIFYPHASEPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

static bool isLogical(Operation *op) {
  return isa<FromLocalOp, ToLocalOp, AllGatherOp, ReduceScatterOp, AllReduceOp,
             EncodeOp, DecodeOp>(op);
}

/// P1, P2 and P3: an op of the dialect on the logical level.
static LogicalResult verifyLogical(Operation *op, StringRef phase,
                                   bool hasWires = false) {
  if (!isa_and_present<ZeroDialect>(op->getDialect()))
    return success();
  if (!isLogical(op))
    return op->emitError("expected collectives on partitioned tensors after ")
           << phase << ", but got '" << op->getName() << "'";
  if (auto scatter = dyn_cast<ReduceScatterOp>(op);
      scatter && scatter.getWire() && !hasWires)
    return op->emitError("expected scatters without a wire format after ")
           << phase << ", but got " << scatter.getWireAttr();
  return success();
}

/// P1.
static LogicalResult verifyImported(Operation *op) {
  if (isa<EncodeOp, DecodeOp>(op))
    return op->emitError("expected tensors that are not encoded after import, "
                         "but got '")
           << op->getName() << "'";
  return verifyLogical(op, "import");
}

/// P2.
static LogicalResult verifyWeights(Operation *op) {
  if (op->hasAttr(kUpdatedAttr))
    return op->emitError("expected a decision about updates after weights, but "
                         "got ")
           << kUpdatedAttr << " of '" << op->getName()
           << "'; run zero-send-updates";
  return verifyLogical(op, "weights");
}

/// P3.
static LogicalResult verifyGradients(Operation *op) {
  if (isa<AllReduceOp>(op))
    return op->emitError("expected scatters and gathers after gradients, but "
                         "got '")
           << op->getName() << "'; run zero-split-all-reduce";
  return verifyLogical(op, "gradients", /*hasWires=*/true);
}

/// True for a scatter that a pass has left alone for a reason, and for the ops
/// at its border.
static bool isOfScatterLeftAlone(Operation *op) {
  auto isLeftAlone = [](Operation *other) {
    return isa_and_present<ReduceScatterOp>(other) &&
           other->hasAttr(kReasonAttr);
  };
  if (auto toLocal = dyn_cast<ToLocalOp>(op))
    return isLeftAlone(toLocal.getShard().getDefiningOp());
  if (isa<FromLocalOp>(op))
    return !op->use_empty() && llvm::all_of(op->getUsers(), isLeftAlone);
  return isLeftAlone(op);
}

/// P4, of one op.
static LogicalResult verifyInPlace(Operation *op) {
  if (isOfScatterLeftAlone(op))
    return success();
  if (isa<StartOp, WaitOp>(op))
    return op->emitError("expected no starts and waits after decompose, but "
                         "got '")
           << op->getName() << "'";
  return verifyDecomposedOp(op);
}

/// P5, of one op.
static LogicalResult verifyScheduled(Operation *op) {
  if (op->hasAttr(kLoopAttr))
    return op->emitError("expected loops written as planned after schedule, "
                         "but got ")
           << kLoopAttr << " of '" << op->getName()
           << "'; run zero-write-loops";
  return isOfScatterLeftAlone(op) ? success() : verifyDecomposedOp(op);
}

/// P5, of a module that zero-overlap-collectives has scheduled.
static LogicalResult verifyPlaces(ModuleOp module) {
  auto most = module->getAttrOfType<IntegerAttr>(kPrefetchAttr);
  if (!most)
    return success();
  bool isKept = true;
  for (const ScheduleEvent &event : getSchedule(module)) {
    if (!event.isMisplaced)
      continue;
    isKept = false;
    if (event.isStart)
      event.op->emitError("expected at most ")
          << most.getInt() << " bytes in flight, but got "
          << event.bytesInFlight;
    else
      event.op->emitError("expected a wait where weights are needed, but got "
                          "one with a heavy op in between");
  }
  return success(isKept);
}

/// P6.
static LogicalResult verifyLeft(Operation *op) {
  if (isa_and_present<ZeroDialect>(op->getDialect()))
    return op->emitError("expected no zero op after leave, but got '")
           << op->getName() << "'";
  if (holdsShard(op))
    return op->emitError("expected no partitioned tensor after leave, but got "
                         "one in '")
           << op->getName() << "'";
  for (StringRef name : {StringRef(kSourceAttr), StringRef(kUpdatedAttr),
                         StringRef(kForwardOnlyAttr)})
    if (op->hasAttr(name))
      return op->emitError("expected no attribute ")
             << name << " after leave, but got one of '" << op->getName()
             << "'";
  return success();
}

/// The check of one op that closes a phase.
static LogicalResult verifyAfter(PipelinePhase phase, Operation *op) {
  switch (phase) {
  case PipelinePhase::Import:
    return verifyImported(op);
  case PipelinePhase::Weights:
    return verifyWeights(op);
  case PipelinePhase::Gradients:
    return verifyGradients(op);
  case PipelinePhase::Decompose:
    return verifyInPlace(op);
  case PipelinePhase::Schedule:
    return verifyScheduled(op);
  case PipelinePhase::Leave:
    return verifyLeft(op);
  }
  llvm_unreachable("unknown phase");
}

namespace {
class VerifyPhasePass : public zpp::impl::VerifyPhasePassBase<VerifyPhasePass> {
public:
  using VerifyPhasePassBase::VerifyPhasePassBase;

  void runOnOperation() override {
    bool isMet = true;
    walkStep(getOperation(), [&](Operation *op) {
      isMet &= succeeded(verifyAfter(after, op));
      return WalkResult::advance();
    });
    if (after == PipelinePhase::Schedule)
      isMet &= succeeded(verifySchedule(getOperation())) &&
               succeeded(verifyPlaces(getOperation()));
    if (!isMet)
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
