//===- AssignOwners.cpp - One device for each orthogonalization -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All devices gather each momentum, and compute the same update, of which each
// takes its own slice. Of as many matrices as there are devices, each device
// can have one instead: an exchange brings it the slices of this one, and
// another one brings each device its slice of each update. Since all devices
// compute alike, whichever matrix they have, no branch tells owners apart.
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"
#include "Weights/Owners/OwnedWork.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "zpp/Analysis/Loops/CountedLoop.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Transforms/Passes.h"

#include <variant>

namespace zpp {
#define GEN_PASS_DEF_ASSIGNOWNERSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// A stack, of which each device has as many layers.
struct OwnedLayers {
  OwnedWork work;
  SplitProducts layers;
};

/// Matrices of which the same is computed, at most as many as there are
/// devices, in their order in the block.
using OwnedMatrices = SmallVector<OwnedWork>;

using Plan = std::variant<OwnedLayers, OwnedMatrices>;

class AssignOwnersPass
    : public zpp::impl::AssignOwnersPassBase<AssignOwnersPass> {
public:
  using AssignOwnersPassBase::AssignOwnersPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<AllGatherOp> gathers;
    module.walk([&](AllGatherOp gather) {
      if (isOfMoment(gather) && !isOfAnother(gather))
        gathers.push_back(gather);
    });
    FailureOr<Machine> machine = Machine::get(module);
    if (failed(machine))
      return signalPassFailure();
    for (AllGatherOp gather : gathers)
      inlineWork(gather);
    offsets.clear();
    // Everything is decided before anything changes.
    std::vector<Plan> plans;
    for (SmallVector<OwnedWork> &alike : findWork(module, gathers))
      addPlans(alike, *machine, plans);
    for (Plan &plan : plans)
      std::visit([&](auto &way) { rewrite(way); }, plan);
    // Until here, one may follow from what another plan knows.
    eraseIfDead(offsets);
  }

private:
  static bool isOfMoment(Operation *op) {
    return hasRole(getOrigins(op), Role::Moment);
  }

  /// True if `gather` is of an update, whose momentum has an owner in the step
  /// itself, or one hop of several.
  static bool isOfAnother(AllGatherOp gather) {
    SetVector<Operation *> sources;
    BackwardSliceOptions options;
    options.omitBlockArguments = true;
    return failed(getBackwardSlice(gather.getOperation(), &sources, options)) ||
           llvm::any_of(sources, isOfMoment);
  }

  void leave(AllGatherOp gather, const LeftAlone &why) {
    remarkMissed(gather, getArgument(), "no-owner")
        << "all devices compute what follows from it: " + why.getReason();
  }

  /// The work that follows from `gathers`, those alike together.
  std::vector<SmallVector<OwnedWork>> findWork(ModuleOp module,
                                               ArrayRef<AllGatherOp> gathers) {
    OwnedWorks works(module);
    ProvenanceAnalysis provenances;
    std::vector<SmallVector<OwnedWork>> classes;
    for (AllGatherOp gather : gathers) {
      Decision<OwnedWork> work = works.read(gather);
      if (!work) {
        leave(gather, work.getLeftAlone());
        continue;
      }
      auto alike = llvm::find_if(classes, [&](const auto &others) {
        return isSameWork(others.front(), *work, provenances);
      });
      if (alike == classes.end())
        classes.push_back({std::move(*work)});
      else
        alike->push_back(std::move(*work));
    }
    return classes;
  }

