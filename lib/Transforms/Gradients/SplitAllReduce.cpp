//===- SplitAllReduce.cpp - All-reduces as scatters and gathers -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every device that keeps a piece of the sum sends it in the format of the
// gather, and reads its own piece from what it sent: all devices then hold the
// same bits.
//
//===----------------------------------------------------------------------===//

#include "AllReducePlan.h"
#include "Formats.h"
#include "LocalValues.h"
#include "mlir/IR/IRMapping.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Dialect/Guest/DimFlow.h"
#include "zpp/Dialect/Guest/PartitionSlice.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_SPLITALLREDUCEPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class SplitAllReducePass
    : public zpp::impl::SplitAllReducePassBase<SplitAllReducePass> {
public:
  using SplitAllReducePassBase::SplitAllReducePassBase;

  void runOnOperation() override {
    if (failed(checkStages(getOperation(), stages)))
      return signalPassFailure();
    FailureOr<SmallVector<QuantAttr>> quants =
        parseFormats(getOperation(), formats, block, rotate);
    FailureOr<QuantAttr> back =
        parseFormat(getOperation(), reduced, block, rotate);
    if (failed(quants) || failed(back))
      return signalPassFailure();
    SmallVector<AllReduceOp> allReduces;
    getOperation().walk(
        [&](AllReduceOp allReduce) { allReduces.push_back(allReduce); });
    // Everything is decided before anything changes.
    AllReducePlanner planner(*quants, *back, stages, splitExact);
    FailureOr<Machine> machine = Machine::get(getOperation());
    if (failed(machine))
      return signalPassFailure();
    std::vector<std::pair<AllReduceOp, Decision<AllReducePlan>>> plans;
    bool hasLarge = false;
    for (AllReduceOp allReduce : allReduces) {
      Mesh mesh = allReduce.getMeshAttr().getMesh();
      plans.emplace_back(allReduce,
                         planner.decide(allReduce, machine->findLinks(mesh)));
      const Decision<AllReducePlan> &plan = plans.back().second;
      hasLarge |= plan && (getExchanges(*plan).hops.isQuantized() ||
                           getExchanges(*plan).reduced);
    }
    for (auto &[allReduce, plan] : plans) {
      if (!plan)
        restore(allReduce, plan.getLeftAlone());
      // There is no all-reduce of StableHLO that averages.
      else if (getExchanges(*plan).isSmall &&
               allReduce.getKind() == ReduceKind::Sum &&
               !(splitSmall && hasLarge))
        restore(allReduce, LeftAlone("its pieces are so small that they would "
                                     "not shrink"));
      else
        std::visit([&, allReduce = allReduce](
                       const auto &way) { split(allReduce, way); },
                   *plan);
    }
  }

private:
  /// Makes of `allReduce` what it was imported from.
  void restore(AllReduceOp allReduce, const LeftAlone &why) {
    leaveAlone(allReduce, getArgument(), why);
    IRRewriter rewriter(allReduce);
    StablehloBuilder stablehlo(rewriter, allReduce.getLoc());
    Value local =
        getLocal(rewriter, allReduce.getLoc(), allReduce.getOperand());
    WrittenGroups groups =
        writeGroups(allReduce->getParentOfType<ModuleOp>(),
                    allReduce.getMeshAttr().getMesh(), allReduce.getAxisRefs());
    Operation *restored = stablehlo.allReduce(local, groups.attr);
    restoreSource(allReduce, restored);
    copyOrigin(allReduce, restored);
    replaceWithLocal(rewriter, allReduce, restored->getResult(0));
  }

  void split(AllReduceOp allReduce, const SplitAlone &plan) {
    const ReduceExchanges &exchanges = plan.exchanges;
    Location loc = allReduce.getLoc();
    IRRewriter rewriter(allReduce);
    StablehloBuilder stablehlo(rewriter, loc);
    Value operand =
        stablehlo.reshape(getLocal(rewriter, loc, allReduce.getOperand()),
                          exchanges.hops.from.getGlobal().getShape());
    Value value = plan.stages > 1
                      ? reduceInStages(rewriter, allReduce, plan, operand)
                      : reduce(rewriter, allReduce, /*scatter=*/{}, exchanges,
                               exchanges.hops, operand);
    remarkSplit(allReduce, exchanges, "scattered in ");
    replaceWithLocal(rewriter, allReduce,
                     asResult(stablehlo, value, allReduce.getType()));
  }

  void split(AllReduceOp allReduce, const SplitWithScatter &plan) {
    const ReduceExchanges &exchanges = plan.exchanges;
    const ScatterPartner &partner = plan.partner;
    ReduceScatterOp scatter = partner.scatter;
    Operation *first = scatter, *last = allReduce;
    if (partner.isAfter)
      std::swap(first, last);
    Location loc = allReduce.getLoc();
    IRRewriter rewriter(last);
    StablehloBuilder stablehlo(rewriter, loc);
    Value operand = getLocal(rewriter, loc, first->getOperand(0));
    if (exchanges.isFlat)
      operand = stablehlo.reshape(operand,
                                  exchanges.hops.from.getGlobal().getShape());
    Value value = reduce(rewriter, allReduce, scatter, exchanges,
                         exchanges.hops, operand);
    // The path works on the piece that a device has.
    value = stablehlo.reshape(value, getPieceShape(allReduce, partner));
    int64_t dim = partner.dim;
    for (Operation *op : partner.path)
      value = rebuild(stablehlo, rewriter, op, value, partner.isAfter, dim);
    value = asResult(stablehlo, value,
                     cast<ShardType>(last->getResult(0).getType()));
    remarkSplit(allReduce, exchanges, "summed with a scatter in ");
    replaceWithLocal(rewriter, last, value);
    eraseDeadChain(first);
  }

  void remarkSplit(AllReduceOp allReduce, const ReduceExchanges &exchanges,
                   const Twine &what) {
    remarkRewrite(allReduce, getArgument(),
                  what + Twine(exchanges.hops.along.size()) +
                      " hops and gathered in " +
                      Twine(exchanges.gathers.size()));
  }

  /// `value` with the elements and the shape of the local part of `type`.
  static Value asResult(StablehloBuilder &stablehlo, Value value,
                        ShardType type) {
    RankedTensorType local = type.getLocalType();
    return stablehlo.reshape(stablehlo.convert(value, local.getElementType()),
                             local.getShape());
  }

  /// Returns the part of the scattered tensor that a device has where the path
  /// begins.
  static SmallVector<int64_t> getPieceShape(AllReduceOp allReduce,
                                            const ScatterPartner &partner) {
    ReduceScatterOp scatter = partner.scatter;
    if (!partner.isAfter)
      return llvm::to_vector(scatter.getType().getLocalType().getShape());
    SmallVector<int64_t> shape(allReduce.getType().getLocalType().getShape());
    shape[partner.dim] /= zpp::numDevices(scatter.getAxisRefs());
    return shape;
  }

  /// Scatters and gathers `operand`, what a device has of `hops.from`. `hops`
  /// are those of `exchanges`, or of a part of its tensor; `scatter` is that of
  /// the partner, or null.
  Value reduce(OpBuilder &builder, AllReduceOp allReduce,
               ReduceScatterOp scatter, const ReduceExchanges &exchanges,
               const ScatterHops &hops, Value operand) {
    Location loc = allReduce.getLoc();
    Value value = FromLocalOp::create(builder, loc, hops.from, operand);
    value = hops.build(
        builder, loc, allReduce.getKind(), value,
        /*isEncodedNext=*/static_cast<bool>(exchanges.reduced),
        /*inF32=*/exchanges.isSmall, [&](ReduceScatterOp hop, size_t index) {
          copyOrigin(exchanges.isOfScatter[index] ? scatter.getOperation()
                                                  : allReduce.getOperation(),
                     hop);
        });
    ShardType type =
        cast<ShardType>(value.getType()).withElementType(exchanges.element);
    return getLocal(builder, loc,
                    gather(builder, allReduce, exchanges, value, type));
  }

  /// The same for each part of a flat tensor: the hops of one part run under
  /// those of others (zero-pipeline-chunks).
  Value reduceInStages(OpBuilder &builder, AllReduceOp allReduce,
                       const SplitAlone &plan, Value operand) {
    Location loc = allReduce.getLoc();
    const ScatterHops &all = plan.exchanges.hops;
    RankedTensorType whole = all.from.getGlobal();
    int64_t elements = whole.getNumElements();
    // Only the last part is padded.
    int64_t unit = llvm::product_of(all.to.getFactorSizes()) * block;
    int64_t most =
        llvm::divideCeil(llvm::divideCeil(elements, plan.stages), unit) * unit;
    SmallVector<Value> parts;
    for (int64_t begin = 0; begin < elements; begin += most) {
      int64_t size = std::min(most, elements - begin);
      auto type = RankedTensorType::get(size, whole.getElementType());
      Value part = tensor::ExtractSliceOp::create(
          builder, loc, type, operand,
          ArrayRef<OpFoldResult>{builder.getIndexAttr(begin)},
          ArrayRef<OpFoldResult>{builder.getIndexAttr(size)},
          ArrayRef<OpFoldResult>{builder.getIndexAttr(1)});
      ScatterHops hops = all;
      for (ShardType *shard : {&hops.from, &hops.to})
        *shard = ShardType::get(&getContext(), type, 0, shard->getFactors(),
                                shard->getMesh(), QuantAttr());
      parts.push_back(reduce(builder, allReduce, /*scatter=*/{}, plan.exchanges,
                             hops, part));
    }
    return tensor::ConcatOp::create(builder, loc, /*dim=*/0, parts);
  }

  /// Gathers the pieces `value`, whose type is `type` but for the elements of
  /// a sum that stays in f32.
  Value gather(OpBuilder &builder, AllReduceOp allReduce,
               const ReduceExchanges &exchanges, Value value, ShardType type) {
    Location loc = allReduce.getLoc();
    if (exchanges.reduced)
      value = EncodeOp::create(builder, loc, type.withQuant(exchanges.reduced),
                               value, /*held=*/Value());
    for (ArrayAttr along : exchanges.gathers) {
      auto from = cast<ShardType>(value.getType());
      auto hop = AllGatherOp::create(builder, loc, from.withWhole(along), value,
                                     along);
      copyOrigin(allReduce, hop);
      value = hop;
    }
    if (!exchanges.reduced)
      return value;
    auto encoded = cast<ShardType>(value.getType());
    return DecodeOp::create(builder, loc, encoded.withQuant(QuantAttr()), value,
                            /*held=*/Value());
  }

  /// Applies `op`, of the path between the partners, to `value`, in the type
  /// of its elements. If `isPart`, `value` is a part in dim `dim` of what `op`
  /// had; `dim` becomes that of the result.
  static Value rebuild(StablehloBuilder &stablehlo, RewriterBase &rewriter,
                       Operation *op, Value value, bool isPart, int64_t &dim) {
    if (isNamed(op, guest::kConvert))
      return value;
    RankedTensorType type = getTensorType(value);
    Type element = type.getElementType();
    Value result;
    if (OpOperand *scaled = getScaled(op)) {
      Value factor = op->getOperand(1 - scaled->getOperandNumber());
      if (isPart)
        factor = stablehlo.slice(factor, dim, 0, type.getDimSize(dim));
      factor = stablehlo.convert(factor, element);
      SmallVector<Value> operands{value, factor};
      if (scaled->getOperandNumber() == 1)
        std::swap(operands[0], operands[1]);
      return stablehlo.elementwise(op->getName().stripDialect(), operands);
    }
    if (isPart) {
      int64_t size = type.getDimSize(dim);
      dim = *getResultDim(op, dim);
      result = buildOnPart(rewriter, op, value, dim, size);
    } else {
      IRMapping mapping;
      mapping.map(op->getOperand(0), value);
      result = rewriter.clone(*op, mapping)->getResult(0);
    }
    result.setType(getTensorType(result).clone(element));
    return result;
  }
};
} // namespace
