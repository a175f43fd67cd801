//===- JoinProducts.cpp - Momenta that are gathered once ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Muon begins with the product of a momentum with itself. Where each device has
// a slice of the momentum, XLA splits this product and all that follow, and
// gathers for each of them. If all devices compute them whole, they need one
// gather, which can be rounded. Where that has no role, nothing changes.
//
//===----------------------------------------------------------------------===//

#include "Import/SplitProducts.h"
#include "Import/StepInliner.h"
#include "zpp/Analysis/Loops/CountedLoop.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Provenance.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Transforms/Attributes.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_JOINPRODUCTSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

//===----------------------------------------------------------------------===//
// The rewrite
//===----------------------------------------------------------------------===//

/// Builds, behind `value`, the slice of it that the device has with `share`.
static Value buildSlice(IRRewriter &builder, const SplitProducts &split,
                        Value value, int64_t dim, int64_t size) {
  std::vector<int64_t> offsets(split.groups.size() *
                               split.groups.front().size());
  for (const std::vector<int64_t> &group : split.groups)
    for (auto [place, device] : llvm::enumerate(group))
      offsets[device] = static_cast<int64_t>(place) * size;
  builder.setInsertionPointAfterValue(value);
  Location loc = value.getLoc();
  return buildSliceAt(builder, loc, value, dim,
                      buildPartitionOffset(builder, loc, offsets), size);
}

/// Has what reads the slice `value` from outside of `split` read the slice of
/// the whole tensor that it becomes.
static void widen(IRRewriter &builder, const SplitProducts &split, Value value,
                  const Share &share) {
  int64_t size = getTensorType(value).getDimSize(share.dim);
  value.setType(split.getWholeType(value.getType(), share));
  SmallVector<OpOperand *> outside;
  for (OpOperand &use : value.getUses())
    if (!split.contains(use.getOwner()))
      outside.push_back(&use);
  if (outside.empty())
    return;
  Value slice = buildSlice(builder, split, value, share.dim, size);
  for (OpOperand *use : outside)
    use->set(slice);
}

