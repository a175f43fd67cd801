//===- DecomposeReduceScatter.cpp - Scatters as all-to-alls (qgZ, 3.3.1) --===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
#include "LocalValues.h"
#include "mlir/IR/Remarks.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Transforms/Passes.h"

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
    if (stages < 0) {
      emitError(getOperation().getLoc(),
                "expected at least 1 stage, or 0 to choose, but got ")
          << stages.getValue();
      return signalPassFailure();
    }
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
    LinksOption linksOption(getOperation(), links);
    for (ArrayRef<ReduceScatterOp> chain : chains) {
      FailureOr<std::optional<LinkModel>> model = linksOption.getModel(
          ReduceScatterOp(chain.front()).getMeshAttr().getMesh());
      if (failed(model))
        return signalPassFailure();
      decompose(chain,
                isOfAllReduce(chain.back()) ? 1 : getStages(chain, *model));
    }
  }

private:
  /// True if all devices gather the sum of `scatter`: zero-split-all-reduce
  /// cuts what is reduced to everyone before it comes here.
  static bool isOfAllReduce(ReduceScatterOp scatter) {
    Value value = scatter;
    while (value.hasOneUse() &&
           isa<EncodeOp, AllGatherOp, DecodeOp>(*value.user_begin()))
      value = value.user_begin()->getResult(0);
    return value != scatter.getResult() &&
           cast<ShardType>(value.getType()).isWhole();
  }

  /// The stages that are asked for, or those that suit the links.
  int64_t getStages(ArrayRef<ReduceScatterOp> chain,
                    const std::optional<LinkModel> &model) {
    if (stages > 0)
      return stages;
    if (!model)
      return 1;
    std::vector<double> usec;
    for (ReduceScatterOp scatter : chain) {
      ShardType from = scatter.getOperand().getType(), to = scatter.getType();
      Mesh mesh = scatter.getMeshAttr().getMesh();
      SmallVector<AxisRef> refs =
          cast<CollectiveOpInterface>(scatter.getOperation()).getAxisRefs();
      int64_t elements =
          to.getElementsPerUnit() * llvm::product_of(to.getWholeSizes());
      QuantAttr wire = scatter.getWireAttr();
      int64_t bytes =
          wire ? wire.getLayout(elements).chunkBytes
               : elements * (from.getGlobal().getElementTypeBitWidth() / 8);
      usec.push_back(model->getExchangeUsec(getSentBytes(
          mesh, CollectiveKind::AllToAll, {refs.begin(), refs.end()}, bytes)));
    }
    int64_t chosen = chooseStages(usec, kMostStages);
    if (chosen > 1)
      remark::passed(ReduceScatterOp(chain.front()).getLoc(),
                     remark::RemarkOpts::name("stages").category(getArgument()))
          << ("cut into " + std::to_string(chosen) + " stages");
    return chosen;
  }

  /// All hops of one scatter, for every stage. Each stage takes its part of
  /// every unit through all hops; the parts are put together at the end.
  void decompose(ArrayRef<ReduceScatterOp> chain, int64_t stages) {
    ReduceScatterOp last = chain.back();
    OpBuilder builder(last);
    Location loc = last.getLoc();
    Value local =
        getLocal(builder, loc, ReduceScatterOp(chain.front()).getOperand());
    int64_t unit = last.getType().getUnit();
    // Parts are put together one behind the other: of one unit, no more.
    bool endsWithOneUnit =
        llvm::product_of(last.getType().getWholeSizes()) == 1;
    int64_t numStages = 1;
    if (unit > 0 && endsWithOneUnit) {
      int64_t part = llvm::divideCeil(unit, std::min<int64_t>(stages, unit));
      numStages = llvm::divideCeil(unit, part);
    }
    SmallVector<Value> parts;
    for (int64_t stage = 0; stage < numStages; ++stage) {
      Value value = local;
      for (auto [hop, scatter] : llvm::enumerate(chain))
        value = decompose(builder, scatter, value, hop == 0 ? stage : 0,
                          hop == 0 ? numStages : 1);
      parts.push_back(value);
    }
    int64_t dim = last.getType().getDim();
    Value result = parts.front();
    if (parts.size() > 1)
      result = tensor::ConcatOp::create(builder, loc, dim, parts);
    replaceWithLocal(builder, last, result);
    for (ReduceScatterOp scatter : llvm::reverse(chain.drop_back()))
      eraseDeadChain(scatter);
  }

  Value decompose(OpBuilder &builder, ReduceScatterOp scatter, Value value,
                  int64_t stage, int64_t numStages) {
    Location loc = scatter.getLoc();
    ShardType from = scatter.getOperand().getType(), to = scatter.getType();
    // The positions, among the factors held whole, of those that this hop
    // partitions, in the order of its axes.
    SmallVector<int64_t> wholePosition(from.getFactors().size(), -1);
    int64_t position = 0;
    for (auto [index, factor] : llvm::enumerate(from.getFactors()))
      if (factor.isWhole())
        wholePosition[index] = position++;
    SmallVector<int64_t> chunk;
    SmallVector<int64_t> scattered = *to.findFactors(scatter.getAlong());
    for (int64_t index : scattered)
      chunk.push_back(wholePosition[index]);
    auto slices =
        SlicesAttr::get(&getContext(), from.getDim(), from.getWholeSizes(),
                        chunk, stage, numStages);

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
