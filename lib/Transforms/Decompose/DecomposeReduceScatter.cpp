//===- DecomposeReduceScatter.cpp - Scatters as all-to-alls (qgZ, 3.3.1) --===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formats.h"
#include "LocalValues.h"
#include "UnitSlices.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Transforms/Passes.h"

#include <limits>

namespace zpp {
#define GEN_PASS_DEF_DECOMPOSEREDUCESCATTERPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
/// More stages than this have chunks too small to be worth it.
constexpr int64_t kMostStages = 8;

class DecomposeReduceScatterPass
    : public zpp::impl::DecomposeReduceScatterPassBase<
          DecomposeReduceScatterPass> {
public:
  using DecomposeReduceScatterPassBase::DecomposeReduceScatterPassBase;

  void runOnOperation() override {
    if (failed(checkStages(getOperation(), stages)))
      return signalPassFailure();
    SmallVector<SmallVector<ReduceScatterOp>> chains;
    getOperation().walk([&](ReduceScatterOp scatter) {
      // A scatter that an earlier pass left alone stays one collective.
      if (scatter->hasAttr(kReasonAttr))
        return;
      // Part of the chain that begins before it.
      if (auto before = scatter.getOperand().getDefiningOp<ReduceScatterOp>();
          before && before->hasOneUse())
        return;
      SmallVector<ReduceScatterOp> &chain = chains.emplace_back();
      chain.push_back(scatter);
      while (chain.back()->hasOneUse()) {
        auto next = dyn_cast<ReduceScatterOp>(*chain.back()->user_begin());
        if (!next)
          break;
        chain.push_back(next);
      }
    });
    FailureOr<Machine> machine = Machine::get(getOperation());
    if (failed(machine))
      return signalPassFailure();
    for (ArrayRef<ReduceScatterOp> chain : chains) {
      Mesh mesh = ReduceScatterOp(chain.front()).getMeshAttr().getMesh();
      SmallVector<Operation *> gathers = getGathers(chain.back());
      int64_t chosen = getStages(chain, gathers, machine->findLinks(mesh));
      if (!gathers.empty())
        chosen = getStagesWithGathers(chain, gathers, chosen);
      if (stages == 0 && chosen > 1)
        remarkPassed(ReduceScatterOp(chain.front()), getArgument(), "stages")
            << ("cut into " + std::to_string(chosen) + " stages");
      if (!gathers.empty() && chosen > 1)
        decompose(chain, gathers, chosen);
      else
        decompose(chain, {}, getStagesAlone(chain.back(), chosen));
    }
  }

private:
  /// Finds the gathers of the sum of `scatter`, if it is part of an all-reduce:
  /// gathers, after an encode and before a decode unless they are plain.
  static SmallVector<Operation *> getGathers(ReduceScatterOp scatter) {
    SmallVector<Operation *> ops;
    Value value = scatter;
    while (value.hasOneUse() &&
           isa<EncodeOp, AllGatherOp, DecodeOp>(*value.user_begin())) {
      ops.push_back(*value.user_begin());
      value = ops.back()->getResult(0);
    }
    // Several decodes may read what was gathered.
    if (llvm::none_of(ops, llvm::IsaPred<AllGatherOp>) ||
        cast<ShardType>(value.getType()).getQuant())
      ops.clear();
    return ops;
  }

  /// Returns the stages that are asked for, or those that suit the links.
  int64_t getStages(ArrayRef<ReduceScatterOp> chain,
                    ArrayRef<Operation *> gathers,
                    const std::optional<LinkModel> &model) {
    if (stages > 0)
      return stages;
    if (!model)
      return 1;
    std::vector<double> usec;
    for (ReduceScatterOp scatter : chain) {
      ShardType from = scatter.getOperand().getType(), to = scatter.getType();
      Mesh mesh = scatter.getMeshAttr().getMesh();
      std::vector<AxisRef> axes = scatter.getAxisRefs();
      int64_t elements =
          to.getElementsPerUnit() * llvm::product_of(to.getWholeSizes());
      QuantAttr wire = scatter.getWireAttr();
      int64_t bytes =
          wire ? wire.getLayout(elements).chunkBytes
               : elements * (from.getGlobal().getElementTypeBitWidth() / 8);
      usec.push_back(model->getExchangeUsec(
          getSentBytes(mesh, CollectiveKind::AllToAll, axes, bytes)));
      // The scatter and the gather over a tier take the same links.
      for (Operation *op : gathers)
        if (auto gather = dyn_cast<AllGatherOp>(op);
            gather && gather.getAlong() == scatter.getAlong())
          usec.back() += model->getCollectiveUsec(
              mesh, CollectiveKind::AllGather, axes,
              getBytes(gather.getOperand().getType().getLocalType()));
    }
    return chooseStages(usec, kMostStages);
  }

  /// Returns the stages, at most `wanted`, into which the hops of a scatter, of
  /// which `last` is the last one, are cut: each is a part of every unit. Parts
  /// are put together one after the other: of one unit, no more.
  static int64_t getStagesAlone(ReduceScatterOp last, int64_t wanted) {
    int64_t unit = last.getType().getUnit();
    if (unit == 0 || llvm::product_of(last.getType().getWholeSizes()) != 1)
      return 1;
    int64_t part = llvm::divideCeil(unit, std::min<int64_t>(wanted, unit));
    return llvm::divideCeil(unit, part);
  }

  /// Returns the stages, at most `wanted`, into which the hops of `chain` can
  /// be cut together with `gathers`: each is a part of the rows that a device
  /// has in the end. 1 if these are all rows (zero-split-all-reduce cuts
  /// those), or if what the first hop sends does not have them in one piece.
  static int64_t getStagesWithGathers(ArrayRef<ReduceScatterOp> chain,
                                      ArrayRef<Operation *> gathers,
                                      int64_t wanted) {
    ReduceScatterOp first = chain.front();
    ShardType from = first.getOperand().getType();
    auto to = cast<ShardType>(gathers.back()->getResult(0).getType());
    int64_t extent = from.getGlobal().getDimSize(from.getDim());
    int64_t slices = llvm::product_of(from.getFactorSizes());
    if (to.isWhole() || slices == 0 || extent % slices != 0 ||
        from.getWholeSizes().size() != from.getFactors().size())
      return 1;
    // What is gathered has the least significant factors, and stays whole in
    // the first hop.
    size_t kept = getNumKept(to);
    if (llvm::any_of(to.getFactors().take_front(kept),
                     [](FactorAttr factor) { return factor.isWhole(); }) ||
        llvm::any_of(first.getType().getFactors().drop_front(kept),
                     [](FactorAttr factor) { return !factor.isWhole(); }))
      return 1;
    int64_t gathered =
        llvm::product_of(ArrayRef(to.getFactorSizes()).drop_front(kept));
    int64_t rows = extent / slices * gathered;
    int64_t stages = std::max<int64_t>(wanted, 1);
    while (rows % (stages * gathered) != 0)
      --stages;
    return stages;
  }

  /// Returns the number of factors of `to`, what a device has in the end, up to
  /// the last one that is partitioned.
  static size_t getNumKept(ShardType to) {
    size_t kept = to.getFactors().size();
    while (kept > 0 && to.getFactors()[kept - 1].isWhole())
      --kept;
    return kept;
  }

  /// All hops of one scatter, and the gathers after them if there are any, for
  /// every stage. Each stage takes its part through all of them, and the parts
  /// are put together at the end.
  void decompose(ArrayRef<ReduceScatterOp> chain, ArrayRef<Operation *> gathers,
                 int64_t stages) {
    ReduceScatterOp first = chain.front();
    Operation *last = gathers.empty() ? chain.back() : gathers.back();
    OpBuilder builder(last);
    Location loc = last->getLoc();
    auto to = cast<ShardType>(last->getResult(0).getType());
    size_t counted = gathers.empty() ? to.getFactors().size() : getNumKept(to);
    Value local = getLocal(builder, loc, first.getOperand());
    SmallVector<Value> parts;
    for (int64_t stage = 0; stage < stages; ++stage) {
      Value value = decompose(builder, first, local, stage, stages, counted);
      for (ReduceScatterOp scatter : chain.drop_front())
        value = decompose(builder, scatter, value, 0, 1);
      if (!gathers.empty())
        value = gatherPart(builder, loc, gathers, value, stages);
      parts.push_back(value);
    }
    Value result = parts.front();
    if (parts.size() > 1)
      result = tensor::ConcatOp::create(builder, loc, to.getDim(), parts);

    // An encode goes with the gather that reads it.
    SmallVector<Operation *> replaced(chain.begin(), chain.end());
    llvm::append_range(
        replaced, llvm::make_filter_range(gathers, llvm::IsaPred<AllGatherOp>));
    llvm::erase(replaced, last);
    replaceWithLocal(builder, last, result);
    for (Operation *op : llvm::reverse(replaced))
      eraseDeadChain(op);
  }

  /// Clones `gathers` for `value`, the sum of one of `stages`, which is encoded
  /// where it is computed. Returns the local result.
  Value gatherPart(OpBuilder &builder, Location loc,
                   ArrayRef<Operation *> gathers, Value value, int64_t stages) {
    // The same on fewer rows.
    auto getPart = [&](Value whole) {
      auto type = cast<ShardType>(whole.getType());
      SmallVector<int64_t> shape(type.getGlobal().getShape());
      shape[type.getDim()] /= stages;
      return ShardType::get(&getContext(), type.getGlobal().clone(shape),
                            type.getDim(), type.getFactors(), type.getMesh(),
                            type.getQuant());
    };
    value = FromLocalOp::create(builder, loc,
                                getPart(gathers.front()->getOperand(0)), value);
    for (Operation *op : gathers) {
      Operation *part = builder.clone(*op);
      part->setOperand(0, value);
      value = part->getResult(0);
      value.setType(getPart(op->getResult(0)));
    }
    return getLocal(builder, loc, value);
  }

  /// One hop. If only the first `numFactors` factors are counted, a stage is a
  /// part of what lies between these.
  Value decompose(OpBuilder &builder, ReduceScatterOp scatter, Value value,
                  int64_t stage, int64_t numStages,
                  size_t numFactors = std::numeric_limits<size_t>::max()) {
    Location loc = scatter.getLoc();
    ShardType from = scatter.getOperand().getType(), to = scatter.getType();
    // This hop partitions factors in the order of its axes.
    SmallVector<int64_t> chunk =
        getWholePositions(from, *to.findFactors(scatter.getAlong()));
    SmallVector<int64_t> sizes = from.getWholeSizes();
    sizes.truncate(std::min(sizes.size(), numFactors));
    auto slices = SlicesAttr::get(&getContext(), from.getDim(), sizes, chunk,
                                  stage, numStages);

    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> chunkShape = slices.getChunkShape(type.getShape());
    Type sent =
        scatter.getWire() ? builder.getF32Type() : Type(type.getElementType());
    auto received = RankedTensorType::get(chunkShape, sent);
    Value init = createEmpty(builder, loc, received);
    auto exchange = AllToAllOp::create(builder, loc, TypeRange{received}, value,
                                       init, scatter.getAlong(), from.getMesh(),
                                       slices, scatter.getWireAttr());
    copyOrigin(scatter, exchange);
    auto reduced = RankedTensorType::get(ArrayRef(chunkShape).drop_front(),
                                         to.getGlobal().getElementType());
    return createLocal<ReduceOp>(builder, loc, reduced, exchange->getResult(0),
                                 scatter.getKind());
  }
};
} // namespace
