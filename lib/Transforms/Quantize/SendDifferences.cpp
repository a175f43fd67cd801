//===- SendDifferences.cpp - Weights as differences to what is held -------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
#include "LocalValues.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Transforms/Passes.h"
#include "zpp/Transforms/State.h"
#include "llvm/ADT/MapVector.h"

namespace zpp {
#define GEN_PASS_DEF_SENDDIFFERENCESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
/// One tensor that a device keeps, of any shape.
struct State {
  /// What is held before the step, until it becomes an argument; null where the
  /// step starts.
  UnrealizedConversionCastOp before;
  /// In the region of the manual computation.
  Value after;
  StringRef kind;
};

class SendDifferencesPass
    : public zpp::impl::SendDifferencesPassBase<SendDifferencesPass> {
public:
  using SendDifferencesPassBase::SendDifferencesPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    return requireStablehlo(context);
  }

  void runOnOperation() override {
    FailureOr<QuantAttr> quant = parseFormat(getOperation(), format, block);
    if (failed(quant))
      return signalPassFailure();
    if (!*quant) {
      emitError(getOperation().getLoc(),
                "expected a format i8 or i4 of differences, but got none");
      return signalPassFailure();
    }
    llvm::MapVector<Operation *, SmallVector<AllGatherOp>> gathers;
    getOperation().walk([&](AllGatherOp gather) {
      if (!gather->hasAttr(kKeepAttr) || gather.getType().getQuant())
        return;
      std::string reason = getReason(gather, *quant);
      if (reason.empty())
        gathers[gather->getParentOp()].push_back(gather);
      else
        leaveAlone(gather, getArgument(), reason);
    });
    for (auto &[manual, group] : gathers) {
      SmallVector<State> states;
      for (AllGatherOp gather : group)
        rewrite(gather, *quant, states);
      carry(manual, states);
    }
  }

private:
  /// Why whole values of `gather` are sent, or empty.
  static std::string getReason(AllGatherOp gather, QuantAttr quant) {
    ShardType from = gather.getOperand().getType();
    Type element = from.getGlobal().getElementType();
    if (!gather.getOperand().getDefiningOp<FromLocalOp>())
      return "its operand is no local tensor";
    if (!element.isF32() && !element.isBF16() && !element.isF16())
      return "its elements are no floating-point numbers to subtract";
    int64_t plain = from.getElementsPerUnit() * getElementBits(element) / 8;
    int64_t wire = quant.getLayout(from.getElementsPerUnit()).chunkBytes;
    if (wire >= plain)
      return "a slice of " + std::to_string(plain) + " bytes would take " +
             std::to_string(wire) + " as a difference";
    Operation *manual = gather->getParentOp();
    auto function = isManualComputation(manual)
                        ? dyn_cast_or_null<func::FuncOp>(manual->getParentOp())
                        : func::FuncOp();
    if (!function || !function.isPublic() ||
        getSharedNothingSharding(manual).empty())
      return "what is held of it cannot become an argument of the step: it is "
             "not gathered in a manual computation of the step itself";
    return "";
  }

  /// `value` of element type `element`, widened or rounded.
  static Value convert(StablehloBuilder &b, Value value, Type element) {
    if (element.isBF16() && b.typeOf(value).getElementType().isF32())
      value = b.roundToBF16(value);
    return b.convert(value, element);
  }