  void addPlans(ArrayRef<OwnedWork> alike, const Machine &machine,
                std::vector<Plan> &plans) {
    auto add = [&](Decision<Plan> plan, ArrayRef<OwnedWork> works) {
      if (plan)
        plans.push_back(std::move(*plan));
      else
        for (const OwnedWork &work : works)
          leave(work.gather, plan.getLeftAlone());
    };
    Decision<SplitProducts> layers = findLayers(alike.front());
    if (layers) {
      for (const OwnedWork &work : alike)
        add(getPlan(OwnedLayers{work, *findLayers(work)}, machine), work);
      return;
    }
    if (alike.size() == 1) {
      AllGatherOp gather = alike.front().gather;
      return leave(gather, isInLoop(gather)
                               ? LeftAlone("it is one in each iteration of a "
                                           "loop")
                               : layers.getLeftAlone());
    }
    size_t devices = zpp::numDevices(alike.front().getAxes());
    for (size_t begin = 0; begin < alike.size(); begin += devices) {
      ArrayRef<OwnedWork> works =
          alike.slice(begin, std::min(devices, alike.size() - begin));
      add(getPlan(OwnedMatrices(works), machine), works);
    }
  }

  //===--------------------------------------------------------------------===//
  // Decisions
  //===--------------------------------------------------------------------===//

  /// The time of the products of `work` on a device.
  static double getUsec(const OwnedWork &work, const DeviceModel &device) {
    ProvenanceAnalysis provenances;
    auto getTrips = [&](Operation *op) {
      return static_cast<double>(getTripCount(op, provenances).value_or(1));
    };
    double usec = 0;
    for (Operation *root : work.ops)
      root->walk([&](Operation *op) {
        if (double flops = getProductFlops(op); flops > 0)
          usec +=
              getTrips(op) *
              device.getProductUsec(
                  flops,
                  getElementBits(getElementTypeOrSelf(op->getOperand(0))), 0);
      });
    AllGatherOp gather = work.gather;
    return usec / getTrips(gather);
  }

  /// Whether `count` gathers and works, of which a device does one part in
  /// `parts` if these have owners, take longer than with exchanges of `units`
  /// times one part of each tensor. Where links are not known, whether they
  /// send at least as much over the slowest one.
  static Decision<> decide(const OwnedWork &work, const Machine &machine,
                           int64_t count, double parts, double units) {
    Mesh mesh = AllGatherOp(work.gather).getMeshAttr().getMesh();
    std::vector<AxisRef> axes = work.getAxes();
    int64_t devices = zpp::numDevices(axes);
    auto getExchange = [&](RankedTensorType type) {
      return getSentBytes(
          mesh, CollectiveKind::AllToAll, axes,
          static_cast<int64_t>(units * getBytes(type) / devices));
    };
    std::vector<int64_t> in = getExchange(work.getWholeType());
    std::vector<int64_t> out = getExchange(work.getResultType());
    int64_t part = count * getBytes(work.getWholeType()) / devices;
    std::optional<LinkModel> links = machine.findLinks(mesh);
    if (!links) {
      int64_t tier = mesh.findSlowest(axes);
      int64_t sent =
          getSentBytes(mesh, CollectiveKind::AllGather, axes, part)[tier];
      return compare(sent, in[tier] + out[tier],
                     "bytes cross the slowest links",
                     /*mayEqual=*/true);
    }
    double compute = count * getUsec(work, machine.getDevice());
    // Small gathers travel together.
    return compare(compute + links->getHopsUsec(mesh, axes, part),
                   compute / parts + links->getExchangeUsec(in) +
                       links->getExchangeUsec(out),
                   "usec pass", /*mayEqual=*/false);
  }

  static Decision<> compare(double now, double owned, StringRef what,
                            bool mayEqual) {
    if (owned < now || (mayEqual && owned == now))
      return Yes();
    return LeftAlone((Twine(static_cast<int64_t>(now)) + " " + what +
                      ", and with owners " + Twine(static_cast<int64_t>(owned)))
                         .str());
  }

  static Decision<Plan> getPlan(OwnedLayers plan, const Machine &machine) {
    int64_t devices = zpp::numDevices(plan.work.getAxes());
    double layers = plan.work.getWholeType().getDimSize(0);
    double own = llvm::divideCeil(static_cast<int64_t>(layers), devices);
    Decision<> decision =
        decide(plan.work, machine, 1, layers / own, own / layers);
    if (!decision)
      return decision.getLeftAlone();
    return Plan(std::move(plan));
  }