/// Has each device compute all of what follows from the matrix, which one
/// gather brings. Returns the gather.
static Operation *joinProducts(const SplitProducts &split) {
  // While ops have operands of one type.
  for (Operation *op : split.ops)
    if (Share share = split.shares.lookup(op->getResult(0));
        share.kind == Share::Kind::Slice)
      resizeSplats(op, split,
                   split.getWholeType(op->getResult(0).getType(), share)
                       .getDimSize(share.dim));
  Operation *first = split.getCollectives().front();
  auto module = split.gram->getParentOfType<ModuleOp>();
  IRRewriter builder(module.getContext());
  builder.setInsertionPointAfterValue(split.slice);
  Operation *gather =
      StablehloBuilder(builder, first->getLoc())
          .allGather(split.slice, writeGroups(module, split.groups), split.dim);
  Value(split.slice)
      .replaceUsesWithIf(gather->getResult(0), [&](OpOperand &use) {
        return split.contains(use.getOwner());
      });
  for (auto [value, share] : llvm::drop_begin(split.shares))
    if (share.kind == Share::Kind::Slice)
      widen(builder, split, value, share);
  auto isIdentity = [](Operation *op) {
    return getGuestCollective(op) || isNamed(op, guest::kDynamicSlice);
  };
  for (Operation *op : split.ops)
    if (isIdentity(op))
      op->getResult(0).replaceAllUsesWith(op->getOperand(0));
  for (Operation *op : split.ops)
    if (isIdentity(op))
      op->erase();
  return gather;
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
class JoinProductsPass
    : public zpp::impl::JoinProductsPassBase<JoinProductsPass> {
public:
  using JoinProductsPassBase::JoinProductsPassBase;

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
    // A loop may have several, of which one is joined at once.
    while (joinSome(module, *stepMesh, *machine, *declared))
      ;
  }

private:
  /// Bytes that the collectives of split products send over each tier.
  using Sent = std::vector<int64_t>;

  /// Joins the products that may be whole. If there are none, says why the
  /// others are left alone, and returns false.
  bool joinSome(ModuleOp module, const Mesh &mesh, const Machine &machine,
                const Declarations &declared) {
    std::vector<SplitProducts> all = findSplitProducts(module);
    SmallVector<Decision<Sent>> decisions;
    for (const SplitProducts &split : all)
      decisions.push_back(decide(split, all, mesh, machine));
    while (leaveOthers(module, decisions, mesh, declared))
      ;
    bool isAnyJoined =
        llvm::any_of(decisions, [](auto &decision) { return !!decision; });
    for (auto [split, decision] : llvm::zip_equal(all, decisions)) {
      if (decision)
        join(split, *decision);
      else if (!isAnyJoined)
        remarkMissed(split.getCollectives().front(), getArgument(),
                     "left-alone")
            << "devices split the products that follow from a gathered or "
               "added matrix: " +
                   decision.getReason();
    }
    return isAnyJoined;
  }

  void join(const SplitProducts &split, const Sent &sent) {
    size_t count = split.getCollectives().size();
    Operation *gather = joinProducts(split);
    gather->setAttr(kSentAttr, DenseI64ArrayAttr::get(&getContext(), sent));
    remarkPassed(gather, getArgument(), "rewritten")
        << ("products that devices have split with " + Twine(count) +
            (count == 1 ? " collective" : " collectives") +
            " are computed whole, after one gather")
               .str();
  }

  /// Whether the products of `split`, one of `all`, may be whole: if that sends
  /// less, or, where links are known, takes less time.
  Decision<Sent> decide(const SplitProducts &split, ArrayRef<SplitProducts> all,
                        const Mesh &mesh, const Machine &machine) {
    ProvenanceAnalysis provenances;
    CollectiveReader reader(mesh);
    Sent sent(mesh.getAxes().size());
    std::optional<LinkModel> model = machine.findLinks(mesh);
    auto getTrips = [&](Operation *op) {
      return getTripCount(op, provenances).value_or(1);
    };
    double usec = 0;
    std::optional<CollectiveView> first;
    for (Operation *op : split.getCollectives()) {
      CollectiveView view = *reader.read(op);
      if (!view.groupError.empty())
        return LeftAlone(view.groupError);
      std::vector<int64_t> bytes = view.getSentBytes(mesh);
      for (auto [sum, more] : llvm::zip_equal(sent, bytes))
        sum += getTrips(op) * more;
      if (model)
        usec +=
            static_cast<double>(getTrips(op)) * model->getExchangeUsec(bytes);
      first = std::move(view);
    }
    int64_t part = getBytes(getTensorType(split.slice));
    std::vector<int64_t> once =
        getSentBytes(mesh, CollectiveKind::AllGather, first->axes, part);
    int64_t trips = getTrips(split.gram);
    if (!model) {
      int64_t tier = mesh.findSlowest(first->axes);
      return compare(sent, sent[tier], trips * once[tier],
                     "bytes cross the slowest links");
    }
    DeviceModel device = machine.getDevice();
    auto size = static_cast<double>(split.groups.front().size());
    double whole = 0;
    for (Operation *op : split.ops)
      if (double flops = getProductFlops(op); flops > 0) {
        double each =
            static_cast<double>(getTrips(op)) *
            device.getProductUsec(
                flops, getElementBits(getElementTypeOrSelf(op->getOperand(0))),
                0);
        usec += each;
        whole += each * (isSplit(split, op) ? size : 1);
      }
    // Of those alike, each device can have one.
    auto alike = static_cast<double>(llvm::count_if(all, [&](auto &other) {
      return other.slice.getType() == split.slice.getType();
    }));
    return compare(sent, usec,
                   whole / std::min(alike, size) +
                       static_cast<double>(trips) *
                           model->getHopsUsec(mesh, first->axes, part),
                   "usec pass");
  }

  /// True if a device computes a part of `product` that is one of as many as
  /// there are devices.
  static bool isSplit(const SplitProducts &split, Operation *product) {
    return split.shares.lookup(product->getResult(0)).kind !=
           Share::Kind::Whole;
  }

  static Decision<Sent> compare(const Sent &sent, double now, double joined,
                                StringRef what) {
    if (joined < now)
      return sent;
    return LeftAlone((Twine(static_cast<int64_t>(now)) + " " + what +
                      ", and with one gather of it " +
                      Twine(static_cast<int64_t>(joined)))
                         .str());
  }

  /// Leaves those alone whose gathers would have no role. Returns whether there
  /// are any.
  static bool leaveOthers(ModuleOp module,
                          SmallVector<Decision<Sent>> &decisions,
                          const Mesh &mesh, const Declarations &declared) {
    if (llvm::none_of(decisions, [](auto &decision) { return !!decision; }))
      return false;
    OwningOpRef<ModuleOp> copy = module.clone();
    llvm::DenseMap<Operation *, Decision<Sent> *> gathers;
    for (auto [split, decision] :
         llvm::zip_equal(findSplitProducts(*copy), decisions))
      if (decision)
        gathers[joinProducts(split)] = &decision;
    bool isAnyLeft = false;
    for (const StepCollective &collective :
         getStepCollectives(*copy, mesh, declared)) {
      auto known = gathers.find(collective.op);
      if (known == gathers.end() || collective.role == Role::Moment)
        continue;
      *known->second = LeftAlone(collective.explain());
      isAnyLeft = true;
    }
    return isAnyLeft;
  }
};
} // namespace