  void rewrite(AllGatherOp gather, QuantAttr quant,
               SmallVectorImpl<State> &states) {
    IRRewriter builder(gather);
    builder.setInsertionPoint(gather);
    Location loc = gather.getLoc();
    auto source = gather.getOperand().getDefiningOp<FromLocalOp>();
    ShardType from = source.getType(), to = gather.getType();
    Type element = from.getGlobal().getElementType();
    if (start) {
      builder.setInsertionPointAfter(gather);
      states.push_back({{}, source.getLocal(), "own"});
      states.push_back({{}, getLocal(builder, loc, gather), "held"});
      return;
    }
    auto getBefore = [&](RankedTensorType type) {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToStart(gather->getBlock());
      return UnrealizedConversionCastOp::create(builder, loc, type,
                                                ValueRange());
    };
    State own{getBefore(from.getLocalType()), {}, "own"};
    State held{getBefore(to.getLocalType()), {}, "held"};
    StablehloBuilder b(builder, loc);
    Type f32 = builder.getF32Type();
    Value ownBefore = b.convert(own.before.getResult(0), f32);
    Value difference = b.elementwise(
        "subtract", {b.convert(source.getLocal(), f32), ownBefore});
    ShardType wide = from.withElementType(f32);
    Value sent =
        EncodeOp::create(builder, loc, wide.withQuant(quant),
                         FromLocalOp::create(builder, loc, wide, difference));
    auto moved = AllGatherOp::create(builder, loc,
                                     to.withElementType(f32).withQuant(quant),
                                     sent, gather.getAlong());
    copyOrigin(gather, moved);
    moved->setAttr(kKeepAttr, gather->getAttr(kKeepAttr));
    auto decode = [&](Value encoded) {
      ShardType type =
          cast<ShardType>(encoded.getType()).withQuant(QuantAttr());
      Value decoded = DecodeOp::create(builder, loc, type, encoded);
      return getLocal(builder, loc, decoded);
    };
    Value arrived = decode(moved), ownDifference = decode(sent);
    StablehloBuilder after(builder, loc);
    // A product of a code and a scale is exact: both sums have the same bits,
    // fused or not.
    held.after = convert(
        after,
        after.elementwise(
            "add", {after.convert(held.before.getResult(0), f32), arrived}),
        element);
    own.after = convert(
        after, after.elementwise("add", {ownBefore, ownDifference}), element);
    remarkRewrite(moved, getArgument(), "sends the difference to what is held");
    replaceWithLocal(builder, gather, held.after);
    states.push_back(own);
    states.push_back(held);
  }

  /// Makes `states`, which are in `manual`, arguments and results of the step.
  void carry(Operation *manual, ArrayRef<State> states) {
    auto function = cast<func::FuncOp>(manual->getParentOp());
    MLIRContext *context = &getContext();
    int64_t devices = getNumDevices(getOperation()).value_or(1);
    DictionaryAttr attributes = getSharedNothingAttributes(manual);
    Block &body = manual->getRegion(0).front();
    IRRewriter builder(context);
    builder.setInsertionPoint(body.getTerminator());
    auto reshape = [&](Value value, ArrayRef<int64_t> shape) {
      return StablehloBuilder(builder, value.getLoc()).reshape(value, shape);
    };
    SmallVector<Value> operands, results;
    SmallVector<Attribute> list;
    if (auto before = getOperation()->getAttrOfType<ArrayAttr>(kStateAttr))
      llvm::append_range(list, before);
    for (const State &state : states) {
      auto type = cast<RankedTensorType>(state.after.getType());
      int64_t elements = type.getNumElements();
      results.push_back(reshape(state.after, elements));
      auto global =
          RankedTensorType::get({elements * devices}, type.getElementType());
      list.push_back(builder.getDictionaryAttr(
          {builder.getNamedAttr("kind", builder.getStringAttr(state.kind)),
           builder.getNamedAttr("type", TypeAttr::get(global))}));
      if (state.before) {
        unsigned number = function.getNumArguments();
        (void)function.insertArgument(number, global, attributes,
                                      state.after.getLoc());
        operands.push_back(function.getArgument(number));
      }
    }
    size_t numOperands = manual->getNumOperands();
    size_t numResults = manual->getNumResults();
    Operation *extended =
        extendManualComputation(manual, operands, results, devices);
    Block &region = extended->getRegion(0).front();
    builder.setInsertionPointToStart(&region);
    for (auto [index, state] : llvm::enumerate(states))
      if (UnrealizedConversionCastOp before = state.before) {
        Value flat = region.getArgument(numOperands + index);
        before.getResult(0).replaceAllUsesWith(reshape(
            flat,
            cast<RankedTensorType>(before.getResult(0).getType()).getShape()));
        before.erase();
      }
    Operation *end = function.getBody().front().getTerminator();
    for (Value result : extended->getResults().drop_front(numResults)) {
      unsigned number = function.getNumResults();
      (void)function.insertResult(number, result.getType(), attributes);
      end->insertOperands(end->getNumOperands(), result);
    }
    getOperation()->setAttr(kStateAttr, builder.getArrayAttr(list));
  }
};
} // namespace