  static Decision<Plan> getPlan(OwnedMatrices plan, const Machine &machine) {
    if (plan.size() == 1)
      return LeftAlone("it is left over: those alike have owners");
    Decision<> decision =
        decide(plan.front(), machine, plan.size(), plan.size(), 1);
    if (!decision)
      return decision.getLeftAlone();
    return Plan(std::move(plan));
  }

  /// The ops that follow from slices of `works`, and stand before the last
  /// result, in their order: they have to wait for it. None if one of the works
  /// waits for another one.
  static std::optional<SmallVector<Operation *>>
  getReaders(ArrayRef<OwnedWork> works) {
    auto isBefore = [](Operation *a, Operation *b) {
      return a->isBeforeInBlock(b);
    };
    Operation *end = works.back().result.getDefiningOp();
    llvm::SetVector<Operation *> readers;
    for (const OwnedWork &work : works)
      readers.insert(work.slices.begin(), work.slices.end());
    size_t slices = readers.size();
    for (size_t i = 0; i < readers.size(); ++i)
      for (Operation *user : readers[i]->getUsers())
        if (Operation *op = end->getBlock()->findAncestorOpInBlock(*user);
            isBefore(op, end))
          readers.insert(op);
    for (const OwnedWork &work : works)
      if (readers.contains(work.gather))
        return std::nullopt;
    SmallVector<Operation *> sorted(llvm::drop_begin(readers, slices));
    llvm::sort(sorted, isBefore);
    return sorted;
  }

  //===--------------------------------------------------------------------===//
  // Rewrites
  //===--------------------------------------------------------------------===//

  /// Sends part i of dim `split` to device i, which joins what arrives along
  /// dim `join`.
  static Value exchange(StablehloBuilder &stablehlo, ArrayRef<OwnedWork> works,
                        Value value, int64_t split, int64_t join) {
    AllGatherOp gather = works.front().gather;
    WrittenGroups groups =
        writeGroups(gather->getParentOfType<ModuleOp>(),
                    gather.getMeshAttr().getMesh(), works.front().getAxes());
    Operation *moved = stablehlo.allToAll(value, groups, split, join);
    SmallVector<Attribute> origins;
    for (const OwnedWork &work : works)
      origins.push_back(AllGatherOp(work.gather)->getAttr(kOriginAttr));
    moved->setAttr(kOriginAttr,
                   origins.size() == 1
                       ? origins.front()
                       : ArrayAttr::get(gather.getContext(), origins));
    return moved->getResult(0);
  }

  /// `parts`, and the last one again, so that there are `count` along dim
  /// `dim`, which has one of each: a device with nothing to do does what
  /// another one does.
  static Value repeatLast(StablehloBuilder &stablehlo, SmallVector<Value> parts,
                          int64_t dim, int64_t count) {
    parts.resize(parts.size() + count, parts.back());
    return parts.size() == 1 ? parts.front()
                             : stablehlo.concatenate(parts, dim);
  }

  static Value getOperand(IRRewriter &builder, AllGatherOp gather) {
    return getLocal(builder, gather.getLoc(), gather.getOperand());
  }

  void replaceSlices(OwnedWork &work, Value slice) {
    for (Operation *op : work.slices) {
      llvm::append_range(offsets, llvm::drop_begin(op->getOperands()));
      op->getResult(0).replaceAllUsesWith(slice);
      op->erase();
    }
  }

  static void eraseGather(AllGatherOp gather) {
    gather->user_begin()->erase();
    eraseDeadChain(gather);
  }

  void remark(Operation *op, const Twine &what) {
    remarkRewrite(op, getArgument(), what);
  }

  void rewrite(OwnedLayers &plan) {
    OwnedWork &work = plan.work;
    int64_t layers = work.getWholeType().getDimSize(0);
    int64_t devices = zpp::numDevices(work.getAxes());
    int64_t own = llvm::divideCeil(layers, devices);
    int64_t from = work.gather.getOperand().getType().getDim();
    remark(work.gather, "each of " + Twine(devices) + " devices has " +
                            Twine(own) + " of " + Twine(layers) + " layers");
    IRRewriter builder(work.gather);
    StablehloBuilder stablehlo(builder, work.gather.getLoc());
    Value stack = getOperand(builder, work.gather);
    if (int64_t more = own * devices - layers) {
      SmallVector<Value> parts{stack,
                               stablehlo.slice(stack, 0, layers - 1, layers)};
      stack = repeatLast(stablehlo, parts, 0, more - 1);
    }
    setLayers(plan.layers, exchange(stablehlo, work, stack, /*split=*/0, from));
    builder.setInsertionPointAfterValue(work.result);
    StablehloBuilder back(builder, work.gather.getLoc());
    Value slice = back.slice(
        exchange(back, work, work.result, work.dim, /*join=*/0), 0, 0, layers);
    replaceSlices(work, slice);
    eraseGather(work.gather);
  }

  void rewrite(OwnedMatrices &works) {
    // Those before have moved ops.
    llvm::sort(works, [](OwnedWork &a, OwnedWork &b) {
      return a.gather->isBeforeInBlock(b.gather);
    });
    std::optional<SmallVector<Operation *>> readers = getReaders(works);
    if (!readers) {
      for (const OwnedWork &work : works)
        leave(work.gather, LeftAlone("one follows from the update of another"));
      return;
    }
    int64_t count = works.size();
    OwnedWork &last = works.back();
    int64_t devices = zpp::numDevices(last.getAxes());
    int64_t from = last.gather.getOperand().getType().getDim();
    remark(works.front().gather, "each of " + Twine(devices) +
                                     " devices has one of " + Twine(count) +
                                     " matrices");
    // All parts are there where the last one is gathered.
    Location loc = works.front().gather.getLoc();
    IRRewriter builder(last.gather);
    StablehloBuilder stablehlo(builder, loc);
    SmallVector<Value> parts;
    for (OwnedWork &work : works)
      parts.push_back(addDim(stablehlo, getOperand(builder, work.gather)));
    Value matrix = exchange(stablehlo, works,
                            repeatLast(stablehlo, parts, 0, devices - count),
                            /*split=*/0, from + 1);
    last.whole.replaceAllUsesWith(
        stablehlo.reshape(matrix, last.getWholeType().getShape()));
    builder.setInsertionPointAfterValue(last.result);
    StablehloBuilder back(builder, loc);
    Value slices = exchange(back, works, addDim(back, last.result),
                            last.dim + 1, /*join=*/0);
    // Slices that are replaced may stand right behind.
    SmallVector<Value> own;
    for (int64_t index = 0; index < count; ++index) {
      Value slice = back.slice(slices, 0, index, index + 1);
      own.push_back(
          back.reshape(slice, StablehloBuilder::shapeOf(slice).drop_front()));
    }
    for (auto [work, slice] : llvm::zip_equal(works, own))
      replaceSlices(work, slice);
    Operation *end = own.back().getDefiningOp();
    for (Operation *reader : *readers) {
      reader->moveAfter(end);
      end = reader;
    }
    for (OwnedWork &work : llvm::drop_end(works))
      for (Operation *op : llvm::reverse(work.ops))
        op->erase();
    for (OwnedWork &work : works)
      eraseGather(work.gather);
  }

  static Value addDim(StablehloBuilder &stablehlo, Value value) {
    SmallVector<int64_t> shape{1};
    llvm::append_range(shape, StablehloBuilder::shapeOf(value));
    return stablehlo.reshape(value, shape);
  }

  /// Those of slices that have been replaced.
  SmallVector<Value> offsets;
};
} // namespace
